"""Which reading of the rewards each input follows, decided when the whole of it has been seen.

The score table is written with the adapter's first reading while the run goes on; where another one fits an input
better, only that column of the table is written again. Nothing is simulated twice for it.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from qualcheck.checks.reward import Reading, nothing
from qualcheck.table import TableWriter
from qualcheck.types import BoolArray, FloatArray


class RewardLog:
    """The readings of one input, batch by batch."""

    def __init__(self, folder: Path, number: int) -> None:
        """Args:
        folder: of the unfinished run; errors under other readings than the first wait there in files.
        number: of the input.
        """
        self._folder, self._number = folder, number
        self.wrong: Counter[str] = Counter()  # reading -> rewards that are off
        self._verified: Counter[str] = Counter()
        self._passed: Counter[str] = Counter()
        self._parts: list[tuple[int, int, int, int, dict[str, Reading]]] = []  # first and number of transitions and of
        # rollouts in the tables, and readings without the errors of transitions

    def append(self, readings: dict[str, Reading], at: tuple[int, int], size: tuple[int, int]) -> FloatArray:
        """Keep a batch; the errors under the first reading come back, (M,).

        Args:
            readings: of the batch.
            at: its first transition and its first rollout in the tables.
            size: transitions and rollouts of it.
        """
        none = np.zeros(0, np.float32)
        kept = {name: Reading(none, r.consistency, r.shifted, 0, 0, 0) for name, r in readings.items()}
        self._parts.append((at[0], size[0], at[1], size[1], kept))
        for place, (name, reading) in enumerate(readings.items()):
            self.wrong[name] += reading.wrong
            self._verified[name] += reading.verified
            self._passed[name] += reading.passed
            if place:
                with self._spill(name).open("ab") as stream:
                    reading.error.tofile(stream)
        first = next(iter(readings.values()), None)
        return nothing(size[0], 0).error if first is None else first.error

    @property
    def preferred(self) -> str | None:
        """The reading with the fewest wrong rewards, the first of equals; None for an input without rewards."""
        return min(self.wrong, key=lambda name: self.wrong[name]) if self.wrong else None

    @property
    def counts(self) -> tuple[int, int] | None:
        """(verified, passed) transitions under the preferred reading."""
        name = self.preferred
        return None if name is None else (self._verified[name], self._passed[name])

    def fill(self, consistency: FloatArray, shifted: BoolArray) -> None:
        """Write the share of rewards that agree and whether they stand one step late, (N,) of the whole run."""
        name = self.preferred
        for _, _, first, n, kept in self._parts:
            if name in kept:
                consistency[first : first + n], shifted[first : first + n] = kept[name].consistency, kept[name].shifted

    def replaced(self) -> dict[int, FloatArray]:
        """First row -> errors under the preferred reading, none where they are the ones that were given back."""
        name = self.preferred
        if name is None or name == next(iter(self.wrong)) or not self._spill(name).stat().st_size:
            return {}
        errors = np.memmap(self._spill(name), np.float32, "r")
        found, done = {}, 0
        for first, m, _, _, kept in self._parts:
            if name in kept:
                found[first] = errors[done : done + m]
                done += m
        return found

    def clear(self) -> None:
        """Remove the waiting files."""
        for name in self.wrong:
            self._spill(name).unlink(missing_ok=True)

    def _spill(self, name: str) -> Path:
        return self._folder / f".reward-{self._number}-{list(self.wrong).index(name)}"


def rewrite(path: Path, replaced: Mapping[int, FloatArray], metadata: Mapping[str, str]) -> None:
    """Write the rewards' errors of a score table again.

    Args:
        path: transitions.parquet of an unfinished run.
        replaced: first row -> errors from there on.
        metadata: of the table.
    """
    file = pq.ParquetFile(path)
    fresh = path.with_suffix(".fresh")
    row, firsts = 0, sorted(replaced)
    with TableWriter(fresh, metadata) as writer:
        for group in range(file.num_row_groups):
            table = file.read_row_group(group)
            errors = table["reward_error"].to_numpy().copy()
            for first in firsts[max(bisect_right(firsts, row) - 1, 0) : bisect_left(firsts, row + table.num_rows)]:
                values = replaced[first]
                low, high = max(first, row), min(first + len(values), row + table.num_rows)
                if low < high:
                    errors[low - row : high - row] = values[low - first : high - first]
            at = table.schema.get_field_index("reward_error")
            table = table.set_column(at, "reward_error", pa.array(errors))
            row += table.num_rows
            writer.append({name: _as_written(table[name]) for name in table.column_names})
    file.close()
    fresh.replace(path)


def _as_written(column: pa.ChunkedArray) -> pa.ChunkedArray:
    return column.dictionary_encode() if pa.types.is_string(column.type) else column
