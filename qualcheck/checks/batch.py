"""A batch of rollouts with everything the checks share, computed once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from qualcheck.adapter import EnvAdapter
from qualcheck.timing import RESTORE, phase
from qualcheck.types import BoolArray, FloatArray, IntArray, OpenLoop, Placement, Replay, Rollouts


class Codes:
    """A text column as integers into a growing list of names; index 0 is "" (nothing to say)."""

    def __init__(self, size: int) -> None:
        self.names: list[str] = [""]
        self.index = np.zeros(size, np.int32)

    def set(self, mask: BoolArray, name: str) -> None:
        """Write a name where nothing was written before."""
        new = mask & (self.index == 0)
        if new.any():
            self.index[new] = self._number(name)

    def set_from(self, mask: BoolArray, codes: IntArray, names: Sequence[str]) -> None:
        """Write `names[codes]` where the mask holds and nothing was written before."""
        for code in np.flatnonzero(np.bincount(codes[mask])):
            self.set(mask & (codes == code), names[int(code)])

    def _number(self, name: str) -> int:
        if name not in self.names:
            self.names.append(name)
        return self.names.index(name)

    def counts(self, mask: BoolArray) -> dict[str, int]:
        """How often each name stands where the mask holds; the empty one is left out."""
        found = np.bincount(self.index[mask], minlength=len(self.names))
        return {name: int(n) for name, n in zip(self.names, found, strict=True) if name and n}


@dataclass(frozen=True)
class Batch:
    """Whole rollouts, their tasks and their simulator; what is expensive is made once, when first asked for."""

    rollouts: Rollouts
    adapter: EnvAdapter
    placements: list[Placement]
    which: IntArray  # (N,) index into placements

    @cached_property
    def replay(self) -> Replay:
        with phase(RESTORE):
            return self.adapter.replay(self.rollouts)

    @cached_property
    def open_loop(self) -> OpenLoop:
        with phase(RESTORE):
            return self.adapter.open_loop(self.rollouts)

    @cached_property
    def row_code(self) -> IntArray:
        """Why a simulator cannot take on each row, (R,); 0 where it can."""
        return self.adapter.takeable(self.rollouts.obs)

    @cached_property
    def end_code(self) -> IntArray:
        """The same for the row after each transition, (M,); 0 where that row is not shown."""
        rollouts = self.rollouts
        after = np.minimum(rollouts.row + 1, max(len(rollouts.obs) - 1, 0))
        code = np.where(rollouts.has_end, self.row_code[after], 0) if len(after) else np.zeros(0, np.int64)
        if rollouts.break_obs is not None and len(rollouts.break_at):
            code[rollouts.break_at] = self.adapter.takeable(rollouts.break_obs)
        return code

    @cached_property
    def defective(self) -> BoolArray:
        """Rollouts that cannot be scored at all, (N,)."""
        if self.rollouts.defect is None:
            return np.zeros(self.rollouts.n_rollouts, bool)
        return np.array([bool(code) for code in self.rollouts.defect], bool)

    @cached_property
    def unscorable(self) -> BoolArray:
        """Transitions of such rollouts, (M,)."""
        return self.per_transition(self.defective)

    def per_transition(self, values: BoolArray) -> BoolArray:
        """A value of each rollout, repeated for its transitions, (N,) -> (M,)."""
        return np.repeat(values, self.rollouts.length)

    def per_rollout_sum(self, values: BoolArray) -> IntArray:
        """How many transitions of each rollout hold, (M,) -> (N,)."""
        total = np.concatenate([[0], np.cumsum(values, dtype=np.int64)])
        count: IntArray = total[self.rollouts.offsets[1:]] - total[self.rollouts.offsets[:-1]]
        return count

    def set_defects(self, codes: Codes) -> None:
        """Write the defect of each unscorable rollout on its transitions."""
        for name in set(self.rollouts.defect or ()) - {""}:
            same = np.array([code == name for code in self.rollouts.defect or ()], bool)
            codes.set(self.per_transition(same), name)


def share(passed: IntArray, verified: IntArray) -> FloatArray:
    """passed / verified, NaN where nothing was verified, (N,) float32."""
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(verified > 0, passed / verified, np.nan).astype(np.float32)


def medians(batch: Batch, values: FloatArray) -> FloatArray:
    """Median of the verified values of each rollout, NaN where there is none, (M,) -> (N,) float32."""
    found = np.full(batch.rollouts.n_rollouts, np.nan, np.float32)
    known = np.flatnonzero(~np.isnan(values))
    if not len(known):
        return found
    owner = batch.rollouts.rollout[known]
    order = np.lexsort((values[known], owner))
    inside = values[known][order]
    first = np.flatnonzero(np.diff(owner[order], prepend=-1))
    size = np.diff(np.append(first, len(inside)))
    found[owner[order][first]] = (inside[first + (size - 1) // 2] + inside[first + size // 2]) / 2
    return found


def first_step(batch: Batch, hit: BoolArray) -> IntArray:
    """Step of the first transition of each rollout that holds, -1 if none, (M,) -> (N,) int32."""
    first = np.full(batch.rollouts.n_rollouts, -1, np.int32)
    at = np.flatnonzero(hit)[::-1]  # backwards, so that the first one is written last
    first[batch.rollouts.rollout[at]] = batch.rollouts.step[at]
    return first
