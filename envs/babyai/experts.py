"""Scripted experts of all tasks: an action for each row, chosen from the row alone.

The four recorded tasks follow the benchmark's own scripts (walk along the column first, then along the row; putnext
drops on the first free cell below, above, right or left of the landmark). The experts of the easy and hard tasks are
this project's: put_line and put_pile take the shortest way that moves at most two objects.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import NamedTuple

import numpy as np

from qualcheck.envs.babyai import goals
from qualcheck.envs.babyai.goals import ITEMS, MIDDLE, find
from qualcheck.envs.babyai.layout import (
    AGENT_COL,
    AGENT_ROW,
    DOOR_ROW,
    DOOR_STATE,
    DOWN,
    DROP,
    FIRST,
    KEY_ROW,
    LAST,
    LEFT,
    OBS_SIZE,
    OPEN,
    PICKUP,
    RIGHT,
    TOGGLE,
    TYPES,
    UP,
    fields,
)
from qualcheck.envs.babyai.reset import COLS, ROWS, SIDE
from qualcheck.types import AnyArray, BoolArray, IntArray

NEIGHBOURS = ((1, 0, DOWN), (-1, 0, UP), (0, 1, RIGHT), (0, -1, LEFT))  # row and col offset, move towards it
FAR = np.int16(1_000)  # more than any plan costs; a plain 1000 would wrap among int8 numbers

GAP = (abs(ROWS[:, None] - ROWS) + abs(COLS[:, None] - COLS)).astype(np.int16)  # (36, 36) moves between cells


def _go(value: AnyArray, row: AnyArray, col: AnyArray, then: int | AnyArray) -> AnyArray:
    """The next move towards a cell, row first, and `then` on it."""
    here_row, here_col = value[AGENT_ROW], value[AGENT_COL]
    sideways = np.where(col > here_col, RIGHT, np.where(col < here_col, LEFT, then))
    return np.where(row > here_row, DOWN, np.where(row < here_row, UP, sideways))


def _free(value: AnyArray, row: AnyArray, col: AnyArray) -> BoolArray:
    inside: BoolArray = (row >= FIRST) & (row <= LAST) & (col >= FIRST) & (col <= LAST)
    for at in ITEMS:
        inside = inside & ~((value[at] == row) & (value[at + 1] == col))
    return inside


def _first_free(value: AnyArray, row: AnyArray, col: AnyArray) -> tuple[AnyArray, AnyArray, AnyArray]:
    """Row, col and move of the first free cell beside another one; the cell itself and DROP where none is."""
    best_row, best_col, move = row, col, np.full(len(row), DROP)
    for down, right, towards in reversed(NEIGHBOURS):
        free = _free(value, row + down, col + right)
        best_row, best_col = np.where(free, row + down, best_row), np.where(free, col + right, best_col)
        move = np.where(free, towards, move)
    return best_row, best_col, move


def _put_down(value: AnyArray) -> AnyArray:
    """Drop what is carried, beside the object that lies here if one does."""
    row, col = value[AGENT_ROW], value[AGENT_COL]
    return np.where(_free(value, row, col), DROP, _first_free(value, row, col)[2])


def _hands_full(value: AnyArray) -> BoolArray:
    held: BoolArray = (value[list(ITEMS)] == 0).any(axis=0)
    return held


def _toggle(value: AnyArray) -> AnyArray:
    last = np.full(value.shape[1], LAST)
    return _go(value, value[DOOR_ROW], last, np.where(value[DOOR_STATE] == OPEN, DROP, TOGGLE))


def _nearest(value: AnyArray, then: int) -> AnyArray:
    gaps = [
        np.where(value[at] == 0, FAR, abs(value[AGENT_ROW] - value[at]) + abs(value[AGENT_COL] - value[at + 1]))
        for at in ITEMS
    ]
    target = np.array(ITEMS)[np.argmin(gaps, axis=0)]  # (n,)
    each = np.arange(value.shape[1])
    return _go(value, value[target, each], value[target + 1, each], then)


def _goto(value: AnyArray, role: AnyArray) -> AnyArray:
    row, col, _ = find(value, role[0], role[1])
    col = col - (role[1] == TYPES.index("door"))
    return np.where(row == 0, _put_down(value), _go(value, row, col, DROP))


def _open(value: AnyArray, _role: AnyArray) -> AnyArray:
    return _toggle(value)


def _pickup(value: AnyArray, role: AnyArray) -> AnyArray:
    row, col, _ = find(value, role[0], role[1])
    other = _hands_full(value) & (row != 0)
    fetch = np.where(row == 0, PICKUP, _go(value, row, col, PICKUP))
    return np.where(other, _put_down(value), fetch)


def _putnext(value: AnyArray, role: AnyArray) -> AnyArray:
    row, col, _ = find(value, role[0], role[1])
    place_row, place_col, _ = _first_free(value, *find(value, role[2], role[3])[:2])
    empty = np.where(_hands_full(value), _put_down(value), _go(value, row, col, PICKUP))
    return np.where(row == 0, _go(value, place_row, place_col, DROP), empty)


def _open_go(value: AnyArray, _role: AnyArray) -> AnyArray:
    return np.where(value[DOOR_STATE] == OPEN, _nearest(value, DROP), _toggle(value))


def _open_pick(value: AnyArray, _role: AnyArray) -> AnyArray:
    take = np.where(_hands_full(value), PICKUP, _nearest(value, PICKUP))
    return np.where(value[DOOR_STATE] == OPEN, take, _toggle(value))


def _go_wall(value: AnyArray, _role: AnyArray) -> AnyArray:
    row, col = value[AGENT_ROW], value[AGENT_COL]
    nearest = np.argmin([row - FIRST, LAST - row, col - FIRST, LAST - col], axis=0)
    move: AnyArray = np.array([UP, DOWN, LEFT, RIGHT])[nearest]
    return move


def _go_center(value: AnyArray, _role: AnyArray) -> AnyArray:
    row, col = (np.clip(value[at], *MIDDLE) for at in (AGENT_ROW, AGENT_COL))
    return _go(value, row, col, DROP)


def _open_lock(value: AnyArray, _role: AnyArray) -> AnyArray:
    fetch = np.where(_hands_full(value), _put_down(value), _go(value, value[KEY_ROW], value[KEY_ROW + 1], PICKUP))
    return np.where(value[KEY_ROW] == 0, _toggle(value), fetch)


class Plan(NamedTuple):
    """What is left to do once the objects stand in given cells, for all (36, 36, 36) of them."""

    done: BoolArray  # (36, 36, 36) the goal holds
    carry: AnyArray  # (3, 36, 36, 36) actions from just after the pickup of object k in its cell
    dropped: AnyArray  # (3, 36, 36, 36) actions left after the drop of object k in its cell


def _carry(after_drop: AnyArray, k: int) -> AnyArray:
    """Actions to carry object k from its cell to the best cell and drop it: min over c of gap + 1 + after_drop."""
    landed = np.moveaxis(after_drop, k, -1)  # (36, 36, 36)
    best = (landed[:, :, None, :] + GAP).min(axis=-1) + 1
    return np.moveaxis(best, -1, k)


@cache
def _plan(task: str) -> Plan:
    cells = np.indices((SIDE * SIDE,) * 3)  # (3, 36, 36, 36)
    value = np.zeros((OBS_SIZE, SIDE**6), np.int8)
    for at, cell in zip(ITEMS, cells, strict=True):
        value[at], value[at + 1] = ROWS[cell].ravel(), COLS[cell].ravel()
    apart = (cells[0] != cells[1]) & (cells[0] != cells[2]) & (cells[1] != cells[2])
    done = goals.SUB_GOALS[task][0](value, value[:4]).reshape(apart.shape) & apart
    landed = np.where(done, np.int16(0), FAR)
    last = np.stack([_carry(landed, k) for k in range(3)])  # one move left, object k in hand
    dropped = np.full(last.shape, FAR, np.int16)
    for k in range(3):
        again = np.min([GAP[cells[k], cells[j]] + 1 + last[j] for j in range(3)], axis=0)
        dropped[k][apart] = np.where(done, 0, again)[apart]
    return Plan(done, np.stack([_carry(dropped[k], k) for k in range(3)]), dropped)


def _cell(row: AnyArray, col: AnyArray) -> IntArray:
    """Number of an interior cell; row and col 0 stand for the first one."""
    cell: IntArray = (np.maximum(row, FIRST).astype(np.int64) - FIRST) * SIDE + np.maximum(col, FIRST) - FIRST
    return cell


def _arrange(plan: Plan, value: AnyArray) -> AnyArray:
    agent = _cell(value[AGENT_ROW], value[AGENT_COL])  # (n,)
    items = np.stack([_cell(value[at], value[at + 1]) for at in ITEMS])  # (3, n)
    held = np.stack([value[at] == 0 for at in ITEMS])  # (3, n)
    empty = ~held.any(axis=0)
    action = np.full(value.shape[1], DROP)
    fetch = np.stack([GAP[agent, items[k]] + plan.carry[k][tuple(items)] for k in range(3)]).argmin(axis=0)
    target = items[fetch, np.arange(len(agent))]
    walk = _go(value, ROWS[target], COLS[target], PICKUP)
    busy = empty & ~plan.done[tuple(items)]
    action[busy] = walk[busy]
    for k in range(3):
        mine = np.flatnonzero(held[k])
        places: list[AnyArray] = [items[j, mine, None] for j in range(3)]
        places[k] = np.arange(SIDE * SIDE)[None, :]
        cost = GAP[agent[mine]] + plan.dropped[k][tuple(places)]  # (m, 36) over the cell to drop on
        best = cost.argmin(axis=1)
        action[mine] = _go(value[:, mine], ROWS[best], COLS[best], DROP)
    return action


def _put_line(value: AnyArray, _role: AnyArray) -> AnyArray:
    return _arrange(_plan("put_line"), value)


def _put_pile(value: AnyArray, _role: AnyArray) -> AnyArray:
    return _arrange(_plan("put_pile"), value)


EXPERTS: dict[str, Callable[[AnyArray, AnyArray], AnyArray]] = {
    "goto": _goto,
    "open": _open,
    "pickup": _pickup,
    "putnext": _putnext,
    "open_go": _open_go,
    "open_pick": _open_pick,
    "go_wall": _go_wall,
    "go_center": _go_center,
    "open_lock": _open_lock,
    "put_line": _put_line,
    "put_pile": _put_pile,
}


def actions(task: str, value: AnyArray, role: AnyArray) -> AnyArray:
    """The expert's action in each row, (n,) int8.

    Args:
        task: an id of `goals.TASKS`.
        value: (17, n) int8 takeable rows, column by column.
        role: (4, n) int8 named objects, see `goals.role_columns`.
    """
    return EXPERTS[task](value, role).astype(np.int8)


def act(task: str, params: Sequence[str], row: AnyArray) -> int:
    """The expert's action in one takeable row, (17,) of any dtype."""
    return int(actions(task, fields(np.asarray(row)[None, :]).value, goals.role_columns([params]))[0])
