"""Writes qualcheck's own rollout files: Parquet, one row a transition, nothing padded and nothing lost.

Rollouts without a transition have no row to stand in; they travel as a small Parquet table inside the file's
metadata (`qualcheck.empty`, base64), with step -1. Instruction codes are kept once each in `NAME.codes.npy`.
"""

from __future__ import annotations

import base64
import io
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from qualcheck.errors import DataError
from qualcheck.io.columns import (
    DTYPE,
    KNOWN,
    rollout_column,
    sparse_vectors,
    step_column,
    text,
    to_json,
    vectors,
)
from qualcheck.io.merge import common_schema, conform
from qualcheck.spec import EnvSpec
from qualcheck.types import AnyArray, IntArray, Rollouts

SCHEMA = "1"
EMPTY_STEP = -1
ROWS_PER_GROUP = 65_536  # a group is closed at the first whole rollout past this


class CanonicalWriter:
    """Writes whole rollouts; the file appears under its name only when `close` has written all of it.

    Args:
        path: the final name. A temporary name beside it is used until `close`.
        spec: the environment of the rows.
        metadata: file-level values to keep: plain data and arrays.
        sources: text for each index that `Rollouts.source` may hold, usually the input paths. Rollouts that
            carry `extra_rollout["source"]`, as files of this layout do, keep that text instead.

    Raises:
        DataError: rows of another width, or values that no column can hold.
    """

    def __init__(
        self, path: Path | str, spec: EnvSpec, metadata: Mapping[str, Any], sources: Sequence[str] = ()
    ) -> None:
        self._path = Path(path)
        self._spec = spec
        self._metadata = dict(metadata)
        self._sources = list(sources)
        self._parts: list[Path] = []  # one for each set of columns met
        self._schemas: list[pa.Schema] = []
        self._writer: pq.ParquetWriter | None = None
        self._pending: list[pa.Table] = []
        self._empty: list[pa.Table] = []
        self._codes: dict[bytes, int] = {}
        self._code_rows: list[AnyArray] = []
        self._rollouts = 0

    @property
    def codes_path(self) -> Path:
        """The file beside it that holds the instruction codes, if any rollout has one."""
        return self._path.with_name(self._path.name + ".codes.npy")

    def append(self, rollouts: Rollouts) -> None:
        """Add whole rollouts after those already written."""
        if rollouts.obs.shape[1] != self._spec.obs_size:
            raise DataError(
                f"{self._path}: rows of {rollouts.obs.shape[1]} columns; {self._spec.id} has {self._spec.obs_size}"
            )
        full, empty = self._tables(_one_dtype(rollouts))
        self._rollouts += rollouts.n_rollouts
        if empty.num_rows:
            self._empty.append(empty)
        if not self._schemas or not full.schema.equals(self._schemas[-1], check_metadata=True):
            self._finish_part()
            self._schemas.append(full.schema)
            self._part_of(full.schema)
        self._pending.append(full)
        if sum(table.num_rows for table in self._pending) >= ROWS_PER_GROUP:
            self._flush()

    def close(self) -> None:
        """Finish the file and give it its name."""
        if not self._parts:
            width, action = self._spec.obs_size, self._spec.action
            shape = (0,) if action.kind == "discrete" else (0, action.size)
            nothing = np.zeros(0, np.int32)
            self.append(
                Rollouts(
                    obs=np.zeros((0, width), np.float32),
                    action=np.zeros(shape, np.int64 if action.kind == "discrete" else np.float32),
                    offsets=np.zeros(1, np.int64),
                    has_final=np.zeros(0, bool),
                    source=nothing,
                    source_rollout=nothing,
                    source_step=nothing,
                    instruction=[],
                )
            )
        try:
            whole = self._whole()
            if self._code_rows:
                beside = self._temporary("codes")
                with beside.open("wb") as stream:
                    np.save(stream, np.stack(self._code_rows), allow_pickle=False)
                beside.replace(self.codes_path)
            whole.replace(self._path)
        finally:
            self.abort()

    def abort(self) -> None:
        """Remove what was written under temporary names."""
        if self._writer is not None:
            self._writer.close()
            self._writer = None
        for part in self._parts:
            part.unlink(missing_ok=True)
        self._temporary("codes").unlink(missing_ok=True)
        self._temporary("whole").unlink(missing_ok=True)

    def __enter__(self) -> CanonicalWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.close()
        else:
            self.abort()

    def _temporary(self, what: str) -> Path:
        return self._path.with_name(f".{self._path.name}.{os.getpid()}.{what}.tmp")

    # -- Parquet -------------------------------------------------------------------------------------------------

    def _part_of(self, schema: pa.Schema) -> None:
        self._parts.append(self._temporary(f"part{len(self._parts)}"))
        self._writer = self._open(self._parts[-1], schema)

    def _open(self, path: Path, schema: pa.Schema) -> pq.ParquetWriter:
        try:
            own = version("qualcheck")
        except PackageNotFoundError:
            own = "unknown"
        marks = {"qualcheck.schema": SCHEMA, "qualcheck.env": self._spec.id}
        marks |= {"qualcheck.env_version": self._spec.version, "qualcheck.version": own}
        marked = schema.with_metadata(marks)
        return pq.ParquetWriter(path, marked, compression="zstd", compression_level=1, write_statistics=False)

    def _flush(self) -> None:
        """Write the pending tables as one row group."""
        if not self._pending or self._writer is None:
            return
        table = pa.concat_tables(self._pending).unify_dictionaries()
        if table.num_rows:
            self._writer.write_table(table, row_group_size=table.num_rows)
        self._pending = []

    def _finish_part(self) -> None:
        self._flush()
        if self._writer is not None:
            self._writer.close()
            self._writer = None

    def _whole(self) -> Path:
        """One file out of the parts; columns that a part lacks become null."""
        self._flush()
        if len(self._parts) == 1 and self._writer is not None:
            self._writer.add_key_value_metadata(self._file_metadata(self._schemas[0]))
            self._finish_part()
            return self._parts[0]
        self._finish_part()
        schema = common_schema(self._path, self._schemas)
        path = self._temporary("whole")
        with self._open(path, schema) as writer:
            for part in self._parts:
                with pq.ParquetFile(part) as file:
                    for group in range(file.num_row_groups):
                        table = conform(file.read_row_group(group), schema)
                        writer.write_table(table.unify_dictionaries(), row_group_size=max(table.num_rows, 1))
            writer.add_key_value_metadata(self._file_metadata(schema))
        return path

    def _file_metadata(self, schema: pa.Schema) -> dict[str, str]:
        metadata = {"qualcheck.metadata": to_json(self._metadata), "qualcheck.rollouts": str(self._rollouts)}
        if self._code_rows:
            metadata["qualcheck.codes"] = self.codes_path.name
        if self._empty:
            table = pa.concat_tables([conform(table, schema) for table in self._empty]).unify_dictionaries()
            stream = io.BytesIO()
            pq.write_table(table, stream, compression="zstd")
            metadata["qualcheck.empty"] = base64.b64encode(stream.getvalue()).decode("ascii")
        return metadata

    # -- columns -------------------------------------------------------------------------------------------------

    def _tables(self, r: Rollouts) -> tuple[pa.Table, pa.Table]:
        """The transitions, and one row for each rollout without any."""
        lone = np.flatnonzero(r.length == 0)
        full = self._shared(r, r.rollout.astype(np.int64), r.step)
        empty = self._shared(r, lone, np.full(len(lone), EMPTY_STEP, np.int32))
        m = r.n_transitions
        types: dict[str, pa.Field] = {}

        def add(name: str, column: pa.Array, field: pa.Field | None = None) -> None:
            types[name] = field if field is not None else pa.field(name, column.type)
            full[name] = column
            empty.setdefault(name, pa.nulls(len(lone), column.type))

        with_row = lone[r.has_final[lone]]
        empty["obs"] = sparse_vectors(r.obs[r.row_offsets[with_row]], np.searchsorted(lone, with_row), len(lone))
        add("obs", vectors(r.start_obs))
        add("action", *self._actions(r.action))
        final = np.flatnonzero((r.length > 0) & r.has_final)
        ends = r.offsets[final + 1] - 1
        at = np.concatenate([r.break_at, ends])
        rows = r.obs[r.row_offsets[final + 1] - 1]
        if r.break_obs is not None and len(r.break_at):
            rows = np.concatenate([r.break_obs, rows])
            # a break at the last transition is already the final row
            at, first = np.unique(at, return_index=True)
            rows = rows[first]
        add("next_obs", sparse_vectors(rows, at, m))
        told = {"reward": (r.reward, pa.float64()), "terminal": (r.terminal, pa.bool_())}
        told["truncated"] = (r.truncated, pa.bool_())
        for name, (values, kind) in told.items():
            if values is None:
                add(name, pa.nulls(m, kind), pa.field(name, kind, metadata={KNOWN: b"no"}))
            else:
                add(name, pa.array(values, kind, from_pandas=name == "reward"))  # NaN: nobody knows it, an empty cell
        for key, values in r.extra_step.items():
            field, column = step_column(f"x_{key}", values)
            add(field.name, column, field)
        self._rollout_extras(r, full, empty, lone, types)
        fields = [types.get(name, pa.field(name, column.type)) for name, column in full.items()]
        schema = pa.schema(fields)
        return pa.table(full, schema=schema), pa.table([empty[f.name] for f in schema], schema=schema)

    def _actions(self, action: AnyArray) -> tuple[pa.Array, pa.Field]:
        if action.ndim == 2:
            column = vectors(action)
            return column, pa.field("action", column.type)
        meta = {DTYPE: action.dtype.str.encode()}
        if action.dtype.kind in "iub" and action.dtype != np.uint64:
            return pa.array(action.astype(np.int64)), pa.field("action", pa.int64(), metadata=meta)
        column = pa.array(action)
        return column, pa.field("action", column.type, metadata=meta)

    def _shared(self, r: Rollouts, index: IntArray, step: IntArray) -> dict[str, pa.Array]:
        """Per-rollout columns repeated by `index`."""
        columns: dict[str, pa.Array] = {
            "rollout": pa.array((index + self._rollouts).astype(np.int32)),
            "step": pa.array(step.astype(np.int32)),
        }
        names = r.extra_rollout.get("source")
        if names is None:
            known = len(self._sources)
            names = [self._sources[i] if 0 <= i < known else "" for i in r.source.tolist()]
        texts: dict[str, Sequence[str | None]] = {"instruction": r.instruction}
        texts |= {"task": r.task or [], "level": r.level or [], "generator": r.generator or []}
        texts["source"] = names
        starts = [] if r.is_reset is None else ["reset" if reset else "cut" for reset in r.is_reset]
        texts["start"] = starts
        flagged = [[name for name, flag in r.flags.items() if flag[i]] for i in _flagged(r)]
        marks = [""] * r.n_rollouts
        for i, found in zip(_flagged(r), flagged, strict=True):
            marks[i] = " ".join(found)
        texts["flags"] = marks
        texts["defect"] = r.defect or []
        for name, values in texts.items():
            columns[name] = text(values if len(values) else [None] * r.n_rollouts, index)
        columns["source_rollout"] = pa.array(r.source_rollout[index].astype(np.int32))
        columns["source_step"] = pa.array(r.source_step[index].astype(np.int32))
        codes = self._code_numbers(r)[index]
        columns["code"] = pa.array(codes, pa.int32(), mask=codes < 0)
        return columns

    def _code_numbers(self, r: Rollouts) -> IntArray:
        if r.code is None:
            return np.full(r.n_rollouts, -1, np.int32)
        numbers = np.zeros(r.n_rollouts, np.int32)
        for i, row in enumerate(r.code):
            key = row.tobytes()
            if key not in self._codes:
                self._codes[key] = len(self._code_rows)
                self._code_rows.append(row.copy())
            numbers[i] = self._codes[key]
        return numbers

    def _rollout_extras(
        self,
        r: Rollouts,
        full: dict[str, pa.Array],
        empty: dict[str, pa.Array],
        lone: IntArray,
        types: dict[str, pa.Field],
    ) -> None:
        first_only = pa.array(np.where(r.step == 0, r.rollout, 0), mask=r.step != 0)
        everywhere = pa.array(r.rollout)
        cells = {f"x_{key}": values for key, values in r.extra_rollout.items() if key != "source"}
        if r.goal is not None:
            cells["goal"] = list(r.goal)
        for name, values in cells.items():
            field, column = rollout_column(name, values)
            # long lists stand on the first row of their rollout only
            long = pa.types.is_nested(column.type) and name != "goal"
            types[name] = field
            full[name] = column.take(first_only if long else everywhere)
            empty[name] = column.take(pa.array(lone))
        if r.reset_obs is not None:
            # a piece that starts at a reset is its own context, if it has a row
            cut = np.ones(r.n_rollouts, bool) if r.is_reset is None else ~r.is_reset | (r.length + r.has_final == 0)
            started = np.flatnonzero(cut & (r.length > 0))
            full["reset_obs"] = sparse_vectors(r.reset_obs[started], r.offsets[started], r.n_transitions)
            alone = lone[cut[lone]]
            empty["reset_obs"] = sparse_vectors(r.reset_obs[alone], np.searchsorted(lone, alone), len(lone))
        if r.hidden is not None and r.hidden.shape[1]:
            known = np.flatnonzero(~np.isnan(r.hidden).all(axis=1) & (r.length > 0))
            full["hidden"] = sparse_vectors(r.hidden[known].astype(np.float64), r.offsets[known], r.n_transitions)
            empty["hidden"] = pa.nulls(len(lone), full["hidden"].type)


def _one_dtype(r: Rollouts) -> Rollouts:
    """The rollouts with all their rows in a dtype that holds every one."""
    others = [rows for rows in (r.break_obs, r.reset_obs) if rows is not None]
    dtype = np.result_type(r.obs, *others)
    if all(rows.dtype == dtype for rows in (r.obs, *others)):
        return r
    wide = [None if rows is None else rows.astype(dtype, copy=False) for rows in (r.break_obs, r.reset_obs)]
    return replace(r, obs=r.obs.astype(dtype, copy=False), break_obs=wide[0], reset_obs=wide[1])


def _flagged(r: Rollouts) -> list[int]:
    some = np.zeros(r.n_rollouts, bool)
    for flag in r.flags.values():
        some |= flag
    places: list[int] = np.flatnonzero(some).tolist()
    return places
