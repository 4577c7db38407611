"""Arrays that stay in their file: one entry a rollout, read by blocks of whole rollouts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from qualcheck.errors import DataError
from qualcheck.types import AnyArray

BLOCK = 4 << 20  # bytes read at a time: enough for the disk, small enough for the processor's cache


class Stored:
    """An array of one entry a rollout, (N, ...), of which `read` and slices give blocks.

    Two readers of one such array must not run in two threads at once.
    """

    def __init__(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
        self.shape, self.dtype, self.ndim = shape, dtype, len(shape)

    def __len__(self) -> int:
        return self.shape[0]

    @property
    def rollout_bytes(self) -> int:
        """Bytes of one entry."""
        size: int = int(np.prod(self.shape[1:], dtype=object)) * self.dtype.itemsize
        return size

    @property
    def step(self) -> int:
        """Entries that are well read at once, at least 1."""
        return max(BLOCK // max(self.rollout_bytes, 1), 1)

    def read(self, begin: int, end: int) -> AnyArray:
        """Entries begin..end-1, 0 <= begin <= end <= N; they may be overwritten by the next call.

        Raises:
            DataError: the file no longer holds them.
        """
        raise NotImplementedError

    def whole(self) -> AnyArray:
        """The array in memory, or mapped from the disk."""
        return self[:]

    def __getitem__(self, part: slice) -> AnyArray:
        begin, end, _ = part.indices(len(self))
        if end - begin <= self.step:
            return np.array(self.read(begin, max(begin, end)))
        found: AnyArray = np.empty((end - begin, *self.shape[1:]), self.dtype)
        for first in range(begin, end, self.step):
            last = min(first + self.step, end)
            found[first - begin : last - begin] = self.read(first, last)
        return found

    def __iter__(self) -> Iterator[AnyArray]:
        for first in range(0, len(self), self.step):
            yield from np.array(self.read(first, min(first + self.step, len(self))))

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> AnyArray:
        return np.asarray(self.whole(), dtype)


class Contiguous(Stored):
    """Numbers that lie in one piece of a file in C order.

    Args:
        offset: byte of the file where the first entry begins.

    Raises:
        DataError: the file ends before the array does.
    """

    def __init__(self, path: Path, name: str, shape: tuple[int, ...], dtype: np.dtype[Any], offset: int) -> None:
        super().__init__(shape, dtype)
        self.path, self._name, self._offset = path, name, offset
        if offset + len(self) * self.rollout_bytes > path.stat().st_size:
            raise self._short()
        self._file = path.open("rb", buffering=0)
        self._buffer = np.zeros(0, np.uint8)  # new memory for each block costs as much as reading it

    def _short(self) -> DataError:
        return DataError(f"{self.path}: {self._name!r} goes on past the end of the file. Copy it again")

    def read(self, begin: int, end: int) -> AnyArray:
        size = (end - begin) * self.rollout_bytes
        if len(self._buffer) < size:
            self._buffer = np.empty(size, np.uint8)
        into = self._buffer[:size]
        self._file.seek(self._offset + begin * self.rollout_bytes)
        done = 0
        while done < size:
            got = self._file.readinto(into.data[done:])
            if not got:
                raise self._short()
            done += got
        return into.view(self.dtype).reshape(end - begin, *self.shape[1:])

    def whole(self) -> AnyArray:
        if not self.rollout_bytes * len(self):
            return np.zeros(self.shape, self.dtype)
        return np.memmap(self.path, self.dtype, "r", self._offset, self.shape)


class Reshaped(Stored):
    """Another stored array whose entries have another shape of as many numbers."""

    def __init__(self, inner: Stored, shape: tuple[int, ...]) -> None:
        super().__init__((len(inner), *shape), inner.dtype)
        self._inner = inner

    def read(self, begin: int, end: int) -> AnyArray:
        return self._inner.read(begin, end).reshape(end - begin, *self.shape[1:])


class StoredKeys(Mapping[str, Any]):
    """A file's values by key; arrays that stay in the file are loaded or mapped when asked for, and then kept."""

    def __init__(self, raw: Mapping[str, Any]) -> None:
        self._raw = dict(raw)

    def __getitem__(self, key: str) -> Any:
        value = self._raw[key]
        if isinstance(value, Stored):
            value = self._raw[key] = value.whole()
        return value

    def __iter__(self) -> Iterator[str]:
        return iter(self._raw)

    def __len__(self) -> int:
        return len(self._raw)


def in_memory(raw: Mapping[str, Any]) -> dict[str, Any]:
    """The values by key, each loaded or mapped."""
    return dict(StoredKeys(raw))


def blocks(array: AnyArray | Stored, begin: int, end: int) -> Iterator[tuple[int, int, AnyArray]]:
    """Entries begin..end-1 in pieces: (first, end, block); a block may be overwritten when the next is asked for."""
    if isinstance(array, np.ndarray):
        yield begin, end, array[begin:end]
        return
    end = min(end, len(array))
    for first in range(begin, end, array.step):
        last = min(first + array.step, end)
        yield first, last, array.read(first, last)
