"""A walk over a pickle's opcodes that runs none of them and skips the data between.

The interpreter's own unpickler grows its memo to whatever index a stream names and allocates whatever size it
declares, so a few hostile bytes can ask for all memory. The walk finds such streams, truncated ones and
opcodes that plain data never need, before anything is unpickled.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable
from functools import cache
from mmap import mmap

SHORT_TEXT = 128  # bytes; longer texts are skipped one at a time
SAFE_TUPLES = 50_000  # tuples nested this deep can still be hashed on a default 8 MB stack

_TUPLES = frozenset(b")t\x85\x86\x87")
_REFUSED = {
    0x50: "a persistent id",  # P
    0x51: "a persistent id",  # Q
    0x81: "an object of a class",
    0x92: "an object of a class",
    0x82: "an extension code",
    0x83: "an extension code",
    0x84: "an extension code",
    0x97: "an out-of-band buffer",
    0x98: "an out-of-band buffer",
}
_COUNTED: dict[int, tuple[struct.Struct, str]] = {
    ord("X"): (struct.Struct("<I"), "text"),
    0x8C: (struct.Struct("<B"), "text"),
    0x8D: (struct.Struct("<Q"), "text"),
    ord("B"): (struct.Struct("<I"), "bytes"),
    ord("C"): (struct.Struct("<B"), "bytes"),
    0x8E: (struct.Struct("<Q"), "bytes"),
    0x96: (struct.Struct("<Q"), "bytes"),
    ord("U"): (struct.Struct("<B"), "text"),
    ord("T"): (struct.Struct("<i"), "text"),
    0x8A: (struct.Struct("<B"), "a number"),
    0x8B: (struct.Struct("<i"), "a number"),
}
_LINES = {ord(c): n for c, n in (("V", 1), ("S", 1), ("I", 1), ("L", 1), ("F", 1), ("g", 1), ("c", 2), ("i", 2))}


class Malformed(Exception):
    """What is wrong with a pickle, in words that fit after "the pickle"."""


def scan(data: bytes | mmap, start: int = 0) -> int:
    """Number of tuple opcodes of the pickle that begins at `start`.

    Raises:
        Malformed: it is truncated, declares more than it holds, or uses an opcode that plain data never need.
    """
    size = len(data)
    match = _runs(min((1 << ((size - start) >> 16).bit_length()) - 1, 255))
    position = start
    payload = tuples = 0
    unpackers: dict[int, tuple[Callable[..., tuple[int]], int]] = {
        op: (layout.unpack_from, layout.size + 1) for op, (layout, _) in _COUNTED.items()
    }
    try:
        while True:
            found = match(data, position)
            if found is not None:
                position = found.end()
            op = data[position]
            if op in unpackers:
                unpack, head = unpackers[op]
                (count,) = unpack(data, position + 1)
                if count < 0 or count > size - position - head:
                    raise Malformed(f"declares {count} bytes of {_COUNTED[op][1]} where the file ends earlier")
                position += head + count
                payload += count
            elif op in _TUPLES:
                tuples += 1
                position += 1
            elif op == 0x2E:  # STOP
                return tuples
            elif op in _REFUSED:
                raise Malformed(f"holds {_REFUSED[op]}, which plain data never need")
            elif op in _LINES:
                for _ in range(_LINES[op]):
                    position = _line_end(data, position + 1)
                position += 1
            elif op == ord("p"):
                end = _line_end(data, position + 1)
                _check_memo(_decimal(data[position + 1 : end]), position - start - payload)
                position = end + 1
            elif op == ord("r"):
                _check_memo(struct.unpack_from("<I", data, position + 1)[0], position - start - payload)
                position += 5
            elif op == 0x95:  # FRAME
                (count,) = struct.unpack_from("<Q", data, position + 1)
                if count > size - position - 9:
                    raise Malformed(f"declares a frame of {count} bytes where the file ends earlier")
                position += 9
            else:
                raise Malformed(f"has the byte 0x{op:02x} where an instruction should stand")
    except (IndexError, struct.error) as error:
        raise Malformed("ends before its last instruction") from error


@cache
def _runs(third: int) -> Callable[[bytes | mmap, int], re.Match[bytes] | None]:
    """A matcher of runs of opcodes of fixed length and short texts, with memo indices below (third + 1) << 16.

    Counting one alternative for each length keeps a file of a million instructions inside the regex engine.
    """
    lengths = [re.escape(bytes([n])) for n in range(SHORT_TEXT)]
    alternatives = [
        rb"[(012NRabdel\]}os\x88\x89\x8f\x90\x91\x93\x94u]",
        rb"[hqK\x80].",
        rb"r..[\x00-" + re.escape(bytes([third])) + rb"]\x00",
        rb"X(?:" + b"|".join(rb"%b\x00\x00\x00.{%d}" % (byte, n) for n, byte in enumerate(lengths)) + rb")",
        rb"\x8c(?:" + b"|".join(rb"%b.{%d}" % (byte, n) for n, byte in enumerate(lengths)) + rb")",
        rb"[jJ]....",
        rb"M..",
        rb"G.{8}",
    ]
    return re.compile(rb"(?:" + rb"|".join(alternatives) + rb")++", re.DOTALL).match


def _line_end(data: bytes | mmap, position: int) -> int:
    end = data.find(b"\n", position)
    if end < 0:
        raise Malformed("ends in the middle of a line")
    return end


def _decimal(text: bytes) -> int:
    if len(text) > 12 or not text.isdigit():
        raise Malformed("names a memo place that is no number")
    return int(text)


def _check_memo(index: int, seen: int) -> None:
    if index > seen:
        raise Malformed(f"names memo place {index} after only {seen} bytes of instructions")
