"""The goal arrays of a file, one a rollout: numbers in one row, or the same row once a step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from qualcheck.io.instructions import TextLists
from qualcheck.io.stored import Stored
from qualcheck.types import AnyArray, BoolArray, IntArray


def goal_row(value: Any) -> AnyArray | None:
    """The goal of one rollout, (G,) int64 or float64; row 0 where it stands once a step. None: these are no numbers."""
    table = _table(value)
    if table is None or not len(table):
        return None
    row: AnyArray = table[0].astype(np.float64 if table.dtype.kind == "f" or table.dtype == np.uint64 else np.int64)
    return row


def changing(values: Any, length: Sequence[int] | IntArray) -> BoolArray:
    """Rollouts whose goal stands once a step and differs from its row 0 within their steps, (N,).

    Args:
        values: one entry a rollout, or fewer; None: there are no goals.
        length: (N,) steps of each rollout.
    """
    found = np.zeros(len(length), bool)
    if values is None or getattr(values, "ndim", 0) == 2:
        return found
    for i, (value, steps) in enumerate(zip(values, length, strict=False)):
        table = _table(value)
        if table is not None and len(table) > 1:
            rows = table[:steps]
            both_nan = (rows != rows) & (table[0] != table[0])
            found[i] = ((rows != table[0]) & ~both_nan).any()
    return found


def held(value: Any) -> bool:
    """Whether a key holds one goal a rollout: an array (N, G), (N, T, G) or of objects, or a list of such rows."""
    if isinstance(value, TextLists):
        return False
    if isinstance(value, np.ndarray | Stored) and value.dtype != object:
        return value.dtype.kind in "biuf" and value.ndim in (2, 3)
    rows = value if isinstance(value, list | tuple | np.ndarray) and np.ndim(value[:0]) == 1 else []
    return any(goal_row(row) is not None for row in rows)


def _table(value: Any) -> AnyArray | None:
    """One goal as rows, (K, G)."""
    if isinstance(value, list | tuple):
        try:
            value = np.array(value)
        except (ValueError, TypeError, OverflowError):
            return None
    if not isinstance(value, np.ndarray) or value.dtype.kind not in "biuf" or value.ndim not in (1, 2):
        return None
    table: AnyArray = value.reshape(-1, value.shape[-1]) if value.size else value.reshape(0, 0)
    return table
