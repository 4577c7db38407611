"""The reward computed again from the rows, against the recorded one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from qualcheck.envs.metaworld import reward
from qualcheck.types import Placement, Rollouts

Row = Callable[..., Any]


@pytest.mark.parametrize("name", ["real", "rephrase", "easy", "hard", "real_mj301"])
def test_recomputed_rewards_equal_the_recorded_ones_wherever_there_are_any(golden: Any, name: str) -> None:
    _, placements, rollouts = golden[name]
    values = reward.recompute(rollouts, placements, np.arange(len(placements)))["released"]
    told = np.isfinite(values)
    assert told.any()
    assert np.abs(values - rollouts.reward)[told].max() < 1e-6
    task = np.array([placement.task for placement in placements])[rollouts.rollout]
    assert told[task == "door-open"].all()
    succeeded = (rollouts.reward == 10) & ~np.char.startswith(task.astype(str), "reach")
    assert told[succeeded].all()
    assert not told[(task != "door-open") & (rollouts.reward != 10)].any()


def test_rollouts_of_other_recorders_are_paid_the_same(kalm: Any) -> None:
    _, placements, rollouts = kalm
    values = reward.recompute(rollouts, placements, np.arange(len(placements)))["released"]
    assert np.nanmax(np.abs(values - rollouts.reward)) < 1e-6
    assert np.isfinite(values).sum() > 60


def test_by_meaning_the_recorded_coffee_is_never_paid_in_full(golden: Any) -> None:
    _, placements, rollouts = golden["hard"]
    found = reward.recompute(rollouts, placements, np.arange(len(placements)))
    coffee = np.array([placement.task == "make-coffee" for placement in placements])[rollouts.rollout]
    assert (found["released"][coffee] == 10).sum() == 5
    assert np.isnan(found["intended"][coffee]).all()


def test_a_tip_that_is_told_pays_a_reach(maker: Callable[..., Rollouts], row: Row) -> None:
    rows = np.array([row(target_object=[0, 0.65, 0.02, 0, 0, 0, 1], hand=[0.12, 0.85, 0.245])] * 3)
    rollouts = maker([(rows, np.zeros((2, 4)))])
    task, which = [Placement("reach", "reach")], np.array([0])
    assert np.isnan(reward.recompute(rollouts, task, which)["released"]).all()
    tip = np.array([[0.12, 0.85, 0.19], [0.11, 0.85, 0.2]])
    np.testing.assert_array_equal(reward.recompute(rollouts, task, which, tip)["released"], [np.nan, 10])


def test_a_step_of_door_open_is_paid_what_its_raw_reward_gained(maker: Callable[..., Rollouts], row: Row) -> None:
    start = row(hand=[0.25, 0.68, 0.2], goal=[-0.2, 0.4, 0.15], handle=[0.25, 0.65, 0.15, 0.69, -0.15, 0.69, 0.15])
    rollouts = maker([(np.array([start] * 3), np.array([[0, 0, 0, -1.0], [0, 0, 0, 1]]))])
    values = reward.recompute(rollouts, [Placement("door-open", "door-open")], np.array([0]))["released"]
    # door shut: 0.8 / (9 ((2 pi / 3 - 0.5) / (pi / 3))^2 + 1) of 8; hand 0.055 m from its place: ready, and it
    # grips in the second step alone
    shut = 8 * 0.8 / (9 * ((2 * np.pi / 3 - 0.5) / (np.pi / 3)) ** 2 + 1)
    np.testing.assert_allclose(values, [shut, 2.0], atol=1e-9)


def test_a_wrong_recorded_reward_is_off(golden: Any) -> None:
    _, placements, rollouts = golden["real"]
    late = replace(rollouts, reward=np.roll(rollouts.reward, 1))
    values = reward.recompute(late, placements, np.arange(len(placements)))["released"]
    told = np.isfinite(values)
    assert (np.abs(values - late.reward)[told] > 1e-5).mean() > 0.5


def test_without_a_task_an_end_row_or_a_number_there_is_no_reward(golden: Any, maker: Callable[..., Rollouts]) -> None:
    _, placements, rollouts = golden["real"]
    who = next(i for i, placement in enumerate(placements) if placement.task == "door-open")
    rows = rollouts.obs[slice(*rollouts.row_offsets[who : who + 2])].copy()
    action = rollouts.action[slice(*rollouts.offsets[who : who + 2])].copy()
    door, which = [Placement("door-open", "door-open")], np.array([0])
    none = reward.recompute(maker([(rows, action)]), [Placement("", "")], which)
    assert all(np.isnan(values).all() for values in none.values())
    open_end = reward.recompute(maker([(rows[:-1], action)], has_final=False), door, which)["released"]
    assert np.isnan(open_end).tolist() == [False] * (len(action) - 1) + [True]
    rows[5], action[10] = np.nan, np.inf
    spoilt = np.isnan(reward.recompute(maker([(rows, action)]), door, which)["released"])
    assert np.flatnonzero(spoilt).tolist() == [4, 5, 10, 11]


def test_the_first_step_of_a_cut_lacks_the_raw_reward_before_it(golden: Any, maker: Callable[..., Rollouts]) -> None:
    _, placements, rollouts = golden["real"]
    who = next(i for i, placement in enumerate(placements) if placement.task == "door-open")
    rows = rollouts.obs[slice(*rollouts.row_offsets[who : who + 2])]
    action = rollouts.action[slice(*rollouts.offsets[who : who + 2])]
    recorded = rollouts.reward[slice(*rollouts.offsets[who : who + 2])]
    door, which, steps = [Placement("door-open", "door-open")], np.array([0]), np.array([20], np.int32)
    cut = maker([(rows[20:], action[20:])], source_step=steps, reset_obs=rows[:1])
    values = reward.recompute(cut, door, which)["released"]
    assert np.isnan(values[0])
    np.testing.assert_allclose(values[1:], recorded[21:], atol=1e-6)
    unknown = reward.recompute(maker([(rows[20:], action[20:])], source_step=steps), door, which)["released"]
    assert np.isnan(unknown[recorded[20:] != 10]).all()
