"""Writes a dict of padded arrays in the benchmark's current Parquet layout."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from qualcheck.errors import UsageError
from qualcheck.io.columns import to_json
from qualcheck.io.instructions import TextLists
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
    pq.write_table(pa.table(columns), path)


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
        texts = value.reshape(n, -1).astype(str).tolist()
        columns[f"{name}_data"] = pa.array(texts, pa.list_(pa.string()))
    elif value.ndim == 1:
        columns[f"{name}_data"] = pa.array([[v] for v in value.tolist()], pa.list_(pa.from_numpy_dtype(value.dtype)))
    else:
        little = np.ascontiguousarray(value, value.dtype.newbyteorder("<"))
        columns[f"{name}_data"] = pa.array([row.tobytes() for row in little], pa.binary())
    return columns


def _listed(name: str, values: list[Any], n: int) -> dict[str, Any]:
    """Entries of different lengths, or single texts and numbers."""
    _check(name, len(values), n)
    plain = [value.tolist() if isinstance(value, np.ndarray | np.generic) else value for value in values]
    if not all(isinstance(value, list | tuple) for value in plain):
        try:
            return {f"list_{name}": pa.array(plain)}
        except pa.ArrowException:
            return {f"list_{name}": pa.array([to_json(value) for value in values])}
    arrays = [np.asarray(value) for value in values]
    return {
        f"list_{name}_shape": pa.array([str(tuple(array.shape)) for array in arrays], pa.string()),
        f"list_{name}_dtype": pa.array([_dtype_name(array) for array in arrays], pa.string()),
        f"list_{name}_data": pa.array([array.reshape(-1).tolist() for array in arrays]),
    }


def _dtype_name(array: AnyArray) -> str:
    return array.dtype.str if array.dtype.kind in "US" else array.dtype.name
