"""Which hypothesis, if any, explains a large share of the error: intervals, bars and rivals."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from qualcheck.explaining.hypothesis import Hypothesis, Subject, Trial
from qualcheck.stats import clopper_pearson
from qualcheck.types import BoolArray, FloatArray, IntArray, Rollouts

LEAST_ERROR = 0.03  # mean error of the sample under which there is nothing to explain
LEAST_SHARE = 0.5  # of the error, that an explanation must explain
SURELY = 0.4  # that the lower end of its interval must reach
# where the change leaves transitions out, those few that are wrong are soon among them: more is asked
SURELY_LEFT_OUT, LEAST_ERROR_LEFT_OUT = 0.5, 0.05
HOPELESS = 0.2  # share in the small sample under which a hypothesis is not tested further
PIECE = 50  # transitions: a longer rollout is several units of resampling
FEWEST_PIECES, FEWEST_TRANSITIONS = 4, 10
RESAMPLES, INTERVAL = 1_000, (2.5, 97.5)


@dataclass(frozen=True)
class Weighed:
    """The share of the error that a hypothesis explains: 1 - mean error after / mean error before."""

    hypothesis: Hypothesis
    share: float
    low: float
    high: float
    draws: FloatArray  # (B,) shares of resampled pieces, the same pieces for every hypothesis
    before: float
    after: float
    selects: bool  # it leaves transitions out

    @property
    def large(self) -> bool:
        """Whether it explains half of the error, and surely not much less."""
        if self.selects:
            return self.low >= SURELY_LEFT_OUT and self.before >= LEAST_ERROR_LEFT_OUT
        return self.share >= LEAST_SHARE and self.low >= SURELY


def pieces(rollouts: Rollouts) -> IntArray:
    """The unit of resampling of each transition, (M,): its rollout, in pieces of 50 steps."""
    key = np.stack([rollouts.rollout, rollouts.step // PIECE], axis=1)
    return np.unique(key, axis=0, return_inverse=True)[1].reshape(-1) if len(key) else np.zeros(0, np.int64)


def weigh(subject: Subject, hypothesis: Hypothesis, trial: Trial, seed: int) -> Weighed | None:
    """How much a trial explains; None where too little can be compared.

    Only transitions that were verified, or impossible, before count. One that was and no longer is counts as wrong.
    """
    known = trial.counted & ~np.isnan(subject.before)
    kept = known if trial.left_out is None else known & ~trial.left_out
    piece = pieces(subject.rollouts)
    if kept.sum() < min(FEWEST_TRANSITIONS, known.sum()) or not known.any() or not kept.any():
        return None
    size = int(piece.max()) + 1
    sums = np.stack([
        np.bincount(piece[known], subject.before[known], size),
        np.bincount(piece[known], minlength=size).astype(float),
        np.bincount(piece[kept], np.nan_to_num(trial.after[kept], nan=1.0), size),
        np.bincount(piece[kept], minlength=size).astype(float),
    ])  # fmt: skip  # (4, pieces)
    present = np.flatnonzero(sums[1] > 0)
    if len(present) < FEWEST_PIECES or known.sum() < FEWEST_TRANSITIONS:
        return None
    rng = np.random.default_rng(seed)
    drawn = rng.multinomial(size, np.full(size, 1 / size), RESAMPLES)  # (B, pieces)
    draws = _share(sums @ drawn.T)
    low, high = np.percentile(draws, INTERVAL)
    total = sums.sum(axis=1)
    before, after = float(total[0] / total[1]), float(total[2] / total[3])
    selects = trial.left_out is not None
    return Weighed(hypothesis, float(_share(total)), float(low), float(high), draws, before, after, selects)


def _share(sums: FloatArray) -> FloatArray:
    """1 - after / before from sums and counts, (4, ...) -> (...); 0 where nothing was wrong or nothing is left."""
    with np.errstate(divide="ignore", invalid="ignore"):
        share = 1 - (sums[2] / sums[3]) / (sums[0] / sums[1])
    return np.where(np.isfinite(share), share, 0.0)


def best(weighed: list[Weighed]) -> tuple[Weighed | None, list[Weighed]]:
    """The one that explains most, if that is a large share, and those of other kinds not told apart from it."""
    large = [each for each in weighed if each.large]
    if not large:
        return None, []
    first = max(large, key=lambda each: each.share)
    rivals = [
        each
        for each in large
        if each.hypothesis.kind != first.hypothesis.kind and np.percentile(first.draws - each.draws, INTERVAL[0]) <= 0
    ]
    return first, rivals


def share_of(explained: BoolArray, wrong: BoolArray) -> tuple[float, float, float]:
    """Share of the wrong rollouts that are explained, with its Clopper-Pearson interval."""
    k, n = int((explained & wrong).sum()), int(wrong.sum())
    low, high = clopper_pearson(k, n)
    return k / n, low, high
