"""The distance between recorded and simulated end rows, under the candidate that fits best."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from qualcheck.checks.batch import Batch
from qualcheck.tolerance import Scale
from qualcheck.types import AnyArray, BoolArray, FloatArray, IntArray


@dataclass(frozen=True)
class Residual:
    """Errors of M transitions, (M,) float32 each, NaN where not asked for or not defined."""

    chosen: IntArray  # (M,) candidate that counts
    blocks: dict[str, FloatArray]  # block -> error in its unit (exact: wrong fields)
    error: FloatArray  # exact: wrong fields; else joint error / tolerance
    scaled: FloatArray
    scaled_state: FloatArray
    skill: FloatArray
    block_scaled: dict[str, FloatArray]  # block -> largest column error in standard deviations of the real change


def exact(batch: Batch, asked: BoolArray) -> Residual:
    """Wrong fields by block; the candidate with the fewest counts."""
    rollouts, replay, blocks = batch.rollouts, batch.replay, batch.adapter.spec.blocks
    size = rollouts.n_transitions
    found = [_wrong_fields(batch, candidate, asked) for candidate in replay.candidates]  # K x (blocks, M)
    if len(found) == 1:
        chosen, counts = np.zeros(size, np.int64), found[0]
    else:
        chosen = np.argmin([each.sum(axis=0) for each in found], axis=0)
        counts = np.stack(found)[chosen, :, np.arange(size)].T
    total = counts.sum(axis=0)
    if not asked.all():
        counts[:, ~asked] = total[~asked] = np.nan
    best = {block.name: values for block, values in zip(blocks, counts, strict=True)}
    nothing = np.full(size, np.nan, np.float32)
    return Residual(chosen, best, total, nothing, nothing, nothing, {})


def _wrong_fields(batch: Batch, candidate: AnyArray, asked: BoolArray) -> FloatArray:
    """Wrong fields by block under one candidate, (blocks, M) float32; 0 where not asked for."""
    rollouts, known, blocks = batch.rollouts, batch.replay.as_recorded, batch.adapter.spec.blocks
    counts = np.zeros((len(blocks), rollouts.n_transitions), np.float32)
    suspect = np.flatnonzero(asked if known is None else asked & ~known)
    end = rollouts.end_of(suspect)  # (S, O)
    wrong = candidate[suspect].astype(end.dtype, copy=False) != end
    some = np.flatnonzero(wrong.any(axis=1))
    for at, block in enumerate(blocks):
        counts[at, suspect[some]] = wrong[some][:, block.columns].sum(axis=1)
    return counts


def measured(batch: Batch, asked: BoolArray, scale: Scale | None) -> Residual:
    """Errors in physical units, in tolerances and in standard deviations.

    joint = max over blocks of (block error / median real error of the block); error = joint / tolerance. Without a
    scale the candidate with the smallest summed block error counts, and only the block errors are defined.
    """
    rollouts, replay, blocks = batch.rollouts, batch.replay, batch.adapter.spec.blocks
    at = np.flatnonzero(asked)
    end = rollouts.end_obs[at].astype(np.float64)  # (D, O)
    gaps = [np.abs(candidate[at] - end) for candidate in replay.candidates]  # K x (D, O)
    errors = [np.stack([gap[:, block.columns].max(axis=1) for block in blocks], axis=1) for gap in gaps]  # (D, blocks)
    unit = np.ones(len(blocks)) if scale is None else np.array([scale.median[block.name] for block in blocks])
    total = [(error / unit).sum(axis=1) if scale is None else (error / unit).max(axis=1) for error in errors]
    chosen = np.argmin(np.nan_to_num(np.stack(total), nan=np.inf), axis=0)  # (D,)
    pick = np.arange(len(at))
    error, gap = np.stack(errors)[chosen, pick], np.stack(gaps)[chosen, pick]
    simulated = replay.candidates[chosen, at]

    def full(values: AnyArray) -> FloatArray:
        spread = np.full(rollouts.n_transitions, np.nan, np.float32)
        spread[at] = values
        return spread

    by_block = {block.name: full(error[:, number]) for number, block in enumerate(blocks)}
    everywhere = np.zeros(rollouts.n_transitions, np.int64)
    everywhere[at] = chosen
    if scale is None:
        nothing = np.full(rollouts.n_transitions, np.nan, np.float32)
        return Residual(everywhere, by_block, nothing, nothing, nothing, nothing, {})
    in_change, in_state = _over(gap, scale.std_change), _over(gap, scale.std_state)
    change = _over(np.abs(simulated - rollouts.start_obs[at].astype(np.float64)), scale.std_change)
    length, moved = np.sqrt((in_change**2).sum(axis=1)), np.sqrt((change**2).sum(axis=1))
    with np.errstate(divide="ignore", invalid="ignore"):
        skill = np.where(moved > scale.floor, 1 - length / moved, np.nan)
    return Residual(
        everywhere,
        by_block,
        full(np.stack(total)[chosen, pick] / scale.tolerance),
        full(in_change.max(axis=1)),
        full(in_state.max(axis=1)),
        full(skill),
        {block.name: full(in_change[:, block.columns].max(axis=1)) for block in blocks},
    )


def _over(gap: FloatArray, std: FloatArray) -> FloatArray:
    """gap / std, 0 / 0 = 0: a column that never changes in real data must not change, (D, O)."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where((std == 0) & (gap == 0), 0.0, gap / std)
