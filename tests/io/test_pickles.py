"""Pickles are data: nothing in one is ever run, and a broken one is an error with its file's name."""

from __future__ import annotations

import copyreg
import io
import os
import pickle
import struct
import sys
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from qualcheck.errors import DataError
from qualcheck.io import TrustedPickleWarning, load_pickle
from qualcheck.io.npy import load_npy


def text(value: str) -> bytes:
    """BINUNICODE."""
    return b"X" + struct.pack("<I", len(value.encode())) + value.encode()


def glob(module: str, name: str) -> bytes:
    return b"c" + f"{module}\n{name}\n".encode()


def touch(marker: Path) -> str:
    return f"touch {marker}"


class Call:
    """Pickles as a call, as an attacker's class would."""

    def __init__(self, function: Callable[..., Any], *arguments: Any) -> None:
        self.call = (function, arguments)

    def __reduce__(self) -> tuple[Any, ...]:
        return self.call


class Opener:
    """Pickles as an object whose state runs through a setter."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> tuple[Any, ...]:
        return (Call(eval, "print").__class__.__new__, (Call,), {"call": (open, (str(self.marker), "w"))})


_DTYPE_OF_OBJECT = (
    glob("numpy", "dtype")
    + text("O8")
    + b"\x89\x88\x87R(K\x03"
    + text("|")
    + b"NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x3ftb"
)
_DTYPE_OF_FLOAT = glob("numpy", "dtype") + text("f8") + b"\x89\x88\x87R"


def hostile(marker: Path) -> dict[str, bytes]:
    """Streams that would create `marker` if anything of them ran (all do, in a plain unpickler, or try to)."""
    command = touch(marker)
    quoted = text(command)
    inner = pickle.dumps(Call(os.system, command), 2)
    reconstruct = glob("numpy.core.multiarray", "_reconstruct") + glob("numpy", "ndarray") + b"K\x00\x85C\x01b\x87R"
    object_array = np.empty(1, object)
    object_array[0] = Call(os.system, command)
    opening = f"open({str(marker)!r}, 'w')"
    return {
        "GLOBAL": b"\x80\x02" + glob("os", "system") + quoted + b"\x85R.",
        "STACK_GLOBAL": b"\x80\x04" + text("os") + text("system") + b"\x93" + quoted + b"\x85R.",
        "posix name": b"\x80\x02" + glob("posix", "system") + quoted + b"\x85R.",
        "INST": b"(S'" + command.encode() + b"'\nios\nsystem\n.",
        "OBJ": b"(" + glob("os", "system") + quoted + b"o.",
        "OBJ of a class": b"(" + glob("subprocess", "Popen") + quoted + b"o.",
        "NEWOBJ": b"\x80\x02" + glob("subprocess", "Popen") + quoted + b"\x85\x81.",
        "NEWOBJ_EX": b"\x80\x04" + glob("subprocess", "Popen") + quoted + b"\x85}\x92.",
        "EXT1": b"\x80\x02\x82\xf0" + quoted + b"\x85R.",
        "EXT2": b"\x80\x02\x83\xf0\x00" + quoted + b"\x85R.",
        "EXT4": b"\x80\x02\x84\xf0\x00\x00\x00" + quoted + b"\x85R.",
        "eval": pickle.dumps(Call(eval, opening), 2),
        "eval by its old name": b"\x80\x02" + glob("__builtin__", "eval") + text(opening) + b"\x85R.",
        "getattr": b"\x80\x02" + glob("builtins", "getattr") + glob("os", "path") + text("os") + b"\x86R.",
        "dotted name": b"\x80\x04" + text("numpy") + text("ndarray.__class__") + b"\x93.",
        "a module inside numpy": b"\x80\x02" + glob("numpy.testing._private.utils", "runstring") + text(opening)
        + b"}\x86R.",
        "numpy.load": b"\x80\x02" + glob("numpy", "load") + text(str(marker)) + b"\x85R.",
        "inside an object array": pickle.dumps(object_array, 2),
        "inside an object array, newest protocol": pickle.dumps(object_array, 5),
        "as the state of a dtype": b"\x80\x02" + _DTYPE_OF_FLOAT + inner[2:-1] + b"b.",
        "as the state of an array": b"\x80\x02" + reconstruct + inner[2:-1] + b"b.",
        "scalar with an inner pickle": b"\x80\x03" + glob("numpy.core.multiarray", "scalar") + _DTYPE_OF_OBJECT
        + b"B" + struct.pack("<I", len(inner)) + inner + b"\x86R.",
        "state set on a constructor": b"\x80\x02" + glob("numpy", "ndarray") + b"}" + text("__class__")
        + glob("builtins", "type") + b"sb.",
        "plain state set on a constructor": b"\x80\x02" + glob("numpy", "ndarray") + b"}" + text("__reduce__")
        + text("x") + b"sb.",
        "slots set on a constructor": b"\x80\x02" + glob("_codecs", "encode") + b"N}" + text("__call__") + text("x")
        + b"s\x86b.",
        "persistent id": b"\x80\x02" + quoted + b"Q.",
        "persistent id as text": b"P" + command.encode() + b"\n.",
        "protocol 0": pickle.dumps(Call(os.system, command), 0),
        "protocol 1": pickle.dumps(Call(os.system, command), 1),
        "protocol 4": pickle.dumps(Call(os.system, command), 4),
        "copyreg": pickle.dumps(Opener(marker), 2),
        "reconstructor": b"\x80\x02" + glob("copyreg", "_reconstructor") + b"(" + glob("subprocess", "Popen")
        + glob("builtins", "object") + b"NtR.",
        "codecs of another kind": b"\x80\x02" + glob("_codecs", "encode") + text("x") + text("rot13") + b"\x86R.",
        "another array class": b"\x80\x02" + glob("numpy.core.multiarray", "_reconstruct")
        + glob("numpy", "matrix") + b"K\x00\x85C\x01b\x87R.",
        "memory-mapped array": b"\x80\x02" + glob("numpy", "memmap") + text(str(marker)) + b"\x85R.",
        "functools.partial": b"\x80\x02" + glob("functools", "partial") + glob("os", "system") + quoted + b"\x86R.",
        "out-of-band buffer": b"\x80\x05\x97\x98.",
    }  # fmt: skip


KINDS = sorted(hostile(Path("marker")))


@pytest.fixture
def extension() -> Any:
    """os.system registered and cached as extension code 240, as a careless program might leave it."""
    copyreg.add_extension("os", "system", 240)
    pickle.loads(b"\x80\x02\x82\xf0.")
    yield
    copyreg.remove_extension("os", "system", 240)


def npy(content: bytes, shape: str = "()") -> bytes:
    """An object .npy around a pickle."""
    header = f"{{'descr': '|O', 'fortran_order': False, 'shape': {shape}, }}".encode()
    header += b" " * (117 - len(header)) + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header + content


@pytest.mark.usefixtures("extension")
@pytest.mark.parametrize("kind", KINDS)
def test_a_hostile_pickle_is_refused_and_runs_nothing(kind: str, tmp_path: Path) -> None:
    marker = tmp_path / "executed"
    stream = hostile(marker)[kind]
    before = set(sys.modules)
    with pytest.raises(DataError, match=r"evil\.pkl.*--trust-pickle"):
        load_pickle(stream, "evil.pkl")
    path = tmp_path / "evil.npy"
    path.write_bytes(npy(stream))
    with pytest.raises(DataError, match=r"evil\.npy.*--trust-pickle"):
        load_npy(path)
    with path.open("rb") as opened:
        opened.seek(128)
        with pytest.raises(DataError, match="--trust-pickle"):
            load_pickle(opened, path)
    assert not marker.exists()
    assert not {name for name in set(sys.modules) - before if name.startswith(("subprocess", "numpy.testing"))}


def test_the_hostile_pickles_do_run_in_a_plain_unpickler(tmp_path: Path) -> None:
    # guards the test above: a stream that could never run proves nothing
    for kind in ("GLOBAL", "STACK_GLOBAL", "INST", "OBJ", "eval", "protocol 0", "inside an object array"):
        marker = tmp_path / kind.replace(" ", "_")
        pickle.loads(hostile(marker)[kind])
        assert marker.exists(), kind


def test_the_refusal_names_what_the_pickle_asked_for(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"names os\.system"):
        load_pickle(hostile(tmp_path / "x")["GLOBAL"], "f")


BOMBS = {
    "text longer than the file": b"\x80\x04\x8d" + struct.pack("<Q", 1 << 40) + b"abc.",
    "bytes longer than the file": b"\x80\x04\x8e" + struct.pack("<Q", 1 << 62) + b"abc.",
    "bytearray longer than the file": b"\x80\x05\x96" + struct.pack("<Q", 1 << 40) + b"abc.",
    "a frame longer than the file": b"\x80\x04\x95" + struct.pack("<Q", 1 << 60) + b"N.",
    "a number longer than the file": b"\x80\x02\x8b" + struct.pack("<i", 1 << 30) + b"1.",
    "a negative length": b"\x80\x02T" + struct.pack("<i", -5) + b"abc.",
    "a far memo place": b"\x80\x02Nr" + struct.pack("<I", 1 << 31) + b".",
    "a far memo place, middling": b"\x80\x02Nr" + struct.pack("<I", 1 << 26) + b".",
    "a far memo place as text": b"Np4000000000\n.",
    "a wide dtype": b"\x80\x02" + glob("numpy", "dtype") + text("S999999999999") + b"\x89\x88\x87R.",
    "an object array of a large shape": b"\x80\x02" + glob("numpy.core.multiarray", "_reconstruct")
    + glob("numpy", "ndarray") + b"K\x00\x85C\x01b\x87R(K\x01J\xff\xff\xff\x7f\x85" + _DTYPE_OF_OBJECT + b"\x89]tb.",
    "an array of a large shape": b"\x80\x02" + glob("numpy.core.multiarray", "_reconstruct")
    + glob("numpy", "ndarray") + b"K\x00\x85C\x01b\x87R(K\x01J\xff\xff\xff\x7f\x85" + _DTYPE_OF_FLOAT + b"\x89C\x00tb.",
    "a negative shape": b"\x80\x02" + glob("numpy.core.multiarray", "_reconstruct") + glob("numpy", "ndarray")
    + b"K\x00\x85C\x01b\x87R(K\x01J\xff\xff\xff\xff\x85" + _DTYPE_OF_FLOAT + b"\x89C\x00tb.",
    "lists nested without end": b"]" * 100_000 + b"a" * 99_999 + b".",
    "tuples nested without end, hashed": b"}" + b")" + b"\x85" * 300_000 + b"Ns.",
    "a list that holds itself": b"]q\x00h\x00a.",
    "a structured dtype": pickle.dumps(np.zeros(2, [("a", "i4")]), 2),
    "a datetime": pickle.dumps(np.zeros(2, "M8[s]"), 2),
    "raw memory": pickle.dumps(np.zeros(2, "V4"), 2),
    "a bare constructor": b"\x80\x02" + glob("numpy", "ndarray") + b".",
    "an array without contents": b"\x80\x02" + glob("numpy.core.multiarray", "_reconstruct")
    + glob("numpy", "ndarray") + b"K\x00\x85C\x01b\x87R.",
    "an unhashable key": b"}]Ns.",
    "an empty stack": b".",
    "no opcode": b"\xff\xff\xff",
    "nothing": b"",
}  # fmt: skip


@pytest.mark.parametrize("kind", sorted(BOMBS))
def test_a_broken_or_greedy_pickle_is_an_error_and_takes_no_memory(kind: str, tmp_path: Path) -> None:
    import resource

    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(DataError, match=r"f\.pkl"):
        load_pickle(BOMBS[kind], "f.pkl")
    path = tmp_path / "f.npy"
    path.write_bytes(npy(BOMBS[kind]))
    with pytest.raises(DataError, match=r"f\.npy"):
        load_npy(path)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 400_000  # KiB


ARRAYS: dict[str, Any] = {
    "float32": np.arange(24, dtype=np.float32).reshape(2, 3, 4),
    "big-endian": np.arange(5, dtype=">f8"),
    "Fortran": np.asfortranarray(np.arange(6.0).reshape(2, 3)),
    "transposed": np.arange(24).reshape(2, 3, 4).transpose(1, 0, 2),
    "strided": np.arange(20)[::3],
    "bool": np.array([True, False]),
    "half": np.ones((2, 1), np.float16),
    "uint8": np.arange(3, dtype=np.uint8),
    "empty": np.zeros((0, 5), np.int64),
    "0-d": np.array(3.5),
    "text": np.array(["ab", "c\u00e9"]),
    "bytes": np.array([b"ab", b"c"]),
    "complex": np.array([1 + 2j]),
    "objects": np.array(["a", None, 3, [1, 2]], object),
}


@pytest.mark.parametrize("protocol", range(6))
@pytest.mark.parametrize("name", sorted(ARRAYS))
def test_arrays_come_back_equal_from_every_protocol(name: str, protocol: int) -> None:
    array = ARRAYS[name]
    stream = pickle.dumps({"k": [array, (array, 1)]}, protocol)
    for other in (stream, stream.replace(b"numpy._core.", b"numpy.core.") if protocol < 4 else stream):
        found = load_pickle(other, "f")["k"]
        assert found[0] is found[1][0]
        assert found[0].dtype == array.dtype
        np.testing.assert_array_equal(found[0], array)


@pytest.mark.parametrize("protocol", range(6))
def test_plain_containers_and_numbers_come_back_equal(protocol: int) -> None:
    value = {
        "list": [1, -2, 2**70, 1.5, None, True, "x" * 300, b"\x00\xff", bytearray(b"ab"), 2 + 3j],
        "tuple": ((), (1,), (1, 2, 3, 4)),
        "set": {1, 2},
        "frozen": frozenset({"a"}),
        "ordered": OrderedDict(a=1, b=2),
        "numpy": [np.float32(1.5), np.int64(3), np.bool_(True), np.str_("hi")],
        np.int64(7): "key",
        3: {},
    }
    found = load_pickle(pickle.dumps(value, protocol), "f")
    assert found == value
    assert [type(v) for v in found["numpy"]] == [type(v) for v in value["numpy"]]


def test_a_python_2_array_is_read() -> None:
    # what Python 2 wrote for np.arange(3, dtype='<i2') with protocol 2, the bytes as its text type
    stream = (
        b"\x80\x02" + glob("numpy.core.multiarray", "_reconstruct") + glob("numpy", "ndarray") + b"K\x00\x85U\x01b\x87R"
        b"(K\x01K\x03\x85"
        + glob("numpy", "dtype")
        + b"U\x02i2K\x00K\x01\x87R(K\x03U\x01<NNNJ\xff\xff\xff\xffJ\xff\xff\xff"
        b"\xffK\x00tb\x89U\x06\x00\x00\x01\x00\xff\x00tb."
    )
    np.testing.assert_array_equal(load_pickle(stream, "f"), np.array([0, 1, 255], np.int16))


def sample() -> dict[str, Any]:
    return {"observations": np.arange(12.0).reshape(1, 3, 4), "instructions": [["go"]], "n": 3}


def test_a_file_cut_at_any_byte_is_an_error(tmp_path: Path) -> None:
    for protocol in (0, 2, 4, 5):
        whole = npy(pickle.dumps(np.array(sample(), object), protocol))
        path = tmp_path / "cut.npy"
        for size in range(len(whole)):
            path.write_bytes(whole[:size])
            with pytest.raises(DataError, match=r"cut\.npy"):
                load_npy(path)
        path.write_bytes(whole)
        assert load_npy(path)["n"] == 3


def test_a_real_file_cut_at_every_4_kib_is_an_error(shared_data: Path, tmp_path: Path) -> None:
    whole = (shared_data / "golden" / "babyai_easy.npy").read_bytes()
    path = tmp_path / "cut.npy"
    for size in range(0, len(whole), 4096):
        with path.open("wb") as stream:
            stream.write(whole[:size])
        with pytest.raises(DataError, match=r"cut\.npy"):
            load_npy(path)


def test_no_flipped_byte_of_a_small_file_gives_anything_but_data_or_an_error() -> None:
    whole = pickle.dumps(sample(), 2)
    errors = 0
    for position in range(len(whole)):
        for value in (0x00, 0x28, 0x52, 0x62, 0x81, 0x93, 0xFF):
            changed = whole[:position] + bytes([value]) + whole[position + 1 :]
            try:
                load_pickle(changed, "f")
            except DataError:
                errors += 1
    assert errors > len(whole)


def test_trust_loads_what_was_refused_and_warns(tmp_path: Path) -> None:
    path = tmp_path / "own.npy"
    np.save(path, np.array({"when": Call(complex, 1.0, 2.0), "range": range(3)}, object), allow_pickle=True)
    with pytest.raises(DataError, match=r"builtins\.range"):
        load_npy(path)
    with pytest.warns(TrustedPickleWarning, match=r"own\.npy"):
        assert load_npy(path, trust=True)["range"] == range(3)


def test_a_trusted_file_that_is_cut_is_still_an_error(tmp_path: Path) -> None:
    path = tmp_path / "own.npy"
    np.save(path, np.array({"range": range(3)}, object), allow_pickle=True)
    path.write_bytes(path.read_bytes()[:-3])
    with pytest.warns(TrustedPickleWarning), pytest.raises(DataError, match=r"own\.npy"):
        load_npy(path, trust=True)


def test_the_shared_files_equal_what_numpy_loads(shared_data: Path) -> None:
    for path in sorted(shared_data.glob("formats/*.npy")) + sorted(shared_data.glob("real/*.npy")):
        buffer = io.BytesIO(path.read_bytes())
        expected = np.load(buffer, allow_pickle=True).item()
        found = load_npy(path)
        assert list(found) == list(expected)
        for key, value in expected.items():
            if isinstance(value, np.ndarray):
                assert found[key].dtype == value.dtype
            np.testing.assert_equal(found[key], value)
