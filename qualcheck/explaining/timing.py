"""Actions that stand one step early or late."""

from __future__ import annotations

import numpy as np

from qualcheck.explaining.hypothesis import Hypothesis, Subject, Trial, changed
from qualcheck.types import IntArray, Rollouts


def propose(subject: Subject) -> list[Hypothesis]:
    """Both directions, where any rollout is long enough to tell."""
    if not (subject.rollouts.length > 2).any():
        return []
    return [
        Hypothesis("shift", "the actions stand one step late", "moving them one step earlier", lambda s: _moved(s, 1)),
        Hypothesis("shift", "the actions stand one step early", "moving them one step later", lambda s: _moved(s, -1)),
    ]


def _moved(subject: Subject, by: int) -> Trial:
    """Take each action from `by` steps later; the transition whose action the file does not hold is not counted."""
    rollouts = subject.rollouts
    at, known = _source(rollouts, by)
    moved = changed(rollouts, action=rollouts.action[at])
    return Trial(subject.error(moved), known)


def _source(rollouts: Rollouts, by: int) -> tuple[IntArray, np.ndarray]:
    """Where each action comes from, the nearest one where that is out of the rollout, (M,), and whether it is in."""
    first = rollouts.offsets[:-1][rollouts.rollout]
    last = rollouts.offsets[1:][rollouts.rollout] - 1
    wanted = np.arange(rollouts.n_transitions) + by
    at = np.clip(wanted, first, last)
    return at, at == wanted
