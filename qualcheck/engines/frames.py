"""Python objects over a pipe between a run and its own workers: a length, then a pickle."""

from __future__ import annotations

import pickle
import struct
from typing import Any, BinaryIO

_LENGTH = struct.Struct("<Q")


def send(stream: BinaryIO, value: Any) -> None:
    """Write one object.

    Raises:
        OSError: the other end is gone.
    """
    body = pickle.dumps(value, protocol=5)
    stream.write(_LENGTH.pack(len(body)))
    stream.write(body)
    stream.flush()


def receive(stream: BinaryIO) -> Any:
    """Read one object.

    Raises:
        EOFError: the other end is gone.
    """
    head = _read(stream, _LENGTH.size)
    return pickle.loads(_read(stream, _LENGTH.unpack(head)[0]))


def _read(stream: BinaryIO, size: int) -> bytearray:
    body = bytearray(size)
    view, done = memoryview(body), 0
    while done < size:
        count = stream.readinto(view[done:])  # type: ignore[attr-defined]
        if not count:
            raise EOFError("the pipe was closed")
        done += count
    return body
