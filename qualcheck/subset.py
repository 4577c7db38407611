"""Some rollouts of a source, as a source."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from qualcheck.cut import cut
from qualcheck.io import Source
from qualcheck.spec import EnvSpec
from qualcheck.types import BoolArray, IntArray, Rollouts


class Subset:
    """The rollouts of a source that a mask keeps, in order; each keeps its place in the file as `source_rollout`."""

    def __init__(self, source: Source, keep: BoolArray, length: IntArray | None = None) -> None:
        """Args:
        source: opened file.
        keep: (N,) rollouts to show.
        length: (N,) transitions of each, where they are known already.
        """
        self._source = source
        self._keep = keep
        if length is None:
            length = np.concatenate([part.length for part in source.batches()] or [np.zeros(0, np.int64)])
        self.n_rollouts = int(keep.sum())
        self.n_transitions = int(length[keep].sum())
        self.longest = source.longest

    @property
    def path(self) -> Path:
        return self._source.path

    @property
    def format(self) -> str:
        return self._source.format

    @property
    def spec(self) -> EnvSpec:
        return self._source.spec

    @property
    def last_action(self) -> str:
        return self._source.last_action

    @property
    def findings(self) -> list[str]:
        return self._source.findings

    @property
    def metadata(self) -> dict[str, Any]:
        return self._source.metadata

    def keys(self) -> Mapping[str, Any]:
        return self._source.keys()

    def batches(self, max_transitions: int = 65_536, extras: bool = False) -> Iterator[Rollouts]:
        first = 0
        for part in self._source.batches(max_transitions, extras):
            mine = np.flatnonzero(self._keep[first : first + part.n_rollouts])
            first += part.n_rollouts
            if len(mine):
                yield cut(part, mine, np.zeros(len(mine), np.int64), part.length[mine])
