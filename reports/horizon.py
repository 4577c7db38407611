"""How far imagined rollouts can be trusted: error by step, teacher-forced and open loop, and the usable horizon."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from qualcheck.reports.pool import Pool
from qualcheck.types import AnyArray, BoolArray, FloatArray, IntArray

USABLE = 0.9  # share of rollouts that must be within the judging grade at every step up to the horizon
MOST_STEPS = 100  # points of a curve that are kept; longer ones are thinned evenly
LEAST = 5  # steps that a growth rate is fitted to
SATURATED = 1.0  # standard deviations of the real change: growth ends there
LEVEL_Z = 1.959964


class Fate(NamedTuple):
    """When each rollout left the judging grade, (N,) each."""

    steps: IntArray  # steps that were seen to be within the grade, or the one at which it was left
    left: BoolArray  # False: the record ends there, or is not verifiable from there on


def horizon(pool: Pool, rollouts: IntArray) -> dict[str, Any]:
    """Both curves of one group of rollouts, and what they come to.

    Teacher-forced: each step starts from the imagined row. Open loop: the actions are executed from row 0, and the end
    row is compared with the imagined one. Usable horizon: the largest h at which at least 90 % of rollouts are within
    the judging grade at every step up to h (definitions.md); rollouts that end earlier, or cannot be verified further,
    are censored there (Kaplan-Meier), and its interval inverts the 95 % limits of that curve.

    Args:
        pool: of runs.
        rollouts: rows of the pool.
    """
    inside = np.zeros(pool.n_rollouts, bool)
    inside[rollouts] = True
    at = np.flatnonzero(inside[pool.rollout])
    member = np.searchsorted(rollouts, pool.rollout[at]) if len(at) else np.zeros(0, np.int64)
    step = pool.step[at]
    n = len(rollouts)
    tc = pool.score["tc"][at]
    teacher = fate(member, step, tc == 0, np.isnan(tc), pool.number["length"][rollouts], n)
    divergence = pool.number["first_divergence_step"][rollouts]
    opened = pool.score["open_loop_error"][at]
    diverged = divergence[member] == step
    open_loop = fate(member, step, diverged, np.isnan(opened), pool.number["length"][rollouts], n)
    exact = np.isnan(pool.score["tc_scaled"][at]).all()
    forced = pool.score["tc_error" if exact else "tc_scaled"][at]
    return {
        "unit": "wrong fields" if exact else "standard deviations of the real one-step change",
        "teacher_forced": {"usable": usable(teacher), "curve": curve(step, forced)},
        "open_loop": {
            "usable": usable(open_loop),
            "curve": curve(step, opened),
            "growth": None if exact else growth(step, opened),
        },
    }


def fate(member: IntArray, step: IntArray, out: BoolArray, unknown: BoolArray, length: IntArray, n: int) -> Fate:
    """The first step of each rollout that is out of the grade or unknown; transitions (M,), lengths (N,)."""
    end = length.astype(np.int64).copy()
    left = np.zeros(n, bool)
    for hit, is_event in ((unknown, False), (out, True)):  # at one step an event is known, so that it wins
        first = np.full(n, np.iinfo(np.int64).max)
        np.minimum.at(first, member[hit], step[hit])
        earlier = first < end if not is_event else first <= end
        earlier &= first < length
        left = np.where(earlier, is_event, left)
        end = np.where(earlier, first, end)
    return Fate(end, left)


def usable(found: Fate) -> dict[str, Any] | None:
    """The usable horizon in steps with its interval, None where no rollout says anything.

    `at_least`: the curve never fell under 90 %; the longest step seen stands for the value.
    """
    seen = found.steps + found.left  # steps that say something
    if not len(seen) or not seen.max(initial=0):
        return None
    last = int(seen.max())
    at_risk = len(seen) - np.searchsorted(np.sort(seen), np.arange(last), side="right")  # (H,) show step h
    events = np.bincount(found.steps[found.left], minlength=last)[:last]
    with np.errstate(divide="ignore", invalid="ignore"):
        survival = np.cumprod(np.where(at_risk > 0, 1 - events / at_risk, 1.0))
        risk = np.cumsum(np.where(at_risk > events, events / (at_risk * (at_risk - events)), 0.0))
        log = np.log(survival)
        half = LEVEL_Z * np.sqrt(risk) / np.abs(log)  # of log(-log S)
        low, high = survival ** np.exp(half), survival ** np.exp(-half)
    # no event: limits of an exact binomial rate among those still at risk
    calm = survival >= 1
    low, high = np.where(calm, 0.025 ** (1 / np.maximum(at_risk, 1)), low), np.where(calm, 1.0, high)
    low, high = np.where(survival <= 0, 0.0, low), np.where(survival <= 0, 0.0, high)
    return {
        "value": _steps(survival),
        "low": _steps(np.minimum.accumulate(low)),
        "high": _steps(high),
        "at_least": bool(survival[-1] >= USABLE),
        "n": len(seen),
        "left": int(found.left.sum()),
    }


def _steps(survival: AnyArray) -> int:
    under = np.flatnonzero(survival < USABLE)
    return int(under[0]) if len(under) else len(survival)


def curve(step: IntArray, error: FloatArray) -> list[dict[str, Any]]:
    """Median and 0.9 quantile of the error at each step, with n."""
    known = np.isfinite(error)
    step, error = step[known], error[known].astype(np.float64)
    if not len(step):
        return []
    order = np.argsort(step, kind="stable")
    steps, first = np.unique(step[order], return_index=True)
    chosen = range(len(steps))
    if len(steps) > MOST_STEPS:
        chosen = np.unique(np.linspace(0, len(steps) - 1, MOST_STEPS).astype(int)).tolist()
    ends = np.append(first[1:], len(order))
    points = []
    for k in chosen:
        values = error[order[first[k] : ends[k]]]
        median, high = np.quantile(values, [0.5, 0.9])
        points.append({"step": int(steps[k]), "n": len(values), "median": float(median), "p90": float(high)})
    return points


def growth(step: IntArray, error: AnyArray) -> dict[str, Any] | None:
    """How the median open-loop error grows: slope of its logarithm per step until it saturates, least squares.

    None where fewer than five steps lie between zero and saturation.
    """
    points = curve(step, np.asarray(error))
    fitted = []
    for point in points:
        if point["median"] >= SATURATED:
            break
        if point["median"] > 0:
            fitted.append((point["step"], np.log(point["median"]), point["n"]))
    if len(fitted) < LEAST:
        return None
    at, value, weight = (np.array(column, np.float64) for column in zip(*fitted, strict=True))
    middle = np.average(at, weights=weight)
    spread = float((weight * (at - middle) ** 2).sum())
    slope = float((weight * (at - middle) * (value - np.average(value, weights=weight))).sum()) / spread
    return {
        "per_step": slope,
        "doubling_steps": float(np.log(2) / slope) if slope > 0 else None,
        "steps_fitted": len(fitted),
    }
