"""Instructions that do not belong to what was recorded: other tasks, other rollouts, another level."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from qualcheck.checks import reward
from qualcheck.errors import UnknownName
from qualcheck.explaining.hypothesis import Subject
from qualcheck.types import BoolArray, FloatArray, Placement

FEWEST_WRONG = 5  # rollouts whose label is in doubt
WRONG_SHARE = 0.05  # of the rollouts that can be judged
MOST_REPLAYED = 8  # rollouts that are replayed under every other task
FELL_TO = 0.25  # of its error, where another task is right


@dataclass(frozen=True)
class LabelTrial:
    """Rollouts whose label is in doubt, and which of them another one fits."""

    kind: str
    what: str
    remedy: str
    judged: int  # rollouts that could be judged
    wrong: BoolArray  # (N,)
    explained: BoolArray  # (N,)


def collision(subject: Subject) -> LabelTrial | None:
    """Rollouts that do not fit the task of their instruction and wholly fit another one.

    Where rewards are recorded, a rollout fits a task if every recomputed reward equals the recorded one, and some are
    not 0. Else, where the task decides the simulator's scene, if its error falls to a quarter.
    """
    named = np.array([subject.placements[k].task for k in subject.which])
    judged, wrong, others = _by_reward(subject, named)
    if 2 * judged.sum() < (named != "").sum():  # rewards say little here
        scene = _by_scene(subject, named)
        judged, wrong, others = scene if scene[0].any() else (judged, wrong, others)
    if wrong.sum() < max(FEWEST_WRONG, WRONG_SHARE * judged.sum()):
        return None
    explained = wrong & np.logical_or.reduce([*others.values(), np.zeros(len(named), bool)])
    pairs = []
    for label in np.unique(named[explained]):
        mine = explained & (named == label)
        best, fits = max(others.items(), key=lambda item: (int((item[1] & mine).sum()), item[0]))
        text = f"{label} is {best}" if best != label else f"{label} has the instructions of others"
        pairs.append((int((fits & mine).sum()), text))
    listed = ", ".join(text for _, text in sorted(pairs, reverse=True)[:3])
    what = "instructions name another task than the one recorded"
    return LabelTrial("labels", what, f"other labels ({listed})", int(judged.sum()), wrong, explained)


def _candidates(subject: Subject) -> list[Placement]:
    """The placements of the sample, every task that needs no more than its name, and what the adapter knows besides."""
    own: Any = getattr(subject.adapter, "every_placement", None)
    found = {(p.task, p.params): p for p in (subject.placements[k] for k in np.unique(subject.which)) if p.task}
    for names in subject.adapter.tasks().values():
        for name in names:
            try:
                placement = subject.adapter.placement_of_task(name)
            except UnknownName:
                continue
            found.setdefault((placement.task, placement.params), placement)
    for placement in own() if own is not None else ():
        found.setdefault((placement.task, placement.params), placement)
    return list(found.values())


def _by_reward(subject: Subject, named: np.ndarray) -> tuple[BoolArray, BoolArray, dict[str, BoolArray]]:
    """Rollouts that rewards judge, those that are wrong, and for each task the rollouts that it fits, (N,) each."""
    rollouts, n = subject.rollouts, subject.rollouts.n_rollouts
    none = np.zeros(n, bool)
    if rollouts.reward is None:
        return none, none, {}
    read = subject.adapter.reward(rollouts, subject.placements, subject.which)
    totals = {name: np.nansum(_wrong(subject, values)) for name, values in read.items()}
    reading = min(totals, key=lambda name: float(totals[name]))
    own = _per_rollout(subject, read[reading])
    telling = np.bincount(rollouts.rollout, rollouts.reward != 0, n) > 0
    judged = ~np.isnan(own) & telling & (named != "")
    wrong = judged & (own > 0)
    others: dict[str, BoolArray] = {}
    if wrong.sum() >= FEWEST_WRONG:
        doubted = np.flatnonzero(wrong)
        part = subject.only(doubted)
        nobody = np.zeros(len(doubted), np.int64)
        for placement in _candidates(subject):
            values = subject.adapter.reward(part.rollouts, [placement], nobody)[reading]
            fits = none.copy()
            fits[doubted] = _per_rollout(part, values) == 0
            others[placement.task] = others.get(placement.task, none) | fits
    return judged, wrong, others


def _wrong(subject: Subject, values: FloatArray) -> FloatArray:
    """1 where a reward differs from the recorded one, NaN where it cannot be compared, (M,)."""
    recorded = subject.rollouts.reward
    assert recorded is not None
    error = np.where(subject.rollouts.has_end, recorded - values, np.nan)
    return np.where(np.isnan(error), np.nan, ~reward.correct(error, recorded))


def _per_rollout(subject: Subject, values: FloatArray) -> FloatArray:
    """Share of wrong rewards of each rollout, NaN where less than half of them can be compared, (N,)."""
    rollouts, n = subject.rollouts, subject.rollouts.n_rollouts
    wrong = _wrong(subject, values)
    known = np.bincount(rollouts.rollout, ~np.isnan(wrong), n)
    bad = np.bincount(rollouts.rollout, np.nan_to_num(wrong), n)
    enough = (known > 0) & (2 * known >= rollouts.length)
    return np.where(enough, bad / np.maximum(known, 1), np.nan)


def _by_scene(subject: Subject, named: np.ndarray) -> tuple[BoolArray, BoolArray, dict[str, BoolArray]]:
    """The same by the errors of a replay; nothing where no other task changes them."""
    rollouts, n = subject.rollouts, subject.rollouts.n_rollouts
    none = np.zeros(n, bool)
    before = _mean_error(subject)
    judged = (named != "") & (rollouts.length > 0)
    wrong = judged & (before >= 0.25)
    if wrong.sum() < FEWEST_WRONG:
        return none, none, {}
    tested = np.flatnonzero(wrong)[:MOST_REPLAYED]
    part, was = subject.only(tested), before[tested]
    others: dict[str, BoolArray] = {}
    differs = False
    for number, placement in enumerate(_candidates(subject)):
        under = replace(
            part,
            rollouts=replace(part.rollouts, task=[placement.task] * len(tested)),
            placements=[placement],
            which=np.zeros(len(tested), np.int64),
        )
        now = _mean_error(under)
        differs |= bool((np.abs(now - was) > 1e-9).any())
        if number >= 2 and not differs:
            return none, none, {}
        fits = none.copy()
        fits[tested] = now <= FELL_TO * was
        others[placement.task] = others.get(placement.task, none) | fits
    wrong = none.copy()
    wrong[tested] = True
    return judged, wrong, others


def _mean_error(subject: Subject) -> FloatArray:
    """Mean error of each rollout, 1 where a transition could not be verified, (N,)."""
    rollouts, n = subject.rollouts, subject.rollouts.n_rollouts
    error = np.nan_to_num(subject.before, nan=1.0)
    shown = rollouts.has_end
    total = np.bincount(rollouts.rollout[shown], error[shown], n)
    return total / np.maximum(np.bincount(rollouts.rollout[shown], minlength=n), 1)


def level(subject: Subject) -> LabelTrial | None:
    """Rollouts whose task is not one of the level that the user or the file names, and the level that has them."""
    known = {name: frozenset(tasks) for name, tasks in subject.adapter.tasks().items()}
    rollouts, n = subject.rollouts, subject.rollouts.n_rollouts
    own = [subject.labels.level] * n if subject.labels.level else (rollouts.level or [""] * n)
    task = [subject.placements[k].task for k in subject.which]
    judged = np.array([bool(t) and lv in known for t, lv in zip(task, own, strict=True)], bool)
    wrong = judged & np.array([t not in known.get(lv or "", ()) for t, lv in zip(task, own, strict=True)], bool)
    if wrong.sum() < FEWEST_WRONG or wrong.sum() < judged.sum() / 2:
        return None
    fits = {name: np.array([t in tasks for t in task], bool) & wrong for name, tasks in known.items()}
    best = max(fits, key=lambda name: int(fits[name].sum()))
    said = Counter(lv for lv, bad in zip(own, wrong, strict=True) if bad).most_common(1)[0][0]
    what = f"the tasks are not of level {said}"
    return LabelTrial("level", what, f"level {best}", int(judged.sum()), wrong, fits[best])


def trials(subject: Subject) -> Sequence[LabelTrial]:
    """What can be said of the labels of a sample."""
    return [trial for trial in (collision(subject), level(subject)) if trial is not None]
