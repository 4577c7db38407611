"""The row-0 laws of LIBERO: what an episode can start with.

A reset draws a row of one of nine files of starts, one for each object and way to start, and lets the scene settle for
five steps. So the hand, the objects and the basket stand within the ranges of that file, which `limits.json` holds,
widened by how far things were seen to settle. Source: reset of the ImagineBench LIBERO class (arXiv 2505.10010,
released code of May 2025); ways to settle measured between the 59 golden row 0s and their rows of the files, doubled.
"""

from __future__ import annotations

import json
from functools import cache
from importlib.resources import files
from typing import Any, NamedTuple

import numpy as np

from qualcheck.envs.libero.columns import BODIES, OBJECTS, POSES
from qualcheck.envs.libero.goals import TASK_OF
from qualcheck.spec import Rule
from qualcheck.types import AnyArray, BoolArray, FloatArray

ROUNDING_M = 0.006  # rows are stored to two decimals at worst
POSITIONS = np.array([first + axis for first in POSES for axis in range(3)])  # (15,) of the hand, objects and basket

HAND_LAW = Rule("row0.hand", "reset", "m", "ranges of the starts", "the hand is not where an episode starts")
OBJECT_LAW = Rule("row0.objects", "reset", "m", "ranges of the starts", "an object is not where an episode starts")
RESET_LAWS = (HAND_LAW, OBJECT_LAW)


class Settling(NamedTuple):
    """How far things move while a scene settles, m."""

    hand: float
    held: float  # the object of the task
    basket: float


SETTLING = {
    "pick": Settling(0.01, 0.001, 0.001),
    "place": Settling(0.08, 0.075, 0.001),
    "safe": Settling(0.1, 0.24, 0.06),
}
SUNK_M = 0.11  # a bottle that starts in the floor pops up or tips over, in the three files of the cream cheese
WAYS = tuple(SETTLING)
STARTS = tuple(f"{way}-{name}" for way in WAYS for name in OBJECTS)


def start_of(task: str) -> str:
    """The file of starts that a task draws from, as "pick-alphabet_soup"; "" where the task is not known."""
    if task not in TASK_OF:
        return ""
    family = TASK_OF[task].family
    way = {"place": "place", "out": "safe"}.get(family, "pick")
    return f"{way}-{TASK_OF[task].objects[0]}"


@cache
def ranges(start: str) -> tuple[FloatArray, FloatArray]:
    """Lowest and highest positions an episode of one file of starts can begin with, (15,) each, m."""
    text = files("qualcheck.envs.libero").joinpath("limits.json").read_text(encoding="utf-8")
    kept: dict[str, Any] = json.loads(text)["starts"][start]
    way, name = start.split("-", 1)
    settling = SETTLING[way]
    wide = dict.fromkeys(OBJECTS, 0.001)
    if name == "cream_cheese":
        wide["salad_dressing"] = SUNK_M
    wide |= {name: settling.held, "basket": settling.basket}
    slack = np.repeat([settling.hand, *(wide[body] for body in BODIES)], 3) + ROUNDING_M
    return np.array(kept["low"]) - slack, np.array(kept["high"]) + slack


def _outside(obs: AnyArray, start: str) -> tuple[BoolArray, BoolArray]:
    """Whether the hand and whether an object is out of the ranges of one file of starts, (R,) each."""
    low, high = ranges(start)
    place = obs[:, POSITIONS].astype(np.float64)
    with np.errstate(invalid="ignore"):
        out = ~((place >= low) & (place <= high))  # (R, 15)
    hand: BoolArray = np.logical_or.reduce(out[:, :3], axis=1)
    objects: BoolArray = np.logical_or.reduce(out[:, 3:], axis=1)
    return hand, objects


def broken_start(obs: AnyArray, tasks: AnyArray) -> list[BoolArray]:
    """Whether each row breaks each of `RESET_LAWS` as row 0 of its task, (R,) a law.

    Without a task, a row must agree with one of the nine files; where it does not, the law it breaks is that of the
    file it comes nearest to agreeing with.

    Args:
        obs: (R, 44).
        tasks: (R,) task ids, "" where there is none.
    """
    starts = np.array([start_of(str(task)) for task in tasks])
    hand, objects = np.zeros((2, len(obs)), bool)
    for start in np.unique(starts[starts != ""]) if len(starts) else ():
        mine = np.flatnonzero(starts == start)
        hand[mine], objects[mine] = _outside(obs[mine], str(start))
    free = np.flatnonzero(starts == "")
    if len(free):
        tried = np.array([_outside(obs[free], start) for start in STARTS])  # (9, 2, R)
        best = tried.sum(axis=1).argmin(axis=0)
        hand[free], objects[free] = tried[best, :, np.arange(len(free))].T
    return [hand, objects]
