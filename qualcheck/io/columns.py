"""Arrow columns from arrays and back, without loss: vectors, text, and whatever keys a user's file carries."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from qualcheck.errors import DataError
from qualcheck.io.instructions import valid_text
from qualcheck.types import AnyArray, BoolArray, IntArray

PER, KIND, DTYPE, SHAPE = b"qualcheck.per", b"qualcheck.kind", b"qualcheck.dtype", b"qualcheck.shape"
KNOWN = b"qualcheck.known"  # on a column that is there but of which nothing is known


LONGEST_TEXT = 1 << 20  # bytes of one cell


def vectors(rows: AnyArray) -> pa.FixedSizeListArray:
    """A FixedSizeList column over the memory of contiguous rows, (M, O)."""
    flat = np.ascontiguousarray(rows).reshape(-1)
    return pa.FixedSizeListArray.from_arrays(pa.array(flat, pa.from_numpy_dtype(flat.dtype)), rows.shape[1])


def sparse_vectors(rows: AnyArray, at: IntArray, size: int) -> pa.FixedSizeListArray:
    """A column of `size` cells that holds rows (B, O) at the places `at`, (B,), and null elsewhere."""
    place = np.zeros(size, np.int64)
    place[at] = np.arange(len(at))
    absent = np.ones(size, bool)
    absent[at] = False
    return vectors(rows).take(pa.array(place, mask=absent))


def matrix(column: pa.Array, width: int) -> AnyArray:
    """The rows of a FixedSizeList column that are not null, (B, width)."""
    values: AnyArray = column.flatten().to_numpy(zero_copy_only=False)
    return values.reshape(-1, width)


def shown(column: pa.Array) -> BoolArray:
    """Which cells are not null."""
    if not column.null_count:
        return np.ones(len(column), bool)
    valid: BoolArray = column.is_valid().to_numpy(zero_copy_only=False)
    return valid


def text(values: Sequence[str | None], index: IntArray) -> pa.DictionaryArray:
    """A text column that repeats `values`, (N,), by `index`, (M,)."""
    try:
        plain = pa.array(values, pa.string())
    except UnicodeEncodeError:
        plain = pa.array([None if value is None else valid_text(value) for value in values], pa.string())
    coded = plain.dictionary_encode()
    return pa.DictionaryArray.from_arrays(coded.indices.take(pa.array(index)), coded.dictionary)


def text_values(column: pa.Array) -> list[str | None]:
    """The cells of a text column; each distinct text is one object."""
    coded = column if pa.types.is_dictionary(column.type) else column.dictionary_encode()
    known: list[str | None] = [*coded.dictionary.to_pylist(), None]
    return [known[place] for place in coded.indices.fill_null(-1).to_pylist()]


def plain_dtype(mark: bytes) -> np.dtype[Any]:
    """The dtype that a column's mark names.

    Raises:
        ValueError: it is no dtype of numbers or text, or one of absurdly long text.
    """
    try:
        dtype: np.dtype[Any] = np.dtype(mark.decode())
    except (TypeError, SyntaxError) as error:
        raise ValueError(f"no dtype {mark[:40]!r}") from error
    if dtype.kind not in "biufcSU" or dtype.itemsize > LONGEST_TEXT or dtype.shape:
        raise ValueError(f"no plain dtype {mark[:40]!r}")
    return dtype


def step_column(name: str, values: AnyArray) -> tuple[pa.Field, pa.Array]:
    """A column of one value a transition, (M, ...)."""
    meta = {PER: b"step", DTYPE: values.dtype.str.encode(), SHAPE: json.dumps(values.shape[1:]).encode()}
    if values.dtype.kind in "US":
        kind = pa.string() if values.dtype.kind == "U" else pa.binary()
        cells = values.reshape(-1).tolist()
        flat = pa.array([valid_text(cell) for cell in cells] if values.dtype.kind == "U" else cells, kind)
    else:
        flat = pa.array(np.ascontiguousarray(values).reshape(-1))
    if values.ndim > 1:
        width = math.prod(values.shape[1:])
        if not width:
            column = pa.array([[]] * len(values), pa.list_(flat.type))
        else:
            column = pa.FixedSizeListArray.from_arrays(flat, width)
    else:
        column = flat
    return pa.field(name, column.type, metadata=meta), column


def step_values(field: pa.Field, column: pa.Array) -> AnyArray:
    """What `step_column` was given; cells that are null become NaN, "" or False."""
    meta = field.metadata or {}
    shape = tuple(json.loads(meta.get(SHAPE, b"[]")))
    dtype = plain_dtype(meta[DTYPE]) if DTYPE in meta else None
    nested = pa.types.is_fixed_size_list(column.type) or pa.types.is_list(column.type)
    present = shown(column)
    held = column.type.list_size if pa.types.is_fixed_size_list(column.type) else 0
    if shape and math.prod(shape) != held:
        raise ValueError(f"vectors of {held} numbers marked as of shape {shape}")
    flat = column.flatten() if nested else column.drop_null()
    if dtype is not None and dtype.kind in "US":
        got = np.array(flat.to_pylist(), dtype)
    else:
        got = flat.to_numpy(zero_copy_only=False)
    dtype = got.dtype if dtype is None else dtype
    if not nested and not shape:
        got = got.reshape(-1)
    elif not shape:
        shape = (len(got) // max(int(present.sum()), 1),)
    got = got.reshape(int(present.sum()), *shape).astype(dtype, copy=False)
    if present.all():
        return got
    if got.dtype.kind in "iu":
        got = got.astype(np.float64)  # a missing number has no integer
    whole = np.full((len(column), *shape), np.nan if got.dtype.kind == "f" else np.zeros(1, got.dtype)[0], got.dtype)
    whole[present] = got
    return whole


def rollout_column(name: str, values: Sequence[Any]) -> tuple[pa.Field, pa.Array]:
    """A column of one value a rollout, (N,).

    Raises:
        DataError: the values have no common column type and are no JSON either.
    """
    meta = {PER: b"rollout"}
    kinds = {type(value) for value in values if value is not None}
    plain: list[Any] = list(values)
    if kinds and all(issubclass(kind, np.generic | np.ndarray) for kind in kinds) and len(kinds) == 1:
        dtypes = {value.dtype for value in values if value is not None}
        if len(dtypes) == 1 and next(iter(dtypes)).kind in "biufSU":
            meta |= {KIND: b"array" if np.ndarray in kinds else b"scalar", DTYPE: next(iter(dtypes)).str.encode()}
            plain = [None if value is None else value.tolist() for value in values]
    try:
        column = pa.array(plain)
        same = column.to_pylist() == plain or _same_but_nan(column.to_pylist(), plain)
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        same = False
    if not same:
        try:
            column = json_column(values)
        except (TypeError, ValueError) as error:
            raise DataError(
                f"key {name!r}: its values ({', '.join(sorted(k.__name__ for k in kinds))}) fit no table column; "
                "expected numbers, text, lists or arrays. Remove the key from the file"
            ) from error
        meta = {PER: b"rollout", KIND: b"json"}
    return pa.field(name, column.type, metadata=meta), column


def rollout_values(field: pa.Field, column: pa.Array) -> list[Any]:
    """What `rollout_column` was given."""
    meta = field.metadata or {}
    values: list[Any] = column.to_pylist()
    kind = meta.get(KIND)
    if kind == b"json":
        return [None if value is None else json.loads(value, object_hook=_untagged) for value in values]
    if kind in (b"array", b"scalar"):
        dtype = plain_dtype(meta[DTYPE])
        if kind == b"array":
            return [None if value is None else np.array(value, dtype) for value in values]
        return [None if value is None else np.array(value, dtype)[()] for value in values]
    return values


def json_column(values: Sequence[Any], valid: Sequence[bool] | None = None) -> pa.Array:
    """Values as JSON text, null where not `valid`."""
    shown_values = zip(values, valid if valid is not None else [True] * len(values), strict=True)
    return pa.array(
        [json.dumps(value, default=_tagged) if known else None for value, known in shown_values], pa.string()
    )


def to_json(value: Any) -> str:
    """JSON text of plain values, arrays included; what is neither stands there as Python would print it."""
    text = json.dumps(_text_keys(value), default=_tagged_or_text, ensure_ascii=False)
    if valid_text(text) == text:
        return text
    return json.dumps(_text_keys(value), default=_tagged_or_text)


def from_json(text: str) -> Any:
    """What `to_json` was given."""
    return json.loads(text, object_hook=_untagged)


def _tagged(value: Any) -> Any:
    if isinstance(value, np.ndarray) and value.dtype.kind in "biufU":
        return {"qualcheck.array": value.tolist(), "dtype": value.dtype.str, "shape": value.shape}
    if isinstance(value, np.ndarray) and value.dtype == object:
        return {"qualcheck.objects": list(value.ravel()), "shape": value.shape}
    if isinstance(value, np.generic):
        return {"qualcheck.array": value.item(), "dtype": value.dtype.str, "shape": None}
    if isinstance(value, bytes | bytearray):
        return {"qualcheck.bytes": value.decode("latin1")}
    if isinstance(value, set | frozenset):
        return {"qualcheck.set": sorted(value, key=repr)}
    raise TypeError(type(value).__name__)


def _text_keys(value: Any) -> Any:
    """The value with every key of a dict as text."""
    if isinstance(value, dict):
        return {key if isinstance(key, str) else str(key): _text_keys(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_text_keys(item) for item in value]
    return value


def _tagged_or_text(value: Any) -> Any:
    try:
        return _tagged(value)
    except TypeError:
        return str(value)


def _untagged(value: dict[str, Any]) -> Any:
    if "qualcheck.array" in value:
        array = np.array(value["qualcheck.array"], plain_dtype(str(value["dtype"]).encode()))
        return array[()] if value["shape"] is None else array.reshape(value["shape"])
    if "qualcheck.objects" in value:
        items = value["qualcheck.objects"]
        return np.fromiter(items, dtype=object, count=len(items)).reshape(value["shape"])
    if "qualcheck.bytes" in value:
        return value["qualcheck.bytes"].encode("latin1")
    if "qualcheck.set" in value:
        return set(value["qualcheck.set"])
    return value


def _same_but_nan(left: Any, right: Any) -> bool:
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(map(_same_but_nan, left, right))
    if isinstance(left, float) and isinstance(right, float) and left != left:
        return right != right
    return type(left) is type(right) and bool(left == right)
