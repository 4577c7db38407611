"""Meta-World recordings and hand-made rollouts that several test files read."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from qualcheck.envs.metaworld.layout import base_task, position
from qualcheck.types import Placement, Rollouts

GOLDEN = ("real", "rephrase", "easy", "hard", "real_mj301")


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


def read(path: Path) -> tuple[dict[str, Any], list[Placement], Rollouts]:
    """A padded file: its keys, the placement of each rollout, and the rollouts with rewards."""
    data: dict[str, Any] = np.load(path, allow_pickle=True).item()
    length = data["masks"].reshape(len(data["masks"]), -1).sum(axis=1).astype(int)
    after = data["next_observations"]
    episodes = [
        (np.concatenate([data["observations"][i, :steps], after[i, steps - 1 : steps]]), data["actions"][i, :steps])
        for i, steps in enumerate(length)
    ]
    rewards = np.concatenate([data["rewards"][i, :steps, 0] for i, steps in enumerate(length)])
    tasks = [base_task(str(name)) for name in data.get("task_str", data.get("env_names"))]
    return data, [Placement(task, task) for task in tasks], make(episodes, reward=rewards.astype(np.float64))


Recorded = tuple[dict[str, Any], list[Placement], Rollouts]


@pytest.fixture(scope="session")
def golden(shared_data: Path) -> dict[str, Recorded]:
    """Name -> keys, placements and rollouts of each recorded file."""
    return {name: read(shared_data / "golden" / f"metaworld_{name}.npy") for name in GOLDEN}


@pytest.fixture(scope="session")
def mutated(shared_data: Path) -> Recorded:
    return read(shared_data / "mutated" / "metaworld_mutated.npy")


@pytest.fixture(scope="session")
def kalm(shared_data: Path) -> Recorded:
    return read(shared_data / "real" / "kalm_meta_world.npy")


@pytest.fixture(scope="session")
def maker() -> Callable[..., Rollouts]:
    return make


def _row(**places: Any) -> Any:
    row = np.zeros(91)
    row[:7] = [0.006, 0.600, 0.194, 1.0, 0.07, 0.85, 0.2]
    for name, place in places.items():
        if name in ("hand", "goal"):
            row[{"hand": 0, "goal": 4}[name] :][:3] = place
        elif name == "opening":
            row[3] = place
        else:
            first = position(name.replace("_", "-") if name != "target_object" else name).start
            row[first : first + len(place)] = place
    return row


@pytest.fixture(scope="session")
def row() -> Callable[..., Any]:
    """A row with the hand at its start and a goal, typed by hand, and the blocks named: 3 or 7 numbers each."""
    return _row
