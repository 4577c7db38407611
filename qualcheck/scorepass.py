"""One pass over the inputs of a run: batches in, the two tables of a folder out."""

from __future__ import annotations

import os
import queue
import threading
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from qualcheck.adapter import EnvAdapter
from qualcheck.checks.flags import as_lists
from qualcheck.errors import SimulatorDisagreement
from qualcheck.io import Source
from qualcheck.io.columns import vectors
from qualcheck.registry import again
from qualcheck.scoring import Labels, Placer, Scored, Tally, of_task, score_batch
from qualcheck.table import HIDDEN_FILE, ROLLOUT_COLUMNS, TRANSITION_COLUMNS, UNITS, TableWriter
from qualcheck.types import AnyArray, BoolArray, IntArray, Placement, Rollouts

AGREEMENT = 1e-6  # of max(1, |value|): one step of one simulator, called in two ways
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

    def check(self, adapter: EnvAdapter, rollouts: Rollouts, scored: Scored, first: int, place: str) -> None:
        """Compare the sampled transitions of one batch.

        Raises:
            SimulatorDisagreement: the kernel and the simulator differ on one.
        """
        low, high = np.searchsorted(self.at, [first, first + rollouts.n_transitions])
        at = self.at[low:high] - first
        if not len(at):
            return
        expected, code = scored.candidate[at], scored.replay_code[at]
        hidden = None if scored.hidden is None else scored.hidden[at]
        actual, refused = adapter.referee(rollouts.start_obs[at], rollouts.action[at], self.seed, hidden)
        slack = 0 if adapter.spec.exact else AGREEMENT * np.maximum(1, np.abs(actual))
        with np.errstate(invalid="ignore"):
            equal = (np.abs(expected.astype(np.float64) - actual) <= slack).all(axis=1)
        same = np.where((code > 0) | (refused > 0), (code > 0) == (refused > 0), equal)
        self.checked += len(at)
        self.agreed += int(same.sum())
        self.refused_by_both += int(((code > 0) & (refused > 0)).sum())
        if not same.all():
            bad = at[np.argmin(same)]
            number = rollouts.source_rollout[rollouts.rollout[bad]]
            raise SimulatorDisagreement(
                f"{place}: rollout {number} step {rollouts.step[bad]}: the fast engine and the simulator disagree. "
                f"No verdict of this run can be trusted; nothing was written. Please report it with the row "
                f"{rollouts.start_obs[bad].tolist()} and action {rollouts.action[bad]}."
            )


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


class _Background:
    """Runs jobs one after another in a thread, so that writing overlaps with checking."""

    def __init__(self) -> None:
        self._jobs: queue.Queue[Callable[[], None] | None] = queue.Queue(maxsize=4)
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._work, daemon=True)
        self._thread.start()

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            if self._error is None:
                try:
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
) -> PassResult:
    """Score every source into `folder`/transitions.parquet and rollouts.parquet."""
    placer = Placer(adapter)
    tallies = [Tally() for _ in sources]
    seen = _Seen()
    flags: Counter[str] = Counter()
    rollouts_done = transitions_done = 0
    units = {**UNITS, **{f"err_{block.name}": block.unit for block in adapter.spec.blocks}}
    hidden = adapter.spec.hidden
    metadata = {"qualcheck.schema": "1", "qualcheck.env": adapter.spec.id, **{f"unit.{k}": v for k, v in units.items()}}
    tasks: set[str] = set()
    replaced: set[str] = set()
    writer = TableWriter(folder / "transitions.parquet", metadata)
    table = TableWriter(folder / "rollouts.parquet", metadata)
    beside = TableWriter(folder / HIDDEN_FILE, {"qualcheck.hidden": " ".join(hidden)}) if hidden else None
    background, workers = _Background(), _Workers(adapter)
    try:
        for source, label, tally in zip(sources, labels, tallies, strict=True):
            for rollouts, scored in workers.run(source, placer, label):
                if label.level is not None and rollouts.level is not None:
                    replaced.update(set(rollouts.level) - {label.level, ""})
                tally.add(scored.tally)
                referee.check(adapter, rollouts, scored, transitions_done, label.source)
                columns = scored.transitions
                columns["rollout"] = columns["rollout"] + np.int32(rollouts_done)
                scored.rollouts["rollout"] = scored.rollouts["rollout"] + np.int32(rollouts_done)
                background.put(lambda columns=columns: writer.append(columns))  # type: ignore[misc]
                if beside is not None and scored.hidden is not None:
                    state = {"hidden": vectors(scored.hidden)}
                    background.put(lambda state=state: beside.append(state))  # type: ignore[misc]
                found = scored.flags
                duplicate = seen.add(scored.fingerprint, scored.rollouts["cluster"]) & (rollouts.length > 0)
                if duplicate.any():
                    found = {**found, "duplicate": duplicate}
                flags.update({name: int(values.sum()) for name, values in found.items()})
                rows = scored.rollouts
                background.put(lambda rows=rows, found=found: table.append(_with_flags(rows, found)))  # type: ignore[misc]
                rollouts_done += rollouts.n_rollouts
                transitions_done += rollouts.n_transitions
                tasks.update(scored.tasks)
                if progress is not None:
                    progress(rollouts.n_transitions)
    finally:
        workers.close()
        background.close()
    if not tallies or not any(tally.rollouts for tally in tallies):
        steps, rows = _empty_columns(adapter)
        writer.append(steps)
        table.append(_with_flags(rows, {}))
    writer.close()
    table.close()
    if beside is not None:
        beside.close()
    return PassResult(
        tallies,
        [_preferred(tally) for tally in tallies],
        referee,
        tasks,
        dict(sorted(flags.items())),
        seen.clusters,
        workers.steps,
        sorted(replaced),
    )


class _Seen:
    """Fingerprints and clusters of the rollouts so far: sixteen bytes a rollout, sorted, merged as they double."""

    def __init__(self) -> None:
        self._sorted: list[AnyArray] = []  # fingerprints, each array sorted and shorter than the one before
        self._clusters: list[AnyArray] = []

    def add(self, prints: AnyArray, clusters: AnyArray) -> BoolArray:
        """Which of these rollouts are equal to an earlier one, (n,)."""
        _merge(self._clusters, np.unique(clusters))
        distinct, first = np.unique(prints, return_index=True)
        repeated = np.ones(len(prints), bool)
        repeated[first] = False
        for known in self._sorted:
            place = np.minimum(np.searchsorted(known, prints), len(known) - 1)
            repeated |= known[place] == prints
        _merge(self._sorted, distinct)
        return repeated

    @property
    def clusters(self) -> int:
        """Distinct clusters so far."""
        return len(np.unique(np.concatenate(self._clusters))) if self._clusters else 0


def _merge(runs: list[AnyArray], more: AnyArray) -> None:
    """Add sorted distinct values, so that the arrays stay few: each is at least twice as long as the next."""
    while runs and len(runs[-1]) < 2 * len(more):
        more = np.union1d(runs.pop(), more)
    if len(more):
        runs.append(more)


class _Workers:
    """Checks several batches at once, each with an adapter of its own, and gives the scores back in order."""

    def __init__(self, adapter: EnvAdapter) -> None:
        self._first = adapter
        self._before = adapter.steps_executed
        self._size = adapter.spec.batch_transitions
        self._count = min(adapter.spec.batches_at_once, os.cpu_count() or 1)
        others = [again(adapter) for _ in range(self._count - 1)]
        self._adapters = [adapter, *others]
        self._spare: queue.SimpleQueue[EnvAdapter] = queue.SimpleQueue()
        for each in self._adapters:
            self._spare.put(each)
        self._pool = ThreadPoolExecutor(self._count)
        self._executed: int | None = None

    @property
    def steps(self) -> int:
        """Simulator steps executed so far, also after closing."""
        if self._executed is not None:
            return self._executed
        return sum(adapter.steps_executed for adapter in self._adapters) - self._before

    def run(self, source: Source, placer: Placer, label: Labels) -> Iterator[tuple[Rollouts, Scored]]:
        waiting: deque[tuple[Rollouts, Future[Scored]]] = deque()
        for rollouts in source.batches(self._size):
            rollouts = of_task(rollouts, label.task.task if label.task else None)
            placed = placer.place(rollouts, label.task)
            waiting.append((rollouts, self._pool.submit(self._score, rollouts, *placed, label)))
            if len(waiting) > self._count:
                first, score = waiting.popleft()
                yield first, score.result()
        for first, score in waiting:
            yield first, score.result()

    def _score(self, rollouts: Rollouts, placements: list[Placement], which: IntArray, label: Labels) -> Scored:
        adapter = self._spare.get()
        try:
            with np.errstate(over="ignore", invalid="ignore"):  # of numbers that the checks find wanting
                return score_batch(adapter, rollouts, placements, which, label)
        finally:
            self._spare.put(adapter)

    def close(self) -> None:
        self._pool.shutdown(cancel_futures=True)
        self._executed = self.steps
        for adapter in self._adapters:
            if adapter is not self._first:
                adapter.close()


def _preferred(tally: Tally) -> str | None:
    """The reading with the fewest wrong rewards; the first of equals."""
    return min(tally.reward_wrong, key=lambda name: tally.reward_wrong[name]) if tally.reward_wrong else None


def _with_flags(part: Mapping[str, Any], flags: Mapping[str, BoolArray]) -> pa.Table:
    """The columns of some rollouts as the file has them."""
    table = pa.table(dict(part)).cast(_schema(part))
    lists = pa.array(as_lists(dict(flags), table.num_rows), pa.list_(pa.string()))
    return table.append_column("flags", lists).select(list(ROLLOUT_COLUMNS))


def _schema(part: Mapping[str, Any]) -> pa.Schema:
    return pa.schema([(name, ROLLOUT_COLUMNS[name]) for name in part])


def _empty_columns(adapter: EnvAdapter) -> tuple[dict[str, Any], dict[str, Any]]:
    blocks = {f"err_{block.name}": pa.float32() for block in adapter.spec.blocks}
    steps = {name: pa.array([], kind) for name, kind in {**TRANSITION_COLUMNS, **blocks}.items()}
    rollouts = {name: pa.array([], kind) for name, kind in ROLLOUT_COLUMNS.items() if name != "flags"}
    return steps, rollouts


def relabel(labels: Sequence[Labels], readings: Sequence[str | None]) -> list[Labels]:
    """The labels with the reward reading of each input."""
    return [replace(label, reading=reading) for label, reading in zip(labels, readings, strict=True)]
