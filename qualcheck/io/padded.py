"""Files that hold padded arrays, (N, T, ...), as whole rollouts without their padding."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from qualcheck.errors import UsageError
from qualcheck.io import goals
from qualcheck.io.arrays import (
    DEFECT_KEY,
    FLAGS_KEY,
    HIDDEN_KEY,
    RESET_KEY,
    ROLLOUT_KEY,
    SOURCE_KEY,
    START_KEY,
    STEP_KEY,
    Array,
    PaddedArrays,
)
from qualcheck.io.gather import (
    any_in,
    as_float64,
    bad_actions,
    batch_bounds,
    differing_rows,
    non_finite_rollouts,
    picked,
    whole_numbers,
    without_codes,
)
from qualcheck.io.instructions import TextLists, first_strings
from qualcheck.io.last_action import LastAction, finding, settle
from qualcheck.io.stored import Stored, StoredKeys
from qualcheck.io.terminals import LateMarks
from qualcheck.spec import EnvSpec
from qualcheck.types import AnyArray, BoolArray, IntArray, Rollouts

MODEL_KEY = "data_model"
SURVEY = 500_000  # entries of the mask looked at together


@dataclass(frozen=True)
class _Layout:
    """Which valid rows of every rollout are transitions, and where its final row is."""

    valid: IntArray  # (N,) valid rows of the mask
    length: IntArray  # (N,) transitions
    has_final: BoolArray  # (N,)
    last: IntArray  # (N,) index of the last valid row, -1 if none
    flags: dict[str, BoolArray]
    defect: AnyArray  # (N,) object, str


@dataclass
class _Survey:
    """What one pass over the masks, rewards, terminals and actions of a file tells."""

    valid: IntArray  # (N,) valid rows of the mask
    last: IntArray  # (N,) index of the last valid row, -1 if none
    odd: BoolArray  # (N,) the mask holds other numbers than 0 and 1
    late: BoolArray  # (N,) the terminal flag stands one index late
    last_rewards: AnyArray | None = None  # of the last valid row of each rollout that has one
    whole_actions: bool = False  # discrete actions are whole numbers in a float dtype, on every valid row


class PaddedSource:
    """One file of padded arrays; see `Source`.

    Args:
        specs: row layouts that the file may have.
        raw: the file's top-level values by key.
        metadata: file-level values known from elsewhere.

    Raises:
        DataError: the structure is broken: a key missing, an array of the wrong kind or shape.
    """

    def __init__(
        self,
        path: Path,
        format: str,
        specs: Sequence[EnvSpec],
        raw: Mapping[str, Any],
        index: int = 0,
        last_action_flag: str = "auto",
        metadata: Mapping[str, Any] | None = None,
    ) -> None:
        self.path, self.format = path, format
        self.files: tuple[Path, ...] = (path,)
        self._index, self._last_action_flag = index, last_action_flag
        self._arrays = PaddedArrays(path, specs, raw)
        self._keys = StoredKeys(raw)
        self.spec = self._arrays.spec
        self.metadata: dict[str, Any] = {**(metadata or {}), **self._arrays.metadata}
        self.n_rollouts = self._arrays.n_rollouts
        self.findings: list[str] = []
        masks = self._arrays.masks
        self._width = self._arrays.steps if masks is None else masks.shape[1]  # T of the mask
        self._short = np.zeros(self.n_rollouts, bool)  # rollouts that an array lacks
        for count in self._arrays.counts().values():
            self._short[count:] = True
        self._whole_actions = False
        self._layout = self._lay_out()
        self.n_transitions = int(self._layout.length.sum())
        self.longest = int(self._layout.length.max(initial=0))
        self._describe()

    # -- which rows count ----------------------------------------------------------------------------------------

    def _lay_out(self) -> _Layout:
        n, steps = self.n_rollouts, self._arrays.steps
        flags: dict[str, BoolArray] = {}
        defect = np.full(n, "", dtype=object)
        flags["count_mismatch"] = self._short.copy()
        for told in (self._arrays.instructions, self._arrays.goals):
            if told is not None:
                flags["count_mismatch"][len(told) :] = True
        rows_masked = self._arrays.final_row and self._width == steps + 1
        seen = self._survey(rows_masked)
        valid, last = seen.valid, seen.last
        hole = valid != last + 1
        flags["mask_hole"], flags["mask_value"] = hole, seen.odd
        self.last_action = self._decide(seen.last_rewards)
        self._whole_actions = seen.whole_actions
        length = np.maximum(valid - 1, 0) if rows_masked or self.last_action == "filler" else valid
        has_final = (valid > 0) & (self.last_action != "executed")
        flags["empty"] = length == 0
        flags["terminal_late"] = seen.late & ~hole
        flags["goal_changes"] = goals.changing(self._arrays.goals, length)
        defect[valid == 0] = "empty"
        defect[seen.odd] = "mask_value"
        defect[hole] = "mask_hole"
        defect[self._short] = "count_mismatch"
        own = self._arrays.own
        if DEFECT_KEY in own:
            told = own[DEFECT_KEY] != ""
            defect[told] = own[DEFECT_KEY][told]
        for i, names in enumerate(own.get(FLAGS_KEY, ())):
            for name in names.split():
                flags.setdefault(name, np.zeros(n, bool))[i] = True
        return _Layout(valid, length, has_final, last, flags, defect)

    def _survey(self, rows_masked: bool) -> _Survey:
        """One pass over what tells which rows count, a block of rollouts at a time."""
        arrays, n = self._arrays, self.n_rollouts
        seen = _Survey(np.zeros(n, np.int64), np.full(n, -1), np.zeros(n, bool), np.zeros(n, bool))
        marks = LateMarks(n)
        floats = self.spec.action.kind == "discrete" and arrays.actions.dtype.kind == "f"
        seen.whole_actions = floats
        rewards: list[AnyArray] = []
        at_once = max(SURVEY // max(self._width, 1), 1)
        for begin in range(0, n, at_once):
            part = slice(begin, min(begin + at_once, n))
            mask, seen.odd[part] = self._valid_rows(begin, part.stop)
            valid = np.count_nonzero(mask, axis=1).astype(np.int64)
            if self._width:
                seen.last[part] = np.where(valid > 0, self._width - 1 - mask[:, ::-1].argmax(axis=1), -1)
            seen.valid[part] = valid
            if arrays.terminals is not None:
                marks.add(begin, arrays.terminals[part], np.maximum(valid - 1, 0) if rows_masked else valid)
            if arrays.rewards is not None and self._asks_rewards():
                block = arrays.rewards[part]
                some = np.flatnonzero(valid[: len(block)] > 0)
                rewards.append(block[some, seen.last[part][some]])
            if seen.whole_actions:
                actions = arrays.actions[part]
                seen.whole_actions = whole_numbers(actions[mask[: len(actions), : actions.shape[1]]])
        if arrays.rewards is not None:
            seen.last_rewards = np.concatenate([*rewards, np.zeros(0, arrays.rewards.dtype)])
        seen.late = marks.late()
        return seen

    def _valid_rows(self, begin: int, end: int) -> tuple[BoolArray, BoolArray]:
        """The mask of some rollouts as (n, T) bool, and those whose mask holds other numbers than 0 and 1."""
        n = end - begin
        odd = np.zeros(n, bool)
        if self._arrays.masks is None:
            mask = np.ones((n, self._width), bool)
        else:
            given = self._arrays.masks[begin:end]
            mask = np.zeros((n, self._width), bool)
            if given.dtype == bool:
                mask[: len(given)] = given
            else:
                mask[: len(given)] = given == 1
                plain = mask[: len(given)] | (given == 0)
                if not plain.all():
                    odd[: len(given)] = ~plain.all(axis=1)
                    with np.errstate(invalid="ignore"):
                        mask[: len(given)] = given > 0
        mask[self._short[begin:end]] = False
        return mask, odd

    def _asks_rewards(self) -> bool:
        """Whether rewards may decide what the last actions are."""
        return self._arrays.next_obs is None and not self._arrays.final_row

    def _decide(self, last_rewards: AnyArray | None) -> LastAction:
        if not self._asks_rewards():
            return "none"
        return settle(self.path, self._last_action_flag, self.metadata, self.n_rollouts, last_rewards)

    def _describe(self) -> None:
        layout, n = self._layout, self.n_rollouts
        if self._arrays.masks is None and n:
            self.findings.append(f"no masks: all {self._arrays.steps} rows of every rollout count")
        self.findings += finding(self.last_action, self._last_action_flag, self.metadata)
        counts = self._arrays.counts()
        if self._arrays.instructions is not None:
            counts["instructions"] = len(self._arrays.instructions)
        if self._arrays.goals is not None:
            counts["goals"] = len(self._arrays.goals)
        for key, count in counts.items():
            if count != n:
                self.findings.append(f"{key} hold {count} rollouts, observations {n}: the common part is scored")
        for name in ("mask_hole", "mask_value", "empty", "terminal_late", "goal_changes"):
            count = int(layout.flags[name].sum())
            if count:
                self.findings.append(f"{count} rollouts flagged {name}")

    # -- batches -------------------------------------------------------------------------------------------------

    def keys(self) -> Mapping[str, Any]:
        """The file's top-level values as stored, padding included; loaded or mapped when asked for."""
        return self._keys

    def batches(self, max_transitions: int = 65_536, extras: bool = False) -> Iterator[Rollouts]:
        """Whole rollouts in source order, at most `max_transitions` at a time where one rollout does not exceed it.

        Args:
            max_transitions: size of a batch, at least 1.
            extras: also hand on the keys that qualcheck does not know.
        """
        if max_transitions < 1:
            raise UsageError(f"a batch of {max_transitions} transitions; expected at least 1")
        for begin, end in batch_bounds(self._layout.length, max_transitions):
            yield self._batch(begin, end, extras)

    def _batch(self, begin: int, end: int, extras: bool) -> Rollouts:
        layout, spec = self._layout, self.spec
        n, length, has_final = end - begin, layout.length[begin:end], layout.has_final[begin:end]
        offsets = np.concatenate([[0], np.cumsum(length)]).astype(np.int64)
        rows = length + has_final
        row_offsets = np.concatenate([[0], np.cumsum(rows)]).astype(np.int64)
        mask, _ = self._valid_rows(begin, end)
        shown = np.flatnonzero(mask)  # valid rows, in the T of the mask
        width = self._width
        if width == self._arrays.steps:
            at_step = shown
        else:  # the mask also counts the final row
            rollout, step = np.divmod(shown, max(width, 1))
            at_step = rollout * self._arrays.steps + np.minimum(step, max(self._arrays.steps - 1, 0))
        taken = self._transition_places(at_step, layout.valid[begin:end], length)  # (M,) places in (n * T)
        following = None  # (M, O) the end row that the file holds of each transition
        if self._arrays.next_obs is not None:
            following = picked(self._arrays.next_obs, begin, end, taken, spec.obs_size)
        obs, code, varies = self._rows(begin, end, shown, mask, taken, following, offsets, row_offsets, has_final)
        action = picked(self._arrays.actions, begin, end, taken)
        action = action.astype(np.int64) if self._whole_actions else action
        reward = self._flat(self._arrays.rewards, begin, end, taken)

        flags = {name: flag[begin:end] for name, flag in layout.flags.items()}
        break_at, break_obs = self._breaks(following, obs, offsets, row_offsets)
        terminal, truncated = (
            self._flat(a, begin, end, taken) for a in (self._arrays.terminals, self._arrays.truncated)
        )
        told = {name: flags[name] for name in ("non_finite", "code_varies") if name in flags}
        flags["chain_break"] = any_in(break_at, offsets) & ~flags["mask_hole"]  # a hole has no following row
        flags["non_finite"] = non_finite_rollouts(
            (obs, row_offsets), *((values, offsets) for values in (action, reward, terminal, truncated))
        )
        flags["bad_action"] = any_in(np.flatnonzero(bad_actions(action, spec.action)), offsets)

        if varies is not None:
            flags["code_varies"] = varies
        for name, flag in told.items():
            flags[name] = flags.get(name, flag) | flag
        own = {name: value[begin:end] for name, value in self._arrays.own.items()}
        hidden = own.get(HIDDEN_KEY)
        start, since, reset = own.get(START_KEY), own.get(STEP_KEY), own.get(RESET_KEY)
        return Rollouts(
            obs=obs,
            action=action,
            offsets=offsets,
            has_final=has_final,
            source=np.full(n, self._index, np.int32),
            source_rollout=own.get(ROLLOUT_KEY, np.arange(begin, end, dtype=np.int32)),
            source_step=np.zeros(n, np.int32) if since is None else since,
            instruction=first_strings(self._arrays.instructions, begin, end),
            reward=None if reward is None else as_float64(reward),
            terminal=None if terminal is None else terminal > 0,
            truncated=None if truncated is None else truncated > 0,
            goal=self._goal_rows(begin, end),
            is_reset=None if start is None else start == "reset",
            hidden=None if hidden is None else hidden.astype(np.float64),
            reset_obs=None if reset is None else np.ascontiguousarray(reset).astype(obs.dtype),
            break_at=break_at,
            break_obs=break_obs,
            origin=own[SOURCE_KEY].tolist() if SOURCE_KEY in own else None,
            level=self._arrays.levels(begin, end),
            flags=flags,
            defect=layout.defect[begin:end].tolist(),
            generator=self._generators(begin, end),
            code=code,
            extra_rollout=self._rollout_extras(begin, end) if extras else {},
            extra_step=self._step_extras(begin, end, taken) if extras else {},
        )

    def _transition_places(self, shown: IntArray, valid: IntArray, length: IntArray) -> IntArray:
        """Drops each rollout's last valid row where that row starts no transition."""
        if np.array_equal(valid, length):
            return shown
        keep = np.ones(len(shown), bool)
        ends = np.cumsum(valid)[valid > length] - 1
        keep[ends] = False
        return shown[keep]

    def _rows(
        self,
        begin: int,
        end: int,
        shown: IntArray,
        mask: BoolArray,
        taken: IntArray,
        following: AnyArray | None,
        offsets: IntArray,
        row_offsets: IntArray,
        has_final: BoolArray,
    ) -> tuple[AnyArray, AnyArray | None, BoolArray | None]:
        """The rows of some rollouts, (R, O); their instruction codes, (n, E), and which of them vary, (n,)."""
        at = shown
        final = row_offsets[1:][has_final] - 1
        apart = self._arrays.next_obs is not None or (self._arrays.final_row and self._width == self._arrays.steps)
        if apart:
            # every rollout with a final row needs one place more than it has transitions
            before: IntArray = np.cumsum(has_final) - has_final
            place = np.arange(row_offsets[-1]) - np.repeat(before, np.diff(row_offsets))
            place[final] -= 1
            at = taken[place]
            if self._arrays.final_row:
                rollout, step = np.divmod(at, self._arrays.steps)
                at = rollout * self._arrays.obs.shape[1] + step
                at[final] += 1
        size, dtype = self.spec.obs_size, self._arrays.row_dtype
        if self._arrays.obs.shape[2] == size:
            obs, code, varies = picked(self._arrays.obs, begin, end, at).astype(dtype, copy=False), None, None
        else:
            obs, code, varies = without_codes(self._arrays.obs, begin, end, at, mask, size, dtype)
        if apart and following is not None and not self._arrays.final_row and len(final):
            obs[final] = following[offsets[1:][has_final] - 1]
        return obs, code, varies

    def _breaks(
        self, following: AnyArray | None, obs: AnyArray, offsets: IntArray, row_offsets: IntArray
    ) -> tuple[IntArray, AnyArray | None]:
        """Transitions whose own end row differs from the row that follows, and that end row."""
        if following is None or not len(following):
            return np.zeros(0, np.int64), None
        rollouts = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))
        after = np.arange(len(following)) + (row_offsets[:-1] - offsets[:-1])[rollouts] + 1
        differs = differing_rows(following, obs, after)
        if not len(differs):
            return differs, None
        return differs, following[differs].astype(obs.dtype)

    def _flat(self, array: Array | None, begin: int, end: int, taken: IntArray) -> AnyArray | None:
        return None if array is None else picked(array, begin, end, taken)

    def _goal_rows(self, begin: int, end: int) -> list[AnyArray | None] | None:
        if self._arrays.goals is None:
            return None
        rows = [goals.goal_row(value) for value in self._arrays.goals[begin:end]]
        return rows + [None] * (end - begin - len(rows))

    def _generators(self, begin: int, end: int) -> list[str] | None:
        """The model that imagined each rollout, where the file says it."""
        told = self._arrays.raw.get(MODEL_KEY, self.metadata.get(MODEL_KEY))
        if isinstance(told, str):
            return [told] * (end - begin)
        if isinstance(told, list | tuple | np.ndarray | TextLists | Stored):
            return [text or "" for text in first_strings(told, begin, end)]
        name = self.metadata.get("file_name")
        if isinstance(name, str) and Path(name).stem.endswith("_qwen"):
            return ["qwen3"] * (end - begin)
        return None

    def _rollout_extras(self, begin: int, end: int) -> dict[str, list[Any]]:
        extras = {name: list(value[begin:end]) for name, value in self._arrays.extra_rollout.items()}
        if SOURCE_KEY in self._arrays.own:
            extras["source"] = self._arrays.own[SOURCE_KEY][begin:end].tolist()
        if self._arrays.instructions is not None:
            extras["instructions"] = _filled(list(self._arrays.instructions[begin:end]), end - begin)
        if self.last_action == "filler":
            last = self._layout.last[begin:end].tolist()
            known: dict[str, Array | None] = {"action": self._arrays.actions, "reward": self._arrays.rewards}
            known |= {
                "terminal": self._arrays.terminals,
                "truncated": self._arrays.truncated,
                **self._arrays.extra_step,
            }
            for name, array in known.items():
                if array is not None:
                    block = array[begin:end]
                    extras[f"filler_{name}"] = [
                        block[i, t] if t >= 0 and i < len(block) else None for i, t in enumerate(last)
                    ]
        return extras

    def _step_extras(self, begin: int, end: int, taken: IntArray) -> dict[str, AnyArray]:
        return {name: picked(value, begin, end, taken) for name, value in self._arrays.extra_step.items()}


def _filled(values: list[Any], size: int) -> list[Any]:
    return values + [None] * (size - len(values))
