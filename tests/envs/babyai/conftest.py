"""Random BabyAI rows that several test files draw from."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from qualcheck.envs.babyai import goals, kernel, reset

Sampler = Callable[[int, np.random.Generator], Any]


def _crowded(n: int, rng: np.random.Generator) -> Any:
    """Rows in which something can happen: agents on objects or at the door, things carried, keys that fit."""
    rows = rng.integers(1, 7, (n, 17))
    rows[:, [0, 3, 6, 9]] -= 1
    rows[:, 11], rows[:, 12] = 7, rng.integers(0, 3, n)
    thing = 3 * rng.choice(3, n, p=[0.25, 0.25, 0.5]) + 1
    held, on_top, at_door = rng.random((3, n)) < [[0.4], [0.4], [0.3]]
    fits = rng.random(n) < 0.5
    rows[fits, 6] = rows[fits, 9]
    each = np.arange(n)
    other = 3 * rng.integers(0, 3, n) + 1
    rows[at_door, 13], rows[at_door, 14] = rows[at_door, 10], 6
    rows[on_top, 13], rows[on_top, 14] = rows[each, other][on_top], rows[each, other + 1][on_top]
    rows[each[held], thing[held]] = rows[each[held], thing[held] + 1] = 0
    rows[:, 15:] = rng.integers(0, 8, (n, 2))  # the carried slot must not matter
    return rows.astype(np.float32)


def _walked(n: int, rng: np.random.Generator) -> Any:
    """Rows of random walks from resets of every task."""
    each = -(-n // len(goals.TASK_IDS))
    rows = np.concatenate([reset.sample_rows(task, None, each, rng) for task in goals.TASK_IDS])[:n]
    value = np.ascontiguousarray(rows.T).astype(np.int8)
    for _ in range(12):
        value = kernel.step(value, rng.integers(0, 7, n))
    return value.T.astype(np.float32)


def _broken(n: int, rng: np.random.Generator) -> Any:
    """Crowded rows of which most have a number out of place."""
    rows = _crowded(n, rng)
    wrong = rng.random(rows.shape) < 0.06
    wrong[:, 15:] = False
    odd = rng.choice([-1, 0, 6, 7, 8, 12, 14, 127, 128, 300, -200, 0.5, np.nan, np.inf, -np.inf], rows.shape)
    rows = np.where(wrong, odd, rows).astype(np.float32)
    two = np.flatnonzero(rng.random(n) < 0.05)
    rows[two[:, None], [1, 2, 7, 8]] = 0
    return rows


@pytest.fixture(scope="session")
def crowded_rows() -> Sampler:
    return _crowded


@pytest.fixture(scope="session")
def walked_rows() -> Sampler:
    return _walked


@pytest.fixture(scope="session")
def broken_rows() -> Sampler:
    return _broken
