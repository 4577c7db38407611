"""The control: the same numbers on real rollouts, from `--reference` or shipped with the package."""

from __future__ import annotations

import json
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq

from qualcheck.spec import EnvSpec

COLUMNS = (
    "task",
    "level",
    "cluster",
    "length",
    "gc_imagined",
    "gc_replayed",
    "gc_imagined_released",
    "gc_replayed_released",
)


def shipped_control(spec: EnvSpec) -> dict[str, Any] | None:
    """The held-out real rollouts stored with the shipped calibration of an environment; None where there is none."""
    path = files("qualcheck") / "calibration" / f"{spec.id}.json"
    if not path.is_file():
        return None
    stored: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return {"source": stored["source"], "rollouts": stored["rollouts"]}


def control_of_run(folder: Path, source: str) -> dict[str, Any]:
    """The compact table of a scored folder that a report needs for its control row."""
    rollouts = pq.read_table(folder / "rollouts.parquet", columns=["rollout", *COLUMNS])
    steps = pq.read_table(folder / "transitions.parquet", columns=["rollout", "tc", "dl"])
    table: dict[str, list[Any]] = {
        name: [None if value != value else value for value in rollouts[name].to_pylist()] for name in COLUMNS
    }
    owner, size = steps["rollout"].to_numpy(), rollouts.num_rows
    for name in ("tc", "dl"):
        values = steps[name].to_numpy()
        table[f"{name}_pass"] = np.bincount(owner[values == 1], minlength=size).tolist()
        table[f"{name}_n"] = np.bincount(owner[~np.isnan(values)], minlength=size).tolist()
    return {"source": source, "rollouts": table}
