"""Tuples that contain one another many times over never cost more time than the file is long."""

from __future__ import annotations

import pickle
import time
from typing import Any

import pytest

from qualcheck.errors import DataError
from qualcheck.io import load_pickle

DEEP = 60  # a plain unpickler would walk 2**60 paths to hash this


def nested(depth: int) -> Any:
    value: Any = ("leaf",)
    for _ in range(depth):
        value = (value, value)
    return value


def key_of_a_dict(build: bytes) -> bytes:
    """A stream that hashes what `build` leaves on the stack."""
    return b"\x80\x04}" + build + b"Ns."


BY_COUNT = key_of_a_dict(b")\x85\x94" + b"".join(b"h%c\x86\x94" % i for i in range(DEEP)))
BY_NUMBER = b"\x80\x02}" + b")\x85q\x00" + b"".join(b"h%ch%c\x86q%c" % (i, i, i + 1) for i in range(DEEP)) + b"Ns."
BY_COPY = b"\x80\x02}" + b")\x85" + b"2\x86" * DEEP + b"Ns."
BY_TEXT = b"})\x85p0\n" + b"".join(b"g%d\ng%d\n\x86p%d\n" % (i, i, i + 1) for i in range(DEEP)) + b"Ns."
# the value is put away only behind an instruction that changes nothing
HIDDEN = b"\x80\x02}" + b")\x85(1q\x00" + b"".join(b"h%ch%c\x86(1q%c" % (i, i, i + 1) for i in range(DEEP)) + b"Ns."
TWICE = (
    b"\x80\x02}"
    + b")\x85q\x00q\x01"
    + b"".join(b"h%ch%c\x86q%cq%c" % (2 * i + 1, 2 * i + 1, 2 * i + 2, 2 * i + 3) for i in range(DEEP))
    + b"Ns."
)
MIXED = b"\x80\x04}" + b")\x85q\x00" + b"".join(b"h%ch%c\x86q%c" % (i, i, i + 1) for i in range(DEEP)) + b"Ns."
WIDE = b"\x80\x02})\x85q\x00" + b"".join(b"(" + b"h%c" % i * 200 + b"tq%c" % (i + 1) for i in range(6)) + b"Ns."
SET = b"\x80\x04\x8f(" + BY_COUNT[3:-3] + b"\x90."


@pytest.mark.parametrize("stream", ["BY_COUNT", "BY_NUMBER", "BY_COPY", "BY_TEXT", "HIDDEN", "TWICE", "MIXED", "WIDE"])
def test_a_key_of_shared_tuples_is_refused_at_once(stream: str) -> None:
    started = time.process_time()
    with pytest.raises(DataError, match=r"a\.npy: the pickle"):
        load_pickle(globals()[stream], "a.npy")
    assert time.process_time() - started < 2


@pytest.mark.parametrize("protocol", range(6))
def test_shared_tuples_as_pickle_writes_them_are_refused_too(protocol: int) -> None:
    with pytest.raises(DataError, match="nests shared tuples so deeply"):
        load_pickle(pickle.dumps({"goal": nested(DEEP)}, protocol), "a.npy")


@pytest.mark.parametrize("protocol", range(6))
def test_tuples_shared_as_data_share_them_come_back(protocol: int) -> None:
    shared = ("go", 1, (2, 3))
    value = {"a": [shared] * 5000, "b": {shared: 1, (shared, shared): 2}, "c": nested(10), "d": [{shared}] * 3}
    assert load_pickle(pickle.dumps(value, protocol), "a.npy") == value
