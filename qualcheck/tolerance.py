"""What real data show under replay: the noise floor of each storage, and the scale of real change.

How tolerances come out of errors, and what is guaranteed, is in `conformal`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from qualcheck.adapter import EnvAdapter
from qualcheck.conformal import Measured, known_states, unknown_state
from qualcheck.cut import cut
from qualcheck.storage import STORAGES, coarser_or_equal, find_storage, store
from qualcheck.types import FloatArray, Rollouts

ALPHA = 0.01
PIECES, PIECE_LENGTH = 4, 5  # cut out of each real rollout to learn what an unknown hidden state costs


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
        if not usable:
            continue
        measured = Measured.together([block_errors(adapter, stored(part, storage)) for part in usable])
        known = known_states(measured, settled, names, alpha)
        if spec.situations[0] not in known:
            continue
        storages[storage] = {**known.pop(spec.situations[0]), "settled": known}
        if unsettled:
            unknown = Measured.together([block_errors(adapter, stored(_cuts(part), storage)) for part in usable])
            storages[storage]["situations"] = {
                name: unknown_state(unknown, number, names, alpha) for name, number in unsettled.items()
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


def block_errors(adapter: EnvAdapter, rollouts: Rollouts) -> Measured:
    """Errors of the transitions that could be replayed, out of rows and into rows that a simulator takes on."""
    replay = adapter.replay(rollouts)
    sound = (replay.code == 0) & rollouts.has_end & (adapter.takeable(rollouts.end_obs) == 0)
    if rollouts.defect is not None:
        sound &= ~np.repeat(np.array([bool(code) for code in rollouts.defect], bool), rollouts.length)
    gap = np.abs(replay.candidates[:, sound] - rollouts.end_obs[sound].astype(np.float64))  # (K, M', O)
    errors = np.stack([gap[:, :, block.columns].max(axis=2) for block in adapter.spec.blocks], axis=2)
    situation = np.zeros(len(sound), np.int64) if replay.situation is None else replay.situation
    return Measured(errors, rollouts.source_rollout[rollouts.rollout[sound]], situation[sound], replay.seedings)


def _cuts(rollouts: Rollouts) -> Rollouts:
    """Short pieces of the rollouts that start in the middle, their hidden state withheld."""
    long = np.flatnonzero(rollouts.length > 2)
    which = np.repeat(long, PIECES)
    room = rollouts.length[which] - 2  # the last start leaves two transitions
    start = 1 + np.tile(np.arange(PIECES), len(long)) * room // PIECES
    stop = np.minimum(start + PIECE_LENGTH, rollouts.length[which])
    return replace(cut(rollouts, which, start, stop), hidden=None)


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
