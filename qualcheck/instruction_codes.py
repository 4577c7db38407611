"""Instruction codes by text: what is appended to the rows that a policy sees."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from qualcheck.errors import UsageError
from qualcheck.io.encodings import Encodings
from qualcheck.types import AnyArray, FloatArray

SHOWN = 3  # names in a message


def folded(text: str) -> str:
    """A text without case, outer spaces and a full stop."""
    return text.strip().casefold().rstrip(".")


class Codes:
    """The codes of each instruction, or of each task where a table names those.

    Args:
        table: a file as `--encodings` takes, or text -> (E,) or (k, E) numbers.

    Raises:
        DataError: the file holds anything else.
        UsageError: the dict does.
    """

    def __init__(self, table: Path | str | Mapping[str, AnyArray]) -> None:
        named: dict[str, FloatArray]
        if isinstance(table, Mapping):
            try:
                named = {name: np.atleast_2d(np.asarray(codes, np.float64)) for name, codes in table.items()}
            except (TypeError, ValueError):
                named = {}
            sound = all(codes.ndim == 2 and codes.size and np.isfinite(codes).all() for codes in named.values())
            if not named or not sound or len({codes.shape[1:] for codes in named.values()}) != 1:
                raise UsageError("codes: expected a dict of instruction -> finite numbers, as many for each.")
        else:
            named = Encodings(table).by_name()
        self._codes: dict[str, FloatArray] = {folded(name): codes for name, codes in named.items()}  # (k, E) each
        self.size = int(next(iter(self._codes.values())).shape[-1])

    def draw(self, instruction: str, task: str, rng: np.random.Generator) -> FloatArray:
        """One of the codes of an instruction, else of its task, (E,).

        Raises:
            UsageError: there is none.
        """
        for name in (instruction, task):
            found = self._codes.get(folded(name))
            if found is not None:
                chosen: FloatArray = found[0 if len(found) == 1 else int(rng.integers(len(found)))]
                return chosen
        known = ", ".join(repr(name) for name in list(self._codes)[:SHOWN])
        raise UsageError(f"no instruction code for {instruction!r} or the task {task}; the table has {known}, ...")
