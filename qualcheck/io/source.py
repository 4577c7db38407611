"""Rollout files of any layout, recognised by what is in them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from qualcheck.errors import DataError, UsageError
from qualcheck.io import benchmark_parquet, canonical_reader
from qualcheck.io.npy import load_npy
from qualcheck.io.padded import PaddedSource
from qualcheck.spec import EnvSpec
from qualcheck.types import Rollouts

READS = "the benchmark's pickled .npy, its current Parquet, and qualcheck's own Parquet"
_OTHER_LAYOUTS = {
    b"\x89HDF\r\n\x1a\n": "an HDF5 file",
    b"PK\x03\x04": "a zip or .npz archive",
    b"\x1f\x8b": "a gzip archive",
    b"\x28\xb5\x2f\xfd": "a zstd archive",
}


class Source(Protocol):
    """One opened rollout file."""

    @property
    def path(self) -> Path: ...
    @property
    def format(self) -> str:
        """One of "npy", "benchmark_parquet", "canonical"."""
        ...

    @property
    def n_rollouts(self) -> int: ...
    @property
    def n_transitions(self) -> int: ...
    @property
    def longest(self) -> int:
        """Transitions of the longest rollout; recordings are often cut there."""
        ...

    @property
    def last_action(self) -> str:
        """ "executed" or "filler"; "none" where the file shows the row after the last action."""
        ...

    @property
    def findings(self) -> list[str]:
        """One line each, for the user."""
        ...

    @property
    def metadata(self) -> dict[str, Any]:
        """What the file says once for all its rollouts."""
        ...

    def batches(self, max_transitions: int = 65_536, extras: bool = False) -> Iterator[Rollouts]: ...

    def keys(self) -> dict[str, Any]:
        """The file's top-level values as stored, padding included; empty for the canonical layout."""
        ...


def open_source(
    path: Path | str,
    spec: EnvSpec,
    *,
    index: int = 0,
    last_action: str = "auto",
    trust_pickle: bool = False,
) -> Source:
    """A rollout file, its layout found by content.

    Args:
        path: the file; opened read-only.
        spec: the environment its rows belong to.
        index: place of this file in the run's list of inputs.
        last_action: "auto", "executed" or "filler": what the last action of a rollout is in a file that does
            not show the row after it. auto: what the file itself says, else filler iff it holds at least 20
            rollouts and the last reward is 0 in every one.
        trust_pickle: hand pickles to numpy's own loader, which can run code; gives a warning.

    Raises:
        DataError: the file is missing, of another layout, refused, or its structure is broken.
        UsageError: `last_action` is none of the three.
    """
    path = Path(path)
    if last_action not in ("auto", "executed", "filler"):
        raise UsageError(f"last_action {last_action!r}; expected auto, executed or filler")
    head = _head(path)
    if head.startswith(b"\x93NUMPY"):
        raw = _npy_dict(path, trust_pickle)
        return PaddedSource(path, "npy", spec, raw, index, last_action)
    if head.startswith(b"PAR1"):
        return _open_parquet(path, spec, index, last_action)
    raise DataError(f"{path}: this is {_kind(head)}; this version reads {READS}. Convert it to one of these")


def _head(path: Path) -> bytes:
    try:
        with path.open("rb") as stream:
            return stream.read(16)
    except IsADirectoryError as error:
        raise DataError(f"{path}: a folder; expected a rollout file: {READS}") from error
    except FileNotFoundError as error:
        raise DataError(f"{path}: does not exist. Check the path") from error
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror}). Check its permissions") from error


def _kind(head: bytes) -> str:
    if not head:
        return "an empty file"
    for magic, name in _OTHER_LAYOUTS.items():
        if head.startswith(magic):
            return name
    if head[0] == 0x80 and len(head) > 1 and head[1] <= 5:
        return "a bare pickle"
    return "no layout that qualcheck knows"


def _npy_dict(path: Path, trust: bool) -> dict[str, Any]:
    raw = load_npy(path, trust)
    if not isinstance(raw, dict):
        found = f"an array of {raw.dtype} {raw.shape}" if isinstance(raw, np.ndarray) else f"a {type(raw).__name__}"
        raise DataError(
            f"{path}: the .npy holds {found}; expected a pickled dict with the keys observations, actions, rewards "
            "and masks. Is this a rollout file?"
        )
    return raw


def _open_parquet(path: Path, spec: EnvSpec, index: int, last_action: str) -> Source:
    try:
        file = pq.ParquetFile(path, memory_map=True)
    except (OSError, pa.ArrowException) as error:
        raise DataError(f"{path}: not a whole Parquet file. Copy it again") from error
    names = file.schema_arrow.names
    if canonical_reader.recognises(file.schema_arrow):
        return canonical_reader.CanonicalSource(path, spec, file, index, last_action)
    if benchmark_parquet.recognises(names):
        arrays, scalars = benchmark_parquet.read_benchmark(path, file)
        return PaddedSource(path, "benchmark_parquet", spec, arrays, index, last_action, metadata=scalars)
    shown = ", ".join(names[:12])
    raise DataError(f"{path}: a Parquet file with the columns {shown}; this version reads {READS}. Convert it first")
