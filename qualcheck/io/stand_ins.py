"""What the unpickler is given for the few constructors that arrays and plain containers need.

None of them does anything but remember its arguments; `qualcheck.io.pickles` checks these later and builds the data.
"""

from __future__ import annotations

import re
from typing import Any, NoReturn

from qualcheck.io.opcodes import Malformed

_PLAIN_DTYPE = re.compile(r"(?:b1|[iu][1248]|f(?:2|4|8|12|16)|c(?:8|16|24|32)|O[48]?|[SU][1-9][0-9]{0,8})")


class _Inert:
    """Refuses every attribute that an unpickler might set."""

    __slots__ = ()

    def __setattr__(self, name: str, value: Any) -> NoReturn:
        raise Malformed(f"sets the attribute {name!r} of a constructor")


class DtypeStandIn(_Inert):
    __slots__ = ("spec", "state")
    spec: str
    state: Any

    def __init__(self, spec: str) -> None:
        object.__setattr__(self, "spec", spec)
        object.__setattr__(self, "state", None)

    def __setstate__(self, state: Any) -> None:
        if self.state is not None or type(state) is not tuple:
            raise Malformed("sets the state of a dtype twice or to something odd")
        object.__setattr__(self, "state", state)


class ArrayStandIn(_Inert):
    __slots__ = ("parts",)
    parts: tuple[Any, ...] | None  # (data, dtype, shape, order, axis order)

    def __init__(self, parts: tuple[Any, ...] | None) -> None:
        object.__setattr__(self, "parts", parts)

    def __setstate__(self, state: Any) -> None:
        if self.parts is not None or type(state) is not tuple or len(state) != 5 or state[0] not in (0, 1):
            raise Malformed("sets the state of an array twice or to something odd")
        _, shape, dtype, fortran, data = state
        object.__setattr__(self, "parts", (data, dtype, shape, "F" if fortran is True or fortran == 1 else "C", None))


class ScalarStandIn(_Inert):
    __slots__ = ("data", "dtype")
    data: Any
    dtype: Any

    def __init__(self, dtype: Any, data: Any) -> None:
        object.__setattr__(self, "dtype", dtype)
        object.__setattr__(self, "data", data)


class _NdarrayName(_Inert):
    __slots__ = ()


class _DtypeName(_Inert):
    __slots__ = ()

    def __call__(self, spec: Any, *_align_and_copy: Any) -> DtypeStandIn:
        if type(spec) is not str or not _PLAIN_DTYPE.fullmatch(spec):
            shown = repr(spec[:40]) if type(spec) is str else f"made from {type(spec).__name__}"
            raise Malformed(f"has an array of dtype {shown}; only plain numbers, text, bytes and objects are read")
        return DtypeStandIn(spec)


class _Reconstruct(_Inert):
    __slots__ = ()

    def __call__(self, kind: Any, *_first_shape: Any) -> ArrayStandIn:
        if type(kind) is not _NdarrayName:
            raise Malformed("rebuilds an array of a class of its own")
        return ArrayStandIn(None)


class _FromBuffer(_Inert):
    __slots__ = ()

    def __call__(self, data: Any, dtype: Any, shape: Any, order: Any, axes: Any = None) -> ArrayStandIn:
        return ArrayStandIn((data, dtype, shape, order, axes))


class _ScalarName(_Inert):
    __slots__ = ()

    def __call__(self, dtype: Any, data: Any) -> ScalarStandIn:
        return ScalarStandIn(dtype, data)


class _Encode(_Inert):
    __slots__ = ()

    def __call__(self, text: Any, encoding: Any) -> bytes:
        if type(text) is not str or encoding not in ("latin1", "latin-1"):
            raise Malformed("encodes something other than text as latin-1")
        return text.encode("latin1")


class _Plain(_Inert):
    """Builds one built-in container from another, as old pickle protocols spell sets and bytearrays."""

    __slots__ = ("kind",)
    kind: str

    def __init__(self, kind: str) -> None:
        object.__setattr__(self, "kind", kind)

    def __call__(self, *parts: Any) -> Any:
        kinds = tuple(type(part) for part in parts)
        if self.kind in ("set", "frozenset") and kinds in ((), (list,), (tuple,)):
            return set(*parts) if self.kind == "set" else frozenset(*parts)
        if self.kind == "OrderedDict" and kinds == ():
            return {}  # a plain dict keeps its order too, and carries no attributes to tamper with
        if self.kind == "OrderedDict" and kinds == (list,):
            return dict(parts[0])  # the form of protocols 0 and 1
        if self.kind in ("bytes", "bytearray") and kinds == ():
            return b"" if self.kind == "bytes" else bytearray()
        if self.kind == "bytearray" and kinds == (bytes,):
            return bytearray(*parts)
        if self.kind == "bytearray" and kinds == (str, str) and parts[1] in ("latin1", "latin-1"):
            return bytearray(parts[0], "latin1")
        if self.kind == "complex" and kinds == (float, float):
            return complex(*parts)
        raise Malformed(f"builds a {self.kind} from something odd")


_NUMPY: dict[str, dict[str, _Inert]] = {
    "multiarray": {"_reconstruct": _Reconstruct(), "scalar": _ScalarName()},
    "numeric": {"_frombuffer": _FromBuffer()},
}
ALLOWED: dict[tuple[str, str], _Inert] = {
    ("numpy", "ndarray"): _NdarrayName(),
    ("numpy", "dtype"): _DtypeName(),
    ("_codecs", "encode"): _Encode(),
    ("collections", "OrderedDict"): _Plain("OrderedDict"),
    **{
        (f"numpy.{core}.{module}", name): builder
        for core in ("core", "_core")
        for module, names in _NUMPY.items()
        for name, builder in names.items()
    },
    **{
        (module, kind): _Plain(kind)
        for module in ("builtins", "__builtin__")
        for kind in ("set", "frozenset", "bytes", "bytearray", "complex")
    },
}
