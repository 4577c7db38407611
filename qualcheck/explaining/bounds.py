"""Values that were cut off at a bound before they were stored."""

from __future__ import annotations

import numpy as np

from qualcheck.explaining.hypothesis import Hypothesis, Subject, Trial, changed, everywhere
from qualcheck.types import AnyArray, BoolArray, FloatArray

TIED_SHARE = 0.02  # of the transitions, that have exactly the largest or the smallest value of a column
SLACK = 1e-6  # of a bound
DISTINCT = 50  # values that a column needs, so that ties at its end are no habit of its numbers


def propose(subject: Subject) -> list[Hypothesis]:
    """Actions out of bounds that the recording clipped; actions or rows that the file holds clipped."""
    spec, rollouts = subject.adapter.spec, subject.rollouts
    if spec.action.kind != "box":
        return []
    found = []
    low, high = spec.action.low, spec.action.high
    with np.errstate(invalid="ignore"):
        beyond = bool(((rollouts.action < low) | (rollouts.action > high)).any())
    if beyond:
        found.append(
            Hypothesis("clipping", "the actions leave their bounds", f"clipping them to {low:g} and {high:g}", _clipped)
        )
    if touches(rollouts.action, ties(rollouts.action, low, high)).any():
        what = "the actions are clipped to less than was executed"
        found.append(Hypothesis("clipping", what, "leaving out the clipped ones", _without_clipped_actions))
    if touches(rollouts.obs, ties(rollouts.obs)).any():
        what = "columns of the observations are clipped"
        found.append(Hypothesis("clipping", what, "leaving out the clipped rows", _without_clipped_rows))
    return found


def _clipped(subject: Subject) -> Trial:
    spec = subject.adapter.spec.action
    moved = changed(subject.rollouts, action=np.clip(subject.rollouts.action, spec.low, spec.high))
    return Trial(subject.error(moved), everywhere(moved))


def _without_clipped_actions(subject: Subject) -> Trial:
    spec, action = subject.adapter.spec.action, subject.rollouts.action
    return _without(subject, touches(action, ties(action, spec.low, spec.high)))


def _without_clipped_rows(subject: Subject) -> Trial:
    rollouts = subject.rollouts
    bounds = ties(rollouts.obs)
    return _without(subject, touches(rollouts.start_obs, bounds) | touches(rollouts.end_obs, bounds))


def _without(subject: Subject, left_out: BoolArray) -> Trial:
    return Trial(subject.before, everywhere(subject.rollouts), left_out)


def ties(values: AnyArray, low: float = -np.inf, high: float = np.inf) -> FloatArray:
    """The smallest and the largest value of each column where many rows have exactly that one, (V, C) -> (2, C).

    NaN where few do, where the column has few values at all, and at the bounds given, where a simulator clips too.
    """
    bounds = np.full((2, values.shape[1]), np.nan)
    for column in range(values.shape[1]):
        known = values[:, column][np.isfinite(values[:, column])]
        if len(np.unique(known)) < DISTINCT:
            continue
        for side, extreme in enumerate((known.min(), known.max())):
            inside = low + SLACK < extreme < high - SLACK
            if inside and np.mean(known == extreme) >= TIED_SHARE:
                bounds[side, column] = extreme
    return bounds


def touches(values: AnyArray, bounds: FloatArray) -> BoolArray:
    """Rows with a value at a bound, (V, C) and (2, C) -> (V,)."""
    touched: BoolArray = ((values == bounds[0]) | (values == bounds[1])).any(axis=1)
    return touched
