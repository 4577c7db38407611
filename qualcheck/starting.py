"""`inspect --starts`: files of single rows that episodes start from, counted and judged row by row."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from qualcheck.adapter import EnvAdapter
from qualcheck.errors import DataError
from qualcheck.io.npz import read_npz
from qualcheck.registry import load
from qualcheck.spec import ActionSpec
from qualcheck.types import AnyArray, BoolArray, Rollouts

DECIMALS = 6  # rows that agree to so many are the same start
KEYS = ("observations", "obs", "starts", "inits")


@dataclass(frozen=True)
class Starts:
    """What a set of start rows is worth."""

    n_rows: int
    unique: int  # rows that differ in any bit
    unique_close: int  # rows that differ by more than 1e-6, two ways of writing one state being the same
    broken: dict[str, BoolArray]  # rule id -> (R,); a rule that no row breaks is left out
    facts: dict[str, float] = field(default_factory=dict)  # what the environment measures besides, its unit in the name

    @property
    def n_broken(self) -> int:
        """Rows that break a law."""
        return int(np.logical_or.reduce([*self.broken.values(), np.zeros(self.n_rows, bool)]).sum())


def inspect_starts(path: str | Path, env: str, task: str = "") -> Starts:
    """Count and judge the rows of a file of starts.

    Args:
        path: an .npz file with the rows under `observations`, or an .npy file of rows, (R, O).
        env: id of the environment.
        task: a task whose own starts they must be, where the environment tells them apart.

    Raises:
        DataError: the file cannot be read or has other contents.
        UnknownName: no such environment or task.
    """
    adapter = load(env)
    try:
        if task:
            adapter.placement_of_task(task)
        return judge(adapter, read_starts(Path(path), adapter), task)
    finally:
        adapter.close()


def judge(adapter: EnvAdapter, obs: AnyArray, task: str = "") -> Starts:
    """Count and judge start rows, (R, O).

    An adapter with a method `judge_starts(obs, task) -> Starts` does it itself; for the others a row breaks the code
    why the simulator cannot take it on, or the first law of resets that it breaks.
    """
    own: Any = getattr(adapter, "judge_starts", None)
    if own is not None:
        found: Starts = own(obs, task)
        return found
    code = adapter.takeable(obs)
    nobody = [adapter.place(None)], np.zeros(len(obs), np.int64)
    rule = adapter.legality(_lone(obs, adapter.spec.action), *nobody).row0_rule
    broken = {name: code == number for number, name in enumerate(adapter.spec.codes) if number}
    broken |= {law.id: (rule == number) & (code == 0) for number, law in enumerate(adapter.rules, start=1)}
    close = np.round(obs.astype(np.float64), DECIMALS) + 0.0  # -0.0 and 0.0 are one number
    return Starts(
        n_rows=len(obs),
        unique=len(np.unique(obs, axis=0)),
        unique_close=len(np.unique(close, axis=0)),
        broken={name: rows for name, rows in broken.items() if rows.any()},
    )


def _lone(obs: AnyArray, action: ActionSpec) -> Rollouts:
    """Each row as a rollout of its own, from a reset and without a transition."""
    n = len(obs)
    return Rollouts(
        obs=obs,
        action=np.zeros(0, np.int64) if action.kind == "discrete" else np.zeros((0, action.size)),
        offsets=np.zeros(n + 1, np.int64),
        has_final=np.ones(n, bool),
        source=np.zeros(n, np.int32),
        source_rollout=np.arange(n, dtype=np.int32),
        source_step=np.zeros(n, np.int32),
        instruction=[None] * n,
        is_reset=np.ones(n, bool),
    )


def read_starts(path: Path, adapter: EnvAdapter) -> AnyArray:
    """The rows of a file of starts, (R, O).

    Raises:
        DataError: the file cannot be read or has other contents.
    """
    if not path.is_file():
        raise DataError(f"{path}: no such file. Check the path.")
    if path.suffix == ".npz":
        kept = read_npz(path)
        key = next((key for key in KEYS if key in kept), None)
        if key is None:
            raise DataError(f"{path}: no key {KEYS[0]!r}, only {', '.join(kept) or 'nothing'}. Save the rows under it.")
        rows = np.asarray(kept[key])
    else:
        try:
            rows = np.asarray(np.load(path, allow_pickle=False))
        except (OSError, ValueError, EOFError) as reason:
            raise DataError(f"{path}: not a file of start rows ({reason}). Save them as .npz or .npy.") from reason
    sizes = [spec.obs_size for spec in adapter.layouts()]
    if rows.ndim != 2 or rows.shape[1] not in sizes or rows.dtype.kind not in "fiu":
        expected = " or ".join(map(str, sizes))
        raise DataError(
            f"{path}: {rows.dtype} of shape {rows.shape}; start rows of {adapter.spec.id} are numbers of shape (rows, "
            f"{expected}). Is --env right?"
        )
    return rows


def starts_facts(starts: Starts) -> dict[str, Any]:
    """The same as plain values, for JSON: counts, and for each rule how many rows break it and the first of them."""
    return {
        "rows": starts.n_rows,
        "unique": starts.unique,
        "unique_to_1e-6": starts.unique_close,
        "rows_that_break_a_law": starts.n_broken,
        "rules": {
            name: {"rows": int(rows.sum()), "first": int(np.argmax(rows))} for name, rows in starts.broken.items()
        },
        "facts": {name: value if np.isfinite(value) else None for name, value in starts.facts.items()},
    }


def starts_text(path: str | Path, starts: Starts) -> str:
    """The same for a reader."""
    lines = [
        f"{path}: {starts.n_rows:,} rows, {starts.unique:,} different, {starts.unique_close:,} at 1e-6",
        f"  {starts.n_broken:,} of them break a law" if starts.n_rows else "  nothing to judge",
    ]
    lines += [
        f"  {int(rows.sum()):>6,}  {name}, first in row {int(np.argmax(rows))}" for name, rows in starts.broken.items()
    ]
    lines += [f"  {name}: {value:.4g}" for name, value in starts.facts.items()]
    return "\n".join(lines)
