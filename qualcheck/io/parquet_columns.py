"""Columns of a Parquet file with one row a rollout, read a few rows at a time, in any order of rows."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from qualcheck.errors import DataError
from qualcheck.io.instructions import TextLists
from qualcheck.io.mapped import sound_text
from qualcheck.io.stored import Stored
from qualcheck.types import AnyArray, IntArray

BUFFER = 1 << 17  # bytes of the file held by the reader of one column
BLOCK = 1 << 18  # bytes of one column read at a time: Arrow holds several times as much
TEXT_ROWS = 1_024  # rows of text read at a time


class Cursor:
    """One column of a file, read from row to row; going back costs the reading of a row group from its start.

    Args:
        rows: rows that are read together.
    """

    def __init__(self, path: Path, column: str, rows: int) -> None:
        self.path, self.column, self.rows = path, column, rows
        self._file: pq.ParquetFile | None = None
        self._batches: Iterator[pa.RecordBatch] = iter(())
        self._next = -1  # row that the iterator stands before
        self._held: list[tuple[int, pa.Array]] = []

    def read(self, begin: int, end: int) -> list[pa.Array]:
        """Rows begin..end-1 in pieces.

        Raises:
            DataError: they cannot be read.
        """
        try:
            return self._read(begin, end)
        except (OSError, pa.ArrowException) as error:
            raise unreadable(self.path, error) from error

    def _read(self, begin: int, end: int) -> list[pa.Array]:
        self._held = [(first, part) for first, part in self._held if first + len(part) > begin]
        if begin < (self._held[0][0] if self._held else self._next) or self._next < 0:
            self._seek(begin)
        while self._next < end:
            batch = next(self._batches, None)
            if batch is None:
                break
            sound_text(batch)
            if self._next + len(batch) > begin:
                self._held.append((self._next, batch.column(0)))
            self._next += len(batch)
        found = []
        for first, part in self._held:
            low, high = max(begin - first, 0), min(end - first, len(part))
            if high > low:
                found.append(part.slice(low, high - low))
        return found

    def _seek(self, row: int) -> None:
        if self._file is None:
            # through a small buffer, since Arrow would hold the column of a whole row group otherwise
            source = pa.PythonFile(self.path.open("rb", buffering=0), "r")
            self._file = pq.ParquetFile(source, metadata=_footer(self.path), buffer_size=BUFFER, pre_buffer=False)
        meta = self._file.metadata
        first = 0
        for group in range(meta.num_row_groups):
            size = meta.row_group(group).num_rows
            if first + size > row or group == meta.num_row_groups - 1:
                groups = list(range(group, meta.num_row_groups))
                break
            first += size
        else:
            groups = []
        self._next, self._held = first, []
        self._batches = self._file.iter_batches(self.rows, groups, [self.column], use_threads=False)


def _footer(path: Path) -> pq.FileMetaData:
    """The footer of a file, in memory once for all of its columns: some 8 kB a row group."""
    stat = path.stat()
    return _known_footer(path, stat.st_size, stat.st_mtime_ns)


@lru_cache(maxsize=2)
def _known_footer(path: Path, _size: int, _changed: int) -> pq.FileMetaData:
    with path.open("rb") as stream:
        return pq.read_metadata(stream)


def unreadable(path: Path, error: Exception) -> DataError:
    reason = str(error).split("\n")[0][:200]
    return DataError(f"{path}: cannot be read ({reason}). Is the file whole? Copy it again")


class StoredBytes(Stored):
    """A column of raw bytes, one array a rollout.

    Raises:
        DataError: the first row has another number of bytes than the shape asks for; when read, a later one.
    """

    def __init__(self, path: Path, column: str, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
        super().__init__(shape, dtype)
        self._cursor = Cursor(path, column, self.step)
        self.path, self.column = path, column
        if len(self):
            self.read(0, 1)  # a shape that fits no row is told at once

    @property
    def step(self) -> int:
        return max(BLOCK // max(self.rollout_bytes, 1), 8)

    def read(self, begin: int, end: int) -> AnyArray:
        parts = [self._numbers(part) for part in self._cursor.read(begin, end)]
        if sum(map(len, parts)) != end - begin:
            raise DataError(f"{self.path}: {self.column} ends before its other columns do. Copy it again")
        return parts[0] if len(parts) == 1 else np.concatenate([*parts, np.zeros((0, *self.shape[1:]), self.dtype)])

    def _numbers(self, part: pa.Array) -> AnyArray:
        wide = part if pa.types.is_large_binary(part.type) else part.cast(pa.large_binary())
        _, offsets, data = wide.buffers()
        ends = np.frombuffer(offsets, np.int64)[wide.offset : wide.offset + len(wide) + 1]
        wrong = np.flatnonzero(np.diff(ends) != self.rollout_bytes)
        if part.null_count:
            raise DataError(
                f"{self.path}: {self.column} is empty on {part.null_count} rows; expected data on every row"
            )
        if len(wrong):
            key, found = self.column.removesuffix("_data"), int(np.diff(ends)[wrong[0]])
            raise DataError(
                f"{self.path}: {self.column} has a row of {found} bytes; {key}_shape and {key}_dtype ask for "
                f"{self.rollout_bytes}. Write the file again"
            )
        if not self.rollout_bytes:
            return np.zeros((len(part), *self.shape[1:]), self.dtype)
        flat = np.frombuffer(data, np.uint8)[int(ends[0]) : int(ends[-1])]
        return flat.view(self.dtype).reshape(len(part), *self.shape[1:])


class StoredTexts(TextLists):
    """Lists of one column, one a rollout, read where they are asked for."""

    def __init__(self, path: Path, column: str, rows: int, kind: pa.DataType) -> None:
        self._cursor, self._rows, self._kind = Cursor(path, column, TEXT_ROWS), rows, kind

    def __len__(self) -> int:
        return self._rows

    def _part(self, part: slice) -> pa.Array:
        begin, end, _ = part.indices(self._rows)
        found = self._cursor.read(begin, max(begin, end))
        return pa.concat_arrays([piece.cast(self._kind) for piece in found]) if found else pa.array([], self._kind)


class Reordered(Stored):
    """Another stored array in the order of other rows, copied once to a temporary file without a name.

    Args:
        path: the file, for messages.
        place: (N,) entry of the other array that stands at each place.
    """

    def __init__(self, path: Path, inner: Stored, place: IntArray) -> None:
        super().__init__(inner.shape, inner.dtype)
        self.path, self._inner, self._place = path, inner, place
        self._copy: Any = None

    def read(self, begin: int, end: int) -> AnyArray:
        raw = np.empty((end - begin) * self.rollout_bytes, np.uint8)
        try:
            if self._copy is None:
                self._copy = self._written()
            self._copy.seek(begin * self.rollout_bytes)
            done = 0
            while done < len(raw):
                done += self._copy.readinto(raw.data[done:])
        except OSError as error:
            raise DataError(
                f"{self.path}: its rows lie in another order than row_index, and their copy in {tempfile.gettempdir()} "
                f"failed ({error.strerror}). Sort the file by row_index, or make room there"
            ) from error
        return raw.view(self.dtype).reshape(end - begin, *self.shape[1:])

    def _written(self) -> Any:
        target = np.empty(len(self._place), np.int64)
        target[self._place] = np.arange(len(self._place))
        copy = tempfile.TemporaryFile(buffering=1 << 16)  # noqa: SIM115 - it lives as long as the array
        for first in range(0, len(self), self._inner.step):
            block = self._inner.read(first, min(first + self._inner.step, len(self)))
            for entry, to in zip(block, target[first : first + len(block)].tolist(), strict=True):
                copy.seek(to * self.rollout_bytes)
                copy.write(entry.tobytes())
        copy.flush()
        return copy
