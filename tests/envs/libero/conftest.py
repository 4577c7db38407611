"""LIBERO recordings and hand-made rows that several test files read."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from qualcheck.types import Rollouts

LEVELS = ("real", "rephrase", "easy", "hard")

# the arm at rest over the floor, the three objects standing apart, the basket behind them: a start of the soup's file
START = [
    0.0, -0.15, 0.0, -2.45, 0.0, 2.25, 0.785,
    -0.1466, 0.0, 0.2559, 0.9997, 0.0004, -0.025, 0.0, 0.0205, -0.0205,
    -0.1191, -0.2398, 0.0384, 0.002, 0.708, 0.706, -0.002,
    -0.15, 0.06, 0.0089, 0.0, 0.0, 1.0, 0.0,
    0.05, -0.1, 0.0727, 0.5, 0.5, 0.5, 0.5,
    0.0, 0.26, -0.0046, -0.002, 0.002, 0.707, 0.707,
]  # fmt: skip
FIRST = {"hand": 7, "alphabet_soup": 16, "cream_cheese": 23, "salad_dressing": 30, "basket": 37}


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
    """A padded file: its keys, and its rollouts with rewards."""
    data: dict[str, Any] = np.load(path, allow_pickle=True).item()
    length = data["masks"][..., 0].sum(axis=1).astype(int)
    after = data["next_observations"]
    episodes = [
        (np.concatenate([data["observations"][i, :rows], after[i, rows - 1 : rows]]), data["actions"][i, :rows])
        for i, rows in enumerate(length)
    ]
    rewards = np.concatenate([data["rewards"][i, :rows, 0] for i, rows in enumerate(length)])
    texts = [names[0] for names in data["instructions"]]
    return data, make(episodes, instruction=texts, reward=rewards.astype(np.float64))


@pytest.fixture(scope="session")
def golden(shared_data: Path) -> dict[str, tuple[dict[str, Any], Rollouts]]:
    """Level -> keys and rollouts of the recorded file."""
    return {level: read(shared_data / "golden" / f"libero_{level}.npy") for level in LEVELS}


@pytest.fixture(scope="session")
def mutated(shared_data: Path) -> tuple[dict[str, Any], Rollouts]:
    return read(shared_data / "mutated" / "libero_mutated.npy")


@pytest.fixture(scope="session")
def maker() -> Callable[..., Rollouts]:
    return make


def _row(**bodies: Any) -> Any:
    row = np.array(START)
    for name, place in bodies.items():
        row[FIRST[name] : FIRST[name] + len(place)] = place
    return row


@pytest.fixture(scope="session")
def row() -> Callable[..., Any]:
    """A legal row of a start, but for the positions (3 numbers) or poses (7) of the bodies named."""
    return _row
