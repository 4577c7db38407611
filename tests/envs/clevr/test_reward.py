"""Rewards are those of the benchmark, and of the readings that recordings follow."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from qualcheck.envs.clevr import reward, text
from qualcheck.types import FloatArray, Rollouts

FAR = [-0.4, 0.5, 0.4, 0.5, 0.4, -0.1, -0.4, -0.1, 0.0, 0.2]


def readings(rollouts: Rollouts) -> dict[str, FloatArray]:
    placements = [
        text.place(words, goal)
        for words, goal in zip(rollouts.instruction, rollouts.goal or [None] * rollouts.n_rollouts, strict=True)
    ]
    return reward.recompute(rollouts, placements, np.arange(rollouts.n_rollouts))


@pytest.mark.parametrize("level", ["real", "rephrase", "easy", "hard"])
def test_recorded_rewards_are_the_released_reading(
    golden: dict[str, tuple[dict[str, Any], Rollouts]], level: str
) -> None:
    _, rollouts = golden[level]
    assert np.abs(readings(rollouts)["released"] - rollouts.reward).max() < 1e-5
    late = readings(rollouts)["unlagged"]
    assert (np.abs(late - rollouts.reward) > 1).any() == (level == "hard")


def test_rewards_of_the_authors_of_kalm_aim_beside_the_ball_and_end_with_a_bonus(kalm: Rollouts) -> None:
    found = readings(kalm)
    assert np.abs(found["beside"] - kalm.reward).max() < 1e-5
    assert (np.abs(found["bonus"] - kalm.reward) > 0.1).mean() > 0.2


def test_rewards_of_the_prompts_of_kalm_are_distances_with_a_bonus(shared_data: Path, maker: Any) -> None:
    data: dict[str, Any] = np.load(shared_data / "real/kalm_clevr_rephrase_prompt.npy", allow_pickle=True).item()
    length = [
        min(len(rewards), len(obs) - 1) for rewards, obs in zip(data["rewards"], data["observations"], strict=True)
    ]
    episodes = [
        (obs[: n + 1], action[:n]) for obs, action, n in zip(data["observations"], data["actions"], length, strict=True)
    ]
    recorded = np.concatenate([rewards[:n, 0] for rewards, n in zip(data["rewards"], length, strict=True)])
    found = readings(maker(episodes, goal=data["goals"]))
    assert np.abs(found["bonus"] - recorded).max() < 1e-5
    assert (np.abs(found["released"] - recorded) > 1).sum() == (recorded == 100).sum() > 40


def test_a_hand_computed_push_pays_ten_times_what_the_distance_shrinks(maker: Any) -> None:
    nearer = [-0.4, 0.4, *FAR[2:]]
    made = maker([([FAR, nearer], [3])], instruction=["push the red ball behind the purple ball"])
    found = readings(made)
    assert found["released"][0] == pytest.approx(10 * (0.6 - 0.5))
    assert found["bonus"][0] == found["unlagged"][0] == found["released"][0]
    there = [-0.4, 0.2, *FAR[2:]]
    made = maker([([FAR, there], [3])], instruction=["push the red ball behind the purple ball"])
    assert readings(made)["released"][0] == pytest.approx(3)
    assert readings(made)["bonus"][0] == 100


def test_hard_rewards_come_one_step_late_and_a_cut_does_not_know_its_first(maker: Any) -> None:
    around = [-0.3, 0.2, 0.3, 0.2, 0.0, 0.2, 0.0, 0.5, 0.0, -0.1]
    rows, sentence = [FAR, around, around, around], "gather all the balls together"
    made = maker([(rows, [0, 0, 0])], instruction=[sentence])
    held = sum(np.hypot(FAR[2 * i] - FAR[4], FAR[2 * i + 1] - FAR[5]) < 0.325 for i in (0, 1, 3, 4))
    found = readings(made)
    assert found["released"].tolist() == [10 * held, 10 * (4 - held), 0]
    assert found["unlagged"].tolist() == [10 * (4 - held), 0, 0]
    cut = replace(made, is_reset=np.zeros(1, bool), source_step=np.array([4], np.int32))
    assert np.isnan(readings(cut)["released"]).tolist() == [True, False, False]


def test_easy_rewards_pay_the_right_action(maker: Any) -> None:
    made = maker(
        [([FAR, FAR], [16 + 1]), ([FAR, FAR], [16 + 2]), ([FAR, FAR], [41])],
        instruction=["push the green ball behind"] * 3,
    )
    assert readings(made)["released"][:2].tolist() == [1, 0]
    assert readings(made)["bonus"][:2].tolist() == [100, 0]
    assert np.isnan(readings(made)["released"][2])


def test_no_reward_without_a_task_an_end_row_or_a_finite_row(maker: Any) -> None:
    nan = [np.nan, *FAR[1:]]
    sentence = "push the red ball behind the purple ball"
    made = maker([([FAR, nan, FAR], [3, 3])], instruction=[sentence])
    assert np.isnan(readings(made)["released"]).all()
    outside = [5.0, *FAR[1:]]
    made = maker([([FAR, outside], [3])], instruction=[sentence])
    assert np.isfinite(readings(made)["released"]).all(), "a row that no simulator takes has a reward all the same"
    made = maker([([FAR], [3])], has_final=False, instruction=[sentence])
    assert np.isnan(readings(made)["released"]).all()
    made = maker([([FAR, FAR], [3])], instruction=["colourless green ideas"])
    assert all(np.isnan(values).all() for values in readings(made).values())
