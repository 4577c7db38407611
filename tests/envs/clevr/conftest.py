"""CLEVR-Robot recordings that several test files read."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from qualcheck.types import Rollouts

LEVELS = ("real", "rephrase", "easy", "hard")


def make(episodes: list[tuple[Any, Any]], has_final: bool = True, **more: Any) -> Rollouts:
    """Rollouts from (rows, actions) of each, from resets unless said otherwise."""
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
        is_reset=more.pop("is_reset", np.ones(n, bool)),
        **more,
    )


def read(path: Path) -> tuple[dict[str, Any], Rollouts]:
    """A padded file of the benchmark: its keys, and its rollouts with rewards and goals where it has them."""
    data: dict[str, Any] = np.load(path, allow_pickle=True).item()
    n, longest = np.shape(data["observations"])[:2]
    length = np.reshape(data["masks"], (n, longest)).sum(axis=1).astype(int)
    action, reward = (np.reshape(data[name], (n, longest)) for name in ("actions", "rewards"))
    rows = [
        np.concatenate([data["observations"][i][:end], data["next_observations"][i][end - 1 : end]])
        for i, end in enumerate(length)
    ]
    return data, make(
        [(rows[i], action[i, :end]) for i, end in enumerate(length)],
        instruction=[texts[0] for texts in data["instructions"]] if len(data["instructions"]) == n else [None] * n,
        reward=np.concatenate([reward[i, :end] for i, end in enumerate(length)]).astype(np.float64),
        goal=[np.asarray(goal) for goal in data["goals"]] if "goals" in data else None,
    )


@pytest.fixture(scope="session")
def golden(shared_data: Path) -> dict[str, tuple[dict[str, Any], Rollouts]]:
    """Level -> keys and rollouts of the recorded file, of MuJoCo 3.0.1."""
    return {level: read(shared_data / "golden" / f"clevr_{level}.npy") for level in LEVELS}


@pytest.fixture(scope="session")
def kalm(shared_data: Path) -> Rollouts:
    """Rollouts recorded by the authors of KALM, of MuJoCo 2.3.2 or older."""
    return read(shared_data / "real" / "kalm_clevr_robot.npy")[1]


@pytest.fixture(scope="session")
def mutated(shared_data: Path) -> tuple[dict[str, Any], Rollouts]:
    """Keys and rollouts of the recordings with planted faults."""
    return read(shared_data / "mutated" / "clevr_mutated.npy")


@pytest.fixture(scope="session")
def maker() -> Callable[..., Rollouts]:
    return make
