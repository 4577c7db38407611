"""Picking valid rows out of padded arrays, with one copy."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from qualcheck.io.encodings import code_varies
from qualcheck.io.stored import Stored, blocks
from qualcheck.spec import ActionSpec
from qualcheck.types import AnyArray, BoolArray, IntArray


def rows_of(block: AnyArray, places: IntArray) -> AnyArray:
    """Rows `places` of a padded block, (n, T, ...) -> (M, ...), in this machine's byte order."""
    native = block.dtype.newbyteorder("=")
    if block.flags.c_contiguous and block.dtype == native:
        flat = block.reshape(-1, *block.shape[2:])
        return np.take(flat, places, axis=0) if len(flat) else flat[:0]
    rollout, step = np.divmod(places, max(block.shape[1], 1))
    return np.ascontiguousarray(block[rollout, step], dtype=native)


def picked(array: AnyArray | Stored, begin: int, end: int, places: IntArray, width: int | None = None) -> AnyArray:
    """Rows `places`, which do not fall, of the rollouts begin..end-1 of a padded array, (M, ...).

    Args:
        places: (M,) in the (n * T) rows of these rollouts.
        width: columns of each row that are wanted; None: all.
    """
    if isinstance(array, np.ndarray):
        block = array[begin:end]
        return rows_of(block if width is None else block[:, :, :width], places)
    rows = array.shape[2:] if width is None else (min(width, array.shape[2]), *array.shape[3:])
    found = np.empty((len(places), *rows), array.dtype.newbyteorder("="))
    for first, last, block in blocks(array, begin, end):
        low, high, here = _inside(places, first - begin, last - begin, array.shape[1])
        found[low:high] = rows_of(block if width is None else block[:, :, :width], here)
    return found


def without_codes(
    array: AnyArray | Stored,
    begin: int,
    end: int,
    places: IntArray,
    mask: BoolArray,
    size: int,
    dtype: np.dtype[Any],
) -> tuple[AnyArray, AnyArray, BoolArray]:
    """Rows of padded observations that end in an instruction code, and the codes, in one pass.

    Args:
        places: as of `picked`.
        mask: valid rows of these rollouts, (n, T).
        size: columns before the code.
        dtype: of the rows.

    Returns:
        Rows (M, size), the code on the first valid row of each rollout (n, E), and where it is another on a later
        valid row (n,).
    """
    n, (_, steps, width) = end - begin, array.shape
    rows = np.empty((len(places), size), dtype)
    codes = np.zeros((n, width - size), array.dtype.newbyteorder("="))
    varies = np.zeros(n, bool)
    first_row = mask.argmax(axis=1) if mask.shape[1] else np.zeros(n, np.int64)
    for first, last, block in blocks(array, begin, end):
        here = slice(first - begin, last - begin)
        low, high, inside = _inside(places, here.start, here.stop, steps)
        rows[low:high] = rows_of(block[:, :, :size], inside)
        if steps:
            codes[here] = block[np.arange(len(block)), first_row[here], size:]
            varies[here] = code_varies(block[:, :, size:], mask[here])
    return rows, codes, varies


def _inside(places: IntArray, first: int, last: int, steps: int) -> tuple[int, int, IntArray]:
    """Which of the places lie in rollouts first..last-1, and these counted from there."""
    low, high = np.searchsorted(places, [first * steps, last * steps])
    return int(low), int(high), places[low:high] - first * steps


def batch_bounds(length: IntArray, most: int) -> Iterator[tuple[int, int]]:
    """Ranges of whole rollouts that hold at most `most` transitions each, or a single longer rollout."""
    ends = np.cumsum(length)  # (N,)
    begin = 0
    while begin < len(length):
        used = int(ends[begin - 1]) if begin else 0
        end = max(int(np.searchsorted(ends, used + most, side="right")), begin + 1)
        # rollouts without transitions cost rows and objects too
        end = min(end, begin + most)
        yield begin, end
        begin = end


def all_finite(values: AnyArray) -> bool:
    """Whether no number is NaN or infinite; may say False for huge finite numbers whose sum overflows."""
    if values.dtype.kind != "f":
        return True
    with np.errstate(over="ignore", invalid="ignore"):
        return bool(np.isfinite(values.sum()))


def as_float64(values: AnyArray) -> AnyArray:
    """Numbers as float64; what is too large for it becomes infinite."""
    with np.errstate(over="ignore"):
        return values.astype(np.float64)


def differing_rows(following: AnyArray, obs: AnyArray, after: IntArray) -> IntArray:
    """Indices m where following[m] differs from obs[after[m]]; NaN equals NaN."""
    shown = obs[after]  # (M, O)
    unequal = following != shown
    if not unequal.any():
        return np.zeros(0, np.int64)
    places = np.flatnonzero(unequal.any(axis=1))
    left, right = following[places], shown[places]
    both_nan = (left != left) & (right != right)
    differs: IntArray = places[((left != right) & ~both_nan).any(axis=1)]
    return differs


def bad_actions(action: AnyArray, spec: ActionSpec) -> BoolArray:
    """Actions outside a discrete action set, (M,); of box actions those that are not finite."""
    bad: BoolArray
    if spec.kind == "box":
        bad = ~np.logical_and.reduce(np.isfinite(action), axis=1)
    elif action.dtype.kind in "iub":
        bad = np.logical_or(action < 0, action >= spec.size)
    else:
        with np.errstate(invalid="ignore"):
            good = (action >= 0) & (action < spec.size) & (action == np.floor(action))
        bad = np.logical_not(good)
    return bad


def whole_numbers(action: AnyArray) -> bool:
    """Whether every number is one that int64 holds exactly."""
    with np.errstate(invalid="ignore"):
        return bool(((np.abs(action) < 2**53) & (action == np.floor(action))).all())


def any_in(places: IntArray, bounds: IntArray) -> BoolArray:
    """Which of the intervals between `bounds`, (N+1,), hold one of the sorted `places`; (N,)."""
    return np.diff(np.searchsorted(places, bounds)) > 0


def non_finite_rollouts(*arrays: tuple[AnyArray | None, IntArray]) -> BoolArray:
    """Rollouts with a number that is NaN or infinite, (N,), from arrays each with its bounds, (N+1,)."""
    found = np.zeros(len(arrays[0][1]) - 1, bool)
    for values, bounds in arrays:
        if values is None or all_finite(values):
            continue
        finite = np.isfinite(values).reshape(len(values), -1).all(axis=1)
        found |= any_in(np.flatnonzero(~finite), bounds)
    return found


def row_flags(
    spec: ActionSpec,
    texts: list[str | None],
    breaks: IntArray,
    obs: AnyArray,
    action: AnyArray,
    reward: AnyArray | None,
    has_final: BoolArray,
    offsets: IntArray,
) -> dict[str, BoolArray]:
    """The flags of flat rollouts: those that `texts` names already, (N,), and those that their rows show."""
    n = len(texts)
    flags = {"chain_break": any_in(breaks, offsets)}
    flags["bad_action"] = any_in(np.flatnonzero(bad_actions(action, spec)), offsets)
    row_offsets = np.concatenate([[0], np.cumsum(np.diff(offsets) + has_final)]).astype(np.int64)
    for i, names in enumerate(texts):
        for name in names.split() if names else ():
            flags.setdefault(name, np.zeros(n, bool))[i] = True
    flags["chain_break"] &= ~flags.get("mask_hole", np.zeros(n, bool))  # a hole has no following row
    # rewards that a rollout lacks are NaN, and counted as what they are
    short = flags.get("count_mismatch", np.zeros(n, bool))
    bad = non_finite_rollouts((obs, row_offsets), (action, offsets)) | non_finite_rollouts((reward, offsets)) & ~short
    flags["non_finite"] = bad | flags.get("non_finite", np.zeros(n, bool))
    return flags
