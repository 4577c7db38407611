"""When a LIBERO task is reached: distances between the hand, the objects and the basket, and what has been done so far.

P is an object's position, T that of its target, E the hand's; d is a distance in space, xy and z are its horizontal and
vertical parts. An object is seized in a step that moves it with the hand within 5 cm. Source: success tests of the
ImagineBench LIBERO tasks (arXiv 2505.10010, released code of May 2025).

The intended goals differ from the released ones in two families: "all" asks for the three objects of its text where the
released test asks for the cream cheese twice, and never for the salad dressing; "aside" asks for 7 cm sideways from
where the object was at the reset, where the released test takes 7 cm in any direction, so that lifting is enough, from
the first row after it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np

from qualcheck.envs.libero.columns import BODY_FIRST, HAND, OBJECTS, StartedRows, position
from qualcheck.thresholds import scaled
from qualcheck.types import AnyArray, BoolArray, FloatArray, GoalRows, IntArray, Placement, Trajectory

BASKET = "basket"
PREDICATES = ("intended", "released")
Family = Literal["pick", "reach", "place", "move", "aside", "out", "sequence"]

NEAR_M = 0.05  # the hand is at an object
MOVED_M = 1e-4  # an object that moves more in a step is moved
ASIDE_M = 0.07
OUT_M = {"alphabet_soup": 0.45, "cream_cheese": 0.35, "salad_dressing": 0.40}


class Task(NamedTuple):
    """A task: what is done to which objects.

    `near_xy_m` and `near_z_m` bound the way from an object to its target where there is one: object i goes to target i.
    """

    family: Family
    objects: tuple[str, ...]
    target: str = ""
    near_xy_m: float = 0.0
    near_z_m: float = 0.0
    seizes: bool = False  # the reward leads to the object first


def _tasks() -> dict[str, dict[str, Task]]:
    pairs = [(one, other) for one in OBJECTS for other in OBJECTS if one != other]
    pick = {name: Task("pick", (name,)) for name in OBJECTS}
    rim = {name: 0.22 if name == "salad_dressing" else 0.155 for name in OBJECTS}  # m, the bottle is the tallest
    place = {name: Task("place", (name,), BASKET, 0.14, rim[name]) for name in OBJECTS}
    return {
        "real": {
            **{f"pick-{name}": task for name, task in pick.items()},
            **{f"place-{name}": task for name, task in place.items()},
        },
        "rephrase": {
            **{f"rep-pick-{name}": task for name, task in pick.items()},
            **{f"rep-place-{name}": task for name, task in place.items()},
        },
        "easy": {
            **{f"pick-and-place-{name}": place[name]._replace(family="move", seizes=True) for name in OBJECTS},
            **{f"pick-{a}-and-place-to-{b}": Task("move", (a,), b, 0.10, 0.22, True) for a, b in pairs},
            **{f"reach-{name}": Task("reach", (name,)) for name in OBJECTS},
        },
        "hard": {
            **{
                f"sequential-pick-and-place-{a}-and-{b}": Task("sequence", (a, b), BASKET, 0.14, 0.22, True)
                for a, b in pairs
            },
            **{f"pick-and-place-aside-{name}": Task("aside", (name,), seizes=True) for name in OBJECTS},
            "sequential-pick-and-place-all": Task("sequence", OBJECTS, BASKET, 0.14, 0.22, True),
            **{f"pick-out-of-{name}": Task("out", (name,), BASKET, seizes=True) for name in OBJECTS},
        },
    }


TASK_OF = {name: task for tasks in _tasks().values() for name, task in tasks.items()}
TASKS: dict[str, tuple[str, ...]] = {level: tuple(tasks) for level, tasks in _tasks().items()}
TASK_IDS = tuple(TASK_OF)
ALL = "sequential-pick-and-place-all"


def objects_of(name: str, predicates: str) -> tuple[str, ...]:
    """The objects that a task's test really reads: the released one of "all" takes the cream cheese for the third."""
    if name == ALL and predicates == "released":
        return ("alphabet_soup", "cream_cheese", "cream_cheese")
    return TASK_OF[name].objects


class Part(NamedTuple):
    """Whole rollouts of one task as flat rows."""

    obs: AnyArray  # (R, 44)
    ok: BoolArray  # (R,)
    offsets: IntArray  # (n+1,) first row of each rollout; every rollout has one
    rollout: IntArray  # (R,)
    step: IntArray  # (R,) 0 in row 0

    def seen(self, hit: BoolArray) -> BoolArray:
        """Whether something has happened in this or an earlier row of the rollout, (R,)."""
        total = np.concatenate([[0], np.cumsum(hit)])
        seen: BoolArray = total[1:] > total[self.offsets[:-1]][self.rollout]
        return seen

    def of_row(self, number: int, values: AnyArray) -> AnyArray:
        """Values of a certain row of each rollout, repeated on all of its rows, (R, ...)."""
        last = self.offsets[1:] - 1
        at: AnyArray = np.minimum(self.offsets[:-1] + number, last)[self.rollout]
        return values[at]

    def has_row(self, number: int) -> BoolArray:
        """Rows of rollouts whose row of this number exists and is ok, (R,)."""
        known = np.diff(self.offsets) > number
        found: BoolArray = known[self.rollout] & self.of_row(number, self.ok)
        return found


def select(obs: AnyArray, ok: BoolArray, offsets: IntArray, who: IntArray) -> tuple[Part, IntArray]:
    """Some rollouts that have rows, and the index of each of their rows."""
    size = np.diff(offsets)[who]
    own = np.concatenate([[0], np.cumsum(size)]).astype(np.int64)
    rollout = np.repeat(np.arange(len(who)), size)
    step = np.arange(own[-1]) - own[:-1][rollout]
    at = offsets[:-1][who][rollout] + step
    return Part(obs[at], ok[at], own, rollout, step), at


def distance(obs: AnyArray, one: int, other: int) -> FloatArray:
    """Distance of the positions that begin at two columns, (R, 44) -> (R,) m."""
    apart: FloatArray = np.linalg.norm(position(obs, one) - position(obs, other), axis=1)
    return apart


def seized(part: Part, name: str) -> BoolArray:
    """Whether the step that led to each row moved the object with the hand at it, (R,); False in row 0."""
    first = BODY_FIRST[name]
    place = position(part.obs, first)
    moved = np.zeros(len(place), bool)
    with np.errstate(invalid="ignore"):
        moved[1:] = np.linalg.norm(place[1:] - place[:-1], axis=1) > MOVED_M
        moved[1:] &= part.ok[:-1]
        hit: BoolArray = moved & (part.step > 0) & part.ok & (distance(part.obs, HAND, first) < scaled(NEAR_M))
    return hit


def placed(part: Part, task: Task, name: str) -> BoolArray:
    """Whether an object is at its target, (R,)."""
    way = position(part.obs, BODY_FIRST[name]) - position(part.obs, BODY_FIRST[task.target])
    with np.errstate(invalid="ignore"):
        near: BoolArray = part.ok & (np.hypot(way[:, 0], way[:, 1]) < scaled(task.near_xy_m))
        near &= np.abs(way[:, 2]) < scaled(task.near_z_m)
    return near


def moved_aside(part: Part, name: str, predicates: str) -> FloatArray:
    """Distance of an object from where it was, (R,) m, NaN where that is not known.

    It was at its place of the first row after the reset, measured in space ("released"), or at that of row 0, measured
    sideways ("intended").
    """
    number = 1 if predicates == "released" else 0
    place = position(part.obs, BODY_FIRST[name])
    way = place - part.of_row(number, place)
    apart = np.linalg.norm(way if predicates == "released" else way[:, :2], axis=1)
    return np.where(part.has_row(number), apart, np.nan)


def holds(part: Part, name: str, predicates: str) -> list[BoolArray]:
    """The sub-goals of a task on each row, (R,) each: latched in sequences, where row 0 is not counted later."""
    task = TASK_OF[name]
    objects = objects_of(name, predicates)
    first = BODY_FIRST[objects[0]]
    with np.errstate(invalid="ignore"):
        if task.family == "pick":
            return [seized(part, objects[0])]
        if task.family == "reach":
            return [part.ok & (distance(part.obs, HAND, first) < scaled(NEAR_M))]
        if task.family == "aside":
            return [part.ok & (part.step > 0) & (moved_aside(part, objects[0], predicates) > scaled(ASIDE_M))]
        if task.family == "out":
            return [part.ok & (distance(part.obs, first, BODY_FIRST[BASKET]) > scaled(OUT_M[objects[0]]))]
        there = [placed(part, task, each) for each in objects]
    if task.family == "sequence":
        return [np.where(part.step > 0, part.seen(now & (part.step > 0)), now) & part.ok for now in there]
    return there


def needs_history(name: str) -> bool:
    """Whether a row of the task cannot be judged without the rows since the reset."""
    return bool(name) and TASK_OF[name].family in ("sequence", "aside")


def names_of(placements: Sequence[Placement], which: IntArray, predicates: str) -> AnyArray:
    """Task of each rollout under one set of predicates, (N,)."""
    names = [placement.task if predicates == "intended" else placement.task_released for placement in placements]
    return np.array(names or [""])[which]


def evaluate(rows: Trajectory, placements: Sequence[Placement], which: IntArray) -> GoalRows:
    """The goal of each rollout on each of its rows.

    Args:
        rows: rows of N rollouts, imagined or replayed; `StartedRows` may say that some do not start at a reset.
        placements: the tasks that occur.
        which: (N,) index into `placements`.

    Returns:
        Arrays of one entry a row; False and share 0 where the row is not `ok`; False and share NaN where the rollout
        has no task, and where the task has a history that a rollout cut out of another does not show. The share is that
        of the objects that have been placed in sequences, else 0 or 1.
    """
    count = np.diff(rows.offsets)
    hold = {name: np.zeros(len(rows.obs), bool) for name in PREDICATES}
    share = np.full(len(rows.obs), np.nan, np.float32)
    started = rows.from_reset if isinstance(rows, StartedRows) else np.ones(len(count), bool)
    for predicates in PREDICATES:
        names = names_of(placements, which, predicates)
        for name in np.unique(names[names != ""]) if len(names) else ():
            who = np.flatnonzero((names == name) & (count > 0) & (started | (not needs_history(name))))
            part, at = select(rows.obs, rows.ok, rows.offsets, who)
            goals = holds(part, str(name), predicates)
            hold[predicates][at] = np.logical_and.reduce(goals)
            if predicates == "intended":
                share[at] = np.mean(goals, axis=0)
    return GoalRows(hold["intended"], hold["released"], share)
