"""Floors of acting at random."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from qualcheck.envs.clevr import floors, goals
from qualcheck.errors import UnknownName
from qualcheck.floor_tables import digest


def test_every_task_has_a_floor_of_every_horizon_and_doing_nothing_has_none() -> None:
    for task in goals.TASK_IDS:
        kept = [floors.shipped(task, "random", horizon) for horizon in range(1, 51)]
        won = [found[0] for found in kept if found]
        assert len(won) == 50
        assert won == sorted(won)
        assert won[-1] <= 1000
        assert floors.shipped(task, "noop", 50) is None
        assert floors.shipped(task, "random", 51) is None
        assert floors.shipped(task, "random", 0) is None
    assert floors.shipped("tau", "random", 50) is None


def test_floors_of_easy_tasks_are_three_of_forty_actions() -> None:
    for way in goals.WAYS:
        won, n = floors.shipped(f"push_{way}", "random", 1) or (0, 1)
        assert won / n == pytest.approx(3 / 40, abs=0.025)
        assert floors.shipped(f"push_{way}", "random", 50) == (won, n), "their episodes have one step"


def test_measured_floor_agrees_with_the_shipped_one() -> None:
    for task, horizon, n in (("tau_left", 10, 150), ("push_front", 50, 400), ("order", 5, 50)):
        won, episodes = floors.measure(task, "random", horizon, n, np.random.default_rng(3))
        kept, of = floors.shipped(task, "random", horizon) or (0, 1)
        assert episodes == n
        assert won / n == pytest.approx(kept / of, abs=0.1)


def test_unknown_names_are_refused() -> None:
    with pytest.raises(UnknownName, match="floor policy"):
        floors.measure("tau_left", "noop", 5, 5, np.random.default_rng(0))
    with pytest.raises(UnknownName, match="CLEVR-Robot task"):
        floors.measure("tau_up", "random", 5, 5, np.random.default_rng(0))


def test_table_is_made_again_by_its_command(tmp_path: Path) -> None:
    floors.main(["--episodes", "4", "-o", str(tmp_path / "floors.json")])
    table = json.loads((tmp_path / "floors.json").read_text())
    won = {row["task"]: row["first_success"] for row in table["floors"]}
    assert set(won) == set(goals.TASK_IDS)
    assert all(sum(first.values()) <= 4 and all(0 < int(step) <= 50 for step in first) for first in won.values())
    assert any(won.values())
    assert table["sha256"] == digest(table)
