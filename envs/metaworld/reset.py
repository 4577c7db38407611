"""What a reset draws: where the object or the furniture stands, and the goal."""

from __future__ import annotations

import numpy as np

from qualcheck.envs.metaworld.kernel import Kernel
from qualcheck.envs.metaworld.layout import OBS_SIZE
from qualcheck.envs.metaworld.reset_rules import DRAWS, SPACING_M
from qualcheck.types import FloatArray


def draw(task: str, rng: np.random.Generator, hinged: bool = True) -> tuple[FloatArray, FloatArray]:
    """Places of the task's first entity and of its goal, (3,) m each.

    Args:
        task: a key of `layout.TASKS`.
        rng: draws both.
        hinged: door-unlock with the benchmark's door, else with metaworld's rigid one.
    """
    box = DRAWS[task][0 if hinged else -1]
    while True:
        place = rng.uniform(box.low_m, box.high_m)
        goal = rng.uniform(box.goal_low_m, box.goal_high_m) + (place if box.from_entity else 0.0)
        if not box.spaced or np.hypot(*(goal - place)[:2]) >= SPACING_M:
            return place, goal


def sample(task: str, n: int, rng: np.random.Generator, kernel: Kernel, hinged: bool = True) -> FloatArray:
    """Row 0 of n fresh episodes, (n, 91) float64."""
    rows = [kernel.first_row(task, *draw(task, rng, hinged), hinged) for _ in range(n)]
    return np.stack(rows) if rows else np.zeros((0, OBS_SIZE))
