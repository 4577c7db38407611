"""The tasks as environments."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from qualcheck.envs.clevr import goals, text
from qualcheck.envs.clevr.dynamics import hidden_of
from qualcheck.envs.clevr.simulator import ClevrTask
from qualcheck.errors import UnknownName, UsageError

MIDDLE = [0.0, 0.2, -0.4, 0.5, 0.4, 0.5, -0.4, -0.1, 0.4, -0.1]
RIGHT, BEHIND = 0, 1


def named(placement: Any) -> str:
    return ":".join([placement.task, ",".join(placement.params)]).rstrip(":")


@pytest.mark.parametrize("level", ["real", "easy", "hard"])
def test_environment_replays_a_recording_with_its_reward_and_success(level: str, golden: Any) -> None:
    data, rollouts = golden[level]
    short = [i for i in range(rollouts.n_rollouts) if rollouts.length[i] <= 12 and not data["initial_success"][i]]
    assert len(short) >= 8
    for i in short[:12]:
        rows = rollouts.obs[rollouts.row_offsets[i] : rollouts.row_offsets[i + 1]]
        placement = text.place(None, rollouts.goal[i])
        env = ClevrTask(named(placement), "released")
        first, info = env.reset(seed=1, options={"row": rows[0]})
        np.testing.assert_array_equal(first, rows[0])
        assert text.place(info["instruction"]) == placement
        assert text.place(None, info["goal"]) == placement
        for t in range(rollouts.length[i]):
            at = rollouts.offsets[i] + t
            obs, gain, terminated, truncated, info = env.step(rollouts.action[at])
            assert gain == pytest.approx(rollouts.reward[at], abs=1e-4)
            assert info["is_success"] == data["step_success"][i, t]
            assert terminated == (info["is_success"] or level == "easy")
            assert not truncated
        np.testing.assert_allclose(obs, rows[-1], atol=1e-3)
        env.close()


def test_environment_starts_in_mid_rollout_with_its_hidden_numbers(golden: Any) -> None:
    data, rollouts = golden["real"]
    i = int((rollouts.length > 20).argmax())
    state, at = data["states"][i, 10][None], rollouts.offsets[i] + 10
    env = ClevrTask("gather")
    ends = []
    for hidden in (hidden_of(state)[0], None):
        env.reset(seed=0, options={"row": rollouts.start_obs[at], "hidden": hidden})
        ends.append(np.abs(env.step(rollouts.action[at])[0] - rollouts.end_obs[at]).max())
    assert ends[0] < 1e-6
    assert ends[1] > 1e-3
    with pytest.raises(UsageError, match="hidden numbers"):
        env.reset(options={"row": MIDDLE, "hidden": np.full(35, np.nan)})
    with pytest.raises(UsageError, match="hidden numbers"):
        env.reset(options={"row": MIDDLE, "hidden": np.zeros(3)})


def test_environment_is_seeded_and_ends_after_50_steps() -> None:
    env = ClevrTask("order", instruction_code=np.ones(768))
    first, told = env.reset(seed=5)
    again, same = env.reset(seed=5)
    other, _ = env.reset(seed=6)
    assert first.shape == env.observation_space.shape == (778,)
    assert np.array_equal(first, again)
    assert told["instruction"] == same["instruction"]
    assert not np.array_equal(first, other)
    ends = [env.step(8 * 4 + BEHIND)[2:4] for _ in range(50)]
    assert ends == [(False, False)] * 49 + [(False, True)]


@pytest.mark.filterwarnings("ignore:.*observation space.*infinity")
@pytest.mark.parametrize("task", goals.TASK_IDS)
def test_gymnasium_accepts_every_task_and_its_goal_is_not_met_at_the_start(task: str) -> None:
    env = ClevrTask(task)
    check_env(env, skip_render_check=True)
    for seed in range(4):
        obs, info = env.reset(seed=seed)
        placement = text.place(info["instruction"])
        assert placement.task == task
        held, number = goals.counts(obs.reshape(1, 5, 2), goals.roles([placement]))
        assert number[0] == 0 or held[0] < number[0]
    env.close()


def test_fixed_balls_are_kept_and_the_scene_is_drawn_so_that_the_goal_is_not_met() -> None:
    for name in ("tau_left:red,blue", "Is the red ball to the left of the blue ball"):
        env = ClevrTask(name)
        for seed in range(5):
            obs, info = env.reset(seed=seed)
            assert text.place(info["instruction"]).params == ("red", "blue")
            assert not goals.beside(obs.reshape(1, 5, 2), np.array([[0, 1, 1]])).any()


def test_a_given_row_may_meet_the_goal() -> None:
    env = ClevrTask("tau_front:red,blue")
    row = [*MIDDLE[:2], 0.0, 0.5, *MIDDLE[4:]]
    obs, _ = env.reset(seed=0, options={"row": row})
    assert obs.tolist() == row
    assert env.step(8 * 4 + BEHIND)[2], "and the row after a push elsewhere still does"


def test_easy_tasks_judge_the_action_and_end() -> None:
    env = ClevrTask("push_right:red")
    for action, won in ((RIGHT, True), (4, True), (BEHIND, False), (8 + RIGHT, False)):
        env.reset(seed=0, options={"row": MIDDLE})
        _, gain, terminated, truncated, info = env.step(action)
        assert (info["is_success"], terminated, truncated, gain) == (won, True, False, float(won))


def test_keeping_still_is_met_by_meaning_alone() -> None:
    row = [-0.47, 0.57, 0.47, 0.57, -0.47, -0.17, 0.47, -0.17, 0.0, 0.2]
    for predicates, won in (("intended", True), ("released", False)):
        env = ClevrTask("push_still:cyan", predicates)
        env.reset(seed=0, options={"row": row})
        assert env.step(2)[4]["is_success"] is won
    env = ClevrTask("push_still:cyan")
    env.reset(seed=0, options={"row": row})
    assert not env.step(8 * 4)[4]["is_success"]


def test_families_differ() -> None:
    ends = []
    for family in ("mujoco-3", "mujoco-2"):
        env = ClevrTask("gather", family=family)
        env.reset(seed=0, options={"row": MIDDLE})
        ends.append(env.step(RIGHT)[0])
    assert 1e-3 < np.abs(ends[0] - ends[1]).max() < 0.1


def test_environment_refuses_what_it_cannot_do() -> None:
    with pytest.raises(UnknownName, match="tau_left"):
        ClevrTask("tau_lift")
    with pytest.raises(UnknownName, match="predicate set"):
        ClevrTask("order", "meant")
    with pytest.raises(UsageError, match="768"):
        ClevrTask("order", instruction_code=np.ones(3))
    env = ClevrTask("order")
    for row in (np.full(10, np.nan), np.zeros(9), np.full(10, 0.7), np.zeros(10)):
        with pytest.raises(UsageError, match="no state"):
            env.reset(options={"row": row})
    env.reset(seed=0)
    for action in (40, -1, 0.5, np.nan, np.array([1, 2])):
        with pytest.raises(ValueError, match="0 to 39"):
            env.step(action)
