"""A source whose rows are brought back to physical units and whose instruction codes get their names back."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from qualcheck.errors import DataError, UsageError
from qualcheck.io.encodings import ACCEPT, Encodings
from qualcheck.io.mapped import refuse_irregular
from qualcheck.io.npy import load_npy
from qualcheck.spec import EnvSpec
from qualcheck.types import AnyArray, FloatArray, Rollouts

if TYPE_CHECKING:
    from qualcheck.io.source import FileSource

LONGEST_LIST = 1 << 20  # bytes of a text file of statistics
FEWEST_ROWS, FEWEST_COLUMNS = 30, 3  # that the statistics of a file can be told from chance with


class AdjustedSource:
    """Another source, adjusted; see `Source` and `open_source`.

    Args:
        mean: what was subtracted from each column, (O,) or (O + code,); None: nothing.
        std: what each column was divided by; None: nothing.

    Raises:
        UsageError: a statistic has another number of columns, or a deviation that is not above 0.
        DataError: the reference codes are of another length than those of the file.
    """

    def __init__(
        self,
        inner: FileSource,
        mean: AnyArray | None = None,
        std: AnyArray | None = None,
        encodings: Encodings | None = None,
    ) -> None:
        self._inner = inner
        self.path, self.files, self.metadata = inner.path, inner.files, inner.metadata
        self.spec, self.last_action = inner.spec, inner.last_action
        self.n_rollouts, self.n_transitions, self.longest = inner.n_rollouts, inner.n_transitions, inner.longest
        spec = inner.spec
        self._mean = _statistic("obs-mean", mean, spec, 0.0)
        self._std = _statistic("obs-std", std, spec, 1.0)
        if not (self._std > 0).all():
            raise UsageError(f"--obs-std: column {int(np.argmin(self._std))} has {self._std.min()}; expected above 0.")
        self._units = mean is not None or std is not None
        # rows in other units than the file's cannot be written back into its layout
        self.format = f"{inner.format}, standardised" if self._units else inner.format
        self._encodings = encodings
        if encodings is not None and spec.code_size != encodings.size:
            raise DataError(
                f"{encodings.path}: codes of {encodings.size} numbers; {spec.id} has {spec.code_size}. Is it the file "
                "of instruction codes?"
            )
        self._coded: set[int] = set()  # rollouts that had a code and no text
        self._unnamed: set[int] = set()  # of these, the ones without a reference code

    def keys(self) -> Mapping[str, Any]:
        """The file's top-level values as stored."""
        return self._inner.keys()

    @property
    def findings(self) -> list[str]:
        """One line each, for the user; what the codes say is known once the batches were read."""
        lines: list[str] = list(self._inner.findings)
        if self._units:
            lines.append("observations were multiplied by the given deviations and the given means added")
        if self._coded and self._encodings is not None:
            found = len(self._coded) - len(self._unnamed)
            lines.append(f"{found} of {len(self._coded)} instruction codes named by {self._encodings.path.name}")
        if self._unnamed:
            lines.append(f"{len(self._unnamed)} rollouts: no reference code within {ACCEPT}")
        return lines

    def batches(self, max_transitions: int = 65_536, extras: bool = False) -> Iterator[Rollouts]:
        """Whole rollouts in source order, adjusted."""
        for batch in self._inner.batches(max_transitions, extras):
            yield self._named(self._physical(batch))

    def _physical(self, r: Rollouts) -> Rollouts:
        if not self._units:
            return r
        return replace(
            r,
            obs=self._back(r.obs),
            break_obs=None if r.break_obs is None else self._back(r.break_obs),
            reset_obs=None if r.reset_obs is None else self._back(r.reset_obs),
        )

    def _back(self, rows: AnyArray) -> FloatArray:
        with np.errstate(over="ignore", invalid="ignore"):
            physical: FloatArray = rows.astype(np.float64) * self._std + self._mean
        return physical

    def _named(self, r: Rollouts) -> Rollouts:
        if self._encodings is None or r.code is None:
            return r
        unknown = np.flatnonzero([text is None for text in r.instruction])
        if not len(unknown):
            return r
        names = self._encodings.names(r.code[unknown])
        instruction = list(r.instruction)
        task = list(r.task) if r.task is not None else [""] * r.n_rollouts
        missing = np.zeros(r.n_rollouts, bool)
        for place, name in zip(unknown.tolist(), names, strict=True):
            instruction[place] = name
            task[place] = task[place] or name or ""
            missing[place] = name is None
        self._coded.update(r.source_rollout[unknown].tolist())
        self._unnamed.update(r.source_rollout[missing].tolist())
        return replace(r, instruction=instruction, task=task, flags={**r.flags, "no_reference_code": missing})


def _statistic(option: str, given: AnyArray | None, spec: EnvSpec, default: float) -> FloatArray:
    if given is None:
        return np.full(spec.obs_size, default)
    values = np.asarray(given, np.float64).reshape(-1)
    if len(values) not in (spec.obs_size, spec.obs_size + spec.code_size) or not np.isfinite(values).all():
        raise UsageError(
            f"--{option}: {len(values)} numbers, {int((~np.isfinite(values)).sum())} of them not finite; the rows of "
            f"this file have {spec.obs_size} columns. Give one number for each."
        )
    return values[: spec.obs_size]


def read_statistics(path: Path | str) -> FloatArray:
    """The numbers of a `.npy` file, or of a text file with one number a line.

    Raises:
        DataError: it is neither.
    """
    path = Path(path)
    refuse_irregular(path)
    try:
        with path.open("rb") as stream:
            is_npy = stream.read(6) == b"\x93NUMPY"
            stream.seek(0)
            text = "" if is_npy else stream.read(LONGEST_LIST).decode("utf-8", "replace")
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror}). Check the path") from error
    if is_npy:
        array = load_npy(path)
        if not isinstance(array, np.ndarray) or array.dtype.kind not in "biuf":
            raise DataError(f"{path}: holds no numbers; expected one for each column of the observations")
        values: FloatArray = np.asarray(array, np.float64).reshape(-1)
        return values
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    try:
        return np.array([float(line) for line in lines], np.float64)
    except ValueError as error:
        raise DataError(f"{path}: not one number a line ({error}); expected a list of them, or a .npy file") from error


def looks_standardised(rows: AnyArray) -> bool:
    """Whether rows look as if each column had been brought to mean 0 and deviation 1.

    Columns that hardly vary say nothing. Real rows of every known layout have columns far from it.

    Args:
        rows: (R, O), of the whole file or an even sample of it.
    """
    values = rows.astype(np.float64)
    values = values[np.isfinite(values).all(axis=1)]
    if len(values) < FEWEST_ROWS:
        return False
    mean, std = values.mean(axis=0), values.std(axis=0)
    varies = std > 1e-3
    if varies.sum() < FEWEST_COLUMNS:
        return False
    centre, spread = np.abs(mean[varies]), np.abs(np.log(std[varies]))
    near = (centre < 0.3) & (spread < 0.3)
    return bool(near.mean() >= 0.8 and np.median(centre) < 0.1 and np.median(spread) < 0.1)
