"""Files without padding: a list of rollouts, each a dict of arrays, or one dict of arrays with all steps in a row."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from qualcheck.errors import DataError
from qualcheck.io import goals
from qualcheck.io.arrays import GOAL_KEYS, MASK_KEYS, TERMINAL_KEYS, TRUNCATED_KEYS
from qualcheck.io.flat import FlatColumns
from qualcheck.io.terminals import late_in_lists
from qualcheck.types import AnyArray, BoolArray, IntArray

# the plural of the benchmark and of D4RL, the singular of cs285, the short form of others
OBS_KEYS = ("observations", "observation", "obs")
NEXT_KEYS = ("next_observations", "next_observation", "next_obs")
ACTION_KEYS = ("actions", "action", "acts")
REWARD_KEYS = ("rewards", "reward", "rews")
ENDS = (*TERMINAL_KEYS, "dones", "done")
TIMEOUTS = (*TRUNCATED_KEYS, "timeout")
TEXT_KEYS = ("instructions", "instruction")
ID_KEYS = ("rollout", "episode", "episode_id")


def key_of(keys: Mapping[str, Any], names: Sequence[str]) -> str | None:
    """The first of the names that a file has."""
    return next((name for name in names if keys.get(name) is not None), None)


def is_records(raw: Any) -> bool:
    """Whether this is a list of dicts, one a rollout, or a dict of lists of arrays of different lengths."""
    if isinstance(raw, list | tuple):
        return bool(raw) and all(isinstance(item, dict) for item in raw)
    if not isinstance(raw, dict):
        return False
    obs = raw.get(key_of(raw, OBS_KEYS) or "")
    return isinstance(obs, list | tuple) and bool(obs) and all(isinstance(item, np.ndarray) for item in obs)


def is_flat(raw: Any) -> bool:
    """Whether this is a dict of arrays whose observations are one row a step."""
    obs = raw.get(key_of(raw, OBS_KEYS) or "") if isinstance(raw, dict) else None
    return isinstance(obs, np.ndarray) and obs.ndim == 2


def from_records(path: Path, raw: Any) -> tuple[FlatColumns, dict[str, Any]]:
    """The rollouts of a list of dicts or dict of lists, and what the file says once for all of them.

    Raises:
        DataError: rollouts lack observations or actions, or differ in columns.
    """
    records, metadata = (list(raw), {}) if not isinstance(raw, dict) else _split(raw)
    names = {what: _shared(path, records, keys) for what, keys in (("obs", OBS_KEYS), ("action", ACTION_KEYS))}
    told = {
        what: next((found for record in records if (found := key_of(record, keys))), None)
        for what, keys in (
            ("next_obs", NEXT_KEYS),
            ("reward", REWARD_KEYS),
            ("terminal", ENDS),
            ("truncated", TIMEOUTS),
            ("instruction", TEXT_KEYS),
            ("goal", GOAL_KEYS),
        )
    }
    obs = [_array(path, i, record, names["obs"], 2) for i, record in enumerate(records)]
    action = [_array(path, i, record, names["action"], 0) for i, record in enumerate(records)]
    padded = [len(a) for a in action]
    held, hole = _valid(records, padded)
    action = [a[:n] for a, n in zip(action, held, strict=True)]
    obs = [o[: n + 1] if n < m else o for o, n, m in zip(obs, held, padded, strict=True)]
    rows = [len(o) for o in obs]
    follow = told["next_obs"]
    if follow is not None and any(record.get(follow) is None for record in records):
        raise DataError(
            f"{path}: some rollouts have {follow!r} and others do not; expected all or none. Split the file"
        )
    ends = None
    if follow is not None:
        ends = [_array(path, i, record, follow, 2)[:n] for i, (record, n) in enumerate(zip(records, held, strict=True))]
        obs = [o[:n] if n < m else o for o, n, m in zip(obs, held, padded, strict=True)]
        rows = [len(o) for o in obs]
    length = [min(n, r, *([len(ends[i])] if ends else [])) for i, (n, r) in enumerate(zip(held, rows, strict=True))]
    short = np.array(
        [n not in ((r,) if ends else (r, r - 1)) or n != m for n, r, m in zip(held, rows, length, strict=True)], bool
    )
    if ends is not None:
        short |= np.array([len(e) != n for e, n in zip(ends, held, strict=True)], bool)
    more = np.array([r > m for r, m in zip(rows, length, strict=True)], bool)
    width = {o.shape[1] for o in obs} | {e.shape[1] for e in ends or []}
    if len(width) > 1 or len({a.shape[1:] for a in action}) > 1:
        raise DataError(f"{path}: rollouts with rows of {sorted(width)} columns; expected one layout. Split the file")
    used = {*names.values(), *filter(None, told.values())}
    rest = {name: [record.get(name) for record in records] for name in dict.fromkeys(k for r in records for k in r)}
    per_step, per_rollout = _sort_rest({k: v for k, v in rest.items() if k not in used}, length)
    flags = {}
    flat = {}
    for what in ("reward", "terminal", "truncated"):
        flat[what], wrong = _steps(path, records, told[what], length, padded, np.nan if what == "reward" else 0)
        short |= wrong
        if what == "reward":
            flags["reward_count"] = wrong
    flags["count_mismatch"], flags["mask_hole"] = short, hole
    ends_key = told["terminal"]
    marked = [None if ends_key is None else record.get(ends_key) for record in records]
    flags["terminal_late"] = late_in_lists(marked, length) & ~hole
    goal = told["goal"]
    given = [None if goal is None else record.get(goal) for record in records]
    flags["goal_changes"] = goals.changing(given, length)
    texts = told["instruction"]
    return FlatColumns(
        obs=np.concatenate([o[:n] for o, n in zip(obs, length, strict=True)]),
        action=np.concatenate([a[:n] for a, n in zip(action, length, strict=True)]),
        offsets=np.concatenate([[0], np.cumsum(length)]).astype(np.int64),
        next_obs=None if ends is None else np.concatenate([e[:n] for e, n in zip(ends, length, strict=True)]),
        final=None if ends is not None else np.stack([_row(o, n) for o, n in zip(obs, length, strict=True)]),
        shows_final=more if ends is None else None,
        reward=flat["reward"],
        terminal=flat["terminal"],
        truncated=flat["truncated"],
        instructions=None if texts is None else [record.get(texts) for record in records],
        goal=None if goal is None else [goals.goal_row(value) for value in given],
        flags=flags,
        extra_step=per_step,
        extra_rollout=per_rollout,
    ), metadata


def _valid(records: Sequence[Mapping[str, Any]], padded: Sequence[int]) -> tuple[list[int], BoolArray]:
    """Actions of each rollout that its mask shows, up to a hole, and which masks have one."""
    held, hole = list(padded), np.zeros(len(records), bool)
    for i, record in enumerate(records):
        name = key_of(record, MASK_KEYS)
        mask = np.asarray(record[name]).reshape(-1) if name is not None else np.zeros(0)
        if len(mask) == padded[i] and mask.dtype.kind in "biuf":
            ones = int(np.argmin(np.append(mask > 0, False)))
            held[i], hole[i] = ones, bool((mask[ones:] > 0).any())
    return held, hole


def _row(rows: AnyArray, place: int) -> AnyArray:
    """The row at a place, or the last before it; zeros where there is none."""
    row: AnyArray = rows[min(place, len(rows) - 1)] if len(rows) else np.zeros(rows.shape[1], rows.dtype)
    return row


def _split(raw: Mapping[str, Any]) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """A dict of lists as a list of dicts, and its values that are not one a rollout."""
    n = len(raw[key_of(raw, OBS_KEYS) or ""])
    listed = {name: value for name, value in raw.items() if isinstance(value, list | tuple | np.ndarray)}
    each = {name: value for name, value in listed.items() if np.ndim(value[:0]) and len(value) >= n}
    texts = {name: [*value, *[None] * (n - len(value))] for name, value in listed.items()
             if name in TEXT_KEYS and len(value) < n}  # fmt: skip
    each |= texts
    records = [{name: value[i] for name, value in each.items()} for i in range(n)]
    return records, {name: value for name, value in raw.items() if name not in each}


def _shared(path: Path, records: Sequence[Mapping[str, Any]], keys: Sequence[str]) -> str:
    name = key_of(records[0], keys)
    missing = next((i for i, record in enumerate(records) if name is None or record.get(name) is None), None)
    if name is None or missing is not None:
        known = ", ".join(str(key)[:40] for key in list(records[missing or 0])[:20]) or "none"
        raise DataError(
            f"{path}: rollout {missing or 0} has no {keys[0]!r} among its keys ({known}); expected observation, "
            "action, reward, next_observation and terminal. Is this a rollout file?"
        )
    return name


def _array(path: Path, place: int, record: Mapping[str, Any], name: str, ndim: int) -> AnyArray:
    value = record[name]
    if isinstance(value, list | tuple):
        try:
            value = np.array(value)
        except ValueError as error:
            raise DataError(f"{path}: rollout {place} has a ragged list as {name!r}; expected one array") from error
    if not isinstance(value, np.ndarray) or value.dtype.kind not in "biuf" or value.ndim < 1 or value.ndim > 2:
        found = f"{value.dtype} of shape {value.shape}" if isinstance(value, np.ndarray) else type(value).__name__
        raise DataError(
            f"{path}: rollout {place} has {found} as {name!r}; expected an array of numbers, one row a step"
        )
    if ndim and value.ndim != ndim:
        raise DataError(f"{path}: rollout {place} has {name!r} of shape {value.shape}; expected (L, O)")
    return value


def _steps(
    path: Path,
    records: Sequence[Mapping[str, Any]],
    name: str | None,
    length: Sequence[int],
    padded: Sequence[int],
    missing: float,
) -> tuple[AnyArray | None, BoolArray]:
    """One number a step over all rollouts, and which of them hold another count of them than of steps."""
    wrong = np.zeros(len(records), bool)
    if name is None:
        return None, wrong
    parts = []
    for i, (record, n) in enumerate(zip(records, length, strict=True)):
        value = _array(path, i, record, name, 0) if record.get(name) is not None else np.zeros(0)
        flat = value.reshape(len(value), math.prod(value.shape[1:]))
        if len(flat) and flat.shape[1] != 1:
            raise DataError(f"{path}: rollout {i} has {name!r} of shape {value.shape}; expected one number a step")
        wrong[i] = len(flat) not in (n, n + 1, padded[i], padded[i] + 1)
        part = np.full(n, missing)
        part[: len(flat)] = flat.reshape(-1)[:n]
        parts.append(part)
    return np.concatenate(parts), wrong


def _sort_rest(
    rest: Mapping[str, list[Any]], length: Sequence[int]
) -> tuple[dict[str, AnyArray], dict[str, list[Any]]]:
    """Keys that hold one entry a step in every rollout, and all others."""
    per_step: dict[str, AnyArray] = {}
    per_rollout: dict[str, list[Any]] = {}
    for name, values in rest.items():
        arrays = [v for v in values if isinstance(v, np.ndarray) and v.dtype.kind in "biufUS" and v.ndim >= 1]
        fits = len(arrays) == len(values) and all(len(v) == n for v, n in zip(arrays, length, strict=True))
        if fits and any(length) and len({(v.shape[1:], v.dtype.kind) for v in arrays}) == 1:
            per_step[str(name)] = np.concatenate(arrays)
        else:
            per_rollout[str(name)] = values
    return per_step, per_rollout


def from_flat(path: Path, raw: Mapping[str, Any]) -> tuple[FlatColumns, dict[str, Any], list[str]]:
    """The rollouts of flat arrays, split where an episode ends; what the file says once; and findings.

    Episodes are told apart by ids (a key `rollout`), else by terminals and timeouts, else where the next observation
    is not the next row; without any of these all steps are one rollout.

    Raises:
        DataError: arrays of different lengths or without observations and actions.
    """
    obs_key, action_key = key_of(raw, OBS_KEYS), key_of(raw, ACTION_KEYS)
    if obs_key is not None and any(np.ndim(raw[key]) == 3 for key in (*REWARD_KEYS, "masks") if key in raw):
        raise DataError(
            f"{path}: {obs_key!r} has shape {np.shape(raw[obs_key])} and the other arrays one entry a rollout and "
            "step; expected (N, T, O). Check the program that wrote it"
        )
    if obs_key is None or action_key is None:
        known = ", ".join(sorted(str(key)[:40] for key in raw)[:20])
        raise DataError(f"{path}: no 'actions' among its keys ({known}); expected observations, actions and rewards")
    m = len(raw[obs_key])
    picked = {"obs": obs_key, "action": action_key}
    for what, keys in (("next_obs", NEXT_KEYS), ("reward", REWARD_KEYS), ("terminal", ENDS), ("truncated", TIMEOUTS)):
        name = key_of(raw, keys)
        if name is not None:
            picked[what] = name
    arrays: dict[str, AnyArray] = {}
    for what, name in picked.items():
        value = raw[name]
        if not isinstance(value, np.ndarray) or value.dtype.kind not in "biuf" or value.shape[:1] != (m,):
            found = f"{value.dtype} of shape {value.shape}" if isinstance(value, np.ndarray) else type(value).__name__
            raise DataError(f"{path}: {name!r} has {found}; expected numbers, one a step, {m} as in {obs_key!r}")
        if what in ("reward", "terminal", "truncated"):
            if value.size != m:
                raise DataError(f"{path}: {name!r} has shape {value.shape}; expected ({m},)")
            value = value.reshape(m)
        arrays[what] = value
    ids = key_of(raw, ID_KEYS)
    order, offsets, how = None, None, ""
    if ids is not None and isinstance(raw[ids], np.ndarray) and raw[ids].shape == (m,):
        try:
            order, offsets = grouped(raw[ids])
        except ValueError as error:
            raise DataError(f"{path}: {ids!r}: {error}; expected an id on every step, of one kind") from error
        how = f"by its key {ids!r}"
    elif "terminal" in arrays or "truncated" in arrays:
        ends = np.zeros(m, bool)
        for what in ("terminal", "truncated"):
            if what in arrays:
                ends |= arrays[what] > 0
        offsets = _bounds(ends)
        how = "at " + " and ".join(picked[what] for what in ("terminal", "truncated") if what in arrays)
    elif "next_obs" in arrays and arrays["next_obs"].shape == arrays["obs"].shape:
        offsets = _bounds(np.append((arrays["next_obs"][:-1] != arrays["obs"][1:]).any(axis=1), m > 0)[:m])
        how = "where the next observation is not the next row"
    else:
        offsets = np.unique([0, m]).astype(np.int64)
        how = "not at all: neither terminals nor timeouts nor next_observations say where"
    rest = {str(name): value for name, value in raw.items() if name not in picked.values() and name != ids}
    per_step = {
        name: value
        for name, value in rest.items()
        if isinstance(value, np.ndarray) and value.shape[:1] == (m,) and value.dtype.kind in "biufUS"
    }
    goal, flags = _flat_goals(per_step, order, offsets)
    columns = FlatColumns(
        obs=arrays["obs"],
        action=arrays["action"],
        offsets=offsets,
        order=order,
        next_obs=arrays.get("next_obs"),
        reward=arrays.get("reward"),
        terminal=arrays.get("terminal"),
        truncated=arrays.get("truncated"),
        goal=goal,
        flags=flags,
        extra_step=per_step,
    )
    metadata = {name: value for name, value in rest.items() if name not in per_step}
    return columns, metadata, [f"{m:,} steps in a row, split into {len(offsets) - 1:,} rollouts {how}"]


def _flat_goals(
    per_step: Mapping[str, AnyArray], order: IntArray | None, offsets: IntArray
) -> tuple[list[AnyArray | None] | None, dict[str, BoolArray]]:
    """The goal of each rollout of flat arrays that hold one a step, (M, G), and which rollouts change theirs."""
    key = next((key for key in GOAL_KEYS if key in per_step and per_step[key].ndim == 2), None)
    if key is None:
        return None, {}
    told = per_step[key] if order is None else per_step[key][order]
    parts = [told[begin:end] for begin, end in pairwise(offsets.tolist())]
    return [goals.goal_row(part) for part in parts], {"goal_changes": goals.changing(parts, np.diff(offsets))}


def _bounds(ends: BoolArray) -> IntArray:
    """First step of each rollout and the number of steps, from which steps end one, (M,) -> (N+1,)."""
    return np.unique(np.concatenate([[0], np.flatnonzero(ends) + 1, [len(ends)]])).astype(np.int64)


def grouped(ids: AnyArray) -> tuple[IntArray | None, IntArray]:
    """Steps sorted by rollout, rollouts in the order in which their ids appear, and the bounds of each.

    Returns:
        The order, (M,), or None where the steps lie in it already, and the bounds, (N+1,).

    Raises:
        ValueError: an id is missing, or ids are of several kinds.
    """
    if ids.dtype == object:
        given = ids.tolist()
        missing = sum(item is None or item != item for item in given)
        if missing:
            raise ValueError(f"{missing} steps have no id")
        kinds = {str if isinstance(item, str) else bytes if isinstance(item, bytes) else float for item in given}
        if len(kinds) > 1 or not all(isinstance(item, str | bytes | int | float | np.generic) for item in given):
            raise ValueError("ids of several kinds")
        numbers: dict[Any, int] = {}
        ids = np.array([numbers.setdefault(item, len(numbers)) for item in given], np.int64)
    elif ids.dtype.kind == "f" and np.isnan(ids).any():
        raise ValueError(f"{int(np.isnan(ids).sum())} steps have no id")
    _, first, back = np.unique(ids, return_index=True, return_inverse=True)
    rank = np.empty(len(first), np.int64)
    rank[np.argsort(first)] = np.arange(len(first))
    group = rank[back.reshape(-1)]  # (M,)
    offsets = np.concatenate([[0], np.cumsum(np.bincount(group, minlength=len(first)))]).astype(np.int64)
    if (np.diff(group) >= 0).all():
        return None, offsets
    return np.argsort(group, kind="stable"), offsets
