"""Goals hold where the balls say so, by the benchmark's own judge where it has one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from qualcheck.envs.clevr import Clevr, goals, text
from qualcheck.envs.clevr.goals import ActedRows
from qualcheck.types import GoalRows, Placement, Rollouts, Trajectory

FAR = [-0.4, 0.5, 0.4, 0.5, 0.4, -0.1, -0.4, -0.1, 0.0, 0.2]  # red, blue, green, purple, cyan far apart


def judge(sentence: str, *rows: list[float], action: list[int] | None = None) -> GoalRows:
    obs, offsets = np.array(rows, np.float32), np.array([0, len(rows)])
    ok = np.isfinite(obs).all(axis=1)
    shown = Trajectory(obs, offsets, ok)
    if action is not None:
        shown = ActedRows(obs, offsets, ok, np.array([-1, *action]), np.ones(1, bool))
    return goals.evaluate(shown, [text.place(sentence)], np.zeros(1, np.int64))


def with_ball(ball: int, x: float, y: float, row: list[float] = FAR) -> list[float]:
    return [*row[: 2 * ball], x, y, *row[2 * ball + 2 :]]


@pytest.mark.parametrize(
    ("way", "x", "y"), [("behind", -0.4, 0.2), ("left", -0.7, -0.1), ("in front of", -0.4, -0.4), ("right", -0.1, -0.1)]
)
def test_a_ball_stands_on_the_side_it_points_to_and_near(way: str, x: float, y: float) -> None:
    near, far = with_ball(0, x, y), with_ball(0, -0.4 + 1.5 * (x + 0.4), -0.1 + 1.5 * (y + 0.1))
    found = judge(f"push the red ball {way} the purple ball", FAR, near, far)
    assert found.intended.tolist() == found.released.tolist() == [False, True, False]
    assert found.share.tolist() == [0, 1, 0]


def test_the_limit_is_three_radii_and_a_millimetre_and_quarters_own_their_first_edge() -> None:
    rows = [with_ball(0, -0.4 + d, -0.1) for d in (0.3905, 0.3915)]
    assert judge("push the red ball right the purple ball", *rows).intended.tolist() == [True, False]
    diagonal = [
        with_ball(0, -0.4 + 0.2 * np.cos(a), -0.1 + 0.2 * np.sin(a)) for a in np.radians([44.9, 45.1, 134.9, 135.1])
    ]
    assert judge("push the red ball behind the purple ball", *diagonal).intended.tolist() == [False, True, True, False]


def test_both_parts_of_a_double_goal_have_to_hold_at_once() -> None:
    sentence = "push the red ball left of the blue ball and push the green ball behind the purple ball"
    one = with_ball(0, 0.1, 0.5)
    both = with_ball(2, -0.4, 0.2, one)
    found = judge(sentence, FAR, one, both)
    assert found.intended.tolist() == [False, False, True]
    assert found.share.tolist() == [0, 0.5, 1]


def test_a_line_runs_from_red_to_cyan_within_thirty_degrees() -> None:
    line = [-0.4, 0.1, -0.2, 0.2, 0.0, 0.1, 0.2, 0.2, 0.4, 0.1]
    steep = [-0.4, 0.1, -0.2, 0.22, 0.0, 0.1, 0.2, 0.2, 0.4, 0.1]
    found = judge("arrange the balls in a line", line, steep, line[::-1])
    assert found.intended.tolist() == [True, False, False]
    assert found.share[1] == 0.5


def test_balls_are_gathered_within_two_and_a_half_radii_of_the_green_one() -> None:
    around = [-0.3, 0.2, 0.3, 0.2, 0.0, 0.2, 0.0, 0.5, 0.0, -0.1]
    found = judge("gather all the balls together", around, with_ball(1, 0.33, 0.2, around))
    assert found.intended.tolist() == [True, False]
    assert found.share.tolist() == [1, 0.75]


def test_easy_goals_judge_the_action_and_the_benchmark_only_the_first() -> None:
    found = judge("push the green ball behind", FAR, FAR, FAR, FAR, action=[16 + 1, 16 + 0, 16 + 4])
    assert found.intended.tolist() == [False, True, False, True]
    assert found.released.tolist() == [False, True, False, False]
    assert found.judges_action is not None
    assert found.judges_action.tolist() == [True]
    assert not judge("push the green ball behind", FAR, FAR, action=[8 + 1]).intended.any(), "another ball"
    unknown = judge("push the green ball behind", FAR, FAR)
    assert np.isnan(unknown.share).all(), "without its action the goal cannot be told"
    assert not unknown.intended.any()


def test_the_first_action_of_a_cut_is_none_that_the_benchmark_judges() -> None:
    offsets, action = np.array([0, 2, 4]), np.array([-1, 17, -1, 17])
    rows = ActedRows(np.array([FAR] * 4), offsets, np.ones(4, bool), action, np.array([True, False]))
    found = goals.evaluate(rows, [text.place("push the green ball behind")], np.zeros(2, np.int64))
    assert found.intended.tolist() == [False, True, False, True]
    assert found.released.tolist() == [False, True, False, False]


@pytest.mark.parametrize(
    ("task", "params"),
    [("tau_left", ()), ("tau_left", ("red", "pink")), ("push_left", ("red", "blue")), ("tau_2", ("left", "red"))],
)
def test_a_task_without_its_balls_cannot_be_judged(task: str, params: tuple[str, ...]) -> None:
    rows = ActedRows(np.array([FAR] * 2), np.array([0, 2]), np.ones(2, bool), np.array([-1, 2]), np.ones(1, bool))
    found = goals.evaluate(rows, [Placement(task, task, params)], np.zeros(1, np.int64))
    assert np.isnan(found.share).all()
    assert not (found.intended | found.released).any()


def test_keeping_still_asks_that_no_ball_moves_and_never_holds_in_the_benchmark() -> None:
    found = judge("keep the cyan ball still", FAR, with_ball(0, -0.36, 0.5), with_ball(0, -0.3, 0.5), action=[1, 1])
    assert found.intended.tolist() == [False, True, False]
    assert not found.released.any()


def test_no_goal_holds_on_a_row_that_is_not_ok_or_without_a_task() -> None:
    found = judge("push the red ball behind the purple ball", with_ball(0, -0.4, 0.2), [np.nan] * 10)
    assert found.intended.tolist() == [True, False]
    rows = Trajectory(np.array([with_ball(0, -0.4, 0.2)]), np.array([0, 1]), np.ones(1, bool))
    none = goals.evaluate(rows, [Placement("", "", code="no_instruction")], np.zeros(1, np.int64))
    assert np.isnan(none.share).all()
    assert not (none.intended | none.released).any()


@pytest.mark.parametrize("level", ["real", "rephrase", "easy", "hard"])
def test_the_released_goal_is_the_recorded_judge_at_every_step(
    golden: dict[str, tuple[dict[str, Any], Rollouts]], level: str
) -> None:
    data, rollouts = golden[level]
    placements = [text.place(None, goal) for goal in rollouts.goal or []]
    rows = Trajectory(rollouts.obs, rollouts.row_offsets, np.ones(len(rollouts.obs), bool))
    found = goals.evaluate(Clevr().annotate(rows, rollouts), placements, np.arange(rollouts.n_rollouts))
    after = np.arange(rollouts.n_transitions) + rollouts.rollout + 1
    expected = np.asarray(data["step_success"])[rollouts.rollout, rollouts.step]
    np.testing.assert_array_equal(found.released[after], expected)
    np.testing.assert_array_equal(found.intended[after], expected)
    assert expected.any()
    if level in ("real", "rephrase"):
        first = found.released[rollouts.row_offsets[:-1]]
        np.testing.assert_array_equal(first, data["initial_success"])
