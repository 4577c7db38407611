"""Another simulator: a family of the same environment, or an environment whose rows have the same shape."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from qualcheck import calibration
from qualcheck.checks.batch import Batch
from qualcheck.explaining.hypothesis import Hypothesis, Subject, Trial, everywhere


def propose(subject: Subject) -> list[Hypothesis]:
    """The other families that have tolerances for this storage, and the look-alikes that the adapter knows."""
    found = []
    adapter = subject.adapter
    for name in adapter.families():
        if name != adapter.family:
            what = f"the rows come from simulator family {name}"
            found.append(Hypothesis("family", what, f"--family {name}", partial(_of_family, name)))
    # an adapter may know simulators of other environments whose rows and actions have the same shapes
    own: Any = getattr(adapter, "lookalikes", None)
    for name, step in (own() if own is not None else {}).items():
        what = f"the rows are those of {name}"
        found.append(Hypothesis("environment", what, "stepping its simulator", partial(_stepped, step)))
    return found


def _of_family(name: str, subject: Subject) -> Trial:
    other = subject.adapter.with_family(name)
    labels = subject.labels
    if labels.scale is not None:
        known = calibration.shipped(other.spec, name)
        labels = replace(labels, scale=known.scale(labels.scale.storage) if known else None)
    after = subject.error(subject.rollouts, other, labels)
    other.close()
    return Trial(after, everywhere(subject.rollouts))


def _stepped(step: Any, subject: Subject) -> Trial:
    """The errors against another simulator, in the deviations that this environment is measured in.

    What its rows do not tell, and where it gives up, is not counted.
    """
    rollouts, scale = subject.rollouts, subject.labels.scale
    batch = Batch(rollouts, subject.adapter, subject.placements, subject.which)
    fit = np.flatnonzero(rollouts.has_end & (batch.row_code[rollouts.row] == 0))
    after = np.full(rollouts.n_transitions, np.nan)
    if scale is not None and len(fit):
        gap = np.abs(step(rollouts.start_obs[fit], rollouts.action[fit]) - rollouts.end_obs[fit].astype(np.float64))
        with np.errstate(divide="ignore", invalid="ignore"):
            scaled = np.where(gap == 0, 0.0, gap / scale.std_change)
        after[fit] = np.minimum(scaled.max(axis=1), 1)
    return Trial(after, ~np.isnan(after))
