"""Instruction codes back to the text, or the task, that they stand for."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from qualcheck.errors import DataError
from qualcheck.io.npy import load_npy
from qualcheck.types import AnyArray, BoolArray, FloatArray

ACCEPT = 0.05  # Euclidean distance; codes of two Meta-World tasks are at least 0.246 apart (spec of that environment)
FEWEST = 2  # numbers that make a code
CHUNK = 32  # rollouts compared at a time, so that their codes stay in the processor's cache


class Encodings:
    """Reference codes, each under its name: the instruction itself, or the task where a name has several codes.

    Args:
        path: a `.npy` with a pickled dict, name -> (..., E) numbers, as the benchmark ships.

    Raises:
        DataError: it holds anything else.
    """

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)
        if not self.path.is_file():
            raise DataError(f"{path}: no such file. Check the path after --encodings")
        with self.path.open("rb") as stream:
            is_npy = stream.read(6) == b"\x93NUMPY"
        raw = load_npy(self.path) if is_npy else None
        expected = "expected a dict of text -> instruction codes, all of one length. Is this the file of codes?"
        if not isinstance(raw, dict) or not raw:
            raise DataError(f"{path}: holds no such dict; {expected}")
        parts = []
        for name, codes in raw.items():
            plain = isinstance(codes, np.ndarray) and codes.dtype.kind == "f" and codes.ndim >= 1
            if not isinstance(name, str) or not plain or codes.shape[-1] < FEWEST:
                raise DataError(f"{path}: its entry {str(name)[:60]!r} is no array of codes; {expected}")
            parts.append(codes.reshape(-1, codes.shape[-1]).astype(np.float64))
        if len({part.shape[1] for part in parts}) != 1:
            raise DataError(f"{path}: codes of different lengths; {expected}")
        self._codes: FloatArray = np.concatenate(parts)  # (C, E)
        self._names = [name for name, part in zip(raw, parts, strict=True) for _ in part]

    @property
    def size(self) -> int:
        """Numbers of one code."""
        return int(self._codes.shape[1])

    def by_name(self) -> dict[str, FloatArray]:
        """Name -> its reference codes, (k, E)."""
        names = np.array(self._names)
        return {name: self._codes[names == name] for name in dict.fromkeys(self._names)}

    def names(self, codes: AnyArray) -> list[str | None]:
        """The name of the nearest reference code of each code, (N, E); None where none is within `ACCEPT`."""
        distinct, back = np.unique(codes, axis=0, return_inverse=True)
        found: list[str | None] = []
        for code in distinct.astype(np.float64):
            with np.errstate(invalid="ignore", over="ignore"):
                gap = ((self._codes - code) ** 2).sum(axis=1)
            nearest = int(np.argmin(np.where(np.isnan(gap), np.inf, gap)))
            found.append(self._names[nearest] if gap[nearest] < ACCEPT**2 else None)
        return [found[place] for place in back.reshape(-1).tolist()]


def code_varies(codes: AnyArray, mask: BoolArray) -> BoolArray:
    """Rollouts whose code is not the same on every valid row.

    Args:
        codes: (n, T, E).
        mask: valid rows, (n, T).
    """
    varies = np.zeros(len(codes), bool)
    at = mask.argmax(axis=1)  # (n,)
    for begin in range(0, len(codes), CHUNK):
        part = slice(begin, begin + CHUNK)
        block = codes[part]
        first = block[np.arange(len(block)), at[part]]  # (n, E)
        differs = (block != first[:, None]).any(axis=2)[:, : mask.shape[1]] & mask[part]
        for place in np.flatnonzero(differs.any(axis=1)).tolist():
            rows = block[place][differs[place]]
            same = (rows == first[place]) | (np.isnan(rows) & np.isnan(first[place]))
            varies[begin + place] = not same.all()
    return varies
