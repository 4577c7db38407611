"""What real data show under replay: the noise floor of each storage, and the scale of real change.

The unit is the rollout, since rows of one rollout are dependent. With n rollouts whose largest joint error is known,
the ceil((n + 1)(1 - alpha))-th of these maxima bounds the maximum of a new exchangeable rollout with probability of at
least 1 - alpha (split conformal prediction; definitions, section "Calibration").
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from qualcheck.adapter import EnvAdapter
from qualcheck.cut import cut
from qualcheck.storage import STORAGES, coarser_or_equal, find_storage, store
from qualcheck.types import FloatArray, IntArray, Rollouts

ALPHA = 0.01
MIDDLE = 0.5  # quantile
USUAL_QUANTILE = 0.9  # of the errors out of an unknown hidden state
POOLED_QUANTILE = 0.999  # of transitions, where the rollouts are too few for a guarantee
COMMON_QUANTILE = 0.99  # of transitions: what the judging grade takes for noise, whatever the deviation of a column
RESOLUTION = float(np.finfo(np.float32).eps)  # in the unit of a block that real data never show wrong
PIECES, PIECE_LENGTH = 4, 5  # cut out of each real rollout to learn what an unknown hidden state costs
CONFORMAL, POOLED = "conformal", "pooled, no guarantee"


@dataclass(frozen=True)
class Tolerance:
    """The largest joint error that passes: the largest over blocks of (block error / usual error of the block)."""

    usual: dict[str, float]  # block -> usual error on real data, in the block's unit
    limit_joint: float
    common: float = 0.0  # joint error that 99 of 100 real transitions keep; at most `limit_joint`

    def error(self, errors: FloatArray, blocks: Sequence[str]) -> FloatArray:
        """Joint errors over the tolerance, (..., blocks) -> (...); NaN stays NaN."""
        unit = np.array([self.usual[name] for name in blocks]) * self.limit_joint
        joint: FloatArray = (errors / unit).max(axis=-1)
        return joint

    def over_common(self, errors: FloatArray, blocks: Sequence[str]) -> FloatArray:
        """Joint errors over what is common in real data, (..., blocks) -> (...); infinite where nothing is."""
        joint = self.error(errors, blocks) * self.limit_joint
        with np.errstate(divide="ignore", invalid="ignore"):
            over: FloatArray = np.where(joint == 0, 0.0, joint / np.float64(self.common))
        return over

    def limit(self, block: str) -> float:
        """The largest error of one block that passes, in its unit."""
        return self.usual[block] * self.limit_joint


@dataclass(frozen=True)
class Scale:
    """The tolerances that the rows of one file are held against."""

    storage: str
    noise: Tolerance  # out of a known hidden state, in the first situation
    std_change: FloatArray  # (O,) of the real one-step change
    std_state: FloatArray  # (O,) of real end rows
    label: str
    settled: dict[str, Tolerance] = field(default_factory=dict)  # the other situations with a known hidden state
    others: dict[str, dict[str, Tolerance]] = field(default_factory=dict)  # those without -> seeding -> its tolerance

    @property
    def floor(self) -> float:
        """Length, in standard deviations of the change, under which a change is noise."""
        return self.noise.limit_joint * min(self.noise.usual.values(), default=0.0)

    def errors(self, errors: FloatArray, blocks: Sequence[str], situation: str, seedings: Sequence[str]) -> FloatArray:
        """Joint errors of each seeding over its tolerance in a situation, (K, D, blocks) -> (K, D).

        0 where real data never showed a seeding in the situation: then nothing is known to be wrong.
        """
        if situation in self.settled:
            return np.stack([self.settled[situation].error(part, blocks) for part in errors])
        known = self.others.get(situation, {})
        return np.stack(
            [
                known[name].error(part, blocks) if name in known else 0 * self.noise.error(part, blocks)
                for name, part in zip(seedings, errors, strict=True)
            ]
        )

    def over_common(self, errors: FloatArray, blocks: Sequence[str], situation: str) -> FloatArray:
        """Joint errors over what is common in real data of a situation, (K, D, blocks) -> (K, D).

        Where the hidden state is not known it is that of the first situation: imagined rows are all of that kind, and
        what a slip in a real grip leads to must not excuse them.
        """
        return self.settled.get(situation, self.noise).over_common(errors, blocks)


def fit(
    adapter: EnvAdapter, batches: Iterable[Rollouts], alpha: float = ALPHA, spread: Iterable[Rollouts] | None = None
) -> dict[str, Any]:
    """The calibration of one environment from real rollouts, as JSON content without provenance.

    Args:
        adapter: the environment, for the layout the rollouts have.
        batches: real rollouts; what a simulator cannot take on, and defective rollouts, are left out.
        alpha: share of new real rollouts that may hold a rejected transition.
        spread: real rollouts that the standard deviations are taken from; None: all of them.
    """
    spec = adapter.spec
    parts = list(batches)
    native = [find_storage(part.obs) for part in parts]
    names = {block.name: block.group or block.name for block in spec.blocks}
    numbers = {name: number for number, name in enumerate(spec.situations)}
    settled = {name: number for name, number in numbers.items() if name not in spec.unsettled}
    unsettled = {name: number for name, number in numbers.items() if name in spec.unsettled}
    storages = {}
    for storage in STORAGES:
        usable = [part for part, own in zip(parts, native, strict=True) if storage in coarser_or_equal(own)]
        measured = [_errors(adapter, stored(part, storage)) for part in usable]
        known = _noise(measured, settled, names, alpha) if measured else {}
        if spec.situations[0] not in known:
            continue
        storages[storage] = {**known.pop(spec.situations[0]), "settled": known}
        if unsettled:
            unknown = [_errors(adapter, stored(_cuts(part), storage)) for part in usable]
            storages[storage]["situations"] = {
                name: _situation(unknown, number, names, alpha) for name, number in unsettled.items()
            }
    change, state = _spread(adapter, parts if spread is None else list(spread))
    return {
        "env": spec.id,
        "family": adapter.family,
        "env_version": spec.version,
        "columns": list(spec.columns),
        "blocks": {block.name: block.unit for block in spec.blocks},
        "alpha": alpha,
        "native_storages": sorted(set(native), key=STORAGES.index),
        "storages": storages,
        "std_change": change.tolist(),
        "std_state": state.tolist(),
    }


def stored(rollouts: Rollouts, storage: str) -> Rollouts:
    """The rollouts as a file of that storage would hold them, float64; unchanged if it is their own."""
    if storage == find_storage(rollouts.obs):
        return rollouts
    return replace(
        rollouts,
        obs=store(rollouts.obs.astype(np.float64), storage),
        action=rollouts.action
        if rollouts.action.dtype.kind in "iub"
        else store(rollouts.action.astype(np.float64), storage),
        break_obs=None if rollouts.break_obs is None else store(rollouts.break_obs.astype(np.float64), storage),
        reset_obs=None if rollouts.reset_obs is None else store(rollouts.reset_obs.astype(np.float64), storage),
    )


@dataclass(frozen=True)
class _Measured:
    """Block errors of the verified transitions of some rollouts."""

    errors: FloatArray  # (K, M', blocks), NaN where a seeding was not tried
    owner: IntArray  # (M',) source rollout, ascending
    situation: IntArray  # (M',)
    seedings: tuple[str, ...]


def _errors(adapter: EnvAdapter, rollouts: Rollouts) -> _Measured:
    replay = adapter.replay(rollouts)
    sound = (replay.code == 0) & rollouts.has_end & (adapter.takeable(rollouts.end_obs) == 0)
    if rollouts.defect is not None:
        sound &= ~np.repeat(np.array([bool(code) for code in rollouts.defect], bool), rollouts.length)
    gap = np.abs(replay.candidates[:, sound] - rollouts.end_obs[sound].astype(np.float64))  # (K, M', O)
    errors = np.stack([gap[:, :, block.columns].max(axis=2) for block in adapter.spec.blocks], axis=2)
    situation = np.zeros(len(sound), np.int64) if replay.situation is None else replay.situation
    return _Measured(errors, rollouts.source_rollout[rollouts.rollout[sound]], situation[sound], replay.seedings)


def _cuts(rollouts: Rollouts) -> Rollouts:
    """Short pieces of the rollouts that start in the middle, their hidden state withheld."""
    long = np.flatnonzero(rollouts.length > 2)
    which = np.repeat(long, PIECES)
    room = rollouts.length[which] - 2  # the last start leaves two transitions
    start = 1 + np.tile(np.arange(PIECES), len(long)) * room // PIECES
    stop = np.minimum(start + PIECE_LENGTH, rollouts.length[which])
    return replace(cut(rollouts, which, start, stop), hidden=None)


def _noise(
    measured: list[_Measured], numbers: Mapping[str, int], blocks: Mapping[str, str], alpha: float
) -> dict[str, Any]:
    """The tolerances of transitions out of a known hidden state, in the situations of these names and numbers.

    Each situation has usual errors and a tolerance of its own; then all tolerances are stretched alike, so that the
    level holds for a whole rollout, whatever situations it passes through. The usual error of a block is its median in
    the first situation. In the others, where a few bodies slip while most are at rest, medians say nothing of how far
    each kind of error reaches, and a tolerance in such units lets all blocks off for the wildest one: there it is the
    0.99 quantile.
    """
    found: dict[str, dict[str, Any]] = {}
    worst: list[list[FloatArray]] = [[] for _ in measured]
    owners: list[list[IntArray]] = [[] for _ in measured]
    for name, number in numbers.items():
        inside = [each.situation == number for each in measured]
        error = [np.nan_to_num(each.errors[:, at], nan=np.inf) for each, at in zip(measured, inside, strict=True)]
        best = [part[part.sum(axis=2).argmin(axis=0), np.arange(part.shape[1])] for part in error]  # (M', blocks) each
        if not sum(map(len, best)):
            continue
        median = _usual(np.concatenate(best), blocks, MIDDLE if not number else COMMON_QUANTILE)
        joint = [(part / median).max(axis=1) for part in best]
        owner = [each.owner[at] for each, at in zip(measured, inside, strict=True)]
        tolerance, told = _quantile(joint, owner, alpha)
        found[name] = {
            "median": dict(zip(blocks, median.tolist(), strict=True)),
            "tolerance": tolerance,
            "common": float(np.quantile(np.concatenate(joint), COMMON_QUANTILE)),
            **told,
        }
        for place, (values, part) in enumerate(zip(joint, owner, strict=True)):
            worst[place].append(values / tolerance)
            owners[place].append(part)
    if not found:
        return found
    order = [np.argsort(np.concatenate(part), kind="stable") for part in owners]
    stretch, _ = _quantile(
        [np.concatenate(part)[at] for part, at in zip(worst, order, strict=True)],
        [np.concatenate(part)[at] for part, at in zip(owners, order, strict=True)],
        alpha,
    )
    for each in found.values():
        each["tolerance"] *= stretch
        each["common"] = min(each["common"], each["tolerance"])
    return found


def _situation(measured: list[_Measured], number: int, blocks: Mapping[str, str], alpha: float) -> dict[str, Any]:
    """The tolerances of every seeding in another situation, and what they rest on.

    The usual error of a seeding is its 0.9 quantile: where the hidden state is unknown many errors are still at the
    noise floor, and their median says nothing of the others. The tolerance, one number for all seedings, is then that
    of the smallest error in units of its own seeding, which is the one that counts.
    """
    inside = [each.situation == number for each in measured]
    owner = [each.owner[at] for each, at in zip(measured, inside, strict=True)]
    usual: dict[str, dict[str, float]] = {}
    smallest = [np.full(len(part), np.inf) for part in owner]
    for seeding, name in enumerate(measured[0].seedings):
        errors = [each.errors[seeding, at] for each, at in zip(measured, inside, strict=True)]
        tried = np.concatenate([part[~np.isnan(part).any(axis=1)] for part in errors])
        if not len(tried):
            continue
        usually = np.quantile(_of_groups(tried, blocks), USUAL_QUANTILE, axis=0)
        unit = np.maximum(usually, np.finfo(np.float64).tiny)
        usual[name] = dict(zip(blocks, unit.tolist(), strict=True))
        for part, error in zip(smallest, errors, strict=True):
            np.fmin(part, (error / unit).max(axis=1), out=part)
    if not usual:
        return {"seedings": {}}
    tolerance, told = _quantile(smallest, owner, alpha)
    return {"seedings": {name: {"usual": unit, "tolerance": tolerance} for name, unit in usual.items()}, **told}


def _of_groups(errors: FloatArray, blocks: Mapping[str, str]) -> FloatArray:
    """The error of each block's group, which is the largest in it, (M', blocks) -> (M', blocks)."""
    groups = np.array(list(blocks.values()))
    return np.stack([errors[:, groups == group].max(axis=1) for group in groups], axis=1)


def _usual(errors: FloatArray, blocks: Mapping[str, str], quantile: float) -> FloatArray:
    """Usual error of each block's group, (M', blocks) -> (blocks,).

    Of one that is mostly exact the smallest error, and of one that is always exact the resolution of float32.
    """
    errors = _of_groups(errors, blocks)
    usual = np.quantile(errors, quantile, axis=0)
    positive = [column[column > 0] for column in errors.T]
    smallest = np.array([column.min() if len(column) else RESOLUTION for column in positive])
    return np.where(usual > 0, usual, smallest)


def _quantile(joint: list[FloatArray], owner: list[IntArray], alpha: float) -> tuple[float, dict[str, Any]]:
    """The joint error that at most `alpha` of new rollouts exceed anywhere, and how far that is guaranteed."""
    maxima = np.concatenate(
        [np.maximum.reduceat(values, np.flatnonzero(np.diff(part, prepend=-1))) if len(values) else values
         for values, part in zip(joint, owner, strict=True)]
    )  # fmt: skip
    n = len(maxima)
    rank = math.ceil((n + 1) * (1 - alpha))
    pooled = np.concatenate(joint)
    guaranteed = rank <= n
    tolerance = np.sort(maxima)[rank - 1] if guaranteed else np.quantile(pooled, POOLED_QUANTILE)
    return float(tolerance), {
        "rollouts": n,
        "transitions": len(pooled),
        "label": CONFORMAL if guaranteed else POOLED,
        "need_rollouts": math.ceil(1 / alpha) - 1,
    }


def _spread(adapter: EnvAdapter, parts: list[Rollouts]) -> tuple[FloatArray, FloatArray]:
    """Standard deviations over real transitions of the change (O,) and of the end row (O,).

    Of a number that only some rows' simulators say something about, over those: elsewhere it may stand still, or
    flicker, as the blocks of what a task does not have.
    """
    start, end, compared = [], [], []
    for part in parts:
        shown = part.has_end & np.isfinite(part.end_obs).all(axis=1) & np.isfinite(part.start_obs).all(axis=1)
        start.append(part.start_obs[shown].astype(np.float64))
        end.append(part.end_obs[shown].astype(np.float64))
        told = adapter.replay(part).compared if adapter.spec.restores == "partial" else None
        compared.append(np.ones(end[-1].shape, bool) if told is None else told[shown])
    after, mine = np.concatenate(end), np.concatenate(compared)
    change, state = np.zeros(after.shape[1]), np.zeros(after.shape[1])
    moved = after - np.concatenate(start)
    for column in np.flatnonzero(mine.any(axis=0)):
        at = mine[:, column]
        change[column], state[column] = moved[at, column].std(), after[at, column].std()
    return change, state
