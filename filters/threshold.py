"""Absolute thresholds on scores. They depend on nothing but the scored item, so applying them twice changes nothing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from qualcheck.filters.reasons import Reason
from qualcheck.types import BoolArray, FloatArray, IntArray

DEFAULT_COVERAGE = 0.5


@dataclass(frozen=True)
class Limits:
    """What an item must reach, bounds included. None asks for nothing.

    `min_coverage` None means 0.5, and nothing where `keep_unverifiable` asks for items that nobody could verify.
    """

    min_consistency: float | None = None
    min_consistency_replayed: float | None = None
    min_correctness: float | None = None
    min_legality: float | None = None
    min_coverage: float | None = None
    max_scaled_error: float | None = None
    drop_trivial: bool = False
    keep_unverifiable: bool = False

    @property
    def coverage(self) -> float | None:
        """The coverage limit in force."""
        if self.min_coverage is None and not self.keep_unverifiable:
            return DEFAULT_COVERAGE
        return self.min_coverage


def threshold(scores: Mapping[str, FloatArray], length: IntArray, limits: Limits) -> IntArray:
    """Reason code of each item, 0 where it is kept. NaN is kept only with `keep_unverifiable`.

    Args:
        scores: coverage_tc, coverage_dl, correctness, legality, consistency, consistency_replayed, scaled_error and
            trivial (1, 0 or NaN), (N,) each; for pieces also replay_known (bool).
        length: (N,) transitions of each item.
        limits: the thresholds.
    """
    reason = np.zeros(len(length), np.int8)
    if not limits.keep_unverifiable:
        _mark(reason, length == 0, Reason.EMPTY)
    for name in ("coverage_tc", "coverage_dl"):
        _least(reason, scores[name], limits.coverage, Reason.UNVERIFIABLE_COVERAGE, Reason.LOW_COVERAGE, limits)
    for name, least in (
        ("correctness", limits.min_correctness),
        ("legality", limits.min_legality),
        ("consistency", limits.min_consistency),
        ("consistency_replayed", limits.min_consistency_replayed),
    ):
        _least(
            reason, scores[name], least, Reason[f"UNVERIFIABLE_{name.upper()}"], Reason[f"LOW_{name.upper()}"], limits
        )
    if limits.min_consistency_replayed is not None and "replay_known" in scores:
        # a piece that was never replayed from its own start may turn out below the bar, so it is not kept unseen
        _mark(reason, scores["replay_known"] == 0, Reason.UNVERIFIABLE_CONSISTENCY_REPLAYED)
    if limits.max_scaled_error is not None:
        error = scores["scaled_error"]
        _least(
            reason,
            -error,
            -limits.max_scaled_error,
            Reason.UNVERIFIABLE_SCALED_ERROR,
            Reason.HIGH_SCALED_ERROR,
            limits,
        )
    if limits.drop_trivial:
        _least(reason, -scores["trivial"], -0.5, Reason.UNVERIFIABLE_TRIVIAL, Reason.TRIVIAL, limits)
    return reason


def _least(
    reason: IntArray, value: FloatArray, least: float | None, unknown: Reason, low: Reason, limits: Limits
) -> None:
    if least is None:
        return
    if not limits.keep_unverifiable:
        _mark(reason, np.isnan(value), unknown)
    # a float32 column is compared in float32, so that a limit of 0.9 takes in a stored 0.9
    _mark(reason, value < value.dtype.type(least), low)


def _mark(reason: IntArray, where: BoolArray, code: Reason) -> None:
    reason[(reason == Reason.KEPT) & where] = code
