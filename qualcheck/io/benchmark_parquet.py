"""The benchmark's current Parquet files: one row a rollout, arrays as raw bytes with their shape as text."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from qualcheck.errors import DataError
from qualcheck.io.instructions import TextLists
from qualcheck.io.mapped import sound_text
from qualcheck.io.parquet_columns import Reordered, StoredBytes, StoredTexts, unreadable
from qualcheck.types import AnyArray, IntArray

EMPTY_MARK = b"qualcheck.empty_shapes"  # shapes of a file without rollouts
_SHAPE = re.compile(r"\s*\(\s*(\d+(?:\s*,\s*\d+)*)?\s*,?\s*\)\s*")
_DTYPE = re.compile(r"[<>=|]?(?:bool|u?int(?:8|16|32|64)|float(?:16|32|64)|[biuf][1248]|\?)")


def recognises(names: list[str]) -> bool:
    """Whether these columns are those of the benchmark's layout."""
    return "row_index" in names and any(name.endswith("_data") for name in names)


def read_benchmark(path: Path, file: pq.ParquetFile) -> tuple[dict[str, Any], dict[str, Any]]:
    """The arrays by key, rollouts in the order of `row_index`, and the file's own scalars.

    Arrays of raw bytes come as `Stored` and texts as lists that are read when asked for; their sizes are checked then.

    Raises:
        DataError: a shape, dtype or data column does not fit the others.
    """
    columns = _Columns(path, file)
    arrays: dict[str, Any] = {}
    scalars: dict[str, Any] = {}
    names = set(columns.names)
    for name in columns.names:
        stem = name.removesuffix("_data")
        part_of_array = any(
            name.endswith(end) and f"{name.removesuffix(end)}_data" in names for end in ("_shape", "_dtype")
        )
        if name == "row_index" or part_of_array:
            continue
        if name.endswith("_data") and name.startswith("list_"):
            arrays[stem.removeprefix("list_")] = _ragged(columns, stem)
        elif name.endswith("_data") and f"{stem}_shape" in names:
            arrays[stem] = _full_array(columns, stem)
        elif name.startswith("list_"):
            arrays[name.removeprefix("list_")] = columns.values(name)
        elif columns.rows:
            scalars[name] = columns.first(name)
    return arrays, scalars


class _Columns:
    """The columns of a file, rollouts in the order of `row_index`."""

    def __init__(self, path: Path, file: pq.ParquetFile) -> None:
        self.path, self._file = path, file
        self.schema: pa.Schema = file.schema_arrow
        self.names: list[str] = self.schema.names
        self.rows: int = file.metadata.num_rows
        order = _order(path, self._read("row_index"))
        self.order = None if np.array_equal(order, np.arange(len(order))) else order  # (N,)

    def kind(self, name: str) -> pa.DataType:
        return self.schema.field(name).type

    def _read(self, name: str) -> pa.ChunkedArray:
        try:
            return sound_text(self._file.read(columns=[name], use_threads=False))[name]
        except (OSError, pa.ArrowException) as error:
            raise unreadable(self.path, error) from error

    def first(self, name: str) -> Any:
        """What the first row of the file holds."""
        try:
            part = next(self._file.iter_batches(1, columns=[name], use_threads=False), None)
        except (OSError, pa.ArrowException) as error:
            raise unreadable(self.path, error) from error
        if part is None:
            raise DataError(f"{self.path}: {name} has no row where {self.rows} are announced. Copy the file again")
        try:
            return sound_text(part)[name][0].as_py()
        except pa.ArrowException as error:
            raise unreadable(self.path, error) from error

    def whole(self, name: str) -> pa.Array:
        """A column in memory."""
        column = self._read(name)
        joined = column.combine_chunks() if column.num_chunks != 1 else column.chunk(0)
        return joined if self.order is None else joined.take(pa.array(self.order))

    def values(self, name: str) -> list[Any]:
        """A column as Python's own values, equal texts only once."""
        column = self.whole(name)
        if not pa.types.is_string(column.type) and not pa.types.is_large_string(column.type):
            listed: list[Any] = column.to_pylist()
            return listed
        coded = column.dictionary_encode()
        texts = [*coded.dictionary.to_pylist(), None]
        return [texts[place] for place in coded.indices.fill_null(len(texts) - 1).to_pylist()]

    def texts(self, name: str) -> TextLists:
        if self.order is None:
            return StoredTexts(self.path, name, self.rows, self.kind(name))
        return TextLists(self.whole(name))

    def empty(self, name: str) -> int:
        """Rows of a column of lists that are empty; of raw bytes reading tells.

        Not from the statistics of the file: where those are damaged, Arrow ends the process.
        """
        return int(self._read(name).null_count) if self.schema.field(name).type.num_fields else 0


def _order(path: Path, column: pa.ChunkedArray) -> IntArray:
    if not pa.types.is_integer(column.type) or column.null_count:
        raise DataError(
            f"{path}: row_index is {column.type} with {column.null_count} empty cells; expected an integer on every "
            "row. Number the rows 0, 1, 2, ..."
        )
    places: IntArray = column.to_numpy()
    order: IntArray = np.argsort(places, kind="stable")
    if len(places) and not np.diff(places[order]).all():
        raise DataError(f"{path}: row_index holds a number twice; expected each once. Number the rows 0, 1, 2, ...")
    return order


def _full_array(columns: _Columns, key: str) -> Any:
    path, name = columns.path, f"{key}_data"
    if not columns.rows:
        return _no_rows(path, columns.schema, key)
    kind = columns.kind(name)
    shape = _row_shape(path, key, columns.first(f"{key}_shape"))
    empty = columns.empty(name)
    if empty:
        raise DataError(f"{path}: {name} is empty on {empty} rows; expected data on every row")
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        stored = StoredBytes(path, name, (columns.rows, *shape), _dtype(columns, key))
        return stored if columns.order is None else Reordered(path, stored, columns.order)
    if not pa.types.is_list(kind) and not pa.types.is_large_list(kind):
        raise DataError(f"{path}: {name} is {kind}; expected bytes or a list, as the benchmark writes")
    if pa.types.is_string(kind.value_type) or pa.types.is_large_string(kind.value_type):
        return columns.texts(name)
    lists = columns.whole(name)
    values = np.asarray(lists.flatten().to_numpy(zero_copy_only=False))
    if (lists.value_lengths().to_numpy() != math.prod(shape)).any():
        raise DataError(f"{path}: {name} holds lists of other lengths than {key}_shape says. Write the file again")
    return values.reshape(len(lists), *shape)


def _no_rows(path: Path, schema: pa.Schema, key: str) -> AnyArray:
    """An array of no rollouts, of the shape that the file says once for all."""
    try:
        told = json.loads((schema.metadata or {}).get(EMPTY_MARK, b"{}")).get(key)
        return np.zeros((0,), np.float32) if told is None else np.zeros((0, *told["shape"][1:]), told["dtype"])
    except (ValueError, TypeError, KeyError, AttributeError, MemoryError) as error:
        raise DataError(f"{path}: the shape of {key!r} in its metadata cannot be read. Write the file again") from error


def _ragged(columns: _Columns, key: str) -> Any:
    """Lists of one entry a rollout: of text as they are, of numbers as arrays of each row's own shape."""
    path, kind = columns.path, columns.kind(f"{key}_data")
    listed = pa.types.is_list(kind) or pa.types.is_large_list(kind)
    numbers = listed and (pa.types.is_integer(kind.value_type) or pa.types.is_floating(kind.value_type))
    if not numbers or f"{key}_shape" not in columns.names or f"{key}_dtype" not in columns.names:
        return columns.texts(f"{key}_data")
    lists = columns.whole(f"{key}_data")
    told = (columns.values(f"{key}_{what}") for what in ("shape", "dtype"))
    arrays = []
    for values, shape, dtype in zip(lists.to_pylist(), *told, strict=True):
        found = _SHAPE.fullmatch(shape) if isinstance(shape, str) and len(shape) < 200 else None
        if found is None or not isinstance(dtype, str) or not _DTYPE.fullmatch(dtype):
            raise DataError(f"{path}: {key}_shape or {key}_dtype is none; expected such as '(21, 10)' and 'float32'")
        size = tuple(int(n) for n in found[1].split(",")) if found[1] else ()
        if len(values or []) != math.prod(size):
            raise DataError(f"{path}: {key}_data has a list of another length than {key}_shape says")
        arrays.append(np.array(values or [], np.dtype(dtype)).reshape(size))
    return arrays


def _row_shape(path: Path, key: str, text: Any) -> tuple[int, ...]:
    if text is None:
        return ()
    found = _SHAPE.fullmatch(text) if isinstance(text, str) and len(text) < 200 else None
    if found is None or not found[1]:
        raise DataError(f"{path}: {key}_shape is not a shape; expected text such as '(18000, 39, 17)'")
    return tuple(int(n) for n in found[1].split(","))[1:]


def _dtype(columns: _Columns, key: str) -> np.dtype[Any]:
    name = columns.first(f"{key}_dtype") if f"{key}_dtype" in columns.names else None
    if not isinstance(name, str) or not _DTYPE.fullmatch(name):
        raise DataError(f"{columns.path}: {key}_dtype is not a plain number type; expected a name such as 'float32'")
    return np.dtype(name).newbyteorder("<")
