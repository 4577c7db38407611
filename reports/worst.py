"""The rollouts that would do most harm in a training set: high in imagined reward, refuted by the replay."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from qualcheck.reports.rates import decided
from qualcheck.table import Run

MOST = 10
COLUMNS = (
    "rollout", "env", "level", "generator", "task", "gc_imagined", "gc_replayed", "correctness", "legality",
    "imagined_return", "first_fault_step",
)  # fmt: skip


def worst(runs: Sequence[Run], most: int = MOST) -> list[dict[str, Any]]:
    """At most so many rollouts, worst first, each with its run and index for `inspect`.

    A rollout is on the list if it claims something that is not so: its goal is reached as imagined and not in the
    replay ("fabricated"), or it has a step that is wrong or illegal. Fabricated ones come first; among equals the one
    with the higher imagined return, ranked within its task since tasks pay differently, then the less correct one.
    """
    found: list[tuple[tuple[float, ...], dict[str, Any]]] = []
    for number, run in enumerate(runs):
        table = run.rollouts(list(COLUMNS))
        text = {name: table[name].to_pylist() for name in ("env", "level", "generator", "task")}
        column = {name: table[name].to_numpy() for name in COLUMNS if name not in text}
        fabricated = (column["gc_imagined"] == 1) & (decided(column["gc_replayed"]) == 0)
        faulty = column["first_fault_step"] >= 0
        pay = _rank_within(np.array(text["task"], str), column["imagined_return"])
        right = np.nan_to_num(column["correctness"], nan=1.0)
        for at in np.flatnonzero(fabricated | faulty).tolist():
            key = (not fabricated[at], -pay[at], right[at], number, at)
            entry = {
                "run": number,  # place in the list of runs
                **{name: text[name][at] for name in text},
                **{name: _number(column[name][at]) for name in column},
                "why": "fabricated: the goal is reached as imagined, not in the replay"
                if fabricated[at]
                else "wrong or illegal steps",
            }
            found.append((key, entry))
        found = sorted(found, key=lambda pair: pair[0])[:most]
    return [entry for _, entry in found]


def _rank_within(group: Any, values: Any) -> Any:
    """Share of the group's rollouts with a lower value, (N,); 0 where the value is not known."""
    rank = np.zeros(len(values))
    for name in np.unique(group):
        mine = np.flatnonzero((group == name) & np.isfinite(values))
        if len(mine):
            ordered = np.sort(values[mine])
            rank[mine] = np.searchsorted(ordered, values[mine], side="left") / len(mine)
    return rank


def _number(value: Any) -> float | int | None:
    if isinstance(value, (int, np.integer)):
        return int(value)
    return None if not np.isfinite(value) else float(value)
