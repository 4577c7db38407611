"""The tasks as environments, floors, experts and recordings."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from qualcheck.envs.halfcheetah import HalfCheetah, experts, floors, goals, search
from qualcheck.envs.halfcheetah.dynamics import Dynamics
from qualcheck.envs.halfcheetah.record import record
from qualcheck.envs.halfcheetah.simulator import HalfCheetahTask
from qualcheck.errors import UnknownName, UsageError
from qualcheck.types import Trajectory


def test_environment_replays_a_recording_with_its_reward_and_success(golden: Any) -> None:
    data, rollouts = golden["rephrase"]
    jumps = [i for i, task in enumerate(data["task_str"]) if task.startswith("rep-jump") and rollouts.length[i] <= 10]
    assert len(jumps) > 25
    for i in jumps:
        rows = rollouts.obs[rollouts.row_offsets[i] : rollouts.row_offsets[i + 1]]
        env = HalfCheetahTask(data["task_str"][i], "released")
        first, _ = env.reset(seed=1, options={"row": rows[0]})
        np.testing.assert_allclose(first, rows[0])
        for t in range(rollouts.length[i]):
            at = rollouts.offsets[i] + t
            obs, gain, done, truncated, info = env.step(rollouts.action[at])
            assert gain == pytest.approx(rollouts.reward[at], abs=1e-3)
            assert done == info["is_success"] == (t == rollouts.length[i] - 1)
            assert not truncated
        np.testing.assert_allclose(obs, rows[-1], atol=1e-2)


def test_environment_is_seeded_and_ends_after_200_steps() -> None:
    env = HalfCheetahTask("move-forward", instruction_code=np.ones(768))
    first, _ = env.reset(seed=5)
    again, _ = env.reset(seed=5)
    other, _ = env.reset(seed=6)
    assert first.shape == env.observation_space.shape == (786,)
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)
    ends = [env.step(np.zeros(6))[2:4] for _ in range(200)]
    assert ends == [(False, False)] * 199 + [(False, True)]


def test_environment_refuses_what_it_cannot_do() -> None:
    with pytest.raises(UnknownName, match="move-forward"):
        HalfCheetahTask("move-forwards")
    with pytest.raises(UnknownName, match="predicate set"):
        HalfCheetahTask("move-forward", "meant")
    with pytest.raises(UsageError, match="768"):
        HalfCheetahTask("move-forward", instruction_code=np.ones(3))
    env = HalfCheetahTask("move-forward")
    with pytest.raises(UsageError, match="no state"):
        env.reset(options={"row": np.full(18, np.nan)})
    env.reset(seed=0)
    with pytest.raises(ValueError, match="6 finite numbers"):
        env.step(np.full(6, np.nan))


def test_floors_of_any_horizon_come_from_the_table_and_match_the_measured_facts() -> None:
    adapter = HalfCheetah()
    assert adapter.floor("jump-in-place", "noop", 200) == (1000, 1000)
    assert adapter.floor("jump-in-place", "noop", 14) == (0, 1000)
    for task, policy, share in (
        ("jump-forward", "noop", 0.45),
        ("jump-backward", "noop", 0.72),
        ("jump-forward", "random", 0.87),
        ("jump-backward", "random", 0.96),
    ):
        won, episodes = adapter.floor(task, policy, 200) or (0, 1)
        assert won / episodes == pytest.approx(share, abs=0.05)
    for task in goals.TASK_IDS:
        for policy in floors.POLICIES:
            long, short = (adapter.floor(task, policy, horizon) for horizon in (200, 99))
            assert long is not None
            assert short is not None
            assert 0 <= short[0] <= long[0]
    assert adapter.floor("jump-forward", "noop", 201) is None
    assert adapter.floor("jump-forward", "expert", 200) is None


def test_measured_floor_agrees_with_the_shipped_one_and_with_stepping() -> None:
    won, n = floors.measure("jump-forward", "noop", 20, 200, np.random.default_rng(0))
    kept, episodes = floors.shipped("jump-forward", "noop", 20) or (0, 1)
    assert n == 200
    assert won / n == pytest.approx(kept / episodes, abs=0.12)
    stepped = 0
    for seed in range(40):
        env = HalfCheetahTask("jump-backward")
        env.reset(seed=seed)
        stepped += any(env.step(np.zeros(6))[2] for _ in range(20))
    kept, _ = floors.shipped("jump-backward", "noop", 20) or (0, 1)
    assert stepped / 40 == pytest.approx(kept / 1000, abs=0.25)
    with pytest.raises(UnknownName, match="floor policy"):
        floors.measure("jump-forward", "lazy", 20, 5, np.random.default_rng(0))


def test_table_of_floors_is_made_by_its_command(tmp_path: Path) -> None:
    floors.main(["-o", str(tmp_path / "floors.json"), "--episodes", "5"])
    assert '"longest_horizon": 200' in (tmp_path / "floors.json").read_text()


@pytest.mark.parametrize("task", goals.TASK_IDS)
def test_experts_reach_their_goal(task: str) -> None:
    rollouts = record(task, 20, np.random.default_rng(8), noise=0.1)
    assert rollouts.terminal is not None
    assert rollouts.terminal.sum() >= 17
    adapter = HalfCheetah()
    placements = [adapter.place(text) for text in rollouts.instruction]
    assert {placement.task for placement in placements} == {task}
    rows = Trajectory(rollouts.obs, rollouts.row_offsets, adapter.takeable(rollouts.obs) == 0)
    goal = adapter.goals(rows, placements, np.arange(20))
    won = np.logical_or.reduceat(goal.intended, rows.offsets[:-1])
    assert won.sum() == rollouts.terminal.sum()
    np.testing.assert_allclose(adapter.reward(rollouts, placements, np.arange(20))["intended"], rollouts.reward)


def test_recordings_replay_and_depend_on_their_generator_only() -> None:
    one, same, other = (record("move-forward", 6, np.random.default_rng(s), 0.2, 0.5) for s in (1, 1, 2))
    assert np.array_equal(one.obs, same.obs)
    assert one.obs.shape != other.obs.shape or not np.array_equal(one.obs, other.obs)
    replay = HalfCheetah().replay(one)
    assert np.abs(replay.candidates[0] - one.end_obs).max() < 1e-7
    assert one.truncated is not None
    assert (one.length[one.truncated[one.offsets[1:] - 1]] == 200).all()
    with pytest.raises(UnknownName, match="HalfCheetah task"):
        record("fly", 1, np.random.default_rng(0))


def test_search_finds_a_gait_that_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search, "ROUNDS", 6)
    monkeypatch.setattr(search, "CANDIDATES", 40)
    gait, score = search.find("backward", Dynamics(), np.random.default_rng(0))
    assert gait.shape == (3, 7)
    assert score > 1
    assert np.abs(experts.wave(gait, 30)).max() <= 1
