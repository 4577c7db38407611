"""Files that hold padded arrays, (N, T, ...), as whole rollouts without their padding."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np

from qualcheck.errors import DataError, UsageError
from qualcheck.io.gather import all_finite, any_in, bad_actions, batch_bounds, differing_rows, rows_of
from qualcheck.io.instructions import TextLists, first_strings
from qualcheck.spec import EnvSpec
from qualcheck.types import AnyArray, BoolArray, IntArray, Rollouts

MASK_KEYS = ("masks", "action_masks")
TERMINAL_KEYS = ("terminals", "terminal")
TRUNCATED_KEYS = ("truncations", "truncated", "timeouts")
GOAL_KEYS = ("goals", "goal")
START_KEY, STEP_KEY, RESET_KEY = "qualcheck_start", "qualcheck_source_step", "qualcheck_reset_obs"
LAST_ACTION_KEY = "qualcheck_last_action"
FEWEST_FOR_FILLER = 20  # rollouts; with fewer, zeros in the last reward say too little

LastAction = Literal["executed", "filler", "none"]


@dataclass(frozen=True)
class _Layout:
    """Which valid rows of every rollout are transitions, and where its final row is."""

    mask: BoolArray  # (N, T)
    valid: IntArray  # (N,) valid rows of the mask
    length: IntArray  # (N,) transitions
    has_final: BoolArray  # (N,)
    last: IntArray  # (N,) index of the last valid row, -1 if none
    prefix: bool  # every mask is a prefix
    flags: dict[str, BoolArray]
    defect: AnyArray  # (N,) object, str


@dataclass
class PaddedSource:
    """One file of padded arrays.

    Args:
        raw: the file's top-level values by key.

    Raises:
        DataError: the structure is broken: a key missing, an array of the wrong kind or shape.
    """

    path: Path
    format: str
    spec: EnvSpec
    raw: Mapping[str, Any]
    index: int = 0
    last_action_flag: str = "auto"
    findings: list[str] = field(default_factory=list)
    metadata: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        spec = self.spec
        self._used: set[str] = set()
        obs = self._numbers("observations", required=True)
        assert obs is not None
        if obs.ndim != 3:
            raise self._broken("observations", f"shape {obs.shape}", f"(N, T, {spec.obs_size})", "Is --env right?")
        widths = [spec.obs_size] + ([spec.obs_size + spec.code_size] if spec.code_size else [])
        if obs.shape[2] not in widths:
            expected = f"{spec.id} has {' or '.join(map(str, widths))}"
            raise self._broken("observations", f"{obs.shape[2]} columns", expected, "Is --env right?")
        self.n_rollouts = len(obs)
        self._obs = obs
        self._actions = self._action_array()
        steps = self._actions.shape[1]
        self._extra_row = obs.shape[1] == steps + 1
        if obs.shape[1] not in (steps, steps + 1):
            raise self._broken("actions", f"T = {steps}", f"T = {obs.shape[1]} as in observations", "Check the writer")
        self._steps = steps
        self._next = self._next_array()
        self._rewards = self._per_step(("rewards", "reward"))
        self._terminals = self._per_step(TERMINAL_KEYS)
        self._truncated = self._per_step(TRUNCATED_KEYS)
        self._masks = self._per_step(MASK_KEYS, also=steps + 1 if self._extra_row else None)
        self._instructions = self._instruction_list()
        self._goals = self._goal_array()
        self._starts = self._start_arrays()
        self._sort_extras()
        self._layout = self._lay_out()
        self.n_transitions = int(self._layout.length.sum())
        self.longest = int(self._layout.length.max(initial=0))
        self._describe()

    # -- structure -----------------------------------------------------------------------------------------------

    def _broken(self, key: str, found: str, expected: str, advice: str) -> DataError:
        return DataError(f"{self.path}: {key!r} has {found}; expected {expected}. {advice}")

    def _numbers(self, key: str, required: bool = False) -> AnyArray | None:
        if self.raw.get(key) is None:
            if required:
                known = ", ".join(sorted(str(k)[:40] for k in self.raw)[:20]) or "none"
                raise DataError(
                    f"{self.path}: no {key!r} among its keys ({known}); expected observations, actions, rewards and "
                    "masks as in the benchmark's files. Is this a rollout file?"
                )
            return None
        value = self.raw[key]
        self._used.add(key)
        if not isinstance(value, np.ndarray):
            raise self._broken(key, f"a {type(value).__name__}", "an array of numbers", "Save it as one padded array")
        if value.dtype.kind not in "biuf":
            raise self._broken(key, f"dtype {value.dtype}", "real numbers", "Save it as one padded array of numbers")
        return value

    def _action_array(self) -> AnyArray:
        actions = self._numbers("actions", required=True)
        assert actions is not None
        kind, size = self.spec.action.kind, self.spec.action.size
        columns = 1 if kind == "discrete" else size
        if actions.ndim == 3 and actions.shape[2] == columns:
            return actions[:, :, 0] if kind == "discrete" else actions
        if actions.ndim == 2 and columns == 1:
            return actions if kind == "discrete" else actions[:, :, None]
        expected = "(N, T) or (N, T, 1)" if kind == "discrete" else f"(N, T, {size})"
        raise self._broken("actions", f"shape {actions.shape}", f"{expected} for {self.spec.id}", "Is --env right?")

    def _next_array(self) -> AnyArray | None:
        rows = self._numbers("next_observations")
        if rows is None:
            return None
        obs = self._obs
        if rows.ndim != 3 or rows.shape[1] != self._steps or rows.shape[2] not in (obs.shape[2], self.spec.obs_size):
            expected = f"(N, {self._steps}, {obs.shape[2]}) as observations and actions"
            raise self._broken("next_observations", f"shape {rows.shape}", expected, "Check the writer")
        return rows

    def _per_step(self, keys: tuple[str, ...], also: int | None = None) -> AnyArray | None:
        """The first of `keys` in the file as (N', T)."""
        for key in keys:
            value = self._numbers(key)
            if value is None:
                continue
            if value.ndim == 3 and value.shape[2] == 1:
                value = value[:, :, 0]
            if value.ndim != 2 or value.shape[1] not in (self._steps, also):
                shape = f"(N, {self._steps}) or (N, {self._steps}, 1)"
                raise self._broken(key, f"shape {value.shape}", shape, "Check the writer")
            return value
        return None

    def _instruction_list(self) -> Any:
        value = self.raw.get("instructions")
        if value is None:
            return None
        self._used.add("instructions")
        texts = isinstance(value, np.ndarray) and value.dtype.kind in "USO" and value.ndim >= 1
        if not texts and not isinstance(value, list | tuple | TextLists):
            found = f"dtype {value.dtype}" if isinstance(value, np.ndarray) else f"a {type(value).__name__}"
            raise self._broken("instructions", found, "a list or array of text", "One entry for each rollout")
        return value

    def _goal_array(self) -> AnyArray | None:
        for key in GOAL_KEYS:
            value = self.raw.get(key)
            if isinstance(value, np.ndarray) and value.ndim == 2 and value.dtype.kind in "biuf":
                self._used.add(key)
                return value
        return None

    def _start_arrays(self) -> dict[str, AnyArray]:
        """Where pieces start, from a file that `qualcheck filter` wrote."""
        found: dict[str, AnyArray] = {}
        shapes = {START_KEY: (self.n_rollouts,), STEP_KEY: (self.n_rollouts,)}
        shapes[RESET_KEY] = (self.n_rollouts, self.spec.obs_size)
        for key, shape in shapes.items():
            if key not in self.raw:
                continue
            value = np.asarray(self.raw[key])
            kinds = "UO" if key == START_KEY else "biuf"
            if value.shape != shape or value.dtype.kind not in kinds:
                raise self._broken(key, f"{value.dtype} of shape {value.shape}", f"shape {shape}", "Filter again")
            self._used.add(key)
            found[key] = value
        return found

    def _sort_extras(self) -> None:
        self._extra_step: dict[str, AnyArray] = {}
        self._extra_rollout: dict[str, Any] = {}
        for key, value in self.raw.items():
            if key in self._used:
                continue
            name = str(key)
            if isinstance(value, np.ndarray) and value.ndim >= 1 and len(value) == self.n_rollouts:
                plain = value.dtype.kind in "biufUS"
                per_step = plain and value.ndim >= 2 and value.shape[1] == self._steps
                (self._extra_step if per_step else self._extra_rollout)[name] = value
            elif isinstance(value, list | tuple | TextLists) and len(value) == self.n_rollouts:
                self._extra_rollout[name] = value
            else:
                self.metadata[name] = value

    # -- which rows count ----------------------------------------------------------------------------------------

    def _lay_out(self) -> _Layout:
        n, steps = self.n_rollouts, self._steps
        flags: dict[str, BoolArray] = {}
        defect = np.full(n, "", dtype=object)
        mask, odd = self._valid_rows()
        short = np.zeros(n, bool)
        for array in (self._actions, self._next, self._rewards, self._terminals, self._truncated, self._masks):
            if array is not None and len(array) < n:
                short[len(array) :] = True
        mask[short] = False
        flags["count_mismatch"] = short.copy()
        if self._instructions is not None and len(self._instructions) < n:
            flags["count_mismatch"][len(self._instructions) :] = True

        width = mask.shape[1]
        valid = np.count_nonzero(mask, axis=1).astype(np.int64)  # (N,)
        last = np.where(valid > 0, width - 1 - mask[:, ::-1].argmax(axis=1), -1) if width else np.full(n, -1)
        hole = valid != last + 1
        flags["mask_hole"], flags["mask_value"] = hole, odd
        self.last_action = self._decide(valid, last)
        rows_masked = self._extra_row and width == steps + 1
        if rows_masked or self.last_action == "filler":
            length = np.maximum(valid - 1, 0)
        else:
            length = valid
        has_final = (valid > 0) & (self.last_action != "executed")
        flags["empty"] = length == 0
        defect[valid == 0] = "empty"
        defect[odd] = "mask_value"
        defect[hole] = "mask_hole"
        defect[short] = "count_mismatch"
        return _Layout(mask, valid, length, has_final, last, not hole.any(), flags, defect)

    def _valid_rows(self) -> tuple[BoolArray, BoolArray]:
        """The mask as (N, T) bool, and the rollouts whose mask holds other numbers than 0 and 1."""
        n = self.n_rollouts
        if self._masks is None:
            return np.ones((n, self._steps), bool), np.zeros(n, bool)
        given = self._masks[:n]
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

    def _decide(self, valid: IntArray, last: IntArray) -> LastAction:
        if self._next is not None or self._extra_row:
            return "none"
        if self.last_action_flag != "auto":
            return "filler" if self.last_action_flag == "filler" else "executed"
        said = self.metadata.get(LAST_ACTION_KEY)
        if said is not None:
            if not isinstance(said, str) or said not in ("executed", "filler"):
                raise self._broken(LAST_ACTION_KEY, "an unknown value", "'executed' or 'filler'", "Filter again")
            return "filler" if said == "filler" else "executed"
        if self._rewards is None or self.n_rollouts < FEWEST_FOR_FILLER:
            return "executed"
        some = np.flatnonzero(valid[: len(self._rewards)] > 0)
        return "filler" if len(some) and not self._rewards[some, last[some]].any() else "executed"

    def _describe(self) -> None:
        layout, n = self._layout, self.n_rollouts
        if self.last_action == "filler":
            how = "given" if self.last_action_flag == "filler" or LAST_ACTION_KEY in self.metadata else "found"
            why = "by option or by the file" if how == "given" else "its reward is 0 in every rollout"
            self.findings.append(
                f"no next_observations; the last row of each rollout is a final state, its action a filler ({why})"
            )
        elif self.last_action == "executed":
            self.findings.append(
                "no next_observations; the last action of each rollout counts as executed, its end row is not in the file"
            )
        named = {
            "actions": self._actions,
            "next_observations": self._next,
            "rewards": self._rewards,
            "masks": self._masks,
            "instructions": self._instructions,
        }
        for key, value in named.items():
            if value is not None and len(value) != n:
                self.findings.append(f"{key} hold {len(value)} rollouts, observations {n}: the common part is scored")
        for name in ("mask_hole", "mask_value", "empty"):
            count = int(layout.flags[name].sum())
            if count:
                self.findings.append(f"{count} rollouts flagged {name}")

    # -- batches -------------------------------------------------------------------------------------------------

    def keys(self) -> dict[str, Any]:
        """The file's top-level values as stored, padding included."""
        return dict(self.raw)

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
        if width == self._steps:
            at_step = shown
        else:  # the mask also counts the final row
            rollout, step = np.divmod(shown, max(width, 1))
            at_step = rollout * self._steps + np.minimum(step, max(self._steps - 1, 0))
        taken = self._transition_places(at_step, layout.valid[begin:end], length)  # (M,) places in (n * T)
        obs = self._rows(begin, end, shown, width, taken, offsets, row_offsets, has_final)
        action = rows_of(self._actions[begin:end], taken)
        reward = self._flat(self._rewards, begin, end, taken)

        flags = {name: flag[begin:end] for name, flag in layout.flags.items()}
        break_at, break_obs = self._breaks(begin, end, taken, obs, offsets, row_offsets)
        flags["chain_break"] = any_in(break_at, offsets)
        flags["non_finite"] = self._non_finite(obs, action, reward, row_offsets, offsets)
        flags["bad_action"] = any_in(np.flatnonzero(bad_actions(action, spec.action)), offsets)

        terminal, truncated = (self._flat(a, begin, end, taken) for a in (self._terminals, self._truncated))
        start = self._starts.get(START_KEY)
        step = self._starts.get(STEP_KEY)
        reset = self._starts.get(RESET_KEY)
        return Rollouts(
            obs=obs,
            action=action,
            offsets=offsets,
            has_final=has_final,
            source=np.full(n, self.index, np.int32),
            source_rollout=np.arange(begin, end, dtype=np.int32),
            source_step=np.zeros(n, np.int32) if step is None else step[begin:end].astype(np.int32),
            instruction=first_strings(self._instructions, begin, end),
            reward=None if reward is None else reward.astype(np.float64),
            terminal=None if terminal is None else terminal != 0,
            truncated=None if truncated is None else truncated != 0,
            goal=self._goal_rows(begin, end),
            is_reset=None if start is None else start[begin:end] == "reset",
            reset_obs=None if reset is None else np.ascontiguousarray(reset[begin:end]).astype(obs.dtype),
            break_at=break_at,
            break_obs=break_obs,
            flags=flags,
            defect=layout.defect[begin:end].tolist(),
            code=self._codes(begin, end),
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
        block = self._obs[begin:end, :, : self.spec.obs_size]
        held = block.shape[1]
        if self._next is not None or (self._extra_row and width == self._steps):
            # every rollout with a final row needs one place more than it has transitions
            before = np.cumsum(has_final) - has_final
            place = np.arange(row_offsets[-1]) - np.repeat(before, np.diff(row_offsets))
            final = row_offsets[1:][has_final] - 1
            place[final] -= 1
            at = taken[place]
            if self._extra_row:
                rollout, step = np.divmod(at, self._steps)
                at = rollout * held + step
                at[final] += 1
            obs = rows_of(block, at)
            if self._next is not None and not self._extra_row and len(final):
                ends = taken[offsets[1:][has_final] - 1]
                following = self._next[begin:end, :, : self.spec.obs_size]
                obs[final] = rows_of(following, ends)
            return obs
        return rows_of(block, shown)

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
        if self._next is None or not len(taken):
            return np.zeros(0, np.int64), None
        following = rows_of(self._next[begin:end, :, : self.spec.obs_size], taken)  # (M, O)
        rollouts = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))
        after = np.arange(len(taken)) + (row_offsets[:-1] - offsets[:-1])[rollouts] + 1
        differs = differing_rows(following, obs, after)
        if not len(differs):
            return differs, None
        return differs, following[differs].astype(obs.dtype)

    def _non_finite(
        self, obs: AnyArray, action: AnyArray, reward: AnyArray | None, row_offsets: IntArray, offsets: IntArray
    ) -> BoolArray:
        found = np.zeros(len(offsets) - 1, bool)
        for values, bounds in ((obs, row_offsets), (action, offsets), (reward, offsets)):
            if values is None or all_finite(values):
                continue
            finite = np.isfinite(values).reshape(len(values), -1).all(axis=1)
            found |= any_in(np.flatnonzero(~finite), bounds)
        return found

    def _flat(self, array: AnyArray | None, begin: int, end: int, taken: IntArray) -> AnyArray | None:
        return None if array is None else rows_of(array[begin:end], taken)

    def _goal_rows(self, begin: int, end: int) -> list[AnyArray | None] | None:
        if self._goals is None:
            return None
        goals: list[AnyArray | None] = list(self._goals[begin:end])
        return goals + [None] * (end - begin - len(goals))

    def _codes(self, begin: int, end: int) -> AnyArray | None:
        size = self.spec.obs_size
        if self._obs.shape[2] == size:
            return None
        if not self._obs.shape[1]:
            return np.zeros((end - begin, self._obs.shape[2] - size), self._obs.dtype)
        first = self._layout.mask[begin:end].argmax(axis=1)
        return self._obs[begin:end, :, size:][np.arange(end - begin), first]

    def _rollout_extras(self, begin: int, end: int) -> dict[str, list[Any]]:
        extras = {name: list(value[begin:end]) for name, value in self._extra_rollout.items()}
        if self._instructions is not None:
            extras["instructions"] = _filled(list(self._instructions[begin:end]), end - begin)
        if self.last_action == "filler":
            rollout = np.arange(begin, end)
            last = self._layout.last[begin:end]
            known = {"action": self._actions, "reward": self._rewards}
            known |= {"terminal": self._terminals, "truncated": self._truncated, **self._extra_step}
            for name, array in known.items():
                if array is not None:
                    inside = (last >= 0) & (rollout < len(array))
                    extras[f"filler_{name}"] = [
                        array[i, t] if ok else None for i, t, ok in zip(rollout, last, inside, strict=True)
                    ]
        return extras

    def _step_extras(self, begin: int, end: int, taken: IntArray) -> dict[str, AnyArray]:
        return {name: rows_of(value[begin:end], taken) for name, value in self._extra_step.items()}


def _filled(values: list[Any], size: int) -> list[Any]:
    return values + [None] * (size - len(values))
