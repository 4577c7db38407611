"""One pass over the inputs of a run: batches in, the two tables of a folder out."""

from __future__ import annotations

import queue
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from qualcheck.adapter import EnvAdapter
from qualcheck.engines import Done, Engine, Job, open_engine
from qualcheck.engines.job import Rechecked
from qualcheck.errors import SimulatorDisagreement
from qualcheck.io import Source
from qualcheck.io.columns import vectors
from qualcheck.journal import Pieces
from qualcheck.readings import RewardLog, rewrite
from qualcheck.rollout_table import RolloutTable
from qualcheck.scoring import Labels, Placer, Tally, of_task
from qualcheck.table import HIDDEN_FILE, ROLLOUT_COLUMNS, TRANSITION_COLUMNS, UNITS, TableWriter
from qualcheck.timing import READ, WRITE, count, phase
from qualcheck.types import IntArray, Rollouts

Progress = Callable[[int], None]


@dataclass
class Referee:
    """A random sample of transitions, stepped in the real simulator as well."""

    at: IntArray  # sorted running index over all transitions of the pass
    seed: int
    checked: int = 0
    agreed: int = 0
    refused_by_both: int = 0

    @classmethod
    def draw(cls, transitions: int, sample: int, seed: int) -> Referee:
        rng = np.random.default_rng(seed)
        size = min(sample, transitions)
        return cls(np.sort(rng.choice(transitions, size, replace=False)) if size else np.zeros(0, np.int64), seed)

    def within(self, first: int, count: int) -> IntArray:
        """The sampled ones of `count` transitions from `first` on, counted from there."""
        low, high = np.searchsorted(self.at, [first, first + count])
        return self.at[low:high] - first

    def add(self, found: Rechecked) -> None:
        """Count what came out for one batch.

        Raises:
            SimulatorDisagreement: the kernel and the simulator differ on a transition.
        """
        self.checked += found.checked
        self.agreed += found.agreed
        self.refused_by_both += found.refused_by_both
        if found.complaint:
            raise SimulatorDisagreement(found.complaint)


@dataclass
class PassResult:
    tallies: list[Tally]  # one per input
    preferred: list[str | None]  # per input, the reward reading that fits best
    referee: Referee
    tasks: set[str]
    flags: dict[str, int]
    clusters: int
    steps: int  # simulator steps executed
    replaced: list[str]  # levels that the files name and the user's level replaces
    reward_wrong: list[dict[str, int]] = field(default_factory=list)  # per input, reading -> rewards that are off
    looks: int = 1  # parts that were scored


class _Background:
    """Runs jobs one after another in a thread, so that writing overlaps with checking."""

    def __init__(self) -> None:
        self._jobs: queue.Queue[Callable[[], None] | None] = queue.Queue(maxsize=2)
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._work, daemon=True)
        self._thread.start()

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            if self._error is None:
                try:
                    with phase(WRITE):
                        job()
                except BaseException as error:  # handed to the caller by put() or close()
                    self._error = error

    def put(self, job: Callable[[], None]) -> None:
        if self._error is not None:
            raise self._error
        self._jobs.put(job)

    def close(self) -> None:
        self._jobs.put(None)
        self._thread.join()
        if self._error is not None:
            raise self._error


def run_pass(
    adapter: EnvAdapter,
    sources: Sequence[Source],
    labels: Sequence[Labels],
    folder: Path,
    referee: Referee,
    progress: Progress | None = None,
    engine: Callable[[EnvAdapter], Engine] = open_engine,
    journal: Pieces | None = None,
    looks: Sequence[Sequence[Source]] | None = None,
    enough: Callable[[Sequence[Mapping[str, Any]]], bool] | None = None,
) -> PassResult:
    """Score every source into `folder`/transitions.parquet and rollouts.parquet.

    Args:
        adapter: the environment, in the layout and family of the sources.
        sources: opened inputs.
        labels: what is said of each.
        folder: of the unfinished run.
        referee: which transitions the real simulator steps too.
        progress: called with the number of transitions that are done.
        engine: opens what checks the batches.
        journal: keeps finished pieces, and gives those of an earlier run.
        looks: the sources in parts that are scored one after the other; None: at once.
        enough: asked after each look, with the rollout columns so far, whether the rest can be left out.

    Raises:
        SimulatorDisagreement: the kernel and the simulator differ on one of the referee's transitions.
        WorkerLost: a worker process died again and again.
    """
    tallies = [Tally() for _ in sources]
    rewards = [RewardLog(folder, number) for number in range(len(sources))]
    parts: list[dict[str, Any]] = []  # the rollout columns so far, where `enough` asks for them
    table = RolloutTable(folder)
    rollouts_done = steps = 0
    units = {**UNITS, **{f"err_{block.name}": block.unit for block in adapter.spec.blocks}}
    hidden = adapter.spec.hidden
    metadata = {"qualcheck.schema": "1", "qualcheck.env": adapter.spec.id, **{f"unit.{k}": v for k, v in units.items()}}
    order = [*TRANSITION_COLUMNS, *(f"err_{block.name}" for block in adapter.spec.blocks)]
    tasks: set[str] = set()
    replaced: set[str] = set()
    writer = TableWriter(folder / "transitions.parquet", metadata)
    beside = TableWriter(folder / HIDDEN_FILE, {"qualcheck.hidden": " ".join(hidden)}) if hidden else None
    background, running = _Background(), engine(adapter)
    placer, taken, jobs_done, rows_done = Placer(adapter), 0, 0, 0

    def every() -> Iterator[tuple[Job, Done]]:
        nonlocal taken
        for look in [sources] if looks is None else looks:
            jobs = _jobs(adapter, look, labels, referee, placer, jobs_done, rows_done)
            yield from _in_order(running, jobs, journal)
            taken += 1
            if enough is not None and enough(parts):
                return

    try:
        for job, done in every():
            scored, rollouts, label = done.scored, job.rollouts, job.label
            if label.level is not None and rollouts.level is not None:
                replaced.update(set(rollouts.level) - {label.level, ""})
            tallies[job.source].add(scored.tally)
            referee.add(done.rechecked)
            steps += done.steps
            count(done.seconds)
            columns = scored.transitions
            columns["rollout"] = columns["rollout"] + np.int32(rollouts_done)
            size = rollouts.n_transitions, rollouts.n_rollouts
            columns["reward_error"] = rewards[job.source].append(scored.readings, (rows_done, rollouts_done), size)
            columns = {name: columns[name] for name in order}
            scored.rollouts["rollout"] = scored.rollouts["rollout"] + np.int32(rollouts_done)
            background.put(lambda columns=columns: writer.append(columns))  # type: ignore[misc]
            if beside is not None and scored.hidden is not None:
                state = {"hidden": vectors(scored.hidden)}
                background.put(lambda state=state: beside.append(state))  # type: ignore[misc]
            rows = scored.rollouts
            table.note(rows, scored.flags, scored.fingerprint)
            background.put(lambda rows=rows: table.append(rows))  # type: ignore[misc]
            if enough is not None:
                parts.append(rows)
            rollouts_done += rollouts.n_rollouts
            rows_done += rollouts.n_transitions
            jobs_done += 1
            tasks.update(scored.tasks)
            if progress is not None:
                progress(rollouts.n_transitions)
    finally:
        running.close()
        background.close()
    if not jobs_done:
        empty = _empty_columns(adapter)
        writer.append(empty[0])
        table.note(empty[1], {}, np.zeros(0, np.uint64))
        table.append(empty[1])
    writer.close()
    if beside is not None:
        beside.close()
    with phase(WRITE):
        _settle_rewards(folder / "transitions.parquet", rewards, metadata)
    for tally, log in zip(tallies, rewards, strict=True):
        if log.counts is not None:
            tally.verified["reward"], tally.passed["reward"] = log.counts
    agree, shifted = np.full(rollouts_done, np.nan, np.float32), np.zeros(rollouts_done, bool)
    for log in rewards:
        log.fill(agree, shifted)
    agreement = {"reward_consistency": agree}
    with phase(WRITE):
        flags = table.write(folder / "rollouts.parquet", {"reward_shift": shifted}, agreement, metadata)
    return PassResult(
        tallies,
        [log.preferred for log in rewards],
        referee,
        tasks,
        flags,
        table.clusters,
        steps,
        sorted(replaced),
        [dict(log.wrong) for log in rewards],
        taken,
    )


def run_shard(
    adapter: EnvAdapter,
    sources: Sequence[Source],
    labels: Sequence[Labels],
    referee: Referee,
    mine: Callable[[int], bool],
    pieces: Pieces,
    progress: Progress | None = None,
    engine: Callable[[EnvAdapter], Engine] = open_engine,
) -> list[int]:
    """Check those batches of a pass that are `mine` by number, and keep what comes out as pieces.

    Returns:
        The numbers of the batches.

    Raises:
        SimulatorDisagreement, WorkerLost: as `run_pass`.
    """

    def jobs() -> Iterator[Job]:
        for job in _jobs(adapter, sources, labels, referee, Placer(adapter)):
            if mine(job.number):
                yield job
            elif progress is not None:
                progress(job.rollouts.n_transitions)

    done: list[int] = []
    running = engine(adapter)
    try:
        for job, result in _in_order(running, jobs(), pieces):
            referee.add(result.rechecked)
            done.append(job.number)
            if progress is not None:
                progress(job.rollouts.n_transitions)
    finally:
        running.close()
    return done


def batch_size(adapter: EnvAdapter) -> int:
    """Transitions of a job; what they come to does not depend on it."""
    return adapter.spec.batch_transitions


def _jobs(
    adapter: EnvAdapter,
    sources: Sequence[Source],
    labels: Sequence[Labels],
    referee: Referee,
    placer: Placer,
    number: int = 0,
    transitions: int = 0,
) -> Iterator[Job]:
    """The batches of all inputs in order; the first has a number and comes after so many transitions."""
    for at, (source, label) in enumerate(zip(sources, labels, strict=True)):
        for batch in _read(source.batches(batch_size(adapter))):
            rollouts = of_task(batch, label.task.task if label.task else None)
            placements, which = placer.place(rollouts, label.task)
            recheck = referee.within(transitions, rollouts.n_transitions)
            yield Job(number, at, rollouts, placements, which, label, recheck, referee.seed)
            number += 1
            transitions += rollouts.n_transitions


def _read(batches: Iterator[Rollouts]) -> Iterator[Rollouts]:
    """The batches, the time until each counted."""
    while True:
        with phase(READ):
            batch = next(batches, None)
        if batch is None:
            return
        yield batch


def _in_order(engine: Engine, jobs: Iterable[Job], journal: Pieces | None) -> Iterator[tuple[Job, Done]]:
    """The results of the jobs in their order, those that the journal has taken from there."""
    waiting: deque[tuple[Job, Future[Done]]] = deque()

    def first() -> tuple[Job, Done]:
        job, future = waiting.popleft()
        done = future.result()
        if journal is not None:
            journal.save(job, done)
        return job, done

    for job in jobs:
        known = journal.load(job) if journal is not None else None
        waiting.append((job, engine.submit(job) if known is None else _finished(known)))
        if len(waiting) > engine.ahead:
            yield first()
    while waiting:
        yield first()


def _finished(done: Done) -> Future[Done]:
    future: Future[Done] = Future()
    future.set_result(done)
    return future


def _settle_rewards(path: Path, rewards: Sequence[RewardLog], metadata: Mapping[str, str]) -> None:
    """Write the column of reward errors again where another reading than the first fits an input better."""
    better = {first: values for log in rewards for first, values in log.replaced().items()}
    if better:
        rewrite(path, better, metadata)
    for log in rewards:
        log.clear()


def _empty_columns(adapter: EnvAdapter) -> tuple[dict[str, Any], dict[str, Any]]:
    blocks = {f"err_{block.name}": pa.float32() for block in adapter.spec.blocks}
    steps = {name: pa.array([], kind) for name, kind in {**TRANSITION_COLUMNS, **blocks}.items()}
    rollouts = {
        name: pa.array([], kind)
        for name, kind in ROLLOUT_COLUMNS.items()
        if name not in ("flags", "reward_consistency")
    }
    return steps, rollouts
