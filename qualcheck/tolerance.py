"""What real data show under replay: the noise floor of each storage, and the scale of real change.

The unit is the rollout, since rows of one rollout are dependent. With n rollouts whose largest joint error is known,
the ceil((n + 1)(1 - alpha))-th of these maxima bounds the maximum of a new exchangeable rollout with probability of at
least 1 - alpha (split conformal prediction; definitions, section "Calibration").
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from qualcheck.adapter import EnvAdapter
from qualcheck.storage import STORAGES, coarser_or_equal, find_storage, store
from qualcheck.types import AnyArray, FloatArray, Rollouts

ALPHA = 0.01
POOLED_QUANTILE = 0.999  # of transitions, where the rollouts are too few for a guarantee
CONFORMAL, POOLED = "conformal", "pooled, no guarantee"


@dataclass(frozen=True)
class Scale:
    """The tolerances that the rows of one file are held against."""

    storage: str
    median: dict[str, float]  # block -> median error on real data, in the block's unit
    tolerance: float  # of the joint error: the largest of (block error / block median)
    std_change: FloatArray  # (O,) of the real one-step change
    std_state: FloatArray  # (O,) of real end rows
    label: str

    @property
    def floor(self) -> float:
        """Length, in standard deviations of the change, under which a change is noise."""
        return self.tolerance * min(self.median.values(), default=0.0)


def fit(
    adapter: EnvAdapter, batches: Iterable[Rollouts], alpha: float = ALPHA, spread: Iterable[Rollouts] | None = None
) -> dict[str, Any]:
    """The calibration of one environment from real rollouts, as JSON content without provenance.

    Args:
        adapter: the environment, for the layout the rollouts have.
        batches: real rollouts; what a simulator cannot take on, and defective rollouts, are left out.
        alpha: share of new real rollouts that may hold a rejected transition.
        spread: real rollouts that the standard deviations are taken from; None: all of them.
    """
    spec = adapter.spec
    parts = list(batches)
    native = [find_storage(part.obs) for part in parts]
    storages = {}
    for storage in STORAGES:
        usable = [(part, own) for part, own in zip(parts, native, strict=True) if storage in coarser_or_equal(own)]
        if usable:
            measured = [_errors(adapter, stored(part, storage)) for part, own in usable]
            if not sum(len(errors) for errors, _ in measured):
                continue
            storages[storage] = _tolerance(measured, [block.name for block in spec.blocks], alpha)
    change, state = _spread(parts if spread is None else list(spread))
    return {
        "env": spec.id,
        "env_version": spec.version,
        "columns": list(spec.columns),
        "blocks": {block.name: block.unit for block in spec.blocks},
        "alpha": alpha,
        "native_storages": sorted(set(native), key=STORAGES.index),
        "storages": storages,
        "std_change": change.tolist(),
        "std_state": state.tolist(),
    }


def stored(rollouts: Rollouts, storage: str) -> Rollouts:
    """The rollouts as a file of that storage would hold them, float64; unchanged if it is their own."""
    if storage == find_storage(rollouts.obs):
        return rollouts
    return replace(
        rollouts,
        obs=store(rollouts.obs.astype(np.float64), storage),
        action=store(rollouts.action.astype(np.float64), storage),
        break_obs=None if rollouts.break_obs is None else store(rollouts.break_obs.astype(np.float64), storage),
        reset_obs=None if rollouts.reset_obs is None else store(rollouts.reset_obs.astype(np.float64), storage),
    )


def _errors(adapter: EnvAdapter, rollouts: Rollouts) -> tuple[FloatArray, AnyArray]:
    """Block errors of the verified transitions (M', blocks) and the rollout of each (M',)."""
    replay = adapter.replay(rollouts)
    sound = (replay.code == 0) & rollouts.has_end & (adapter.takeable(rollouts.end_obs) == 0)
    if rollouts.defect is not None:
        sound &= ~np.repeat([bool(code) for code in rollouts.defect], rollouts.length)
    end = rollouts.end_obs[sound].astype(np.float64)
    by_seeding = []
    for candidate in replay.candidates:
        gap = np.abs(candidate[sound] - end)  # (M', O)
        by_seeding.append(np.stack([gap[:, block.columns].max(axis=1) for block in adapter.spec.blocks], axis=1))
    errors = np.stack(by_seeding)  # (K, M', blocks)
    best = errors.sum(axis=2).argmin(axis=0)
    return errors[best, np.arange(errors.shape[1])], rollouts.rollout[sound]


def _tolerance(measured: list[tuple[FloatArray, AnyArray]], blocks: list[str], alpha: float) -> dict[str, Any]:
    errors = np.concatenate([part for part, _ in measured])  # (M, blocks)
    median = np.median(errors, axis=0)
    positive = [column[column > 0] for column in errors.T]
    smallest = np.array([column.min() if len(column) else 1.0 for column in positive])
    median = np.where(median > 0, median, smallest)  # a block that is mostly exact
    joint = [(part / median).max(axis=1) for part, _ in measured]
    maxima = np.concatenate(
        [np.maximum.reduceat(values, np.flatnonzero(np.diff(owner, prepend=-1))) if len(values) else values
         for values, (_, owner) in zip(joint, measured, strict=True)]
    )  # fmt: skip
    n = len(maxima)
    rank = math.ceil((n + 1) * (1 - alpha))
    needed = math.ceil(1 / alpha) - 1
    guaranteed = rank <= n
    pooled = np.concatenate(joint)
    tolerance = np.sort(maxima)[rank - 1] if guaranteed else np.quantile(pooled, POOLED_QUANTILE)
    return {
        "median": dict(zip(blocks, median.tolist(), strict=True)),
        "tolerance": float(tolerance),
        "rollouts": n,
        "transitions": len(pooled),
        "label": CONFORMAL if guaranteed else POOLED,
        "need_rollouts": needed,
    }


def _spread(parts: list[Rollouts]) -> tuple[FloatArray, FloatArray]:
    """Standard deviations over real transitions of the change (O,) and of the end row (O,)."""
    start, end = [], []
    for part in parts:
        shown = part.has_end & np.isfinite(part.end_obs).all(axis=1) & np.isfinite(part.start_obs).all(axis=1)
        start.append(part.start_obs[shown].astype(np.float64))
        end.append(part.end_obs[shown].astype(np.float64))
    after = np.concatenate(end)
    if not len(after):
        return np.zeros(after.shape[1]), np.zeros(after.shape[1])
    return (after - np.concatenate(start)).std(axis=0), after.std(axis=0)
