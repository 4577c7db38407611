"""Reward consistency: the reward recomputed from the rows, against the recorded one."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from qualcheck.checks.batch import Batch
from qualcheck.types import BoolArray, FloatArray

TOLERANCE = 1e-5  # of max(1, |recorded|): rewards are stored as float32


@dataclass(frozen=True)
class RewardScores:
    error: FloatArray  # (M,) float32 recorded minus recomputed under the reading used; NaN where there is none
    shifted: BoolArray  # (N,) every reward stands one step late
    wrong: dict[str, int] = field(default_factory=dict)  # reading -> transitions off by more than the tolerance


def measure(batch: Batch, reading: str | None) -> RewardScores:
    """Compare under one reading (None: the adapter's first) and count what each reading would give."""
    rollouts = batch.rollouts
    if rollouts.reward is None or not rollouts.n_transitions:
        return RewardScores(np.full(rollouts.n_transitions, np.nan, np.float32), np.zeros(rollouts.n_rollouts, bool))
    readings = batch.adapter.reward(rollouts, batch.placements, batch.which)
    recorded = rollouts.reward
    used = readings[reading if reading in readings else next(iter(readings))]
    open_rows = batch.unscorable | ~rollouts.has_end
    wrong = {
        name: int((_off(recorded, np.where(open_rows, np.nan, values))).sum()) for name, values in readings.items()
    }
    error = np.where(open_rows, np.nan, recorded - used)
    return RewardScores(error.astype(np.float32), _one_step_late(batch, recorded, used), wrong)


def correct(error: FloatArray, recorded: FloatArray) -> BoolArray:
    """Rewards that agree, (M,); False where there is nothing to compare."""
    right: BoolArray = np.abs(error) <= TOLERANCE * np.maximum(1, np.abs(recorded))
    return right


def _off(recorded: FloatArray, recomputed: FloatArray) -> BoolArray:
    off: BoolArray = np.abs(recorded - recomputed) > TOLERANCE * np.maximum(1, np.abs(recorded))
    return off


def _one_step_late(batch: Batch, recorded: FloatArray, recomputed: FloatArray) -> BoolArray:
    """Rollouts whose rewards are wrong in place and right against the step before, (N,)."""
    rollouts = batch.rollouts
    inner = rollouts.step > 0
    late = np.zeros(len(recorded), bool)
    late[1:] = inner[1:] & ~_off(recorded[1:], recomputed[:-1]) & np.isfinite(recomputed[:-1])
    in_place = _off(recorded, recomputed)
    all_late = batch.per_rollout_sum(late) == rollouts.length - 1
    late_rollouts: BoolArray = all_late & (batch.per_rollout_sum(in_place) > 0) & (rollouts.length > 1)
    return late_rollouts
