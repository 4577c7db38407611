"""Goals: every recorded label returns, and hand-made rows are judged by the distances of their task."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from qualcheck.envs.libero import goals
from qualcheck.envs.libero.columns import StartedRows
from qualcheck.types import Placement, Trajectory

LEVELS = ("real", "rephrase", "easy", "hard")
BASKET = np.array([0.0, 0.26, -0.0046])
SOUP = np.array([-0.1191, -0.2398, 0.0384])


def by(place: Any, *way: float) -> Any:
    return place + np.array(way)


def placed(data: dict[str, Any]) -> tuple[list[Placement], Any]:
    return [Placement(task, task) for task in data["task_str"]], np.arange(len(data["task_str"]))


def judge(task: str, rows: list[Any], ok: Any = None, cut: bool = False) -> goals.GoalRows:
    obs = np.array(rows, np.float32)
    known = np.ones(len(obs), bool) if ok is None else np.array(ok)
    each = StartedRows(obs, np.array([0, len(obs)]), known, np.array([not cut]))
    return goals.evaluate(each, [Placement(task, task)], np.zeros(1, np.int64))


@pytest.mark.parametrize("level", LEVELS)
def test_released_goal_equals_the_recorded_success_of_every_step(level: str, golden: Any) -> None:
    data, rollouts = golden[level]
    rows = Trajectory(rollouts.obs, rollouts.row_offsets, np.ones(len(rollouts.obs), bool))
    found = goals.evaluate(rows, *placed(data))
    recorded = np.concatenate([data["step_success"][i, :n] for i, n in enumerate(rollouts.length)])
    assert recorded.any()
    assert np.array_equal(found.released[rollouts.row + 1], recorded)
    assert not found.released[rollouts.first_row].any()
    whole = np.logical_or.reduceat(found.released, rollouts.row_offsets[:-1])
    assert np.array_equal(whole, data["success"])


@pytest.mark.parametrize("level", LEVELS)
def test_intended_goal_differs_only_where_the_text_says_otherwise(level: str, golden: Any) -> None:
    data, rollouts = golden[level]
    rows = Trajectory(rollouts.obs, rollouts.row_offsets, np.ones(len(rollouts.obs), bool))
    found = goals.evaluate(rows, *placed(data))
    owner = np.repeat(np.arange(rollouts.n_rollouts), np.diff(rollouts.row_offsets))
    differ = {data["task_str"][i] for i in owner[found.intended != found.released]}
    assert all("aside" in task or task == goals.ALL for task in differ)
    assert (goals.ALL in differ) == (level == "hard"), "the bottle was left out in the recorded successes"
    assert np.array_equal(found.share == 1, found.intended)


def test_mutated_goals_are_not_reached(mutated: Any) -> None:
    data, rollouts = mutated
    rows = Trajectory(rollouts.obs, rollouts.row_offsets, np.ones(len(rollouts.obs), bool))
    found = np.logical_or.reduceat(goals.evaluate(rows, *placed(data)).released, rollouts.row_offsets[:-1])
    fault = np.array(data["fault"])
    assert not found[fault == "truncated_goal"].any()
    assert np.array_equal(found[fault == "none"], data["success"][fault == "none"])


def test_thresholds_of_the_tasks_with_one_goal(row: Any) -> None:
    hand = {"hand": [-0.119, -0.24, 0.07]}
    cases = [
        ("reach-alphabet_soup", row(**hand), row(hand=[-0.119, -0.24, 0.09])),
        ("place-alphabet_soup", row(alphabet_soup=by(BASKET, 0.13, 0, 0.15)),
         row(alphabet_soup=by(BASKET, 0, 0, 0.16))),
        ("rep-place-cream_cheese", row(cream_cheese=BASKET), row(cream_cheese=by(BASKET, 0.1, 0.1, 0))),
        ("place-salad_dressing", row(salad_dressing=by(BASKET, 0, 0, 0.21)),
         row(salad_dressing=by(BASKET, 0, 0, 0.23))),
        ("pick-and-place-alphabet_soup", row(alphabet_soup=BASKET), row()),
        ("pick-alphabet_soup-and-place-to-cream_cheese", row(alphabet_soup=[-0.15, -0.03, 0.2]),
         row(alphabet_soup=[-0.15, -0.05, 0.03])),
        ("pick-cream_cheese-and-place-to-alphabet_soup", row(cream_cheese=SOUP), row()),
        ("pick-out-of-alphabet_soup", row(), row(alphabet_soup=by(BASKET, 0.44, 0, 0))),
        ("pick-out-of-cream_cheese", row(cream_cheese=by(BASKET, 0.36, 0, 0)),
         row(cream_cheese=by(BASKET, 0.34, 0, 0))),
    ]  # fmt: skip
    for task, there, not_there in cases:
        found = judge(task, [not_there, there, not_there])
        for hit in (found.intended, found.released):
            assert hit.tolist() == [False, True, False], task
        assert found.share.tolist() == [0, 1, 0]


def test_seizing_needs_the_hand_at_an_object_that_moves(row: Any) -> None:
    near, far = [-0.119, -0.24, 0.07], [-0.119, -0.24, 0.2]
    moved = by(SOUP, 0, 0, 0.002)
    rows = [row(hand=near, alphabet_soup=moved), row(hand=near), row(hand=near), row(hand=far, alphabet_soup=moved)]
    for task in ("pick-alphabet_soup", "rep-pick-alphabet_soup"):
        assert judge(task, rows).released.tolist() == [False, True, False, False]
    assert not judge("pick-cream_cheese", rows).released.any()
    unknown = judge("pick-alphabet_soup", rows, ok=[False, True, True, True])
    assert not unknown.intended.any(), "what is not known to have moved was not seized"


def test_sequences_latch_and_take_either_order(row: Any) -> None:
    task = "sequential-pick-and-place-alphabet_soup-and-cream_cheese"
    rows = [row(), row(cream_cheese=BASKET), row(), row(alphabet_soup=BASKET), row()]
    found = judge(task, rows)
    assert found.intended.tolist() == found.released.tolist() == [False, False, False, True, True]
    assert found.share.tolist() == [0, 0.5, 0.5, 1, 1]
    gap = judge(task, rows, ok=[True, False, True, True, True])
    assert not gap.intended.any(), "a row that no simulator can take on latches nothing"
    assert gap.share.tolist() == [0, 0, 0, 0.5, 0.5]


def test_row_0_of_a_sequence_is_trivial_but_does_not_latch(row: Any) -> None:
    done = row(alphabet_soup=BASKET, cream_cheese=by(BASKET, 0, 0, 0.1))
    found = judge("sequential-pick-and-place-alphabet_soup-and-cream_cheese", [done, row()])
    assert found.released.tolist() == [True, False]


def test_all_three_must_be_placed_though_the_released_test_forgets_the_bottle(row: Any) -> None:
    two = row(alphabet_soup=BASKET, cream_cheese=by(BASKET, 0, 0, 0.1))
    found = judge(goals.ALL, [row(), two, row(salad_dressing=BASKET)])
    assert found.released.tolist() == [False, True, True]
    assert found.intended.tolist() == [False, False, True]
    assert found.share == pytest.approx([0, 2 / 3, 1])


def test_lifting_is_aside_only_to_the_released_test(row: Any) -> None:
    task = "pick-and-place-aside-alphabet_soup"
    up, over = row(alphabet_soup=by(SOUP, 0, 0, 0.08)), row(alphabet_soup=by(SOUP, 0.08, 0, 0))
    found = judge(task, [row(), row(), up, over])
    assert found.released.tolist() == [False, False, True, True]
    assert found.intended.tolist() == [False, False, False, True]
    jump = judge(task, [row(), over, over])
    assert jump.intended.tolist() == [False, True, True]
    assert not jump.released.any(), "the released test starts from the first row after the reset"


def test_cuts_show_no_history(row: Any) -> None:
    rows = [row(), row(alphabet_soup=BASKET)]
    for task in (goals.ALL, "pick-and-place-aside-alphabet_soup"):
        found = judge(task, rows, cut=True)
        assert np.isnan(found.share).all()
        assert not (found.intended | found.released).any()
    assert judge("place-alphabet_soup", rows, cut=True).intended.tolist() == [False, True]


def test_rollouts_without_a_task_have_no_share(row: Any) -> None:
    obs = np.array([row(), row()])
    rows = Trajectory(obs, np.array([0, 2, 2]), np.ones(2, bool))
    found = goals.evaluate(rows, [Placement("", "", code="ambiguous_instruction")], np.zeros(2, np.int64))
    assert np.isnan(found.share).all()
    assert not found.released.any()


def test_goals_do_not_depend_on_the_batch(golden: Any) -> None:
    data, rollouts = golden["hard"]
    ok = np.random.default_rng(0).random(len(rollouts.obs)) > 0.02
    placements, which = placed(data)
    whole = goals.evaluate(Trajectory(rollouts.obs, rollouts.row_offsets, ok), placements, which)
    for i in range(rollouts.n_rollouts):
        part = slice(rollouts.row_offsets[i], rollouts.row_offsets[i + 1])
        rows = Trajectory(rollouts.obs[part], np.array([0, part.stop - part.start]), ok[part])
        alone = goals.evaluate(rows, placements, which[i : i + 1])
        for name in ("intended", "released", "share"):
            assert np.array_equal(getattr(alone, name), getattr(whole, name)[part])
