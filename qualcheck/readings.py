"""Which reading of the rewards each input follows, decided when the whole of it has been seen.

The score table is written with the adapter's first reading while the run goes on; where another one fits an input
better, only that column of the table is written again. Nothing is simulated twice for it.
"""

from __future__ import annotations

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
        self._rollouts: list[tuple[int, dict[str, Reading]]] = []  # without the errors of transitions
        self.transitions = 0

    def append(self, readings: dict[str, Reading], transitions: int, rollouts: int) -> FloatArray:
        """Keep a batch; the errors under the first reading come back, (M,)."""
        self.transitions += transitions
        none = np.zeros(0, np.float32)
        self._rollouts.append(
            (rollouts, {name: Reading(none, r.consistency, r.shifted, 0, 0, 0) for name, r in readings.items()})
        )
        for place, (name, reading) in enumerate(readings.items()):
            self.wrong[name] += reading.wrong
            self._verified[name] += reading.verified
            self._passed[name] += reading.passed
            if place:
                with self._spill(name).open("ab") as stream:
                    reading.error.tofile(stream)
        first = next(iter(readings.values()), None)
        return nothing(transitions, 0).error if first is None else first.error

    @property
    def preferred(self) -> str | None:
        """The reading with the fewest wrong rewards, the first of equals; None for an input without rewards."""
        return min(self.wrong, key=lambda name: self.wrong[name]) if self.wrong else None

    @property
    def counts(self) -> tuple[int, int] | None:
        """(verified, passed) transitions under the preferred reading."""
        name = self.preferred
        return None if name is None else (self._verified[name], self._passed[name])

    def of_rollouts(self) -> tuple[FloatArray, BoolArray]:
        """Share of rewards that agree and whether they stand one step late, under the preferred reading, (N,) each."""
        name = self.preferred
        parts = [kept[name] if name in kept else nothing(0, size) for size, kept in self._rollouts if size]
        if not parts:
            return np.zeros(0, np.float32), np.zeros(0, bool)
        return np.concatenate([part.consistency for part in parts]), np.concatenate([part.shifted for part in parts])

    def replaced(self) -> FloatArray | None:
        """Errors under the preferred reading, (M,), None where they are the ones that were given back."""
        name = self.preferred
        if name is None or name == next(iter(self.wrong)):
            return None
        return np.memmap(self._spill(name), np.float32, "r") if self._spill(name).stat().st_size else None

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
    row = 0
    with TableWriter(fresh, metadata) as writer:
        for group in range(file.num_row_groups):
            table = file.read_row_group(group)
            errors = table["reward_error"].to_numpy().copy()
            for first, values in replaced.items():
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
