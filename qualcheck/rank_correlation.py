"""Rank correlation of two columns whose rows come in clusters, with bootstrap intervals."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from qualcheck.types import AnyArray, FloatArray, IntArray

PARTNERS = 4_000  # rows that each row is compared with for Kendall's tau; all of them where there are fewer
_CHUNK = 2_000_000  # numbers of a block of pairs or of resamples


class Correlation(NamedTuple):
    """A coefficient with its percentile interval, and how often the bootstrap fell on the other side of zero."""

    value: float
    low: float
    high: float
    p: float  # two-sided, (1 + those at or beyond zero) / (B + 1), doubled


def spearman(x: AnyArray, y: AnyArray, cluster: AnyArray, rng: np.random.Generator, resamples: int) -> Correlation:
    """Spearman's rho: Pearson's correlation of the mid-ranks.

    Whole clusters are drawn with replacement; the ranks stay those of the sample. Where few rows make the percentile
    interval too narrow (perfect order gives no spread at all) it is widened to Fisher's z with Bonett and Wright's
    standard error sqrt((1 + rho^2 / 2) / (m - 3)), rho held at the largest value that m clusters can tell from 1.

    Args:
        x: (N,) finite, not constant.
        y: (N,) likewise.
        cluster: (N,) equal where rows belong together.
        rng: draws the resamples.
        resamples: B.

    Source: Bonett and Wright, Psychometrika 65 (2000); Field and Welsh, JRSS B 69 (2007) for whole clusters.
    """
    a, b = _ranks(x), _ranks(y)
    member, m = _clusters(cluster)
    moments = (np.ones(len(a)), a, b, a * a, b * b, a * b)
    sums = np.stack([np.bincount(member, v, m).astype(np.float64) for v in moments])  # (6, m)
    value = float(_pearson(sums.sum(axis=1, keepdims=True))[0])
    drawn = _pearson(_resampled(sums, rng, resamples))
    return _interval(value, drawn, m)


def kendall(x: AnyArray, y: AnyArray, cluster: AnyArray, rng: np.random.Generator, resamples: int) -> Correlation:
    """Kendall's tau-b: (concordant - discordant pairs) / sqrt(pairs untied in x * pairs untied in y).

    The bootstrap draws whole clusters and moves the numerator by the projection of the pairs on their rows (Hoeffding),
    which costs no new comparison of pairs. Above `PARTNERS` rows the projection uses as many rows drawn at random.

    Args:
        x: (N,) finite, not constant.
        y: (N,) likewise.
        cluster: (N,) equal where rows belong together.
        rng: draws resamples and partners.
        resamples: B.

    Source: Kendall, Biometrika 33 (1945); Hoeffding, Annals of Mathematical Statistics 19 (1948).
    """
    from scipy.stats import kendalltau

    a, b = _ranks(x), _ranks(y)
    value = float(kendalltau(a, b).statistic)
    n = len(a)
    partners = np.arange(n) if n <= PARTNERS else rng.choice(n, PARTNERS, replace=False)
    own = np.zeros((3, n))  # per row: concordance, untied in x, untied in y, each over its partners
    block = max(1, _CHUNK // len(partners))
    for first in range(0, n, block):
        at = slice(first, first + block)
        over = np.sign(a[at, None] - a[partners]), np.sign(b[at, None] - b[partners])
        own[0, at] = (over[0] * over[1]).mean(axis=1)
        own[1, at], own[2, at] = (np.abs(sign).mean(axis=1) for sign in over)
    member, m = _clusters(cluster)
    sums = np.stack([np.bincount(member, v, m).astype(np.float64) for v in (np.ones(n), *own)])  # (4, m)
    drawn = _resampled(sums, rng, resamples)
    mean = own.mean(axis=1)
    moved = [mean[k] + 2 * (drawn[1 + k] / drawn[0] - mean[k]) for k in range(3)]
    with np.errstate(invalid="ignore", divide="ignore"):
        tau = moved[0] / np.sqrt(np.maximum(moved[1], 0) * np.maximum(moved[2], 0))
    return _interval(value, np.clip(np.nan_to_num(tau), -1, 1), m)


def tied(values: AnyArray) -> float:
    """Share of rows that share their value with another row."""
    _, count = np.unique(values, return_counts=True)
    return float(count[count > 1].sum() / len(values)) if len(values) else 0.0


def holm(p: FloatArray) -> FloatArray:
    """p-values adjusted so that the chance of any false one stays under the level, (K,).

    Source: Holm, Scandinavian Journal of Statistics 6 (1979).
    """
    order = np.argsort(p, kind="stable")
    adjusted = np.empty(len(p))
    adjusted[order] = np.minimum(1, np.maximum.accumulate(p[order] * (len(p) - np.arange(len(p)))))
    return adjusted


def _ranks(values: AnyArray) -> FloatArray:
    from scipy.stats import rankdata

    ranks = rankdata(values)
    return np.asarray((ranks - ranks.mean()) / max(ranks.std(), 1e-300))


def _clusters(cluster: AnyArray) -> tuple[IntArray, int]:
    names, member = np.unique(cluster, return_inverse=True)
    return member.reshape(-1), len(names)


def _resampled(sums: FloatArray, rng: np.random.Generator, resamples: int) -> FloatArray:
    """Sums over clusters drawn with replacement, (K, m) -> (K, B)."""
    m = sums.shape[1]
    parts, block = [], max(1, _CHUNK // m)
    for first in range(0, resamples, block):
        count = rng.multinomial(m, np.full(m, 1 / m), size=min(block, resamples - first))  # (b, m)
        parts.append(sums @ count.T)
    return np.concatenate(parts, axis=1)


def _pearson(sums: FloatArray) -> FloatArray:
    n, a, b, aa, bb, ab = sums
    with np.errstate(invalid="ignore", divide="ignore"):
        spread = np.sqrt(np.maximum(aa / n - (a / n) ** 2, 0) * np.maximum(bb / n - (b / n) ** 2, 0))
        found = np.where(spread > 1e-12, (ab / n - a / n * b / n) / spread, 0.0)
    return np.asarray(np.clip(found, -1, 1))


def _interval(value: float, drawn: FloatArray, m: int) -> Correlation:
    low, high = np.quantile(drawn, [0.025, 0.975])
    if m > 3:
        held = float(np.clip(value, -(1 - 1 / m), 1 - 1 / m))
        half = 1.959964 * np.sqrt((1 + held**2 / 2) / (m - 3))
        fisher = np.tanh(np.arctanh(held) + np.array([-half, half]))
        low, high = min(low, float(fisher[0])), max(high, float(fisher[1]))
    else:
        low, high = -1.0, 1.0
    beyond = min(int((drawn <= 0).sum()), int((drawn >= 0).sum()))
    return Correlation(
        value, float(min(low, value)), float(max(high, value)), min(1.0, 2 * (1 + beyond) / (len(drawn) + 1))
    )
