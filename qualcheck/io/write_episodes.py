"""Rollouts as D4RL's or Minari's HDF5. What they cannot hold is refused, never dropped.

D4RL: all steps in a row, with `terminals` and `timeouts` apart, and here an id (`rollout`) on each step, because a
rollout may end without either. Minari: one group an episode, T+1 observations, `terminations` and `truncations`.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from qualcheck.errors import UsageError
from qualcheck.types import AnyArray, Rollouts

LAYOUTS = ("d4rl", "minari")


def _refuse(layout: str, what: str) -> UsageError:
    return UsageError(f"--to {layout}: the layout cannot hold {what}. Use --to canonical.")


def _check(layout: str, batch: Rollouts) -> None:
    told: dict[str, Any] = {name: getattr(batch, name) for name in ("level", "generator", "task")}
    if layout == "d4rl":
        told["instruction"] = batch.instruction
    for name, values in told.items():
        if values is not None and any(value for value in values):
            raise _refuse(layout, f"the {name} of a rollout")
    if batch.goal is not None and any(goal is not None for goal in batch.goal):
        raise _refuse(layout, "the goal of a rollout")
    if batch.code is not None:
        raise _refuse(layout, "instruction codes")
    for name in ("hidden", "reset_obs"):
        if getattr(batch, name) is not None:
            raise _refuse(layout, "what a cut carries of its source")
    if batch.source_step.any():
        raise _refuse(layout, "the place of a cut in its source")
    extra = dict(batch.extra_rollout)
    if extra.get("instructions") == batch.instruction:  # the texts themselves, and nothing beside them
        del extra["instructions"]
    extra.pop("source", None)  # the note of an earlier conversion on which file it read
    kept = sorted(name for name, values in extra.items() if any(value is not None for value in values))
    if kept:
        raise _refuse(layout, f"the columns {kept} of whole rollouts")
    if not batch.has_end.all() or (batch.length == 0).any():
        raise _refuse(layout, "rollouts without the row after their last action")
    if layout == "minari":
        for name in ("reward", "terminal", "truncated"):
            if getattr(batch, name) is None:
                raise _refuse(layout, f"rollouts without {name}, which it requires")
        if len(batch.break_at):
            raise _refuse(layout, "next observations that differ from the next row")
        if batch.extra_step:
            raise _refuse(layout, f"the columns {sorted(batch.extra_step)} of each step")


def write_episodes(layout: str, batches: Iterator[Rollouts], path: Path) -> None:
    """Write batches of whole rollouts as one file.

    Args:
        layout: one of `LAYOUTS`.

    Raises:
        UsageError: the rollouts hold something that the layout does not.
    """
    with h5py.File(path, "w") as file:
        done = 0
        for batch in batches:
            _check(layout, batch)
            if layout == "d4rl":
                _append(file, "rollout", batch.rollout.astype(np.int64) + done)
                for name, values in _flat(batch).items():
                    _append(file, name, values)
            else:
                for i in range(batch.n_rollouts):
                    _episode(file, done + i, batch, i)
            done += batch.n_rollouts


def _flat(batch: Rollouts) -> dict[str, AnyArray]:
    """Datasets of D4RL, one entry a step."""
    named = {
        "observations": batch.start_obs,
        "next_observations": batch.end_obs,
        "actions": batch.action,
        "rewards": batch.reward,
        "terminals": batch.terminal,
        "timeouts": batch.truncated,
    }
    return {name: values for name, values in {**batch.extra_step, **named}.items() if values is not None}


def _append(file: h5py.File, name: str, values: AnyArray) -> None:
    if name not in file:
        file.create_dataset(name, data=values, maxshape=(None, *values.shape[1:]), chunks=True)
        return
    data = file[name]
    data.resize(len(data) + len(values), axis=0)
    data[len(data) - len(values) :] = values


def _episode(file: h5py.File, number: int, batch: Rollouts, i: int) -> None:
    group = file.create_group(f"episode_{number}")
    steps = slice(int(batch.offsets[i]), int(batch.offsets[i + 1]))
    group["observations"] = batch.obs[batch.row_offsets[i] : batch.row_offsets[i + 1]]
    group["actions"] = batch.action[steps]
    for name, values in (
        ("rewards", batch.reward),
        ("terminations", batch.terminal),
        ("truncations", batch.truncated),
    ):
        assert values is not None  # see `_check`
        group[name] = values[steps]
    group.attrs["id"], group.attrs["total_steps"] = number, steps.stop - steps.start
    text = batch.instruction[i]
    if text is not None:
        group.attrs["instruction"] = text
