"""The reward of every transition computed again from its two rows, where they show enough.

A step that reaches the goal is paid 10. Any other is paid what the raw reward of its end row has gained on that of the
end row before, the first of an episode its raw reward itself. The raw reward reads the tip of the gripper or the finger
pads in every task but door-open, and no row shows those: there, only the steps that reach the goal can be recomputed.
Source: reward of the ImagineBench Meta-World classes and their wrapper (arXiv 2505.10010, released code of May 2025).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from qualcheck.envs.metaworld.goals import TippedRows, evaluate, names_of
from qualcheck.envs.metaworld.layout import (
    GOAL,
    HAND,
    OBS_SIZE,
    REWARDED,
    from_reset,
    position,
    takeable_for,
    usable_actions,
)
from qualcheck.envs.metaworld.measures import JOINTS, Swing, turned_rad
from qualcheck.types import AnyArray, BoolArray, FloatArray, IntArray, Placement, Rollouts

SUCCESS_REWARD = 10.0
READINGS = ("released", "intended")

GRASP_FROM_HANDLE_M = np.array([-0.05, 0.0, 0.0])
HAND_FROM_GRASP_M = np.array([0.05, 0.03, -0.01])  # where the hand is when it holds the handle
WIDE_OPEN_RAD, AJAR_RAD = -2 * np.pi / 3, -np.pi / 90


def long_tail(x: FloatArray, high: float, margin: FloatArray | float) -> FloatArray:
    """1 where 0 <= x <= high, falling off as 1 / (9 d^2 + 1) with d the distance outside in margins, (m,)."""
    outside = np.maximum(np.maximum(-x, x - high), 0) / margin
    value: FloatArray = 1 / (9 * outside**2 + 1)
    return value


def both(a: FloatArray, b: FloatArray) -> FloatArray:
    """Hamacher product of two numbers in [0, 1], (m,): 0 where both are 0."""
    bottom = a + b - a * b
    value: FloatArray = np.divide(a * b, bottom, out=np.zeros(len(bottom)), where=bottom > 0)
    return value


def door_open(end: FloatArray, action: FloatArray, start: FloatArray) -> FloatArray:
    """Raw reward of steps of door-open that do not reach its goal, 0 to 10, (m,).

    r = 2 H(ready, grip) + 8 opened: the hand is at the handle, and came there from above; the gripper is told to close;
    the door has turned.

    Args:
        end: (m, 91) rows after the steps.
        action: (m, 4) as recorded.
        start: (m, 91) row 0 of their episodes.
    """
    hand, handle = end[:, HAND], end[:, position("handle")]
    joint = JOINTS["door-open", "handle"]
    assert isinstance(joint, Swing)
    angle = turned_rad(joint, handle, start[:, position("handle")])
    grasp = handle + GRASP_FROM_HANDLE_M
    aside = np.hypot(*(hand - grasp)[:, :2].T)
    with np.errstate(divide="ignore", invalid="ignore"):
        floor = np.where(aside <= 0.12, 0.0, 0.04 * np.log(aside - 0.12) + 0.4)
        above = np.where(hand[:, 2] >= floor, 1.0, long_tail(floor - hand[:, 2], 0.01, floor / 2))
    apart = np.sqrt(((hand - grasp - HAND_FROM_GRASP_M) ** 2).sum(axis=1))
    ready = both(above, long_tail(apart, 0.06, 0.5))
    opened = 0.2 * (angle < AJAR_RAD) + 0.8 * long_tail(angle - WIDE_OPEN_RAD, 0.5, np.pi / 3)
    grip = (np.clip(action[:, 3], -1, 1) + 1) / 2
    return np.asarray(2 * both(ready, grip) + 8 * opened)


def _chain(rollouts: Rollouts) -> tuple[FloatArray, IntArray, IntArray]:
    """Start row, then the end row of each transition as the file has it: rows (M+N, 91), offsets (N+1,), end (M,)."""
    offsets = rollouts.offsets + np.arange(rollouts.n_rollouts + 1)
    after = np.arange(rollouts.n_transitions) + rollouts.rollout + 1
    obs = np.full((int(offsets[-1]), OBS_SIZE), np.nan)
    started = np.flatnonzero(rollouts.length > 0)
    obs[offsets[:-1][started]] = rollouts.obs[rollouts.first_row[started], :OBS_SIZE]
    obs[after] = np.where(rollouts.has_end[:, None], rollouts.end_obs[:, :OBS_SIZE], np.nan)
    return obs, offsets, after


def _usable(obs: FloatArray, offsets: IntArray, names: AnyArray) -> BoolArray:
    """Rows that the simulator of their task can take on, (R,)."""
    owner, ok = np.repeat(np.arange(len(names)), np.diff(offsets)), np.zeros(len(obs), bool)
    for task in np.unique(names[names != ""]) if len(names) else ():
        mine = np.flatnonzero(names[owner] == task)
        ok[mine] = takeable_for(obs[mine], str(task)) == 0
    return ok


def _gains(rollouts: Rollouts, end: FloatArray, ok: BoolArray, mine: BoolArray) -> FloatArray:
    """Gain in raw reward of every transition of rollouts whose rows show it, (M,), else NaN."""
    raw, gain = np.full(rollouts.n_transitions, np.nan), np.full(rollouts.n_transitions, np.nan)
    context = rollouts.context_obs[:, :OBS_SIZE].astype(np.float64)
    told = from_reset(rollouts) | (np.isfinite(context).all(axis=1) & (rollouts.reset_obs is not None))
    at = np.flatnonzero((mine & told)[rollouts.rollout] & ok & usable_actions(rollouts.action))
    raw[at] = door_open(end[at], rollouts.action[at].astype(np.float64), context[rollouts.rollout[at]])
    gain[1:] = raw[1:] - raw[:-1]
    first = np.flatnonzero(rollouts.step == 0)
    gain[first] = np.where(from_reset(rollouts)[rollouts.rollout[first]], raw[first], np.nan)
    return gain


def recompute(
    rollouts: Rollouts, placements: Sequence[Placement], which: IntArray, tip: FloatArray | None = None
) -> dict[str, FloatArray]:
    """Reading -> (M,) float64 reward by the benchmark's success test ("released") and by meaning ("intended").

    NaN where the rollout has no task, where the file does not show the end row or the simulator cannot take it on,
    where the goal cannot be judged, and, outside door-open, wherever the goal is not reached.

    Args:
        rollouts: the recording.
        placements: the tasks that occur.
        which: (N,) index into `placements`.
        tip: (M, 3) tip of the gripper on each end row, m, NaN where not known.
    """
    obs, offsets, after = _chain(rollouts)
    tips = np.full((len(obs), 3), np.nan)
    if tip is not None:
        tips[after] = tip
    context = rollouts.context_obs[:, GOAL].astype(np.float64)
    told = context if rollouts.reset_obs is not None else np.full(context.shape, np.nan)
    found = {}
    for reading in READINGS:
        names = names_of(placements, which, reading)
        ok = _usable(obs, offsets, names)
        rows = TippedRows(obs, offsets, ok, tips, from_reset(rollouts), told)
        goals = evaluate(rows, placements, which)
        reached = (goals.intended if reading == "intended" else goals.released)[after]
        values = np.where(reached, SUCCESS_REWARD, np.nan)
        mine = np.isin(names, REWARDED)
        if mine.any():
            gain = _gains(rollouts, obs[after], ok[after], mine)
            values = np.where(mine[rollouts.rollout] & ~reached, gain, values)
        found[reading] = values
    return found
