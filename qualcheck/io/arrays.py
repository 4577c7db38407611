"""The arrays of a padded rollout file, checked: each under one name, with T and the columns that the others have."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from qualcheck.errors import DataError
from qualcheck.io import goals
from qualcheck.io.canonical_types import int32
from qualcheck.io.instructions import TextLists, first_strings
from qualcheck.io.layouts import advice, choose, takes
from qualcheck.io.stored import Reshaped, Stored
from qualcheck.spec import EnvSpec
from qualcheck.types import AnyArray

MASK_KEYS = ("masks", "action_masks")
TERMINAL_KEYS = ("terminals", "terminal")
TRUNCATED_KEYS = ("truncations", "truncated", "timeouts")
GOAL_KEYS = ("goals", "goal")
START_KEY, STEP_KEY, RESET_KEY = "qualcheck_start", "qualcheck_source_step", "qualcheck_reset_obs"
HIDDEN_KEY = "qualcheck_hidden"  # hidden state of a cut before its first action
SOURCE_KEY, ROLLOUT_KEY = "qualcheck_source", "qualcheck_source_rollout"
FLAGS_KEY, DEFECT_KEY = "qualcheck_flags", "qualcheck_defect"  # what the arrays themselves do not show
Array = AnyArray | Stored
TEXT_OWN = (START_KEY, SOURCE_KEY, FLAGS_KEY, DEFECT_KEY)


class PaddedArrays:
    """What a file of padded arrays holds; N and T are those of its observations and actions.

    Args:
        specs: row layouts that the file may have.
        raw: the file's top-level values by key.

    Raises:
        DataError: the structure is broken: a key missing, an array of the wrong kind or shape.
    """

    def __init__(self, path: Path, specs: Sequence[EnvSpec], raw: Mapping[str, Any]) -> None:
        self.path, self.raw = path, raw
        self._used: set[str] = set()
        obs = self._numbers("observations", required=True)
        assert obs is not None
        if obs.ndim != 3:
            raise self.broken("observations", f"shape {obs.shape}", f"(N, T, {specs[0].obs_size})", "Is --env right?")
        self.spec = choose(path, specs, obs.shape[2], getattr(raw.get("actions"), "shape", ())[2:])
        self.obs = obs  # (N, T, O) or (N, T + 1, O), instruction code included
        self.n_rollouts = len(obs)
        self.actions = self._action_array()  # (N', T) or (N', T, A)
        self.steps = steps = self.actions.shape[1]
        self.final_row = obs.shape[1] == steps + 1
        if obs.shape[1] not in (steps, steps + 1):
            found, expected = f"T = {steps}", f"T = {obs.shape[1]} as in observations, or one less"
            raise self.broken("actions", found, expected, "Check the program that wrote it")
        self.next_obs = self._next_array()
        self.rewards = self._per_step(("rewards", "reward"))  # (N', T), as the next three
        self.terminals = self._per_step(TERMINAL_KEYS)
        self.truncated = self._per_step(TRUNCATED_KEYS)
        self.masks = self._per_step(MASK_KEYS, also=steps + 1 if self.final_row else None)
        self.instructions = self._instruction_list()
        self.goals = self._goal_values()  # one entry a rollout, see `goals.goal_row`
        self.own = self._own_arrays()
        self.row_dtype = self._row_dtype()
        self.extra_step: dict[str, Array] = {}
        self.extra_rollout: dict[str, Any] = {}
        self.metadata: dict[str, Any] = {}
        self._sort_extras()

    def counts(self) -> dict[str, int]:
        """Rollouts that each known key holds."""
        known = {
            "actions": self.actions,
            "next_observations": self.next_obs,
            "rewards": self.rewards,
            "masks": self.masks,
            "terminals": self.terminals,
            "truncations": self.truncated,
        }
        return {name: len(array) for name, array in known.items() if array is not None}

    def broken(self, key: str, found: str, expected: str, advice: str) -> DataError:
        return DataError(f"{self.path}: {key!r} has {found}; expected {expected}. {advice}")

    def _numbers(self, key: str, required: bool = False) -> Array | None:
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
        if not isinstance(value, np.ndarray | Stored):
            raise self.broken(key, f"a {type(value).__name__}", "an array of numbers", "Save it as one padded array")
        if value.dtype.kind not in "biuf":
            raise self.broken(key, f"dtype {value.dtype}", "real numbers", "Save it as one padded array of numbers")
        return value

    def _action_array(self) -> Array:
        actions = self._numbers("actions", required=True)
        assert actions is not None
        kind, size = self.spec.action.kind, self.spec.action.size
        if actions.ndim >= 2 and takes(self.spec, actions.shape[2:]):
            steps = actions.shape[1]
            return _reshaped(actions, (steps,) if kind == "discrete" else (steps, *(actions.shape[2:] or (1,))))
        expected = "(N, T) or (N, T, 1)" if kind == "discrete" else f"(N, T, {size})"
        raise self.broken("actions", f"shape {actions.shape}", f"{expected} for {self.spec.id}", self._advice(actions))

    def _advice(self, actions: Array) -> str:
        return advice(self.obs.shape[2], actions.shape[2:], [self.spec])

    def _next_array(self) -> Array | None:
        rows = self._numbers("next_observations")
        if rows is None:
            return None
        obs = self.obs
        if rows.ndim != 3 or rows.shape[1] != self.steps or rows.shape[2] not in (obs.shape[2], self.spec.obs_size):
            expected = f"(N, {self.steps}, {obs.shape[2]}) as observations and actions"
            raise self.broken("next_observations", f"shape {rows.shape}", expected, "Check the program that wrote it")
        return rows

    def _per_step(self, keys: tuple[str, ...], also: int | None = None) -> Array | None:
        """The first of `keys` in the file as (N', T)."""
        for key in keys:
            if keys in (TERMINAL_KEYS, TRUNCATED_KEYS) and getattr(self.raw.get(key), "ndim", 0) == 1:
                continue  # one flag a rollout says nothing of its steps
            value = self._numbers(key)
            if value is None:
                continue
            if value.ndim == 3 and value.shape[2] == 1:
                value = _reshaped(value, value.shape[1:2])
            if value.ndim != 2 or value.shape[1] not in (self.steps, also):
                shape = f"(N, {self.steps}) or (N, {self.steps}, 1)"
                raise self.broken(key, f"shape {value.shape}", shape, "Check the program that wrote it")
            return value
        return None

    def _instruction_list(self) -> Any:
        value = self.raw.get("instructions")
        if value is None:
            return None
        self._used.add("instructions")
        texts = isinstance(value, np.ndarray | Stored) and value.dtype.kind in "USO" and value.ndim >= 1
        if not texts and not isinstance(value, list | tuple | TextLists):
            found = f"dtype {value.dtype}" if isinstance(value, np.ndarray | Stored) else f"a {type(value).__name__}"
            raise self.broken("instructions", found, "a list or array of text", "One entry for each rollout")
        return value

    def _goal_values(self) -> Any:
        key = next((key for key in GOAL_KEYS if goals.held(self.raw.get(key))), None)
        if key is None:
            return None
        value = self.raw[key]
        if getattr(value, "ndim", 0) == 2:  # what stands once a step or in a list also travels on as it is
            self._used.add(key)
        return value

    def _own_arrays(self) -> dict[str, AnyArray]:
        """What `qualcheck filter` and `convert` say of each rollout beside its arrays."""
        found: dict[str, AnyArray] = {}
        n = self.n_rollouts
        shapes: dict[str, tuple[int, ...]] = dict.fromkeys((*TEXT_OWN, STEP_KEY), (n,))
        if SOURCE_KEY in self.raw:  # a place means nothing without the file it is in
            shapes[ROLLOUT_KEY] = (n,)
        shapes[RESET_KEY] = (n, self.spec.obs_size)
        shapes[HIDDEN_KEY] = (n, len(self.spec.hidden))
        for key, shape in shapes.items():
            if key not in self.raw:
                continue
            given = self.raw[key]
            if key in TEXT_OWN and isinstance(given, list | tuple | TextLists):
                given = np.array([text or "" for text in first_strings(given, 0, len(given))], object)
            value = np.asarray(given)
            kinds = "UO" if key in TEXT_OWN else "biuf"
            if value.shape != shape or value.dtype.kind not in kinds:
                raise self.broken(key, f"{value.dtype} of shape {value.shape}", f"shape {shape}", "Filter again")
            self._used.add(key)
            found[key] = int32(self.path, key, value) if key in (STEP_KEY, ROLLOUT_KEY) else value
        return found

    def _row_dtype(self) -> np.dtype[Any]:
        """A dtype that holds the rows of every array that has some."""
        rows = [array for array in (self.obs, self.next_obs, self.own.get(RESET_KEY)) if array is not None]
        found: np.dtype[Any] = np.result_type(*(array.dtype for array in rows)).newbyteorder("=")
        return found

    def levels(self, begin: int, end: int) -> list[str] | None:
        """Level of each rollout, where the file has one text for each."""
        value = self.extra_rollout.get("level")
        if isinstance(value, np.ndarray | Stored) and (value.ndim != 1 or value.dtype.kind not in "USO"):
            return None
        if value is None or not any(isinstance(item, str | bytes) for item in value[:1]):
            return None
        return [text or "" for text in first_strings(value, begin, end)]

    def _sort_extras(self) -> None:
        for key, value in self.raw.items():
            if key in self._used:
                continue
            name = str(key)
            if isinstance(value, np.ndarray | Stored) and value.ndim >= 1 and len(value) == self.n_rollouts:
                plain = value.dtype.kind in "biufUS"
                per_step = plain and value.ndim >= 2 and value.shape[1] == self.steps
                (self.extra_step if per_step else self.extra_rollout)[name] = value
            elif isinstance(value, list | tuple | TextLists) and len(value) == self.n_rollouts:
                self.extra_rollout[name] = value
            else:
                self.metadata[name] = value.whole() if isinstance(value, Stored) else value


def _reshaped(array: Array, shape: tuple[int, ...]) -> Array:
    """The array with entries of another shape that differs in a last axis of size 1 only."""
    if array.shape[1:] == shape:
        return array
    if isinstance(array, Stored):
        return Reshaped(array, shape)
    return array[:, :, 0] if len(shape) < array.ndim - 1 else array[:, :, None]
