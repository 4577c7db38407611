"""Rollouts that lie one behind the other in flat arrays, or anywhere in them under an id."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from qualcheck.errors import DataError, UsageError
from qualcheck.io.gather import (
    any_in,
    as_float64,
    bad_actions,
    batch_bounds,
    differing_rows,
    non_finite_rollouts,
    whole_numbers,
)
from qualcheck.io.instructions import first_strings
from qualcheck.io.last_action import LastAction, finding, settle
from qualcheck.io.layouts import advice, choose, takes
from qualcheck.spec import EnvSpec
from qualcheck.types import AnyArray, BoolArray, IntArray, Rollouts

TOLD = ("reward_count", "terminal_late", "goal_changes")  # flags worth a line to the user


@dataclass(frozen=True)
class FlatColumns:
    """One entry a recorded step; `offsets` says which belong to which rollout."""

    obs: AnyArray  # (M, O) row before each action, instruction code included
    action: AnyArray  # (M,) or (M, A)
    offsets: IntArray  # (N+1,) int64
    order: IntArray | None = None  # (M,) places of the entries in the order of rollout and step; None: as they lie
    next_obs: AnyArray | None = None  # (M, O) row after each action
    final: AnyArray | None = None  # (N, O) row after the last action, read where `shows_final`
    shows_final: BoolArray | None = None  # (N,)
    reward: AnyArray | None = None  # (M,), as the next two
    terminal: AnyArray | None = None
    truncated: AnyArray | None = None
    instructions: Any = None  # (N,) texts, or lists of them
    goal: list[AnyArray | None] | None = None  # (N,)
    is_reset: BoolArray | None = None  # (N,)
    flags: dict[str, BoolArray] = field(default_factory=dict)  # name -> (N,)
    extra_step: dict[str, AnyArray] = field(default_factory=dict)  # (M, ...)
    extra_rollout: dict[str, list[Any]] = field(default_factory=dict)  # (N,)


class FlatSource:
    """Flat arrays as a source; see `Source`.

    Args:
        path: the file, for messages.
        specs: row layouts that the rows may have.
        raw: the file's top-level values, for `keys`.

    Raises:
        DataError: an array has another number of columns than every layout.
    """

    def __init__(
        self,
        path: Path,
        format: str,
        specs: Sequence[EnvSpec],
        columns: FlatColumns,
        index: int = 0,
        last_action_flag: str = "auto",
        metadata: Mapping[str, Any] | None = None,
        raw: Mapping[str, Any] | None = None,
    ) -> None:
        self.path, self.format = path, format
        self.files: tuple[Path, ...] = (path,)
        self.metadata: dict[str, Any] = dict(metadata or {})
        self.findings: list[str] = []
        self._columns, self._index, self._raw = columns, index, dict(raw or {})
        self.spec = choose(path, specs, columns.obs.shape[1], columns.action.shape[1:])
        self._action = self._actions(columns.action)
        self._check_rows(columns.next_obs, "next_observations")
        rows = [a for a in (columns.obs, columns.next_obs, columns.final) if a is not None]
        self._row_dtype: np.dtype[Any] = np.result_type(*rows).newbyteorder("=")
        self.n_rollouts = len(columns.offsets) - 1
        recorded = np.diff(columns.offsets)  # (N,)
        self.last_action: LastAction = "none"
        if columns.next_obs is None and not self._final().all():
            self.last_action = settle(path, last_action_flag, self.metadata, self.n_rollouts, self._last_rewards())
        # a filler row is the final row of its rollout, so the rollout holds one transition less
        self._filler = (recorded > 0) & ~self._final() & (self.last_action == "filler")
        self._length = recorded - self._filler
        self.n_transitions = int(self._length.sum())
        self.longest = int(self._length.max(initial=0))
        self.findings += finding(self.last_action, last_action_flag, self.metadata)
        for name in TOLD:
            count = int(columns.flags.get(name, np.zeros(0, bool)).sum())
            if count:
                self.findings.append(f"{count} rollouts flagged {name}")

    def keys(self) -> dict[str, Any]:
        """The file's top-level values as stored."""
        return dict(self._raw)

    def batches(self, max_transitions: int = 65_536, extras: bool = False) -> Iterator[Rollouts]:
        """Whole rollouts in order; see `PaddedSource.batches`."""
        if max_transitions < 1:
            raise UsageError(f"a batch of {max_transitions} transitions; expected at least 1")
        for begin, end in batch_bounds(self._length, max_transitions):
            yield self._batch(begin, end, extras)

    # -- what the arrays say -------------------------------------------------------------------------------------

    def _actions(self, action: AnyArray) -> AnyArray:
        spec = self.spec
        if action.ndim > 2 or not takes(spec, action.shape[1:]) or action.dtype.kind not in "biuf":
            expected = "(M,) or (M, 1)" if spec.action.kind == "discrete" else f"(M, {spec.action.size})"
            raise DataError(
                f"{self.path}: 'actions' has {action.dtype} of shape {action.shape}; expected numbers {expected} for "
                f"{spec.id}. {advice(self._columns.obs.shape[1], action.shape[1:], [spec])}"
            )
        if spec.action.kind == "discrete":
            flat = action.reshape(-1)
            return flat.astype(np.int64) if flat.dtype.kind == "f" and whole_numbers(flat) else flat
        return action.reshape(-1, spec.action.size)

    def _check_rows(self, rows: AnyArray | None, name: str) -> None:
        expected = (len(self._columns.obs), self._columns.obs.shape[1])
        if rows is not None and rows.shape not in (expected, (expected[0], self.spec.obs_size)):
            raise DataError(
                f"{self.path}: {name!r} has shape {rows.shape}; expected {expected} as observations. Check the program "
                "that wrote it"
            )

    def _final(self) -> BoolArray:
        """Rollouts whose row after the last action is given apart, (N,)."""
        shown = self._columns.shows_final
        return np.zeros(len(self._columns.offsets) - 1, bool) if shown is None else shown

    def _last_rewards(self) -> AnyArray | None:
        columns = self._columns
        if columns.reward is None:
            return None
        last = columns.offsets[1:][np.diff(columns.offsets) > 0] - 1
        return columns.reward[last if columns.order is None else columns.order[last]]

    # -- batches -------------------------------------------------------------------------------------------------

    def _batch(self, begin: int, end: int, extras: bool) -> Rollouts:
        columns, n = self._columns, end - begin
        length = self._length[begin:end]
        offsets = np.concatenate([[0], np.cumsum(length)]).astype(np.int64)
        first = columns.offsets[begin:end]
        step = np.arange(offsets[-1]) - np.repeat(offsets[:-1], length)
        taken = self._places(np.repeat(first, length) + step)  # (M,)
        obs, row_offsets, break_at, break_obs = self._rows(begin, end, taken, offsets)
        has_final = np.diff(row_offsets) > length
        action = self._action[taken]
        reward = None if columns.reward is None else as_float64(columns.reward[taken])
        terminal = None if columns.terminal is None else columns.terminal[taken]
        truncated = None if columns.truncated is None else columns.truncated[taken]

        flags = {name: flag[begin:end] for name, flag in columns.flags.items()}
        flags["empty"] = length == 0
        flags["chain_break"] = any_in(break_at, offsets)
        flags["bad_action"] = any_in(np.flatnonzero(bad_actions(action, self.spec.action)), offsets)
        flags["non_finite"] = non_finite_rollouts(
            (obs, row_offsets), (action, offsets), (terminal, offsets), (truncated, offsets)
        )
        # rewards that a rollout lacks are NaN, and counted as what they are
        short = flags.get("count_mismatch", np.zeros(n, bool))
        flags["non_finite"] |= non_finite_rollouts((reward, offsets)) & ~short
        code = self._codes(begin, end, taken, offsets, flags)
        extra_rollout = {name: values[begin:end] for name, values in columns.extra_rollout.items()} if extras else {}
        if extras and columns.instructions is not None:
            extra_rollout["instructions"] = list(columns.instructions[begin:end])
        if extras and self._filler[begin:end].any():
            extra_rollout |= self._filler_extras(begin, end)
        return Rollouts(
            obs=obs,
            action=action,
            offsets=offsets,
            has_final=has_final,
            source=np.full(n, self._index, np.int32),
            source_rollout=np.arange(begin, end, dtype=np.int32),
            source_step=np.zeros(n, np.int32),
            instruction=first_strings(columns.instructions, begin, end),
            reward=reward,
            terminal=None if terminal is None else terminal > 0,
            truncated=None if truncated is None else truncated > 0,
            goal=None if columns.goal is None else columns.goal[begin:end],
            is_reset=None if columns.is_reset is None else columns.is_reset[begin:end],
            break_at=break_at,
            break_obs=break_obs,
            flags=flags,
            defect=["" if rows else "empty" for rows in np.diff(row_offsets)],
            code=code,
            extra_rollout=extra_rollout,
            extra_step={name: values[taken] for name, values in columns.extra_step.items()} if extras else {},
        )

    def _places(self, positions: IntArray) -> IntArray:
        return positions if self._columns.order is None else self._columns.order[positions]

    def _rows(
        self, begin: int, end: int, taken: IntArray, offsets: IntArray
    ) -> tuple[AnyArray, IntArray, IntArray, AnyArray | None]:
        """The rows, where each rollout's begin, and the transitions whose own end row differs from the next row."""
        columns, size = self._columns, self.spec.obs_size
        length, final = np.diff(offsets), self._final()[begin:end]
        filler = self._filler[begin:end]
        after = (length > 0) if columns.next_obs is not None else final | filler
        row_offsets = np.concatenate([[0], np.cumsum(length + after)]).astype(np.int64)
        start = columns.obs[:, :size]
        obs = np.empty((row_offsets[-1], size), self._row_dtype)
        row = np.arange(len(taken)) + np.repeat(row_offsets[:-1] - offsets[:-1], length)
        obs[row] = start[taken]
        ends = row_offsets[1:] - 1
        if columns.next_obs is None:
            if columns.final is not None:
                obs[ends[final]] = columns.final[begin:end, :size][final]
            obs[ends[filler]] = start[self._places(columns.offsets[begin + 1 : end + 1][filler] - 1)]
            return obs, row_offsets, np.zeros(0, np.int64), None
        following = columns.next_obs[:, :size][taken]
        obs[ends[after]] = following[offsets[1:][after] - 1]
        differs = differing_rows(following, obs, row + 1)
        return obs, row_offsets, differs, following[differs].astype(obs.dtype) if len(differs) else None

    def _codes(
        self, begin: int, end: int, taken: IntArray, offsets: IntArray, flags: dict[str, BoolArray]
    ) -> AnyArray | None:
        obs, size = self._columns.obs, self.spec.obs_size
        if obs.shape[1] == size:
            return None
        some = np.diff(self._columns.offsets[begin : end + 1]) > 0
        codes = np.zeros((end - begin, obs.shape[1] - size), obs.dtype.newbyteorder("="))
        codes[some] = obs[self._places(self._columns.offsets[begin:end][some]), size:]
        rows = obs[taken, size:]
        owner = np.repeat(np.arange(end - begin), np.diff(offsets))
        flags["code_varies"] = any_in(np.unique(differing_rows(rows, codes, owner)), offsets)
        return codes

    def _filler_extras(self, begin: int, end: int) -> dict[str, list[Any]]:
        """What stood on the filler rows, which are no transitions."""
        columns, filler = self._columns, self._filler[begin:end]
        last = self._places(np.maximum(columns.offsets[begin + 1 : end + 1] - 1, 0))
        held = {"action": self._action, "reward": columns.reward, "terminal": columns.terminal}
        held |= {"truncated": columns.truncated, **columns.extra_step}
        return {
            f"filler_{name}": [values[at] if is_filler else None for at, is_filler in zip(last, filler, strict=True)]
            for name, values in held.items()
            if values is not None
        }
