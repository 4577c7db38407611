"""Goals and rewards: every recorded label returns, and hand-made ways are judged as their text says."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from qualcheck.envs.halfcheetah import HalfCheetah, goals
from qualcheck.types import Placement, Trajectory

LEVELS = ("real", "rephrase", "easy", "hard")


def reached(adapter: HalfCheetah, rows: Trajectory, placements: Any, which: Any) -> tuple[Any, Any]:
    goal = adapter.goals(rows, placements, which)
    return tuple(np.logical_or.reduceat(hit, rows.offsets[:-1]) for hit in (goal.intended, goal.released))  # type: ignore[return-value]


def judge(task: str, moved: list[float], ok: Any = None) -> goals.GoalRows:
    """The goals of one rollout with these displacements, after a row 0 whose column 0 is a large absolute x."""
    obs = np.zeros((len(moved) + 1, 18), np.float32)
    obs[0, 0], obs[1:, 0] = 50, moved
    known = np.ones(len(obs), bool) if ok is None else ok
    rows = Trajectory(obs, np.array([0, len(obs)]), known)
    return goals.evaluate(rows, [Placement(task, task)], np.zeros(1, np.int64))


@pytest.mark.parametrize("level", LEVELS)
def test_released_goal_equals_recorded_success(level: str, golden: Any, placer: Any) -> None:
    data, rollouts = golden[level]
    adapter = HalfCheetah()
    rows = Trajectory(rollouts.obs, rollouts.row_offsets, adapter.takeable(rollouts.obs) == 0)
    intended, released = reached(adapter, rows, *placer(rollouts))
    assert np.array_equal(released, data["success"])
    differ = {data["task_str"][i] for i in np.flatnonzero(intended != released)}
    assert differ <= {"jump-forward", "jump-backward", "move-forward-backward", "move-backward-forward"}
    assert bool(differ & {"jump-forward", "jump-backward"}) == (level == "real")


@pytest.mark.parametrize("level", LEVELS)
def test_released_goal_survives_the_loss_of_next_observations(level: str, golden: Any, placer: Any) -> None:
    data, rollouts = golden[level]
    adapter = HalfCheetah()
    last = rollouts.row_offsets[1:] - 1
    kept = np.ones(len(rollouts.obs), bool)
    kept[last] = False
    stripped = replace(rollouts, obs=rollouts.obs[kept], has_final=np.zeros(rollouts.n_rollouts, bool))
    simulated = adapter.replay(stripped).candidates[0][stripped.offsets[1:] - 1]
    obs = rollouts.obs.copy()
    obs[last] = simulated
    rows = Trajectory(obs, rollouts.row_offsets, adapter.takeable(obs) == 0)
    _, released = reached(adapter, rows, *placer(rollouts))
    assert np.array_equal(released, data["success"])


@pytest.mark.parametrize("level", LEVELS)
def test_released_reward_equals_the_recorded_one(level: str, golden: Any, placer: Any) -> None:
    data, rollouts = golden[level]
    found = HalfCheetah().reward(rollouts, *placer(rollouts))
    np.testing.assert_allclose(found["released"], rollouts.reward, atol=1e-4)
    differ = {data["task_str"][i] for i in rollouts.rollout[np.abs(found["intended"] - found["released"]) > 1e-9]}
    assert differ == ({"jump-forward", "jump-backward"} if level == "real" else set())


def test_rewards_are_missing_where_a_row_or_a_task_is(golden: Any) -> None:
    rollouts = golden["easy"][1]
    obs, action = rollouts.obs.copy(), rollouts.action.copy()
    obs[3, 5], action[7, 0] = np.nan, np.inf
    broken = replace(rollouts, obs=obs, action=action)
    placements = [Placement("move-forward", "move-forward"), Placement("", "", code="no_instruction")]
    which = np.zeros(rollouts.n_rollouts, np.int64)
    which[1] = 1
    values = HalfCheetah().reward(broken, placements, which)["intended"]
    assert np.flatnonzero(np.isnan(values)[: rollouts.length[0]]).tolist() == [2, 3, 7]
    assert np.isnan(values[rollouts.offsets[1] : rollouts.offsets[2]]).all()
    assert np.isfinite(values[rollouts.offsets[2] :]).all()


def test_threshold_and_first_step_of_each_task() -> None:
    cases = [
        ("jump-forward", [0.1] * 6, 5),
        ("jump-backward", [-0.1] * 6, 5),
        ("move-forward", [0.08] * 120, 99),
        ("move-forward", [0.0625] * 120, 113),  # 112 steps are 7 m exactly, which is not more than 7
        ("rep-move-backward", [-0.0625] * 120, 113),
        ("move-backward-fast", [-0.0625] * 150, 137),
        ("jump-in-place", [0.0] * 16, 15),
        ("jump-in-place", [0.0] * 15 + [2.0], 15),
    ]
    for task, moved, step in cases:
        goal = judge(task, moved)
        for hit in (goal.intended, goal.released):
            assert np.flatnonzero(hit)[0] == step, task
        assert goal.share[step] == 1
    assert not judge("jump-forward", [-0.1] * 6).intended.any()
    assert not judge("move-forward", [0.08] * 98).intended.any()
    assert not judge("jump-in-place", [0.2] * 16).intended.any()


def test_order_of_the_directions_matters_to_the_intended_goal_only() -> None:
    out_and_back = [0.05] * 105 + [-0.05] * 95
    for task, right in (("move-forward-backward", True), ("move-backward-forward", False)):
        goal = judge(task, out_and_back)
        assert np.flatnonzero(goal.released).tolist() == [199, 200]
        assert np.flatnonzero(goal.intended).tolist() == ([199, 200] if right else [])
        assert goal.share.max() == (1 if right else 0)
    again = judge("move-forward-backward", [0.05] * 70 + [-0.05] * 70 + [0.1] * 60)
    assert again.intended[199], "what was done stays done"
    assert again.share[[59, 61, 129, 131, 200]].tolist() == [0, 0.5, 0.5, 1, 1]


def test_a_row_that_is_not_ok_ends_the_history() -> None:
    ok = np.ones(8, bool)
    ok[3] = False
    goal = judge("jump-forward", [0.1] * 7, ok)
    assert not (goal.intended | goal.released).any()
    ok = np.ones(8, bool)
    ok[6] = False
    assert np.flatnonzero(judge("jump-forward", [0.1] * 7, ok).intended).tolist() == [5]


def test_margin_is_the_distance_to_the_threshold() -> None:
    def near(task: str, moved: list[float], released: str = "") -> float:
        obs = np.zeros((len(moved) + 1, 18))
        obs[1:, 0] = moved
        rows = Trajectory(obs, np.array([0, len(obs)]), np.ones(len(obs), bool))
        return float(goals.margin(rows, [Placement(task, released or task)], np.zeros(1, np.int64))[0])

    assert near("move-forward", [0.08] * 100) == pytest.approx(1.0)
    assert near("move-forward", [0.06] * 100) == pytest.approx(1.0)
    assert near("jump-forward", [0.1] * 8, "jump-backward") == pytest.approx(0.5)
    assert near("jump-in-place", [0.1] * 15) == pytest.approx(0.45)
    assert near("move-forward", [0.08] * 50) == np.inf
    assert near("move-forward-backward", [0.05] * 100 + [-0.04] * 99) == pytest.approx(0.96)
    assert near("move-forward-backward", [0.05] * 160 + [-0.2] * 35 + [0] * 4) == pytest.approx(0.25)
    assert np.isnan(near("", [0.1]))


def test_goals_do_not_depend_on_the_batch() -> None:
    rng = np.random.default_rng(0)
    tasks = [goals.TASK_IDS[i] for i in rng.integers(len(goals.TASK_IDS), size=40)]
    size = rng.integers(1, 400, 40)
    obs = rng.normal(0.02, 0.1, (size.sum(), 18))
    offsets = np.concatenate([[0], np.cumsum(size)])
    placements = [Placement(task, task) for task in tasks]
    whole = goals.evaluate(Trajectory(obs, offsets, np.ones(len(obs), bool)), placements, np.arange(40))
    assert whole.intended.any()
    for i in range(40):
        rows = Trajectory(obs[offsets[i] : offsets[i + 1]], np.array([0, size[i]]), np.ones(size[i], bool))
        alone = goals.evaluate(rows, placements[i : i + 1], np.zeros(1, np.int64))
        part = slice(offsets[i], offsets[i + 1])
        assert np.array_equal(alone.intended, whole.intended[part])
        assert np.array_equal(alone.released, whole.released[part])
        assert np.array_equal(alone.share, whole.share[part])
