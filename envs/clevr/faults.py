"""Faults of the table with five balls for the self-test: other laws, balls off the table, balls in each other."""

from __future__ import annotations

from typing import Any

import numpy as np

from qualcheck.envs.clevr.layout import BALLS, HIGHEST_M, LOWEST_M, RADIUS_M
from qualcheck.selftesting.plant import of_row, of_world
from qualcheck.selftesting.real import Real
from qualcheck.types import AnyArray


def _model(adapter: Any) -> Any:
    return adapter._simulator().model


def _gravity(model: Any, _size: float) -> None:
    model.opt.gravity[:] = 0.0


def _damping(model: Any, _size: float) -> None:
    model.dof_damping[:] = 30.0 * model.dof_damping + 1.0


def _off_table(rows: AnyArray, at: int, _real: Real, rng: np.random.Generator) -> AnyArray:
    row: AnyArray = rows[at].copy()
    ball, axis = int(rng.integers(len(BALLS))), int(rng.integers(2))
    outside = HIGHEST_M[axis] + 0.2 if rng.random() < 0.5 else LOWEST_M[axis] - 0.2
    row[2 * ball + axis] = outside
    return row


def _penetration(rows: AnyArray, at: int, _real: Real, rng: np.random.Generator) -> AnyArray:
    row: AnyArray = rows[at].copy()
    first, second = rng.choice(len(BALLS), 2, replace=False)
    angle = rng.uniform(0, 2 * np.pi)
    row[2 * first : 2 * first + 2] = row[2 * second : 2 * second + 2] + RADIUS_M * np.array(
        [np.cos(angle), np.sin(angle)]
    )
    return row


FAULTS = [
    of_world("gravity off", _gravity, _model),
    of_world("damping changed", _damping, _model),
    of_row("off table", _off_table),
    of_row("penetration", _penetration),
]
