"""Pickles as data: numpy arrays, plain containers, text and numbers come out, and nothing is ever run.

The C unpickler is given inert stand-ins for the few numpy constructors that arrays need. What they return only
remembers its arguments. Once the stream has ended, the stand-ins are checked and turned into arrays over the
bytes already in memory, so no state of the file ever reaches numpy's own `__setstate__`.
"""

from __future__ import annotations

import io
import math
import mmap
import pickle
import threading
import warnings
from pathlib import Path
from typing import Any, BinaryIO, ClassVar, NoReturn

import numpy as np

from qualcheck.errors import DataError
from qualcheck.io.opcodes import SAFE_TUPLES, Malformed, scan
from qualcheck.io.stand_ins import ALLOWED, ArrayStandIn, DtypeStandIn, ScalarStandIn


class TrustedPickleWarning(UserWarning):
    """A pickle was loaded with numpy's own loader, which can run code."""


MAX_DEPTH = 200  # containers inside containers
MOST_PATHS = 1_000_000  # through tuples that are shared; hashing a tuple walks them all
_ATOMS = frozenset({str, bytes, bytearray, int, float, bool, complex, type(None)})
_TEXT_ONLY = frozenset({str})


class _Unpickler(pickle.Unpickler):
    def __init__(self, stream: Any, path: Path | str) -> None:
        super().__init__(stream, encoding="latin1")  # the text of Python 2 arrays is their bytes
        self._path = path

    def find_class(self, module: str, name: str) -> Any:
        builder = ALLOWED.get((module, name))
        if builder is None:
            raise DataError(
                f"{self._path}: the pickle names {module[:80]}.{name[:80]}, which plain data (numpy arrays, lists, "
                "dicts, text, numbers) never need; it was refused before anything ran. If you know who made the file "
                "and trust them, add --trust-pickle"
            )
        return builder

    def persistent_load(self, _pid: Any) -> NoReturn:
        raise Malformed("holds a persistent id, which plain data never need")


class _Weighing(pickle._Unpickler):
    """The interpreter's unpickler in Python, which can refuse a tuple before anything hashes it."""

    dispatch: ClassVar = dict(pickle._Unpickler.dispatch)

    def __init__(self, stream: Any, path: Path | str) -> None:
        super().__init__(stream, encoding="latin1")
        self._names = _Unpickler(io.BytesIO(), path)
        self._weights: dict[int, tuple[Any, int]] = {}  # id -> (tuple kept alive, paths through it)

    def find_class(self, module: str, name: str) -> Any:
        return self._names.find_class(module, name)

    def persistent_load(self, pid: Any) -> NoReturn:
        self._names.persistent_load(pid)

    def weigh(self) -> None:
        """Refuse the tuple on top of the stack if too many paths lead through it."""
        top = self.stack[-1]  # type: ignore[attr-defined]  # typeshed leaves the stack out
        known = self._weights
        paths = 1 + sum(known[id(item)][1] for item in top if id(item) in known)
        if paths > MOST_PATHS:
            raise Malformed("nests shared tuples so deeply that looking at them would take forever")
        known[id(top)] = (top, paths)


def _weighed(build: Any) -> Any:
    def load(self: _Weighing) -> None:
        build(self)
        self.weigh()

    return load


for _op in b"t\x85\x86\x87":
    _Weighing.dispatch[_op] = _weighed(_Weighing.dispatch[_op])


def load_pickle(source: BinaryIO | bytes, path: Path | str) -> Any:
    """The plain data of one pickle; arrays lie over the bytes read and may be read-only.

    Args:
        source: a file open at the pickle's first byte, or its bytes.
        path: the name that errors give.

    Raises:
        DataError: the pickle names anything but numpy arrays and plain containers, or is corrupt. Nothing ran.
    """
    try:
        if isinstance(source, bytes):
            tuples = scan(source)
            stream: BinaryIO = io.BytesIO(source)
        else:
            stream = source
            with mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as view:
                tuples = scan(view, stream.tell())
        kind = _Weighing if tuples.suspicious else _Unpickler
        return _on_deep_stack(lambda: _Resolver().resolve(kind(stream, path).load()), tuples.built)
    except DataError:
        raise
    except Malformed as error:
        raise corrupt(path, str(error)) from None
    except RecursionError as error:
        raise corrupt(path, "nests its containers too deeply") from error
    # the unpickler raises nearly any exception on bytes that are not what they claim
    except Exception as error:
        raise corrupt(path, f"is not readable ({type(error).__name__})") from error


def recognises(head: bytes) -> bool:
    """Whether these first bytes are those of a pickle of a list or dict, of any protocol."""
    return (head[:1] == b"\x80" and head[1:2] <= b"\x05") or head[:2] in (b"(l", b"(d", b"]q", b"}q")


def load_pickle_file(path: Path, trust: bool = False) -> Any:
    """The plain data of a file that is one pickle; with `trust`, whatever the interpreter's own loader makes of it.

    Raises:
        DataError: refused or corrupt.
    """
    with path.open("rb") as stream:
        if not trust:
            return load_pickle(stream, path)
        warn_of_trust(path)
        try:
            return pickle.load(stream)
        # a trusted pickle runs code of its own, which may raise anything
        except Exception as error:
            raise corrupt(path, f"is not readable ({type(error).__name__}: {error})") from error


def warn_of_trust(path: Path | str) -> None:
    """Say that a pickle is loaded which can run code."""
    warnings.warn(
        f"{path}: loaded as a trusted pickle; code in it, if any, has run", TrustedPickleWarning, stacklevel=3
    )


def corrupt(path: Path | str, what: str) -> DataError:
    return DataError(
        f"{path}: the pickle {what}. Expected a whole pickle of numpy arrays and plain containers. "
        "Copy the file again, or, if you trust who made it, add --trust-pickle"
    )


def _on_deep_stack(work: Any, tuples: int) -> Any:
    """Run in a thread whose stack can hash that many nested tuples; hashing them recurses in C, unchecked."""
    if tuples <= SAFE_TUPLES:
        return work()
    if tuples > 20_000_000:
        raise Malformed(f"builds {tuples} tuples, more than this version takes on")
    outcome: list[Any] = []

    def run() -> None:
        try:
            outcome.extend((True, work()))
        except BaseException as error:
            outcome.extend((False, error))

    before = threading.stack_size((8 << 20) + (tuples * 128 + 4095) // 4096 * 4096)
    try:
        thread = threading.Thread(target=run)
        thread.start()
    finally:
        threading.stack_size(before)
    thread.join()
    if not outcome[0]:
        raise outcome[1]
    return outcome[1]


class _Resolver:
    """Turns stand-ins into arrays in one pass; a value that appears twice comes out once."""

    def __init__(self) -> None:
        self._done: dict[int, tuple[Any, Any]] = {}  # id -> (value kept alive, result)
        self._open: set[int] = set()

    def resolve(self, value: Any, depth: int = 0) -> Any:
        kind = type(value)
        if kind in _ATOMS:
            return value
        key = id(value)
        if key in self._done:
            return self._done[key][1]
        if key in self._open:
            raise Malformed("holds a container that contains itself")
        if depth > MAX_DEPTH:
            raise Malformed("nests its containers too deeply")
        self._open.add(key)
        result = self._result(kind, value, depth + 1)
        self._open.discard(key)
        self._done[key] = (value, result)
        return result

    def _result(self, kind: type, value: Any, depth: int) -> Any:
        if kind is list:
            if set(map(type, value)) - _TEXT_ONLY:
                value[:] = [self.resolve(item, depth) for item in value]
            return value
        if kind is dict:
            return {self.resolve(k, depth): self.resolve(v, depth) for k, v in value.items()}
        if kind is tuple:
            return tuple([self.resolve(item, depth) for item in value])
        if kind is set or kind is frozenset:
            return kind([self.resolve(item, depth) for item in value])
        if kind is ArrayStandIn:
            return self._array(value, depth)
        if kind is ScalarStandIn:
            return self._scalar(value)
        if kind is DtypeStandIn:
            return _dtype(value)
        raise Malformed("leaves a bare constructor where data should be")

    def _array(self, value: ArrayStandIn, depth: int) -> np.ndarray[Any, Any]:
        if value.parts is None:
            raise Malformed("holds an array without contents")
        data, stand_in, shape, order, axes = value.parts
        dtype = _dtype(stand_in)
        if type(shape) is not tuple or len(shape) > 32 or not all(type(n) is int and n >= 0 for n in shape):
            raise Malformed("holds an array with an impossible shape")
        if order not in ("C", "F", "K") or (order == "K") != (axes is not None):
            raise Malformed("holds an array in an unknown memory order")
        count = math.prod(shape)
        if dtype.hasobject:
            if type(data) is not list or len(data) != count:
                raise Malformed("holds an object array whose items do not match its shape")
            items = self.resolve(data, depth)
            flat = np.fromiter(items, dtype=object, count=count)
        else:
            if type(data) is str:
                data = data.encode("latin1")
            if type(data) not in (bytes, bytearray) or len(data) != count * dtype.itemsize:
                raise Malformed("holds an array whose bytes do not match its shape")
            flat = np.frombuffer(data, dtype) if count else np.zeros(0, dtype)
        array = flat.reshape(shape, order="F" if order == "F" else "C")
        if axes is not None:
            if type(axes) is not tuple or sorted(axes) != list(range(len(shape))):
                raise Malformed("holds an array with an impossible axis order")
            array = array.transpose(axes)
        return array

    def _scalar(self, value: ScalarStandIn) -> Any:
        dtype = _dtype(value.dtype)
        data = value.data.encode("latin1") if type(value.data) is str else value.data
        if dtype.hasobject or type(data) is not bytes or len(data) != dtype.itemsize:
            raise Malformed("holds a number whose bytes do not match its dtype")
        return np.frombuffer(data, dtype)[0]


def _dtype(value: Any) -> np.dtype[Any]:
    if type(value) is not DtypeStandIn:
        raise Malformed("holds an array without a dtype")
    try:
        dtype = np.dtype(value.spec)
    except TypeError as error:
        raise Malformed(f"has an array of dtype {value.spec!r}, which this machine lacks") from error
    if value.state is None:
        return dtype
    if len(value.state) != 8 or value.state[0] != 3:
        raise Malformed("holds a dtype with metadata or of an unknown version")
    _, order, subarray, names, members, itemsize, _, _ = value.state
    if not (subarray is names is members is None) or order not in ("<", ">", "=", "|"):
        raise Malformed("holds a structured dtype, which plain data never need")
    if itemsize not in ((dtype.itemsize,) if dtype.kind in "SU" else (-1,)):
        raise Malformed("holds a dtype whose size contradicts its name")
    return dtype if order == "|" else dtype.newbyteorder(order)
