"""What the laws of Meta-World bound: numbers of a row, of a row against row 0 of its episode, and of a step.

Each is a number that is 0 or less at best and illegal above its limit. Only the blocks of the task are read: another
entity's is a distractor, which the benchmark draws anew at every row and which has a measure of its own. `limits.json`
holds the limits, `learn.py` made it from real data.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

import numpy as np

from qualcheck.envs.metaworld.layout import (
    ENTITIES,
    ENTITY_SIZE,
    FIRST_ENTITY,
    GOAL,
    HAND,
    HAND_HIGH,
    HAND_LOW,
    MOCAP_HIGH,
    NO_QUATERNION,
    OPENING,
    STEP_SECONDS,
    TASKS,
    position,
    quaternion,
    simulated_columns,
)
from qualcheck.types import AnyArray, BoolArray, FloatArray, IntArray

OPENING_SHUT = 0.2637  # of fingers pressed together: the stops give way a little
FREE = ("target_object", "coffee", "hammer", "soccer")  # entities that stand on the table and can be lifted
REST_M = {"target_object": 0.02, "coffee": 0.0, "hammer": 0.0, "soccer": 0.03}  # height of the marker at rest
LOWEST_M = {"target_object": 0.01, "coffee": -0.007, "hammer": -0.001, "soccer": 0.003}  # of a tipped or rolling one
GRIP_M = 0.13  # further than this from the hand, nothing of an upright gripper touches a free object
TILTED_GRIP_M = 0.17  # the same for one that the benchmark's own MuJoCo leaves tilted, with a mug at its finger tips
STILL_M = 1e-3  # an object that moved less in the step before is at rest
AIRBORNE_M = 0.05  # an object that is higher above its rest, with nothing near it, is held by nothing
FALL_M = 9.81 * STEP_SECONDS**2  # by which it then sinks more than in the step before
FREE_SPACE_M, FREE_HEIGHT_M = 0.14, 0.1  # the hand touches neither an entity further away nor, above, the table
WIDE = ("lock", "handle")  # entities on a door, which the hand can meet far from them

SECOND_DOOR_GOAL_M = np.array([0.0, 0.64, 0.21])
UNLOCK_GOAL_LOW_M, UNLOCK_GOAL_HIGH_M = np.array([0.0, 0.64, 0.21]), np.array([0.2, 0.7, 0.2111])
BUTTON_DEPTH_M, COFFEE_GOAL_Y_M, COFFEE_GOAL_Z_M = 0.03, 0.75, 0.001
BUTTON_ABOVE_GOAL_M = np.array([0.0, 0.0, 0.3])
WALL_M, LOW_WALL_M = np.array([0.1, 0.75, 0.06]), np.array([0.1, 0.6, 0.0])
NAIL_M = np.array([0.24, 0.64, 0.11])

# how the hand of the 2.3 family follows the commanded one in free space, per axis: its move is the sum of these
# times its last two moves and its way to the commanded hand before and after the action
FOLLOW = np.array(
    [[1.350, -0.533, -0.070, 0.095], [1.434, -0.585, -0.073, 0.086], [1.199, -0.443, -0.065, 0.101]]
)  # (3, 4)

# name -> unit, in the order in which the laws are tested
ROW_UNITS = {
    "hand_out": "m",
    "opening_out": "1",
    "quaternion_length": "1",
    "sunk": "m",
    "fixture": "m",
    "distractors": "1",
}
CONTEXT_UNITS = {"goal_moved": "m", "off_track": "m", "past_stop": "m", "distractor_changed": "1"}
STEP_UNITS = {
    "hand_step": "m",
    "opening_step": "1",
    "entity_step": "m",
    "untouched_step": "m",
    "hanging": "m",
    "hand_follow": "m",
}


@dataclass(frozen=True)
class Slide:
    """A joint that slides along an axis, from `low_m` to `high_m` of where row 0 shows it."""

    axis: int
    low_m: float
    high_m: float


@dataclass(frozen=True)
class Swing:
    """A joint that turns about an upright axis, whose place is `pivot_m` in x and y from where row 0 shows the entity.

    The arc runs from `low_rad` to `high_rad` of row 0, counted from x to y.
    """

    pivot_m: tuple[float, float]
    low_rad: float
    high_rad: float


@dataclass(frozen=True)
class Within:
    """A lock, moved by two joints: the box around its place on row 0 that they can bring it to."""

    low_m: tuple[float, float, float]
    high_m: tuple[float, float, float]


_UNLOCK = Within((-0.028, -0.016, -0.045), (0.093, 0.003, 0.052))
_LOCK = Within((-0.05, -0.022, -0.091), (0.001, 0.001, 0.001))
JOINTS: dict[tuple[str, str], Slide | Swing | Within] = {
    ("button-press", "button"): Slide(1, 0.0, 0.06),
    ("button-press-wall", "button"): Slide(1, 0.0, 0.06),
    ("coffee-button", "coffee-button"): Slide(1, 0.0, 0.03),
    ("make-coffee", "coffee-button"): Slide(1, 0.0, 0.03),
    ("hammer", "nail"): Slide(1, 0.0, 0.1),
    ("window-open", "window"): Slide(0, 0.0, 0.2),
    ("window-close", "window"): Slide(0, -0.2, 0.0),
    ("faucet-open", "faucet"): Swing((0.015, 0.175), 0.0, np.pi / 2),
    ("faucet-close", "faucet"): Swing((-0.015, 0.175), -np.pi / 2, 0.0),
    ("door-open", "handle"): Swing((-0.37572163, 0.10713991), -2.0, 0.0),
    ("door-close", "handle"): Swing((0.10714, 0.37572), 0.0, np.pi / 2),
    ("locked-door-open", "handle"): Swing((-0.1071, -0.3757), -2.0 - np.pi / 2, 0.05),
    ("door-unlock", "lock"): _UNLOCK,
    ("locked-door-open", "lock"): _UNLOCK,
    ("door-lock", "lock"): _LOCK,
}


def _norm(way: FloatArray) -> FloatArray:
    length: FloatArray = np.sqrt((way**2).sum(axis=-1))
    return length


def _worst(values: list[FloatArray], count: int) -> FloatArray:
    return np.maximum.reduce(values) if values else np.zeros(count)


def shown(obs: AnyArray) -> BoolArray:
    """Which entities a row shows, (R, 91) -> (R, 12): those whose block is not all zero."""
    blocks = obs[:, FIRST_ENTITY:].reshape(len(obs), len(ENTITIES), ENTITY_SIZE)
    found: BoolArray = (blocks != 0).any(axis=2)
    return found


def others(obs: AnyArray, task: str) -> BoolArray:
    """Which entities a row shows beside those of the task, (R, 12)."""
    found = shown(obs)
    found[:, [ENTITIES.index(entity) for entity in TASKS[task].entities]] = False
    return found


def of_rows(task: str, obs: FloatArray) -> dict[str, FloatArray]:
    """What bounds a row alone, name -> (R,). Rows whose task blocks are finite, (R, 91)."""
    entities, hand, count = TASKS[task].entities, obs[:, HAND], len(obs)
    low = np.maximum(TASKS[task].mocap_low_m, HAND_LOW)
    high = np.minimum(MOCAP_HIGH, HAND_HIGH)
    length = [_norm(obs[:, quaternion(entity)]) - (entity != NO_QUATERNION) for entity in entities]
    loose = [entity for entity in entities if entity in FREE]
    sunk = [LOWEST_M[entity] - obs[:, position(entity)][:, 2] for entity in loose]
    fixture = []
    if "wall" in entities:
        wall = LOW_WALL_M if task == "button-press-wall" else WALL_M
        fixture.append(np.abs(obs[:, position("wall")] - wall).max(axis=1))
    if "nail" in entities:
        fixture.append(np.abs(obs[:, position("nail")] - NAIL_M)[:, [0, 2]].max(axis=1))
    return {
        "hand_out": np.maximum(low - hand, hand - high).max(axis=1),
        "opening_out": np.maximum(OPENING_SHUT - obs[:, OPENING], obs[:, OPENING] - 1),
        "quaternion_length": np.abs(length).max(axis=0),
        "sunk": _worst(sunk, count),
        "fixture": _worst(fixture, count),
        "distractors": others(obs, task).sum(axis=1).astype(np.float64) - 1,
    }


def _goal_moved(task: str, obs: FloatArray, context: FloatArray) -> FloatArray:
    """Distance of each row's goal, along its worst axis, from the nearest of those that the task may show, (R,)."""
    first = context[:, GOAL]
    allowed = [first]
    if task in ("door-unlock", "locked-door-open"):
        allowed.append(np.clip(first, UNLOCK_GOAL_LOW_M, UNLOCK_GOAL_HIGH_M))
    if task == "locked-door-open":
        allowed.append(np.broadcast_to(SECOND_DOOR_GOAL_M, first.shape))
    if task == "make-coffee":
        pressed = np.minimum(first[:, 1] + BUTTON_DEPTH_M, COFFEE_GOAL_Y_M)
        allowed.append(np.stack([first[:, 0], pressed, np.full(len(first), COFFEE_GOAL_Z_M)], axis=1))
    apart: FloatArray = np.min([np.abs(obs[:, GOAL] - goal).max(axis=1) for goal in allowed], axis=0)
    return apart


def turned_rad(joint: Swing, place: FloatArray, start: FloatArray) -> FloatArray:
    """Angle by which a swinging entity has turned since row 0, (R, 3) -> (R,), -pi to pi."""
    arm, rest = (place - start)[:, :2] - joint.pivot_m, -np.array(joint.pivot_m)
    angle: FloatArray = np.arctan2(rest[0] * arm[:, 1] - rest[1] * arm[:, 0], arm @ rest)
    return angle


def _joint(joint: Slide | Swing | Within, place: FloatArray, start: FloatArray) -> tuple[FloatArray, FloatArray]:
    """How far an entity is off the track of its joint, and beyond the joint's stops, (R, 3) -> (R,) each, m."""
    way = place - start
    if isinstance(joint, Within):
        beyond = np.maximum(np.array(joint.low_m) - way, way - np.array(joint.high_m)).max(axis=1)
        return np.zeros(len(way)), beyond
    if isinstance(joint, Slide):
        fixed = [axis for axis in range(3) if axis != joint.axis]
        slid = way[:, joint.axis]
        return np.abs(way[:, fixed]).max(axis=1), np.maximum(joint.low_m - slid, slid - joint.high_m)
    arm, radius = way[:, :2] - joint.pivot_m, float(np.hypot(*joint.pivot_m))
    angle = turned_rad(joint, place, start)
    middle = (joint.low_rad + joint.high_rad) / 2  # what lies opposite to it is out on either side
    angle = middle + (angle - middle + np.pi) % (2 * np.pi) - np.pi
    off = np.maximum(np.abs(_norm(arm) - radius), np.abs(way[:, 2]))
    return off, radius * np.maximum(joint.low_rad - angle, angle - joint.high_rad)


def of_context(task: str, obs: FloatArray, context: FloatArray, told: BoolArray) -> dict[str, FloatArray]:
    """What bounds a row against row 0 of its episode, name -> (R,).

    Args:
        obs: (R, 91) rows.
        context: (R, 91) row 0 of the episode of each, or the first row that is known.
        told: (R,) it is row 0; else nothing says where the joints were, and they are not judged.
    """
    off, past = [], []
    for entity in TASKS[task].entities:
        if (task, entity) in JOINTS:
            start = context[:, position(entity)]
            if entity == "nail":
                start = np.broadcast_to(NAIL_M, start.shape)
            if task == "make-coffee" and entity == "coffee-button":  # row 0 shows the machine of the episode before
                start = context[:, GOAL] + BUTTON_ABOVE_GOAL_M
            track, stop = _joint(JOINTS[task, entity], obs[:, position(entity)], start)
            if task == "make-coffee":
                mine = simulated_columns(task)
                first = (obs[:, mine] == context[:, mine]).all(axis=1)
                track, stop = np.where(first, 0, track), np.where(first, 0, stop)
            off.append(np.where(told, track, 0))
            past.append(np.where(told, stop, 0))
    before, now = others(context, task), others(obs, task)
    return {
        "goal_moved": _goal_moved(task, obs, context),
        "off_track": _worst(off, len(obs)),
        "past_stop": _worst(past, len(obs)),
        "distractor_changed": (before != now).any(axis=1).astype(np.float64),
    }


def commanded_hands(
    rows: IntArray, offsets: IntArray, start_m: FloatArray, action: FloatArray, task: str
) -> FloatArray:
    """The commanded hand on every row of whole rollouts, by adding up their actions, (R, 3) m.

    Args:
        rows: (n+1,) first row of each rollout of the result; one row more than actions each.
        offsets: (n+1,) first action of each rollout.
        start_m: (n, 3) commanded hand on its first row.
        action: (M', 4) finite, as recorded.
    """
    moves, length = 0.01 * np.clip(action[:, :3], -1, 1), np.diff(offsets)
    path, now, low = np.empty((int(rows[-1]), 3)), start_m.copy(), TASKS[task].mocap_low_m
    path[rows[:-1]] = now
    for step in range(int(length.max(initial=0))):  # the clip makes each place depend on the one before
        who = np.flatnonzero(length > step)
        now[who] = np.clip(now[who] + moves[offsets[:-1][who] + step], low, MOCAP_HIGH)
        path[rows[:-1][who] + step + 1] = now[who]
    return path


def _free(task: str, obs: FloatArray) -> BoolArray:
    """Rows whose hand is clear of the table and of every entity of the task, (R,)."""
    free: BoolArray = obs[:, HAND][:, 2] > FREE_HEIGHT_M
    if set(WIDE) & set(TASKS[task].entities):
        return np.zeros(len(obs), bool)
    for entity in TASKS[task].entities:
        free &= _norm(obs[:, position(entity)] - obs[:, HAND]) > FREE_SPACE_M
    return free


def of_steps(
    task: str,
    start: FloatArray,
    end: FloatArray,
    before: FloatArray,
    earlier: FloatArray,
    command: FloatArray,
    next_command: FloatArray,
) -> dict[str, FloatArray]:
    """What bounds a step, name -> (M,).

    Args:
        start, end: (M, 91) rows of the step.
        before, earlier: (M, 91) the row before the start row and the one before that, NaN where there is none.
        command, next_command: (M, 3) commanded hand before and after the action, NaN where not known.
    """
    moved, untouched, hanging = [], [np.zeros(len(start))], [np.zeros(len(start))]
    for entity in TASKS[task].entities:
        place = position(entity)
        way = _norm(end[:, place] - start[:, place])
        if task == "make-coffee" and entity == "coffee-button":  # it jumps from the stale place of row 0
            way = np.where(np.isnan(before[:, place]).any(axis=1), 0, way)
        moved.append(way)
        if entity in FREE:
            places = [rows[:, place] for rows in (before, start, end)]
            apart = [_norm(here - rows[:, HAND]) for here, rows in zip(places, (before, start, end), strict=True)]
            still = (apart[1] > GRIP_M) & (apart[2] > GRIP_M) & (_norm(places[1] - places[0]) < STILL_M)
            untouched.append(np.where(still, way, 0))
            height = np.stack([here[:, 2] for here in places])  # (3, M)
            aloft = (np.array(apart) > TILTED_GRIP_M).all(axis=0) & (height > REST_M[entity] + AIRBORNE_M).all(axis=0)
            hanging.append(np.where(aloft, height[2] - 2 * height[1] + height[0] + FALL_M, 0))
    hand, was, is_next = start[:, HAND], before[:, HAND], end[:, HAND]
    terms = np.stack([hand - was, was - earlier[:, HAND], command - hand, next_command - hand], axis=2)  # (M, 3, 4)
    residual = np.abs((terms * FOLLOW).sum(axis=2) - (is_next - hand)).max(axis=1)
    free = _free(task, start) & _free(task, end) & _free(task, before)
    return {
        "hand_step": _norm(is_next - hand),
        "opening_step": np.abs(end[:, OPENING] - start[:, OPENING]),
        "entity_step": _worst(moved, len(start)),
        "untouched_step": np.maximum.reduce(untouched),
        "hanging": np.maximum.reduce(hanging),
        "hand_follow": np.nan_to_num(np.where(free, residual, 0)),
    }


@cache
def limits(kind: str = "limit") -> dict[str, float]:
    """Name -> largest legal value ("limit") or largest one in real data ("recorded"), from the shipped table."""
    text = files("qualcheck.envs.metaworld").joinpath("limits.json").read_text(encoding="utf-8")
    kept: dict[str, Any] = json.loads(text)
    return {name: float(entry[kind]) for name, entry in kept["limits"].items()}
