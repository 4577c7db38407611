"""Chaos: a replay that ends near a threshold is repeated from starts that the file cannot tell apart."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from qualcheck.checks.batch import Batch
from qualcheck.cut import cut
from qualcheck.storage import half_unit
from qualcheck.timing import RESTORE, phase
from qualcheck.types import BoolArray, FloatArray, IntArray


@dataclass(frozen=True)
class Restarts:
    """How often, and with which noise: the rounding of the storage."""

    count: int
    storage: str
    seed: int


@dataclass(frozen=True)
class Played:
    """The replayed goal of each rollout, (N,) float32: 1, 0, NaN or a share of restarts."""

    intended: FloatArray
    released: FloatArray
    share: FloatArray  # best share of sub-goals


def play_again(batch: Batch, nominal: Played, margin: FloatArray | None, restarts: Restarts) -> Played:
    """The nominal results, with the share of restarts where the nominal replay ends near a threshold."""
    limit = batch.adapter.spec.restart_margin
    if limit is None or margin is None or not restarts.count:
        return nominal
    near = np.flatnonzero((margin < limit) & ~np.isnan(nominal.intended))
    if not len(near):
        return nominal
    again = np.repeat(near, restarts.count)  # (n * K,)
    copies = cut(batch.rollouts, again, np.zeros(len(again), np.int64), batch.rollouts.length[again])
    obs = copies.obs.astype(np.float64)
    obs[copies.first_row] = _shaken(batch, near, restarts)
    copies = replace(copies, obs=obs, break_at=np.zeros(0, np.int64), break_obs=None)
    with phase(RESTORE):
        played = batch.adapter.open_loop(copies)
    rows = played.trajectory
    found = batch.adapter.goals(rows, batch.placements, batch.which[again])
    later = np.ones(len(rows.obs), bool)
    later[rows.offsets[:-1]] = False

    def average(values: FloatArray | BoolArray) -> FloatArray:
        best = np.maximum.reduceat(np.where(later, np.nan_to_num(values), 0), rows.offsets[:-1])
        mean: FloatArray = best.reshape(len(near), restarts.count).mean(axis=1).astype(np.float32)
        return mean

    result = Played(nominal.intended.copy(), nominal.released.copy(), nominal.share.copy())
    for name, values in (("intended", found.intended), ("released", found.released), ("share", found.share)):
        getattr(result, name)[near] = average(values)
    return result


def _shaken(batch: Batch, near: IntArray, restarts: Restarts) -> FloatArray:
    """Row 0 of each rollout, K times, moved within the rounding of the storage, (n * K, O)."""
    rollouts = batch.rollouts
    first = rollouts.obs[rollouts.first_row[near]].astype(np.float64)  # (n, O)
    size = half_unit(first, restarts.storage)
    draws = [
        np.random.default_rng([restarts.seed, int(rollouts.source[i]), int(rollouts.source_rollout[i])]).uniform(
            -1, 1, (restarts.count, first.shape[1])
        )
        for i in near
    ]
    return (first[:, None] + size[:, None] * np.stack(draws)).reshape(-1, first.shape[1])
