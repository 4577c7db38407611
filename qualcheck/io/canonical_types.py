"""Arrow types that the columns of qualcheck's own files may have after other tools rewrote them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from qualcheck.errors import DataError
from qualcheck.spec import EnvSpec
from qualcheck.types import IntArray

NEEDED = ("rollout", "step", "obs", "action")
ROWS = ("obs", "next_obs", "reset_obs")
HIDDEN = "hidden"
TEXTS = ("instruction", "task", "level", "generator", "source", "start", "flags", "defect")
PLACES = ("rollout", "step", "source_rollout", "source_step", "code")
STEPS = ("reward", "terminal", "truncated")


def is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_floating(kind) or pa.types.is_integer(kind))


def _is_list(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind))


def _is_text(kind: pa.DataType) -> bool:
    kind = kind.value_type if pa.types.is_dictionary(kind) else kind
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def check_names(path: Path, schema: pa.Schema) -> None:
    """Refuse a file with a column twice, or without one that every rollout needs.

    Raises:
        DataError: it is one.
    """
    twice = sorted({name for name in schema.names if schema.names.count(name) > 1})
    if twice:
        raise DataError(f"{path}: column {twice[0]!r} is there twice; expected each once. Drop one of them")
    missing = [name for name in NEEDED if name not in schema.names]
    if missing:
        raise DataError(f"{path}: no column {missing[0]!r}; expected {', '.join(NEEDED)} and more")


def usual_schema(path: Path, schema: pa.Schema, spec: EnvSpec) -> pa.Schema:
    """The columns with the types that this layout has; an optional column that is null throughout is left out.

    Raises:
        DataError: a column of another kind.
    """
    fields = []
    for field in schema:
        name, kind = field.name, field.type
        if pa.types.is_null(kind) and name not in NEEDED and name in (*ROWS, HIDDEN, *TEXTS, *PLACES, *STEPS):
            continue
        fields.append(field.with_type(_usual(path, name, kind, spec)))
    return pa.schema(fields, schema.metadata)


def _usual(path: Path, name: str, kind: pa.DataType, spec: EnvSpec) -> pa.DataType:
    if name in PLACES:
        held = kind.value_type if pa.types.is_dictionary(kind) else kind
        if not is_number(held):
            raise _other(path, name, kind, "integers")
        return pa.int64() if pa.types.is_floating(held) else held
    if name in TEXTS:
        if not _is_text(kind):
            raise _other(path, name, kind, "text")
    elif name in STEPS:
        if not is_number(kind) and not pa.types.is_boolean(kind):
            raise _other(path, name, kind, "one number a transition")
    elif name in (*ROWS, HIDDEN, "action"):
        width = {"action": spec.action.size, HIDDEN: len(spec.hidden)}.get(name, spec.obs_size)
        if _is_list(kind) and is_number(kind.value_type):
            return pa.list_(kind.value_type, width)
        vectors = pa.types.is_fixed_size_list(kind) and is_number(kind.value_type)
        plain = name == "action" and (is_number(kind) or pa.types.is_boolean(kind))
        if not vectors and not plain:
            raise _other(path, name, kind, "numbers" if name == "action" else f"vectors of {width} numbers")
    return kind


def _other(path: Path, name: str, kind: pa.DataType, expected: str) -> DataError:
    return DataError(f"{path}: column {name!r} is {kind}; expected {expected}. Write the column again")


def converted(path: Path, table: pa.Table, schema: pa.Schema) -> pa.Table:
    """The table with its columns as `usual_schema` has them.

    Raises:
        DataError: lists of different lengths, or ids that are no whole numbers.
    """
    columns: list[Any] = []
    fields = [schema.field(name) for name in table.column_names]
    for field in fields:
        column = table[field.name]
        if column.type != field.type:
            column = (
                _vectors(path, field, column)
                if pa.types.is_fixed_size_list(field.type)
                else _whole(path, field, column)
            )
        columns.append(column)
    return pa.table(columns, schema=pa.schema(fields, table.schema.metadata))


def _whole(path: Path, field: pa.Field, column: pa.ChunkedArray) -> pa.ChunkedArray:
    try:
        return column.cast(field.type)
    except pa.ArrowException as error:
        raise DataError(
            f"{path}: column {field.name!r} is {column.type} with numbers that are no integers; expected integers. "
            "Number the rollouts and their steps"
        ) from error


def _vectors(path: Path, field: pa.Field, column: pa.ChunkedArray) -> pa.ChunkedArray:
    width: int = field.type.list_size
    lengths = pc.unique(pc.list_value_length(column).drop_null()).to_pylist()
    if set(lengths) - {width}:
        shown = f"{min(lengths)} to {max(lengths)}" if len(lengths) > 1 else str(lengths[0])
        raise DataError(
            f"{path}: column {field.name!r} holds lists of {shown} numbers; expected {width} in every cell. "
            "Write it as vectors of one length"
        )
    chunks = []
    for chunk in column.chunks:
        valid = chunk.is_valid().to_numpy(zero_copy_only=False)
        held = pa.FixedSizeListArray.from_arrays(chunk.flatten(), width)
        chunks.append(held if valid.all() else held.take(pa.array(np.cumsum(valid) - 1, mask=~valid)))
    return pa.chunked_array(chunks, field.type)


def row_dtype(schema: pa.Schema) -> np.dtype[Any]:
    """A dtype that holds the rows of every column that has some."""
    kinds = [schema.field(name).type.value_type.to_pandas_dtype() for name in ROWS if name in schema.names]
    found: np.dtype[Any] = np.result_type(*kinds)
    return found


def int32(path: Path, name: str, values: Any) -> IntArray:
    """Whole numbers as int32, never wrapped.

    Raises:
        DataError: one does not fit.
    """
    given = np.asarray(values)
    with np.errstate(invalid="ignore"):
        narrow = given.astype(np.int32)
    wrong = np.flatnonzero(narrow != given)
    if len(wrong):
        raise DataError(
            f"{path}: {name!r} holds {given[wrong[0]]}; expected whole numbers below {2**31:,}. Number its entries anew"
        )
    return narrow


def choose_rows(path: Path, schema: pa.Schema, file: pq.ParquetFile, specs: Sequence[EnvSpec]) -> EnvSpec:
    """The layout whose rows the file has.

    Raises:
        DataError: none of them.
    """
    kind = schema.field("obs").type
    own = _width(kind, file)
    spec = next((spec for spec in specs if spec.obs_size == own), None if own is not None else specs[0])
    if spec is None:
        sizes = " or ".join(str(spec.obs_size) for spec in specs)
        raise DataError(
            f"{path}: column 'obs' is {kind}, {own} numbers a cell; expected vectors of {sizes} numbers for "
            f"{specs[0].id}. Is --env right?"
        )
    for name in ("next_obs", "reset_obs"):
        kind = schema.field(name).type if name in schema.names else pa.null()
        if pa.types.is_fixed_size_list(kind) and kind.list_size != spec.obs_size:
            raise DataError(f"{path}: column {name!r} is {kind}; expected {spec.obs_size} numbers a cell, as in obs")
    kind = schema.field(HIDDEN).type if HIDDEN in schema.names else pa.null()
    if pa.types.is_fixed_size_list(kind) and kind.list_size != len(spec.hidden):
        raise DataError(
            f"{path}: column {HIDDEN!r} is {kind}; {spec.id} hides {len(spec.hidden)} numbers. Another version wrote "
            "it: filter again"
        )
    return spec


def _width(kind: pa.DataType, file: pq.ParquetFile) -> int | None:
    """Numbers in a cell of `obs`; None where the cells differ or there is none."""
    if pa.types.is_fixed_size_list(kind):
        width: int = kind.list_size
        return width
    if not _is_list(kind) or not file.num_row_groups:
        return None
    lengths = pc.unique(pc.list_value_length(file.read_row_group(0, columns=["obs"])["obs"]).drop_null()).to_pylist()
    return lengths[0] if len(lengths) == 1 else None
