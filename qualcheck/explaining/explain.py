"""Findings say what a file is; an explanation says how it would have to be changed, and how much that explains."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq

from qualcheck.adapter import EnvAdapter
from qualcheck.explaining import bounds, ends, labels, timing, turns, units, worlds
from qualcheck.explaining.deciding import HOPELESS, LEAST_ERROR, LEAST_SHARE, SURELY, best, share_of, weigh
from qualcheck.explaining.hypothesis import RowStatistics, Subject
from qualcheck.explaining.real_rows import known_rows, statistics_of
from qualcheck.explaining.sample import MOST_FILTERED, MOST_TRANSITIONS, choose, gather, lengths
from qualcheck.inputs import Inputs
from qualcheck.io import Source, read_statistics
from qualcheck.options import ScoreOptions
from qualcheck.scoring import Labels, Placer, of_task
from qualcheck.types import FloatArray, IntArray, Rollouts

PROPOSERS = (timing.propose, bounds.propose, turns.propose, units.propose, ends.propose, worlds.propose)
SCREEN_ROLLOUTS, SCREEN_TRANSITIONS = 16, 250
LOOK_WRONG, LOOK_STRICT = 0.02, 0.2  # share of transitions not right, or over the noise floor, that a look is worth


def explain_run(
    inputs: Inputs,
    sources: Sequence[Source],
    labelled: Sequence[Labels],
    folder: Path,
    options: ScoreOptions,
    beside: Inputs | None = None,
) -> list[dict[str, Any]]:
    """The explanations of a scored folder, one entry each, in the order of its inputs.

    Args:
        inputs: opened files.
        sources: the same, with the rollouts that were scored.
        labelled: what their run says of each.
        folder: with the tables of the run.
        options: of the run.
        beside: real rollouts of --reference.
    """
    doubtful = _doubtful(folder / "transitions.parquet")
    given = None
    if options.obs_mean is not None and options.obs_std is not None:
        given = read_statistics(options.obs_mean), read_statistics(options.obs_std)
    rows = [statistics_of(source) for source in (beside.sources if beside is not None else ())]
    real = (*(each for each in rows if each is not None), *known_rows(inputs.adapter.spec))
    whole = all(seen is source for seen, source in zip(sources, inputs.sources, strict=True))
    known: list[tuple[IntArray, Sequence[str] | IntArray]] = (
        [*_in_table(folder, sources)] if whole else [lengths(source) for source in sources]
    )
    found: list[dict[str, Any]] = []
    for source, label, (length, stratum) in zip(sources, labelled, known, strict=True):
        found += explain(inputs.adapter, source, label, length, stratum, options.seed, real, given, doubtful)
    return found


def _in_table(folder: Path, sources: Sequence[Source]) -> list[tuple[IntArray, IntArray]]:
    """Transitions and number of the task of each rollout of each source, one after another as in the table."""
    table = pq.read_table(folder / "rollouts.parquet", columns=["length", "task"])
    length, coded = table["length"].to_numpy(), table["task"].combine_chunks().dictionary_encode()
    place = np.argsort(np.argsort(np.array(coded.dictionary.to_pylist(), str)))  # numbers in the order of the names
    task = place[coded.indices.to_numpy()].astype(np.int32) if len(coded) else np.zeros(0, np.int32)
    ends = np.cumsum([source.n_rollouts for source in sources]).tolist()
    return [(length[begin:end], task[begin:end]) for begin, end in zip([0, *ends], ends, strict=False)]


def _doubtful(path: Path) -> bool:
    """Whether enough transitions of a table are not right for their errors to be worth an explanation."""
    total = wrong = strict = 0
    with pq.ParquetFile(path) as file:
        for part in file.iter_batches(columns=["tc", "tc_strict"]):
            total += part.num_rows
            wrong += int((part["tc"].to_numpy() != 1).sum())
            strict += int((part["tc_strict"].to_numpy() == 0).sum())
    return total > 0 and (wrong >= LOOK_WRONG * total or strict >= LOOK_STRICT * total)


def explain(
    adapter: EnvAdapter,
    source: Source,
    label: Labels,
    length: IntArray,
    stratum: Sequence[str] | IntArray,
    seed: int = 0,
    real: tuple[RowStatistics, ...] = (),
    given: tuple[FloatArray, FloatArray] | None = None,
    doubtful: bool = True,
) -> list[dict[str, Any]]:
    """The explanations of one file.

    Args:
        adapter: of its layout and family.
        source: the file, opened.
        label: as its run judges it.
        length: (N,) transitions of each rollout.
        stratum: (N,) of the sample.
        seed: of the sample and of the intervals.
        real: what rows of real files look like, the likeliest first.
        given: means and deviations that the file was multiplied back with.
        doubtful: False: only labels are looked at, errors are too few.
    """
    most = MOST_TRANSITIONS if adapter.spec.restores == "exact" else MOST_FILTERED
    order = choose(length, stratum, np.random.default_rng(seed), most)
    rollouts = gather(source, order)
    if rollouts is None:
        return []
    subject = _subject(adapter, rollouts, label, real, given)
    with np.errstate(over="ignore", invalid="ignore"):  # of numbers that the checks find wanting
        found = [_of_labels(trial, rollouts) for trial in labels.trials(subject)]
        if doubtful:
            found = _of_errors(subject, np.argsort(np.argsort(order)), seed) + found
    named = [entry for entry in found if entry is not None]
    return [{"input": str(source.path), **entry, "text": f"{source.path}: {entry['text']}"} for entry in named]


def _subject(
    adapter: EnvAdapter,
    rollouts: Rollouts,
    label: Labels,
    real: tuple[RowStatistics, ...],
    given: tuple[FloatArray, FloatArray] | None,
) -> Subject:
    if label.start != "auto" or rollouts.is_reset is None:
        rollouts = replace(rollouts, is_reset=np.full(rollouts.n_rollouts, label.start != "any"))
    rollouts = of_task(rollouts, label.task.task if label.task else None)
    placements, which = Placer(adapter).place(rollouts, label.task)
    size = adapter.spec.obs_size
    cut = None if given is None else (given[0][:size], given[1][:size])
    return Subject(rollouts, adapter, label, placements, which, real, cut)


def _of_errors(subject: Subject, drawn: IntArray, seed: int) -> list[dict[str, Any] | None]:
    """The explanation of the errors of transitions, if there is one; most hypotheses fail in a small sample already."""
    small = subject.only(_first(subject.rollouts, drawn))
    if not _mean(small.before) >= LEAST_ERROR / 2:
        return []
    likely = []
    for hypothesis in (each for propose in PROPOSERS for each in propose(subject)):
        quick = weigh(small, hypothesis, hypothesis.trial(small), seed)
        if quick is None or quick.share >= HOPELESS:
            likely.append(hypothesis)
    if not likely or not _mean(subject.before) >= LEAST_ERROR:
        return []
    tried = [weigh(subject, hypothesis, hypothesis.trial(subject), seed) for hypothesis in likely]
    weighed = [each for each in tried if each is not None]
    winner, rivals = best(weighed)
    if winner is None:
        return []
    other = list(dict.fromkeys(each.hypothesis.what for each in rivals))
    hypothesis, n = winner.hypothesis, subject.rollouts.n_rollouts
    text = (
        f"{hypothesis.what}; {hypothesis.remedy} explains {100 * winner.share:.0f} % of the error of {n} sampled "
        f"rollouts (95 % interval {100 * winner.low:.0f} to {100 * winner.high:.0f})"
        f"{'; not told apart from: ' + ', '.join(other) if other else ''}"
    )
    return [
        {
            "kind": hypothesis.kind,
            "what": hypothesis.what,
            "remedy": hypothesis.remedy,
            "share": round(winner.share, 4),
            "low": round(winner.low, 4),
            "high": round(winner.high, 4),
            "error_before": round(winner.before, 6),
            "error_after": round(winner.after, 6),
            "rollouts": n,
            "transitions": subject.rollouts.n_transitions,
            "rivals": other,
            "text": text,
        }
    ]


def _mean(error: FloatArray) -> float:
    """Mean of the errors that are known, 0 where none is."""
    known = error[~np.isnan(error)]
    return float(known.mean()) if len(known) else 0.0


def _first(rollouts: Rollouts, drawn: IntArray) -> IntArray:
    """The rollouts that were drawn first, up to 16 and some 250 transitions, at least 4, in order."""
    order = np.argsort(drawn)
    enough = np.searchsorted(np.cumsum(rollouts.length[order]), SCREEN_TRANSITIONS) + 1
    return np.sort(order[: min(max(int(enough), 4), SCREEN_ROLLOUTS)])


def _of_labels(trial: labels.LabelTrial, rollouts: Rollouts) -> dict[str, Any] | None:
    """The explanation of rollouts whose label is in doubt, by the same bars."""
    share, low, high = share_of(trial.explained, trial.wrong)
    if share < LEAST_SHARE or low < SURELY:
        return None
    text = (
        f"{trial.what}; {trial.remedy} explains {int(trial.explained.sum())} of {int(trial.wrong.sum())} rollouts that "
        f"do not fit theirs, of {trial.judged} judged"
    )
    return {
        "kind": trial.kind,
        "what": trial.what,
        "remedy": trial.remedy,
        "share": round(share, 4),
        "low": round(low, 4),
        "high": round(high, 4),
        "error_before": round(float(trial.wrong.sum()) / max(trial.judged, 1), 6),
        "error_after": round(float((trial.wrong & ~trial.explained).sum()) / max(trial.judged, 1), 6),
        "rollouts": rollouts.n_rollouts,
        "transitions": rollouts.n_transitions,
        "rivals": [],
        "text": text,
    }
