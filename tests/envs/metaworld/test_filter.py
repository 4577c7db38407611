"""The sequential filter: what it carries, what it doubts, and that cuts do not change it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from qualcheck.contract_subject import pieces
from qualcheck.cut import cut
from qualcheck.envs.metaworld import filter as sequential
from qualcheck.envs.metaworld.filter import faced, group_errors, rounding_of, run
from qualcheck.envs.metaworld.kernel import Kernel
from qualcheck.envs.metaworld.layout import (
    ANCHORED,
    CARRIED,
    CODES,
    CONTACT,
    FREE,
    HAND,
    MOVING,
    SETTLED,
    TASK,
    TASK_IDS,
    TOUCHED,
    UNSETTLED,
    block,
    quaternion,
)
from qualcheck.types import Placement, Rollouts

Golden = dict[str, tuple[dict[str, Any], list[Placement], Rollouts]]


@pytest.fixture(scope="module")
def kernel() -> Iterator[Kernel]:
    made = Kernel("2.3", threads=2)
    yield made
    made.close()


def one(golden: Golden, task: str, name: str = "real") -> tuple[Rollouts, Any]:
    _, placements, rollouts = golden[name]
    i = next(i for i, placement in enumerate(placements) if placement.task == task and rollouts.length[i] > 30)
    return pieces(rollouts, [i]), np.array([task])


def same(found: sequential.Filtered, other: sequential.Filtered, first: int) -> None:
    np.testing.assert_array_equal(found.candidates, other.candidates[:, first:])
    np.testing.assert_array_equal(found.situation, other.situation[first:])
    np.testing.assert_array_equal(found.hidden, other.hidden[first:])
    np.testing.assert_array_equal(found.code, other.code[first:])


def test_a_jump_is_charged_once_and_leaves_the_state_in_doubt(golden: Golden, kernel: Kernel) -> None:
    rollouts, tasks = one(golden, "reach")
    obs = rollouts.obs.copy()
    obs[15:, 0] += 0.1  # from row 15 on the hand is elsewhere
    found = run(replace(rollouts, obs=obs), tasks, kernel)
    error = np.abs(found.candidates - replace(rollouts, obs=obs).end_obs)[:, :, HAND].max(axis=2)  # (2, M)
    assert found.situation[14] in (FREE, MOVING)
    assert error[0, 14] > 0.05
    assert found.situation[15] == UNSETTLED
    assert np.isnan(found.candidates[1, :15]).all()
    best = np.fmin(error[0], error[1])
    assert best[15:].max() < 0.015
    assert np.median(best[20:]) < 7e-3 < np.median(error[0, 20:])


@pytest.mark.parametrize("task", ["reach", "push", "door-unlock", "coffee-push"])
@pytest.mark.parametrize("start", [7, 16, 25])
def test_a_cut_with_its_hidden_numbers_is_replayed_as_its_rollout_is(
    task: str, start: int, golden: Golden, kernel: Kernel
) -> None:
    rollouts, tasks = one(golden, task)
    obs = rollouts.obs.copy()
    obs[15:, :3] += np.float32(0.05)
    for whole in (rollouts, replace(rollouts, obs=obs)):
        found = run(whole, tasks, kernel)
        piece = cut(whole, np.zeros(1, int), np.array([start]), whole.length)
        same(run(replace(piece, hidden=found.hidden[start : start + 1]), tasks, kernel), found, start)


def test_a_cut_without_hidden_numbers_says_so_and_is_guessed_from_its_second_step_on(
    golden: Golden, kernel: Kernel
) -> None:
    rollouts, tasks = one(golden, "reach")
    piece = cut(rollouts, np.zeros(1, int), np.array([10]), rollouts.length)
    found = run(piece, tasks, kernel)
    assert CODES[found.code[0]] == "hidden_unknown"
    assert not found.code[1:].any()
    assert found.situation[1] == UNSETTLED
    assert np.isnan(found.hidden[0]).all()
    error = np.abs(found.candidates - piece.end_obs)[:, 1:, HAND].max(axis=2)
    assert np.fmin(error[0], error[1]).max() < 0.02


def test_hidden_numbers_of_another_task_are_not_believed(golden: Golden, kernel: Kernel) -> None:
    rollouts, tasks = one(golden, "reach")
    found = run(rollouts, tasks, kernel)
    assert (found.hidden[:, TASK] == TASK_IDS.index("reach")).all()
    piece = cut(rollouts, np.zeros(1, int), np.array([10]), rollouts.length)
    hidden = found.hidden[10:11].copy()
    hidden[:, TASK] = TASK_IDS.index("push")
    assert CODES[run(replace(piece, hidden=hidden), tasks, kernel).code[0]] == "hidden_unknown"


def test_contact_lasts_some_steps_and_is_counted(golden: Golden, kernel: Kernel) -> None:
    rollouts, tasks = one(golden, "push")
    found = run(rollouts, tasks, kernel)
    touched = found.hidden[:, TOUCHED]
    assert touched[0] == sequential.NEVER_TOUCHED
    assert np.isin(found.situation[:3], (FREE, MOVING)).all()
    assert found.situation[0] == MOVING
    after = np.flatnonzero(touched <= sequential.AFTER_CONTACT)
    assert len(after)
    assert (found.situation[after] == CONTACT).all()


def test_a_rollout_whose_row_0_is_unusable_has_a_reason_throughout(golden: Golden, kernel: Kernel) -> None:
    rollouts, tasks = one(golden, "push")
    obs = rollouts.obs.copy()
    obs[0, block("target_object")] = 0
    found = run(replace(rollouts, obs=obs), tasks, kernel)
    assert CODES[found.code[0]] == "missing_entity"
    assert {CODES[code] for code in found.code[1:]} == {"illegal_start"}
    assert np.isnan(found.candidates).all()
    assert np.isnan(found.hidden[:, CARRIED]).all()


def test_no_anchored_state_is_kept_where_none_was_needed(golden: Golden, kernel: Kernel) -> None:
    rollouts, tasks = one(golden, "faucet-open")
    found = run(rollouts, tasks, kernel)
    assert np.isnan(found.hidden[:, ANCHORED]).all()
    assert (found.hidden[:, SETTLED] == 1).all()


def test_rows_of_few_decimals_are_known_by_them(golden: Golden) -> None:
    rollouts, _ = one(golden, "push")
    assert rounding_of(rollouts).tolist() == [0.0]
    assert rounding_of(replace(rollouts, obs=np.round(rollouts.obs, 3))).tolist() == [1e-3]
    assert rounding_of(replace(rollouts, obs=np.round(rollouts.obs.astype(np.float64), 2))).tolist() == [1e-2]


def test_errors_are_told_by_group_of_a_typed_row(row: Any) -> None:
    shown = row(target_object=[0, 0.65, 0.02, 0, 0, 0, 1])
    end = shown.copy()
    end[[1, 3, 8]] += [0.002, 0.1, 0.03]
    end[block("soccer")] = 9  # not the task's
    error = group_errors(end[None], shown[None], np.array(["push"]))[0]
    np.testing.assert_allclose(error, [0.002, 0.1, 0.03, 0], atol=1e-12)
    assert np.isnan(group_errors(end[None], shown[None], np.array([""]))[0, 2])


def test_a_turned_quaternion_is_faced_and_foreign_blocks_are_taken_over(row: Any) -> None:
    end = row(target_object=[0, 0.65, 0.02, 0, 0, 0.6, 0.8])
    shown = end.copy()
    shown[quaternion("target_object")] *= -1
    shown[block("soccer")] = [0.1, 0.2, 0.3, 0, 0, 0, np.nan]
    rows, signs = faced(end[None], shown[None], "push")
    assert rows[0, quaternion("target_object")].tolist() == [0, 0, -0.6, -0.8]
    assert signs[0, 0] == -1
    assert rows[0, block("soccer")].tolist() == [0.1, 0.2, 0.3, 0, 0, 0, 0]
