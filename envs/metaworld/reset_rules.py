"""The row-0 laws of Meta-World: what an episode can start with.

A reset draws the place of the object or of the furniture, and of the goal where that is free, from a box; everything
else of row 0 follows from it. Source: the boxes of the ImagineBench Meta-World classes (arXiv 2505.10010, released code
of May 2025); what follows was measured on the benchmark's own resets, in both of its door scenes.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from qualcheck.envs.metaworld.layout import GOAL, HAND, LOCK_TASKS, OPENING, TASKS, block, position
from qualcheck.spec import Rule
from qualcheck.types import BoolArray, FloatArray

SLACK_M = 2e-3  # of a stored row, settling included, against the sharp edge of what a reset draws
HAND_M = 0.015  # between the settled hand and the commanded one
PUSHED_HAND_M, PUSHED_LOCK_M = 0.045, 0.03  # where the hand, on its way, meets the door of the episode before
OPEN = 0.98
SPACING_M = 0.15  # in x and y, between an object and the goal that it is moved to

HAND_LAW = Rule("row0.hand", "reset", "m", f"{HAND_M:g}", "the hand is not where an episode starts")
GRIPPER_LAW = Rule("row0.gripper", "reset", "1", f"{OPEN:g}", "the gripper is not open as an episode starts")
PLACE_LAW = Rule("row0.entity", "reset", "m", "box of the reset", "an entity is not where an episode can start")
GOAL_LAW = Rule("row0.goal", "reset", "m", "box of the reset", "the goal is not where an episode can put it")
RESET_LAWS = (HAND_LAW, GRIPPER_LAW, PLACE_LAW, GOAL_LAW)

Vector = tuple[float, float, float]


class Draw(NamedTuple):
    """Boxes of an entity's place and of the goal on row 0, or of the goal as seen from the entity."""

    low_m: Vector
    high_m: Vector
    goal_low_m: Vector
    goal_high_m: Vector
    from_entity: bool = False  # the goal's box is one of differences
    spaced: bool = False


def _fixed(low: Vector, high: Vector, goal: Vector) -> Draw:
    return Draw(low, high, goal, goal, from_entity=True)


def _box(low: Vector, high: Vector, shift: Vector, goal_shift: Vector) -> Draw:
    """Furniture drawn from a box, shown at a shift of it; the goal is at another shift."""
    edges = [tuple(float(v) for v in np.add(edge, shift)) for edge in (low, high)]
    seen = tuple(float(v) for v in np.subtract(goal_shift, shift))
    return _fixed(edges[0], edges[1], seen)  # type: ignore[arg-type]  # three numbers each


_DOOR_LOW, _DOOR_HIGH = (0.0, 0.85, 0.15), (0.1, 0.95, 0.15)
_LOCK_LOW, _LOCK_HIGH = (-0.1, 0.8, 0.15), (0.1, 0.85, 0.15)
_LOW_OBJECT, _HIGH_OBJECT = (-0.1, 0.6, 0.02), (0.1, 0.7, 0.02)
_LOW_WALLED, _HIGH_WALLED = (-0.05, 0.6, 0.015), (0.05, 0.65, 0.02)
_LOW_GOAL, _HIGH_GOAL = (-0.1, 0.8, 0.05), (0.1, 0.9, 0.3)
_UNLOCK = (
    _box(_LOCK_LOW, _LOCK_HIGH, (-0.127, 0.175, 0.051), (-0.067, 0.045, 0.061)),
    _box(_LOCK_LOW, _LOCK_HIGH, (-0.01, -0.158, -0.029), (0.1, -0.158, 0.061)),  # in a scene with a rigid door
)
_MUG = Draw((-0.1, 0.55, -0.001), (0.1, 0.65, 0.001), (-0.05, 0.7, -0.001), (0.05, 0.75, 0.001), spaced=True)

DRAWS: dict[str, tuple[Draw, ...]] = {
    "reach": (Draw(_LOW_OBJECT, _HIGH_OBJECT, _LOW_GOAL, _HIGH_GOAL, spaced=True),),
    "push": (Draw(_LOW_OBJECT, _HIGH_OBJECT, (-0.1, 0.8, 0.01), (0.1, 0.9, 0.02), spaced=True),),
    "pick-place": (Draw(_LOW_OBJECT, _HIGH_OBJECT, _LOW_GOAL, _HIGH_GOAL, spaced=True),),
    "button-press": (_fixed((-0.1, 0.657, 0.115), (0.1, 0.707, 0.115), (0, 0.093, 0)),),
    "door-unlock": _UNLOCK,
    "door-open": (_box(_DOOR_LOW, _DOOR_HIGH, (0.19072, -0.20714, 0.00004), (-0.3, -0.45, 0)),),
    "window-open": (_box((-0.1, 0.7, 0.16), (0.1, 0.9, 0.16), (-0.04, -0.095, 0), (0.2, 0, 0)),),
    "faucet-open": (_box((-0.05, 0.8, 0), (0.05, 0.85, 0), (-0.015, -0.175, 0.114), (0.175, 0, 0.125)),),
    "coffee-push": (_MUG,),
    "coffee-button": (_fixed((-0.1, 0.58, 0.299), (0.1, 0.68, 0.301), (0, 0.03, 0)),),
    "reach-wall": (Draw(_LOW_WALLED, _HIGH_WALLED, (-0.05, 0.85, 0.05), (0.05, 0.9, 0.3)),),
    "push-wall": (Draw(_LOW_WALLED, _HIGH_WALLED, (-0.05, 0.85, 0.01), (0.05, 0.9, 0.02)),),
    "pick-place-wall": (Draw(_LOW_WALLED, _HIGH_WALLED, (-0.05, 0.85, 0.05), (0.05, 0.9, 0.3)),),
    "button-press-wall": (_fixed((-0.05, 0.657, 0.1149), (0.05, 0.707, 0.1151), (0, 0.093, 0)),),
    "door-lock": (_box(_LOCK_LOW, _LOCK_HIGH, (0.09, -0.158, 0.071), (0, -0.158, -0.039)),),
    "door-close": (_box(_DOOR_LOW, _DOOR_HIGH, (-0.29214, -0.47572, 0.00004), (0.2, -0.2, 0)),),
    "window-close": (_box((0, 0.75, 0.2), (0, 0.9, 0.2), (0.21, -0.095, 0), (0, 0, 0)),),
    "faucet-close": (_box((-0.1, 0.8, 0), (0.1, 0.85, 0), (0.015, -0.175, 0.114), (-0.175, 0, 0.125)),),
    "make-coffee": (_MUG,),
    "locked-door-open": _UNLOCK[:1],
    "hammer": (Draw((-0.1, 0.4, 0), (0.1, 0.5, 0), (0.24, 0.74, 0.11), (0.24, 0.74, 0.11)),),
    "soccer": (Draw((-0.1, 0.6, 0.03), (0.1, 0.7, 0.03), (-0.1, 0.8, 0), (0.1, 0.9, 0), spaced=True),),
}


def _outside(values: FloatArray, low: Vector, high: Vector, slack_m: float) -> BoolArray:
    inside = (values >= np.array(low) - slack_m) & (values <= np.array(high) + slack_m)  # (n, 3)
    out: BoolArray = ~np.logical_and.reduce(inside, axis=1)
    return out


def _drawn(draw: Draw, place: FloatArray, goal: FloatArray, slack_m: float) -> tuple[BoolArray, BoolArray]:
    """Whether the entity and whether the goal is out of a draw, (n,) each."""
    out = _outside(goal - place if draw.from_entity else goal, draw.goal_low_m, draw.goal_high_m, slack_m)
    if draw.spaced:
        out |= np.hypot(*(goal - place)[:, :2].T) < SPACING_M - slack_m
    return _outside(place, draw.low_m, draw.high_m, slack_m), out


def broken_start(task: str, first: FloatArray) -> list[BoolArray]:
    """Whether each row breaks each of `RESET_LAWS` as row 0 of a task, (n,) a law; NaN breaks it.

    Args:
        task: a key of `layout.TASKS`.
        first: (n, 91) rows.
    """
    shown = TASKS[task]
    near, slack = (PUSHED_HAND_M, PUSHED_LOCK_M) if task in LOCK_TASKS else (HAND_M, SLACK_M)
    hand: BoolArray = ~(np.abs(first[:, HAND] - np.array(shown.hand_start_m)).max(axis=1) <= near)
    entity = shown.entities[0]
    with np.errstate(invalid="ignore", over="ignore"):
        tried = [_drawn(draw, first[:, position(entity)], first[:, GOAL], slack) for draw in DRAWS[task]]
    both = np.array(tried)  # (D, 2, n)
    best = both.sum(axis=1).argmin(axis=0)  # the door scene it agrees with best
    place, goal = both[best, :, np.arange(len(first))].T
    missing = [~np.logical_or.reduce(first[:, block(each)] != 0, axis=1) for each in shown.entities]
    return [hand, ~(first[:, OPENING] >= OPEN), place | np.logical_or.reduce(missing), goal]
