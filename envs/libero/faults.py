"""Faults of the tabletop arm for the self-test: quaternions, objects in each other or under the floor, a low hand."""

from __future__ import annotations

import numpy as np

from qualcheck.envs.libero.columns import HAND, JOINTS, POSES
from qualcheck.envs.libero.shapes import hand_of_joints
from qualcheck.selftesting.plant import of_row, short
from qualcheck.selftesting.real import Real
from qualcheck.selftesting.rules import Crafted
from qualcheck.types import AnyArray, Rollouts

OBJECTS = POSES[1:]  # first columns of position and quaternion, (x, y, z, w)


def _quaternion_order(rows: AnyArray, at: int, _real: Real, rng: np.random.Generator) -> AnyArray:
    """w first instead of last."""
    row: AnyArray = rows[at].copy()
    first = int(rng.choice(OBJECTS)) + 3
    row[first : first + 4] = np.roll(row[first : first + 4], 1)
    return row


def _quaternion_length(rows: AnyArray, at: int, _real: Real, rng: np.random.Generator) -> AnyArray:
    row: AnyArray = rows[at].copy()
    first = int(rng.choice(OBJECTS)) + 3
    row[first : first + 4] *= 1.2
    return row


def _penetration(rows: AnyArray, at: int, _real: Real, rng: np.random.Generator) -> AnyArray:
    row: AnyArray = rows[at].copy()
    first, second = rng.choice(OBJECTS, 2, replace=False)
    row[first : first + 3] = row[second : second + 3] + np.array([0.005, 0.0, 0.0])
    return row


def _under_floor(rows: AnyArray, at: int, _real: Real, rng: np.random.Generator) -> AnyArray:
    row: AnyArray = rows[at].copy()
    row[int(rng.choice(OBJECTS)) + 2] -= 0.2
    return row


def _sunken(real: Real, _rng: np.random.Generator) -> tuple[Rollouts, int] | None:
    """A bent shoulder puts the hand under the floor, and hand and joints agree."""
    rest = real.rollouts[0].obs[0].astype(np.float64)
    low = rest.copy()
    low[JOINTS.start + 1] += 1.3  # rad
    place, turn = hand_of_joints(low[None, JOINTS])
    trace = float(np.trace(turn[0]))
    quat = np.array([1 + 2 * turn[0, 0, 0] - trace, turn[0, 0, 1] + turn[0, 1, 0], turn[0, 0, 2] + turn[0, 2, 0],
                     turn[0, 2, 1] - turn[0, 1, 2]])  # fmt: skip
    low[HAND : HAND + 7] = [*place[0], *quat / np.linalg.norm(quat)]
    action = real.rollouts[0].action[:2]
    return short(real, np.stack([rest, rest, low]), action), 1


FAULTS = [
    of_row("quaternion order", _quaternion_order),
    of_row("quaternion length", _quaternion_length),
    of_row("penetration", _penetration),
    of_row("under the floor", _under_floor),
]
CRAFTED: dict[str, Crafted] = {"row.hand_in_floor": _sunken}
