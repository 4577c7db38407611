"""How a file stores its numbers, found from the values: the noise floor of a replay depends on it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import numpy as np

from qualcheck.types import AnyArray, BoolArray, FloatArray

if TYPE_CHECKING:
    from qualcheck.io import Source

DECIMALS = (1, 2, 3, 4, 5, 6)
STORAGES = ("float64", "float32", "float16", *(f"{d} decimals" for d in DECIMALS))
SAMPLE = 20_000  # rows looked at
MOST_ROWS = 0.95  # share of the rows that a storage must hold
_SPACING = {"float64": 2.0**-53, "float32": 2.0**-24, "float16": 2.0**-11}  # relative half spacing


def find_storage(rows: AnyArray) -> str:
    """The coarsest storage that holds every value of nearly all rows, (R, O) -> one of `STORAGES`.

    A value has d decimals if it is the stored form of a number with d decimals. Rows that are not finite say nothing,
    and a few finer ones, such as first rows that come from elsewhere, do not decide: see `finer_rows`.
    """
    values = _told(rows)
    # every number of float16 is the nearest one to some number with three decimals
    decimals = DECIMALS[:2] if rows.dtype == np.float16 else DECIMALS
    for storage in (*(f"{d} decimals" for d in decimals), "float16", "float32"):
        if len(values) and _held(values, storage).mean() >= MOST_ROWS:
            return storage
    return "float64" if len(values) or rows.dtype.itemsize > 4 else rows.dtype.name


def finer_rows(rows: AnyArray, storage: str) -> float:
    """Share of the finite rows that a storage does not hold."""
    values = _told(rows)
    return 1 - float(_held(values, storage).mean()) if len(values) else 0.0


def _told(rows: AnyArray) -> AnyArray:
    if len(rows) > SAMPLE:
        rows = rows[np.linspace(0, len(rows) - 1, SAMPLE).astype(np.int64)]
    if rows.dtype.kind not in "f":
        rows = rows.astype(np.float64)
    return rows[np.isfinite(rows).all(axis=1)] if len(rows) else rows


def _held(values: AnyArray, storage: str) -> BoolArray:
    """Which rows come back unchanged from a storage, (R,)."""
    with np.errstate(over="ignore", invalid="ignore"):
        kept = store(values.astype(np.float64), storage).astype(values.dtype)
    held: BoolArray = np.logical_and.reduce(kept == values, axis=1)
    return held


def store(values: FloatArray, storage: str) -> FloatArray:
    """The values as they come back from a storage, float64.

    Raises:
        ValueError: no such storage.
    """
    if storage in _SPACING:
        with np.errstate(over="ignore"):
            return values.astype(storage).astype(np.float64)
    return np.round(values, decimals_of(storage))


def decimals_of(storage: str) -> int:
    """Number of decimals of a decimal storage.

    Raises:
        ValueError: it is no decimal storage.
    """
    found = re.fullmatch(r"([1-6]) decimals", storage)
    if not found:
        raise ValueError(f"no storage {storage!r}; known: {', '.join(STORAGES)}")
    return int(found[1])


def half_unit(values: FloatArray, storage: str) -> FloatArray:
    """The most by which storing can have changed each value, same shape."""
    if storage in _SPACING:
        return np.abs(values) * _SPACING[storage]
    return np.full(values.shape, 0.5 * 10.0 ** -decimals_of(storage))


def coarser_or_equal(storage: str) -> tuple[str, ...]:
    """The storages that data of this one can be brought into without inventing digits."""
    if storage == "float64":
        return STORAGES
    if storage == "float32":
        return STORAGES[1:]
    if storage == "float16":
        return ("float16", *STORAGES[3:6])
    return tuple(f"{d} decimals" for d in DECIMALS if d <= decimals_of(storage))


def sample(source: Source) -> AnyArray:
    """Rows from the beginning of a source, (R, O)."""
    rows: list[AnyArray] = []
    for rollouts in source.batches(SAMPLE):
        rows.append(rollouts.obs)
        if sum(map(len, rows)) >= SAMPLE:
            break
    return np.concatenate(rows) if rows else np.zeros((0, source.spec.obs_size), np.float32)
