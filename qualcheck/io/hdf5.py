"""HDF5 files of padded or flat arrays: the datasets at the top of the file, by name, left on the disk."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from qualcheck.errors import DataError
from qualcheck.io.limits import check_fits, check_ratio
from qualcheck.io.stored import Contiguous, Stored
from qualcheck.types import AnyArray

MAGIC = b"\x89HDF\r\n\x1a\n"
# filters that the library brings along; any other is a plugin, which is code of somebody else
_OWN_FILTERS = {
    h5py.h5z.FILTER_DEFLATE,
    h5py.h5z.FILTER_SHUFFLE,
    h5py.h5z.FILTER_FLETCHER32,
    h5py.h5z.FILTER_SZIP,
    h5py.h5z.FILTER_NBIT,
    h5py.h5z.FILTER_SCALEOFFSET,
    h5py.h5z.FILTER_LZF,
}


class Chunked(Stored):
    """A data set in pieces, compressed or not; the pieces that hold the last entries asked for are kept.

    The file is opened for each block, so that it is free in between.
    """

    def __init__(self, path: Path, data: h5py.Dataset) -> None:
        super().__init__(data.shape, data.dtype)
        self.path, self._name = path, data.name
        self._rows = data.chunks[0] if data.chunks else 1  # entries that are unpacked together anyway
        self._from, self._held = 0, np.zeros((0, *self.shape[1:]), self.dtype)

    @property
    def step(self) -> int:
        return -(-super().step // self._rows) * self._rows

    def read(self, begin: int, end: int) -> AnyArray:
        if not self._from <= begin <= end <= self._from + len(self._held):
            first = begin // self._rows * self._rows
            last = min(-(-end // self._rows) * self._rows, len(self))
            check_fits(self.path, (last - first) * self.rollout_bytes)
            self._from, self._held = first, _read(self.path, self._name, lambda data: data[first:last])
        return self._held[begin - self._from : end - self._from]

    def whole(self) -> AnyArray:
        check_fits(self.path, len(self) * self.rollout_bytes)
        return _read(self.path, self._name, lambda data: data[()])


class StoredText(Stored):
    """A data set of text of any length, one a rollout."""

    def __init__(self, path: Path, data: h5py.Dataset) -> None:
        super().__init__(data.shape, np.dtype("U"))
        self.path, self._name = path, data.name

    @property
    def step(self) -> int:
        return 4_096

    def read(self, begin: int, end: int) -> AnyArray:
        return _read(self.path, self._name, lambda data: data.asstr("utf-8", "replace")[begin:end].astype(str))

    def __getitem__(self, part: slice) -> AnyArray:
        begin, end, _ = part.indices(len(self))
        return self.read(begin, max(begin, end))


def read_hdf5(path: Path) -> dict[str, Any]:
    """Its datasets by name, arrays as `Stored`, and its attributes.

    Groups, and anything that lies outside the file, are left alone: external links and external storage are refused.

    Raises:
        DataError: not readable, refused, or with more data than its size allows.
    """
    try:
        with h5py.File(path, "r") as file:
            datasets = _datasets(path, file)
            check_ratio(path, sum(_size(data) for data in datasets.values() if _offset(data) is None))
            found = {name: _values(path, data) for name, data in datasets.items()}
            return {**{name: _plain(value) for name, value in file.attrs.items()}, **found}
    except DataError:
        raise
    # the library raises nearly any exception on a file that is not what it claims
    except Exception as error:
        raise _unreadable(path, error) from error


def _read(path: Path, name: str, read: Callable[[h5py.Dataset], AnyArray]) -> AnyArray:
    try:
        with h5py.File(path, "r") as file:
            return read(file[name])
    except Exception as error:
        raise _unreadable(path, error) from error


def _unreadable(path: Path, error: Exception) -> DataError:
    reason = str(error).splitlines()[0][:200] if str(error) else type(error).__name__
    return DataError(f"{path}: the HDF5 file cannot be read ({reason}). Is it whole? Copy it again")


def _datasets(path: Path, file: h5py.File) -> dict[str, h5py.Dataset]:
    found = {}
    for name in file:
        link = file.get(name, getlink=True)
        if not isinstance(link, h5py.HardLink):
            raise _refused(path, name, "a link", "the data themselves, in this file")
        data = file[name]
        if not isinstance(data, h5py.Dataset):
            continue
        if data.external or data.is_virtual:
            raise _refused(path, name, "data in another file", "the data themselves, in this file")
        plan = data.id.get_create_plist()
        used = {plan.get_filter(i)[0] for i in range(plan.get_nfilters())}
        if used - _OWN_FILTERS:
            raise _refused(path, name, f"compressed with the plugin {min(used - _OWN_FILTERS)}", "gzip, lzf or none")
        found[name] = data
    return found


def _refused(path: Path, name: str, found: str, expected: str) -> DataError:
    return DataError(f"{path}: {name!r} is {found}; expected {expected}. Write the file again without it")


def _size(data: h5py.Dataset) -> int:
    return int(np.prod(data.shape, dtype=object)) * data.dtype.itemsize if data.shape is not None else 0


def _offset(data: h5py.Dataset) -> int | None:
    """Where the bytes of an uncompressed array begin; None where they do not lie in one piece."""
    offset: int | None = data.id.get_offset()
    return offset if data.dtype.kind in "biuf" and data.shape and offset is not None else None


def _values(path: Path, data: h5py.Dataset) -> Any:
    offset = _offset(data)
    if offset is not None:
        return Contiguous(path, data.name, data.shape, data.dtype, offset)
    if h5py.check_string_dtype(data.dtype) is not None:
        return StoredText(path, data) if data.shape else _plain(data.asstr("utf-8", "replace")[()])
    if data.dtype.kind not in "biufSU" or data.shape is None:
        return None
    if data.shape and data.size and data.dtype.kind in "biuf":
        return Chunked(path, data)
    check_fits(path, _size(data))
    return _plain(data[()])


def _plain(value: Any) -> Any:
    """Text as text and scalars as Python's own."""
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, np.ndarray) and value.dtype == object:
        array: AnyArray = value.astype(str)
        return array
    return value
