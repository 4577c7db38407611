"""One set of columns for tables whose columns differ, because the inputs of one output do."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from qualcheck.errors import DataError
from qualcheck.io.columns import DTYPE, KIND, KNOWN, PER, SHAPE, json_column, rollout_values


def common_schema(path: Path, schemas: Sequence[pa.Schema]) -> pa.Schema:
    """Columns that hold those of every schema; a column that a table lacks will be null there.

    Raises:
        DataError: one column has vectors of different lengths, or numbers in one input and text in another.
    """
    names = list(dict.fromkeys(name for schema in schemas for name in schema.names))
    fields = []
    for name in names:
        variants = [schema.field(name) for schema in schemas if name in schema.names]
        fields.append(_common(path, name, variants))
    return pa.schema(fields)


def conform(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """The table with the columns of `schema`."""
    columns = [
        _converted(table.schema.field(field.name), table[field.name], field)
        if field.name in table.column_names
        else pa.nulls(table.num_rows, field.type)
        for field in schema
    ]
    return pa.table(columns, schema=schema)


def _common(path: Path, name: str, variants: list[pa.Field]) -> pa.Field:
    first = variants[0]
    if all(field.equals(first, check_metadata=True) for field in variants):
        return first
    if (first.metadata or {}).get(PER) == b"rollout":
        return pa.field(name, pa.string(), metadata={PER: b"rollout", KIND: b"json"})
    if all(field.type == first.type for field in variants) and name in ("reward", "terminal", "truncated"):
        return next(field for field in variants if KNOWN not in (field.metadata or {}))
    try:
        return _wider(name, variants)
    except (TypeError, KeyError) as error:
        kinds = ", ".join(sorted({str(field.type) for field in variants}))
        raise DataError(
            f"{path}: the inputs hold {name.removeprefix('x_')!r} in forms that no column can share ({kinds}). "
            "Write them to separate files"
        ) from error


def _wider(name: str, variants: list[pa.Field]) -> pa.Field:
    """A column of numbers or text wide enough for all; TypeError where there is none."""
    widths = {field.type.list_size if pa.types.is_fixed_size_list(field.type) else 0 for field in variants}
    shapes = {(field.metadata or {}).get(SHAPE) for field in variants}
    if len(widths) > 1 or len(shapes) > 1:
        raise TypeError(name)
    meta = dict(variants[0].metadata or {})
    dtypes = [_dtype(field) for field in variants]
    if len({dtype.kind in "US" for dtype in dtypes}) > 1 or len({dtype.kind for dtype in dtypes} & set("US")) > 1:
        raise TypeError(name)
    dtype = np.result_type(*dtypes)
    if DTYPE in meta:
        meta[DTYPE] = dtype.str.encode()
    item = pa.string() if dtype.kind == "U" else pa.binary() if dtype.kind == "S" else pa.from_numpy_dtype(dtype)
    if name == "action" and not widths - {0} and dtype.kind in "iub" and dtype != np.uint64:
        item = pa.int64()
    (width,) = widths
    return pa.field(name, pa.list_(item, width) if width else item, metadata=meta or None)


def _dtype(field: pa.Field) -> np.dtype[Any]:
    meta = field.metadata or {}
    item = field.type.value_type if pa.types.is_fixed_size_list(field.type) else field.type
    dtype: np.dtype[Any] = np.dtype(meta[DTYPE].decode() if DTYPE in meta else item.to_pandas_dtype())
    return dtype


def _converted(old: pa.Field, column: pa.ChunkedArray, new: pa.Field) -> Any:
    if (new.metadata or {}).get(KIND) == b"json" and (old.metadata or {}).get(KIND) != b"json":
        cells = rollout_values(old, column)
        return json_column([None if cell is None else cell for cell in cells], column.is_valid().to_pylist())
    return column if old.type == new.type else column.cast(new.type)
