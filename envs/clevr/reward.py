"""The reward of every transition computed again from its rows and action.

With d the distance of the moved ball from the reference ball and c the number of sub-goals that hold on a row:

    tau              10 (d_t - d_t+1)
    push             1 where the action is right, else 0
    hard             10 (c_t - c_t-1), with c_-1 = 0: one step late, so that the last sub-goals are never paid

Recordings differ from it, hence four readings. "released" is the above. "bonus" pays 100 instead where the goal is
reached (for push 100 and 0). "beside" is like "bonus", with d the distance from a point 1.5 radii beside the reference
ball: so are the real rollouts of KALM, to 6e-7. "unlagged" pays a hard task 10 (c_t+1 - c_t).
Source: the ImagineBench ball environment (arXiv 2505.10010, released code of May 2025); its reward for keeping a ball
still stops with an error and is given by meaning here.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from qualcheck.envs.clevr import goals
from qualcheck.envs.clevr.goals import COMBINED, GATHER, ORDER, PUSH, STILL, TAU, WAY_VECTORS, Roles, finite_centres
from qualcheck.envs.clevr.layout import RADIUS_M, actions_of, from_reset
from qualcheck.types import BoolArray, FloatArray, IntArray, Placement, Rollouts

PAY = 10.0
REACHED = 100.0
BESIDE_M = 1.5 * RADIUS_M
READINGS = ("released", "bonus", "beside", "unlagged")


def gap(centre: FloatArray, part: IntArray, beside_m: float = 0.0) -> FloatArray:
    """Distance of the moved ball from a point so far beside the reference ball, (R, 5, 2), (R, 3) -> (R,) m."""
    offset = goals.offset_between(centre, part) - beside_m * WAY_VECTORS[part[:, 2]]
    distance: FloatArray = np.sqrt((offset**2).sum(axis=1))
    return distance


def of_step(
    task: Roles, before: FloatArray, after: FloatArray, action: IntArray, count_before: FloatArray
) -> dict[str, FloatArray]:
    """Reading -> (R,) reward of steps.

    Args:
        task: that of each step.
        before: (R, 5, 2) centres before the action, m.
        after: (R, 5, 2) centres after it.
        action: (R,) action number, -1 where it is none.
        count_before: (R,) number of sub-goals that held on the row before `before`, 0 at a reset.
    """
    values = {reading: np.full(len(action), np.nan) for reading in READINGS}
    held, _ = goals.counts(before, task)
    held_after, number = goals.counts(after, task)
    reached = (number > 0) & (held_after == number)

    at = np.flatnonzero(task.kind == TAU)
    part = task.part[at, 0]
    closer = PAY * (gap(before[at], part) - gap(after[at], part))
    ahead = PAY * (gap(before[at], part, BESIDE_M) - gap(after[at], part, BESIDE_M))
    values["released"][at] = values["unlagged"][at] = closer
    values["bonus"][at] = np.where(reached[at], REACHED, closer)
    values["beside"][at] = np.where(reached[at], REACHED, ahead)

    at = np.flatnonzero(np.isin(task.kind, (COMBINED, ORDER, GATHER)))
    late = PAY * (held[at] - count_before[at])
    values["released"][at] = late
    values["bonus"][at] = values["beside"][at] = np.where(reached[at], REACHED, late)
    values["unlagged"][at] = PAY * (held_after[at].astype(np.float64) - held[at])

    at = np.flatnonzero((task.kind == PUSH) | (task.kind == STILL))
    push = task.kind[at] == PUSH
    part = task.part[at, 0]
    right = np.where(push, goals.pushed(action[at], part), goals.at_rest(before[at], after[at])).astype(np.float64)
    right[push & (action[at] < 0)] = np.nan
    for reading in READINGS:
        values[reading][at] = right if reading in ("released", "unlagged") else REACHED * right
    return values


def _count_before(rollouts: Rollouts, held: IntArray, ok: BoolArray) -> FloatArray:
    """Sub-goals on the row before each start row, 0 at a reset, NaN where that row is not known or not ok. (M,)."""
    earlier = np.zeros(rollouts.n_transitions)
    earlier[1:] = np.where(ok[:-1], held[:-1], np.nan)
    start = np.where(from_reset(rollouts), 0.0, np.nan)
    return np.where(rollouts.step == 0, start[rollouts.rollout], earlier)


def recompute(rollouts: Rollouts, placements: Sequence[Placement], which: IntArray) -> dict[str, FloatArray]:
    """Reading -> (M,) float64 reward, the most usual reading first.

    NaN where the rollout has no task, and where the file does not show a row that the reading needs, or shows one that
    is not finite: start and end, in a hard task also the row before the start.

    Args:
        rollouts: the recording.
        placements: the tasks that occur.
        which: (N,) index into `placements`.
    """
    task = goals.roles(placements).of(which).of(rollouts.rollout)
    start_ok = np.logical_and.reduce(np.isfinite(rollouts.start_obs), axis=1)
    end_ok = rollouts.has_end & np.logical_and.reduce(np.isfinite(rollouts.end_obs), axis=1)
    before, after = finite_centres(rollouts.start_obs, start_ok), finite_centres(rollouts.end_obs, end_ok)
    held, _ = goals.counts(before, task)
    found = of_step(task, before, after, actions_of(rollouts.action), _count_before(rollouts, held, start_ok))
    known = (start_ok & end_ok) | (task.kind == PUSH)
    known_late = known | (start_ok & np.isin(task.kind, (COMBINED, ORDER, GATHER)))
    return {name: np.where(known_late if name == "released" else known, value, np.nan) for name, value in found.items()}
