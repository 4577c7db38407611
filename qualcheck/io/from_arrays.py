"""Arrays of a Python call as a source."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from qualcheck.errors import UsageError
from qualcheck.io.flat import FlatColumns, FlatSource
from qualcheck.io.records import grouped
from qualcheck.spec import EnvSpec
from qualcheck.types import AnyArray


class ArraySource(FlatSource):
    """Arrays in memory; there is no file, so `path` is a mere name."""

    def digest(self) -> str:
        """SHA-256 of all arrays with their dtypes and shapes, in hex."""
        state = hashlib.sha256()
        for name, value in sorted(self._raw.items()):
            state.update(f"{name} {value.dtype.str} {value.shape}\n".encode())
            # text and objects have no buffer of their own
            state.update(
                np.ascontiguousarray(value).data if value.dtype.kind in "biuf" else repr(value.tolist()).encode()
            )
        return state.hexdigest()


def source_from_arrays(
    obs: Any,
    actions: Any,
    next_obs: Any = None,
    rewards: Any = None,
    terminals: Any = None,
    rollout: Any = None,
    instruction: Any = None,
    *,
    spec: EnvSpec | Sequence[EnvSpec],
    truncated: Any = None,
    index: int = 0,
    last_action: str = "auto",
    name: str = "arrays",
) -> ArraySource:
    """Recorded steps as a source of format "arrays".

    Args:
        obs: rows before each action, (M, O).
        actions: (M,) or (M, A).
        next_obs: rows after each action, (M, O).
        rewards: (M,), as terminals and truncated.
        rollout: id of each step's rollout, (M,), in any order; steps of one id are in the order of their time. None:
            every step is a rollout of its own, which starts anywhere.
        instruction: one text for all rollouts, or one for each, in the order in which the ids appear.
        spec: row layouts that the rows may have.
        name: what messages call the arrays.

    Raises:
        UsageError: the arrays do not fit each other.
        DataError: they do not fit the environment.
    """
    rows, action = np.asarray(obs), np.asarray(actions)
    if rows.ndim != 2 or rows.dtype.kind not in "biuf":
        raise UsageError(f"obs: {rows.dtype} of shape {rows.shape}; expected numbers (M, O), one row a step.")
    m = len(rows)
    given: dict[str, AnyArray] = {"obs": rows, "actions": action}
    others = {"next_obs": next_obs, "rewards": rewards, "terminals": terminals, "truncated": truncated}
    given |= {key: np.asarray(value) for key, value in {**others, "rollout": rollout}.items() if value is not None}
    for key, value in given.items():
        if value.shape[:1] != (m,) or (key != "rollout" and value.dtype.kind not in "biuf"):
            raise UsageError(f"{key}: {value.dtype} of shape {value.shape}; expected one entry a step, {m} as in obs.")
        if key not in ("obs", "actions", "next_obs"):
            if value.size != m:
                raise UsageError(f"{key}: shape {value.shape}; expected ({m},).")
            given[key] = value.reshape(m)
    try:
        order, offsets = (None, np.arange(m + 1)) if rollout is None else grouped(given["rollout"])
    except ValueError as error:
        raise UsageError(f"rollout: {error}; expected an id on every step, all numbers or all texts.") from error
    n = len(offsets) - 1
    texts = None
    if instruction is not None:
        if not isinstance(instruction, str | bytes) and not np.iterable(instruction):
            raise UsageError(
                f"instruction: a {type(instruction).__name__}; expected one text, or one for each rollout."
            )
        texts = [instruction] * n if isinstance(instruction, str | bytes) else list(instruction)
        if len(texts) != n:
            raise UsageError(f"instruction: {len(texts)} texts; expected one, or one for each of {n} rollouts.")
        given["instruction"] = np.array([str(text) for text in texts])
    columns = FlatColumns(
        obs=rows,
        action=action,
        offsets=offsets.astype(np.int64),
        order=order,
        next_obs=given.get("next_obs"),
        reward=given.get("rewards"),
        terminal=given.get("terminals"),
        truncated=given.get("truncated"),
        instructions=texts,
        is_reset=np.zeros(n, bool) if rollout is None else None,
    )
    specs = [spec] if isinstance(spec, EnvSpec) else list(spec)
    return ArraySource(Path(name), "arrays", specs, columns, index, last_action, raw=given)
