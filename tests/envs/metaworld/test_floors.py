"""Floors of doing nothing and of acting at random."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from qualcheck.envs.metaworld import floors
from qualcheck.envs.metaworld.goals import TippedRows
from qualcheck.envs.metaworld.layout import TASKS
from qualcheck.errors import UnknownName


def test_every_task_has_floors_of_every_horizon() -> None:
    for task in TASKS:
        for policy in ("noop", "random"):
            kept = [floors.shipped(task, policy, horizon) for horizon in range(1, 101)]
            won = [found[0] for found in kept if found]
            assert len(won) == 100
            assert won == sorted(won)
            assert kept[-1] == (won[-1], floors.EPISODES)
        assert floors.shipped(task, "random", 101) is None
        assert floors.shipped(task, "expert", 100) is None
    assert floors.shipped("juggle", "noop", 100) is None


def test_the_benchmarks_doors_are_never_unlocked_by_chance() -> None:
    for task in ("door-unlock", "locked-door-open"):
        assert floors.shipped(task, "random", 100) == (0, floors.EPISODES)


def test_doing_nothing_solves_next_to_nothing() -> None:
    assert sum((floors.shipped(task, "noop", 100) or (0, 0))[0] for task in TASKS) < 0.02 * 22 * floors.EPISODES


@pytest.mark.parametrize("task", ["reach", "door-close"])
def test_a_measured_floor_agrees_with_the_shipped_one(task: str) -> None:
    won, episodes = floors.measure(task, "random", 60, 20, np.random.default_rng(3))
    kept, of = floors.shipped(task, "random", 60) or (0, 1)
    assert episodes == 20
    assert won / episodes == pytest.approx(kept / of, abs=0.3)
    assert floors.measure(task, "random", 60, 20, np.random.default_rng(3)) == (won, episodes)


def test_the_step_of_a_recorded_success_is_found(golden: dict) -> None:
    data, placements, rollouts = golden["easy"]
    won = data["success"].reshape(len(placements), -1).any(axis=1)
    for i in np.flatnonzero(won & (np.array([placement.task for placement in placements]) != "reach-wall")):
        rows = rollouts.obs[rollouts.row_offsets[i] : rollouts.row_offsets[i + 1]].astype(np.float64)
        shown = TippedRows(
            rows, np.array([0, len(rows)]), np.ones(len(rows), bool), np.full((len(rows), 3), np.nan), np.ones(1, bool)
        )
        assert floors.first_success(placements[i].task, shown, "released").tolist() == [len(rows) - 1]
        shown.ok[1:] = False
        assert floors.first_success(placements[i].task, shown, "released").tolist() == [-1]


def test_unknown_tasks_policies_and_predicates_are_refused() -> None:
    rng = np.random.default_rng(0)
    for task, policy, predicates in (
        ("juggle", "noop", "intended"),
        ("reach", "best", "intended"),
        ("reach", "noop", "x"),
    ):
        with pytest.raises(UnknownName):
            floors.measure(task, policy, 1, 1, rng, predicates)


def test_the_table_is_written_with_what_made_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(floors, "TASKS", {"window-open": TASKS["window-open"]})
    monkeypatch.setattr(floors, "HORIZON", 2)
    floors.main(["--episodes", "2", "-o", str(tmp_path / "floors.json")])
    kept = json.loads((tmp_path / "floors.json").read_text())
    assert (kept["episodes"], kept["family"]) == (2, "mujoco-2.3")
    assert {(row["task"], row["policy"]) for row in kept["floors"]} == {
        ("window-open", "noop"),
        ("window-open", "random"),
    }
