"""The score table of a run: one row a transition and one row a rollout, in Parquet."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from qualcheck.errors import DataError
from qualcheck.types import AnyArray, FloatArray, IntArray

ROW_GROUP = 65_536  # rows; fixed, so that the bytes do not depend on how the run was batched

TRANSITION_COLUMNS: dict[str, pa.DataType] = {
    "rollout": pa.int32(),
    "step": pa.int32(),
    "tc": pa.float32(),
    "tc_strict": pa.float32(),
    "tc_error": pa.float32(),
    "tc_noise": pa.float32(),
    "tc_scaled": pa.float32(),
    "tc_scaled_state": pa.float32(),
    "skill": pa.float32(),
    "tc_code": pa.string(),
    "seeding": pa.string(),
    "dl": pa.float32(),
    "dl_rule": pa.string(),
    "reward_error": pa.float32(),
    "goal_share": pa.float32(),  # share of sub-goals true on the end row, as imagined
    "goal_share_replayed": pa.float32(),  # and in the open-loop replay
    "open_loop_error": pa.float32(),  # of the end row of the open-loop replay, as tc_scaled; exact: wrong fields
}

ROLLOUT_COLUMNS: dict[str, pa.DataType] = {
    "rollout": pa.int32(),
    "source": pa.string(),
    "source_rollout": pa.int32(),
    "source_step": pa.int32(),
    "env": pa.string(),
    "level": pa.string(),
    "generator": pa.string(),
    "instruction": pa.string(),
    "task": pa.string(),
    "task_released": pa.string(),
    "start": pa.string(),
    "length": pa.int32(),
    "gc_imagined": pa.float32(),
    "gc_replayed": pa.float32(),
    "gc_imagined_released": pa.float32(),
    "gc_replayed_released": pa.float32(),
    "gc_code": pa.string(),
    "consistency": pa.float32(),
    "consistency_replayed": pa.float32(),
    "trivial": pa.bool_(),
    "trivial_released": pa.bool_(),
    "correctness": pa.float32(),
    "correctness_strict": pa.float32(),
    "legality": pa.float32(),
    "dl_row0": pa.float32(),
    "dl_row0_rule": pa.string(),
    "coverage_tc": pa.float32(),
    "coverage_dl": pa.float32(),
    "scaled_error": pa.float32(),
    "skill": pa.float32(),
    "reward_consistency": pa.float32(),
    "sweep_imagined": pa.int32(),  # goal at each of thresholds.MULTIPLES of the success thresholds, one bit each; -1
    "sweep_replayed": pa.int32(),  # where it cannot be judged, or the environment has no thresholds
    "imagined_return": pa.float32(),  # sum of the recorded rewards, NaN where the file has none
    "first_fault_step": pa.int32(),
    "first_divergence_step": pa.int32(),
    "cluster": pa.int64(),  # equal where row 0 and the instruction are equal
    "flags": pa.list_(pa.string()),
}

LAW = ("env", "family", "grade", "predicates", "definitions", "calibration")  # what a run's reference shares with it

HIDDEN_FILE = "hidden.parquet"  # of environments whose rows hide something: one row a transition

HIDDEN_NAMES = b"qualcheck.hidden"  # the names of its numbers, in its metadata

UNITS: dict[str, str] = {
    "tc_error": "exact grade: number of wrong fields; else tolerances",
    "tc_noise": "joint errors that 99 of 100 real transitions keep",
    "tc_scaled": "standard deviations of the real one-step change",
    "tc_scaled_state": "standard deviations of the real state",
    "reward_error": "reward",
    "open_loop_error": "exact grade: number of wrong fields; else standard deviations of the real one-step change",
}


def coded(names: Sequence[str], index: AnyArray) -> pa.DictionaryArray:
    """A string column from integer codes: the file holds strings, the memory does not."""
    return pa.DictionaryArray.from_arrays(pa.array(index.astype(np.int32)), pa.array(list(names), pa.string()))


class TableWriter:
    """Appends columns and writes row groups of exactly `ROW_GROUP` rows.

    Dictionary-encoded text is accepted and read back as plain strings, since no Arrow schema is stored.
    """

    def __init__(self, path: Path, metadata: Mapping[str, str]) -> None:
        self._path = path
        self._metadata = dict(metadata)
        self._writer: pq.ParquetWriter | None = None
        self._pending: list[pa.Table] = []
        self._rows = 0

    def append(self, columns: Mapping[str, Any] | pa.Table) -> None:
        table = columns if isinstance(columns, pa.Table) else pa.table(dict(columns))
        self._pending.append(table)
        self._rows += table.num_rows
        if self._rows >= ROW_GROUP:
            self._flush(whole=False)

    def _flush(self, whole: bool) -> None:
        table = pa.concat_tables(self._pending)
        if self._writer is None:
            numbers = (pa.types.is_floating, pa.types.is_fixed_size_list)
            text = [f.name for f in table.schema if not any(kind(f.type) for kind in numbers)]
            self._writer = pq.ParquetWriter(
                self._path,
                table.schema,
                compression="zstd",
                compression_level=1,
                use_dictionary=text,
                store_schema=False,
                write_statistics=False,
            )
        end = table.num_rows if whole else table.num_rows - table.num_rows % ROW_GROUP
        if end or whole:
            for first in range(0, end, ROW_GROUP) if end else [0]:
                self._writer.write_table(_canonical(table.slice(first, min(ROW_GROUP, end - first))))
        rest = table.slice(end)
        self._pending = [rest]
        self._rows = rest.num_rows

    def close(self) -> None:
        if self._pending:
            self._flush(whole=True)
        if self._writer is not None:
            self._writer.add_key_value_metadata(self._metadata)
            self._writer.close()

    def __enter__(self) -> TableWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.close()
        elif self._writer is not None:
            self._writer.close()


def _canonical(table: pa.Table) -> pa.Table:
    """The same rows, equal however they were batched: in one piece, texts coded by the sorted names that occur."""
    table = table.combine_chunks()  # pages end where chunks do
    for at, column in enumerate(table.schema):
        if pa.types.is_dictionary(column.type):
            chunks = table.column(at).unify_dictionaries().chunks
            codes = pa.concat_arrays(chunks) if chunks else coded([], np.zeros(0, np.int32))
            names, index = codes.dictionary.to_pylist(), codes.indices.to_numpy()
            used = np.flatnonzero(np.bincount(index, minlength=len(names))).tolist()
            order = sorted(used, key=names.__getitem__)
            place = np.zeros(len(names), np.int32)
            place[order] = np.arange(len(order), dtype=np.int32)
            table = table.set_column(at, column.name, coded([names[number] for number in order], place[index]))
    return table


@dataclass(frozen=True)
class Run:
    """A finished run folder. Tables are read when asked for, column by column."""

    path: Path
    manifest: dict[str, Any]
    _cache: dict[tuple[str, tuple[str, ...]], pa.Table] = field(default_factory=dict, repr=False)
    _checked: set[str] = field(default_factory=set, repr=False)

    @classmethod
    def open(cls, path: str | Path) -> Run:
        """Open a run folder.

        Raises:
            DataError: no complete run is there.
        """
        from qualcheck.manifest import read_manifest

        return cls(Path(path), read_manifest(Path(path)))

    def transitions(self, columns: Sequence[str] | None = None) -> pa.Table:
        return self._read("transitions.parquet", columns)

    def reference(self) -> Run | None:
        """The real rollouts that were scored beside, judged by the law of this run; None where there are none."""
        if not (self.path / "reference" / "transitions.parquet").is_file():
            return None
        results = {name: value for name, value in self.manifest["results"].items() if name in LAW}
        return Run(self.path / "reference", {"results": results})

    def rollouts(self, columns: Sequence[str] | None = None) -> pa.Table:
        return self._read("rollouts.parquet", columns)

    def hidden(self, rows: IntArray) -> FloatArray | None:
        """Hidden state before the action of some transitions, (S,) -> (S, H); None where rows show everything."""
        if HIDDEN_FILE not in self.manifest["results"].get("tables", {}):
            return None
        self._check(HIDDEN_FILE)
        with pq.ParquetFile(self.path / HIDDEN_FILE) as file:
            width = len(file.metadata.metadata[HIDDEN_NAMES].split())
            state = np.full((len(rows), width), np.nan)
            first = 0
            for group in range(file.num_row_groups):
                size = file.metadata.row_group(group).num_rows
                inside = np.flatnonzero((rows >= first) & (rows < first + size))
                if len(inside):
                    column = file.read_row_group(group)["hidden"].combine_chunks()
                    state[inside] = column.flatten().to_numpy().reshape(-1, width)[rows[inside] - first]
                first += size
        return state

    def _read(self, name: str, columns: Sequence[str] | None) -> pa.Table:
        key = (name, tuple(columns or ()))
        if key not in self._cache:
            self._check(name)
            try:
                self._cache[key] = pq.read_table(self.path / name, columns=list(columns) if columns else None)
            except (OSError, pa.ArrowInvalid, KeyError) as error:
                raise DataError(f"{self.path / name}: cannot be read ({error}). Score the input again.") from error
        return self._cache[key]

    def _check(self, name: str) -> None:
        """Raise DataError if a table is not the one that the run wrote; asked once a table."""
        from qualcheck.manifest import sha256

        written = self.manifest["results"].get("tables", {}).get(name)
        if written is None or name in self._checked:
            return
        try:
            found = sha256(self.path / name)
        except OSError as error:
            raise DataError(f"{self.path / name}: cannot be read ({error.strerror}). Score the input again.") from error
        if found != written:
            raise DataError(f"{self.path / name}: changed since the run wrote it. Score the input again.")
        self._checked.add(name)

    def offsets(self) -> IntArray:
        """First row in transitions.parquet of each rollout, (N+1,)."""
        length = self.rollouts(["length"])["length"].to_numpy()
        return np.concatenate([[0], np.cumsum(length)]).astype(np.int64)
