"""Dynamics legality: does the step, and the row it ends in, obey the laws of the environment?"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from qualcheck.checks.batch import Batch, Codes
from qualcheck.types import BoolArray, FloatArray


@dataclass(frozen=True)
class LegalityScores:
    dl: FloatArray  # (M,) float32: 1 every hard rule holds, 0 one is broken, NaN not verifiable
    rule: Codes  # (M,) first hard rule broken
    unverifiable: Codes  # (M,) why NaN
    row0: FloatArray  # (N,) float32: the row-0 rules; NaN for pieces that do not start at a reset
    row0_rule: Codes  # (N,)
    soft: dict[str, BoolArray]  # (M,) rule id -> broken


def measure(batch: Batch, reset: BoolArray) -> LegalityScores:
    """Apply the adapter's rules; `reset` (N,) says which rollouts start at a reset."""
    rollouts = batch.rollouts
    found = batch.adapter.legality(rollouts, batch.placements, batch.which)
    ids = ["", *(rule.id for rule in batch.adapter.rules)]
    why = Codes(rollouts.n_transitions)
    batch.set_defects(why)
    why.set(~rollouts.has_end, "no_next_observation")
    why.set(found.rule < 0, "not_verifiable")
    verifiable = why.index == 0
    rule = Codes(rollouts.n_transitions)
    rule.set_from(verifiable & (found.rule > 0), np.maximum(found.rule, 0), ids)
    dl = np.where(verifiable, (rule.index == 0).astype(np.float32), np.float32(np.nan))

    applies = reset & ~batch.defective & (np.diff(rollouts.row_offsets) > 0) & (found.row0_rule >= 0)
    row0_rule = Codes(rollouts.n_rollouts)
    row0_rule.set_from(applies & (found.row0_rule > 0), np.maximum(found.row0_rule, 0), ids)
    row0 = np.where(applies, (row0_rule.index == 0).astype(np.float32), np.float32(np.nan))
    soft = {name: broken & verifiable for name, broken in found.soft.items()}
    return LegalityScores(dl, rule, why, row0, row0_rule, soft)
