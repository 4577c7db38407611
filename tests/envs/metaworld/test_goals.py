"""When a task is reached, against recorded labels and rows typed by hand."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from qualcheck.envs.metaworld import goals
from qualcheck.envs.metaworld.goals import TILTED_TIP_UNKNOWN_M, TippedRows
from qualcheck.envs.metaworld.kernel import Episode, Kernel
from qualcheck.types import GoalRows, Placement, Trajectory

Row = Callable[..., Any]


def evaluate(task: str, rows: list[Any], **tipped: Any) -> GoalRows:
    obs, offsets = np.array(rows), np.array([0, len(rows)])
    ok = tipped.pop("ok", np.ones(len(rows), bool))
    plain = Trajectory(obs, offsets, ok)
    if tipped:
        tip = tipped.pop("tip", np.full((len(rows), 3), np.nan))
        plain = TippedRows(obs, offsets, ok, tip, tipped.pop("from_reset", np.array([True])), **tipped)
    return goals.evaluate(plain, [Placement(task, task)], np.array([0]))


def labels(golden: Any, name: str) -> tuple[list[str], list[Any], list[Any], list[Any]]:
    """Task, recorded success, released goal and share on rows 1..T of every rollout of a file."""
    data, placements, rollouts = golden[name]
    rows = Trajectory(rollouts.obs, rollouts.row_offsets, np.ones(len(rollouts.obs), bool))
    found = goals.evaluate(rows, placements, np.arange(len(placements)))
    spans = list(zip(rollouts.row_offsets[:-1] + 1, rollouts.row_offsets[1:], strict=True))
    recorded = [data["step_success"][i, :steps] for i, steps in enumerate(rollouts.length)]
    released = [found.released[first:last] for first, last in spans]
    return [p.task for p in placements], recorded, released, [found.share[first:last] for first, last in spans]


@pytest.mark.parametrize("name", ["real", "rephrase", "easy", "hard", "real_mj301"])
def test_released_success_equals_the_label_on_every_step_but_the_reaches_that_rows_cannot_tell(
    golden: Any, name: str
) -> None:
    for task, recorded, released, share in zip(*labels(golden, name), strict=True):
        if task.startswith("reach"):
            if name != "real_mj301":  # there the hand is tilted, so that the tip has to be told
                told = ~np.isnan(share)
                np.testing.assert_array_equal(released[told], recorded[told])
        else:
            np.testing.assert_array_equal(released, recorded)
            assert not np.isnan(share).any()


@pytest.mark.parametrize(("name", "family"), [("real", "2.3"), ("easy", "2.3"), ("real_mj301", "3.0")])
def test_with_the_carried_tip_every_reach_equals_its_label(golden: Any, name: str, family: str) -> None:
    data, placements, rollouts = golden[name]
    kernel = Kernel(family, threads=1)
    reaches = [i for i, placement in enumerate(placements) if placement.task.startswith("reach")]
    assert reaches
    for i in reaches:
        first, last = rollouts.row_offsets[i : i + 2]
        action = rollouts.action[rollouts.offsets[i] : rollouts.offsets[i + 1]]
        (played,) = kernel.play([Episode(placements[i].task, rollouts.obs[first:last], action)], filtered=True)
        found = evaluate(placements[i].task, list(rollouts.obs[first:last]), tip=played.tip_m)
        np.testing.assert_array_equal(found.released[1:], data["step_success"][i, : len(action)])
        assert not np.isnan(found.share).any()
    kernel.close()


def test_the_released_coffee_is_made_without_pressing_the_button(golden: Any) -> None:
    _, placements, rollouts = golden["hard"]
    rows = Trajectory(rollouts.obs, rollouts.row_offsets, np.ones(len(rollouts.obs), bool))
    found = goals.evaluate(rows, placements, np.arange(len(placements)))
    coffee = [i for i, placement in enumerate(placements) if placement.task == "make-coffee"]
    done = [slice(*rollouts.row_offsets[i : i + 2]) for i in coffee]
    assert sum(found.released[each].any() for each in done) == 5
    assert not any(found.intended[each].any() for each in done)
    assert [float(found.share[each].max()) for each in done] == [0.5, 0.5, 0.5, 0.0, 0.5, 0.5]


@pytest.mark.parametrize(
    ("task", "entity", "near", "far"),
    [
        ("push", "target_object", [0.07, 0.85, 0.24], [0.07, 0.85, 0.26]),
        ("pick-place", "target_object", [0.07, 0.85, 0.26], [0.07, 0.85, 0.28]),
        ("push-wall", "target_object", [0.07, 0.85, 0.26], [0.07, 0.85, 0.28]),
        ("pick-place-wall", "target_object", [0.07, 0.79, 0.2], [0.07, 0.77, 0.2]),
        ("button-press", "button", [0.5, 0.831, 0.0], [0.07, 0.829, 0.2]),
        ("button-press-wall", "button", [0.5, 0.821, 0.0], [0.07, 0.819, 0.2]),
        ("coffee-button", "coffee_button", [0.5, 0.831, 0.0], [0.07, 0.829, 0.2]),
        ("coffee-push", "coffee", [0.07, 0.91, 0.2], [0.07, 0.93, 0.2]),
        ("door-unlock", "lock", [0.051, 0.0, 0.0], [0.049, 0.85, 0.2]),
        ("door-lock", "lock", [0.0, 0.0, 0.219], [0.07, 0.85, 0.221]),
        ("door-open", "handle", [0.149, 0.0, 0.0], [0.151, 0.85, 0.2]),
        ("door-close", "handle", [0.149, 0.85, 0.2], [0.151, 0.85, 0.2]),
        ("window-open", "window", [0.119, 0.0, 0.0], [0.121, 0.85, 0.2]),
        ("window-close", "window", [0.021, 0.0, 0.0], [0.019, 0.85, 0.2]),
        ("faucet-open", "faucet", [0.11, 0.85, 0.17], [0.07, 0.92, 0.2]),
        ("faucet-close", "faucet", [0.07, 0.91, 0.2], [0.07, 0.93, 0.2]),
        ("hammer", "nail", [0.24, 0.731, 0.11], [0.24, 0.729, 0.11]),
        ("soccer", "soccer", [0.13, 0.85, 0.2], [0.15, 0.85, 0.2]),
    ],
)
def test_a_goal_holds_within_its_limit_and_not_beyond(row: Row, task: str, entity: str, near: Any, far: Any) -> None:
    found = evaluate(task, [row(**{entity: far}), row(**{entity: near}), row(**{entity: far})])
    assert found.intended.tolist() == found.released.tolist() == [False, True, False]
    assert found.share.tolist() == [0, 1, 0]


@pytest.mark.parametrize("task", ["reach", "reach-wall"])
def test_a_reach_is_read_from_the_hand_except_near_its_limit(row: Row, task: str) -> None:
    away = [0.043, 0.05, 0.057]
    rows = [row(hand=[0.07 + d, 0.85, 0.245]) for d in away]
    found = evaluate(task, rows)
    assert found.intended.tolist() == [True, False, False]
    np.testing.assert_array_equal(found.share, [1, np.nan, 0])
    told = evaluate(task, rows, tip=np.array([[0.07, 0.85, 0.14], [0.07, 0.85, 0.16], [np.nan] * 3]))
    assert told.intended.tolist() == [False, True, False]
    assert told.share.tolist() == [0, 1, 0]
    assert np.isnan(evaluate(task, rows, tip_unknown_m=TILTED_TIP_UNKNOWN_M).share).all()


def test_the_goal_is_that_of_row_0_whatever_later_rows_show(row: Row) -> None:
    at = {"target_object": [0.0, 0.6, 0.02]}
    found = evaluate("push", [row(**at), row(goal=[0.0, 0.6, 0.02], **at)])
    assert not found.intended.any()


def test_make_coffee_asks_for_the_mug_first_and_the_button_in_a_later_step(row: Row) -> None:
    away, there, deep = [0.07, 0.6, 0.0], [0.07, 0.8, 0.2], [0.07, 0.88, 0.2]
    up, down = [0.07, 0.85, 0.5], [0.07, 0.88, 0.5]
    rows = [
        row(coffee=away, coffee_button=down),  # pressed before the mug is there
        row(coffee=there, coffee_button=down),  # both in one step: the second is not tested yet
        row(coffee=away, coffee_button=up),
        row(coffee=away, coffee_button=down),
        row(coffee=deep, coffee_button=up),
    ]
    found = evaluate("make-coffee", rows)
    assert found.intended.tolist() == [False, False, False, True, False]
    assert found.released.tolist() == [False, False, False, False, True]
    assert found.share.tolist() == [0, 0.5, 0.5, 1, 0.5]


def test_locked_door_open_asks_for_the_handle_where_the_released_test_reads_the_lock(row: Row) -> None:
    shut, swung = [0.07, 0.9, 0.2], [-0.163, 0.6, 0.2]
    rows = [row(lock=[0.0, 0.9, 0.2], handle=swung), row(lock=shut, handle=shut)]
    rows += [row(lock=shut, handle=swung), row(lock=swung, handle=shut)]
    found = evaluate("locked-door-open", rows)
    assert found.intended.tolist() == [False, False, True, False]
    assert found.released.tolist() == [False, False, False, True]


@pytest.mark.parametrize("task", ["make-coffee", "locked-door-open", "door-unlock"])
def test_a_cut_of_a_task_with_a_history_cannot_be_judged(row: Row, task: str) -> None:
    rows = [row(coffee=[0.07, 0.85, 0.2], lock=[0.07, 0.85, 0.2])] * 3
    found = evaluate(task, rows, from_reset=np.array([False]))
    assert np.isnan(found.share).all()
    assert not found.intended.any()
    assert not found.released.any()
    assert not np.isnan(evaluate(task, rows, from_reset=np.array([True])).share).any()


def test_a_cut_of_door_unlock_is_judged_by_the_goal_of_row_0(row: Row) -> None:
    rows = [row(lock=[-0.1, 0.85, 0.2], goal=[0.0, 0.7, 0.211])]
    told = {"from_reset": np.array([False]), "first_goal": np.array([[-0.11, 0.85, 0.211]])}
    assert evaluate("door-unlock", rows, **told).intended.tolist() == [True]


def test_a_cut_of_a_single_step_task_is_judged(row: Row) -> None:
    found = evaluate("push", [row(target_object=[0.07, 0.85, 0.2])], from_reset=np.array([False]))
    assert found.intended.tolist() == [True]


def test_a_goal_never_holds_on_a_row_that_is_not_ok(row: Row) -> None:
    there = row(target_object=[0.07, 0.85, 0.2])
    found = evaluate("push", [there, there], ok=np.array([True, False]))
    assert found.intended.tolist() == [True, False]
    assert found.share.tolist() == [1, 0]
    shut = row(lock=[0.07, 0.9, 0.2], handle=[-0.163, 0.6, 0.2])
    later = evaluate("locked-door-open", [shut, shut, shut], ok=np.array([True, False, True]))
    assert not later.intended.any()  # the stage was only seen on a row that nothing can take on


def test_a_row_of_numbers_that_are_none_reaches_nothing(row: Row) -> None:
    found = evaluate("push", [row(), np.full(91, np.nan), np.full(91, np.inf)], ok=np.array([True, False, False]))
    assert not found.intended.any()


def test_no_task_is_not_judged(row: Row) -> None:
    found = evaluate("", [row()])
    assert np.isnan(found.share).all()
    assert not found.intended.any()


def test_rollouts_do_not_see_each_other(golden: Any) -> None:
    _, placements, rollouts = golden["hard"]
    rows = Trajectory(rollouts.obs, rollouts.row_offsets, np.ones(len(rollouts.obs), bool))
    every = goals.evaluate(rows, placements, np.arange(len(placements)))
    for i in (0, 7, 13, 20):
        mine = slice(*rollouts.row_offsets[i : i + 2])
        alone = evaluate(placements[i].task, list(rollouts.obs[mine]))
        np.testing.assert_array_equal(alone.released, every.released[mine])
        np.testing.assert_array_equal(alone.share, every.share[mine])


def test_the_margin_is_how_far_the_best_row_is_from_its_limit(row: Row) -> None:
    rows = [row(target_object=[0.07, 0.85, z]) for z in (0.2, 0.24, 0.30)]
    near = goals.margin(
        Trajectory(np.array(rows), np.array([0, 3]), np.ones(3, bool)), [Placement("push", "push")], np.array([0])
    )
    np.testing.assert_allclose(near, [0.01], atol=1e-12)
