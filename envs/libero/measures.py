"""What the laws of LIBERO bound: numbers of a row, and of a step from one row to the next.

`limits.json` holds the bounds, `learn.py` made it from real data.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cache
from importlib.resources import files
from typing import Any

import numpy as np

from qualcheck.envs.libero import shapes
from qualcheck.envs.libero.columns import (
    BODY_FIRST,
    FINGERS,
    HAND,
    JOINTS,
    POSES,
    position,
    quaternion,
)
from qualcheck.types import AnyArray, BoolArray, FloatArray

# rad, the seven joint limits of the Panda; m, the travel of the two fingers, which mirror each other
JOINT_LOW = np.array([-2.8973, -1.7628, -2.8973, -3.0718, -2.8973, -0.0175, -2.8973])
JOINT_HIGH = np.array([2.8973, 1.7628, 2.8973, -0.0698, 2.8973, 3.7525, 2.8973])
FINGER_LOW, FINGER_HIGH = np.array([0.0, -0.04]), np.array([0.04, 0.0])

HAND_CLEARANCE_M = 0.13  # further than this from an object's hull, no part of the gripper touches it
BODY_CLEARANCE_M = 0.01  # the same between the hulls of two objects
AIRBORNE_M = 0.03  # an object whose lowest point is higher, with nothing near it, is held by nothing
RISING_M = 0.002  # an object that rose more in the step before may have been thrown
FREE_FALL_M = 9.81 * 0.05**2 / 2  # of a step from rest
STILL_M = 1e-3  # an object that moved less in the step before is at rest

# name -> unit; each is a number that is 0 at best and illegal above its limit, worst column first where it has several
ROW_UNITS = {
    "joint_overshoot": "rad",
    "finger_overshoot": "m",
    "quaternion_length": "1",
    "hand_position": "m",
    "hand_turn": "rad",
    "hand_low": "m",
    "object_far": "m",
    "floor_depth": "m",
    "overlap": "m",
}
STEP_UNITS = {
    "joint_change": "rad",
    "hand_change": "m",
    "hand_turn_change": "rad",
    "finger_change": "m",
    "object_change": "m",
    "object_fall": "m",
    "object_turn": "rad",
    "untouched_change": "m",
    "untouched_turn": "rad",
    "hanging": "m",
}


def of_rows(obs: AnyArray) -> dict[str, FloatArray]:
    """What bounds a row alone, name -> (R,); 0 where a zero quaternion leaves it open. Finite rows, (R, 44)."""
    joints, fingers = obs[:, JOINTS].astype(np.float64), obs[:, FINGERS].astype(np.float64)
    length = np.stack([np.linalg.norm(quaternion(obs, first), axis=1) for first in POSES])  # (5, R)
    hand_position, hand_turn = shapes.hand_errors(obs, HAND)
    base = np.array([shapes.BASE_X_M, 0])
    far = [np.linalg.norm(position(obs, first)[:, :2] - base, axis=1) for first in BODY_FIRST.values()]
    return {
        "joint_overshoot": np.maximum(JOINT_LOW - joints, joints - JOINT_HIGH).max(axis=1),
        "finger_overshoot": np.maximum(FINGER_LOW - fingers, fingers - FINGER_HIGH).max(axis=1),
        "quaternion_length": np.abs(length - 1).max(axis=0),
        "hand_position": hand_position,
        "hand_turn": np.nan_to_num(hand_turn),
        "hand_low": -position(obs, HAND)[:, 2],
        "object_far": np.maximum.reduce(far),
        "floor_depth": np.nan_to_num(-shapes.lowest_m(obs).min(axis=1)),
        "overlap": shapes.overlap_m(obs),
    }


def _clear(start: AnyArray, end: AnyArray) -> BoolArray:
    """Objects that nothing can touch in either row, (4, M)."""
    clear = np.ones((len(BODY_FIRST), len(start)), bool)
    for row in (start, end):
        place = {body: position(row, first) for body, first in BODY_FIRST.items()}
        for number, (body, here) in enumerate(place.items()):
            reach = shapes.radius_m(body)
            apart = np.linalg.norm(here - position(row, HAND), axis=1)
            clear[number] &= apart > reach + HAND_CLEARANCE_M
            for other, there in place.items():
                if other != body:
                    apart = np.linalg.norm(here - there, axis=1)
                    clear[number] &= apart > reach + shapes.radius_m(other) + BODY_CLEARANCE_M
    return clear


def of_steps(start: AnyArray, end: AnyArray, before: AnyArray | None = None) -> dict[str, FloatArray]:
    """What bounds a step, name -> (M,); `before` (M, 44) is the row before the start row, NaN where there is none.

    `untouched_*` is how far an object at rest, with nothing near it, moves and turns; `hanging` how much less than
    12 mm, the free fall of a step from rest, an object in the air with nothing near it sinks. Both need `before`.
    """
    joints = np.abs(end[:, JOINTS].astype(np.float64) - start[:, JOINTS]).max(axis=1)
    fingers = np.abs(end[:, FINGERS].astype(np.float64) - start[:, FINGERS]).max(axis=1)
    zero, bodies = np.zeros(len(start)), list(BODY_FIRST.values())
    moved = [position(end, first) - position(start, first) for first in bodies]
    turned = [shapes.turn_between(quaternion(start, first), quaternion(end, first)) for first in bodies]
    found = {
        "joint_change": joints,
        "hand_change": np.linalg.norm(position(end, HAND) - position(start, HAND), axis=1),
        "hand_turn_change": shapes.turn_between(quaternion(start, HAND), quaternion(end, HAND)),
        "finger_change": fingers,
        "object_change": np.maximum.reduce([np.linalg.norm(_not_down(way), axis=1) for way in moved]),
        "object_fall": np.maximum.reduce([-way[:, 2] for way in moved]),
        "object_turn": np.fmax.reduce(turned),
        "untouched_change": zero,
        "untouched_turn": zero,
        "hanging": zero,
    }
    if before is not None:
        found |= _alone(start, end, before, moved, turned)
    return {name: np.nan_to_num(value) for name, value in found.items()}


def _not_down(way: FloatArray) -> FloatArray:
    return way * np.stack([np.ones(len(way)), np.ones(len(way)), way[:, 2] > 0], axis=1)


def _alone(
    start: AnyArray, end: AnyArray, before: AnyArray, moved: Sequence[FloatArray], turned: Sequence[FloatArray]
) -> dict[str, FloatArray]:
    """The measures of objects that nothing can touch; an unknown row before leaves them 0."""
    clear, change, turn, hanging = _clear(start, end), *np.zeros((3, len(start)))
    low = shapes.lowest_m(start)  # (M, 4)
    for number, first in enumerate(BODY_FIRST.values()):
        last = position(start, first) - position(before, first)
        still = clear[number] & (np.linalg.norm(last, axis=1) < STILL_M)
        change = np.where(still, np.maximum(change, np.linalg.norm(moved[number], axis=1)), change)
        turn = np.where(still, np.fmax(turn, turned[number]), turn)
        aloft = clear[number] & (low[:, number] > AIRBORNE_M) & (last[:, 2] < RISING_M)
        hanging = np.where(aloft, np.maximum(hanging, FREE_FALL_M + moved[number][:, 2]), hanging)
    return {"untouched_change": change, "untouched_turn": turn, "hanging": hanging}


@cache
def limits(kind: str = "limit") -> dict[str, float]:
    """Name -> largest legal value ("limit") or largest one in real data ("recorded"), from the shipped table."""
    text = files("qualcheck.envs.libero").joinpath("limits.json").read_text(encoding="utf-8")
    kept: dict[str, Any] = json.loads(text)
    return {name: float(entry[kind]) for name, entry in kept["limits"].items()}
