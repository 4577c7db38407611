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
    PaddedArrays,
)
from qualcheck.io.encodings import code_varies
from qualcheck.io.gather import (
    any_in,
    as_float64,
    bad_actions,
    batch_bounds,
    differing_rows,
    non_finite_rollouts,
    rows_of,
    whole_numbers,
)
from qualcheck.io.instructions import TextLists, first_strings
from qualcheck.io.last_action import LastAction, finding, settle
from qualcheck.io.terminals import late_in_padding
from qualcheck.spec import EnvSpec
from qualcheck.types import AnyArray, BoolArray, IntArray, Rollouts

MODEL_KEY = "data_model"


@dataclass(frozen=True)
class _Layout:
    """Which valid rows of every rollout are transitions, and where its final row is."""

    mask: BoolArray  # (N, T)
    valid: IntArray  # (N,) valid rows of the mask
    length: IntArray  # (N,) transitions
    has_final: BoolArray  # (N,)
    last: IntArray  # (N,) index of the last valid row, -1 if none
    flags: dict[str, BoolArray]
    defect: AnyArray  # (N,) object, str


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
        self.spec = self._arrays.spec
        self.metadata: dict[str, Any] = {**(metadata or {}), **self._arrays.metadata}
        self.n_rollouts = self._arrays.n_rollouts
        self.findings: list[str] = []
        self._layout = self._lay_out()
        self._whole_actions = self._stored_as_floats()
        self.n_transitions = int(self._layout.length.sum())
        self.longest = int(self._layout.length.max(initial=0))
        self._describe()

    # -- which rows count ----------------------------------------------------------------------------------------

    def _lay_out(self) -> _Layout:
        n, steps = self.n_rollouts, self._arrays.steps
        flags: dict[str, BoolArray] = {}
        defect = np.full(n, "", dtype=object)
        mask, odd = self._valid_rows()
        short = np.zeros(n, bool)
        for count in self._arrays.counts().values():
            short[count:] = True
        mask[short] = False
        flags["count_mismatch"] = short.copy()
        for told in (self._arrays.instructions, self._arrays.goals):
            if told is not None:
                flags["count_mismatch"][len(told) :] = True

        width = mask.shape[1]
        valid = np.count_nonzero(mask, axis=1).astype(np.int64)  # (N,)
        last = np.where(valid > 0, width - 1 - mask[:, ::-1].argmax(axis=1), -1) if width else np.full(n, -1)
        hole = valid != last + 1
        flags["mask_hole"], flags["mask_value"] = hole, odd
        self.last_action = self._decide(valid, last)
        rows_masked = self._arrays.final_row and width == steps + 1
        length = np.maximum(valid - 1, 0) if rows_masked or self.last_action == "filler" else valid
        has_final = (valid > 0) & (self.last_action != "executed")
        flags["empty"] = length == 0
        flags["terminal_late"] = late_in_padding(self._arrays.terminals, length if rows_masked else valid) & ~hole
        flags["goal_changes"] = goals.changing(self._arrays.goals, length)
        defect[valid == 0] = "empty"
        defect[odd] = "mask_value"
        defect[hole] = "mask_hole"
        defect[short] = "count_mismatch"
        own = self._arrays.own
        if DEFECT_KEY in own:
            told = own[DEFECT_KEY] != ""
            defect[told] = own[DEFECT_KEY][told]
        for i, names in enumerate(own.get(FLAGS_KEY, ())):
            for name in names.split():
                flags.setdefault(name, np.zeros(n, bool))[i] = True
        return _Layout(mask, valid, length, has_final, last, flags, defect)

    def _valid_rows(self) -> tuple[BoolArray, BoolArray]:
        """The mask as (N, T) bool, and the rollouts whose mask holds other numbers than 0 and 1."""
        n = self.n_rollouts
        if self._arrays.masks is None:
            return np.ones((n, self._arrays.steps), bool), np.zeros(n, bool)
        given = self._arrays.masks[:n]
        mask = np.zeros((n, given.shape[1]), bool)
        odd = np.zeros(n, bool)
        if given.dtype == bool:
            mask[: len(given)] = given
            return mask, odd
        mask[: len(given)] = given == 1
        plain = mask[: len(given)] | (given == 0)
        if not plain.all():
            odd[: len(given)] = ~plain.all(axis=1)
            with np.errstate(invalid="ignore"):
                mask[: len(given)] = given > 0
        return mask, odd

    def _stored_as_floats(self) -> bool:
        """Whether discrete actions are whole numbers in a float dtype, on every valid row."""
        actions, mask = self._arrays.actions, self._layout.mask
        if self.spec.action.kind != "discrete" or actions.dtype.kind != "f":
            return False
        n, steps = min(len(actions), len(mask)), actions.shape[1]
        return whole_numbers(actions[:n][mask[:n, :steps]])

    def _decide(self, valid: IntArray, last: IntArray) -> LastAction:
        rewards = self._arrays.rewards
        if self._arrays.next_obs is not None or self._arrays.final_row:
            return "none"
        if rewards is not None:
            some = np.flatnonzero(valid[: len(rewards)] > 0)
            rewards = rewards[some, last[some]]
        return settle(self.path, self._last_action_flag, self.metadata, self.n_rollouts, rewards)

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

    def keys(self) -> dict[str, Any]:
        """The file's top-level values as stored, padding included."""
        return dict(self._arrays.raw)

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
        mask = layout.mask[begin:end]
        shown = np.flatnonzero(mask)  # valid rows, in the T of the mask
        width = mask.shape[1]
        if width == self._arrays.steps:
            at_step = shown
        else:  # the mask also counts the final row
            rollout, step = np.divmod(shown, max(width, 1))
            at_step = rollout * self._arrays.steps + np.minimum(step, max(self._arrays.steps - 1, 0))
        taken = self._transition_places(at_step, layout.valid[begin:end], length)  # (M,) places in (n * T)
        obs = self._rows(begin, end, shown, width, taken, offsets, row_offsets, has_final)
        action = rows_of(self._arrays.actions[begin:end], taken)
        action = action.astype(np.int64) if self._whole_actions else action
        reward = self._flat(self._arrays.rewards, begin, end, taken)

        flags = {name: flag[begin:end] for name, flag in layout.flags.items()}
        break_at, break_obs = self._breaks(begin, end, taken, obs, offsets, row_offsets)
        terminal, truncated = (
            self._flat(a, begin, end, taken) for a in (self._arrays.terminals, self._arrays.truncated)
        )
        told = {name: flags[name] for name in ("non_finite", "code_varies") if name in flags}
        flags["chain_break"] = any_in(break_at, offsets) & ~flags["mask_hole"]  # a hole has no following row
        flags["non_finite"] = non_finite_rollouts(
            (obs, row_offsets), *((values, offsets) for values in (action, reward, terminal, truncated))
        )
        flags["bad_action"] = any_in(np.flatnonzero(bad_actions(action, spec.action)), offsets)

        code = self._codes(begin, end, flags)
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
        width: int,
        taken: IntArray,
        offsets: IntArray,
        row_offsets: IntArray,
        has_final: BoolArray,
    ) -> AnyArray:
        block = self._arrays.obs[begin:end, :, : self.spec.obs_size]
        held = block.shape[1]
        if self._arrays.next_obs is not None or (self._arrays.final_row and width == self._arrays.steps):
            # every rollout with a final row needs one place more than it has transitions
            before: IntArray = np.cumsum(has_final) - has_final
            place = np.arange(row_offsets[-1]) - np.repeat(before, np.diff(row_offsets))
            final = row_offsets[1:][has_final] - 1
            place[final] -= 1
            at = taken[place]
            if self._arrays.final_row:
                rollout, step = np.divmod(at, self._arrays.steps)
                at = rollout * held + step
                at[final] += 1
            obs = rows_of(block, at).astype(self._arrays.row_dtype, copy=False)
            if self._arrays.next_obs is not None and not self._arrays.final_row and len(final):
                ends = taken[offsets[1:][has_final] - 1]
                following = self._arrays.next_obs[begin:end, :, : self.spec.obs_size]
                obs[final] = rows_of(following, ends)
            return obs
        return rows_of(block, shown).astype(self._arrays.row_dtype, copy=False)

    def _breaks(
        self,
        begin: int,
        end: int,
        taken: IntArray,
        obs: AnyArray,
        offsets: IntArray,
        row_offsets: IntArray,
    ) -> tuple[IntArray, AnyArray | None]:
        """Transitions whose own end row differs from the row that follows, and that end row."""
        if self._arrays.next_obs is None or not len(taken):
            return np.zeros(0, np.int64), None
        following = rows_of(self._arrays.next_obs[begin:end, :, : self.spec.obs_size], taken)  # (M, O)
        rollouts = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))
        after = np.arange(len(taken)) + (row_offsets[:-1] - offsets[:-1])[rollouts] + 1
        differs = differing_rows(following, obs, after)
        if not len(differs):
            return differs, None
        return differs, following[differs].astype(obs.dtype)

    def _flat(self, array: AnyArray | None, begin: int, end: int, taken: IntArray) -> AnyArray | None:
        return None if array is None else rows_of(array[begin:end], taken)

    def _goal_rows(self, begin: int, end: int) -> list[AnyArray | None] | None:
        if self._arrays.goals is None:
            return None
        rows = [goals.goal_row(value) for value in self._arrays.goals[begin:end]]
        return rows + [None] * (end - begin - len(rows))

    def _codes(self, begin: int, end: int, flags: dict[str, BoolArray]) -> AnyArray | None:
        size = self.spec.obs_size
        if self._arrays.obs.shape[2] == size:
            return None
        block = self._arrays.obs[begin:end, :, size:]
        if not block.shape[1]:
            return np.zeros((end - begin, block.shape[2]), block.dtype)
        mask = self._layout.mask[begin:end]
        flags["code_varies"] = code_varies(block, mask)
        codes: AnyArray = block[np.arange(end - begin), mask.argmax(axis=1)]
        return codes.astype(codes.dtype.newbyteorder("="), copy=False)

    def _generators(self, begin: int, end: int) -> list[str] | None:
        """The model that imagined each rollout, where the file says it."""
        told = self._arrays.raw.get(MODEL_KEY, self.metadata.get(MODEL_KEY))
        if isinstance(told, str):
            return [told] * (end - begin)
        if isinstance(told, list | tuple | np.ndarray | TextLists):
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
            rollout = np.arange(begin, end)
            last = self._layout.last[begin:end]
            known: dict[str, AnyArray | None] = {"action": self._arrays.actions, "reward": self._arrays.rewards}
            known |= {
                "terminal": self._arrays.terminals,
                "truncated": self._arrays.truncated,
                **self._arrays.extra_step,
            }
            for name, array in known.items():
                if array is not None:
                    inside = (last >= 0) & (rollout < len(array))
                    extras[f"filler_{name}"] = [
                        array[i, t] if ok else None for i, t, ok in zip(rollout, last, inside, strict=True)
                    ]
        return extras

    def _step_extras(self, begin: int, end: int, taken: IntArray) -> dict[str, AnyArray]:
        return {name: rows_of(value[begin:end], taken) for name, value in self._arrays.extra_step.items()}


def _filled(values: list[Any], size: int) -> list[Any]:
    return values + [None] * (size - len(values))
