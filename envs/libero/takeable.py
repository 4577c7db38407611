"""Which LIBERO rows the simulator can be put into, and which actions it can take.

Bounds are wider than those of the rules: a row may be illegal and still be simulated. Out of a row beyond them MuJoCo
throws things about, so that nothing would be learnt from a replay.
"""

from __future__ import annotations

import numpy as np

from qualcheck.envs.libero import measures, shapes
from qualcheck.envs.libero.columns import ACTION_SIZE, BODY_FIRST, FINGERS, JOINTS, finite_rows, position, quaternion
from qualcheck.types import AnyArray, BoolArray, IntArray

CODES = (
    *("", "non_finite_row", "no_rotation", "joint_range", "outside", "in_floor", "overlap"),
    *("bad_action", "hidden_unknown", "simulator_warning"),
)
NON_FINITE, NO_ROTATION, JOINT_RANGE, OUTSIDE, IN_FLOOR, OVERLAP, BAD_ACTION, HIDDEN_UNKNOWN, SIMULATOR_WARNING = range(
    1, len(CODES)
)

LENGTH_SLACK = 0.1  # of an object's quaternion, which MuJoCo makes of length 1; rounding to 2 decimals costs 0.01
JOINT_SLACK_RAD, FINGER_SLACK_M = 0.2, 0.02
FURTHEST_M, HIGHEST_M = 2.0, 2.0  # from the robot; its arm reaches 0.86 m
FLOOR_M = 0.045  # released starts hold a bottle 3.5 cm in the floor, which pops out
OVERLAP_M = 0.025  # real rows up to 0.012


def takeable(obs: AnyArray) -> IntArray:
    """0 where the simulator can be put into the row, else one of the codes above, (R, 44) -> (R,) int8.

    The hand's own columns are only asked to be finite: the simulator takes the joints.
    """
    code = np.where(finite_rows(obs), 0, NON_FINITE).astype(np.int8)
    at = np.flatnonzero(code == 0)
    rows = obs[at].astype(np.float64)
    with np.errstate(invalid="ignore", over="ignore"):
        lengths = np.stack([np.linalg.norm(quaternion(rows, first), axis=1) for first in BODY_FIRST.values()])  # (4, r)
        code[at] = np.select(
            [(np.abs(lengths - 1) > LENGTH_SLACK).any(axis=0), _out_of_joint(rows), _outside(rows)],
            [NO_ROTATION, JOINT_RANGE, OUTSIDE],
            0,
        )
    at = np.flatnonzero(code == 0)
    code[at[shapes.lowest_m(obs[at]).min(axis=1) < -FLOOR_M]] = IN_FLOOR
    at = np.flatnonzero(code == 0)
    code[at[shapes.overlap_m(obs[at]) > OVERLAP_M]] = OVERLAP
    return code


def _out_of_joint(rows: AnyArray) -> BoolArray:
    joints, fingers = rows[:, JOINTS], rows[:, FINGERS]
    far = [
        (joints < measures.JOINT_LOW - JOINT_SLACK_RAD) | (joints > measures.JOINT_HIGH + JOINT_SLACK_RAD),
        (fingers < measures.FINGER_LOW - FINGER_SLACK_M) | (fingers > measures.FINGER_HIGH + FINGER_SLACK_M),
    ]
    out: BoolArray = np.logical_or.reduce(np.concatenate(far, axis=1), axis=1)
    return out


def _outside(rows: AnyArray) -> BoolArray:
    out: BoolArray = np.zeros(len(rows), bool)
    for first in BODY_FIRST.values():
        place = position(rows, first)
        out |= np.hypot(place[:, 0] - shapes.BASE_X_M, place[:, 1]) > FURTHEST_M
        out |= np.abs(place[:, 2]) > HIGHEST_M
    return out


def usable_actions(action: AnyArray) -> BoolArray:
    """Actions of seven finite numbers, (M, 7) -> (M,); beyond 1 they are clipped, as the benchmark does."""
    if action.ndim != 2 or action.shape[1] != ACTION_SIZE or not np.issubdtype(action.dtype, np.number):
        return np.zeros(len(action), bool)
    usable: BoolArray = np.logical_and.reduce(np.isfinite(action), axis=1)
    return usable
