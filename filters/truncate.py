"""The prefix of each rollout before its first fault."""

from __future__ import annotations

import numpy as np

from qualcheck.filters.pieces import Pieces
from qualcheck.types import BoolArray, IntArray


def truncate(passes: BoolArray, offsets: IntArray) -> Pieces:
    """The longest prefix of each rollout in which every transition passes; none where the first one fails.

    Args:
        passes: (M,) what `pieces.passing` says of each transition.
        offsets: (N+1,) first transition of each rollout.
    """
    faults = np.append(np.flatnonzero(~passes), len(passes))
    first_fault = faults[np.searchsorted(faults, offsets[:-1])]  # (N,) may lie in a later rollout
    stop = np.minimum(first_fault, offsets[1:]) - offsets[:-1]
    rollout = np.flatnonzero(stop > 0)
    return Pieces(rollout, np.zeros(len(rollout), np.int64), stop[rollout])
