"""HalfCheetah recordings that several test files read."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from qualcheck.envs.halfcheetah import HalfCheetah
from qualcheck.types import Placement, Rollouts

LEVELS = ("real", "rephrase", "easy", "hard")


def make(episodes: list[tuple[Any, Any]], has_final: bool = True, **more: Any) -> Rollouts:
    """Rollouts from (rows, actions) of each."""
    n = len(episodes)
    return Rollouts(
        obs=np.concatenate([np.asarray(rows) for rows, _ in episodes]),
        action=np.concatenate([np.asarray(actions) for _, actions in episodes]),
        offsets=np.cumsum([0, *(len(actions) for _, actions in episodes)]).astype(np.int64),
        has_final=np.full(n, has_final),
        source=np.zeros(n, np.int32),
        source_rollout=np.arange(n, dtype=np.int32),
        source_step=more.pop("source_step", np.zeros(n, np.int32)),
        instruction=more.pop("instruction", [None] * n),
        **more,
    )


def read(path: Path) -> tuple[dict[str, Any], Rollouts]:
    """A padded file of the benchmark: its keys, and its rollouts with rewards."""
    data: dict[str, Any] = np.load(path, allow_pickle=True).item()
    length = data["masks"][..., 0].sum(axis=1).astype(int)
    after = data.get("next_observations")
    episodes, rewards = [], []
    for i, rows in enumerate(length):
        obs = data["observations"][i, :rows]
        if after is not None:
            obs = np.concatenate([obs, after[i, rows - 1 : rows]])
        taken = len(obs) - 1
        episodes.append((obs, data["actions"][i, :taken]))
        rewards.append(data["rewards"][i, :taken, 0])
    texts = [names[0] for names in data["instructions"]]
    return data, make(episodes, instruction=texts, reward=np.concatenate(rewards).astype(np.float64))


def placed(rollouts: Rollouts) -> tuple[list[Placement], Any]:
    names = list(dict.fromkeys(rollouts.instruction))
    return [HalfCheetah().place(name) for name in names], np.array([names.index(n) for n in rollouts.instruction])


@pytest.fixture(scope="session")
def golden(shared_data: Path) -> dict[str, tuple[dict[str, Any], Rollouts]]:
    """Level -> keys and rollouts of the recorded file."""
    return {level: read(shared_data / "golden" / f"mujoco_{level}.npy") for level in LEVELS}


@pytest.fixture(scope="session")
def expert(shared_data: Path) -> Rollouts:
    """The 17-column expert episodes of cs285, float64, 1000 steps each."""
    episodes = np.load(shared_data / "real" / "cs285_expert_HalfCheetah-v4.pkl", allow_pickle=True)
    rows = [np.concatenate([one["observation"], one["next_observation"][-1:]]) for one in episodes]
    return make([(obs, one["action"]) for obs, one in zip(rows, episodes, strict=True)])


@pytest.fixture(scope="session")
def reader() -> Callable[[Path], tuple[dict[str, Any], Rollouts]]:
    return read


@pytest.fixture(scope="session")
def placer() -> Callable[[Rollouts], tuple[list[Placement], Any]]:
    return placed


@pytest.fixture(scope="session")
def maker() -> Callable[..., Rollouts]:
    return make


@pytest.fixture(scope="session")
def plain() -> Callable[[Rollouts], Rollouts]:
    """The same rollouts without the displacement column."""
    return lambda rollouts: replace(rollouts, obs=np.ascontiguousarray(rollouts.obs[:, 1:]))
