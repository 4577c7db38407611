"""Terminal flags that stand one index late: on the row after the last action instead of on that action."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from qualcheck.types import AnyArray, BoolArray, IntArray


def late_in_lists(marked: Sequence[AnyArray | None], length: Sequence[int]) -> BoolArray:
    """Rollouts marked on the index past their last action and on none of their actions, (N,).

    Args:
        marked: the flags of each rollout, (L,), (L + 1,) or more.
        length: (N,) actions of each.
    """
    late = np.zeros(len(marked), bool)
    for i, (flags, n) in enumerate(zip(marked, length, strict=True)):
        told = np.zeros(0, bool) if flags is None else np.asarray(flags).reshape(-1) > 0
        late[i] = 0 < n < len(told) and bool(told[n]) and not told[:n].any()
    return late


class LateMarks:
    """The same in padded arrays, told block by block; nowhere in a file that pads with True throughout.

    Args:
        n: rollouts of the file.
    """

    def __init__(self, n: int) -> None:
        self._late = np.zeros(n, bool)
        self._all_marked = True  # every flag in the padding
        self._beyond = self._padded = 0  # flags in the padding, and rollouts that have some

    def add(self, begin: int, marked: AnyArray, end: IntArray) -> None:
        """Look at one block.

        Args:
            begin: its first rollout.
            marked: (n', T) flags, padding included, of its first n' rollouts.
            end: (n,) first index past the rows of each rollout.
        """
        if not marked.size:
            return
        told = marked > 0
        end = end[: len(told)]
        beyond = np.arange(told.shape[1]) >= end[:, None]  # (n', T)
        padded = beyond.any(axis=1)
        self._all_marked &= bool(told[beyond].all())
        self._beyond += int(np.count_nonzero(beyond))
        self._padded += int(np.count_nonzero(padded))
        first = told[np.arange(len(told)), np.minimum(end, told.shape[1] - 1)]
        late = padded & first & (end > 0) & ~(told & ~beyond).any(axis=1)
        self._late[begin : begin + len(told)] = late

    def late(self) -> BoolArray:
        """Which rollouts are marked late, (N,)."""
        if self._all_marked and self._beyond > self._padded:
            return np.zeros(len(self._late), bool)
        return self._late
