"""Explanations of BabyAI rollouts that ship with the package, changed in one way or honestly bad."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from qualcheck.types import Rollouts

EASY = (
    "open the door, then goto any object",
    "open the door, then pick up any object",
    "goto the side of the wall",
    "goto the center of the room",
)


def _shifted(real: Rollouts, by: int) -> np.ndarray:
    at = np.arange(real.n_transitions) + by
    first, last = real.offsets[:-1][real.rollout], real.offsets[1:][real.rollout] - 1
    return real.action[np.clip(at, first, last)]


@pytest.mark.parametrize(("by", "what"), [(-1, "one step late"), (1, "one step early")])
def test_actions_that_stand_a_step_off_are_explained_by_a_shift(real: Any, rescore: Any, by: int, what: str) -> None:
    (found,) = rescore(actions=_shifted(real, by))
    assert found["kind"] == "shift"
    assert what in found["what"]
    assert found["share"] > 0.95
    assert found["error_before"] > 0.3
    assert found["error_after"] < 0.02
    assert found["low"] <= found["share"] <= found["high"]


def test_real_rollouts_need_no_explanation(rescore: Any) -> None:
    assert rescore() == []


def test_standardised_whole_numbers_are_recovered_by_their_spacing(real: Any, rescore: Any) -> None:
    mean, std = real.start_obs.mean(axis=0), real.start_obs.std(axis=0)
    std = np.where(std > 0, std, 1)
    (found,) = rescore(obs=(real.start_obs - mean) / std, next_obs=(real.end_obs - mean) / std)
    assert found["kind"] == "standardised"
    assert found["share"] > 0.95


def test_instructions_of_other_rollouts_are_explained_by_labels(real: Any, rescore: Any) -> None:
    rng = np.random.default_rng(1)
    order = rng.permutation(real.n_rollouts)
    found = rescore(instruction=[real.instruction[i] for i in order])
    assert [entry["kind"] for entry in found] == ["labels"]


def test_a_wrong_level_is_named_with_the_right_one(real: Any, rescore: Any) -> None:
    easy = np.array([text in EASY for text in real.instruction])
    assert easy.sum() >= 5
    step = easy[real.rollout]
    arrays = {"obs": real.start_obs, "actions": real.action, "next_obs": real.end_obs, "rewards": real.reward}
    arrays = {name: values[step] for name, values in arrays.items()}
    texts = [text for text, mine in zip(real.instruction, easy, strict=True) if mine]
    (found,) = rescore(level="hard", rollout=real.rollout[step], instruction=texts, **arrays)
    assert found["kind"] == "level"
    assert found["remedy"] == "level easy"
    assert "not of level hard" in found["text"]


@pytest.mark.parametrize("fault", ["noise", "frozen", "random actions"])
def test_honestly_bad_rollouts_are_not_excused(real: Any, rescore: Any, fault: str) -> None:
    rng = np.random.default_rng(2)
    obs, end, action = real.start_obs.copy(), real.end_obs.copy(), real.action.copy()
    if fault == "noise":
        hit = rng.random(end.shape) < 0.05
        end[hit] = rng.integers(0, 7, int(hit.sum()))
    elif fault == "frozen":
        first = real.offsets[:-1][real.rollout]
        obs, end = obs[first], obs[first]
    else:
        action = action[rng.permutation(len(action))]
    assert rescore(obs=obs, next_obs=end, actions=action) == []


def test_explanations_do_not_depend_on_the_call(real: Any, rescore: Any) -> None:
    assert rescore(actions=_shifted(real, 1)) == rescore(actions=_shifted(real, 1))
