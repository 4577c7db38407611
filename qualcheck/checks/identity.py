"""Which rollouts are the same, and which share their start and instruction."""

from __future__ import annotations

import zlib

import numpy as np
from numpy.typing import NDArray

from qualcheck.types import AnyArray, IntArray, Rollouts

_MIX = np.uint64(0x9E3779B97F4A7C15)
_CHUNK = 8_192  # rows; what is mixed at once stays in the cache


def _weights(size: int, salt: int) -> NDArray[np.uint64]:
    """Odd 64-bit weights from the splitmix64 sequence, equal on every machine."""
    with np.errstate(over="ignore"):
        z = (np.arange(1, size + 1, dtype=np.uint64) + np.uint64(salt)) * _MIX
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return (z ^ (z >> np.uint64(31))) | np.uint64(1)


def row_hash(rows: AnyArray, salt: int = 0) -> NDArray[np.uint64]:
    """A 64-bit hash of each row's bytes, (R, ...) -> (R,): a weighted sum of its 32-bit words, then mixed."""
    if not rows.size:
        return np.zeros(len(rows), np.uint64)
    raw = np.ascontiguousarray(rows).reshape(len(rows), -1).view(np.uint8)
    words = raw.view(np.uint32) if raw.shape[1] % 4 == 0 else raw.astype(np.uint32)
    weights = _weights(words.shape[1], salt)
    total = np.empty(len(rows), np.uint64)
    for begin in range(0, len(rows), _CHUNK):
        part = words[begin : begin + _CHUNK]
        # small floats differ in their high bits only, which a product modulo 2**64 would lose
        mixed = (part ^ (part >> np.uint32(15))).astype(np.uint64)
        total[begin : begin + _CHUNK] = np.einsum("ij,j->i", mixed, weights)
    with np.errstate(over="ignore"):
        total *= _MIX
    total ^= total >> np.uint64(29)
    return total


def _text_hash(rollouts: Rollouts) -> NDArray[np.uint64]:
    known: dict[str | None, int] = {None: 0}
    for text in set(rollouts.instruction) - {None}:
        raw = (text or "").encode("utf-8", "surrogatepass")
        known[text] = zlib.crc32(raw) << 32 | zlib.adler32(raw)
    return np.array([known[text] for text in rollouts.instruction], np.uint64)


def cluster(rollouts: Rollouts) -> NDArray[np.int64]:
    """Equal for rollouts with equal row 0 and instruction, (N,)."""
    start = row_hash(rollouts.context_obs)
    with np.errstate(over="ignore"):
        mixed = (start ^ (_text_hash(rollouts) * _MIX)) * _MIX
    return mixed.view(np.int64)


def fingerprint(rollouts: Rollouts) -> NDArray[np.uint64]:
    """Equal for rollouts with equal rows, actions and instruction, (N,)."""
    longest = int(rollouts.length.max(initial=0)) + 2
    place = _weights(longest, salt=7)
    inside = np.arange(len(rollouts.obs)) - np.repeat(rollouts.row_offsets[:-1], np.diff(rollouts.row_offsets))
    with np.errstate(over="ignore"):
        of_rows = _sums(row_hash(rollouts.obs) * place[inside], rollouts.row_offsets)
        of_acts = _sums(row_hash(rollouts.action, 3) * place[rollouts.step], rollouts.offsets)
        size = rollouts.length.astype(np.uint64) * _MIX
        mixed: NDArray[np.uint64] = of_rows ^ (of_acts * _MIX) ^ _text_hash(rollouts) ^ size
        return mixed


def _sums(values: NDArray[np.uint64], offsets: IntArray) -> NDArray[np.uint64]:
    """Sums between the offsets modulo 2**64, (R,), (N+1,) -> (N,)."""
    total = np.zeros(len(values) + 1, np.uint64)
    np.cumsum(values, out=total[1:])
    return total[offsets[1:]] - total[offsets[:-1]]
