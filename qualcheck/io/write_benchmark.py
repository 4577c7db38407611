"""Writes a dict of padded arrays in the benchmark's current Parquet layout."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from qualcheck.errors import UsageError
from qualcheck.io.benchmark_parquet import EMPTY_MARK
from qualcheck.io.columns import to_json
from qualcheck.io.instructions import TextLists, first_strings, valid_text
from qualcheck.types import AnyArray


def write_benchmark(keys: Mapping[str, Any], path: Path, file_name: str) -> None:
    """One row a rollout, arrays as little-endian bytes beside their shape and dtype.

    Args:
        keys: padded arrays, lists of one entry a rollout, and values of the whole file.
        file_name: what the column `file_name` says, unless a key does.

    Raises:
        UsageError: a key has another number of entries than there are rollouts.
    """
    n = len(keys["observations"])
    columns: dict[str, Any] = {
        "file_name": pa.array([str(keys.get("file_name", file_name))] * n, pa.string()),
        "row_index": pa.array(np.arange(n)),
    }
    for name, value in keys.items():
        if name == "file_name":
            continue
        if isinstance(value, np.ndarray) and value.ndim and value.dtype != object:
            columns |= _array(name, value, n)
        elif isinstance(value, list | tuple | TextLists | np.ndarray):
            columns |= _listed(name, list(value[0:]), n)
        elif isinstance(value, str | int | float | bool | None):
            columns[name] = pa.array([value] * n)
        else:
            columns[name] = pa.array([to_json(value)] * n)
    table = pa.table(columns)
    if not n:  # no row is left to say it
        arrays = {k: v for k, v in keys.items() if isinstance(v, np.ndarray) and v.ndim and v.dtype.kind in "biuf"}
        shapes = {name: {"shape": list(value.shape), "dtype": value.dtype.name} for name, value in arrays.items()}
        table = table.replace_schema_metadata({EMPTY_MARK: json.dumps(shapes)})
    pq.write_table(table, path)


def _check(name: str, count: int, n: int) -> None:
    if count != n:
        raise UsageError(
            f"{name!r} holds {count} entries for {n} rollouts; the benchmark's Parquet has one row a rollout. Convert "
            "to npy or canonical instead."
        )


def _array(name: str, value: AnyArray, n: int) -> dict[str, Any]:
    _check(name, len(value), n)
    columns = {
        f"{name}_shape": pa.array([str(tuple(value.shape))] * n, pa.string()),
        f"{name}_dtype": pa.array([value.dtype.str if value.dtype.kind in "US" else value.dtype.name] * n, pa.string()),
    }
    if value.dtype.kind in "US":
        texts = [_cells(row) for row in value.astype(str)]
        columns[f"{name}_data"] = pa.array(texts, pa.list_(pa.string()))
    elif value.ndim == 1:
        columns[f"{name}_data"] = pa.array([[v] for v in value.tolist()], pa.list_(pa.from_numpy_dtype(value.dtype)))
    elif not n:
        columns[f"{name}_data"] = pa.array([], pa.binary())
    else:
        little = np.ascontiguousarray(value, value.dtype.newbyteorder("<"))
        columns[f"{name}_data"] = pa.array([row.tobytes() for row in little], pa.binary())
    return columns


def _listed(name: str, values: list[Any], n: int) -> dict[str, Any]:
    """Entries of different lengths, or single texts and numbers."""
    _check(name, len(values), n)
    if name == "instructions" and len({type(value) for value in values}) > 1:
        # as JSON beside the others a text would get quotes
        values = [[] if text is None else [text] for text in first_strings(values, 0, n)]
    plain = [value.tolist() if isinstance(value, np.ndarray | np.generic) else value for value in values]
    if any(isinstance(value, str) and valid_text(value) != value for value in plain):
        plain = [valid_text(value) if isinstance(value, str) else value for value in plain]
    if not all(isinstance(value, list | tuple) for value in plain):
        try:
            return {f"list_{name}": pa.array(plain)}
        except pa.ArrowException:
            return {f"list_{name}": pa.array([to_json(value) for value in values])}
    arrays = [np.asarray(value) for value in values]
    return {
        f"list_{name}_shape": pa.array([str(tuple(array.shape)) for array in arrays], pa.string()),
        f"list_{name}_dtype": pa.array([_dtype_name(array) for array in arrays], pa.string()),
        f"list_{name}_data": pa.array([_cells(array) for array in arrays]),
    }


def _cells(array: AnyArray) -> list[Any]:
    cells: list[Any] = np.reshape(array, -1).tolist()
    return [valid_text(cell) if isinstance(cell, str) else cell for cell in cells]


def _dtype_name(array: AnyArray) -> str:
    return array.dtype.str if array.dtype.kind in "US" else array.dtype.name
