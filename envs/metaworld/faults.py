"""Faults of the Meta-World rows for the self-test: quaternions in the wrong order, things under the table."""

from __future__ import annotations

import numpy as np

from qualcheck.envs.metaworld.layout import TASKS, position, quaternion
from qualcheck.envs.metaworld.tasks import tasks_of
from qualcheck.selftesting.plant import Fault, Plant, with_rows
from qualcheck.selftesting.real import Real
from qualcheck.types import AnyArray


def _of_entity(name: str, quaternions: bool) -> Fault:
    """A fault in the block of the first thing that the task has."""

    def plant(real: Real, at: int, _size: float, rng: np.random.Generator) -> Plant | None:
        one = real.rollouts[at]
        task = str(tasks_of(one)[0])
        if task not in TASKS:
            return None
        entity = TASKS[task].entities[0]
        step = int(rng.integers(1, max(2, one.n_transitions - 1)))
        rows: AnyArray = one.obs.astype(np.float64)
        before = rows[step + 1].copy()
        if quaternions:
            rows[step + 1, quaternion(entity)] = np.roll(rows[step + 1, quaternion(entity)], 1)
        else:
            rows[step + 1, position(entity)] -= [0.0, 0.0, 0.3]
        if np.allclose(before, rows[step + 1]):
            return None
        return Plant(name, "", "step", with_rows(one, rows), step, at)

    return Fault(name, "step", plant)


FAULTS = [_of_entity("quaternion order", True), _of_entity("under the table", False)]
