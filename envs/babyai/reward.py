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
    Fields,
    decoded,
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
    least: AnyArray = np.minimum.reduce(efforts)
    return least


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
    least: AnyArray = np.minimum.reduce([row - FIRST, LAST - row, col - FIRST, LAST - col])
    return least


def _to_center(value: AnyArray, _role: AnyArray) -> AnyArray:
    outside = [np.maximum(MIDDLE[0] - at, 0) + np.maximum(at - MIDDLE[1], 0) for at in _agent(value)]
    away: AnyArray = outside[0] + outside[1]
    return away


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
    least: AnyArray = np.add.reduce(gaps).min(axis=0)  # (3, 2, R) -> (2, R) -> (R,)
    return least


def _pile_spread(value: AnyArray, _role: AnyArray) -> AnyArray:
    total: AnyArray = np.add.reduce(pair_gaps(_carried_at_agent(value))).sum(axis=0)  # (2, R) -> (R,)
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
    """Remaining effort d of each row in the benchmark's own count. (17, R), (4, R) int8 -> (R,) integers."""
    return EFFORT[task](value, role)


def combine(goal: AnyArray, before: AnyArray, after: AnyArray, first: AnyArray, episode_step: AnyArray) -> FloatArray:
    """The reward from its parts, all (R,): goal reached, d of the two rows and of row 0, step counted from 1."""
    sparse = np.where(goal, 1 - 0.9 * (episode_step / HORIZON), 0.0)
    dense = np.subtract(before, after, dtype=np.float64) / np.add(first, 1, dtype=np.float64)
    return np.where(sparse < DENSE_BELOW, sparse + dense, sparse)


def _all_rows(rollouts: Rollouts) -> tuple[Fields, IntArray, IntArray]:
    """The rows of `obs` followed by those of `break_obs`, the rollout of each, and the end row of each transition."""
    rows = decoded(rollouts.obs)
    owner = np.repeat(np.arange(rollouts.n_rollouts), np.diff(rollouts.row_offsets))  # (R,)
    end = np.where(rollouts.has_end, rollouts.row + 1, rollouts.row)  # (M,)
    if rollouts.break_obs is not None and len(rollouts.break_at):
        other = fields(rollouts.break_obs)
        end[rollouts.break_at] = len(owner) + np.arange(len(rollouts.break_at))
        owner = np.concatenate([owner, rollouts.rollout[rollouts.break_at]])
        rows = Fields(
            np.concatenate([rows.value, other.value], axis=1),
            np.concatenate([rows.finite, other.finite]),
            np.concatenate([rows.integral, other.integral]),
        )
    return rows, owner, end


def recompute(rollouts: Rollouts, placements: Sequence[Placement], which: IntArray) -> dict[str, FloatArray]:
    """Reading -> (M,) float64 reward under the "released" and the "intended" goal.

    NaN where the rollout has no task, where the file does not show the end row, and where one of the two rows or
    row 0 of the episode cannot be taken on by the simulator.
    """
    rows, owner, end = _all_rows(rollouts)
    context = decoded(rollouts.context_obs)
    table = goals.role_table(placements, which)  # (4, N)
    left = np.zeros(len(owner), np.int16)
    left_at_reset = np.zeros(rollouts.n_rollouts, np.int16)
    holds = {name: np.zeros(len(owner), bool) for name in ("released", "intended")}
    placed = np.zeros(rollouts.n_rollouts, bool)
    for task, mine in goals.members(placements, which).items():
        at = np.flatnonzero(mine[owner])
        value, role = rows.value[:, at], table[:, owner[at]]
        left[at] = effort(task, value, role)
        left_at_reset[mine] = effort(task, context.value[:, mine], table[:, mine])
        holds["intended"][at], holds["released"][at], _ = goals.holds(task, value, role)
        placed |= mine
    takeable = kernel.takeable(rows) == 0
    usable = placed & (kernel.takeable(context) == 0)  # (N,)
    known = rollouts.has_end & takeable[rollouts.row] & takeable[end] & usable[rollouts.rollout]
    episode_step = rollouts.step + rollouts.source_step[rollouts.rollout] + 1  # (M,)
    parts = left[rollouts.row], left[end], left_at_reset[rollouts.rollout], episode_step
    released = np.where(known, combine(holds["released"][end], *parts), np.nan)
    intended = released.copy()
    differ = np.flatnonzero(holds["intended"][end] != holds["released"][end])
    if len(differ):
        here = combine(holds["intended"][end[differ]], *(part[differ] for part in parts))
        intended[differ] = np.where(known[differ], here, np.nan)
    return {"released": released, "intended": intended}
