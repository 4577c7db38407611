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


def late_in_padding(marked: AnyArray | None, end: IntArray) -> BoolArray:
    """The same in padded arrays, (N,); nowhere in a file that pads with True throughout.

    Args:
        marked: (N', T) flags, padding included; None: the file has none.
        end: (N,) first index past the rows of each rollout.
    """
    late = np.zeros(len(end), bool)
    if marked is None or not marked.size:
        return late
    told = marked[: len(end)] > 0
    end = end[: len(told)]
    beyond = np.arange(told.shape[1]) >= end[:, None]  # (N', T)
    padded = beyond.any(axis=1)
    if told[beyond].all() and np.count_nonzero(beyond) > np.count_nonzero(padded):
        return late
    first = told[np.arange(len(told)), np.minimum(end, told.shape[1] - 1)]
    late[: len(told)] = padded & first & (end > 0) & ~(told & ~beyond).any(axis=1)
    return late
