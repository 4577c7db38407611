"""Reads qualcheck's own rollout files row group by row group."""

from __future__ import annotations

import base64
import io
from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from qualcheck.errors import DataError, UsageError
from qualcheck.io.canonical import SCHEMA
from qualcheck.io.canonical_types import (
    HIDDEN,
    NEEDED,
    check_names,
    choose_rows,
    converted,
    int32,
    row_dtype,
    usual_schema,
)
from qualcheck.io.columns import (
    DTYPE,
    KNOWN,
    PER,
    from_json,
    matrix,
    plain_dtype,
    rollout_values,
    shown,
    step_values,
    text_values,
)
from qualcheck.io.gather import batch_bounds, non_finite_rollouts, row_flags
from qualcheck.io.mapped import mapped_parquet, sound_text
from qualcheck.spec import EnvSpec
from qualcheck.types import AnyArray, BoolArray, FloatArray, IntArray, Rollouts

# what numpy, Arrow and json raise on values that are not what the file says of them
_ODD = (ValueError, TypeError, KeyError, IndexError, AttributeError, OverflowError, pa.ArrowException)


def _first_line(error: Exception) -> str:
    return str(error).split("\n")[0][:120]


def recognises(schema: pa.Schema) -> bool:
    """Whether a Parquet file is of this layout: by its mark, or by its columns where a tool dropped the mark."""
    marked = schema.metadata is not None and b"qualcheck.schema" in schema.metadata
    return (marked and "rollout" in schema.names) or set(NEEDED) <= set(schema.names)


class CanonicalSource:
    """One file that `CanonicalWriter` wrote.

    Raises:
        DataError: another schema, another environment, or rows that do not form whole rollouts.
    """

    format = "canonical"

    def __init__(
        self, path: Path, specs: Sequence[EnvSpec], file: pq.ParquetFile, index: int = 0, last_action_flag: str = "auto"
    ) -> None:
        self.path = path
        self.files: tuple[Path, ...] = (path,)
        self.findings: list[str] = []
        self._file = file
        self._index = index
        self._schema: pa.Schema = file.schema_arrow
        marks = {**(self._schema.metadata or {}), **(file.metadata.metadata or {})}
        self._marks = {
            k.decode("utf-8", "replace"): v.decode("utf-8", "replace") for k, v in marks.items() if k != b"ARROW:schema"
        }
        self.spec = self._check_schema(specs)
        self.metadata = self._read_metadata()
        self._empty = self._read_empty()
        self._survey()
        if last_action_flag != "auto" and self.last_action == "executed":
            self.findings.append("the last action of each rollout was settled when this file was written")

    def _check_schema(self, specs: Sequence[EnvSpec]) -> EnvSpec:
        schema = self._marks.get("qualcheck.schema", SCHEMA)
        if schema != SCHEMA:
            raise DataError(f"{self.path}: rollout schema {schema}; this version reads {SCHEMA}. Update qualcheck")
        check_names(self.path, self._schema)
        env = self._marks.get("qualcheck.env", specs[0].id)
        if env not in {spec.id for spec in specs}:
            raise DataError(f"{self.path}: rollouts of {env}; expected {specs[0].id}. Is --env right?")
        specs = [spec for spec in specs if spec.id == env]
        spec = choose_rows(self.path, self._schema, self._file, specs)
        self._schema = usual_schema(self.path, self._schema, spec)
        self._row_dtype = row_dtype(self._schema)
        return spec

    def _read_metadata(self) -> dict[str, Any]:
        try:
            values = from_json(self._marks.get("qualcheck.metadata", "{}"))
        except (ValueError, TypeError) as error:
            raise DataError(f"{self.path}: its file-level values are not readable. Write the file again") from error
        if not isinstance(values, dict):
            raise DataError(f"{self.path}: its file-level values are no dictionary. Write the file again")
        return values

    def _read_empty(self) -> pa.Table | None:
        if "qualcheck.empty" not in self._marks:
            return None
        try:
            return pq.read_table(io.BytesIO(base64.b64decode(self._marks["qualcheck.empty"], validate=True)))
        except (ValueError, OSError, pa.ArrowException) as error:
            raise DataError(f"{self.path}: its list of empty rollouts cannot be read. Write the file again") from error

    def _read(self, columns: list[str], group: int | None = None) -> pa.Table:
        try:
            if group is None:
                return converted(self.path, sound_text(self._file.read(columns=columns)), self._schema)
            return converted(self.path, sound_text(self._file.read_row_group(group, columns=columns)), self._schema)
        except (OSError, pa.ArrowException) as error:
            raise DataError(f"{self.path}: cannot be read ({str(error)[:200]}). Copy it again") from error

    def _survey(self) -> None:
        table = self._read(["rollout", "step"])
        for name in ("rollout", "step"):
            if table[name].null_count:
                raise DataError(f"{self.path}: column {name!r} has empty cells; expected a number on every row")
        rollout: IntArray = table["rollout"].to_numpy()
        step: IntArray = table["step"].to_numpy()
        change = np.flatnonzero(np.diff(rollout)) + 1
        first = np.concatenate([[0], change]) if len(rollout) else np.zeros(0, np.int64)
        expected = np.arange(len(step)) - np.repeat(first, np.diff(np.append(first, len(step))))
        if (np.diff(rollout) < 0).any() or not np.array_equal(step, expected):
            raise DataError(
                f"{self.path}: its rows are not sorted by rollout and step, or steps are missing; expected whole "
                "rollouts. Make pieces with: qualcheck filter --mode segments"
            )
        empties = 0 if self._empty is None else self._empty.num_rows
        self.n_rollouts = len(first) + empties
        self.n_transitions = len(rollout)
        self.longest = int(step.max(initial=-1)) + 1
        self.last_action = "none"
        if len(rollout):
            ends = np.append(change, len(rollout)) - 1
            final = shown(self._read(["next_obs"])["next_obs"].combine_chunks()) if self._has("next_obs") else None
            if final is None or not final[ends].all():
                self.last_action = "executed"

    def _has(self, name: str) -> bool:
        return name in self._schema.names

    def keys(self) -> dict[str, Any]:
        return {}

    @cached_property
    def codes(self) -> AnyArray | None:
        """The distinct instruction codes, (K, 768); None where the file has none or its companion is missing."""
        name = self._marks.get("qualcheck.codes")
        if name is None or Path(name).name != name:
            return None
        try:
            codes: AnyArray = np.load(self.path.with_name(name), mmap_mode="r", allow_pickle=False)
        except FileNotFoundError:
            self.findings.append(f"{name} is missing beside the file: the instruction codes are not known")
            return None
        except (OSError, ValueError) as error:
            raise DataError(f"{self.path.with_name(name)}: cannot be read ({error}). Copy it again") from error
        return codes

    def batches(self, max_transitions: int = 65_536, extras: bool = False) -> Iterator[Rollouts]:
        """Whole rollouts in file order; see `PaddedSource.batches`."""
        if max_transitions < 1:
            raise UsageError(f"a batch of {max_transitions} transitions; expected at least 1")
        try:
            yield from self._batches(max_transitions, extras)
        except _ODD as error:
            raise DataError(
                f"{self.path}: a column does not hold what its mark says ({type(error).__name__}: "
                f"{_first_line(error)}). Write the file again"
            ) from error

    def _batches(self, max_transitions: int, extras: bool) -> Iterator[Rollouts]:
        columns = [name for name in self._schema.names if extras or not name.startswith("x_")]
        carried = self._schema.empty_table().select(columns)
        given = -1  # number of the last rollout handed on
        groups = self._file.num_row_groups
        for group in range(groups):
            carried = pa.concat_tables([carried, self._read(columns, group)])
            numbers: IntArray = carried["rollout"].to_numpy()
            # the last rollout may go on in the next group
            cut = int(np.searchsorted(numbers, numbers[-1])) if len(numbers) else 0
            if cut >= max_transitions and group < groups - 1:
                last = int(numbers[cut - 1])
                yield from self._split(self._with_empty(carried.slice(0, cut), given, last), max_transitions, extras)
                carried, given = carried.slice(cut), last
        rest = self._with_empty(carried, given, None)
        if rest.num_rows:
            yield from self._split(rest, max_transitions, extras)

    def _with_empty(self, table: pa.Table, after: int, last: int | None) -> pa.Table:
        """The table with the empty rollouts numbered after..last put in their places."""
        if self._empty is None:
            return table
        numbers: IntArray = self._empty["rollout"].to_numpy()
        inside = numbers > after
        if last is not None:
            inside &= numbers <= last
        if not inside.any():
            return table
        names = table.column_names
        found = self._empty.filter(pa.array(inside))
        columns = [
            found[name].cast(table.schema.field(name).type)
            if name in found.column_names
            else pa.nulls(found.num_rows, table.schema.field(name).type)
            for name in names
        ]
        both = pa.concat_tables([table, pa.table(columns, schema=table.schema)])
        return both.take(pa.array(np.argsort(both["rollout"].to_numpy(), kind="stable")))

    def _split(self, table: pa.Table, most: int, extras: bool) -> Iterator[Rollouts]:
        numbers: IntArray = table["rollout"].to_numpy()
        first = np.concatenate([[0], np.flatnonzero(np.diff(numbers)) + 1])
        bounds = np.append(first, len(numbers))
        for begin, end in batch_bounds(np.diff(bounds), most):
            part = table.slice(bounds[begin], bounds[end] - bounds[begin])
            yield self._rollouts(part, bounds[begin : end + 1] - bounds[begin], extras)

    def _rollouts(self, table: pa.Table, bounds: IntArray, extras: bool) -> Rollouts:
        table = table.unify_dictionaries().combine_chunks()
        column = {name: table[name].combine_chunks() for name in table.column_names}
        n = len(bounds) - 1
        first = pa.array(bounds[:-1])
        step: IntArray = column["step"].to_numpy()
        real = step >= 0
        length = np.add.reduceat(real.astype(np.int64), bounds[:-1])
        offsets = np.concatenate([[0], np.cumsum(length)]).astype(np.int64)
        full = column if real.all() else {k: v.filter(pa.array(real)) for k, v in column.items()}
        obs, has_final, breaks, break_obs = self._rows(column, full, real, bounds, offsets)

        def texts(name: str) -> list[str | None]:
            return text_values(column[name].take(first)) if name in column else [None] * n

        def numbers(name: str) -> IntArray:
            if name not in column:
                return np.zeros(n, np.int32)
            return int32(self.path, name, column[name].take(first).fill_null(0).to_numpy())

        action = self._actions(full["action"])
        reward = self._step_numbers(full, "reward")
        starts = texts("start")
        extra_rollout: dict[str, list[Any]] = {}
        extra_step: dict[str, AnyArray] = {}
        for name in column if extras else ():
            if name.startswith("x_"):
                field = self._schema.field(name)
                if (field.metadata or {}).get(PER) == b"rollout":
                    extra_rollout[name[2:]] = rollout_values(field, column[name].take(first))
                else:
                    extra_step[name[2:]] = step_values(field, full[name])
        origin = texts("source")
        if extras and any(origin):
            extra_rollout["source"] = [name or "" for name in origin]
        told = reward
        if reward is not None and full["reward"].null_count:  # an empty cell is unknown, and no fault of the data
            told = np.where(full["reward"].is_null().to_numpy(zero_copy_only=False), 0.0, reward)
        flags = row_flags(self.spec.action, texts("flags"), breaks, obs, action, told, has_final, offsets)
        for name in ("terminal", "truncated"):
            if self._known(name):
                flags["non_finite"] |= non_finite_rollouts((self._flat(full, name), offsets))
        named = {name: texts(name) for name in ("level", "generator", "task")}
        known = {k: [v or "" for v in values] for k, values in named.items() if any(v is not None for v in values)}
        defect = texts("defect")
        return Rollouts(
            obs=obs,
            action=action,
            offsets=offsets,
            has_final=has_final,
            source=np.full(n, self._index, np.int32),
            source_rollout=numbers("source_rollout"),
            source_step=numbers("source_step"),
            instruction=texts("instruction"),
            reward=reward,
            terminal=self._step_flags(full, "terminal"),
            truncated=self._step_flags(full, "truncated"),
            goal=self._goals(column, first),
            is_reset=np.array([start == "reset" for start in starts]) if any(starts) else None,
            reset_obs=self._reset_rows(column, first, obs, has_final, offsets),
            hidden=self._hidden(column, first),
            break_at=breaks,
            break_obs=break_obs,
            origin=[name or "" for name in origin] if any(origin) else None,
            level=known.get("level"),
            generator=known.get("generator"),
            task=known.get("task"),
            flags=flags,
            defect=[code or "" for code in defect],
            code=self._code_rows(column, first),
            extra_rollout=extra_rollout,
            extra_step=extra_step,
        )

    def _rows(
        self,
        column: dict[str, pa.Array],
        full: dict[str, pa.Array],
        real: BoolArray,
        bounds: IntArray,
        offsets: IntArray,
    ) -> tuple[AnyArray, BoolArray, IntArray, AnyArray | None]:
        width = self.spec.obs_size
        start = matrix(full["obs"], width).astype(self._row_dtype, copy=False)  # (M, O)
        m, length = len(start), np.diff(offsets)
        if m != len(full["obs"]):
            raise DataError(f"{self.path}: column 'obs' has empty cells; expected a row on every transition")
        after = shown(full["next_obs"]) if "next_obs" in full else np.zeros(m, bool)
        ends = matrix(full["next_obs"], width).astype(start.dtype, copy=False) if "next_obs" in full else start[:0]
        last = np.zeros(m, bool)
        last[offsets[1:][length > 0] - 1] = True
        has_final = np.zeros(len(length), bool)
        has_final[length > 0] = after[last]
        lone_rows = np.zeros((0, width), start.dtype)
        if not real.all():
            lone = np.flatnonzero(~real)  # rows of rollouts without transitions
            cells = column["obs"].take(pa.array(lone))
            has_final[np.searchsorted(bounds, lone, side="right") - 1] = shown(cells)
            lone_rows = matrix(cells, width)
        rows = length + has_final
        row_offsets = np.concatenate([[0], np.cumsum(rows)]).astype(np.int64)
        obs = np.empty((row_offsets[-1], width), start.dtype)
        obs[np.arange(m) + np.repeat(row_offsets[:-1] - offsets[:-1], length)] = start
        is_end = last[after]  # of the rows in `ends`
        obs[row_offsets[1:][has_final & (length > 0)] - 1] = ends[is_end]
        obs[row_offsets[:-1][has_final & (length == 0)]] = lone_rows
        breaks = np.flatnonzero(after & ~last)
        return obs, has_final, breaks, ends[~is_end] if len(breaks) else None

    def _actions(self, column: pa.Array) -> AnyArray:
        if pa.types.is_fixed_size_list(column.type):
            return matrix(column, column.type.list_size)
        meta = self._schema.field("action").metadata or {}
        values: AnyArray = column.to_numpy(zero_copy_only=False)
        if DTYPE not in meta or column.null_count:  # a missing action has no integer
            return values
        return values.astype(plain_dtype(meta[DTYPE]), copy=False)

    def _step_numbers(self, full: dict[str, pa.Array], name: str) -> AnyArray | None:
        if not self._known(name):
            return None
        with np.errstate(over="ignore"):
            values: AnyArray = full[name].to_numpy(zero_copy_only=False).astype(np.float64)
        return values

    def _step_flags(self, full: dict[str, pa.Array], name: str) -> BoolArray | None:
        if not self._known(name):
            return None
        values: BoolArray = self._flat(full, name) > 0
        return values

    def _flat(self, full: dict[str, pa.Array], name: str) -> AnyArray:
        """A column of flags as stored; a cell that is null says no."""
        cells = full[name]
        values: AnyArray = cells.fill_null(pa.scalar(0).cast(cells.type)).to_numpy(zero_copy_only=False)
        return values

    def _known(self, name: str) -> bool:
        return self._has(name) and KNOWN not in (self._schema.field(name).metadata or {})

    def _goals(self, column: dict[str, pa.Array], first: pa.Array) -> list[AnyArray | None] | None:
        if "goal" not in column:
            return None
        goals: list[AnyArray | None] = rollout_values(self._schema.field("goal"), column["goal"].take(first))
        return goals

    def _reset_rows(
        self, column: dict[str, pa.Array], first: pa.Array, obs: AnyArray, has_final: BoolArray, offsets: IntArray
    ) -> AnyArray | None:
        if "reset_obs" not in column:
            return None
        cells = column["reset_obs"].take(first)
        rows = np.diff(offsets) + has_final
        reset = np.zeros((len(first), self.spec.obs_size), obs.dtype)
        begins = np.concatenate([[0], np.cumsum(rows)[:-1]])
        reset[rows > 0] = obs[begins[rows > 0]]  # a piece that starts at a reset is its own context
        reset[shown(cells)] = matrix(cells, self.spec.obs_size)
        return reset

    def _hidden(self, column: dict[str, pa.Array], first: pa.Array) -> FloatArray | None:
        if HIDDEN not in column or not self.spec.hidden:
            return None
        cells = column[HIDDEN].take(first)
        state = np.full((len(first), len(self.spec.hidden)), np.nan)
        state[shown(cells)] = matrix(cells, len(self.spec.hidden))
        return state

    def _code_rows(self, column: dict[str, pa.Array], first: pa.Array) -> AnyArray | None:
        if "code" not in column or self.codes is None:
            return None
        places = column["code"].take(first)
        known = shown(places)
        if not known.any():
            return None
        codes = np.full((len(places), self.codes.shape[1]), np.nan, self.codes.dtype)
        codes[known] = self.codes[places.drop_null().to_numpy()]
        return codes


def read_codes(path: Path | str, spec: EnvSpec) -> AnyArray | None:
    """The distinct instruction codes of a file of this layout, (K, 768); None where it has none."""
    with mapped_parquet(Path(path)) as file:
        return CanonicalSource(Path(path), [spec], file).codes
