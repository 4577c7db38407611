"""From block errors of real transitions to tolerances, by split conformal prediction over rollouts.

The unit is the rollout, since rows of one rollout are dependent. With n rollouts whose largest joint error is known,
the ceil((n + 1)(1 - alpha))-th of these maxima bounds the maximum of a new exchangeable rollout with probability of at
least 1 - alpha (definitions, section "Calibration").

That holds only if a new rollout's error is measured as those of the n were. The units are learnt as well: a usual error
for each block, and how far the situations reach relative to each other. Learnt from the n rollouts themselves, a wild
rollout widens the unit that it is measured in, and with few rollouts the promise is broken (LIBERO, 29 rollouts at
alpha 0.1: 25 % rejected). So, where rollouts are enough for a promise, each is measured in units learnt from the
others, as a new one is (cross-conformal prediction: Vovk, "Cross-conformal predictors", Ann. Math. Artif. Intell. 74,
2015).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from qualcheck.types import BoolArray, FloatArray, IntArray

MIDDLE = 0.5  # quantile
USUAL_QUANTILE = 0.9  # of the errors out of an unknown hidden state
POOLED_QUANTILE = 0.999  # of transitions, where the rollouts are too few for a guarantee
COMMON_QUANTILE = 0.99  # of transitions: what the judging grade takes for noise, whatever the deviation of a column
RESOLUTION = float(np.finfo(np.float32).eps)  # in the unit of a block that real data never show wrong
REACH = 0.1  # share of the rollouts that go further in a situation than how far it is said to reach
FOLDS = 20  # of rollouts; each is measured in units of the others
CONFORMAL, POOLED = "conformal", "pooled, no guarantee"


@dataclass(frozen=True)
class Measured:
    """Block errors of the verified transitions of some rollouts."""

    errors: FloatArray  # (K, M, blocks), NaN where a seeding was not tried
    owner: IntArray  # (M,) rollout, ascending
    situation: IntArray  # (M,)
    seedings: tuple[str, ...]

    @classmethod
    def together(cls, parts: list[Measured]) -> Measured:
        """Those of several files, whose rollouts are numbered one after the other."""
        owners, first = [], 0
        for part in parts:
            _, number = np.unique(part.owner, return_inverse=True)
            owners.append(number + first)
            first += int(number.max(initial=-1)) + 1
        return cls(
            np.concatenate([part.errors for part in parts], axis=1),
            np.concatenate(owners).astype(np.int64),
            np.concatenate([part.situation for part in parts]),
            parts[0].seedings,
        )

    def of(self, rows: BoolArray) -> Measured:
        """Those of some transitions."""
        return Measured(self.errors[:, rows], self.owner[rows], self.situation[rows], self.seedings)


@dataclass(frozen=True)
class _Unit:
    """What the joint errors of a situation are measured in."""

    usual: FloatArray  # (blocks,)
    reach: float  # how far joint errors go, relative to those of the first situation

    def joint(self, errors: FloatArray) -> FloatArray:
        """(M, blocks) -> (M,)"""
        joint: FloatArray = (errors / self.usual).max(axis=1, initial=0)
        return joint


def known_states(
    measured: Measured, numbers: Mapping[str, int], blocks: Mapping[str, str], alpha: float
) -> dict[str, Any]:
    """The tolerances of transitions out of a known hidden state, by situation.

    Each situation has usual errors of its own, and reaches as far as its own rollouts do; then all are stretched
    alike, so that the level holds for a whole rollout, whatever situations it passes through. The usual error of a
    block is its median in the first situation. In the others, where a few bodies slip while most are at rest, medians
    say nothing of how far each kind of error reaches, and a tolerance in such units lets all blocks off for the wildest
    one: there it is the 0.99 quantile.

    Args:
        measured: of all rollouts.
        numbers: situation -> its number; those that no rollout passes through are left out.
        blocks: block -> its group; all blocks of a group have one usual error.
        alpha: share of new rollouts that may exceed their tolerance anywhere.
    """
    error = np.nan_to_num(measured.errors, nan=np.inf)
    best = error[error.sum(axis=2).argmin(axis=0), np.arange(error.shape[1])]  # (M, blocks)
    inside = np.isin(measured.situation, list(numbers.values()))
    promised = _enough(measured.owner[inside], alpha)
    units = _units(best, measured, numbers, blocks, REACH if promised else alpha)
    if not units:
        return {}
    joint, over = np.zeros(len(best)), np.zeros(len(best))  # of the units of others; in their reach
    for mine, rest in _folds(measured.owner, promised):
        theirs = _units(best[rest], measured.of(rest), numbers, blocks, REACH) if promised else units
        for name, number in numbers.items():
            at = np.flatnonzero(mine & (measured.situation == number))
            # a situation that the others never meet is held against the first one, as scoring does
            unit = theirs.get(name) or next(iter(theirs.values()))
            joint[at] = unit.joint(best[at])
            over[at] = joint[at] / unit.reach
    stretch, _ = quantile(over[inside], measured.owner[inside], alpha)
    found = {}
    for name, unit in units.items():
        at = measured.situation == numbers[name]
        tolerance = unit.reach * stretch
        found[name] = {
            "median": dict(zip(blocks, unit.usual.tolist(), strict=True)),
            "tolerance": tolerance,
            "common": min(float(np.quantile(joint[at], COMMON_QUANTILE)), tolerance),
            **quantile(joint[at], measured.owner[at], alpha)[1],
        }
    return found


def unknown_state(measured: Measured, number: int, blocks: Mapping[str, str], alpha: float) -> dict[str, Any]:
    """The tolerances of every seeding in a situation without a known hidden state, and what they rest on.

    The usual error of a seeding is its 0.9 quantile: where the hidden state is unknown many errors are still at the
    noise floor, and their median says nothing of the others. The tolerance, one number for all seedings, is then that
    of the smallest error in units of its own seeding, which is the one that counts.
    """
    inside = measured.of(measured.situation == number)
    usual = _usual_of_seedings(inside, blocks)
    if not usual:
        return {"seedings": {}}
    smallest = np.full(len(inside.owner), np.inf)
    promised = _enough(inside.owner, alpha)
    for mine, rest in _folds(inside.owner, promised):
        theirs = _usual_of_seedings(inside.of(rest), blocks) if promised else usual
        for seeding, name in enumerate(inside.seedings):
            if name in theirs:
                joint = (inside.errors[seeding, mine] / theirs[name]).max(axis=1)
                smallest[mine] = np.fmin(smallest[mine], joint)
    tolerance, told = quantile(smallest, inside.owner, alpha)
    return {
        "seedings": {
            name: {"usual": dict(zip(blocks, unit.tolist(), strict=True)), "tolerance": tolerance}
            for name, unit in usual.items()
        },
        **told,
    }


def quantile(joint: FloatArray, owner: IntArray, alpha: float) -> tuple[float, dict[str, Any]]:
    """The joint error that at most `alpha` of new rollouts exceed anywhere, and how far that is guaranteed.

    Never 0: where real data are never wrong, one usual error, which is then the resolution of float32.

    Args:
        joint: (M,) of all transitions.
        owner: (M,) their rollouts, ascending.
        alpha: that share.
    """
    maxima = np.maximum.reduceat(joint, np.flatnonzero(np.diff(owner, prepend=-1))) if len(joint) else joint
    n = len(maxima)
    rank = math.ceil((n + 1) * (1 - alpha))
    guaranteed = rank <= n
    tolerance = np.sort(maxima)[rank - 1] if guaranteed else np.quantile(joint, POOLED_QUANTILE)
    return float(tolerance) or 1.0, {
        "rollouts": n,
        "transitions": len(joint),
        "label": CONFORMAL if guaranteed else POOLED,
        "need_rollouts": math.ceil(1 / alpha) - 1,
    }


def _enough(owner: IntArray, alpha: float) -> bool:
    """Whether there are rollouts enough for a guarantee."""
    n = len(np.unique(owner))
    return math.ceil((n + 1) * (1 - alpha)) <= n


def _folds(owner: IntArray, several: bool) -> Iterator[tuple[BoolArray, BoolArray]]:
    """Parts of the rollouts, and the others, as masks (M,) of transitions; all and none unless there are several."""
    fold = np.unique(owner, return_inverse=True)[1] % (FOLDS if several else 1)
    for number in range(int(fold.max(initial=-1)) + 1):
        yield fold == number, fold != number


def _units(
    best: FloatArray,
    measured: Measured,
    numbers: Mapping[str, int],
    blocks: Mapping[str, str],
    beyond: float,
) -> dict[str, _Unit]:
    """The units of the situations that some rollouts pass through; so large a share of them goes beyond a reach."""
    found: dict[str, _Unit] = {}
    first = 1.0
    for name, number in numbers.items():
        at = measured.situation == number
        if at.any():
            usual = _usual(best[at], blocks, COMMON_QUANTILE if number else MIDDLE)
            reach, _ = quantile((best[at] / usual).max(axis=1), measured.owner[at], beyond)
            first = first if found else reach
            found[name] = _Unit(usual, reach / first)
    return found


def _usual_of_seedings(measured: Measured, blocks: Mapping[str, str]) -> dict[str, FloatArray]:
    """The usual errors (blocks,) of each seeding that was tried."""
    found = {}
    for errors, name in zip(measured.errors, measured.seedings, strict=True):
        tried = errors[~np.isnan(errors).any(axis=1)]
        if len(tried):
            usual = np.quantile(_of_groups(tried, blocks), USUAL_QUANTILE, axis=0)
            found[name] = np.maximum(usual, np.finfo(np.float64).tiny)
    return found


def _of_groups(errors: FloatArray, blocks: Mapping[str, str]) -> FloatArray:
    """The error of each block's group, which is the largest in it, (M, blocks) -> (M, blocks)."""
    groups = np.array(list(blocks.values()))
    return np.stack([errors[:, groups == group].max(axis=1) for group in groups], axis=1)


def _usual(errors: FloatArray, blocks: Mapping[str, str], quantile: float) -> FloatArray:
    """Usual error of each block's group, (M, blocks) -> (blocks,).

    Of one that is mostly exact the smallest error, and of one that is always exact the resolution of float32.
    """
    errors = _of_groups(errors, blocks)
    usual = np.quantile(errors, quantile, axis=0)
    positive = [column[column > 0] for column in errors.T]
    smallest = np.array([column.min() if len(column) else RESOLUTION for column in positive])
    return np.where(usual > 0, usual, smallest)
