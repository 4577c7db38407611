"""Parquet files by an open file instead of a name, which Arrow takes only where it is UTF-8."""

from __future__ import annotations

import mmap
import stat
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from qualcheck.errors import DataError


def mapped_parquet(path: Path) -> pq.ParquetFile:
    """A Parquet file mapped from the disk, whatever bytes its name has.

    Raises:
        OSError, ValueError, pa.ArrowException: it cannot be opened, is empty, or is no Parquet file.
    """
    with path.open("rb") as stream:
        memory = mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ)
    return pq.ParquetFile(pa.BufferReader(pa.py_buffer(memory)))


def sound_text(table: Any) -> Any:
    """A table or batch whose text is UTF-8, unchanged.

    Raises:
        pa.ArrowInvalid: some is not, which Arrow finds out only when it is turned into Python's own text.
    """
    for column in table.columns:
        if not (pa.types.is_primitive(column.type) or pa.types.is_fixed_size_list(column.type)):
            column.validate(full=True)
    return table


def refuse_irregular(path: Path) -> None:
    """Refuse a pipe, socket or device, on which reading could wait without end; what is missing passes.

    Raises:
        DataError: it is one.
    """
    try:
        mode = path.stat().st_mode
    except (OSError, ValueError):
        return
    if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
        raise DataError(f"{path}: a pipe, socket or device; expected a regular file. Write the data to a file first")
