"""Shares with their intervals, as `report --format json` prints them.

A share is {"value", "low", "high", "n", "coverage", "low_all", "high_all"}: fractions with a 95 % interval, the number
of verified trials, verified / recorded trials, and the limits with every unverifiable trial counted wrong or right.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import numpy as np

from qualcheck import stats
from qualcheck.stats import Interval, difference
from qualcheck.types import UNDECIDED, AnyArray, FloatArray

Share = dict[str, float | int | None]
_LEVEL: ContextVar[float] = ContextVar("level of intervals", default=stats.LEVEL)


@contextmanager
def at_level(level: float) -> Iterator[None]:
    """Intervals in the block are of this level: that of runs which looked at their data more than once."""
    token = _LEVEL.set(level)
    try:
        yield
    finally:
        _LEVEL.reset(token)


def clopper_pearson(k: float, n: float) -> Interval:
    return stats.clopper_pearson(k, n, _LEVEL.get())


def korn_graubard(k: AnyArray, n: AnyArray) -> stats.ClusterInterval:
    return stats.korn_graubard(k, n, _LEVEL.get())


def of_counts(
    k: float, n: float, total: float, k_low: float | None = None, k_high: float | None = None
) -> Share | None:
    """Clopper-Pearson share of k in n verified of `total` rollouts; None where nothing was verified.

    Args:
        k_low, k_high: successes among all if every unverifiable one were wrong / right; k and k + total - n by default.
    """
    if n <= 0:
        return None
    lowest = clopper_pearson(k if k_low is None else k_low, total).low
    highest = clopper_pearson(k + total - n if k_high is None else k_high, total).high
    return _share(k / n, clopper_pearson(k, n), n, n / total, Interval(lowest, highest))


def of_verdicts(verdict: FloatArray) -> Share | None:
    """The same for one verdict a rollout, (N,) 1 / 0 / NaN."""
    return of_counts(float(np.nansum(verdict)), int((~np.isnan(verdict)).sum()), len(verdict))


def of_clusters(passes: AnyArray, known: AnyArray, total: AnyArray, cluster: AnyArray) -> Share | None:
    """Korn-Graubard share of transitions, given the counts of each rollout and its cluster, (N,) each."""
    n, recorded = float(known.sum()), float(total.sum())
    if n <= 0:
        return None
    _, which = np.unique(cluster, return_inverse=True)
    k_i, n_i, total_i = (np.bincount(which, weights=column) for column in (passes, known, total))
    interval = korn_graubard(k_i, n_i)
    lowest = korn_graubard(k_i, total_i).low
    highest = korn_graubard(k_i + total_i - n_i, total_i).high
    return _share(float(k_i.sum()) / n, Interval(*interval[:2]), n, n / recorded, Interval(lowest, highest))


def of_scores(score: FloatArray, cluster: AnyArray) -> Share | None:
    """Mean of one score in [0, 1] a rollout, (N,) with NaN; clusters as above."""
    known = ~np.isnan(score)
    return of_clusters(np.nan_to_num(score.astype(np.float64)), known, np.ones(len(score)), cluster)


def of_median(values: FloatArray, cluster: AnyArray, total: int) -> Share | None:
    """Median of values without bound, so that nothing is known of the limits with the unverifiable ones."""
    known = ~np.isnan(values)
    n = int(known.sum())
    if not n:
        return None
    median, low, high = stats.median_interval(values[known], cluster[known], _LEVEL.get())
    return {**_share(median, Interval(low, high), n, n / total, Interval(low, high)), "low_all": None, "high_all": None}


def excess(first: Share, second: Share) -> Share:
    """first - second for two independent shares; `n` and `coverage` are the first's, `n_control` the second's."""
    value = _number(first, "value") - _number(second, "value")
    interval = difference(_number(first, "value"), _limits(first), _number(second, "value"), _limits(second))
    low_first, high_first = _extremes(first)
    low_second, high_second = _extremes(second)
    all_first, all_second = _limits(first, "_all"), _limits(second, "_all")
    lowest = difference(low_first, all_first, high_second, all_second).low
    highest = difference(high_first, all_first, low_second, all_second).high
    share = _share(value, interval, _number(first, "n"), _number(first, "coverage"), Interval(lowest, highest))
    return {**share, "n_control": second["n"]}


def decided(share_of_restarts: FloatArray) -> FloatArray:
    """1 / 0 / NaN from the share of restarts that reach the goal, (N,); undecided shares are NaN."""
    low, high = UNDECIDED
    undecided = np.isnan(share_of_restarts) | ((share_of_restarts >= low) & (share_of_restarts <= high))
    return np.where(undecided, np.nan, (share_of_restarts > high).astype(np.float64))


def floor(success: dict[str, tuple[int, int]], mix: dict[str, int]) -> Share | None:
    """Success of a policy that ignores the task text, averaged over the tasks of a cell in their proportions.

    The weighted mean of rates k_t / n_t varies like one rate of 1 / sum(w_t^2 / n_t) episodes; the interval is exact
    at that number, which is the pooled count where episodes are in the cell's proportions.

    Args:
        success: task -> (successes, episodes), episodes > 0.
        mix: task -> rollouts of the cell.
    """
    have = {task: count for task, count in mix.items() if task in success and count}
    covered, total = sum(have.values()), sum(mix.values())
    if not covered:
        return None
    weight = {task: count / covered for task, count in have.items()}
    value = sum(w * success[task][0] / success[task][1] for task, w in weight.items())
    n = 1 / sum(w**2 / success[task][1] for task, w in weight.items())
    interval = clopper_pearson(min(value, 1.0) * n, n)
    coverage = covered / total
    bounds = Interval(interval.low * coverage, interval.high * coverage + 1 - coverage)
    return _share(value, interval, sum(success[task][1] for task in have), coverage, bounds)


def _share(value: float, interval: Interval, n: float, coverage: float, all_: Interval) -> Share:
    return {
        "value": float(value),
        "low": float(interval.low),
        "high": float(interval.high),
        "n": round(n),
        "coverage": float(coverage),
        "low_all": float(min(all_.low, interval.low)),
        "high_all": float(max(all_.high, interval.high)),
    }


def _number(share: Share, key: str) -> float:
    value: Any = share[key]
    return float(value)


def _limits(share: Share, suffix: str = "") -> Interval:
    return Interval(_number(share, "low" + suffix), _number(share, "high" + suffix))


def _extremes(share: Share) -> tuple[float, float]:
    """The share itself with all unverifiable trials wrong, and right."""
    low = _number(share, "value") * _number(share, "coverage")
    return low, low + 1 - _number(share, "coverage")
