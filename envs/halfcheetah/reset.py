"""Fresh HalfCheetah starts, many at once.

Source: reset of gymnasium's HalfCheetah: each position uniform within 0.1 of the rest pose, each velocity normal with
standard deviation 0.1.
"""

from __future__ import annotations

import numpy as np

from qualcheck.envs.halfcheetah import text
from qualcheck.envs.halfcheetah.layout import BENCHMARK_SIZE
from qualcheck.types import FloatArray

POSITION_NOISE = 0.1  # m and rad, half the width
VELOCITY_NOISE = 0.1  # m/s and rad/s, standard deviation


def sample_states(n: int, rng: np.random.Generator) -> FloatArray:
    """n starts in the benchmark's layout, whose first column is absolute x, (n, 18) float64."""
    rows = np.empty((n, BENCHMARK_SIZE))
    rows[:, :9] = rng.uniform(-POSITION_NOISE, POSITION_NOISE, (n, 9))
    rows[:, 9:] = rng.normal(0, VELOCITY_NOISE, (n, 9))
    return rows


def start(task: str, rng: np.random.Generator) -> tuple[FloatArray, str]:
    """The first row of an episode of a task, (18,), and one of the sentences that mean the task."""
    row: FloatArray = sample_states(1, rng)[0]
    sentences = text.book()["texts"][task]
    return row, str(sentences[int(rng.integers(len(sentences)))])
