"""Rollouts of any source as padded arrays by key, the form of the benchmark's older files."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from qualcheck.errors import UsageError
from qualcheck.io.arrays import (
    DEFECT_KEY,
    FLAGS_KEY,
    HIDDEN_KEY,
    MASK_KEYS,
    RESET_KEY,
    ROLLOUT_KEY,
    SOURCE_KEY,
    START_KEY,
    STEP_KEY,
    TERMINAL_KEYS,
    TRUNCATED_KEYS,
)
from qualcheck.io.gather import non_finite_rollouts
from qualcheck.io.instructions import TextLists
from qualcheck.io.last_action import LAST_ACTION_KEY
from qualcheck.io.padded import MODEL_KEY
from qualcheck.io.source import Source
from qualcheck.types import AnyArray, BoolArray, IntArray, Rollouts

LAYOUT_KEY = "qualcheck_layout"  # how the arrays lay in the file that a canonical file was made from
MASK_COLUMN = "qualcheck_mask"  # masks that are no run of ones from the first step on
CODES_COLUMN = "qualcheck_codes"  # every code of a rollout whose code changes, one a row as padded
SHOWN_BY_ARRAYS = {"mask_hole", "mask_value", "empty", "chain_break", "bad_action", "code_varies", "non_finite"}
PADDED = ("npy", "npz", "hdf5", "pickle", "benchmark_parquet")
BEYOND_KEY = "qualcheck_beyond_"  # texts and goals of no rollout, from a file that holds more of them
PER_ROLLOUT = ("instructions", "goals", "goal")


def describe(source: Source) -> dict[str, Any]:
    """The dtype and shape of every array of a padded file, and the file's own word on its last actions."""
    keys: dict[str, Any] = {}
    for name, value in source.keys().items():
        if isinstance(value, np.ndarray) and value.dtype != object:
            keys[str(name)] = {"dtype": value.dtype.str, "shape": list(value.shape)}
        elif isinstance(value, list | tuple | TextLists | np.ndarray):
            keys[str(name)] = {"count": len(value)}
    return {"format": source.format, "last_action": source.last_action, "keys": keys}


@dataclass(frozen=True)
class _Form:
    """Names, dtypes and sizes that the arrays are to have."""

    keys: Mapping[str, Any]
    last_action: str

    def name(self, names: Sequence[str], default: str) -> str:
        return next((name for name in names if name in self.keys), default)

    def dtype(self, name: str, default: Any) -> np.dtype[Any]:
        told = self.keys.get(name, {}).get("dtype")
        found: np.dtype[Any] = np.dtype(default if told is None else told)
        return found

    def shape(self, name: str) -> list[int]:
        found: list[int] = self.keys.get(name, {}).get("shape", [])
        return found

    def count(self, name: str, default: int) -> int:
        told = self.keys.get(name, {})
        return int(told.get("count", (told.get("shape") or [default])[0]))


class _Padder:
    """Places for the transitions and final rows of all rollouts in (N, T, ...)."""

    def __init__(self, parts: Sequence[Rollouts], form: _Form) -> None:
        self.parts, self.form = parts, form
        self.n = sum(part.n_rollouts for part in parts)
        self.final = np.concatenate([p.has_final for p in parts]) if parts else np.zeros(0, bool)
        self.length = np.concatenate([p.length for p in parts]) if parts else np.zeros(0, np.int64)
        self.filler = self.final & (form.last_action == "filler")
        self.masks = self.rollout_values(MASK_COLUMN) or [None] * self.n
        valid = self.length + self.filler
        recorded = form.shape("actions")
        odd = [len(mask) for mask in self.masks if mask is not None]
        self.steps = max([*recorded[1:2], int(valid.max(initial=0)), *odd])
        self.mask = np.arange(self.steps) < valid[:, None]  # (N, T)
        for i, mask in enumerate(self.masks):
            if mask is not None:
                self.mask[i] = False
                self.mask[i, : len(mask)] = np.asarray(mask, np.float64) > 0
        if recorded and any(size > recorded[1] for size in odd):
            raise UsageError(
                "a mask that also counts the row after the last action has a hole or other numbers than 0 and 1; "
                "padded arrays of transitions cannot hold it. Convert to canonical instead."
            )
        shown = np.flatnonzero(self.mask)
        is_last = np.zeros(len(shown), bool)
        is_last[(np.cumsum(valid) - 1)[self.filler]] = True
        self.place, self.last_place = shown[~is_last], shown[is_last]  # into (N * T)

    def steps_of(self, values: AnyArray, dtype: np.dtype[Any], filler: Sequence[Any] | None = None) -> AnyArray:
        """(M, ...) values as (N, T, ...), zero on the padding; `filler` (N,) stands on the rows of no transition."""
        out = np.zeros((self.n * self.steps, *values.shape[1:]), _fitting(values, dtype))
        out[self.place] = values
        if filler is not None and len(self.last_place):
            some = [value for value, is_filler in zip(filler, self.filler, strict=True) if is_filler]
            known = np.array([value is not None for value in some])
            if known.any():
                out[self.last_place[known]] = np.array([value for value in some if value is not None])
        return out.reshape(self.n, self.steps, *values.shape[1:])

    def joined(self, arrays: Sequence[AnyArray]) -> AnyArray:
        return np.concatenate(arrays)

    def rollout_values(self, name: str) -> list[Any] | None:
        """Per-rollout values of an unknown key over all parts; None where no part has it."""
        if not any(name in part.extra_rollout for part in self.parts):
            return None
        return [v for p in self.parts for v in p.extra_rollout.get(name, [None] * p.n_rollouts)]


def to_padded(source: Source) -> dict[str, Any]:
    """All rollouts of a source as one dict of padded arrays; a file made from such a dict gets its own keys back.

    Raises:
        UsageError: some rollouts show the row after their last action and others do not, which the layout cannot say.
    """
    parts = [part for part in whole_batches(source) if part.n_rollouts]
    metadata = dict(source.metadata)
    told = metadata.pop(LAYOUT_KEY, None) or describe(source)
    form = _Form(told.get("keys", {}), told.get("last_action", source.last_action))
    pad = _Padder(parts, form)
    moved = pad.length > 0
    if form.last_action != "filler" and pad.final[moved].any() and not pad.final[moved].all():
        raise UsageError(
            f"{source.path}: {int((~pad.final[moved]).sum())} of {int(moved.sum())} rollouts lack the row after their "
            "last action; padded arrays cannot hold both kinds. Convert to canonical instead."
        )
    out = _arrays(pad, source)
    out |= _told(pad, metadata)
    if form.last_action != "none" and source.n_rollouts:
        out[LAST_ACTION_KEY] = form.last_action
    return {**out, **{name: value for name, value in metadata.items() if not name.startswith(BEYOND_KEY)}}


def _arrays(pad: _Padder, source: Source) -> dict[str, Any]:
    parts, form, spec = pad.parts, pad.form, source.spec
    empty = np.zeros((0, spec.obs_size), np.float32)
    start = pad.joined([p.start_obs for p in parts]) if parts else empty
    obs = pad.steps_of(start, form.dtype("observations", start.dtype), [r for p in parts for r in _finals(p)])
    codes = _codes(pad)
    if codes is not None:
        wide = np.where(pad.mask[..., None], codes[:, None], 0).astype(_fitting(codes, obs.dtype))
        varied = pad.rollout_values(CODES_COLUMN) or []
        for i, given in enumerate(varied):
            if given is not None:
                wide[i, : len(given)] = np.where(pad.mask[i, : len(given), None], given[: pad.steps], 0)
        obs = np.concatenate([obs, wide], axis=2)
    recorded = form.shape("observations")
    if recorded[1:2] == [pad.steps + 1] and not form.keys.get("next_observations"):
        obs = _with_final_row(pad, obs)
    out: dict[str, Any] = {"observations": obs}
    shows_next = "next_observations" in form.keys or (not recorded and pad.final.any() and form.last_action == "none")
    if shows_next:
        end = pad.joined([p.end_obs for p in parts]) if parts else empty
        following = pad.steps_of(end, form.dtype("next_observations", end.dtype))
        if codes is not None and form.shape("next_observations")[2:] == [obs.shape[2]]:
            wide = np.where(pad.mask[..., None], codes[:, None], 0).astype(following.dtype)
            following = np.concatenate([following, wide], axis=2)
        out["next_observations"] = following
    size = (spec.action.size,) if spec.action.kind == "box" else ()
    action = pad.joined([p.action for p in parts]) if parts else np.zeros((0, *size), np.int64)
    rows = pad.steps_of(action, form.dtype("actions", action.dtype), pad.rollout_values("filler_action"))
    out["actions"] = rows.reshape(*rows.shape[:2], *form.shape("actions")[2:]) if form.shape("actions") else rows
    names = {
        "reward": (form.name(("rewards", "reward"), "rewards"), np.float64),
        "terminal": (form.name(TERMINAL_KEYS, "terminals"), np.bool_),
        "truncated": (form.name(TRUNCATED_KEYS, "truncations"), np.bool_),
    }
    for what, (name, dtype) in names.items():
        if any(getattr(p, what) is not None for p in parts):
            told = [getattr(p, what) if getattr(p, what) is not None else np.zeros(p.n_transitions) for p in parts]
            fill = pad.rollout_values(f"filler_{what}")
            flat = pad.steps_of(pad.joined(told), form.dtype(name, dtype), fill)
            out[name] = flat if len(form.shape(name)) == 2 else flat[..., None]
    mask_name = form.name(MASK_KEYS, "masks")
    if mask_name in form.keys or not form.keys:
        mask = pad.mask.astype(form.dtype(mask_name, np.float32))
        for i, given in enumerate(pad.masks):
            if given is not None:
                mask[i, : len(given)] = given
        out[mask_name] = mask if len(form.shape(mask_name)) == 2 else mask[..., None]
    for name in dict.fromkeys(key for p in parts for key in p.extra_step):
        values = pad.joined([p.extra_step[name] for p in parts])
        out[name] = pad.steps_of(values, form.dtype(name, values.dtype), pad.rollout_values(f"filler_{name}"))
    return out


def _fitting(values: AnyArray, dtype: np.dtype[Any]) -> np.dtype[Any]:
    """The dtype, or a wider one where it would change some of the values."""
    if np.can_cast(values.dtype, dtype):
        return dtype
    with np.errstate(over="ignore", invalid="ignore"):
        same = np.array_equal(values.astype(dtype).astype(values.dtype), values, equal_nan=values.dtype.kind == "f")
    wide: np.dtype[Any] = dtype if same else np.result_type(values.dtype, dtype)
    return wide


def whole_batches(source: Source) -> Iterator[Rollouts]:
    """The batches of a source, with the masks and codes that its rollouts alone do not tell.

    Raises:
        UsageError: codes change inside rollouts of a layout whose codes are told once a rollout.
    """
    padded = source.format.partition(",")[0] in PADDED
    keys = source.keys() if padded else {}
    masks = next((keys[name] for name in MASK_KEYS if keys.get(name) is not None), None)
    done, size = 0, source.spec.obs_size
    for batch in source.batches(extras=True):
        none = np.zeros(batch.n_rollouts, bool)
        extra = dict(batch.extra_rollout)
        irregular = batch.flags.get("mask_hole", none) | batch.flags.get("mask_value", none)
        if masks is not None and irregular.any():
            flat = np.asarray(masks[done : done + batch.n_rollouts])
            flat = flat.reshape(len(flat), -1)
            extra[MASK_COLUMN] = [flat[i] if odd else None for i, odd in enumerate(irregular.tolist())]
        varies = batch.flags.get("code_varies", none)
        if varies.any() and padded:
            rows = keys["observations"]
            extra[CODES_COLUMN] = [np.array(rows[done + i, :, size:]) if v else None for i, v in enumerate(varies)]
        elif varies.any() and source.format.partition(",")[0] != "canonical":
            raise UsageError(
                f"{source.path}: the instruction code changes inside {int(varies.sum())} rollouts; the output has one "
                "code a rollout. Make one rollout of each code first."
            )
        done += batch.n_rollouts
        yield replace(batch, extra_rollout=extra)


def _finals(part: Rollouts) -> list[AnyArray | None]:
    rows = part.obs[np.maximum(part.row_offsets[1:] - 1, 0)] if len(part.obs) else part.obs
    return [row if final else None for row, final in zip(rows, part.has_final, strict=False)]


def _with_final_row(pad: _Padder, obs: AnyArray) -> AnyArray:
    """(N, T, O) with the row after the last action behind it, (N, T + 1, O)."""
    wide = np.concatenate([obs, np.zeros_like(obs[:, :1])], axis=1)
    finals = [row for p in pad.parts for row in _finals(p)]
    for i, row in enumerate(finals):
        if row is not None:
            wide[i, pad.length[i], : len(row)] = row
            wide[i, pad.length[i], len(row) :] = obs[i, 0, len(row) :]
    return wide


def _codes(pad: _Padder) -> AnyArray | None:
    if not any(p.code is not None for p in pad.parts):
        return None
    width = next(p.code.shape[1] for p in pad.parts if p.code is not None)
    return pad.joined([p.code if p.code is not None else np.zeros((p.n_rollouts, width)) for p in pad.parts])


def _told(pad: _Padder, metadata: Mapping[str, Any]) -> dict[str, Any]:
    """What stands once a rollout."""
    parts, form, out = pad.parts, pad.form, dict[str, Any]()
    names = dict.fromkeys(key for p in parts for key in p.extra_rollout)
    hidden = {MASK_COLUMN, CODES_COLUMN, "source", *(name for name in names if name.startswith("filler_"))}
    for name in names:
        if name not in hidden:
            out[name] = _values(pad.rollout_values(name) or [], form, name, metadata)
    if "instructions" not in out and any(text is not None for p in parts for text in p.instruction):
        out["instructions"] = [[text] if text is not None else [] for p in parts for text in p.instruction]
    goal_name = form.name(("goals", "goal"), "goals")
    if any(p.goal is not None for p in parts) and goal_name not in out and not _is_step(pad, goal_name):
        goals = [goal for p in parts for goal in (p.goal if p.goal is not None else [None] * p.n_rollouts)]
        out[goal_name] = _values(goals, form, goal_name, metadata)
    generators = [text for p in parts for text in (p.generator or [""] * p.n_rollouts)]
    if any(generators) and MODEL_KEY not in out and MODEL_KEY not in metadata and "file_name" not in metadata:
        out[MODEL_KEY] = generators
    for name in ("level", "task"):
        texts = [text for p in parts for text in (getattr(p, name) or [""] * p.n_rollouts)]
        if any(texts) and name not in out:
            out[name] = texts
    if any(p.origin is not None for p in parts):
        out[SOURCE_KEY] = [text for p in parts for text in (p.origin or [""] * p.n_rollouts)]
        out[ROLLOUT_KEY] = np.concatenate([p.source_rollout for p in parts]).astype(np.int64)
    marks = [_marks(p, form) for p in parts]
    for key, lists in ((FLAGS_KEY, [m[0] for m in marks]), (DEFECT_KEY, [m[1] for m in marks])):
        texts = [text for part in lists for text in part]
        if any(texts):
            out[key] = texts
    if any(p.is_reset is not None for p in parts):
        reset = np.concatenate([p.is_reset if p.is_reset is not None else np.ones(p.n_rollouts, bool) for p in parts])
        out[START_KEY] = np.where(reset, "reset", "cut")
        if not reset.all():
            out[RESET_KEY] = np.concatenate([p.context_obs for p in parts])
    width = max((p.hidden.shape[1] for p in parts if p.hidden is not None), default=0)
    if width:
        states = [np.full((p.n_rollouts, width), np.nan) if p.hidden is None else p.hidden for p in parts]
        if not all(np.isnan(state).all() for state in states):
            out[HIDDEN_KEY] = np.concatenate(states)
    since: IntArray = np.concatenate([p.source_step for p in parts]) if parts else np.zeros(0, np.int64)
    if since.any():
        out[STEP_KEY] = since.astype(np.int64)
    return out


def _marks(p: Rollouts, form: _Form) -> tuple[list[str], list[str]]:
    """Flags and defect of each rollout that the padded arrays will not show by themselves."""
    defect = [code if code not in ("", "empty", "mask_hole", "mask_value") else "" for code in p.defect or []]
    defect = defect or [""] * p.n_rollouts
    told = {name: flag for name, flag in p.flags.items() if name not in SHOWN_BY_ARRAYS}
    if "count_mismatch" in told and form.keys:  # lists of texts and goals are written as short as they were
        told["count_mismatch"] = told["count_mismatch"] & np.array([bool(code) for code in defect])
    if "code_varies" in p.flags and CODES_COLUMN not in p.extra_rollout:
        told["code_varies"] = p.flags["code_varies"]
    if "non_finite" in p.flags:
        seen = non_finite_rollouts((p.obs, p.row_offsets), (p.action, p.offsets), (p.reward, p.offsets))
        told["non_finite"] = p.flags["non_finite"] & ~seen
    rows: list[list[str]] = [[] for _ in range(p.n_rollouts)]
    for name, flag in told.items():
        for i in np.flatnonzero(flag).tolist():
            rows[i].append(name)
    return [" ".join(names) for names in rows], defect


def _is_step(pad: _Padder, name: str) -> bool:
    return any(name in p.extra_step for p in pad.parts)


def _values(values: list[Any], form: _Form, name: str, metadata: Mapping[str, Any]) -> Any:
    """Per-rollout values in the container, dtype and number that the file had."""
    if name in form.keys and name in PER_ROLLOUT:
        values = values[: form.count(name, len(values))]
    beyond = metadata.get(BEYOND_KEY + name)
    values = [*values, *(list(beyond) if beyond is not None else [])]
    told = form.keys.get(name, {})
    arrays: BoolArray = np.array([isinstance(v, np.ndarray | np.generic) for v in values], bool)
    if "dtype" in told or (len(values) and arrays.all() and len({np.shape(v) for v in values}) == 1):
        if not len(values):
            return np.zeros((0, *told.get("shape", [0])[1:]), told.get("dtype", "f4"))
        return np.array(values, told.get("dtype", None))
    return values
