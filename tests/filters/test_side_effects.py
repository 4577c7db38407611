"""`filter --audit`: what a filter does beside raising quality, by hand-made data and on the shipped set."""

from __future__ import annotations

import json
import subprocess
import sys
import tracemalloc
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import qualcheck
from qualcheck.auditing import _states
from qualcheck.errors import UsageError
from qualcheck.filters.coverage import Coverage, Edges
from qualcheck.filters.side_effects import lines, side_effects
from qualcheck.registry import load
from qualcheck.spec import Block
from qualcheck.table import Run

SHIPPED = Path(qualcheck.__file__).parent / "data/babyai_imagined.parquet"
SPEC = replace(load("toy").spec, obs_size=2, blocks=(Block("x", (0,), "m"), Block("y", (1,), "m")))


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return qualcheck.score(SHIPPED, env="babyai", out=tmp_path_factory.mktemp("audit") / "run")


def _columns(n: int, **changed: Any) -> dict[str, np.ndarray]:
    columns: dict[str, Any] = {
        "task": np.array(["a", "b"] * (n // 2)),
        "level": np.array(["real"] * n),
        "instruction": np.array(["do a", "do b"] * (n // 2)),
        "length": np.full(n, 10),
        "consistency": np.ones(n),
        "consistency_kept": np.ones(n),
        "cluster": np.arange(n),
    }
    return {**columns, **changed}


def test_cells_and_entropy_by_hand() -> None:
    rows = np.array([[0.0, 0.0], [0.0, 0.0], [1.0, 0.0], [2.0, 1.0]])
    counted = Coverage(SPEC, Edges.learn(rows))
    counted.add(rows, np.array([True, False, True, False]))
    found = counted.summary()
    p = np.array([0.5, 0.25, 0.25])
    assert found["x"]["cells_before"] == 3
    assert found["x"]["cells_after"] == 2
    assert found["x"]["entropy_before"] == pytest.approx(-(p * np.log(p)).sum())
    assert found["x"]["entropy_after"] == pytest.approx(np.log(2))
    assert found["y"]["cells_before"] == 2
    assert found["y"]["cells_after"] == 1
    assert found["y"]["entropy_after"] == 0
    assert found["x"]["cells_random"] == pytest.approx((1 - 0.25) + 2 * (1 - 0.5))  # half of the rows are kept
    assert found["all blocks"]["cells_before"] == 3


def test_counting_in_parts_is_counting_at_once() -> None:
    rng = np.random.default_rng(0)
    rows, kept = rng.normal(size=(5_000, 2)), rng.random(5_000) < 0.3
    rows[17, 1] = np.nan
    edges = Edges.learn(rows)
    whole, parts = Coverage(SPEC, edges), Coverage(SPEC, edges)
    whole.add(rows, kept)
    for first in range(0, 5_000, 700):
        parts.add(rows[first : first + 700], kept[first : first + 700])
    assert whole.summary() == parts.summary()
    random = whole.summary()["all blocks"]
    assert random["cells_after"] == pytest.approx(random["cells_random"], rel=0.1)


def test_memory_does_not_grow_with_the_number_of_batches() -> None:
    def peak(batches: int) -> int:
        kept = np.ones(batches * 10_000, bool)
        source = _Batches(batches)
        tracemalloc.start()
        _states([source], [0], kept, np.array([0, len(kept)]))  # type: ignore[list-item]
        most = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return most

    a_batch = 10_000 * 2 * 8  # bytes
    assert peak(60) - peak(5) < 15 * a_batch  # views of each batch would hold 55


class _Batches:
    """A file of so many batches of 10,000 random rows, made when they are asked for."""

    spec = SPEC

    def __init__(self, n: int) -> None:
        self.n = n
        self.n_transitions = n * 10_000

    def batches(self, size: int) -> Iterator[Any]:
        for seed in range(self.n):
            rows = np.random.default_rng(seed).normal(size=(10_000, 2))
            yield SimpleNamespace(start_obs=rows, n_transitions=10_000)


def test_lost_tasks_sub_goals_and_levels_are_warned_of() -> None:
    n = 80
    columns = _columns(n, level=np.array(["easy"] * 40 + ["hard"] * 40))
    kept = (columns["task"] == "a") & (columns["level"] == "easy")
    columns["consistency_kept"] = np.where(kept, 0.5, np.nan)
    found = side_effects(columns, kept, np.where(kept, 10, 0), {"a": 0.2, "b": 0.97}, {})
    assert found["empty_tasks"] == ["b"]
    assert found["vanished_sub_goals"] == [
        {"task": "a", "share_before": 1.0, "share_after": 0.5},
        {"task": "b", "share_before": 1.0, "share_after": 0.0},
    ]
    said = found["warnings"]
    assert said[0] == "task b: none of 40 rollouts is kept"
    assert any(text.startswith("task a: no kept rollout reaches more than 0.5") for text in said)
    assert any(text.startswith("level hard: 0 % of 40") for text in said)
    assert {entry["name"]: entry["kept"] for entry in found["kept_share_by"]["difficulty"]} == {
        "random policy misses 0 to 50 %": 0,
        "random policy misses 50 to 90 %": 20,
    }
    assert found["effective_rollouts"] == {"before": 80, "after": 20}


def test_a_filter_that_takes_evenly_warns_of_nothing() -> None:
    columns = _columns(400)
    kept = np.arange(400) % 4 < 2
    found = side_effects(columns, kept, np.where(kept, 10, 0), {}, {})
    assert found["warnings"] == []
    assert lines(found)[0] == "side effects: no task or sub-goal is lost"


def test_effective_rollouts_by_hand() -> None:
    found = side_effects(_columns(2, length=np.array([30, 10])), np.ones(2, bool), np.array([30, 10]), {}, {})
    assert found["effective_rollouts"]["before"] == pytest.approx(1600 / 1000)  # (30 + 10)^2 / (900 + 100)


def test_nothing_kept_and_nothing_there_are_said(run: Run, tmp_path: Path) -> None:
    nothing = side_effects(_columns(0), np.zeros(0, bool), np.zeros(0, int), {}, {})
    assert nothing["rollouts"]["share"] is None
    assert lines(nothing)
    done = qualcheck.filter(run.path, out=tmp_path / "none.parquet", min_consistency=1, min_coverage=1, min_legality=1,
                            min_correctness=1, drop_trivial=True, audit=True, min_consistency_replayed=1)  # fmt: skip
    assert done.report["side_effects"]["rollouts"]["all"] == 332


@pytest.mark.parametrize("mode", ["rollouts", "truncate", "segments"])
def test_the_audit_of_a_run_adds_up(mode: str, run: Run, tmp_path: Path) -> None:
    done = qualcheck.filter(run.path, out=tmp_path / "kept.parquet", mode=mode, min_correctness=0.9, audit=True)
    content = json.loads((tmp_path / "kept.parquet.audit.json").read_text())
    assert content == done.report["side_effects"]
    for by in ("task", "level", "length", "difficulty"):
        entries = content["kept_share_by"][by]
        assert sum(entry["all"] for entry in entries) == 332, by
        assert sum(entry["kept"] for entry in entries) == done.report["rollouts"]["kept"], by
        assert all(entry["low"] <= entry["share"] <= entry["high"] for entry in entries)
    joint = content["states"]["all blocks"]
    assert 0 < joint["cells_after"] <= joint["cells_before"]
    assert joint["entropy_after"] <= joint["entropy_before"]
    assert {"ball", "agent", "carried"} <= set(content["states"])
    assert content["kept_replay"] == done.report["kept_replay"]
    assert sum(content["kept_replay"].values()) == done.report["pieces"]
    plain = qualcheck.filter(run.path, out=tmp_path / "plain.parquet", mode=mode, min_correctness=0.9)
    assert (tmp_path / "plain.parquet").read_bytes() == (tmp_path / "kept.parquet").read_bytes()
    assert not (tmp_path / "plain.parquet.audit.json").exists()
    assert "side_effects" not in plain.report


def test_an_audit_that_is_there_already_is_not_overwritten(run: Run, tmp_path: Path) -> None:
    (tmp_path / "kept.parquet.audit.json").write_text("mine")
    with pytest.raises(UsageError, match="exists already"):
        qualcheck.filter(run.path, out=tmp_path / "kept.parquet", audit=True)
    assert (tmp_path / "kept.parquet.audit.json").read_text() == "mine"


def test_the_command_prints_warnings_first(run: Run, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "qualcheck", "filter", str(run.path), "--min-consistency", "1", "--audit", "-o"]
    done = subprocess.run([*command, str(tmp_path / "kept.parquet")], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    told = [line for line in done.stdout.splitlines() if line.startswith("side effects: ")]
    assert any(line.startswith("side effects: task put_pile: ") for line in told)
    assert "kept by level" in done.stdout
