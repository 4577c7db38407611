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
from qualcheck.types import AnyArray, IntArray

EMPTY_MARK = b"qualcheck.empty_shapes"  # shapes of a file without rollouts
_SHAPE = re.compile(r"\s*\(\s*(\d+(?:\s*,\s*\d+)*)?\s*,?\s*\)\s*")
_DTYPE = re.compile(r"[<>=|]?(?:bool|u?int(?:8|16|32|64)|float(?:16|32|64)|[biuf][1248]|\?)")


def recognises(names: list[str]) -> bool:
    """Whether these columns are those of the benchmark's layout."""
    return "row_index" in names and any(name.endswith("_data") for name in names)


def read_benchmark(path: Path, file: pq.ParquetFile) -> tuple[dict[str, Any], dict[str, Any]]:
    """The arrays by key, rollouts in the order of `row_index`, and the file's own scalars.

    Raises:
        DataError: a shape, dtype or data column does not fit the others.
    """
    try:
        table = file.read()
    except (OSError, pa.ArrowException) as error:
        raise DataError(f"{path}: cannot be read ({_first_line(error)}). Is the file whole? Copy it again") from error
    order = _order(path, table)
    arrays: dict[str, Any] = {}
    scalars: dict[str, Any] = {}
    names = set(table.column_names)
    for name in table.column_names:
        stem = name.removesuffix("_data")
        part_of_array = any(
            name.endswith(end) and f"{name.removesuffix(end)}_data" in names for end in ("_shape", "_dtype")
        )
        if name == "row_index" or part_of_array:
            continue
        if name.endswith("_data") and name.startswith("list_"):
            arrays[stem.removeprefix("list_")] = _ragged(path, table, stem, order)
        elif name.endswith("_data") and f"{stem}_shape" in names:
            arrays[stem] = _full_array(path, table, stem, order)
        elif name.startswith("list_"):
            arrays[name.removeprefix("list_")] = _one(table[name]).take(order).to_pylist()
        elif table.num_rows:
            scalars[name] = table[name][0].as_py()
    return arrays, scalars


def _order(path: Path, table: pa.Table) -> pa.Array:
    column = table["row_index"]
    if not pa.types.is_integer(column.type) or column.null_count:
        raise DataError(
            f"{path}: row_index is {column.type} with {column.null_count} empty cells; expected an integer on every "
            "row. Number the rows 0, 1, 2, ..."
        )
    places: IntArray = column.to_numpy()
    order = np.argsort(places, kind="stable")
    if len(places) and not np.diff(places[order]).all():
        raise DataError(f"{path}: row_index holds a number twice; expected each once. Number the rows 0, 1, 2, ...")
    return pa.array(order)


def _full_array(path: Path, table: pa.Table, key: str, order: pa.Array) -> Any:
    if not table.num_rows:
        return _no_rows(path, table, key)
    column = table[f"{key}_data"]
    shape = _row_shape(path, key, table[f"{key}_shape"][0].as_py())
    if column.null_count:
        raise DataError(f"{path}: {key}_data is empty on {column.null_count} rows; expected data on every row")
    if pa.types.is_binary(column.type) or pa.types.is_large_binary(column.type):
        return _from_bytes(path, table, key, shape, order)
    lists = _one(column).take(order)
    if not pa.types.is_list(lists.type) and not pa.types.is_large_list(lists.type):
        raise DataError(f"{path}: {key}_data is {column.type}; expected bytes or a list, as the benchmark writes")
    texts = pa.types.is_string(lists.type.value_type) or pa.types.is_large_string(lists.type.value_type)
    if texts:
        return TextLists(lists)
    values = np.asarray(lists.flatten().to_numpy(zero_copy_only=False))
    if (lists.value_lengths().to_numpy() != math.prod(shape)).any():
        raise DataError(f"{path}: {key}_data holds lists of other lengths than {key}_shape says. Write the file again")
    return values.reshape(len(lists), *shape)


def _no_rows(path: Path, table: pa.Table, key: str) -> AnyArray:
    """An array of no rollouts, of the shape that the file says once for all."""
    try:
        told = json.loads((table.schema.metadata or {}).get(EMPTY_MARK, b"{}")).get(key)
        return np.zeros((0,), np.float32) if told is None else np.zeros((0, *told["shape"][1:]), told["dtype"])
    except (ValueError, TypeError, KeyError, AttributeError, MemoryError) as error:
        raise DataError(f"{path}: the shape of {key!r} in its metadata cannot be read. Write the file again") from error


def _ragged(path: Path, table: pa.Table, key: str, order: pa.Array) -> Any:
    """Lists of one entry a rollout: of text as they are, of numbers as arrays of each row's own shape."""
    lists = _one(table[f"{key}_data"]).take(order)
    listed = pa.types.is_list(lists.type) or pa.types.is_large_list(lists.type)
    names = table.column_names
    numbers = listed and (pa.types.is_integer(lists.type.value_type) or pa.types.is_floating(lists.type.value_type))
    if not numbers or f"{key}_shape" not in names or f"{key}_dtype" not in names:
        return TextLists(lists)
    told = (table[f"{key}_{what}"].combine_chunks().take(order).to_pylist() for what in ("shape", "dtype"))
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


def _from_bytes(path: Path, table: pa.Table, key: str, shape: tuple[int, ...], order: pa.Array) -> AnyArray:
    name = table[f"{key}_dtype"][0].as_py() if f"{key}_dtype" in table.column_names else None
    if not isinstance(name, str) or not _DTYPE.fullmatch(name):
        raise DataError(f"{path}: {key}_dtype is not a plain number type; expected a name such as 'float32'")
    dtype = np.dtype(name).newbyteorder("<")
    size = math.prod(shape) * dtype.itemsize
    chunks = []
    for chunk in table[f"{key}_data"].chunks:
        wide = chunk.cast(pa.large_binary())
        _, offsets, data = wide.buffers()
        ends = np.frombuffer(offsets, np.int64)[wide.offset : wide.offset + len(wide) + 1]
        wrong = np.flatnonzero(np.diff(ends) != size)
        if len(wrong):
            found = int(np.diff(ends)[wrong[0]])
            raise DataError(
                f"{path}: {key}_data has a row of {found} bytes; {key}_shape and {key}_dtype ask for {size}. "
                "Write the file again"
            )
        if size and len(wide):
            chunks.append(np.frombuffer(data, np.uint8)[int(ends[0]) : int(ends[-1])].view(dtype).reshape(-1, *shape))
    if not chunks:
        return np.zeros((table.num_rows, *shape), dtype)
    whole = chunks[0] if len(chunks) == 1 else np.concatenate(chunks)
    places = order.to_numpy()
    return whole if np.array_equal(places, np.arange(len(places))) else whole[places]


def _one(column: pa.ChunkedArray) -> pa.Array:
    return column.combine_chunks() if column.num_chunks != 1 else column.chunk(0)


def _first_line(error: Exception) -> str:
    return str(error).split("\n")[0][:200]
