"""Vectorised evaluation is the single environment's, episode by episode."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import qualcheck
from qualcheck.envs.halfcheetah import experts
from qualcheck.errors import MissingExtra, UsageError
from qualcheck.types import AnyArray

SEED = 41


def scattered(obs: AnyArray) -> AnyArray:
    """A number in [0, 1) that depends on all of each row, (B, O) -> (B,)."""
    weights = np.sin(1 + 12.9898 * np.arange(obs.shape[1]))
    return np.abs(obs @ weights) * 1000 % 1


def policy_of(env: str) -> Callable[[AnyArray], AnyArray]:
    """Deterministic, of the row alone, and successful now and then."""
    if env == "babyai":
        return lambda obs: (7 * scattered(obs)).astype(int)
    if env == "clevr":
        return lambda obs: (40 * scattered(obs)).astype(int)
    size = {"halfcheetah": 6, "libero": 7, "metaworld": 4}[env]
    return lambda obs: np.sin(30 * obs[:, 5:6] + np.arange(size) * (1 + obs[:, 8:9]))


def one_by_one(env: str, task: str, episodes: int, **options: Any) -> tuple[list[bool], list[int], list[float]]:
    """Success, length and total reward of each episode in the single environment."""
    single, policy = qualcheck.make_env(env, task, **options), policy_of(env)
    won, length, total = [], [], []
    for episode in range(episodes):
        row, _ = single.reset(seed=SEED + episode)
        steps, gain, over = 0, 0.0, False
        while not over:
            row, reward, terminated, truncated, info = single.step(policy(row[None])[0])
            steps, gain, over = steps + 1, gain + reward, terminated or truncated
        won.append(info["success"])
        length.append(steps)
        total.append(gain)
    single.close()
    return won, length, total


CASES = [
    *(("babyai", task, 20, {"horizon": 40}) for task in ("goto", "putnext", "open_go", "put_line")),
    ("babyai", "pickup", 20, {"params": "any", "success": "released"}),
    ("halfcheetah", "jump-forward", 20, {"codes": {"jump-forward": np.ones((3, 4)) * np.arange(3)[:, None]}}),
    ("halfcheetah", "move-backward-forward", 3, {"success": "released"}),
    ("halfcheetah", "jump-backward", 5, {"obs_size": 17}),
    ("clevr", "tau_left", 8, {"horizon": 12}),
    ("clevr", "push_right", 30, {}),
    ("clevr", "tau_2", 4, {"horizon": 8}),
    ("libero", "reach-salad_dressing", 3, {"horizon": 12}),
    ("metaworld", "window-open", 3, {"horizon": 12}),
]


@pytest.mark.parametrize(("env", "task", "episodes", "options"), CASES)
def test_many_at_once_are_the_same_as_one_by_one(env: str, task: str, episodes: int, options: dict[str, Any]) -> None:
    try:
        won, length, total = one_by_one(env, task, episodes, **options)
    except MissingExtra as error:
        pytest.skip(str(error))
    for batch in (None, 2):
        found = qualcheck.evaluate(policy_of(env), env, task, episodes, SEED, batch=batch, **options)
        assert found.success.tolist() == won
        assert found.length.tolist() == length
        assert found.total_reward == pytest.approx(total, abs=1e-12)


def test_these_cases_hold_successes_and_failures() -> None:
    quick = [case for case in CASES if case[0] not in ("libero", "metaworld")]
    found = [qualcheck.evaluate(policy_of(env), env, task, n, SEED, **more) for env, task, n, more in quick]
    won = np.concatenate([each.success for each in found])
    assert 0.1 < won.mean() < 0.9


def test_a_gait_wins_and_doing_nothing_does_not() -> None:
    waves, step = experts.actions("move-backward", 200), iter(range(200))
    task = ("halfcheetah", "move-backward", 8)
    found = qualcheck.evaluate(lambda rows: np.tile(waves[next(step)], (len(rows), 1)), *task)
    assert found.rate == 1
    assert found.interval.low > 0.6
    assert str(found).startswith("halfcheetah move-backward: 100.0 % of 8 episodes succeed [63.")
    still = qualcheck.evaluate(lambda rows: np.zeros((len(rows), 6)), *task)
    assert not still.success.any()
    assert (still.length == 200).all()


def test_an_environment_without_a_kernel_of_its_own_is_stepped_in_threads() -> None:
    found = qualcheck.evaluate(lambda rows: np.tile([-1.0, 0.0], (len(rows), 1)), "toy", "reach_left", 5)
    assert found.rate == 1


def test_wrong_actions_and_numbers_are_refused() -> None:
    wrong: list[tuple[str, str, Any, str]] = [
        ("babyai", "goto", np.zeros(2, int), "a whole number from 0 to 6 for each of 5 episodes"),
        ("babyai", "goto", np.full(5, 7), "from 0 to 6"),
        ("babyai", "goto", np.full(5, 1.5), "from 0 to 6"),
        ("babyai", "goto", np.full(5, np.nan), "from 0 to 6"),
        ("babyai", "goto", ["3"] * 5, "from 0 to 6"),
        ("babyai", "goto", None, "from 0 to 6"),
        ("halfcheetah", "jump-forward", np.full((5, 6), np.nan), "6 finite numbers"),
        ("halfcheetah", "jump-forward", np.zeros((5, 6, 1)), "6 finite numbers"),
        ("halfcheetah", "jump-forward", np.zeros(5), "6 finite numbers"),
        ("clevr", "order", np.full(5, -1), "0 to 39"),
        ("metaworld", "reach", np.zeros((5, 4, 1)), "4 finite numbers"),
    ]
    for env, task, actions, words in wrong:
        with pytest.raises(UsageError, match=f"expected .*{words}"):
            qualcheck.evaluate(lambda rows, given=actions: given, env, task, 5)  # type: ignore[misc]
    with pytest.raises(UsageError, match="policy None; it is called with rows"):
        qualcheck.evaluate(None, "babyai", "goto", 5)  # type: ignore[arg-type]
    for name, value in (("episodes", 0), ("episodes", "3"), ("episodes", 1.5), ("batch", 0), ("seed", 1.5)):
        with pytest.raises(UsageError, match=f"{name} .*expected a whole number from"):
            qualcheck.evaluate(policy_of("babyai"), "babyai", "goto", **{"episodes": 5, name: value})
    with pytest.raises(UsageError, match=r"horizon 1\.5"):
        qualcheck.evaluate(policy_of("babyai"), "babyai", "goto", 5, horizon=1.5)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="seed -1"):
        qualcheck.evaluate(policy_of("babyai"), "babyai", "goto", 5, -1)
