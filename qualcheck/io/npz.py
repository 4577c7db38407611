"""Archives of numpy arrays, `.npz`. No pickle in one is ever opened."""

from __future__ import annotations

import math
import zipfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np

from qualcheck.errors import DataError
from qualcheck.io.limits import check_unpacked
from qualcheck.io.npy import BROKEN_HEADER
from qualcheck.io.stored import Contiguous
from qualcheck.types import AnyArray

MAGIC = b"PK\x03\x04"
LOCAL_HEADER = 30  # bytes of a member's local header before its name


def read_npz(path: Path) -> dict[str, Any]:
    """The arrays by name; a 0-d one comes as its value. Members stored uncompressed stay on the disk.

    Raises:
        DataError: no readable archive of arrays, an array of objects, or more data than its size allows.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            members = archive.infolist()
            other = [m.filename for m in members if not m.filename.endswith(".npy")]
            if other:
                raise DataError(
                    f"{path}: a zip archive with {other[0][:80]!r} in it; expected a .npz, of arrays only. Unpack it"
                )
            check_unpacked(path, sum(m.file_size for m in members if m.compress_type != zipfile.ZIP_STORED))
            return {m.filename.removesuffix(".npy"): _member(path, archive, m) for m in members}
    except (zipfile.BadZipFile, zlib.error, EOFError, OSError, RuntimeError, ValueError) as error:
        raise DataError(f"{path}: the .npz cannot be read ({error}). Is the file whole? Copy it again") from error


def _member(path: Path, archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> Any:
    with archive.open(member) as stream:
        try:
            version = np.lib.format.read_magic(stream)
            read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
            shape, fortran, dtype = read(stream)
        except BROKEN_HEADER as error:
            raise _broken(path, member, f"has no readable header ({error})") from error
        if dtype.hasobject:
            raise DataError(
                f"{path}: {member.filename!r} is an array of Python objects; expected numbers or text, since objects "
                "are a pickle. Save it as an array of text, or the whole as a pickled dict in a .npy"
            )
        head, count = stream.tell(), math.prod([int(n) for n in shape])
        if head + count * dtype.itemsize != member.file_size:
            raise _broken(path, member, f"announces {dtype} {shape} and holds {member.file_size - head} bytes")
        if member.compress_type == zipfile.ZIP_STORED and not member.flag_bits & 1 and count:
            if shape and not fortran and dtype.kind in "biuf":
                return Contiguous(path, member.filename, shape, dtype, _begin(path, member) + head)
            flat: AnyArray = np.memmap(path, dtype, "r", _begin(path, member) + head, (count,))
        else:
            data = stream.read(member.file_size)
            flat = np.frombuffer(data, dtype) if count else np.zeros(0, dtype)
    array = flat.reshape(shape, order="F" if fortran else "C")
    return array.item() if array.ndim == 0 else array


def _begin(path: Path, member: zipfile.ZipInfo) -> int:
    """Where the bytes of a stored member begin."""
    with path.open("rb") as file:
        file.seek(member.header_offset)
        head = file.read(LOCAL_HEADER)
    lengths = int.from_bytes(head[26:28], "little") + int.from_bytes(head[28:30], "little")
    return member.header_offset + LOCAL_HEADER + lengths


def _broken(path: Path, member: zipfile.ZipInfo, what: str) -> DataError:
    return DataError(f"{path}: {member.filename!r} {what}. Write the file again")
