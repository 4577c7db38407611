"""Transition correctness: does the simulator, put into row t, reach row t+1?"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from qualcheck.checks.batch import Batch, Codes
from qualcheck.types import AnyArray, BoolArray, FloatArray


@dataclass(frozen=True)
class Correctness:
    """Scores of M transitions, each (M,) float32: 1 right, 0 wrong, NaN not verifiable, with the reason in `code`."""

    tc: FloatArray
    strict: FloatArray
    error: FloatArray  # exact environments: number of wrong fields
    code: Codes  # why NaN, or which blocks failed
    seeding: Codes
    blocks: dict[str, FloatArray] = field(default_factory=dict)  # block -> error in the block's unit


def measure(batch: Batch) -> Correctness:
    """tc[t] = 1 iff every field of simulate(obs[t], action[t]) equals the recorded end row, in an exact environment.

    Into a row that no simulator can take on tc is 0 with that row's code; out of one it is NaN. Environments that
    are not exact need tolerances learnt from real data: without them tc is NaN, code `no_calibration`, and the
    block errors alone are reported.
    """
    rollouts, replay, spec = batch.rollouts, batch.replay, batch.adapter.spec
    size = rollouts.n_transitions
    code = Codes(size)
    batch.set_defects(code)
    code.set_from(~batch.unscorable & (replay.code > 0), replay.code, spec.codes)
    code.set(~rollouts.has_end, "no_next_observation")
    verifiable = code.index == 0
    errors, chosen = _block_errors(batch, verifiable)
    seeding = Codes(size)
    for number, name in enumerate(replay.seedings):
        seeding.set(verifiable & (chosen == number), name)

    error = np.full(size, np.nan, np.float32)
    if spec.exact:
        total = np.zeros(size, np.float32)
        for values in errors.values():
            total += values
        error[verifiable] = total[verifiable]
        tc = np.where(verifiable, (error == 0).astype(np.float32), np.float32(np.nan))
        wrong = verifiable & (error > 0)
        code.set_from(wrong & (batch.end_code > 0), batch.end_code, spec.codes)
        _name_blocks(code, wrong, errors)
    else:
        code.set(verifiable, "no_calibration")
        tc = np.full(size, np.nan, np.float32)
    for values in errors.values():
        values[~verifiable] = np.nan
    return Correctness(tc, tc, error, code, seeding, errors)


def _block_errors(batch: Batch, verifiable: BoolArray) -> tuple[dict[str, FloatArray], AnyArray]:
    """Error of each block under the best candidate, {block: (M,)}, and which candidate that was, (M,)."""
    rollouts, replay, spec = batch.rollouts, batch.replay, batch.adapter.spec
    size = rollouts.n_transitions
    chosen = np.zeros(size, np.int64)
    best = {block.name: np.zeros(size, np.float32) for block in spec.blocks}
    end = rollouts.end_obs
    lowest = np.full(size, np.inf, np.float32)
    for number, candidate in enumerate(replay.candidates):
        same_kind = candidate.astype(end.dtype, copy=False) if spec.exact else candidate
        differs = np.flatnonzero(verifiable & (same_kind != end).any(axis=1))
        gap = np.abs(candidate[differs].astype(np.float64) - end[differs].astype(np.float64))  # (D, O)
        here = {
            block.name: (gap[:, block.columns] != 0).sum(axis=1) if spec.exact else gap[:, block.columns].max(axis=1)
            for block in spec.blocks
        }
        total = np.zeros(size, np.float32)
        total[differs] = np.sum(list(here.values()), axis=0)
        better = total < lowest
        lowest[better] = total[better]
        chosen[better] = number
        for name, values in here.items():
            full = np.zeros(size, np.float32)
            full[differs] = values
            best[name][better] = full[better]
    return best, chosen


def _name_blocks(code: Codes, wrong: BoolArray, errors: dict[str, FloatArray]) -> None:
    """Write which blocks failed, joined by "+", where no code stands yet."""
    at = np.flatnonzero(wrong & (code.index == 0))
    names = list(errors)
    failed = np.stack([errors[name][at] > 0 for name in names], axis=1)  # (D, blocks)
    pattern = failed @ (1 << np.arange(len(names)))
    for value in np.unique(pattern):
        mask = np.zeros(len(wrong), bool)
        mask[at[pattern == value]] = True
        code.set(mask, "+".join(name for bit, name in enumerate(names) if value >> bit & 1))
