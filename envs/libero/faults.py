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


def _bent(row: AnyArray, joint: int, angle: float) -> AnyArray:
    """The row with one joint turned, rad, and the hand where the joints then put it."""
    bent = row.copy()
    bent[JOINTS.start + joint] += angle
    place, turn = hand_of_joints(bent[None, JOINTS])
    trace = float(np.trace(turn[0]))
    quat = np.array([1 + 2 * turn[0, 0, 0] - trace, turn[0, 0, 1] + turn[0, 1, 0], turn[0, 0, 2] + turn[0, 2, 0],
                     turn[0, 2, 1] - turn[0, 1, 2]])  # fmt: skip
    bent[HAND : HAND + 7] = [*place[0], *quat / np.linalg.norm(quat)]
    return bent


def _bending(joint: int, angle: float) -> Crafted:
    """A joint turns at once, and hand and joints agree."""

    def make(real: Real, _rng: np.random.Generator) -> tuple[Rollouts, int]:
        rest = real.rollouts[0].obs[0].astype(np.float64)
        return short(real, np.stack([rest, rest, _bent(rest, joint, angle)]), real.rollouts[0].action[:2]), 1

    return make


FAULTS = [
    of_row("quaternion order", _quaternion_order),
    of_row("quaternion length", _quaternion_length),
    of_row("penetration", _penetration),
    of_row("under the floor", _under_floor),
]
CRAFTED: dict[str, Crafted] = {
    "row.hand_in_floor": _bending(1, 1.3),
    "step.joint_change": _bending(6, 0.3),
    "step.hand_turn": _bending(6, 0.2),
}
