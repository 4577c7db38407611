"""Transition correctness: does the simulator, put into row t, reach row t+1?"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from qualcheck.checks import residual
from qualcheck.checks.batch import Batch, Codes
from qualcheck.checks.residual import Residual
from qualcheck.grade import Grade
from qualcheck.tolerance import Scale
from qualcheck.types import BoolArray, FloatArray


@dataclass(frozen=True)
class Correctness:
    """Verdicts of M transitions, (M,) float32: 1 right, 0 wrong, NaN not verifiable, with the reason in `code`."""

    tc: FloatArray  # at the judging grade
    strict: FloatArray  # at the noise floor
    code: Codes  # why NaN, or which blocks failed
    seeding: Codes
    residual: Residual


def measure(batch: Batch, grade: Grade, scale: Scale | None = None) -> Correctness:
    """Hold each recorded end row against the simulated one.

    exact: tc = 1 iff no field differs. strict: tc = 1 iff the joint error is within the calibrated tolerance.
    scaled:S: tc = 1 iff every column is within S standard deviations of its real one-step change, or the joint error is
    within what 99 of 100 real transitions of its situation show: common noise is never wrong, also where a column
    hardly ever changes.

    Where the hidden state before the action is not known, the strict verdict is 1 within the tolerance of a known one,
    0 beyond what real data show in the same situation, and open in between (code `hidden_state_open`).

    Into a row that no simulator can take on tc is 0 with that row's code; out of one it is NaN. Without tolerances
    learnt from real data, an environment that is not exact has tc NaN, code `no_calibration`.
    """
    rollouts, replay, spec = batch.rollouts, batch.replay, batch.adapter.spec
    code = Codes(rollouts.n_transitions)
    batch.set_defects(code)
    code.set_from(~batch.unscorable & (replay.code > 0), replay.code, spec.codes)
    code.set(~rollouts.has_end, "no_next_observation")
    verifiable = code.index == 0
    gap = residual.exact(batch, verifiable) if spec.exact else residual.measured(batch, verifiable, scale)
    seeding = Codes(rollouts.n_transitions)
    for number, name in enumerate(replay.seedings):
        seeding.set(verifiable & (gap.chosen == number), name)
    if not spec.exact and scale is None:
        code.set(verifiable, "no_calibration")
        verifiable = np.zeros_like(verifiable)
    taken = batch.end_code == 0
    gap.noise[~taken] = np.nan  # wrong however near
    strict = taken & (gap.floor <= (0 if spec.exact else 1))
    decided = verifiable & (strict | ~taken | (gap.error > (0 if spec.exact else 1)))
    if grade.limit is None:
        code.set(verifiable & ~decided, "hidden_state_open")
        verifiable, judged = decided, strict
    else:
        judged = taken & ((gap.noise <= 1) | (gap.scaled <= grade.limit))
    wrong = verifiable & ~judged
    code.set_from(wrong & ~taken, batch.end_code, spec.codes)
    _name_blocks(code, wrong, _failed(gap, grade, scale))
    return Correctness(_verdict(judged, verifiable), _verdict(strict, decided), code, seeding, gap)


def _verdict(passed: BoolArray, verifiable: BoolArray) -> FloatArray:
    return np.where(verifiable, passed.astype(np.float32), np.float32(np.nan))


def _failed(gap: Residual, grade: Grade, scale: Scale | None) -> dict[str, BoolArray]:
    """Which blocks are beyond the grade, block -> (M,)."""
    if grade.limit is not None:
        return {name: values > grade.limit for name, values in gap.block_scaled.items()}
    if scale is None:
        return {name: values > 0 for name, values in gap.blocks.items()}
    return {name: values > scale.noise.limit(name) for name, values in gap.blocks.items()}


def _name_blocks(code: Codes, wrong: BoolArray, failed: dict[str, BoolArray]) -> None:
    """Write which blocks failed, joined by "+", where no code stands yet."""
    at = np.flatnonzero(wrong & (code.index == 0))
    names = list(failed)
    if not len(at) or not names:
        return
    pattern = np.stack([failed[name][at] for name in names], axis=1) @ (1 << np.arange(len(names)))  # (D,)
    for value in np.unique(pattern):
        mask = np.zeros(len(wrong), bool)
        mask[at[pattern == value]] = True
        code.set(mask, "+".join(name for bit, name in enumerate(names) if value >> bit & 1))
