"""Run folders written from columns typed by hand."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from qualcheck.table import ROLLOUT_COLUMNS, TRANSITION_COLUMNS, Run, TableWriter

NAN = float("nan")
MakeRun = Callable[..., Run]

ROLLOUT_DEFAULTS: dict[str, Any] = {
    "source": "a.npy", "source_step": 0, "env": "toy", "level": "hard", "generator": "g", "instruction": "do it",
    "task": "t", "task_released": "t", "start": "reset", "gc_imagined": NAN, "gc_replayed": NAN,
    "gc_imagined_released": NAN, "gc_replayed_released": NAN, "gc_code": "", "consistency": NAN,
    "consistency_replayed": NAN, "trivial": False, "trivial_released": False, "correctness": NAN,
    "correctness_strict": NAN, "legality": NAN, "dl_row0": NAN, "dl_row0_rule": "", "coverage_tc": NAN,
    "coverage_dl": NAN, "scaled_error": NAN, "skill": NAN, "reward_consistency": NAN, "first_fault_step": -1,
    "first_divergence_step": -1, "flags": [],
}  # fmt: skip
STEP_DEFAULTS: dict[str, Any] = {
    "tc": NAN, "tc_strict": NAN, "tc_error": NAN, "tc_noise": NAN, "tc_scaled": NAN, "tc_scaled_state": NAN,
    "skill": NAN, "tc_code": "", "seeding": "", "dl": NAN, "dl_rule": "", "reward_error": NAN, "goal_share": NAN,
    "goal_share_replayed": NAN, "err_agent": NAN,
}  # fmt: skip
RESULTS: dict[str, Any] = {"env": "toy", "grade": "exact", "predicates": "intended", "definitions": 1}


def _columns(
    given: dict[str, Any], defaults: dict[str, Any], types: dict[str, pa.DataType], size: int
) -> dict[str, Any]:
    columns = {}
    for name in [*types, *(n for n in defaults if n not in types)]:
        value = given.get(name, defaults.get(name))
        values = value if name in given and isinstance(value, list) else [value] * size
        assert len(values) == size, name
        columns[name] = pa.array(values, types.get(name, pa.float32()), from_pandas=False)
    return columns


@pytest.fixture
def make_run(tmp_path: Path) -> MakeRun:
    """make_run(length=[2, 1], rollouts={column: value or list}, steps={...}, results={...}, name="run")."""

    def make(
        length: list[int],
        rollouts: dict[str, Any] | None = None,
        steps: dict[str, Any] | None = None,
        results: dict[str, Any] | None = None,
        name: str = "run",
    ) -> Run:
        folder = tmp_path / name
        folder.mkdir()
        size = len(length)
        defaults = ROLLOUT_DEFAULTS | {"length": 0}
        index = list(range(size))
        mine = {"rollout": index, "source_rollout": index, "cluster": index, "length": length} | (rollouts or {})
        table = _columns(mine, defaults, ROLLOUT_COLUMNS, size)
        owner = np.repeat(np.arange(size), length).tolist()
        step = [at for n in length for at in range(n)]
        rows = _columns({"rollout": owner, "step": step} | (steps or {}), STEP_DEFAULTS, TRANSITION_COLUMNS, len(owner))
        for file, content in (("rollouts.parquet", table), ("transitions.parquet", rows)):
            with TableWriter(folder / file, {"unit.err_agent": "cells"}) as writer:
                writer.append(content)
        manifest = {"schema": 1, "results": RESULTS | (results or {})}
        (folder / "manifest.json").write_text(json.dumps(manifest), encoding="utf-8")
        return Run.open(folder)

    return make
