"""Fresh BabyAI starts, many at once.

Source: reset of the ImagineBench BabyAI tasks (arXiv 2505.10010, released code of May 2025): agent anywhere; ball, box
and key in this order on empty cells at least two moves from it; the door in a random row of the right wall.
Two tasks then place the agent again; putnext refuses starts where an object or the door is walled in.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from qualcheck.envs.babyai import goals
from qualcheck.envs.babyai.layout import (
    AGENT_COL,
    AGENT_ROW,
    CLOSED,
    COLOURS,
    DOOR_COL,
    DOOR_COLOUR,
    DOOR_COLUMN,
    DOOR_ROW,
    DOOR_STATE,
    FIRST,
    KEY_COLOUR,
    LAST,
    LOCKED,
    OBS_SIZE,
    TYPES,
)
from qualcheck.types import AnyArray, BoolArray

SIDE = LAST - FIRST + 1
ROWS, COLS = (grid.ravel().astype(np.int8) for grid in np.mgrid[FIRST : LAST + 1, FIRST : LAST + 1])  # (36,) each
OBJECT_DISTANCE = 2  # least number of moves between the agent and an object at a start
AGENT_AGAIN = {"go_wall": (3, 4), "go_center": (1, 2, 5, 6)}  # rows and cols the second agent cell is drawn from


def _draw(allowed: BoolArray, rng: np.random.Generator) -> AnyArray:
    """One of the allowed cells of each row, uniformly. (n, 36) -> (n,) index into ROWS and COLS."""
    chance = rng.random(allowed.shape)
    chance[~allowed] = -1
    cell: AnyArray = chance.argmax(axis=1)
    return cell


def _layouts(task: str, n: int, rng: np.random.Generator) -> tuple[AnyArray, AnyArray, AnyArray]:
    """Cells of the agent (n,) and of the objects (3, n), and rows of the door (n,)."""
    agent = rng.integers(len(ROWS), size=n)
    gap = abs(ROWS - ROWS[agent][:, None]) + abs(COLS - COLS[agent][:, None])
    allowed = gap >= OBJECT_DISTANCE  # (n, 36)
    items = np.zeros((3, n), np.int64)
    each = np.arange(n)
    for number in range(3):
        items[number] = _draw(allowed, rng)
        allowed[each, items[number]] = False
    door = rng.integers(FIRST, LAST + 1, size=n)
    if task in AGENT_AGAIN:
        lines = AGENT_AGAIN[task]
        free = np.tile(np.isin(ROWS, lines) & np.isin(COLS, lines), (n, 1))
        free[each, items] = False
        agent = _draw(free, rng)
    return agent, items, door


def _neighbours(grid: BoolArray) -> BoolArray:
    """Cells beside a marked one, (n, 6, 6) -> (n, 6, 6)."""
    near = np.zeros_like(grid)
    near[:, 1:] |= grid[:, :-1]
    near[:, :-1] |= grid[:, 1:]
    near[:, :, 1:] |= grid[:, :, :-1]
    near[:, :, :-1] |= grid[:, :, 1:]
    return near


def reachable(agent: AnyArray, items: AnyArray, door: AnyArray) -> BoolArray:
    """Whether the agent can get beside every object and the door without crossing an object.

    Args:
        agent: (n,) cells 0..35. items: (3, n) cells. door: (n,) rows 1..6.
    """
    n = len(agent)
    each = np.arange(n)
    blocked = np.zeros((n, SIDE * SIDE), bool)
    blocked[each, items] = True
    start = np.zeros((n, SIDE * SIDE), bool)
    start[each, agent] = True
    open_cells = ~blocked.reshape(n, SIDE, SIDE)
    seen = start.reshape(n, SIDE, SIDE)
    while True:
        grown = seen | (_neighbours(seen) & open_cells)
        if (grown == seen).all():
            break
        seen = grown
    beside = _neighbours(seen).reshape(n, SIDE * SIDE)
    before_door = seen[each, door - FIRST, SIDE - 1]
    reached: BoolArray = beside[each, items].all(axis=0) & before_door
    return reached


def sample_rows(task: str, params_list: Sequence[Sequence[str]] | None, n: int, rng: np.random.Generator) -> AnyArray:
    """n starts of a task, (n, 17) float32.

    Args:
        task: an id of `goals.TASKS`.
        params_list: parameters of each start (n of them), whose colours are fixed; None draws every colour.
        n: how many.
        rng: source of all randomness.
    """
    agent, items, door = _layouts(task, n, rng)
    if task == "putnext":
        while len(again := np.flatnonzero(~reachable(agent, items, door))):
            agent[again], items[:, again], door[again] = _layouts(task, len(again), rng)
    value = np.zeros((OBS_SIZE, n), np.int8)
    value[AGENT_ROW], value[AGENT_COL] = ROWS[agent], COLS[agent]
    for at, cell in zip(goals.ITEMS, items, strict=True):
        value[at], value[at + 1] = ROWS[cell], COLS[cell]
    value[DOOR_ROW], value[DOOR_COL], value[DOOR_STATE] = door, DOOR_COLUMN, CLOSED
    colours = rng.integers(len(COLOURS), size=(4, n), dtype=np.int8)
    if params_list is not None:
        table = goals.role_columns(params_list)
        for colour, kind in ((table[2], table[3]), (table[0], table[1])):  # the first object wins a clash
            named = np.flatnonzero(kind >= 0)
            colours[kind[named], named] = colour[named]
    for at, colour in zip(goals.OBJECT_ROWS, colours, strict=True):
        value[at - 1] = colour
    if task == "open_lock":
        value[DOOR_COLOUR], value[DOOR_STATE] = value[KEY_COLOUR], LOCKED
    return np.ascontiguousarray(value.T, dtype=np.float32)


def sample_row(task: str, params: Sequence[str], rng: np.random.Generator) -> AnyArray:
    """One start of a task, (17,) float32."""
    row: AnyArray = sample_rows(task, [params], 1, rng)[0]
    return row


def sample_params(task: str, n: int, rng: np.random.Generator) -> list[tuple[str, ...]]:
    """Parameters of n instances of a task, uniform over everything its sentences can name in the recorded data.

    goto names any of the four objects, pickup one that can be carried, putnext two different ones of those.
    """
    colours = rng.integers(len(COLOURS), size=(n, 2))
    kinds = rng.permuted(np.tile(np.arange(3), (n, 1)), axis=1)  # ball, box, key in random order
    first = [TYPES[kind] for kind in (rng.integers(len(TYPES), size=n) if task == "goto" else kinds[:, 0])]
    one, other = ([COLOURS[number] for number in column] for column in colours.T)
    if task in ("goto", "pickup"):
        return list(zip(one, first, strict=True))
    if task == "open":
        return [(colour, "door") for colour in one]
    if task == "putnext":
        return list(zip(one, first, other, (TYPES[kind] for kind in kinds[:, 1]), strict=True))
    return [()] * n
