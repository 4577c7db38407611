"""One step of many BabyAI rows at once, and which rows can be stepped. The simulator itself is not needed here.

Rows stand column by column, (17, R) int8, so that every operation is one pass over contiguous bytes.
Source: the action semantics of the ImagineBench BabyAI class (absolute moves, pickup and drop on the agent's own
cell, toggle towards every adjacent door); `simulator.py` has the same rules on MiniGrid.
"""

from __future__ import annotations

import numpy as np

from qualcheck.envs.babyai.layout import (
    AGENT_COL,
    AGENT_ROW,
    BALL_ROW,
    BOX_ROW,
    CARRIED_COLOUR,
    CARRIED_ID,
    CARRIED_TYPE,
    CLOSED,
    COLOURS,
    DOOR_COL,
    DOOR_COLOUR,
    DOOR_COLUMN,
    DOOR_ROW,
    DOOR_STATE,
    DOWN,
    DROP,
    FIRST,
    KEY_COLOUR,
    KEY_ROW,
    LAST,
    LEFT,
    LOCKED,
    PICKUP,
    RIGHT,
    TOGGLE,
    TYPES,
    UP,
    Fields,
)
from qualcheck.types import AnyArray, BoolArray

CODES = (
    "",
    "non_finite",
    "not_integer",
    "out_of_range",
    "half_carried",
    "two_carried",
    "overlap",
    "illegal_start",
    "bad_action",
)
NON_FINITE, NOT_INTEGER, OUT_OF_RANGE, HALF_CARRIED, TWO_CARRIED, OVERLAP, ILLEGAL_START, BAD_ACTION = range(1, 9)

OBJECT_ROWS = (BALL_ROW, BOX_ROW, KEY_ROW)  # the column after is the object's col, the one before its colour
OBJECT_IDS = tuple(CARRIED_ID[name] for name in TYPES[:3])
COLOUR_COLUMNS = tuple(row - 1 for row in (*OBJECT_ROWS, DOOR_ROW))
CHUNK = 16_384  # rows; the working set of one chunk stays in the second-level cache


def actions(action: AnyArray) -> AnyArray:
    """Actions as int8, -1 where the number is none of 0..6. (M,) or (M, 1) of any dtype -> (M,)."""
    flat = action.reshape(len(action))
    with np.errstate(invalid="ignore", over="ignore"):
        small = flat.astype(np.int8)
    known = (small == flat) & (small >= 0) & (small <= DOWN)
    return small if known.all() else np.where(known, small, np.int8(-1))


def step(fields: AnyArray, action: AnyArray) -> AnyArray:
    """The rows after one action each, (17, R) int8 and (R,) -> (17, R) int8.

    Every row must be takeable; what comes back for others means nothing. Columns 15 and 16 of the input are
    ignored, as the benchmark's decoder does, and rebuilt from the positions. An action of -1 changes nothing else.
    """
    rows = fields.shape[1]
    out = np.empty((len(fields), rows), np.int8)
    small = action.astype(np.int8, copy=False)
    for begin in range(0, rows, CHUNK):
        part = slice(begin, begin + CHUNK)
        _step(fields[:, part], small[part], out[:, part])
    return out


def _step(before: AnyArray, action: AnyArray, after: AnyArray) -> None:
    after[:] = before
    agent_row, agent_col = before[AGENT_ROW], before[AGENT_COL]
    key_held = before[KEY_ROW] == 0

    down = (action == DOWN).view(np.int8) - (action == UP).view(np.int8)
    right = (action == RIGHT).view(np.int8) - (action == LEFT).view(np.int8)
    np.clip(agent_row + down, FIRST, LAST, out=after[AGENT_ROW])
    np.clip(agent_col + right, FIRST, LAST, out=after[AGENT_COL])

    here = [(before[row] == agent_row) & (before[row + 1] == agent_col) for row in OBJECT_ROWS]  # 3 x (R,)
    held = [before[row] == 0 for row in OBJECT_ROWS]
    free_hands = ~(held[0] | held[1] | held[2])
    free_cell = ~(here[0] | here[1] | here[2])
    pick = (action == PICKUP) & free_hands
    drop = (action == DROP) & free_cell
    kind, colour = after[CARRIED_TYPE], after[CARRIED_COLOUR]
    kind[:] = 0
    colour[:] = 0
    for row, number, is_here, is_held in zip(OBJECT_ROWS, OBJECT_IDS, here, held, strict=True):
        put = (is_held & drop).view(np.int8)
        change = put - (is_here & pick).view(np.int8)  # +1 onto the agent's cell, -1 away from it
        after[row] += change * agent_row
        after[row + 1] += change * agent_col
        now_held = (after[row] == 0).view(np.int8)
        kind += now_held * np.int8(number)
        colour += now_held * before[row - 1]

    state = before[DOOR_STATE]
    reach = (action == TOGGLE) & (agent_col == LAST) & (agent_row == before[DOOR_ROW])
    unlock = reach & (state == LOCKED) & key_held & (before[KEY_COLOUR] == before[DOOR_COLOUR])
    swing = reach & (state != LOCKED)  # open <-> closed
    after[DOOR_STATE] ^= swing.view(np.int8) * np.int8(CLOSED)
    after[DOOR_STATE] -= unlock.view(np.int8) * np.int8(LOCKED)


def _between(column: AnyArray, low: int, high: int) -> BoolArray:
    inside: BoolArray = (column - np.int8(low)).view(np.uint8) <= high - low
    return inside


def takeable(rows: Fields) -> AnyArray:
    """0 where the simulator can be put into the row, else the index in `CODES` of the first reason why not, (R,) int8.

    Columns 15 and 16 must be integers but may say anything.
    """
    if rows.takeable is None:
        value = rows.value
        code = np.zeros(value.shape[1], np.int8)
        for begin in range(0, len(code), CHUNK):
            part = slice(begin, begin + CHUNK)
            _takeable(value[:, part], code[part])
        if not (rows.finite.all() and rows.integral.all()):
            code[~rows.integral] = NOT_INTEGER
            code[~rows.finite] = NON_FINITE
        rows.takeable = code
    return rows.takeable


def _takeable(value: AnyArray, code: AnyArray) -> None:
    good = _between(value[AGENT_ROW], FIRST, LAST) & _between(value[AGENT_COL], FIRST, LAST)
    good &= _between(value[DOOR_ROW], FIRST, LAST) & (value[DOOR_COL] == DOOR_COLUMN)
    good &= _between(value[DOOR_STATE], 0, LOCKED)
    for column in COLOUR_COLUMNS:
        good &= _between(value[column], 0, len(COLOURS) - 1)
    half = np.zeros(len(code), bool)
    for row in OBJECT_ROWS:
        good &= _between(value[row], 0, LAST) & _between(value[row + 1], 0, LAST)
        half |= (value[row] == 0) != (value[row + 1] == 0)
    ball, box, key = (value[row] * np.int8(8) + value[row + 1] for row in OBJECT_ROWS)  # a number for each cell
    equal = (ball == box) | (box == key) | (ball == key)
    if not (equal.any() or half.any() or not good.all()):
        return
    held = sum(((cell == 0).view(np.int8) for cell in (ball, box, key)), np.zeros(len(code), np.int8))
    code[equal] = OVERLAP
    code[equal & (held > 1)] = TWO_CARRIED
    code[half] = HALF_CARRIED
    code[~good] = OUT_OF_RANGE
