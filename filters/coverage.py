"""Which states a data set visits, before and after a filter: occupied cells and entropy, block by block."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from qualcheck.spec import EnvSpec
from qualcheck.types import AnyArray, BoolArray, FloatArray, IntArray

BINS = 10  # of equal width a column, between the quantiles below; columns with few values keep those
QUANTILES = (0.005, 0.995)
BUCKETS = 1 << 20  # cells of a block are hashed into so many, so that memory stays bounded
JOINT = "all blocks"


@dataclass(frozen=True)
class Edges:
    """How each column is cut into bins, learnt from rows of the whole data set."""

    low: FloatArray  # (O,)
    high: FloatArray  # (O,)
    whole: BoolArray  # (O,) the column holds whole numbers, each a bin of its own

    @classmethod
    def learn(cls, rows: AnyArray) -> Edges:
        """From rows (R, O), those with numbers that are not finite left out."""
        known = rows[np.isfinite(rows.astype(np.float64)).all(axis=1)].astype(np.float64)
        if not len(known):
            nothing = np.zeros(rows.shape[1])
            return cls(nothing, nothing + 1, nothing > 0)
        low, high = np.quantile(known, QUANTILES, axis=0)
        return cls(low, np.where(high > low, high, low + 1), (known == np.round(known)).all(axis=0))

    def bins(self, rows: AnyArray) -> IntArray:
        """The bin of each number, (R, O) int64; what is not finite has one of its own."""
        values = rows.astype(np.float64)
        with np.errstate(invalid="ignore", over="ignore"):
            place = np.clip(np.floor((values - self.low) / (self.high - self.low) * BINS), 0, BINS - 1)
            place = np.where(self.whole, np.clip(np.round(values), -1e9, 1e9), place)
        return np.where(np.isfinite(values), place, -(1 << 40)).astype(np.int64)


class Coverage:
    """Visits of every cell, counted batch by batch; memory does not grow with the data."""

    def __init__(self, spec: EnvSpec, edges: Edges) -> None:
        self._edges = edges
        self._columns = {block.name: np.array(block.columns) for block in spec.blocks}
        self._columns[JOINT] = np.arange(spec.obs_size)
        self._visits = {name: np.zeros((2, BUCKETS), np.int64) for name in self._columns}

    def add(self, rows: AnyArray, kept: BoolArray) -> None:
        """Count rows (R, O), and those of them that the filter keeps, (R,)."""
        bins = self._edges.bins(rows)
        for name, columns in self._columns.items():
            cell = _hash(bins[:, columns])
            self._visits[name][0] += np.bincount(cell, minlength=BUCKETS)
            self._visits[name][1] += np.bincount(cell[kept], minlength=BUCKETS)

    def summary(self) -> dict[str, dict[str, Any]]:
        """Per block: occupied cells and Shannon entropy (nats) before and after, and what a random subset would have.

        `cells_random` is the expected number of occupied cells of a random subset with as many rows as were kept,
        sum over cells of 1 - (1 - kept / all)^visits, so that less data alone is not taken for lost coverage.
        Source: Hurlbert, Ecology 52 (1971), rarefaction, here with replacement.
        """
        return {name: _compare(*visits) for name, visits in self._visits.items()}


def _compare(before: IntArray, after: IntArray) -> dict[str, Any]:
    every, kept = int(before.sum()), int(after.sum())
    visits = before[before > 0]
    chance = kept / every if every else 0.0
    return {
        "cells_before": len(visits),
        "cells_after": int((after > 0).sum()),
        "cells_random": float((1 - (1 - chance) ** visits.astype(np.float64)).sum()),
        "entropy_before": _entropy(before),
        "entropy_after": _entropy(after),
    }


def _entropy(visits: IntArray) -> float:
    """-sum p log p in nats, 0 for no visits."""
    some = visits[visits > 0].astype(np.float64)
    if not len(some):
        return 0.0
    p = some / some.sum()
    return float(-(p * np.log(p)).sum()) + 0.0


def _hash(bins: IntArray) -> IntArray:
    """A bucket of each row of bins, (R, C) -> (R,)."""
    mixed = np.zeros(len(bins), np.uint64)
    with np.errstate(over="ignore"):
        for column in range(bins.shape[1]):
            mixed = (mixed ^ bins[:, column].astype(np.uint64)) * np.uint64(0x9E3779B97F4A7C15)
            mixed ^= mixed >> np.uint64(29)
    return (mixed % np.uint64(BUCKETS)).astype(np.int64)
