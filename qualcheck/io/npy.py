"""Files of numpy's own format, plain or holding a pickle."""

from __future__ import annotations

import math
import tokenize
from pathlib import Path
from typing import Any

import numpy as np

from qualcheck.errors import DataError
from qualcheck.io.pickles import corrupt, load_pickle, warn_of_trust

BROKEN_HEADER = (ValueError, EOFError, SyntaxError, TypeError, OverflowError, MemoryError, tokenize.TokenError)


def load_npy(path: Path | str, trust: bool = False) -> Any:
    """The contents of one .npy file: an array, or the object that a 0-d object array holds.

    Numbers are mapped from the disk, not read. With `trust`, pickles go to numpy's own loader and a
    `TrustedPickleWarning` is given.

    Raises:
        DataError: no readable .npy, or its pickle is refused.
    """
    with Path(path).open("rb") as stream:
        try:
            version = np.lib.format.read_magic(stream)
            read_header = (
                np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
            )
            shape, _, dtype = read_header(stream)
            if not dtype.hasobject:
                return np.load(path, mmap_mode="r", allow_pickle=False)
        except BROKEN_HEADER as error:
            raise DataError(
                f"{path}: the .npy header or its data cannot be read ({error}). Is the file whole? Copy it again"
            ) from error
        if trust:
            warn_of_trust(path)
            try:
                array = np.load(path, allow_pickle=True)
            # a trusted pickle runs code of its own, which may raise anything
            except Exception as error:
                raise corrupt(path, f"is not readable ({type(error).__name__}: {error})") from error
        else:
            array = load_pickle(stream, path)
    if not isinstance(array, np.ndarray) or array.dtype != object or array.size != math.prod(shape):
        raise corrupt(path, "is not the object array that the header announces")
    return array.reshape(()).item() if array.size == 1 else array
