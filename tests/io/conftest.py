"""A made-up environment of three columns, and padded files of it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from qualcheck.io import Source, open_source
from qualcheck.spec import ActionSpec, EnvSpec
from qualcheck.types import Rollouts

SPEC = EnvSpec(
    id="grid",
    version="1",
    blocks=(),
    obs_size=3,
    code_size=4,
    action=ActionSpec("discrete", 7),
    step_seconds=None,
    horizon=20,
    judging_grade="exact",
    restores="exact",
    codes=("",),
    columns=("a", "b", "c"),
)
VALID = np.array([5, 3, 1, 4])  # rows of each rollout in `_keys`
N, T = 4, 5


def _keys(**changes: Any) -> dict[str, Any]:
    """Four chained rollouts with next_observations; a value of None drops its key."""
    rows = np.arange(N * (T + 1) * 3, dtype=np.float32).reshape(N, T + 1, 3)
    mask = np.arange(T) < VALID[:, None]
    base: dict[str, Any] = {
        "observations": np.where(mask[..., None], rows[:, :-1], 0),
        "next_observations": np.where(mask[..., None], rows[:, 1:], 0),
        "actions": np.where(mask, np.arange(T) % 7, 0),
        "rewards": np.where(mask, 0.5, 0)[..., None].astype(np.float32),
        "masks": mask[..., None].astype(np.float32),
        "terminals": (np.arange(T) == VALID[:, None] - 1)[..., None],
        "instructions": [["first", "other"], ["second"], ["third"], ["fourth"]],
    }
    return {key: value for key, value in {**base, **changes}.items() if value is not None}


def _saved(folder: Path, content: Any) -> Path:
    path = folder / "some_file"
    with path.open("wb") as stream:
        np.save(stream, np.array(content, dtype=object), allow_pickle=True)
    return path


def _only(rollouts: Rollouts) -> dict[str, list[int]]:
    """Rollouts that carry each flag; flags that none carries are left out."""
    return {name: np.flatnonzero(flag).tolist() for name, flag in rollouts.flags.items() if flag.any()}


def _many(count: int, **changes: Any) -> dict[str, Any]:
    """`count` rollouts of 3 valid rows without next_observations, all rewards 0."""
    base = {
        "observations": np.arange(count * T * 3, dtype=np.float32).reshape(count, T, 3),
        "actions": np.ones((count, T), np.int64),
        "rewards": np.zeros((count, T, 1)),
        "masks": np.tile(np.arange(T) < 3, (count, 1)),
    }
    return {**base, **changes}


@pytest.fixture(scope="session")
def grid() -> EnvSpec:
    """Rows of 3 numbers, codes of 4, 7 actions."""
    return SPEC


@pytest.fixture(scope="session")
def keys() -> Callable[..., dict[str, Any]]:
    return _keys


@pytest.fixture(scope="session")
def many() -> Callable[..., dict[str, Any]]:
    return _many


@pytest.fixture(scope="session")
def only() -> Callable[[Rollouts], dict[str, list[int]]]:
    return _only


@pytest.fixture
def saved(tmp_path: Path) -> Callable[[Any], Path]:
    """Saves a value as a pickled .npy and gives its path."""
    return lambda content: _saved(tmp_path, content)


@pytest.fixture
def load(tmp_path: Path) -> Callable[..., tuple[Source, Rollouts]]:
    """Save changed keys, open the file, and hand back the source with its rollouts as one batch."""

    def opened(last_action: str = "auto", **changes: Any) -> tuple[Source, Rollouts]:
        source = open_source(_saved(tmp_path, _keys(**changes)), SPEC, index=2, last_action=last_action)
        (batch,) = source.batches(extras=True)
        return source, batch

    return opened
