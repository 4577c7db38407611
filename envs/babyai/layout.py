"""Where things stand in a BabyAI row of 17 numbers, and the row as integers.

Source: the ImagineBench BabyAI class (arXiv 2505.10010, released code of May 2025). Coordinates are (row, col);
row grows downward. Only the left room of the benchmark's two is encoded: walls at rows and columns 0 and 7.
"""

from __future__ import annotations

import threading
import weakref
from collections import deque
from dataclasses import dataclass

import numpy as np

from qualcheck.types import AnyArray, BoolArray

BALL_COLOUR, BALL_ROW, BALL_COL = 0, 1, 2
BOX_COLOUR, BOX_ROW, BOX_COL = 3, 4, 5
KEY_COLOUR, KEY_ROW, KEY_COL = 6, 7, 8
DOOR_COLOUR, DOOR_ROW, DOOR_COL, DOOR_STATE = 9, 10, 11, 12
AGENT_ROW, AGENT_COL = 13, 14
CARRIED_TYPE, CARRIED_COLOUR = 15, 16

OBS_SIZE = 17
CODE_SIZE = 768
HORIZON = 128

COLUMNS = (
    "ball_colour", "ball_row", "ball_col",
    "box_colour", "box_row", "box_col",
    "key_colour", "key_row", "key_col",
    "door_colour", "door_row", "door_col", "door_state",
    "agent_row", "agent_col",
    "carried_type", "carried_colour",
)  # fmt: skip

COLOURS = ("red", "green", "blue", "purple", "yellow", "grey")  # index = value in the row
TYPES = ("ball", "box", "key", "door")  # order of the objects everywhere
CARRIED_ID = {"key": 5, "ball": 6, "box": 7}  # MiniGrid's object index, value of column 15
OPEN, CLOSED, LOCKED = 0, 1, 2
LEFT, RIGHT, UP, PICKUP, DROP, TOGGLE, DOWN = 0, 1, 2, 3, 4, 5, 6
ACTIONS = ("left", "right", "up", "pickup", "drop", "toggle", "down")
FIRST, LAST, DOOR_COLUMN = 1, 6, 7  # interior rows and columns; the door stands in column 7


@dataclass
class Fields:
    """Rows column by column as small integers, with what an integer cannot say."""

    value: AnyArray  # (17, R) int8; -1, which no field allows, where the number is not an integer of 0..127
    finite: BoolArray  # (R,)
    integral: BoolArray  # (R,) every number of the row is an integer
    takeable: AnyArray | None = None  # (R,) int8, noted by `kernel.takeable` when first asked for


def fields(obs: AnyArray) -> Fields:
    """The rows as integers, (R, 17) -> Fields. Non-finite or fractional numbers are marked, never rounded."""
    with np.errstate(invalid="ignore", over="ignore"):
        small = obs.astype(np.int8)
        same = small == obs
    value = np.ascontiguousarray(small.T)  # (17, R)
    whole = np.ones(len(obs), bool)
    if same.all():
        return Fields(value, whole, whole)
    value[~same.T] = -1
    if obs.dtype.kind in "iub":
        return Fields(value, whole, whole)
    finite: BoolArray = np.logical_and.reduce(np.isfinite(obs), axis=1)
    with np.errstate(invalid="ignore"):
        integral: BoolArray = np.logical_and.reduce(np.rint(obs) == obs, axis=1)
    return Fields(value, finite, integral & finite)


_recent = threading.local()
_KEPT = 6  # arrays: rows, row 0, replay and their breaks of the batch a thread works on


def decoded(obs: AnyArray) -> Fields:
    """`fields(obs)`, remembered for the last few arrays of this thread; the arrays must not change meanwhile."""
    for known, rows in _memory():
        if known() is obs:
            return rows
    return remember(obs, fields(obs))


def remember(obs: AnyArray, rows: Fields) -> Fields:
    """Note what an array decodes to, where that is known without decoding it."""
    memory = _memory()
    memory.append((weakref.ref(obs), rows))
    return rows


def _memory() -> deque[tuple[weakref.ref[AnyArray], Fields]]:
    if not hasattr(_recent, "memory"):
        _recent.memory = deque(maxlen=_KEPT)
    memory: deque[tuple[weakref.ref[AnyArray], Fields]] = _recent.memory
    return memory
