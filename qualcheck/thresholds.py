"""The success thresholds of the benchmark, stretched: does the order of results hang on where they were drawn?

An environment's goals pass their distances through `scaled`; a sweep evaluates the same rows, imagined and replayed, at
each of `MULTIPLES` of all of them. Nothing is simulated for it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import numpy as np

from qualcheck.types import BoolArray, IntArray

MULTIPLES = (0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.1, 1.25, 1.5, 1.75, 2.0)
UNJUDGED = -1  # instead of bits

_MULTIPLE: ContextVar[float] = ContextVar("multiple of the success thresholds", default=1.0)


def scaled(threshold: float) -> float:
    """A success threshold, m or rad, as the sweep has it now; as it is outside of a sweep."""
    return threshold * _MULTIPLE.get()


@contextmanager
def stretched(multiple: float) -> Iterator[None]:
    """In the block every success threshold is so many times what it is."""
    token = _MULTIPLE.set(multiple)
    try:
        yield
    finally:
        _MULTIPLE.reset(token)


def packed(reached: BoolArray, judged: BoolArray) -> IntArray:
    """Whether each rollout reaches its goal at each multiple, as bits: (K, N), (N,) -> (N,) int32."""
    bits = (reached.astype(np.int32) << np.arange(len(reached), dtype=np.int32)[:, None]).sum(axis=0)
    return np.where(judged, bits, UNJUDGED).astype(np.int32)


def unpacked(bits: IntArray) -> BoolArray:
    """The same back, (N,) -> (K, N); of those that are not judged nothing holds."""
    known = np.where(bits == UNJUDGED, 0, bits)
    return (known[None] >> np.arange(len(MULTIPLES))[:, None] & 1).astype(bool)
