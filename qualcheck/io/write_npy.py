"""Writes a dict of arrays and plain values as the benchmark's pickled `.npy`."""

from __future__ import annotations

import io
import pickle
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np


def write_npy(keys: Mapping[str, Any], path: Path) -> None:
    """A pickled `.npy` that numpy 1 reads as well: the benchmark's own environments pin it."""
    outer = np.array({name: plain(value) for name, value in keys.items()}, dtype=object)
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(header, np.lib.format.header_data_from_array_1_0(outer))
    large = any(isinstance(value, np.ndarray) and value.nbytes >= 2**32 - 1 for value in keys.values())
    body = pickle.dumps(outer, protocol=4 if large else 3)
    # numpy 2 names its module numpy._core, which numpy 1 lacks; protocol 3 writes the name once, without its length
    new, old = b"\x80\x03cnumpy._core.multiarray\n", b"\x80\x03cnumpy.core.multiarray\n"
    with path.open("wb") as stream:
        stream.write(header.getvalue())
        if body.startswith(new):
            stream.write(old)
            stream.write(memoryview(body)[len(new) :])
        else:
            stream.write(body)


def plain(value: Any) -> Any:
    """The value with Python's own numbers and text for numpy's, whose pickles name a module that numpy 1 lacks."""
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, np.memmap):
        return np.asarray(value)
    if isinstance(value, np.ndarray) and value.dtype == object:
        items = [plain(item) for item in value.ravel()]
        return np.fromiter(items, dtype=object, count=len(items)).reshape(value.shape)
    if type(value) in (list, tuple):
        return value if set(map(type, value)) <= {str, int, float, bool} else type(value)(plain(v) for v in value)
    if type(value) is dict:
        return {plain(name): plain(item) for name, item in value.items()}
    return value
