"""When a BabyAI task is reached: one table from tasks to sub-goals, evaluated on all rows of a batch at once.

Source: success tests of the ImagineBench BabyAI tasks (arXiv 2505.10010, released code of May 2025). Every test looks
at one row only. An object is the one named only if type and colour agree; a carried object stands at (0, 0).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from qualcheck.envs.babyai.layout import (
    AGENT_COL,
    AGENT_ROW,
    BALL_ROW,
    BOX_ROW,
    COLOURS,
    DOOR_ROW,
    DOOR_STATE,
    FIRST,
    KEY_ROW,
    LAST,
    OPEN,
    TYPES,
    decoded,
)
from qualcheck.types import AnyArray, BoolArray, GoalRows, IntArray, Placement, Trajectory

TASKS: dict[str, tuple[str, ...]] = {
    "real": ("goto", "open", "pickup", "putnext"),
    "rephrase": ("goto", "open", "pickup", "putnext"),
    "easy": ("open_go", "open_pick", "go_wall", "go_center"),
    "hard": ("open_lock", "put_line", "put_pile"),
}
TASK_IDS = tuple(dict.fromkeys(task for tasks in TASKS.values() for task in tasks))
OBJECT_ROWS = (BALL_ROW, BOX_ROW, KEY_ROW, DOOR_ROW)  # order of TYPES; colour stands before, col after
ITEMS = OBJECT_ROWS[:3]  # what can be carried
MIDDLE = (3, 4)  # rows and cols of the four centre cells


def roles(params: Sequence[str]) -> AnyArray:
    """The parameters as numbers: colour and type of the first and the second object, (4,) int8; -1 where there is none.

    Raises:
        ValueError: a word is no colour or type of this environment.
    """
    numbers = np.full(4, -1, np.int8)
    for place, word in enumerate(params):
        numbers[place] = (TYPES if place % 2 else COLOURS).index(word)
    return numbers


def role_columns(params_list: Sequence[Sequence[str]]) -> AnyArray:
    """The numbers of `roles` of many tasks, (4, n) int8."""
    table = np.array([roles(params) for params in params_list], np.int8).reshape(-1, 4)
    return np.ascontiguousarray(table.T)


def find(value: AnyArray, colour: AnyArray, kind: AnyArray) -> tuple[AnyArray, AnyArray, BoolArray]:
    """Row and col of the object of each row's type, and whether its colour agrees. (17, R), (R,), (R,) -> 3 x (R,)."""
    row = np.zeros(value.shape[1], np.int8)
    col = np.zeros(value.shape[1], np.int8)
    there = np.zeros(value.shape[1], bool)
    for number, at in enumerate(OBJECT_ROWS):
        wanted = kind == number
        if wanted.any():
            row += wanted * value[at]
            col += wanted * value[at + 1]
            there |= wanted & (value[at - 1] == colour)
    return row, col, there


def pair_gaps(value: AnyArray) -> list[tuple[AnyArray, AnyArray]]:
    """Absolute row and col differences of ball-box, ball-key and box-key, each (R,)."""
    pairs = ((BALL_ROW, BOX_ROW), (BALL_ROW, KEY_ROW), (BOX_ROW, KEY_ROW))
    return [(abs(value[a] - value[b]), abs(value[a + 1] - value[b + 1])) for a, b in pairs]


def _at_named(value: AnyArray, role: AnyArray) -> BoolArray:
    row, col, there = find(value, role[0], role[1])
    col = col - (role[1] == TYPES.index("door")).view(np.int8)  # in front of a door, not in it
    reached: BoolArray = there & (value[AGENT_ROW] == row) & (value[AGENT_COL] == col)
    return reached


def _named_open(value: AnyArray, role: AnyArray) -> BoolArray:
    _, _, there = find(value, role[0], role[1])
    opened: BoolArray = there & (value[DOOR_STATE] == OPEN)
    return opened


def _named_carried(value: AnyArray, role: AnyArray) -> BoolArray:
    row, _, there = find(value, role[0], role[1])
    held: BoolArray = there & (row == 0)
    return held


def _side_by_side(value: AnyArray, role: AnyArray) -> BoolArray:
    row, col, there = find(value, role[0], role[1])
    other_row, other_col, other_there = find(value, role[2], role[3])
    touching: BoolArray = there & other_there & (abs(row - other_row) + abs(col - other_col) == 1)
    return touching


def _door_open(value: AnyArray, _role: AnyArray) -> BoolArray:
    opened: BoolArray = value[DOOR_STATE] == OPEN
    return opened


def _at_item(value: AnyArray, _role: AnyArray) -> BoolArray:
    here = [(value[AGENT_ROW] == value[at]) & (value[AGENT_COL] == value[at + 1]) for at in ITEMS]
    there: BoolArray = here[0] | here[1] | here[2]
    return there


def _carrying(value: AnyArray, _role: AnyArray) -> BoolArray:
    held: BoolArray = (value[BALL_ROW] == 0) | (value[BOX_ROW] == 0) | (value[KEY_ROW] == 0)
    return held


def _at_wall(value: AnyArray, _role: AnyArray) -> BoolArray:
    row, col = value[AGENT_ROW], value[AGENT_COL]
    touching: BoolArray = (row == FIRST) | (row == LAST) | (col == FIRST) | (col == LAST)
    return touching


def _at_center(value: AnyArray, _role: AnyArray) -> BoolArray:
    inside = [(value[at] == MIDDLE[0]) | (value[at] == MIDDLE[1]) for at in (AGENT_ROW, AGENT_COL)]
    central: BoolArray = inside[0] & inside[1]
    return central


def _one_line(value: AnyArray, _role: AnyArray) -> BoolArray:
    same = [(value[BALL_ROW + axis] == value[BOX_ROW + axis]) & (value[BOX_ROW + axis] == value[KEY_ROW + axis])
            for axis in (0, 1)]  # fmt: skip
    aligned: BoolArray = same[0] | same[1]
    return aligned


def _piled(value: AnyArray, role: AnyArray) -> BoolArray:
    touching = [row + col == 1 for row, col in pair_gaps(value)]
    two: BoolArray = (touching[0] & touching[1]) | (touching[0] & touching[2]) | (touching[1] & touching[2])
    return two & ~_one_line(value, role)


SubGoal = Callable[[AnyArray, AnyArray], BoolArray]

SUB_GOALS: dict[str, tuple[SubGoal, ...]] = {
    "goto": (_at_named,),
    "open": (_named_open,),
    "pickup": (_named_carried,),
    "putnext": (_side_by_side,),
    "open_go": (_door_open, _at_item),
    "open_pick": (_door_open, _carrying),
    "go_wall": (_at_wall,),
    "go_center": (_at_center,),
    "open_lock": (_door_open,),
    "put_line": (_one_line,),
    "put_pile": (_piled,),
}
NEVER_RELEASED = frozenset({"open_pick"})  # its released test is inverted and holds on no row


def holds(task: str, value: AnyArray, role: AnyArray) -> tuple[BoolArray, BoolArray, AnyArray]:
    """Intended goal, released goal and share of true sub-goals of each row. (17, R), (4, R) int8 -> 3 x (R,).

    Every row must be takeable; on others the answer means nothing.
    """
    parts = [test(value, role) for test in SUB_GOALS[task]]
    intended = np.logical_and.reduce(parts)
    released = np.zeros_like(intended) if task in NEVER_RELEASED else intended
    share = np.add.reduce([part.astype(np.float32) for part in parts]) / np.float32(len(parts))
    return intended, released, share


def members(placements: Sequence[Placement], which: IntArray) -> dict[str, BoolArray]:
    """The rollouts of each task that occurs, task -> (N,)."""
    names = np.array([placement.task for placement in placements] or [""])[which]
    return {task: names == task for task in TASK_IDS if (names == task).any()}


def role_table(placements: Sequence[Placement], which: IntArray) -> AnyArray:
    """The numbers of `roles` for each rollout, (4, N) int8."""
    table = role_columns([placement.params for placement in placements])
    return np.ascontiguousarray(table[:, which])


def evaluate(rows: Trajectory, placements: Sequence[Placement], which: IntArray) -> GoalRows:
    """The goal of each rollout on each of its rows.

    Args:
        rows: rows of N rollouts, imagined or replayed.
        placements: the tasks that occur.
        which: (N,) index into `placements`.

    Returns:
        Arrays of one entry a row; False and share 0 where the row is not `ok`, False and share NaN where the
        rollout has no task.
    """
    count = np.diff(rows.offsets)  # (N,) rows of each rollout
    intended = np.zeros(len(rows.obs), bool)
    released = np.zeros(len(rows.obs), bool)
    share = np.full(len(rows.obs), np.nan, np.float32)
    value = decoded(rows.obs).value  # (17, R)
    table = role_table(placements, which)  # (4, N)
    for task, mine in members(placements, which).items():
        at = np.flatnonzero(np.repeat(mine, count))
        role = np.repeat(table[:, mine], count[mine], axis=1)
        ok = rows.ok[at]
        meant, coded, part = holds(task, value[:, at], role)
        intended[at] = meant & ok
        released[at] = coded & ok
        share[at] = np.where(ok, part, np.float32(0))
    return GoalRows(intended, released, share)
