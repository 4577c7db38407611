"""Reward consistency: the reward recomputed from the rows, against the recorded one, under every reading of the tasks.

Which reading a file follows is known only when all of it has been read, so each batch keeps them all.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from qualcheck.checks.batch import Batch, share
from qualcheck.types import BoolArray, FloatArray

TOLERANCE = 1e-5  # of max(1, |recorded|): rewards are stored as float32


@dataclass(frozen=True)
class Reading:
    """What one reading of the tasks says of a batch."""

    error: FloatArray  # (M,) float32 recorded minus recomputed; NaN where there is none
    consistency: FloatArray  # (N,) float32 share of the rewards that agree
    shifted: BoolArray  # (N,) every reward stands one step late
    wrong: int  # transitions off by more than the tolerance
    verified: int
    passed: int


def measure(batch: Batch) -> dict[str, Reading]:
    """Compare under each reading of the adapter, its first one first; empty where the file has no rewards."""
    rollouts = batch.rollouts
    if rollouts.reward is None:
        return {}
    readings = batch.adapter.reward(rollouts, batch.placements, batch.which)
    open_rows = batch.unscorable | ~rollouts.has_end
    return {name: _compare(batch, rollouts.reward, values, open_rows) for name, values in readings.items()}


def nothing(transitions: int, rollouts: int) -> Reading:
    """The reading of a file without rewards."""
    no_error, no_share = np.full(transitions, np.nan, np.float32), np.full(rollouts, np.nan, np.float32)
    return Reading(no_error, no_share, np.zeros(rollouts, bool), 0, 0, 0)


def _compare(batch: Batch, recorded: FloatArray, recomputed: FloatArray, open_rows: BoolArray) -> Reading:
    known = np.where(open_rows, np.nan, recomputed)
    error = (recorded - known).astype(np.float32)
    compared = ~np.isnan(error)
    right = correct(error, recorded)
    agree = share(batch.per_rollout_sum(right), batch.per_rollout_sum(compared))
    shifted = _one_step_late(batch, recorded, recomputed)
    return Reading(error, agree, shifted, int(_off(recorded, known).sum()), int(compared.sum()), int(right.sum()))


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
    return late_rollouts & ~batch.defective
