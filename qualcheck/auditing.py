"""`filter --audit`: reads what a filtering kept, and says what it did beside."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from qualcheck.filters.coverage import Coverage, Edges
from qualcheck.filters.decide import Decision
from qualcheck.filters.side_effects import side_effects
from qualcheck.io import Source
from qualcheck.table import Run
from qualcheck.types import AnyArray, BoolArray, IntArray

SAMPLE = 20_000  # rows that the bins are learnt from
BATCH = 65_536  # transitions
COLUMNS = ("task", "level", "instruction", "length", "consistency", "cluster")


def audit(
    run: Run,
    sources: Sequence[Source],
    firsts: Sequence[int],
    decision: Decision,
    candidate: BoolArray,
    offsets: IntArray,
) -> dict[str, Any]:
    """The side effects of a filtering.

    Args:
        run: that was filtered.
        sources: its selected inputs.
        firsts: row of rollouts.parquet at which each of them begins.
        decision: what is kept.
        candidate: (N,) rollouts of the selected inputs.
        offsets: (N+1,) first transition of each rollout.
    """
    table = run.rollouts(list(COLUMNS))
    columns: dict[str, AnyArray] = {}
    for name in COLUMNS:
        values = table[name]
        text = name in ("task", "level", "instruction")
        columns[name] = np.array([v or "" for v in values.to_pylist()], str) if text else values.to_numpy()
    best = np.full(len(offsets) - 1, -np.inf)
    reached = decision.scores["consistency"]
    np.maximum.at(best, decision.pieces.rollout, np.where(np.isnan(reached), -np.inf, reached))
    columns["consistency_kept"] = np.where(np.isinf(best), np.nan, best)
    kept_steps = decision.transition_reason == 0
    total = np.concatenate([[0], np.cumsum(kept_steps)])
    length_kept = total[offsets[1:]] - total[offsets[:-1]]
    floors = run.manifest["results"].get("floors") or {}
    return side_effects(
        {name: values[candidate] for name, values in columns.items()},
        (decision.rollout_reason == 0)[candidate],
        length_kept[candidate],
        {task: entry["random"][0] / entry["random"][1] for task, entry in floors.items() if entry.get("random")},
        _states(sources, firsts, kept_steps, offsets),
    )


def _states(
    sources: Sequence[Source], firsts: Sequence[int], kept: BoolArray, offsets: IntArray
) -> dict[str, dict[str, Any]]:
    transitions = sum(source.n_transitions for source in sources)
    if not transitions:
        return {}
    every = max(1, transitions // SAMPLE)
    # copies: a view would hold the whole batch in memory
    sampled = [batch.start_obs[::every].copy() for source in sources for batch in source.batches(BATCH)]
    coverage = Coverage(sources[0].spec, Edges.learn(np.concatenate(sampled)))
    for source, first in zip(sources, firsts, strict=True):
        at = int(offsets[first])
        for batch in source.batches(BATCH):
            coverage.add(batch.start_obs, kept[at : at + batch.n_transitions])
            at += batch.n_transitions
    return coverage.summary()
