"""Real rollouts of the experts in the benchmark's layout, for calibration and tests."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from qualcheck.envs.halfcheetah import experts, goals, reward, text
from qualcheck.envs.halfcheetah.dynamics import Dynamics
from qualcheck.envs.halfcheetah.layout import ACTION_SIZE, BENCHMARK_SIZE, HORIZON
from qualcheck.envs.halfcheetah.reset import sample_states
from qualcheck.types import BoolArray, Rollouts

SEEDS = {"fit": 1001, "control": 1002}
STORAGES = ("float64", "float32")  # the benchmark has both
NOISE, RANDOM_SHARE = 0.1, 0.15


def recordings(purpose: str, each: int, family: str = "") -> Iterator[Rollouts]:  # noqa: ARG001  # one simulator
    """`each` real rollouts of every task, level by level; purpose "fit" or "control" names the seed."""
    rng = np.random.default_rng(SEEDS[purpose])
    for level, tasks in goals.TASKS.items():
        for task in tasks:
            rollouts = record(task, each, rng, NOISE, RANDOM_SHARE)
            yield replace(rollouts, level=[level] * rollouts.n_rollouts)


def record(
    task: str,
    n: int,
    rng: np.random.Generator,
    noise: float = 0.1,
    random_share: float = 0.0,
    stop_at_success: bool = True,
    horizon: int = HORIZON,
    dtype: str = "float64",
) -> Rollouts:
    """n real rollouts of a task from fresh resets, actions float64.

    Args:
        task: an id of `goals.TASKS`; each rollout gets one of the sentences that mean it.
        n: how many.
        rng: draws starts, noise and sentences.
        noise: standard deviation of what is added to the expert's actions, before they are clipped to [-1, 1].
        random_share: share of the rollouts that act uniformly at random instead.
        horizon: at most so many steps.
        dtype: of the rows as they are stored and judged.
        stop_at_success: end each rollout with the first row on which the intended goal holds, as the benchmark does.

    Raises:
        UnknownName: no such task.
    """
    action = experts.actions(task, horizon)[None] + rng.normal(0, noise, (n, horizon, ACTION_SIZE))
    wild = rng.random(n) < random_share
    action[wild] = rng.uniform(-1, 1, (int(wild.sum()), horizon, ACTION_SIZE))
    action = np.clip(action, -1, 1)
    obs = np.empty((n, horizon + 1, BENCHMARK_SIZE))
    obs[:, 0] = sample_states(n, rng)
    dynamics = Dynamics()
    for at, state, moved, _ in dynamics.play(
        obs[:, 0, 1:], action.reshape(-1, ACTION_SIZE), np.arange(n + 1) * horizon
    ):
        obs[at // horizon, at % horizon + 1] = np.concatenate([moved[:, None], state], axis=1)
    dynamics.close()
    obs = obs.astype(dtype)
    way = obs[:, :, 0].astype(np.float64)
    way[:, 0] = 0
    holds = goals.excess(task, way, "intended") > 0  # (n, T+1)
    won: BoolArray = np.logical_or.reduce(holds, axis=1)
    ended = won & stop_at_success
    length = np.where(ended, holds.argmax(axis=1), horizon)
    step = np.arange(horizon)
    taken, shown = step < length[:, None], np.arange(horizon + 1) <= length[:, None]
    last = step == length[:, None] - 1
    gain = reward.of_step(task, way[:, 1:][taken], action[taken])
    sentences = text.book()["texts"][task]
    return Rollouts(
        obs=obs[shown],
        action=action[taken],
        offsets=np.concatenate([[0], np.cumsum(length)]).astype(np.int64),
        has_final=np.ones(n, bool),
        source=np.zeros(n, np.int32),
        source_rollout=np.arange(n, dtype=np.int32),
        source_step=np.zeros(n, np.int32),
        instruction=[sentences[i] for i in rng.integers(len(sentences), size=n)],
        reward=gain,
        terminal=(last & ended[:, None])[taken],
        truncated=(last & ~ended[:, None])[taken],
        is_reset=np.ones(n, bool),
        task=[task] * n,
        extra_rollout={"success": won.tolist()},
    )
