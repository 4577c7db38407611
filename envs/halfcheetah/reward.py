"""The reward of every transition computed again from its displacement and action.

r = f(v) - 0.1 |a|^2 with v the displacement over 0.05 s, a the action as recorded, not clipped, and f(v) = v, -v, |v|
or -|v| by task. Source: reward of the ImagineBench HalfCheetah class (arXiv 2505.10010, released code of May 2025).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from qualcheck.envs.halfcheetah.goals import CRITERIA, TASK_IDS
from qualcheck.envs.halfcheetah.layout import STEP_SECONDS, takeable
from qualcheck.types import AnyArray, FloatArray, IntArray, Placement, Rollouts

CONTROL_COST = 0.1


def _gain(task: str) -> Callable[[FloatArray], FloatArray]:
    criterion = CRITERIA[task]
    if criterion.combined:
        return np.abs
    return (lambda v: -np.abs(v)) if criterion.within_m is not None else lambda v: criterion.sign * v


def of_step(task: str, displacement_m: FloatArray, action: AnyArray) -> FloatArray:
    """Rewards of steps of one task, (m,), (m, 6) -> (m,) float64."""
    cost: FloatArray = CONTROL_COST * np.square(action.astype(np.float64)).sum(axis=1)
    return _gain(task)(displacement_m / STEP_SECONDS) - cost


def recompute(
    rollouts: Rollouts, displacement_m: FloatArray, placements: Sequence[Placement], which: IntArray
) -> dict[str, FloatArray]:
    """Reading -> (M,) float64 reward of the task by the benchmark's code ("released") and by meaning ("intended").

    NaN where the rollout has no task, where the file does not show the end row, where one of the two rows cannot be
    taken on by the simulator, and where the action is not finite.

    Args:
        rollouts: the recording.
        displacement_m: (M,) displacement over each transition.
        placements: the tasks that occur.
        which: (N,) index into `placements`.
    """
    row_ok = takeable(rollouts.obs) == 0  # (R,)
    after = np.minimum(rollouts.row + 1, max(len(rollouts.obs) - 1, 0))
    end_ok = row_ok[after]
    if rollouts.break_obs is not None and len(rollouts.break_at):
        end_ok[rollouts.break_at] = takeable(rollouts.break_obs) == 0
    known = rollouts.has_end & row_ok[rollouts.row] & end_ok & np.isfinite(displacement_m)
    known &= np.logical_and.reduce(np.isfinite(rollouts.action), axis=1)
    found = {}
    for reading in ("released", "intended"):
        names = np.array([p.task_released if reading == "released" else p.task for p in placements] or [""])[which]
        values = np.full(rollouts.n_transitions, np.nan)
        for task in TASK_IDS:
            mine = names == task
            if mine.any():
                at = np.flatnonzero(known & mine[rollouts.rollout])
                values[at] = of_step(task, displacement_m[at], rollouts.action[at])
        found[reading] = values
    return found
