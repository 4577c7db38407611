"""Observations that are standardised and were not said to be, or the reverse."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

from qualcheck.explaining.hypothesis import Hypothesis, RowStatistics, Subject, Trial, changed, everywhere
from qualcheck.types import AnyArray, FloatArray

FEWEST_ROWS = 30
FEWEST_DISTINCT = 2  # values of a column that its spacing can be told from
SMALLEST_SPACING = 1e-3
ROUNDING = 1e-4  # of a deviation


def propose(subject: Subject) -> list[Hypothesis]:
    """The reverse of the statistics given; without any, those of real rows, where the rows look standardised."""
    if subject.given is not None:
        mean, std = subject.given
        undo = _rows(lambda rows: (rows - mean) / std)
        what = "the observations were in physical units already"
        return [Hypothesis("standardised", what, "leaving out the given statistics", undo)]
    if not resembles_standardised(subject.rollouts.obs):
        return []
    found = []
    for real in subject.real_rows:
        if subject.adapter.spec.exact:
            back = _rows(partial(from_lattice, *lattice(subject.rollouts.obs, real)))
        else:
            back = _rows(partial(in_range, real))
        remedy = f"means and deviations of {real.name}"
        found.append(Hypothesis("standardised", "the observations are standardised", remedy, back))
    return found


def _rows(change: Callable[[AnyArray], AnyArray]) -> Callable[[Subject], Trial]:
    def trial(subject: Subject) -> Trial:
        moved = changed(subject.rollouts, change)
        return Trial(subject.error(moved), everywhere(moved))

    return trial


def resembles_standardised(rows: AnyArray) -> bool:
    """Whether most columns that vary have a mean near 0 and a deviation near 1; looser than the finding of that name,
    since what counts is the trial."""
    values = rows[np.isfinite(rows).all(axis=1)].astype(np.float64)
    if len(values) < FEWEST_ROWS:
        return False
    mean, std = values.mean(axis=0), values.std(axis=0)
    varies = std > SMALLEST_SPACING
    near = (np.abs(mean) < 0.75) & (np.abs(np.log(np.maximum(std, 1e-9))) < 0.75)
    return bool(varies.any() and near[varies].mean() >= 0.75)


def lattice(rows: AnyArray, real: RowStatistics) -> tuple[FloatArray, FloatArray]:
    """Mean and deviation of columns of whole numbers, (O,) each, from the spacing of their standardised values.

    The spacing is 1 / deviation; the mean is the one that keeps the numbers within those of real rows, and of these the
    nearest to theirs.
    """
    values = rows[np.isfinite(rows).all(axis=1)].astype(np.float64)
    mean, std = real.mean.copy(), np.ones(rows.shape[1])
    for column in range(rows.shape[1]):
        distinct = np.unique(np.round(values[:, column], 4))
        if len(distinct) < FEWEST_DISTINCT:
            continue
        spacing = _spacing(distinct)
        std[column] = 1 / spacing
        steps = np.rint((distinct - distinct[0]) / spacing)
        lows = np.arange(int(real.low[column]), int(real.high[column] - steps[-1]) + 1)
        expected = distinct[0] / spacing + real.mean[column]  # of the smallest number
        low = lows[np.argmin(np.abs(lows - expected))] if len(lows) else np.rint(expected)
        mean[column] = low - distinct[0] / spacing
    return mean, std


def _spacing(distinct: FloatArray) -> float:
    """The spacing that all distances between standardised whole numbers are multiples of."""
    gaps = np.diff(distinct)
    gaps = gaps[gaps > SMALLEST_SPACING]
    if not len(gaps):
        return 1.0
    least = float(gaps.min())
    # the longest distance divided by its number of steps is the most exact
    return float((distinct[-1] - distinct[0]) / max(round((distinct[-1] - distinct[0]) / least), 1))


def multiplied(mean: FloatArray, std: FloatArray, rows: AnyArray) -> FloatArray:
    """Rows in their units again, (R, O) -> (R, O) float64."""
    back: FloatArray = rows.astype(np.float64) * std + mean
    return back


def in_range(real: RowStatistics, rows: AnyArray) -> FloatArray:
    """Rows in their units again; a number that rounding alone has put beyond those of real rows is put back."""
    back = multiplied(real.mean, real.std, rows)
    slack = ROUNDING * real.std
    back = np.where((back > real.high) & (back < real.high + slack), real.high, back)
    return np.where((back < real.low) & (back > real.low - slack), real.low, back)


def from_lattice(mean: FloatArray, std: FloatArray, rows: AnyArray) -> FloatArray:
    """Whole numbers again, (R, O) -> (R, O) float64."""
    back: FloatArray = np.rint(multiplied(mean, std, rows))
    return back
