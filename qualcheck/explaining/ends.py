"""Padding that was scored because the masks do not leave it out."""

from __future__ import annotations

import numpy as np

from qualcheck.explaining.hypothesis import Hypothesis, Subject, Trial, everywhere
from qualcheck.types import AnyArray, BoolArray, Rollouts

PADDED_SHARE = 0.25  # of the rollouts, at least
COMMON_LENGTH = 0.9  # share of the rollouts that reach the end of the arrays


def propose(subject: Subject) -> list[Hypothesis]:
    """Leave out the tails in which one row and one action, the same in every rollout, repeat to the common end."""
    padding = find(subject.rollouts)
    if padding is None:
        return []

    def trial(tested: Subject) -> Trial:
        found = find(tested.rollouts)
        left_out = np.zeros(tested.rollouts.n_transitions, bool) if found is None else found
        return Trial(tested.before, everywhere(tested.rollouts), left_out)

    return [Hypothesis("padding", "rows of padding were scored", "leaving them out", trial)]


def find(rollouts: Rollouts) -> BoolArray | None:
    """Transitions out of or into padding, (M,); None where the file does not look padded.

    Every rollout must reach the same length, and at least a quarter must end in two or more equal rows and actions that
    are the same rows or the same actions in all of them. What a simulator or a model leaves lying still is not: its
    rows differ from rollout to rollout, and so do its actions.
    """
    length = rollouts.length
    if not len(length) or np.mean(length == length.max()) < COMMON_LENGTH:
        return None
    tails = [_tail(rollouts, i) for i in range(rollouts.n_rollouts)]
    some = [i for i, first in enumerate(tails) if first < length[i] - 1 or _stays(rollouts, i)]
    if len(some) < max(2, PADDED_SHARE * rollouts.n_rollouts):
        return None
    last_rows = np.stack([_last_row(rollouts, i) for i in some])
    last_actions = np.stack([np.atleast_1d(rollouts.action[rollouts.offsets[i + 1] - 1]) for i in some])
    blank = _same(last_rows)
    if not blank and not (_same(last_actions) and not last_actions.any()):
        return None
    found = np.zeros(rollouts.n_transitions, bool)
    for i in some:
        begin = rollouts.offsets[i] + tails[i]
        found[begin : rollouts.offsets[i + 1]] = True
        if blank and tails[i] > 0:
            found[begin - 1] = _equal(rollouts.end_obs[begin - 1], _last_row(rollouts, i))
    return found


def _tail(rollouts: Rollouts, i: int) -> int:
    """First step of rollout i from which row and action stay what they are at its end."""
    begin, end = rollouts.offsets[i], rollouts.offsets[i + 1]
    if begin == end:
        return 0
    rows, actions = rollouts.start_obs[begin:end], rollouts.action[begin:end].reshape(end - begin, -1)
    still = _equal(rows, rows[-1]) & _equal(actions, actions[-1])
    moving = np.flatnonzero(~still)
    return int(moving[-1]) + 1 if len(moving) else 0


def _stays(rollouts: Rollouts, i: int) -> bool:
    """Whether the row after the last action of rollout i is shown and equals the one before."""
    at = int(rollouts.offsets[i + 1]) - 1
    return bool(rollouts.length[i] and rollouts.has_end[at] and _equal(rollouts.end_obs[at], rollouts.start_obs[at]))


def _last_row(rollouts: Rollouts, i: int) -> AnyArray:
    row: AnyArray = rollouts.start_obs[rollouts.offsets[i + 1] - 1]
    return row


def _equal(rows: AnyArray, row: AnyArray) -> BoolArray:
    """Which rows equal one, NaN equal to NaN, (..., O) -> (...)."""
    with np.errstate(invalid="ignore"):
        equal: BoolArray = ((rows == row) | ((rows != rows) & (row != row))).all(axis=-1)
    return equal


def _same(values: AnyArray) -> bool:
    return bool(_equal(values, values[0]).all())
