"""Faults of the running cheetah for the self-test: a world with other laws, and a body through the floor."""

from __future__ import annotations

from typing import Any

import numpy as np

from qualcheck.selftesting.plant import of_row, of_world
from qualcheck.selftesting.real import Real
from qualcheck.types import AnyArray


def _model(adapter: Any) -> Any:
    return adapter._simulator().model


def _gravity(model: Any, _size: float) -> None:
    model.opt.gravity[:] = 0.0


def _damping(model: Any, _size: float) -> None:
    model.dof_damping[:] *= 3.0


def _through_floor(rows: AnyArray, at: int, _real: Real, rng: np.random.Generator) -> AnyArray:
    row: AnyArray = rows[at].copy()
    row[0] -= rng.uniform(0.5, 1.0)  # m, the height of the torso over its usual one
    return row


FAULTS = [
    of_world("gravity off", _gravity, _model),
    of_world("damping changed", _damping, _model),
    of_row("penetration", _through_floor),
]
