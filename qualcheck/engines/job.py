"""A batch of rollouts to be checked, and what comes back of it."""

from __future__ import annotations

from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from typing import Protocol

import numpy as np

from qualcheck.adapter import EnvAdapter
from qualcheck.scoring import Labels, Scored, score_batch
from qualcheck.timing import CHECK, RECHECK, phase
from qualcheck.types import IntArray, Placement, Rollouts

AGREEMENT = 1e-6  # of max(1, |value|): one step of one simulator, called in two ways


@dataclass(frozen=True)
class Job:
    """Whole rollouts of one input with everything that their verdicts depend on."""

    number: int  # running, from 0
    source: int  # index of the input
    rollouts: Rollouts
    placements: list[Placement]
    which: IntArray  # (N,) index into placements
    label: Labels
    recheck: IntArray = field(default_factory=lambda: np.zeros(0, np.int64))  # transitions the real simulator steps too
    seed: int = 0


@dataclass(frozen=True)
class Rechecked:
    """How the fast engine and the real simulator compare on a sample of a job."""

    checked: int = 0
    agreed: int = 0
    refused_by_both: int = 0
    complaint: str = ""  # the first transition on which they differ


@dataclass(frozen=True)
class Done:
    scored: Scored  # without its candidate rows, which nobody asks for any more
    rechecked: Rechecked
    steps: int  # simulator steps executed
    seconds: dict[str, float] = field(default_factory=dict)  # by phase, where another process has counted them


class Engine(Protocol):
    """Checks jobs, several at once."""

    @property
    def ahead(self) -> int:
        """Jobs that are handed in before the first result is waited for, so that nothing stands idle."""
        ...

    def submit(self, job: Job) -> Future[Done]: ...

    def close(self) -> None:
        """End what the engine started; what is still running is given up."""
        ...


def check(adapter: EnvAdapter, job: Job) -> Done:
    """Everything that is asked of one job, by an adapter that nobody else uses meanwhile."""
    before = adapter.steps_executed
    with np.errstate(over="ignore", invalid="ignore"), phase(CHECK):  # of numbers that the checks find wanting
        scored = score_batch(adapter, job.rollouts, job.placements, job.which, job.label)
    with phase(RECHECK):
        rechecked = recheck(adapter, job, scored) if len(job.recheck) else Rechecked()
    scored = replace(scored, candidate=scored.candidate[:0], replay_code=scored.replay_code[:0])
    return Done(scored, rechecked, adapter.steps_executed - before)


def recheck(adapter: EnvAdapter, job: Job, scored: Scored) -> Rechecked:
    """Step the sampled transitions in the real simulator and compare."""
    at, rollouts = job.recheck, job.rollouts
    expected, code = scored.candidate[at], scored.replay_code[at]
    hidden = None if scored.hidden is None else scored.hidden[at]
    actual, refused = adapter.referee(rollouts.start_obs[at], rollouts.action[at], job.seed, hidden)
    slack = 0 if adapter.spec.exact else AGREEMENT * np.maximum(1, np.abs(actual))
    with np.errstate(invalid="ignore"):
        equal = (np.abs(expected.astype(np.float64) - actual) <= slack).all(axis=1)
    same = np.where((code > 0) | (refused > 0), (code > 0) == (refused > 0), equal)
    complaint = ""
    if not same.all():
        bad = at[np.argmin(same)]
        number = rollouts.source_rollout[rollouts.rollout[bad]]
        complaint = (
            f"{job.label.source}: rollout {number} step {rollouts.step[bad]}: the fast engine and the simulator "
            f"disagree. No verdict of this run can be trusted; nothing was written. Please report it with the row "
            f"{rollouts.start_obs[bad].tolist()} and action {rollouts.action[bad]}."
        )
    return Rechecked(len(at), int(same.sum()), int(((code > 0) & (refused > 0)).sum()), complaint)
