"""Pieces of rollouts and the scores each piece has on its own, read from the score columns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from qualcheck.types import AnyArray, BoolArray, FloatArray, IntArray


@dataclass(frozen=True)
class Pieces:
    """Stretches of rollouts, P of them, ordered by rollout and start, never overlapping."""

    rollout: IntArray  # (P,) int64
    start: IntArray  # (P,) int64, first transition of the piece within its rollout
    stop: IntArray  # (P,) int64, one past the last

    def __len__(self) -> int:
        return len(self.rollout)

    def select(self, keep: AnyArray | slice) -> Pieces:
        """The pieces under a mask, index or slice."""
        return Pieces(self.rollout[keep], self.start[keep], self.stop[keep])


def ranges(first: IntArray, length: IntArray) -> IntArray:
    """first[i], first[i] + 1, ... for length[i] numbers, one stretch after the other."""
    before = np.cumsum(length) - length
    stretch: IntArray = np.arange(int(length.sum())) + np.repeat(first - before, length)
    return stretch


def passing(tc: FloatArray, dl: FloatArray, keep_unverifiable: bool, open_end: BoolArray) -> BoolArray:
    """True where a transition is correct and legal, (M,); NaN passes only with `keep_unverifiable`.

    A last step whose end row the file does not show (`open_end`) is no fault and no hole: it stays with its rollout.
    """
    not_wrong = (tc != 0) & (dl != 0)
    passes: BoolArray = not_wrong if keep_unverifiable else ((tc == 1) & (dl == 1)) | (open_end & not_wrong)
    return passes


def piece_scores(
    pieces: Pieces,
    offsets: IntArray,
    transitions: Mapping[str, AnyArray],
    trivial: FloatArray,
    broken: BoolArray,
    exact: bool,
) -> dict[str, FloatArray]:
    """The rollout columns of every piece, (P,) float32 each, as a new scoring of the piece would give them.

    A piece after a hole replays as imagined when each of its transitions is exact; in other environments its open
    loop is not known before it is scored, so `consistency_replayed` is NaN and `replay_known` False there. Where rows
    and `next_observations` disagree the columns do not show the goal on the row a cut ends with, so `consistency` is a
    lower bound.

    Args:
        pieces: each at least one transition long.
        offsets: (N+1,) first transition of each rollout.
        transitions: tc, dl, tc_scaled, goal_share, goal_share_replayed, open_end (bool), (M,) each.
        trivial: (N,) 1, 0 or NaN, the goal at row 0 of the rollout.
        broken: (N,) True where rows and `next_observations` disagree somewhere in the rollout.
        exact: whether the judging grade is exact.
    """
    first = offsets[pieces.rollout] + pieces.start  # (P,)
    last = offsets[pieces.rollout] + pieces.stop  # (P,) exclusive
    length = last - first
    tc, dl = transitions["tc"], transitions["dl"]
    verified_tc, verified_dl = _count(~np.isnan(tc), first, last), _count(~np.isnan(dl), first, last)
    right, legal = _count(tc == 1, first, last), _count(dl == 1, first, last)
    share = transitions["goal_share"]
    unsure = broken[pieces.rollout] & (pieces.stop < np.diff(offsets)[pieces.rollout])
    shown = share.copy()
    shown[last[unsure] - 1] = np.nan
    consistency = _largest(shown, first, last)
    consistency[unsure & np.isnan(consistency) & ~np.isnan(share[last - 1])] = 0
    replayed = _largest(transitions["goal_share_replayed"], first, last)
    stopped = _count(np.isnan(transitions["goal_share_replayed"]), first, last) > 0
    replayed[stopped & (replayed < 1)] = np.nan  # the replay ended inside the piece before the goal was reached
    after_hole = pieces.start > 0
    judged = (_count(np.isnan(share), first, last) == 0) | (consistency == 1)
    unseen = _count(transitions["open_end"], first, last)
    follows = exact & (right + unseen == length) & judged & ~broken[pieces.rollout]
    before = share[np.maximum(first - 1, 0)]  # the end row before the piece is the piece's row 0
    at_hole = np.where(broken[pieces.rollout] | np.isnan(before), np.nan, before >= 1)
    return {
        "correctness": _share(right, verified_tc),
        "legality": _share(legal, verified_dl),
        "coverage_tc": _share(verified_tc, length),
        "coverage_dl": _share(verified_dl, length),
        "consistency": consistency,
        "consistency_replayed": np.where(after_hole, np.where(follows, consistency, np.nan), replayed),
        "replay_known": ~after_hole | follows,
        "scaled_error": _median(np.where(np.isnan(tc), np.nan, transitions["tc_scaled"]), first, length),
        "trivial": np.where(after_hole, at_hole, trivial[pieces.rollout]).astype(np.float32),
    }


def _count(mask: BoolArray, first: IntArray, last: IntArray) -> IntArray:
    total = np.concatenate([[0], np.cumsum(mask)])
    inside: IntArray = total[last] - total[first]
    return inside


def _share(part: IntArray, whole: IntArray) -> FloatArray:
    share = np.full(len(part), np.nan)
    np.divide(part, whole, out=share, where=whole > 0)
    return share.astype(np.float32)


def _largest(values: FloatArray, first: IntArray, last: IntArray) -> FloatArray:
    """Largest number of each stretch; NaN only where it holds nothing else."""
    if not len(first):
        return np.zeros(0, np.float32)
    padded = np.append(values, np.float32(np.nan))  # so that `last` may stand one past the end
    bounds = np.stack([first, last], axis=1).ravel()
    return np.fmax.reduceat(padded, bounds)[::2].astype(np.float32)


def _median(values: FloatArray, first: IntArray, length: IntArray) -> FloatArray:
    """Median of the numbers of each stretch, NaN left out; NaN where nothing is left."""
    out = np.full(len(first), np.nan, np.float32)
    value = values[ranges(first, length)]
    piece = np.repeat(np.arange(len(first)), length)
    there = ~np.isnan(value)
    value, piece = value[there], piece[there]
    value = value[np.lexsort((value, piece))]
    count = np.bincount(piece, minlength=len(first))
    begin = np.cumsum(count) - count
    some = count > 0
    low, high = (begin + (count - 1) // 2)[some], (begin + count // 2)[some]
    out[some] = (value[low] + value[high]) / 2
    return out
