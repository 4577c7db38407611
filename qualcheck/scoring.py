"""One batch of rollouts in, its rows of the score table out."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa

from qualcheck.adapter import EnvAdapter
from qualcheck.checks import correctness, flags, goals, identity, legality, reward
from qualcheck.checks.batch import Batch, Codes, first_step, medians, share
from qualcheck.checks.restarts import Restarts
from qualcheck.grade import Grade
from qualcheck.table import coded
from qualcheck.tolerance import Scale
from qualcheck.types import UNDECIDED, AnyArray, BoolArray, FloatArray, IntArray, Placement, Rollouts


@dataclass
class Tally:
    """What a run counts over all batches."""

    rollouts: int = 0
    transitions: int = 0
    verified: Counter[str] = field(default_factory=Counter)
    passed: Counter[str] = field(default_factory=Counter)
    unverifiable: dict[str, Counter[str]] = field(default_factory=dict)
    rules: Counter[str] = field(default_factory=Counter)
    soft: Counter[str] = field(default_factory=Counter)
    simulator_steps: int = 0

    def verdicts(self, metric: str, values: FloatArray) -> None:
        low, high = UNDECIDED
        self.verified[metric] += int(((values <= low) | (values >= high)).sum())
        self.passed[metric] += int((values >= high).sum())

    def add(self, other: Tally) -> None:
        """Add what another batch counted."""
        self.rollouts += other.rollouts
        self.transitions += other.transitions
        self.simulator_steps += other.simulator_steps
        for name in ("verified", "passed", "rules", "soft"):
            getattr(self, name).update(getattr(other, name))
        for metric, codes in other.unverifiable.items():
            self.unverifiable.setdefault(metric, Counter()).update(codes)

    def missing(self, metric: str, codes: Codes, mask: BoolArray) -> None:
        self.unverifiable.setdefault(metric, Counter()).update(codes.counts(mask))


def of_task(rollouts: Rollouts, task: str | None) -> Rollouts:
    """The rollouts under the task that the user gives them all, which may decide the simulator's scene."""
    return replace(rollouts, task=[task] * rollouts.n_rollouts) if task else rollouts


class Placer:
    """Tasks of instructions, each text placed once a run."""

    def __init__(self, adapter: EnvAdapter) -> None:
        self._adapter = adapter
        self._texts: dict[str | None, int] = {}
        self._placements: list[Placement] = []
        self._goals: dict[tuple[str | None, bytes], int] = {}

    def place(self, rollouts: Rollouts, given: Placement | None = None) -> tuple[list[Placement], IntArray]:
        """The placements known so far and, for each rollout, which one is its own, (N,)."""
        if given is not None:
            return [given], np.zeros(rollouts.n_rollouts, np.int32)
        which = np.empty(rollouts.n_rollouts, np.int32)
        for rollout, text in enumerate(rollouts.instruction):
            goal = rollouts.goal[rollout] if rollouts.goal is not None else None
            if goal is None:
                number = self._texts.get(text, -1)
                if number < 0:
                    number = self._texts[text] = self._add(self._adapter.place(text))
            else:
                key = (text, goal.tobytes())
                number = self._goals.get(key, -1)
                if number < 0:
                    number = self._goals[key] = self._add(self._adapter.place(text, goal))
            which[rollout] = number
        return list(self._placements), which

    def _add(self, placement: Placement) -> int:
        self._placements.append(placement)
        return len(self._placements) - 1


@dataclass(frozen=True)
class Labels:
    """What a file or the user says of all rollouts of one input."""

    source: str
    level: str | None
    generator: str | None
    start: str
    longest: int
    grade: Grade
    scale: Scale | None
    restarts: Restarts
    task: Placement | None = None  # of every rollout, instead of its instruction


@dataclass(frozen=True)
class Scored:
    tally: Tally
    transitions: dict[str, Any]
    rollouts: dict[str, Any]
    flags: dict[str, BoolArray]
    readings: dict[str, reward.Reading]  # what each reading of the rewards says; the table has none of it yet
    fingerprint: AnyArray  # (N,) uint64
    candidate: AnyArray  # (M, O) simulated end rows under the first seeding
    hidden: FloatArray | None  # (M, H) hidden state before each action
    replay_code: IntArray  # (M,)
    tasks: set[str]


def score_batch(
    adapter: EnvAdapter, rollouts: Rollouts, placements: list[Placement], which: IntArray, labels: Labels
) -> Scored:
    """Run every check on a batch; rollout ids are local and shifted by the caller."""
    reset = _starts(rollouts, labels.start)
    rollouts = replace(rollouts, is_reset=reset)
    batch = Batch(rollouts, adapter, placements, which)
    tc = correctness.measure(batch, labels.grade, labels.scale)
    gap = tc.residual
    dl = legality.measure(batch, reset)
    gc = goals.measure(batch, labels.grade, labels.scale, labels.restarts)
    readings = reward.measure(batch)
    found = flags.measure(batch, gc, labels.longest)
    fault = (tc.tc == 0) | (dl.dl == 0)

    recorded = rollouts.length
    verified_tc, verified_dl = batch.per_rollout_sum(~np.isnan(tc.tc)), batch.per_rollout_sum(~np.isnan(dl.dl))
    strict_n = batch.per_rollout_sum(~np.isnan(tc.strict))
    transitions: dict[str, Any] = {
        "rollout": rollouts.rollout,
        "step": rollouts.step,
        "tc": tc.tc,
        "tc_strict": tc.strict,
        "tc_error": gap.error,
        "tc_noise": gap.noise,
        "tc_scaled": gap.scaled,
        "tc_scaled_state": gap.scaled_state,
        "skill": gap.skill,
        "tc_code": coded(tc.code.names, tc.code.index),
        "seeding": coded(tc.seeding.names, tc.seeding.index),
        "dl": dl.dl,
        "dl_rule": coded(dl.rule.names, dl.rule.index),
        "goal_share": gc.share,
        "goal_share_replayed": gc.share_replayed,
        "open_loop_error": gc.open_error,
        **{f"err_{name}": values for name, values in gap.blocks.items()},
    }
    table: dict[str, Any] = {
        "rollout": np.arange(rollouts.n_rollouts, dtype=np.int32),
        "source": _labelled(None, rollouts.origin, labels.source, rollouts.n_rollouts),
        "source_rollout": rollouts.source_rollout.astype(np.int32),
        "source_step": rollouts.source_step.astype(np.int32),
        "env": _constant(adapter.spec.id, rollouts.n_rollouts),
        "level": _labelled(labels.level, rollouts.level, "custom", rollouts.n_rollouts),
        "generator": _labelled(labels.generator, rollouts.generator, "", rollouts.n_rollouts),
        "instruction": pa.array(rollouts.instruction, pa.string()),
        "task": coded([p.task for p in placements] or [""], which),
        "task_released": coded([p.task_released for p in placements] or [""], which),
        "start": coded(["cut", "reset"], reset),
        "length": recorded.astype(np.int32),
        "gc_imagined": gc.imagined,
        "gc_replayed": gc.replayed,
        "gc_imagined_released": gc.imagined_released,
        "gc_replayed_released": gc.replayed_released,
        "gc_code": coded(gc.code.names, gc.code.index),
        "consistency": gc.consistency,
        "consistency_replayed": gc.consistency_replayed,
        "trivial": gc.trivial,
        "trivial_released": gc.trivial_released,
        "correctness": share(batch.per_rollout_sum(tc.tc == 1), verified_tc),
        "correctness_strict": share(batch.per_rollout_sum(tc.strict == 1), strict_n),
        "legality": share(batch.per_rollout_sum(dl.dl == 1), verified_dl),
        "dl_row0": dl.row0,
        "dl_row0_rule": coded(dl.row0_rule.names, dl.row0_rule.index),
        "coverage_tc": share(verified_tc, recorded),
        "coverage_dl": share(verified_dl, recorded),
        "scaled_error": medians(batch, gap.scaled),
        "skill": medians(batch, gap.skill),
        "sweep_imagined": gc.sweep[0],
        "sweep_replayed": gc.sweep[1],
        "imagined_return": _returns(batch),
        "first_fault_step": first_step(batch, fault),
        "first_divergence_step": gc.divergence,
        "cluster": identity.cluster(rollouts),
    }
    tasks = {placements[number].task for number in np.unique(which)} - {""}
    return Scored(
        _count(batch, tc, dl, gc),
        transitions,
        table,
        found,
        readings,
        identity.fingerprint(rollouts),
        batch.replay.candidates[0],
        batch.replay.hidden,
        batch.replay.code,
        tasks,
    )


def _returns(batch: Batch) -> FloatArray:
    """Sum of the recorded rewards of each rollout, (N,) float32, NaN where the file has none."""
    rollouts = batch.rollouts
    if rollouts.reward is None:
        return np.full(rollouts.n_rollouts, np.nan, np.float32)
    with np.errstate(over="ignore", invalid="ignore"):
        return np.bincount(rollouts.rollout, rollouts.reward, rollouts.n_rollouts).astype(np.float32)


def _starts(rollouts: Rollouts, start: str) -> BoolArray:
    """Which rollouts start at a reset, (N,): the file's word, unless the user's is stronger."""
    if start == "auto" and rollouts.is_reset is not None:
        return rollouts.is_reset
    return np.full(rollouts.n_rollouts, start != "any")


def _constant(text: str, size: int) -> pa.DictionaryArray:
    return coded([text], np.zeros(size, np.int32))


def _labelled(given: str | None, own: list[str] | None, default: str, size: int) -> Any:
    if given is not None:
        return _constant(given, size)
    return pa.array(own, pa.string()) if own is not None else _constant(default, size)


def _count(
    batch: Batch,
    tc: correctness.Correctness,
    dl: legality.LegalityScores,
    gc: goals.GoalScores,
) -> Tally:
    tally = Tally()
    tally.rollouts += batch.rollouts.n_rollouts
    tally.transitions += batch.rollouts.n_transitions
    tally.simulator_steps += batch.replay.simulator_steps
    for metric, values in (
        ("transition_correctness", tc.tc),
        ("dynamics_legality", dl.dl),
        ("dynamics_legality_row0", dl.row0),
        ("goal_consistency", gc.imagined),
        ("goal_consistency_replayed", gc.replayed),
    ):
        tally.verdicts(metric, values)
    tally.missing("transition_correctness", tc.code, np.isnan(tc.tc))
    tally.missing("dynamics_legality", dl.unverifiable, np.isnan(dl.dl))
    tally.missing("goal_consistency", gc.code, np.isnan(gc.imagined))
    tally.missing("goal_consistency_replayed", gc.code, np.isnan(gc.replayed))
    tally.rules.update(dl.rule.counts(dl.dl == 0))
    tally.rules.update(dl.row0_rule.counts(dl.row0 == 0))
    tally.soft.update({name: int(broken.sum()) for name, broken in dl.soft.items() if broken.any()})
    return tally
