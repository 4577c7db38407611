"""Quaternions whose four numbers stand in another order than the environment's."""

from __future__ import annotations

import numpy as np

from qualcheck.explaining.hypothesis import Hypothesis, Subject, Trial, changed, everywhere
from qualcheck.spec import Quaternion
from qualcheck.types import AnyArray


def propose(subject: Subject) -> list[Hypothesis]:
    """One order throughout, or the two orders exchanged; only where the environment declares quaternions."""
    known = subject.adapter.spec.quaternions
    first, last = (tuple(q for q in known if q.scalar == scalar) for scalar in ("first", "last"))
    found = []
    if last:
        found.append(_hypothesis("the quaternions are ordered w, x, y, z throughout", last))
    if first:
        found.append(_hypothesis("the quaternions are ordered x, y, z, w throughout", first))
    if first and last:
        found.append(_hypothesis("the quaternions have the two orders of their scalar exchanged", known))
    return found


def _hypothesis(what: str, wrong: tuple[Quaternion, ...]) -> Hypothesis:
    def trial(subject: Subject) -> Trial:
        moved = changed(subject.rollouts, lambda rows: reordered(rows, wrong))
        return Trial(subject.error(moved), everywhere(moved))

    return Hypothesis("quaternion", what, "reordering them", trial)


def reordered(rows: AnyArray, quaternions: tuple[Quaternion, ...]) -> AnyArray:
    """Rows whose quaternions stand in the other order, brought into that of the environment, (R, O) -> (R, O)."""
    new = rows.copy()
    for quaternion in quaternions:
        columns = list(quaternion.columns)
        # w x y z in the file and x y z w wanted: one place to the left
        new[:, columns] = np.roll(rows[:, columns], -1 if quaternion.scalar == "last" else 1, axis=1)
    return new
