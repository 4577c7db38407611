"""How much memory a compressed file may ask for."""

from __future__ import annotations

import os
from pathlib import Path

from qualcheck.errors import DataError

SMALL = 1 << 30  # bytes that any file may unpack to
MOST_TIMES = 200  # its own size; rollouts with their padding and codes stay under a tenth of that


def check_unpacked(path: Path, size: int) -> None:
    """Refuse a file that unpacks to far more than it can mean, or than this machine can hold.

    Args:
        size: bytes of everything in it, unpacked.

    Raises:
        DataError: it does.
    """
    check_ratio(path, size)
    check_fits(path, size)


def check_ratio(path: Path, size: int) -> None:
    """Refuse a file that unpacks to far more than it can mean; see `check_unpacked`."""
    stored = path.stat().st_size
    if size > max(SMALL, MOST_TIMES * stored):
        raise DataError(
            f"{path}: {stored:,} bytes that unpack to {size:,}; expected at most {MOST_TIMES} times as many. "
            "If its arrays are real, save them uncompressed"
        )


def check_fits(path: Path, size: int) -> None:
    """Refuse what this machine cannot hold at once; see `check_unpacked`."""
    held = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if size > held // 2:
        raise DataError(
            f"{path}: unpacks to {size >> 20:,} MiB and this machine holds {held >> 20:,}. Save its arrays "
            "uncompressed, which are read from the disk as needed, or split the file"
        )
