"""What a filtering keeps: mode, thresholds and best share together, each drop with its reason."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np

from qualcheck.filters.columns import SCORES
from qualcheck.filters.pieces import Pieces, passing, piece_scores, ranges
from qualcheck.filters.quantile import Cutoff, top_fraction
from qualcheck.filters.reasons import Reason
from qualcheck.filters.segments import segments
from qualcheck.filters.threshold import Limits, threshold
from qualcheck.filters.truncate import truncate
from qualcheck.types import AnyArray, BoolArray, FloatArray, IntArray

Mode = Literal["rollouts", "truncate", "segments"]
MODES: tuple[Mode, ...] = ("rollouts", "truncate", "segments")


@dataclass(frozen=True)
class Decision:
    """What is kept of N rollouts and M transitions. Codes are those of `Reason`."""

    pieces: Pieces  # kept ones only
    scores: dict[str, FloatArray]  # (P,) columns of the kept pieces
    rollout_reason: IntArray  # (N,) int8, 0 where at least one piece is kept
    transition_reason: IntArray  # (M,) int8
    cutoffs: dict[str, Cutoff]  # by task; empty without a best share


def decide(
    rollouts: Mapping[str, AnyArray],
    transitions: Mapping[str, AnyArray],
    offsets: IntArray,
    *,
    mode: Mode,
    limits: Limits,
    fraction: float | None = None,
    known: Mapping[str, Cutoff] | None = None,
    exact: bool = False,
    candidate: BoolArray | None = None,
) -> Decision:
    """Decide about every rollout and transition.

    In the modes that cut, thresholds judge the piece that would be written, not the rollout it comes from. The best
    share is taken of what passes the thresholds.

    Args:
        rollouts: task, trivial (1, 0 or NaN), broken (bool) and the score columns of rollouts.parquet, (N,) each.
        transitions: tc, dl, tc_scaled, goal_share, goal_share_replayed, (M,) each; not read in mode "rollouts".
        offsets: (N+1,) first transition of each rollout.
        mode: whole rollouts, prefixes before the first fault, or all passing stretches.
        limits: absolute thresholds.
        fraction: share of each task to keep.
        known: cut-offs to re-apply, by task.
        exact: whether the judging grade is exact.
        candidate: (N,) rollouts that may be kept at all.
    """
    n = len(offsets) - 1
    length = np.diff(offsets)
    eligible = np.ones(n, bool) if candidate is None else candidate
    transition_reason = np.zeros(int(offsets[-1]), np.int8)
    scores: dict[str, FloatArray]
    if mode == "rollouts":
        pieces = Pieces(np.arange(n), np.zeros(n, np.int64), length)
        scores = {name: rollouts[name] for name in (*SCORES, "trivial")}
    else:
        tc, dl = transitions["tc"], transitions["dl"]
        passes = passing(tc, dl, limits.keep_unverifiable, transitions["open_end"])
        pieces = truncate(passes, offsets) if mode == "truncate" else segments(passes, offsets)
        scores = piece_scores(pieces, offsets, transitions, rollouts["trivial"], rollouts["broken"], exact)
        fault = [tc == 0, dl == 0, ~passes]
        codes = [Reason.INCORRECT_TRANSITION, Reason.ILLEGAL_TRANSITION, Reason.UNVERIFIABLE_TRANSITION]
        transition_reason = np.select(fault, codes, Reason.AFTER_FIRST_FAULT).astype(np.int8)
    reason = threshold(scores, pieces.stop - pieces.start, limits)  # (P,)
    reason[~eligible[pieces.rollout]] = Reason.OTHER_INPUT
    cutoffs: dict[str, Cutoff] = {}
    if fraction is not None:
        task = np.asarray(rollouts["task"])[pieces.rollout]
        rank, cutoffs = top_fraction(scores, task, reason == 0, fraction, limits.keep_unverifiable, known)
        reason = np.where(reason == 0, rank, reason)
    inside = ranges(offsets[pieces.rollout] + pieces.start, pieces.stop - pieces.start)
    transition_reason[inside] = np.repeat(reason, pieces.stop - pieces.start)
    rollout_reason = _per_rollout(pieces, reason, transition_reason, offsets)
    transition_reason[np.repeat(~eligible, length)] = Reason.OTHER_INPUT
    rollout_reason[~eligible] = Reason.OTHER_INPUT
    keep = reason == 0
    return Decision(
        pieces.select(keep),
        {name: column[keep] for name, column in scores.items()},
        rollout_reason,
        transition_reason,
        cutoffs,
    )


def _per_rollout(pieces: Pieces, reason: IntArray, transition_reason: IntArray, offsets: IntArray) -> IntArray:
    """Reason of each rollout: kept with any of its pieces, else that of its first piece, else of its first fault."""
    out = np.full(len(offsets) - 1, Reason.EMPTY, np.int8)
    some = np.diff(offsets) > 0
    out[some] = transition_reason[offsets[:-1][some]]  # without a piece the first transition is a fault
    first = np.flatnonzero(np.diff(pieces.rollout, prepend=-1) > 0)
    out[pieces.rollout[first]] = reason[first]
    out[pieces.rollout[reason == 0]] = Reason.KEPT
    return out
