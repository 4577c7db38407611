"""When a CLEVR-Robot task is reached: one table from tasks to sub-goals, evaluated on all rows of a batch at once.

Ids: "tau_<way>" (one ball beside another), "push_<way>" (an action that pushes one ball a way), "push_still", "tau_2"
and "tau_3" (two or three of the first kind at once), "order" and "gather". `Placement.params` names the balls: (moved,
reference) for tau, (ball,) for push, and (way, moved, reference) two or three times for tau_2 and tau_3.
Source: success tests of the ImagineBench ball environment (arXiv 2505.10010, released code of May 2025), which see 15
columns in two of the hard tasks and fail there; here, as in their design, they see the ten coordinates.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from qualcheck.envs.clevr.layout import BALLS, DIRECTIONS, RADIUS_M, xy
from qualcheck.thresholds import scaled
from qualcheck.types import AnyArray, BoolArray, FloatArray, GoalRows, IntArray, Placement, Trajectory

WAYS = ("behind", "left", "front", "right")  # in the order of the benchmark's goal arrays
WAY_VECTORS = np.array([[0, 1], [-1, 0], [0, -1], [1, 0]])  # (4, 2)
PUSHES = DIRECTIONS @ WAY_VECTORS.T > 0  # (8, 4) which direction of a push goes which way; a diagonal goes two

TASKS: dict[str, tuple[str, ...]] = {
    "real": tuple(f"tau_{way}" for way in WAYS),
    "rephrase": tuple(f"tau_{way}" for way in WAYS),
    "easy": (*(f"push_{way}" for way in WAYS), "push_still"),
    "hard": ("tau_2", "tau_3", "order", "gather"),
}
TASK_IDS = tuple(dict.fromkeys(task for tasks in TASKS.values() for task in tasks))

NEAR_M = 3 * RADIUS_M + 0.001  # two balls this close can be beside each other
GATHERED_M = 2.5 * RADIUS_M
CENTRE = BALLS.index("green")  # the ball that the others are gathered around
ALIGNED_RAD = np.pi / 6  # a neighbour in the line stands within 30 degrees of the x axis
SAME_M = 1e-3  # a smaller difference of two coordinates counts as none where the way is told
STILL_M = 0.05  # no coordinate of any ball changes by so much

NONE, TAU, COMBINED, ORDER, GATHER, PUSH, STILL = range(7)


class Roles(NamedTuple):
    """What each task asks for, as numbers."""

    kind: IntArray  # (P,) int8
    part: IntArray  # (P, 3, 3) int8: moved ball, reference ball, way of each sub-goal; -1 where there is none

    def of(self, which: IntArray) -> Roles:
        return Roles(self.kind[which], self.part[which])


@dataclass(frozen=True)
class ActedRows(Trajectory):
    """Rows with what they do not show and the easy goals need."""

    action: IntArray  # (M+N,) int64, the action that led to each row; -1 on row 0 and where it is none
    from_reset: BoolArray  # (N,) False: the first action is not the first of the episode


def _part(way: str, moved: str, reference: str) -> tuple[int, int, int]:
    if moved == reference:
        raise ValueError(moved)
    return BALLS.index(moved), BALLS.index(reference), WAYS.index(way)


def _numbers(placement: Placement) -> tuple[int, list[tuple[int, int, int]]]:
    task, params = placement.task, placement.params
    if task in ("order", "gather") and not params:
        return (ORDER if task == "order" else GATHER), []
    if task in ("tau_2", "tau_3"):
        parts = [params[at : at + 3] for at in range(0, len(params), 3)]
        if len(parts) != int(task[-1]):
            raise ValueError(task)
        return COMBINED, [_part(*part) for part in parts]
    if task == "push_still":
        (ball,) = params
        return STILL, [(BALLS.index(ball), -1, -1)]
    name, way = task.split("_")
    if name == "push":
        (ball,) = params
        return PUSH, [(BALLS.index(ball), -1, WAYS.index(way))]
    moved, reference = params
    return TAU, [_part(way, moved, reference)]


def roles(placements: Sequence[Placement]) -> Roles:
    """The tasks as numbers; kind `NONE` where there is no task, or one without its balls."""
    table = Roles(np.zeros(len(placements), np.int8), np.full((len(placements), 3, 3), -1, np.int8))
    for number, placement in enumerate(placements):
        if placement.task not in TASK_IDS:
            continue
        try:
            table.kind[number], parts = _numbers(placement)
        except (TypeError, ValueError):  # params that do not fit
            continue
        table.part[number, : len(parts)] = np.array(parts, np.int8).reshape(-1, 3)
    return table


def way_of(offset: FloatArray) -> IntArray:
    """The way (0..3) in which an offset points, (R, 2) -> (R,); quarter turns of which each owns its first edge."""
    shown = np.where(np.abs(offset) < SAME_M, 0, offset)
    angle = np.degrees(np.arccos(shown[:, 0] / (np.sqrt((shown**2).sum(axis=1)) + 1e-6)))
    angle = np.where(shown[:, 1] < 0, 360 - angle, angle)
    ways: IntArray = np.array([3, 0, 1, 2, 3])[np.digitize(angle, [45, 135, 225, 315])]
    return ways


def offset_between(centre: FloatArray, part: IntArray) -> FloatArray:
    """From the reference ball to the moved one, (R, 5, 2), (R, 3) -> (R, 2) m."""
    every = np.arange(len(centre))
    offset: FloatArray = centre[every, part[:, 0]] - centre[every, part[:, 1]]
    return offset


def beside(centre: FloatArray, part: IntArray) -> BoolArray:
    """Whether the moved ball is near the reference ball, on the side named, (R, 5, 2), (R, 3) -> (R,)."""
    offset = offset_between(centre, part)
    stands: BoolArray = (way_of(offset) == part[:, 2]) & (np.sqrt((offset**2).sum(axis=1)) < scaled(NEAR_M))
    return stands


def in_line(centre: FloatArray) -> BoolArray:
    """Whether each ball has the next colour at its right, (R, 5, 2) -> (R, 4)."""
    step = np.diff(centre, axis=1)  # (R, 4, 2)
    length = np.sqrt((step**2).sum(axis=2))
    aligned: BoolArray = step[..., 0] / np.maximum(length, np.finfo(float).tiny) >= np.cos(scaled(ALIGNED_RAD))
    return aligned


def gathered(centre: FloatArray) -> BoolArray:
    """Whether each other ball is close to the green one, (R, 5, 2) -> (R, 4)."""
    away = np.delete(centre, CENTRE, axis=1) - centre[:, CENTRE, None]
    close: BoolArray = np.sqrt((away**2).sum(axis=2)) < scaled(GATHERED_M)
    return close


def counts(centre: FloatArray, task: Roles) -> tuple[IntArray, IntArray]:
    """How many sub-goals hold on each row and how many there are, 0 for tasks that rows alone do not tell.

    Args:
        centre: (R, 5, 2) finite, m.
        task: that of each row.

    Returns:
        (R,) int8 each.
    """
    held, number = np.zeros(len(centre), np.int8), np.zeros(len(centre), np.int8)
    for place in range(3):
        rows = np.flatnonzero(((task.kind == TAU) | (task.kind == COMBINED)) & (task.part[:, place, 0] >= 0))
        held[rows] += beside(centre[rows], task.part[rows, place])
        number[rows] += 1
    for kind, test in ((ORDER, in_line), (GATHER, gathered)):
        rows = np.flatnonzero(task.kind == kind)
        held[rows] = test(centre[rows]).sum(axis=1)
        number[rows] = len(BALLS) - 1
    return held, number


def pushed(action: IntArray, part: IntArray) -> BoolArray:
    """Whether an action pushes the ball the way that the task names, (R,), (R, 3) -> (R,); False where it is none."""
    right: BoolArray = PUSHES[np.maximum(action, 0) % len(DIRECTIONS), part[:, 2]]
    right &= (action >= 0) & (action // len(DIRECTIONS) == part[:, 0])
    return right


def at_rest(before: FloatArray, after: FloatArray) -> BoolArray:
    """Whether no ball moves, (R, 5, 2) twice -> (R,)."""
    still: BoolArray = np.abs(after - before).max(axis=(1, 2)) < scaled(STILL_M)
    return still


def finite_centres(obs: AnyArray, ok: BoolArray) -> FloatArray:
    """Centres of the rows that are ok and zeros elsewhere, (R, 10), (R,) -> (R, 5, 2)."""
    return xy(np.where(ok[:, None], obs, 0))


def evaluate(rows: Trajectory, placements: Sequence[Placement], which: IntArray) -> GoalRows:
    """The goal of each rollout on each of its rows.

    The easy goals judge the action that led to a row: by meaning each one, by the benchmark's code the first of an
    episode only, as its episodes end there. `push_still` asks that no ball moved in the step that led to the row; the
    benchmark's test of it fails with an error, so that it never holds there. In all other tasks both tests agree.

    Args:
        rows: rows of N rollouts; `ActedRows` where the actions are known.
        placements: the tasks that occur.
        which: (N,) index into `placements`.

    Returns:
        Arrays of one entry a row; False and share 0 where the row is not `ok`; False and share NaN where the rollout
        has no task, or one that judges actions which are not known.
    """
    count = np.diff(rows.offsets)
    own = roles(placements).of(which)
    task = own.of(np.repeat(np.arange(len(count)), count))
    centre = finite_centres(rows.obs, rows.ok)
    held, number = counts(centre, task)
    number[task.kind == PUSH] = 1
    number[task.kind == STILL] = 1
    step = np.arange(len(centre)) - np.repeat(rows.offsets[:-1], count)  # (M+N,)
    later = np.flatnonzero((task.kind == STILL) & (step > 0))
    held[later] = at_rest(centre[later - 1], centre[later]) & rows.ok[later - 1]
    known = number > 0
    released = np.ones(len(centre), bool)
    if isinstance(rows, ActedRows):
        push = np.flatnonzero((task.kind == PUSH) & (step > 0))
        held[push] = pushed(rows.action[push], task.part[push, 0])
        first = (step == 1) & np.repeat(rows.from_reset, count)
        released = first | (task.kind != PUSH)
    else:
        known &= task.kind != PUSH
    held = np.where(rows.ok, held, 0)
    holds = known & (held == number)
    share = np.where(known, held / np.maximum(number, 1), np.nan).astype(np.float32)
    return GoalRows(holds, holds & released & (task.kind != STILL), share, judges_action=own.kind == PUSH)
