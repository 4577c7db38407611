"""Kept rollouts in the layout of the file they come from, so that its usual reader takes them.

A whole rollout keeps every byte, padding included. A piece is moved to the front of its row of the padded arrays and
the rest is padded as the source pads. What the layout cannot say goes into keys of its own: `qualcheck_source_rollout`,
`qualcheck_source_step` and `qualcheck_start` of every rollout, `qualcheck_reset_obs` where a rollout starts at a cut,
`qualcheck_last_action` of a file without `next_observations`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from qualcheck.errors import DataError, UsageError
from qualcheck.filters.pieces import Pieces
from qualcheck.io.arrays import DEFECT_KEY, FLAGS_KEY, HIDDEN_KEY, SOURCE_KEY
from qualcheck.io.instructions import first_strings
from qualcheck.io.mapped import mapped_parquet
from qualcheck.io.source import Source
from qualcheck.io.write_npy import write_npy
from qualcheck.types import AnyArray, BoolArray, FloatArray, IntArray

CUTOFFS_KEY = "qualcheck_filter"
GOALS = ("goals", "goal")
MASKS = ("masks", "action_masks")
TEXTS = ("instructions", *GOALS, "task_str")
ALIGNED = ("instructions", *GOALS, "actions", "rewards", *MASKS, "terminals", "next_observations")
ENDS = ("terminals", "terminal", "dones", "done")
TIMEOUTS = ("truncated", "truncations", "timeouts", "timeout")
BATCH = 65_536  # transitions


@dataclass(frozen=True)
class _Layout:
    """What the kept pieces mean for the padded arrays, P pieces."""

    rollout: IntArray  # (P,) place in the source
    start: IntArray  # (P,)
    moves: IntArray  # (P,) transitions of the piece
    valid: IntArray  # (P,) rows under the mask: `moves`, or one more where a filler row ends the piece
    whole: BoolArray  # (P,) copied byte for byte
    early: BoolArray  # (P,) ends before its rollout does
    filler: bool  # the file ends every rollout with a row whose action was never executed


def write_like_input(
    source: Source,
    pieces: Pieces,
    path: Path,
    tag: Mapping[str, str],
    hidden: FloatArray | None = None,
    reset: BoolArray | None = None,
) -> None:
    """Write the pieces as a file of the source's own layout.

    A file without `next_observations` whose last actions were executed shows no row after them. A piece that ends
    early has that row, so it can only be written with its last row as a filler row; if all pieces end early the whole
    file is written that way and says so, otherwise it is refused.

    Args:
        source: the file; its format is "npy" or "benchmark_parquet".
        pieces: what to keep, rollouts counted within the source.
        path: file to create; not renamed, so the caller stages it.
        tag: texts to add as values of the whole file.
        reset: (P,) pieces that start at a reset, by the run that was filtered; None: by the source.
        hidden: (P, H) hidden state that each piece starts with, NaN at a reset; None where rows show everything.

    Raises:
        UsageError: the layout cannot hold the pieces.
    """
    own = _ownership(source, pieces, reset)
    if hidden is not None and not np.isnan(hidden).all():
        own[HIDDEN_KEY] = hidden
    layout = _layout(source, pieces, own.pop("length"))
    extra: dict[str, Any] = dict(tag)
    if source.last_action != "none":
        extra["qualcheck_last_action"] = "filler" if layout.filler else "executed"
    if source.format == "npy":
        _write_npy(source, layout, own, extra, path)
    elif source.format == "benchmark_parquet":
        _write_parquet(source, layout, own, extra, path)
    else:
        raise UsageError(f"--like-input: cannot write the layout {source.format!r} of {source.path}; leave it out.")


def _ownership(source: Source, pieces: Pieces, known: BoolArray | None = None) -> dict[str, AnyArray]:
    """Where each piece comes from, as per-rollout keys, and the length of the rollout it was cut from."""
    parts: dict[str, list[AnyArray]] = {name: [] for name in ("length", "rollout", "step", "reset", "obs")}
    done = 0
    for batch in source.batches(BATCH):
        low, high = np.searchsorted(pieces.rollout, [done, done + batch.n_rollouts])
        at = pieces.rollout[low:high] - done
        start = pieces.start[low:high]
        parts["length"].append(batch.length[at])
        parts["rollout"].append(batch.source_rollout[at])
        parts["step"].append(batch.source_step[at] + start)
        parts["reset"].append((start == 0) & (True if batch.is_reset is None else batch.is_reset[at]))
        parts["obs"].append(batch.context_obs[at])
        done += batch.n_rollouts
    joined = {name: np.concatenate(part) if part else np.zeros(0, np.int64) for name, part in parts.items()}
    reset = joined["reset"].astype(bool) if known is None else known
    earlier = source.keys().get("qualcheck_source_rollout")  # of an earlier filtering
    if earlier is not None:
        joined["rollout"] = np.asarray(earlier)[pieces.rollout]
    own: dict[str, AnyArray] = {
        "length": joined["length"].astype(np.int64),
        "qualcheck_source_rollout": joined["rollout"].astype(np.int64),
        "qualcheck_source_step": joined["step"].astype(np.int64),
        "qualcheck_start": np.where(reset, "reset", "cut"),
    }
    for key in (SOURCE_KEY, FLAGS_KEY, DEFECT_KEY):
        told = source.keys().get(key)
        if told is not None:
            texts = np.array([text or "" for text in first_strings(told, 0, len(told))], str)
            own[key] = texts[pieces.rollout]
    if not reset.all():
        own["qualcheck_reset_obs"] = joined["obs"]
    return own


def _layout(source: Source, pieces: Pieces, length: IntArray) -> _Layout:
    moves = pieces.stop - pieces.start
    early = pieces.stop < length
    whole = (pieces.start == 0) & ~early
    filler = source.last_action == "filler"
    if source.last_action == "executed" and early.any():
        if not early.all():
            raise UsageError(
                f"--like-input: {source.path} has no next_observations and {int((~early).sum())} of {len(early)} kept "
                "pieces end with an action whose result it does not show, the others do show it. One file of this "
                "layout cannot hold both. Leave --like-input out: the canonical output can."
            )
        filler = True
    return _Layout(pieces.rollout, pieces.start, moves, moves + filler, whole, early, filler)


def _shift(rows: AnyArray, layout: _Layout, cut: IntArray, name: str, pad: Any, steps: int) -> AnyArray:
    """The padded rows of the pieces `cut`, moved to the front: (C, T, ...) -> (C, T, ...), `steps` actions a row."""
    width = rows.shape[1]
    extra = width - steps  # 1 where the array has a row after the last action, else 0
    column = np.arange(width)
    valid = np.minimum(layout.valid[cut] + extra, width)  # (C,)
    taken = np.minimum(column + layout.start[cut][:, None], width - 1)  # (C, T)
    out: AnyArray = rows[np.arange(len(cut))[:, None], taken]
    out[column >= valid[:, None]] = pad
    early = np.flatnonzero(layout.early[cut])
    last = layout.moves[cut][early] - 1
    if name in ENDS:
        out[early, last] = 0  # a cut end is no terminal
    if name in TIMEOUTS:
        out[early, last] = 1
    if layout.filler and not extra and name not in (*MASKS, "observations"):
        out[early, last + 1] = 0  # the row of the filler step: no action was executed there, no reward given
    if name in MASKS:
        out[column < valid[:, None]] = 1
    return out


def _padding(rows: AnyArray, mask: BoolArray) -> Any:
    """The one value the source pads this array with, else 0. `mask` (N, T) is True on valid rows."""
    hidden = rows[:, : mask.shape[1]][~mask]
    if rows.dtype.kind not in "fc" or not hidden.size:
        return 0
    return np.nan if np.isnan(hidden).all() else 0


def _valid(given: AnyArray | None, size: int, steps: int) -> BoolArray:
    """Rows under the mask, (size, steps); all of them where the file has no mask."""
    mask = np.ones((size, steps), bool)
    if given is not None:
        flat = np.asarray(given)[:size].reshape(min(len(given), size), -1)[:, :steps]
        mask[: len(flat)] = flat > 0
    return mask


def _check_masks(source: Source, mask: BoolArray, layout: _Layout) -> None:
    """Refuse pieces of rollouts whose mask (P, T) has a hole."""
    holes = np.flatnonzero((np.diff(mask.astype(np.int8), axis=1) > 0).any(axis=1) & ~layout.whole)
    if len(holes):
        raise UsageError(
            f"--like-input: rollout {layout.rollout[holes[0]]} of {source.path} has a hole in its mask, so a piece of "
            "it has no place in this layout. Leave --like-input out: the canonical output can hold it."
        )


def _per_step(name: str, shape: tuple[int, ...], kind: str, steps: int) -> bool:
    """Whether an array of rollouts, (N, *shape), has one entry a step, by the rule the readers use."""
    if not shape or kind not in "biufc" or name in TEXTS:
        return False
    return shape[0] == steps or (name in ("observations", *MASKS) and shape[0] == steps + 1)


def _write_npy(
    source: Source, layout: _Layout, own: Mapping[str, AnyArray], extra: Mapping[str, Any], path: Path
) -> None:
    keys = {name: value for name, value in source.keys().items() if not str(name).startswith("qualcheck_")}
    size = len(keys["observations"])
    steps = np.shape(keys["actions"])[1]
    cut = np.flatnonzero(~layout.whole)
    given = next((keys[name] for name in MASKS if keys.get(name) is not None), None)
    mask = _valid(given, size, steps)
    _check_masks(source, mask[layout.rollout], layout)
    out: dict[str, Any] = {}
    for name, value in keys.items():
        holds = value.ndim > 0 if isinstance(value, np.ndarray) else isinstance(value, (list, tuple))
        count = len(value) if holds else -1
        if count != size and not (name in ALIGNED and count >= 0):
            out[name] = value
            continue
        place = layout.rollout[layout.rollout < count]  # a list that is too short stays too short
        if not isinstance(value, np.ndarray):
            out[name] = type(value)(value[i] for i in place.tolist())
            continue
        kept = value[place]
        here = cut[cut < len(place)]
        if len(here) and _per_step(name, value.shape[1:], value.dtype.kind, steps):
            kept[here] = _shift(kept[here], layout, here, name, _padding(value, mask[: len(value)]), steps)
        elif len(here) and name in TIMEOUTS and value.ndim == 1:
            kept[here[layout.early[here]]] = 1
        out[name] = kept
    if len(cut) and given is None:
        out["masks"] = _new_mask(layout, steps)
    write_npy({**out, **own, **extra}, path)


def _new_mask(layout: _Layout, steps: int) -> AnyArray:
    """The mask of a file that had none because every rollout was as long as the arrays, (P, T)."""
    return (np.arange(steps) < layout.valid[:, None]).astype(np.float32)


def _write_parquet(
    source: Source, layout: _Layout, own: Mapping[str, AnyArray], extra: Mapping[str, Any], path: Path
) -> None:
    table = mapped_parquet(source.path).read()
    place = np.empty(table.num_rows, np.int64)
    place[table["row_index"].to_numpy()] = np.arange(table.num_rows)  # row of the file that holds each rollout
    kept = table.take(pa.array(place[layout.rollout]))
    names = [name for name in kept.column_names if not re.match(r"(list_)?qualcheck_", name)]
    cut = np.flatnonzero(~layout.whole)
    arrays = _Arrays(kept)
    everything = np.arange(kept.num_rows)
    if len(cut):
        steps = arrays.shape("actions")[0]
        given = next((arrays.read(name, everything) for name in MASKS if name in arrays), None)
        mask = _valid(given, kept.num_rows, steps)
        _check_masks(source, mask, layout)
        if given is None:
            own = {**own, "masks": _new_mask(layout, steps)}
    columns: dict[str, Any] = {}
    for name in names:
        column = kept[name]
        key = name.rpartition("_")[0]
        if name == "row_index":
            column = pa.array(np.arange(kept.num_rows), table.schema.field(name).type)
        elif name.endswith("_shape") and not name.startswith("list_"):
            column = pa.array(
                [re.sub(r"^\(\s*\d+", f"({kept.num_rows}", text) for text in column.to_pylist()], pa.string()
            )
        elif len(cut) and name.endswith("_data") and key in arrays:
            rows = arrays.read(key, cut)
            if _per_step(key, rows.shape[1:], rows.dtype.kind, steps):
                moved = _shift(rows, layout, cut, key, _padding(rows, mask[cut]), steps)
                column = _replace(column, cut, moved)
        columns[name] = column
    columns.update(_own_columns(own, kept.num_rows))
    for name, text in extra.items():
        columns[name] = pa.array([text] * kept.num_rows, pa.string())
    pq.write_table(pa.table(columns).replace_schema_metadata(table.schema.metadata), path)


class _Arrays:
    """The K_shape, K_dtype, K_data triples of a table whose data are bytes."""

    def __init__(self, table: pa.Table) -> None:
        self._table = table
        self._names = {
            name.removesuffix("_data")
            for name in table.column_names
            if name.endswith("_data") and pa.types.is_binary(table.schema.field(name).type) and table.num_rows
        }

    def __contains__(self, key: object) -> bool:
        return key in self._names

    def shape(self, key: str) -> tuple[int, ...]:
        """Shape of one rollout."""
        if key not in self:
            raise DataError(
                f"column {key}_data: holds no bytes, so its rollouts cannot be cut. Leave --like-input out."
            )
        return tuple(int(part) for part in re.findall(r"\d+", self._table[f"{key}_shape"][0].as_py()))[1:]

    def read(self, key: str, rows: IntArray) -> AnyArray:
        """The array of the given rows, (len(rows), T, ...)."""
        kind = np.dtype(self._table[f"{key}_dtype"][0].as_py()).newbyteorder("<")
        data = b"".join(self._table[f"{key}_data"].take(pa.array(rows)).to_pylist())
        return np.frombuffer(data, kind).reshape(len(rows), *self.shape(key))


def _replace(column: pa.ChunkedArray, rows: IntArray, values: AnyArray) -> pa.Array:
    """The column with the bytes of `values` (len(rows), ...) in the given rows."""
    data = column.to_pylist()
    for row, value in zip(rows.tolist(), values, strict=True):
        data[row] = value.tobytes()
    return pa.array(data, column.type)


def _own_columns(own: Mapping[str, AnyArray], count: int) -> dict[str, Any]:
    """Per-rollout keys as the layout writes them: bytes for rows, one-value lists for numbers, `list_` for texts."""
    columns: dict[str, Any] = {}
    encode: Callable[[Any], Any]
    for name, values in own.items():
        if values.dtype.kind == "U":
            columns[f"list_{name}"] = pa.array(values.tolist(), pa.string())
            continue
        shape = (count, *values.shape[1:])
        columns[f"{name}_shape"] = pa.array([str(shape)] * count, pa.string())
        columns[f"{name}_dtype"] = pa.array([values.dtype.name] * count, pa.string())
        little = values.astype(values.dtype.newbyteorder("<"))
        encode = (lambda row: row.tobytes()) if values.ndim > 1 else (lambda row: [row.item()])
        kind = pa.binary() if values.ndim > 1 else pa.list_(pa.from_numpy_dtype(values.dtype))
        columns[f"{name}_data"] = pa.array([encode(row) for row in little], kind)
    return columns
