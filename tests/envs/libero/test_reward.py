"""Rewards: the recorded ones return, and each reading differs where it should."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from qualcheck.envs.libero import reward
from qualcheck.envs.libero.goals import ALL
from qualcheck.types import Placement

LEVELS = ("real", "rephrase", "easy", "hard")
BASKET = np.array([0.0, 0.26, -0.0046])
SOUP = np.array([-0.1191, -0.2398, 0.0384])


def by(place: Any, *way: float) -> Any:
    return place + np.array(way)


def recompute(data: dict[str, Any], rollouts: Any) -> dict[str, Any]:
    tasks = data["task_str"]
    return reward.recompute(rollouts, [Placement(task, task) for task in tasks], np.arange(len(tasks)))


def of_task(task: str, rollouts: Any) -> dict[str, Any]:
    return reward.recompute(rollouts, [Placement(task, task)], np.zeros(rollouts.n_rollouts, np.int64))


@pytest.mark.parametrize("level", LEVELS)
def test_released_reward_equals_the_recorded_one(level: str, golden: Any) -> None:
    data, rollouts = golden[level]
    found = recompute(data, rollouts)
    assert np.ptp(rollouts.reward) > 1
    np.testing.assert_allclose(found["released"], rollouts.reward, atol=1e-5)
    differ = {data["task_str"][i] for i in rollouts.rollout[np.abs(found["intended"] - found["released"]) > 1e-9]}
    assert all("aside" in task or task == ALL for task in differ)
    assert bool(differ) == (level == "hard")


@pytest.mark.parametrize("level", LEVELS)
def test_first_reward_of_the_benchmarks_evaluation_cannot_be_known(level: str, golden: Any) -> None:
    data, rollouts = golden[level]
    found = recompute(data, rollouts)["released_evaluation"]
    assert np.array_equal(np.flatnonzero(np.isnan(found)), rollouts.offsets[:-1])
    later = rollouts.step > 0
    np.testing.assert_allclose(found[later], rollouts.reward[later], atol=1e-5)


def test_a_wrong_reward_is_seen(golden: Any) -> None:
    data, rollouts = golden["easy"]
    shifted = np.roll(rollouts.reward, 1)
    assert np.abs(recompute(data, rollouts)["released"] - shifted).max() > 0.5


def test_rewards_typed_by_hand(row: Any, maker: Any) -> None:
    hand = [-0.1191, -0.2398, 0.1384]  # 10 cm above the soup
    lower, at = [*hand[:2], 0.0984], [*hand[:2], 0.0484]
    lifted = {"hand": [*hand[:2], 0.0584], "alphabet_soup": by(SOUP, 0, 0, 0.01)}
    dropped = {"hand": hand, "alphabet_soup": BASKET}
    rows = [row(hand=hand), row(hand=lower), row(hand=at), row(**lifted), row(**dropped)]
    rollouts = maker([(np.array(rows), np.zeros((4, 7)))])
    way = np.linalg.norm(by(SOUP, 0, 0, 0.01) - BASKET)
    assert of_task("pick-alphabet_soup", rollouts)["released"][:3] == pytest.approx([0.8, 1.0, 1.0])
    assert of_task("reach-alphabet_soup", rollouts)["released"][:3] == pytest.approx([0.8, 2.0, 1.0])
    assert of_task("place-alphabet_soup", rollouts)["released"][3] == pytest.approx(20 * way + 1)
    two = of_task("pick-and-place-alphabet_soup", rollouts)["released"]
    assert two == pytest.approx([0.8, 1.0, 1.0, 20 * way + 1])
    chain = of_task("sequential-pick-and-place-alphabet_soup-and-cream_cheese", rollouts)["released"]
    start = np.linalg.norm(SOUP - BASKET)
    assert chain[:3] == pytest.approx([0.8, 1.0, 20 * (start - way) + 1])
    assert of_task("pick-and-place-aside-alphabet_soup", rollouts)["released"][2] == pytest.approx(1.2)


def test_placing_the_cheese_pays_twice_only_as_released(row: Any, maker: Any) -> None:
    rows = [row(), row(), row(cream_cheese=BASKET)]
    found = of_task(ALL, maker([(np.array(rows), np.zeros((2, 7)))]))
    assert found["released"] - found["intended"] == pytest.approx([0, 1])


def test_rewards_are_missing_where_a_row_a_task_or_the_reset_is(golden: Any) -> None:
    rollouts = golden["hard"][1]
    obs = rollouts.obs.copy()
    obs[3, 5] = np.nan
    broken = replace(rollouts, obs=obs, is_reset=np.arange(rollouts.n_rollouts) != 2)
    placements = [Placement(ALL, ALL), Placement("", "", code="no_instruction")]
    which = np.zeros(rollouts.n_rollouts, np.int64)
    which[1] = 1
    for values in reward.recompute(broken, placements, which).values():
        assert np.isnan(values[2 : rollouts.offsets[1]]).all(), "what was done before is not known"
        assert np.isfinite(values[1])
        assert np.isnan(values[rollouts.offsets[1] : rollouts.offsets[3]]).all()
        assert np.isfinite(values[rollouts.offsets[3] + 1 : rollouts.offsets[4]]).all()
    pick = [Placement("pick-alphabet_soup", "pick-alphabet_soup")]
    found = reward.recompute(broken, pick, np.zeros(rollouts.n_rollouts, np.int64))["intended"]
    assert np.flatnonzero(np.isnan(found)).tolist() == [2, 3]


def test_last_transition_without_an_end_row_has_no_reward(row: Any, maker: Any) -> None:
    rollouts = maker([(np.array([row(), row()]), np.zeros((2, 7)))], has_final=False)
    assert np.isnan(of_task("reach-alphabet_soup", rollouts)["released"]).tolist() == [False, True]
