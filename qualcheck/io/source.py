"""Rollout files of any layout, recognised by what is in them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.parquet as pq

from qualcheck.errors import DataError, UsageError
from qualcheck.io import benchmark_parquet, canonical_reader, episodes_hdf5, hdf5, npz, pickles, records, tables
from qualcheck.io.adjust import AdjustedSource
from qualcheck.io.encodings import Encodings
from qualcheck.io.flat import FlatSource
from qualcheck.io.mapped import mapped_parquet, refuse_irregular
from qualcheck.io.npy import load_npy
from qualcheck.io.padded import PaddedSource
from qualcheck.io.pair import with_partner
from qualcheck.io.stored import Stored, in_memory
from qualcheck.spec import EnvSpec
from qualcheck.types import AnyArray, Rollouts

READS = (
    "the benchmark's .npy, .h5 and Parquet, .npz, pickled rollouts, HDF5 of D4RL, Minari and robomimic, Parquet of "
    "LeRobot and Minari, and qualcheck's own Parquet"
)
_OTHER_LAYOUTS = {b"\x1f\x8b": "a gzip archive", b"\x28\xb5\x2f\xfd": "a zstd archive"}


class Source(Protocol):
    """One opened rollout file."""

    @property
    def path(self) -> Path: ...
    @property
    def spec(self) -> EnvSpec:
        """The row layout that the file has, of those it was opened with."""
        ...

    @property
    def format(self) -> str:
        """ "npy", "npz", "hdf5", "pickle" (padded arrays), "benchmark_parquet", "canonical", "records" (one dict a
        rollout), "flat" (all steps in a row) or "arrays"; ", pair" or ", standardised" may follow."""
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

    def keys(self) -> Mapping[str, Any]:
        """The file's top-level values as stored, padding included; empty for the canonical layout."""
        ...


class FileSource(Source, Protocol):
    """A rollout file with what is known of the file itself."""

    @property
    def files(self) -> tuple[Path, ...]:
        """Every file that was read: `path`, and its partner where the layout has two."""
        ...


def open_source(
    path: Path | str,
    spec: EnvSpec | Sequence[EnvSpec],
    *,
    index: int = 0,
    last_action: str = "auto",
    trust_pickle: bool = False,
    encodings: Path | str | None = None,
    obs_mean: AnyArray | None = None,
    obs_std: AnyArray | None = None,
) -> FileSource:
    """A rollout file, its layout found by content.

    Args:
        path: the file; opened read-only.
        spec: the environment its rows belong to, or every row layout that they may have; see `Source.spec`.
        index: place of this file in the run's list of inputs.
        last_action: "auto", "executed" or "filler": what the last action of a rollout is in a file that does
            not show the row after it. auto: what the file itself says, else filler iff it holds at least 20
            rollouts and the last reward is 0 in every one.
        trust_pickle: hand pickles to numpy's own loader, which can run code; gives a warning.
        encodings: file of reference codes that name the instruction of a rollout which has a code and no text.
        obs_mean: what was subtracted from each column of the observations, (O,).
        obs_std: what each column was then divided by, (O,).

    Raises:
        DataError: the file is missing, of another layout, refused, or its structure is broken.
        UsageError: `last_action` is none of the three, or a statistic does not fit the rows.
    """
    if last_action not in ("auto", "executed", "filler"):
        raise UsageError(f"last_action {last_action!r}; expected auto, executed or filler")
    specs = [spec] if isinstance(spec, EnvSpec) else list(spec)
    codes = None if encodings is None else Encodings(encodings)
    source = _open(Path(path), specs, index, last_action, trust_pickle)
    if codes is None and obs_mean is None and obs_std is None:
        return source
    return AdjustedSource(source, obs_mean, obs_std, codes)


def _open(path: Path, specs: Sequence[EnvSpec], index: int, last_action: str, trust: bool) -> FileSource:
    head = head_of(path)
    if head.startswith(b"PAR1"):
        return _open_parquet(path, specs, index, last_action)
    format, raw = load_raw(path, head, trust)
    partner = None
    if isinstance(raw, dict):
        raw, partner = with_partner(path, format, raw, lambda other: load_raw(other, head_of(other), trust)[1])
    source = _from_raw(path, format if partner is None else f"{format}, pair", raw, specs, index, last_action)
    if partner is not None:
        source.files = (path, partner)
        source.findings.append(f"read together with {partner.name}")
    return source


def _from_raw(
    path: Path, format: str, raw: Any, specs: Sequence[EnvSpec], index: int, last_action: str
) -> PaddedSource | FlatSource:
    obs = raw.get("observations") if isinstance(raw, dict) else None
    if isinstance(obs, Stored) and obs.ndim == 3:
        return PaddedSource(path, format, specs, raw, index, last_action)
    raw = in_memory(raw) if isinstance(raw, dict) else raw
    if records.is_records(raw):
        columns, metadata = records.from_records(path, raw)
        kept = raw if isinstance(raw, dict) else {}
        return FlatSource(path, "records", specs, columns, index, last_action, metadata, kept)
    if not isinstance(raw, dict):
        found = f"an array of {raw.dtype} {raw.shape}" if hasattr(raw, "dtype") else f"a {type(raw).__name__}"
        raise DataError(
            f"{path}: the .{format} holds {found}; expected a dict with the keys observations, actions, rewards and "
            "masks, or a list of rollouts. Is this a rollout file?"
        )
    if records.is_flat(raw):
        columns, metadata, findings = records.from_flat(path, raw)
        source = FlatSource(path, "flat", specs, columns, index, last_action, metadata, raw)
        source.findings[:0] = findings
        return source
    return PaddedSource(path, format, specs, raw, index, last_action)


def load_raw(path: Path, head: bytes, trust: bool) -> tuple[str, Any]:
    """The kind of a file that is no Parquet, and its contents as plain data, arrays that stay on the disk as `Stored`.

    Raises:
        DataError: of another kind, refused or broken.
    """
    if head.startswith(b"\x93NUMPY"):
        raw = load_npy(path, trust)
        # an object array of rollouts
        return "npy", raw.tolist() if hasattr(raw, "dtype") and raw.dtype == object and raw.ndim == 1 else raw
    if head.startswith(hdf5.MAGIC):
        episodes = episodes_hdf5.read_episodes(path)
        return "hdf5", hdf5.read_hdf5(path) if episodes is None else episodes
    if head.startswith(b"ARROW1"):
        with pa.memory_map(str(path)) as stream:
            try:
                table = pa.ipc.open_file(stream).read_all()
            except (OSError, ValueError, pa.ArrowException) as error:
                raise DataError(f"{path}: not a whole Arrow file. Copy it again") from error
        if tables.is_minari(table.column_names):
            return "arrow", tables.minari(path, table)
        raise DataError(f"{path}: an Arrow file that is no episode of Minari; this version reads {READS}")
    if head.startswith(npz.MAGIC):
        return "npz", npz.read_npz(path)
    if pickles.recognises(head):
        return "pickle", pickles.load_pickle_file(path, trust)
    raise DataError(f"{path}: this is {_kind(head)}; this version reads {READS}. Convert it to one of these")


def head_of(path: Path) -> bytes:
    """The first bytes of a file, which tell its kind.

    Raises:
        DataError: there is none, or it cannot be read.
    """
    refuse_irregular(path)
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
    return "no layout that qualcheck knows"


def open_parquet(path: Path) -> pq.ParquetFile:
    """A Parquet file whose footer is whole.

    Raises:
        DataError: it is not.
    """
    try:
        return mapped_parquet(path)
    except (OSError, ValueError, pa.ArrowException) as error:
        raise DataError(f"{path}: not a whole Parquet file. Copy it again") from error


def _open_parquet(path: Path, specs: Sequence[EnvSpec], index: int, last_action: str) -> FileSource:
    file = open_parquet(path)
    names = file.schema_arrow.names
    if canonical_reader.recognises(file.schema_arrow):
        return canonical_reader.CanonicalSource(path, specs, file, index, last_action)
    if benchmark_parquet.recognises(names):
        arrays, scalars = benchmark_parquet.read_benchmark(path, file)
        if getattr(arrays.get("observations"), "ndim", 3) != 3:
            arrays = in_memory(arrays)
        if records.is_records(arrays):
            columns, metadata = records.from_records(path, arrays)
            return FlatSource(path, "records", specs, columns, index, last_action, {**scalars, **metadata}, arrays)
        return PaddedSource(path, "benchmark_parquet", specs, arrays, index, last_action, metadata=scalars)
    if tables.is_lerobot(names):
        return _from_raw(path, "parquet", tables.lerobot(path, file.read()), specs, index, last_action)
    if tables.is_minari(names):
        return _from_raw(path, "parquet", tables.minari(path, file.read()), specs, index, last_action)
    shown = ", ".join(names[:12])
    raise DataError(f"{path}: a Parquet file with the columns {shown}; this version reads {READS}. Convert it first")
