"""One planted fault, and rollouts as lists that can be changed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from qualcheck.adapter import EnvAdapter
from qualcheck.registry import again
from qualcheck.selftesting.real import Real
from qualcheck.types import AnyArray, Rollouts


@dataclass(frozen=True)
class Plant:
    """A real rollout with one fault in it."""

    fault: str
    size: str  # as printed: a multiple of the tolerance, a count, or "" where the fault has no size
    metric: str  # "step" (correctness or legality, at `step`), "goal", "reward" or "flag:NAME"
    rollouts: Rollouts
    step: int  # transition that is wrong
    origin: int  # place of the untouched rollout among the real ones
    effect: float = np.nan  # in tolerances of the judging grade; NaN: found by comparing replays
    honest_after: int = 2  # steps from the fault on that are no longer taken for honest


@dataclass(frozen=True)
class Fault:
    """A kind of fault. `plant` gives a changed rollout and the step that is wrong, or None where it cannot be planted.

    `sizes` are multiples of the tolerance for faults of the rows; () where a fault has no size of its own.
    """

    name: str
    metric: str
    plant: Callable[[Real, int, float, np.random.Generator], Plant | None]
    sizes: tuple[float, ...] = ()


def with_rows(one: Rollouts, rows: AnyArray) -> Rollouts:
    """The rollout with other rows, (T+1, O), in its own dtype; whole numbers that are none become float32."""
    whole = one.obs.dtype.kind in "iu" and not (np.isfinite(rows).all() and (rows == np.round(rows)).all())
    with np.errstate(over="ignore", invalid="ignore"):
        return replace(one, obs=rows.astype(np.float32 if whole else one.obs.dtype))


def joined(parts: Sequence[Rollouts]) -> Rollouts:
    """Single rollouts behind one another."""
    first = parts[0]
    offsets = np.concatenate([[0], np.cumsum([part.n_transitions for part in parts])]).astype(np.int64)
    n = len(parts)

    def over(name: str) -> AnyArray | None:
        return None if getattr(first, name) is None else np.concatenate([getattr(part, name) for part in parts])

    return replace(
        first,
        obs=np.concatenate([part.obs for part in parts]),
        action=np.concatenate([part.action for part in parts]),
        offsets=offsets,
        has_final=np.concatenate([part.has_final for part in parts]),
        source=np.zeros(n, np.int32),
        source_rollout=np.arange(n, dtype=np.int32),
        source_step=np.zeros(n, np.int32),
        instruction=[text for part in parts for text in part.instruction],
        reward=over("reward"),
        terminal=over("terminal"),
        truncated=over("truncated"),
        goal=None if first.goal is None else [goal for part in parts for goal in part.goal or [None]],
        task=None if first.task is None else [name for part in parts for name in part.task or [""]],
        is_reset=np.ones(n, bool),
    )


def of_row(name: str, change: Callable[[AnyArray, int, Real, np.random.Generator], AnyArray | None]) -> Fault:
    """A fault on one row: `change` gets the rows (T+1, O) as float64, the row's index, and gives it changed or None."""

    def plant(real: Real, at: int, _size: float, rng: np.random.Generator) -> Plant | None:
        one = real.rollouts[at]
        step = int(rng.integers(1, max(2, one.n_transitions - 1)))
        rows = one.obs.astype(np.float64)
        changed = change(rows, step + 1, real, rng)
        if changed is None or np.array_equal(changed, rows[step + 1]):
            return None
        rows[step + 1] = changed
        return Plant(name, "", "step", with_rows(one, rows), step, at)

    return Fault(name, "step", plant)


def of_world(name: str, change: Callable[[Any, float], None], model_of: Callable[[EnvAdapter], Any]) -> Fault:
    """One step of a simulator whose laws are changed.

    Args:
        name: of the fault.
        change: edits the MuJoCo model; the second argument is the size.
        model_of: the model that an adapter of the environment steps.
    """

    def plant(real: Real, at: int, size: float, rng: np.random.Generator) -> Plant | None:
        one = real.rollouts[at]
        other = again(real.adapter)
        try:
            change(model_of(other), size)
            replay = other.replay(replace(one))
        finally:
            other.close()
        step = int(rng.integers(1, max(2, one.n_transitions - 1)))
        if replay.code[step] or not np.isfinite(replay.candidates[0][step]).all():
            return None
        rows = one.obs.astype(np.float64)
        rows[step + 1] = replay.candidates[0][step]
        return Plant(name, "", "step", with_rows(one, rows), step, at)

    return Fault(name, "step", plant)


def short(real: Real, rows: AnyArray, action: AnyArray) -> Rollouts:
    """A made-up rollout of a few rows, (T+1, O), with its actions, (T,) or (T, A), and nothing else."""
    one, steps = real.rollouts[0], len(action)

    def zeros(values: AnyArray | None) -> AnyArray | None:
        return None if values is None else np.zeros(steps, values.dtype)

    return with_rows(
        replace(
            one,
            obs=np.zeros((0, one.obs.shape[1]), one.obs.dtype),
            action=np.asarray(action, one.action.dtype),
            offsets=np.array([0, steps], np.int64),
            reward=zeros(one.reward),
            terminal=zeros(one.terminal),
            truncated=zeros(one.truncated),
        ),
        np.asarray(rows, np.float64),
    )
