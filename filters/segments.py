"""Every stretch of passing transitions, as long as it gets; two stretches are never joined across a hole."""

from __future__ import annotations

import numpy as np

from qualcheck.filters.pieces import Pieces
from qualcheck.types import BoolArray, IntArray


def segments(passes: BoolArray, offsets: IntArray) -> Pieces:
    """The maximal runs of passing transitions of each rollout.

    Args:
        passes: (M,) what `pieces.passing` says of each transition.
        offsets: (N+1,) first transition of each rollout.
    """
    opens = passes.copy()  # (M,) the first transition of a run
    opens[1:] &= ~passes[:-1]
    closes = passes.copy()  # (M,) the last one
    closes[:-1] &= ~passes[1:]
    edge = offsets[1:-1][(offsets[1:-1] > 0) & (offsets[1:-1] < len(passes))]
    opens[edge] = passes[edge]
    closes[edge - 1] = passes[edge - 1]
    first, last = np.flatnonzero(opens), np.flatnonzero(closes)
    rollout = np.searchsorted(offsets, first, side="right") - 1
    return Pieces(rollout, first - offsets[rollout], last + 1 - offsets[rollout])
