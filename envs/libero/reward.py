"""The reward of every transition computed again from its two rows and what has been done since the reset.

The reward is 20 times what a distance shrank in the step, plus 1 for each thing done. Which distance it is depends on
the task and on how far it has come: from the hand to the object until that is seized, then from the object to where it
goes. Source: reward of the ImagineBench LIBERO class (arXiv 2505.10010, released code of May 2025).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from qualcheck.envs.libero.columns import BODY_FIRST, HAND, finite_rows, from_reset
from qualcheck.envs.libero.goals import (
    PREDICATES,
    TASK_OF,
    Part,
    distance,
    holds,
    moved_aside,
    names_of,
    needs_history,
    objects_of,
    placed,
    seized,
    select,
)
from qualcheck.types import AnyArray, BoolArray, FloatArray, IntArray, Placement, Rollouts

SCALE = 20.0  # reward of a metre
READINGS = ("released", "released_evaluation", "intended")


def _before(values: AnyArray) -> AnyArray:
    """The value of the row before, (R,); row 0 of a rollout, whose value means nothing, gets some value."""
    return np.concatenate([values[:1], values[:-1]])


def _gain(part: Part, one: int, other: int) -> FloatArray:
    """Reward for what a distance shrank in the step that led to each row, (R,)."""
    apart = distance(part.obs, one, other)
    gain: FloatArray = SCALE * (_before(apart) - apart)
    return gain


def _new(part: Part, seen: BoolArray) -> BoolArray:
    """Rows in which something has been seen for the first time, (R,); `seen` is False in row 0."""
    first: BoolArray = seen & ~(_before(seen) & (part.step > 0))
    return first


def _sequence(part: Part, name: str, predicates: str, hits: dict[str, BoolArray]) -> FloatArray:
    """Reward of a task with several objects, (R,): the distance is that of the first thing not yet done."""
    task, total, open_yet = TASK_OF[name], np.zeros(len(part.obs)), np.ones(len(part.obs), bool)
    for each in objects_of(name, predicates):
        first = BODY_FIRST[each]
        there = placed(part, task, each) & (part.step > 0)
        for hit, one, other in ((hits[each], HAND, first), (there, first, BODY_FIRST[task.target])):
            seen = part.seen(hit)
            total += _new(part, seen)
            total += np.where(open_yet & ~seen, _gain(part, one, other), 0)
            open_yet &= seen
    return total


def of_rows(part: Part, name: str, predicates: str, loose_start: bool = False) -> FloatArray:
    """Rewards of the steps that led to each row of one task, (R,); that of row 0 means nothing.

    Args:
        part: whole rollouts.
        name: task id.
        predicates: "intended" or "released".
        loose_start: as in the benchmark's own evaluation, whose first step takes every object for moved.
    """
    task, objects = TASK_OF[name], objects_of(name, predicates)
    hits = {each: seized(part, each) for each in objects}
    if loose_start:
        for each, hit in hits.items():
            hit |= (part.step == 1) & part.ok & (distance(part.obs, HAND, BODY_FIRST[each]) < 0.05)
    if task.family == "sequence":
        return _sequence(part, name, predicates, hits)
    first = BODY_FIRST[objects[0]]
    won = hits[objects[0]] if task.family == "pick" else holds(part, name, predicates)[0]
    if task.family in ("pick", "reach"):
        return _gain(part, HAND, first) + won
    if task.family == "aside":
        apart = moved_aside(part, objects[0], predicates)
        to_goal = SCALE * (apart - _before(apart))
    else:
        to_goal = _gain(part, first, BODY_FIRST[task.target]) * (-1 if task.family == "out" else 1)
    if not task.seizes:
        return to_goal + won
    held = part.seen(hits[objects[0]])
    # the step that seizes the object is still paid by the way of the hand, but not where it is carried off
    leads = held if task.family in ("aside", "out") else _before(held) & (part.step > 1)
    return np.where(leads, to_goal, _gain(part, HAND, first)) + _new(part, held) + won


def _chain(rollouts: Rollouts) -> tuple[AnyArray, IntArray, IntArray]:
    """Start row, then the end row of each transition as the file has it: rows (M+N, 44), offsets (N+1,), end (M,)."""
    offsets = rollouts.offsets + np.arange(rollouts.n_rollouts + 1)
    after = np.arange(rollouts.n_transitions) + rollouts.rollout + 1
    obs = np.full((int(offsets[-1]), rollouts.obs.shape[1]), np.nan)
    started = np.flatnonzero(rollouts.length > 0)
    obs[offsets[:-1][started]] = rollouts.obs[rollouts.first_row[started]]
    obs[after] = np.where(rollouts.has_end[:, None], rollouts.end_obs, np.nan)
    return obs, offsets, after


def recompute(rollouts: Rollouts, placements: Sequence[Placement], which: IntArray) -> dict[str, FloatArray]:
    """Reading -> (M,) float64 reward, NaN where it cannot be known.

    Readings: "released" is the benchmark's code with the true row before each step; "released_evaluation" the same as
    its own evaluation runs it, where the first step of an episode is held against the last row of the episode before,
    which no file shows, so that its reward is NaN; "intended" is by the meaning of the text.

    NaN also where the rollout has no task, where one of the two rows is missing or not finite, after a row that is not
    finite in tasks that are done in parts, and in all of such a task where the rollout does not start at a reset.
    """
    obs, offsets, after = _chain(rollouts)
    ok = finite_rows(obs)
    started, found = from_reset(rollouts), {}
    for reading in READINGS:
        predicates = reading if reading in PREDICATES else "released"
        names, values = names_of(placements, which, predicates), np.full(len(obs), np.nan)
        loose = reading == "released_evaluation"
        for name in np.unique(names[names != ""]) if len(names) else ():
            parts = TASK_OF[str(name)].seizes or needs_history(str(name))
            who = np.flatnonzero((names == name) & (rollouts.length > 0) & (started | (not parts)))
            part, at = select(obs, ok, offsets, who)
            known = part.ok & _before(part.ok)
            known &= ~part.seen(~part.ok) if parts else True
            known &= part.step > 1 if loose else True
            with np.errstate(invalid="ignore"):
                values[at] = np.where(known, of_rows(part, str(name), predicates, loose), np.nan)
        found[reading] = values[after]
    return found
