"""What a hypothesis on a file is, and the sample that it is tested on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from qualcheck.adapter import EnvAdapter
from qualcheck.checks import correctness
from qualcheck.checks.batch import Batch
from qualcheck.cut import cut
from qualcheck.scoring import Labels
from qualcheck.types import AnyArray, BoolArray, FloatArray, IntArray, Placement, Rollouts


@dataclass(frozen=True)
class Subject:
    """A sample of whole rollouts of one file, and how its run judges them."""

    rollouts: Rollouts
    adapter: EnvAdapter
    labels: Labels
    placements: list[Placement]
    which: IntArray  # (N,) index into placements
    real_rows: tuple[RowStatistics, ...] = ()  # what rows of real files look like, the likeliest first
    given: tuple[FloatArray, FloatArray] | None = None  # means and deviations that the user gave, (O,) each

    @cached_property
    def before(self) -> FloatArray:
        """Error of each transition as the file stands, (M,); see `error`."""
        return self.error(self.rollouts)

    def error(self, rollouts: Rollouts, adapter: EnvAdapter | None = None, labels: Labels | None = None) -> FloatArray:
        """How wrong each transition is, 0 to 1, (M,); NaN where it cannot be verified for another reason than its rows.

        exact environments: 0 right, 1 wrong. Others: min(1, largest column error in standard deviations of the real
        one-step change), 0 within the common noise of real data. 1 out of a row and into a row that no simulator can
        take on: a change that makes the rows impossible explains nothing.
        """
        adapter, labels = adapter or self.adapter, labels or self.labels
        batch = Batch(rollouts, adapter, self.placements, self.which)
        tc = correctness.measure(batch, labels.grade, labels.scale)
        if adapter.spec.exact:
            wrong = 1 - tc.tc.astype(np.float64)
        else:
            gap = tc.residual
            scaled = np.minimum(gap.scaled.astype(np.float64), 1)
            wrong = np.where(gap.noise <= 1, 0.0, scaled)
            wrong[~np.isnan(wrong) & (batch.end_code > 0)] = 1
        wrong[(batch.row_code[rollouts.row] > 0) & rollouts.has_end] = 1
        return wrong

    def only(self, which: IntArray) -> Subject:
        """The same with some of its rollouts."""
        part = cut(self.rollouts, which, np.zeros(len(which), np.int64), self.rollouts.length[which])
        return replace(self, rollouts=part, which=self.which[which])


@dataclass(frozen=True)
class RowStatistics:
    """What the rows of real files look like, column by column."""

    name: str  # where from
    mean: FloatArray  # (O,)
    std: FloatArray  # (O,)
    low: FloatArray  # (O,) smallest and largest
    high: FloatArray


@dataclass(frozen=True)
class Trial:
    """The errors of the sample under a change."""

    after: FloatArray  # (M,) NaN: could not be verified, which counts as wrong
    counted: BoolArray  # (M,) transitions that the change says something about
    left_out: BoolArray | None = None  # (M,) transitions that the change removes from the file


@dataclass(frozen=True)
class Hypothesis:
    """One way in which a file may have to be read differently."""

    kind: str  # one of `KINDS`
    what: str  # "the actions stand one step late"
    remedy: str  # "moving them one step earlier"
    trial: Callable[[Subject], Trial] = field(compare=False)


KINDS = {
    "shift": "actions one step early or late",
    "environment": "rows of another environment",
    "clipping": "values clipped",
    "quaternion": "order of quaternions",
    "standardised": "standardised observations, or statistics that were not needed",
    "padding": "padding scored",
    "labels": "instructions that name another task than the one recorded",
    "level": "another level of the benchmark",
    "family": "another simulator family",
}


def changed(
    rollouts: Rollouts, rows: Callable[[AnyArray], AnyArray] | None = None, action: AnyArray | None = None
) -> Rollouts:
    """The rollouts with every row, or every action, changed."""
    if rows is not None:
        with np.errstate(over="ignore", invalid="ignore"):
            rollouts = replace(
                rollouts,
                obs=rows(rollouts.obs),
                break_obs=None if rollouts.break_obs is None else rows(rollouts.break_obs),
                reset_obs=None if rollouts.reset_obs is None else rows(rollouts.reset_obs),
            )
    return rollouts if action is None else replace(rollouts, action=action)


def everywhere(rollouts: Rollouts) -> BoolArray:
    """A mask that holds for every transition, (M,)."""
    return np.ones(rollouts.n_transitions, bool)
