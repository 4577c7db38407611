"""A walk over a pickle's opcodes that runs none of them and skips the data between.

The interpreter's own unpickler grows its memo to whatever index a stream names and allocates whatever size it
declares, so a few hostile bytes can ask for all memory. The walk finds such streams, truncated ones and
opcodes that plain data never need, before anything is unpickled.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from mmap import mmap

SHORT_TEXT = 128  # bytes; longer texts are skipped one at a time
SAFE_TUPLES = 50_000  # tuples nested this deep can still be hashed on a default 8 MB stack

_TUPLES = frozenset(b")t\x85\x86\x87")
_MEMOIZE = 0x94
_PUTS = frozenset(b"pqr\x94")
MOST_REUSED = 20  # times that tuples may be taken up again unwatched; each at most doubles the paths through one
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
_LINES = {ord(c): n for c, n in (("V", 1), ("S", 1), ("I", 1), ("L", 1), ("F", 1), ("c", 2), ("i", 2))}


class Malformed(Exception):
    """What is wrong with a pickle, in words that fit after "the pickle"."""


@dataclass
class Tuples:
    """The tuples of a pickle. Hashing one visits every path to its leaves, so shared ones can cost exponential time."""

    built: int = 0
    reused: int = 0  # times that a tuple built before is taken up again
    unusual: bool = False  # the stream moves values in ways no pickler does, so that `reused` says nothing
    places: set[int] = field(default_factory=set)  # memo places that hold a tuple
    memos: int = 0  # places filled by MEMOIZE so far

    @property
    def suspicious(self) -> bool:
        """Whether a tuple may have more paths to its leaves than the file has bytes."""
        return self.built > 1 and (self.unusual or self.reused > MOST_REUSED)

    def follow(self, data: bytes | mmap, begin: int, end: int, ops: re.Pattern[bytes]) -> None:
        """Count what the opcodes begin..end-1, none of which builds a tuple, do to the memo."""
        found = ops.findall(data, begin, end)
        self.memos += found.count(b"\x94")
        if self.places:
            for op in set(found) - {b"", b"\x94"}:
                if int.from_bytes(op[1:], "little") in self.places:
                    self.reused += found.count(op)


def scan(data: bytes | mmap, start: int = 0) -> Tuples:
    """The tuples of the pickle that begins at `start`.

    Raises:
        Malformed: it is truncated, declares more than it holds, or uses an opcode that plain data never need.
    """
    size = len(data)
    counts = size > start + 1 and data[start] == 0x80 and data[start + 1] >= 4  # the memo by counting, not by number
    match, ops = _runs(min((1 << ((size - start) >> 16).bit_length()) - 1, 255), counts)
    position = start
    payload = 0
    after = "other"  # what the last instruction left on top: a "tuple", something "safe", or who knows
    tuples = Tuples()
    unpackers: dict[int, tuple[Callable[..., tuple[int]], int]] = {
        op: (layout.unpack_from, layout.size + 1) for op, (layout, _) in _COUNTED.items()
    }
    try:
        while True:
            found = match(data, position)
            if found is not None:
                tuples.follow(data, position, found.end(), ops)
                position, after = found.end(), "other"
            op = data[position]
            if op in unpackers:
                unpack, head = unpackers[op]
                (count,) = unpack(data, position + 1)
                if count < 0 or count > size - position - head:
                    raise Malformed(f"declares {count} bytes of {_COUNTED[op][1]} where the file ends earlier")
                position += head + count
                payload += count
                after = "safe"
            elif op in _TUPLES:
                tuples.built += 1
                position += 1
                after = "tuple"
            elif op == 0x2E:  # STOP
                return tuples
            elif op in _REFUSED:
                raise Malformed(f"holds {_REFUSED[op]}, which plain data never need")
            elif op == ord("g"):
                end = _line_end(data, position + 1)
                tuples.reused += _decimal(data[position + 1 : end]) in tuples.places
                position, after = end + 1, "other"
            elif op in _LINES:
                for _ in range(_LINES[op]):
                    position = _line_end(data, position + 1)
                position += 1
                after = "safe"
            elif op in _PUTS:
                place, position = _place(data, position, tuples.memos)
                _check_memo(place, position - start - payload)
                tuples.memos += op == _MEMOIZE
                tuples.unusual |= after == "other" or (op == _MEMOIZE) != counts
                if after == "tuple":
                    tuples.places.add(place)
                after = "other"
            elif op == 0x95:  # FRAME
                (count,) = struct.unpack_from("<Q", data, position + 1)
                if count > size - position - 9:
                    raise Malformed(f"declares a frame of {count} bytes where the file ends earlier")
                position += 9
            elif op in b"012":  # POP, POP_MARK, DUP
                tuples.unusual = True
                position, after = position + 1, "other"
            else:
                raise Malformed(f"has the byte 0x{op:02x} where an instruction should stand")
    except (IndexError, struct.error) as error:
        raise Malformed("ends before its last instruction") from error


def _place(data: bytes | mmap, position: int, counted: int) -> tuple[int, int]:
    """The memo place that the instruction at `position` fills, and where the next instruction stands."""
    op = data[position]
    if op == _MEMOIZE:
        return counted, position + 1
    if op == ord("q"):
        return data[position + 1], position + 2
    if op == ord("r"):
        place: int = struct.unpack_from("<I", data, position + 1)[0]
        return place, position + 5
    end = _line_end(data, position + 1)
    return _decimal(data[position + 1 : end]), end + 1


@cache
def _runs(third: int, counts: bool) -> tuple[Callable[[bytes | mmap, int], re.Match[bytes] | None], re.Pattern[bytes]]:
    """A matcher of runs of opcodes of fixed length and short texts, and a finder of their memo instructions.

    Memo indices stay below (third + 1) << 16. Within a run only what is certainly no tuple is put into the memo, so
    a put behind anything else ends it. Counting one alternative for each length keeps a file of a million
    instructions inside the regex engine.
    """
    lengths = [re.escape(bytes([n])) for n in range(SHORT_TEXT)]
    put = rb"\x94" if counts else rb"(?:q.|r..[\x00-" + re.escape(bytes([third])) + rb"]\x00)"
    safe = [
        rb"[N\]}R\x88\x89dl\x8f\x91\x93]",
        rb"K.",
        rb"X(?:" + b"|".join(rb"%b\x00\x00\x00.{%d}" % (byte, n) for n, byte in enumerate(lengths)) + rb")",
        rb"\x8c(?:" + b"|".join(rb"%b.{%d}" % (byte, n) for n, byte in enumerate(lengths)) + rb")",
        rb"J....",
        rb"M..",
        rb"G.{8}",
    ]
    others = [rb"[(abesu\x90]", rb"\x80.", rb"h.", rb"j...."]
    unit = rb"(?:(?:" + rb"|".join(safe) + rb")(?>(?:" + put + rb")?)|" + rb"|".join(others) + rb")"
    ops = rb"(?:" + rb"|".join(safe) + rb"|[(abesu\x90]|\x80.|q.|r....)|(h.|j....|\x94)"
    # an atomic group, not "++": Python before 3.11.5 loses its place in possessive repeats
    return re.compile(rb"(?>" + unit + rb"+)", re.DOTALL).match, re.compile(ops, re.DOTALL)


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
