"""Which task each rollout is of, which decides the scene that it is simulated in."""

from __future__ import annotations

import numpy as np

from qualcheck.envs.metaworld import text
from qualcheck.envs.metaworld.layout import ENTITIES, ENTITY_SIZE, FIRST_ENTITY, OBS_SIZE, TASKS, base_task, from_reset
from qualcheck.envs.metaworld.reset_rules import broken_start
from qualcheck.types import AnyArray, BoolArray, Rollouts

DISTRACTORS = 1  # entities that a row shows beside those of its task


def tasks_of(rollouts: Rollouts) -> AnyArray:
    """The task of each rollout, a key of `layout.TASKS`, "" where it is not known. (N,) str.

    By the name that the file or the user gives it, else by its instruction; where both say nothing, by row 0, if that
    could start an episode of one task only.
    """
    names = rollouts.task or [""] * rollouts.n_rollouts
    found = [base_task(name or "") or text.place(said).task
             for name, said in zip(names, rollouts.instruction, strict=True)]  # fmt: skip
    silent = [i for i, task in enumerate(found) if not task]
    if silent and len(rollouts.obs):
        first = rollouts.context_obs[silent, :OBS_SIZE].astype(np.float64)
        started = from_reset(rollouts)[silent] | (rollouts.reset_obs is not None)
        for i, task in zip(silent, tasks_of_rows(first, started), strict=True):
            found[i] = str(task)
    return np.array(found, dtype=np.str_) if found else np.zeros(0, np.str_)


def tasks_of_rows(rows: AnyArray, started: BoolArray) -> AnyArray:
    """The only task that each row could be of, "" where there is none or several. (n,) str.

    Args:
        rows: (n, 91) float64.
        started: (n,) they are rows of resets.
    """
    blocks = rows[:, FIRST_ENTITY:].reshape(len(rows), len(ENTITIES), ENTITY_SIZE)
    shown = (blocks != 0).any(axis=2)  # (n, 12)
    fits = np.zeros((len(TASKS), len(rows)), bool)
    for number, (name, task) in enumerate(TASKS.items()):
        mine = np.isin(ENTITIES, task.entities)  # (12,)
        fits[number] = shown[:, mine].all(axis=1) & (shown[:, ~mine].sum(axis=1) <= DISTRACTORS)
        fits[number] &= ~(started & np.logical_or.reduce(broken_start(name, rows)))
    return np.where(fits.sum(axis=0) == 1, np.array(list(TASKS))[fits.argmax(axis=0)], "")
