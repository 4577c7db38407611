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
    error: FloatArray  # exact: wrong fields; else joint error / tolerance of the situation
    floor: FloatArray  # the same with the tolerance of transitions out of a known hidden state
    noise: FloatArray  # the same over what is common in real data, which the judging grade takes for noise
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
    return Residual(chosen, best, total, total, nothing, nothing, nothing, nothing, {})


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

    joint = max over blocks of (block error / median real error of the block); error = joint / tolerance, both those of
    the seeding in the situation of the transition, and the seeding with the smallest error counts. Without a scale the
    one with the smallest summed block error does, and only the block errors are defined.
    """
    rollouts, replay, spec = batch.rollouts, batch.replay, batch.adapter.spec
    blocks, size = spec.blocks, rollouts.n_transitions
    at = np.flatnonzero(asked)
    end = rollouts.end_obs[at].astype(np.float64)  # (D, O)
    gaps = np.abs(replay.candidates[:, at] - end)  # (K, D, O)
    errors = np.stack([gaps[:, :, block.columns].max(axis=2) for block in blocks], axis=2)  # (K, D, blocks)
    situation = np.zeros(len(at), np.int64) if replay.situation is None else replay.situation[at]
    names = [block.name for block in blocks]
    if scale is None:
        floor, error, noise = errors.sum(axis=2), errors.sum(axis=2), errors.sum(axis=2)
    else:
        floor = scale.noise.error(errors, names)  # (K, D)
        error, noise = floor.copy(), scale.noise.over_common(errors, names)
        for number, name in enumerate(spec.situations):
            inside = situation == number
            if number and inside.any():
                error[:, inside] = scale.errors(errors[:, inside], names, name, replay.seedings)
                if name in scale.settled:
                    floor[:, inside] = error[:, inside]
                noise[:, inside] = scale.over_common(errors[:, inside], names, name)
    chosen = np.argmin(np.nan_to_num(error, nan=np.inf), axis=0)  # (D,)
    pick = np.arange(len(at))
    gap, simulated = gaps[chosen, pick], replay.candidates[chosen, at]

    def full(values: AnyArray) -> FloatArray:
        spread = np.full(size, np.nan, np.float32)
        spread[at] = values
        return spread

    by_block = {name: full(errors[chosen, pick, number]) for number, name in enumerate(names)}
    everywhere = np.zeros(size, np.int64)
    everywhere[at] = chosen
    if scale is None:
        nothing = np.full(size, np.nan, np.float32)
        return Residual(everywhere, by_block, nothing, nothing, nothing, nothing, nothing, nothing, {})
    in_change, in_state = over(gap, scale.std_change), over(gap, scale.std_state)
    change = over(np.abs(simulated - rollouts.start_obs[at].astype(np.float64)), scale.std_change)
    length, moved = np.sqrt((in_change**2).sum(axis=1)), np.sqrt((change**2).sum(axis=1))
    with np.errstate(divide="ignore", invalid="ignore"):
        skill = np.where(moved > scale.floor, 1 - length / moved, np.nan)
    return Residual(
        everywhere,
        by_block,
        full(error[chosen, pick]),
        full(np.nan_to_num(floor, nan=np.inf).min(axis=0)),
        full(np.nan_to_num(noise, nan=np.inf).min(axis=0)),
        full(in_change.max(axis=1)),
        full(in_state.max(axis=1)),
        full(skill),
        {block.name: full(in_change[:, block.columns].max(axis=1)) for block in blocks},
    )


def over(gap: FloatArray, std: FloatArray) -> FloatArray:
    """gap / std, 0 / 0 = 0: a column that never changes in real data must not change, (D, O)."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where((std == 0) & (gap == 0), 0.0, gap / std)
