"""The instruction of each rollout: element 0 of its list, or the text itself."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc


class TextLists:
    """Lists of one Arrow column, one a rollout, made into Python lists only where they are asked for."""

    def __init__(self, column: pa.Array) -> None:
        self._column = column

    def __len__(self) -> int:
        return len(self._column)

    def __getitem__(self, part: slice) -> list[Any]:
        values: list[Any] = self._part(part).to_pylist()
        return values

    def _part(self, part: slice) -> pa.Array:
        return self._column[part]

    def first(self, begin: int, end: int) -> list[Any]:
        """Element 0 of each list; None where there is none."""
        part = self._part(slice(begin, end))
        lengths = pc.list_value_length(part)
        # element 0 of an empty list is an error in Arrow
        if pc.min(lengths).as_py() == 0 or part.null_count:
            return [item[0] if item else None for item in part.to_pylist()]
        values: list[Any] = pc.list_element(part, 0).to_pylist()
        return values


def first_strings(instructions: Any, begin: int, end: int) -> list[str | None]:
    """The instruction used for rollouts begin..end-1; None where there is none."""
    if instructions is None:
        return [None] * (end - begin)
    if isinstance(instructions, TextLists):
        found = instructions.first(begin, min(end, len(instructions))) if begin < len(instructions) else []
    else:
        part = instructions[begin:end]
        if isinstance(part, np.ndarray) and part.dtype.kind in "US":
            part = _column(part).tolist()
        found = [item[0] if type(item) is list and item else item for item in part]
    if set(map(type, found)) != {str}:
        found = [_text(item) for item in found]
    if not _is_unicode(found):
        found = [None if item is None else valid_text(item) for item in found]
    if not all(found):
        found = [item or None for item in found]
    return found + [None] * (end - begin - len(found))


def valid_text(text: str) -> str:
    """The text with "?" for every lone surrogate, which no file of text can hold."""
    return text.encode("utf-8", "replace").decode("utf-8")


def _is_unicode(texts: list[str | None]) -> bool:
    try:
        "".join(filter(None, texts)).encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def _column(texts: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Element 0 of each entry of an array of text, (n, ...) -> (n,)."""
    if texts.ndim == 1:
        return texts
    if not texts.size:
        return np.full(len(texts), "")
    return texts.reshape(len(texts), -1)[:, 0]


def _text(item: Any) -> str | None:
    while isinstance(item, list | tuple | np.ndarray):
        if isinstance(item, np.ndarray):
            item = item.ravel()
        if not len(item):
            return None
        item = item[0]
    if isinstance(item, bytes):
        return item.decode("utf-8", "replace")
    return str(item) if isinstance(item, str) else None
