"""The reward of every transition computed again from its rows.

r = g + [g < 0.1] (d(before) - d(after)) / (d(row 0) + 1), with g = 1 - 0.9 s / 128 where the goal holds after step s
of the episode and 0 elsewhere, and d the remaining effort of the task. Source: reward of the ImagineBench BabyAI
class (arXiv 2505.10010, released code of May 2025); as there, a success exactly at step 128 also gets the second term.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from qualcheck.envs.babyai import goals, kernel
from qualcheck.envs.babyai.goals import ITEMS, MIDDLE, find, pair_gaps
from qualcheck.envs.babyai.layout import (
    AGENT_COL,
    AGENT_ROW,
    BALL_ROW,
    BOX_ROW,
    DOOR_COLOUR,
    DOOR_ROW,
    DOOR_STATE,
    FIRST,
    HORIZON,
    KEY_COLOUR,
    KEY_ROW,
    LAST,
    OPEN,
    fields,
)
from qualcheck.types import AnyArray, BoolArray, FloatArray, IntArray, Placement, Rollouts

SECOND_LEG = 24  # added while a second walk is still to come
WRONG_ITEM = 72  # what carrying the wrong object costs, wherever it is
DENSE_BELOW = 0.1

Cell = tuple[AnyArray, AnyArray]  # row and col, (R,) each


def _agent(value: AnyArray) -> Cell:
    return value[AGENT_ROW], value[AGENT_COL]


def _before_door(value: AnyArray) -> Cell:
    return value[DOOR_ROW], np.full(value.shape[1], LAST, np.int8)


def _gap(one: Cell, other: Cell) -> AnyArray:
    distance: AnyArray = abs(one[0] - other[0]) + abs(one[1] - other[1])
    return distance


def _effort(value: AnyArray, target: Cell, start: Cell) -> AnyArray:
    """Steps from start to target; a carried target costs one more than reaching the agent."""
    return np.where(target[0] == 0, _gap(start, _agent(value)) + 1, _gap(start, target))


def _nearest_item(value: AnyArray, start: Cell) -> AnyArray:
    efforts = [_effort(value, (value[at], value[at + 1]), start) for at in ITEMS]
    return np.minimum.reduce(efforts)


def _carried(value: AnyArray) -> BoolArray:
    held: BoolArray = (value[BALL_ROW] == 0) | (value[BOX_ROW] == 0) | (value[KEY_ROW] == 0)
    return held


def _to_named(value: AnyArray, role: AnyArray) -> AnyArray:
    row, col, _ = find(value, role[0], role[1])
    return _effort(value, (row, col), _agent(value))


def _put_next(value: AnyArray, role: AnyArray) -> AnyArray:
    row, col, named = find(value, role[0], role[1])
    other_row, other_col, _ = find(value, role[2], role[3])
    agent, first, second = _agent(value), (row, col), (other_row, other_col)
    fetch = _effort(value, first, agent) + _effort(value, second, first) + SECOND_LEG
    carrying = np.where(named & (row == 0), _effort(value, second, agent), WRONG_ITEM)
    return np.where(_carried(value), carrying, fetch)


def _door_then_item(value: AnyArray, _role: AnyArray) -> AnyArray:
    agent, door = _agent(value), _before_door(value)
    through = _effort(value, door, agent) + _nearest_item(value, door) + SECOND_LEG
    return np.where(value[DOOR_STATE] == OPEN, _nearest_item(value, agent), through)


def _to_wall(value: AnyArray, _role: AnyArray) -> AnyArray:
    row, col = _agent(value)
    return np.minimum.reduce([row - FIRST, LAST - row, col - FIRST, LAST - col])


def _to_center(value: AnyArray, _role: AnyArray) -> AnyArray:
    outside = [np.maximum(MIDDLE[0] - at, 0) + np.maximum(at - MIDDLE[1], 0) for at in _agent(value)]
    return outside[0] + outside[1]


def _key_then_door(value: AnyArray, _role: AnyArray) -> AnyArray:
    agent, door, key = _agent(value), _before_door(value), (value[KEY_ROW], value[KEY_ROW + 1])
    fetch = _effort(value, key, agent) + _effort(value, door, key) + SECOND_LEG
    right = (value[KEY_ROW] == 0) & (value[KEY_COLOUR] == value[DOOR_COLOUR])
    return np.where(_carried(value), np.where(right, _effort(value, door, agent), WRONG_ITEM), fetch)


def _carried_at_agent(value: AnyArray) -> AnyArray:
    placed = value.copy()
    for at in ITEMS:
        held = value[at] == 0
        placed[at] = np.where(held, value[AGENT_ROW], value[at])
        placed[at + 1] = np.where(held, value[AGENT_COL], value[at + 1])
    return placed


def _line_spread(value: AnyArray, _role: AnyArray) -> AnyArray:
    gaps = pair_gaps(_carried_at_agent(value))
    return np.minimum(sum(row for row, _ in gaps), sum(col for _, col in gaps))


def _pile_spread(value: AnyArray, _role: AnyArray) -> AnyArray:
    total: AnyArray = sum(row + col for row, col in pair_gaps(_carried_at_agent(value)))
    return total


EFFORT: dict[str, Callable[[AnyArray, AnyArray], AnyArray]] = {
    "goto": _to_named,
    "open": _to_named,
    "pickup": _to_named,
    "putnext": _put_next,
    "open_go": _door_then_item,
    "open_pick": _door_then_item,
    "go_wall": _to_wall,
    "go_center": _to_center,
    "open_lock": _key_then_door,
    "put_line": _line_spread,
    "put_pile": _pile_spread,
}


def effort(task: str, value: AnyArray, role: AnyArray) -> AnyArray:
    """Remaining effort d of each row in the benchmark's own count. (17, R), (4, R) int8 -> (R,) float64."""
    return EFFORT[task](value, role).astype(np.float64)


def combine(goal: AnyArray, before: AnyArray, after: AnyArray, first: AnyArray, episode_step: AnyArray) -> FloatArray:
    """The reward from its parts, all (R,): goal reached, d of the two rows and of row 0, step counted from 1."""
    sparse = np.where(goal, 1 - 0.9 * (episode_step / HORIZON), 0.0)
    return np.where(sparse < DENSE_BELOW, sparse + (before - after) / (first + 1), sparse)


def recompute(rollouts: Rollouts, placements: Sequence[Placement], which: IntArray) -> dict[str, FloatArray]:
    """Reading -> (M,) float64 reward under the "released" and the "intended" goal.

    NaN where the rollout has no task, where the file does not show the end row, and where one of the two rows or
    row 0 of the episode cannot be taken on by the simulator.
    """
    rows, end, context = fields(rollouts.obs), fields(rollouts.end_obs), fields(rollouts.context_obs)
    known = rollouts.has_end & (kernel.takeable(rows) == 0)[rollouts.row] & (kernel.takeable(end) == 0)
    known &= (kernel.takeable(context) == 0)[rollouts.rollout]
    episode_step = rollouts.step + rollouts.source_step[rollouts.rollout] + 1  # (M,)
    table = goals.role_table(placements, which)  # (4, N)
    readings = {name: np.full(rollouts.n_transitions, np.nan) for name in ("released", "intended")}
    for task, mine in goals.members(placements, which).items():
        at = np.flatnonzero(mine[rollouts.rollout] & known)
        owner = rollouts.rollout[at]
        role = table[:, owner]
        after = end.value[:, at]
        first = effort(task, context.value, table)[owner]
        before_effort = effort(task, rows.value[:, rollouts.row[at]], role)
        after_effort = effort(task, after, role)
        intended, released, _ = goals.holds(task, after, role)
        for name, goal in (("released", released), ("intended", intended)):
            readings[name][at] = combine(goal, before_effort, after_effort, first, episode_step[at])
    return readings
