"""The rollout table of a run: waits on the disk, since some columns are known only when all inputs have been seen."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from qualcheck.checks.flags import as_lists
from qualcheck.table import ROLLOUT_COLUMNS, TableWriter
from qualcheck.types import AnyArray, BoolArray


class RolloutTable:
    """Columns and flags of a run's rollouts, batch by batch. What stays in memory is some thirty bytes a rollout.

    Args:
        folder: of the unfinished run; the columns wait there in a file.
    """

    def __init__(self, folder: Path) -> None:
        self._path = folder / ".rollouts"
        self._stream: Any = None
        self._writer: Any = None
        self._flags: list[dict[str, BoolArray]] = []
        self._sizes: list[int] = []
        self._seen = _Distinct()
        self._clusters = _Distinct()
        self._repeated: list[BoolArray] = []

    def note(self, part: Mapping[str, Any], flags: Mapping[str, BoolArray], prints: AnyArray) -> None:
        """Look at a batch.

        Args:
            part: its columns.
            flags: name -> (n,).
            prints: (n,) equal for equal rollouts.
        """
        repeated = self._seen.add(prints)
        self._clusters.add(np.asarray(part["cluster"]))
        self._repeated.append(repeated & (np.asarray(part["length"]) > 0))
        self._flags.append({name: values for name, values in flags.items() if values.any()})
        self._sizes.append(len(prints))

    def append(self, part: Mapping[str, Any]) -> None:
        """Keep the columns of a batch, in the order of `note`; may run in another thread."""
        table = pa.table(dict(part))
        table = table.cast(pa.schema([(name, ROLLOUT_COLUMNS[name]) for name in table.column_names])).combine_chunks()
        if self._writer is None:
            self._stream = self._path.open("wb")
            self._writer = pa.ipc.new_stream(self._stream, table.schema)
        self._writer.write_table(table)

    @property
    def clusters(self) -> int:
        """Distinct starts with their instruction."""
        return len(self._clusters)

    def write(
        self, path: Path, flags: Mapping[str, BoolArray], columns: Mapping[str, AnyArray], metadata: Mapping[str, str]
    ) -> dict[str, int]:
        """Write the table, and give back how often each flag is set, by name.

        Args:
            path: of the table.
            flags: more flags, (N,) of the whole run.
            columns: more columns, (N,) of the whole run.
            metadata: of the table.
        """
        counts: Counter[str] = Counter()
        begin = 0
        with TableWriter(path, metadata) as writer:
            for part, own, repeated in zip(self._parts(), self._flags, self._repeated, strict=True):
                end = begin + part.num_rows
                found = {**own, "duplicate": repeated, **{name: values[begin:end] for name, values in flags.items()}}
                found = {name: values for name, values in found.items() if values.any()}
                counts.update({name: int(values.sum()) for name, values in found.items()})
                lists = pa.array(as_lists(found, part.num_rows), pa.list_(pa.string()))
                held = {name: part[name] for name in part.column_names} | {"flags": lists}
                held |= {name: pa.array(values[begin:end], ROLLOUT_COLUMNS[name]) for name, values in columns.items()}
                writer.append({name: held[name] for name in ROLLOUT_COLUMNS})
                begin = end
        self._path.unlink(missing_ok=True)
        return dict(sorted(counts.items()))

    def _parts(self) -> Any:
        if self._writer is None:
            return
        self._writer.close()
        self._stream.close()
        with self._path.open("rb") as stream:
            for size, batch in zip(self._sizes, pa.ipc.open_stream(stream), strict=True):
                assert batch.num_rows == size
                yield pa.Table.from_batches([batch])


class _Distinct:
    """The distinct values so far, sorted, in few arrays that double in length."""

    def __init__(self) -> None:
        self._runs: list[AnyArray] = []

    def add(self, values: AnyArray) -> BoolArray:
        """Which of these values were there before, (n,), those earlier among them included."""
        distinct, first = np.unique(values, return_index=True)
        repeated = np.ones(len(values), bool)
        repeated[first] = False
        for known in self._runs:
            place = np.minimum(np.searchsorted(known, values), len(known) - 1)
            repeated |= known[place] == values
        while self._runs and len(self._runs[-1]) < 2 * len(distinct):
            distinct = np.union1d(self._runs.pop(), distinct)
        if len(distinct):
            self._runs.append(distinct)
        return repeated

    def __len__(self) -> int:
        return len(np.unique(np.concatenate(self._runs))) if self._runs else 0
