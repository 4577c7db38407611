"""What a filter does to a data set beside raising its quality: who is kept, and what is no longer there."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from qualcheck.stats import clopper_pearson
from qualcheck.types import AnyArray, BoolArray, FloatArray, IntArray

MOST = 50  # instructions listed, those with the most rollouts
LENGTH_BINS = 5
HARD = ((0.0, 0.5), (0.5, 0.9), (0.9, 0.99), (0.99, 1.0))  # share of random episodes that miss the goal of the task
FEW = 10  # rollouts of a task that are left


def side_effects(
    rollouts: Mapping[str, AnyArray],
    kept: BoolArray,
    length_kept: IntArray,
    random_floor: Mapping[str, float],
    coverage: dict[str, dict[str, Any]],
) -> dict[str, Any]:
    """The content of OUT.audit.json.

    Args:
        rollouts: columns of the run, (N,) each: task, level, instruction, length, consistency, cluster; and
            `consistency_kept`, that of the best kept piece, NaN where there is none.
        kept: (N,) rollouts of which at least a piece is kept.
        length_kept: (N,) transitions of them that are kept.
        random_floor: task -> success of a random policy; difficulty is 1 minus it.
        coverage: of states, see `qualcheck.filters.coverage`.
    """
    task = rollouts["task"]
    share = {
        "task": _shares(task, kept),
        "level": _shares(rollouts["level"], kept),
        "instruction": _shares(rollouts["instruction"], kept)[:MOST],
        "length": _shares(_length_bins(rollouts["length"]), kept, in_order=True),
        "difficulty": _shares(_difficulty(task, random_floor), kept, in_order=True),
    }
    found = {
        "schema": 1,
        "rollouts": _share("all", len(kept), int(kept.sum())),
        "kept_share_by": share,
        "states": coverage,
        "empty_tasks": [entry["name"] for entry in share["task"] if not entry["kept"]],
        "vanished_sub_goals": _vanished(task, rollouts["consistency"], rollouts["consistency_kept"]),
        "effective_rollouts": {
            "before": _kish(rollouts["length"].astype(np.float64)),
            "after": _kish(length_kept[kept].astype(np.float64)),
        },
        "distinct_starts": {
            "before": len(np.unique(rollouts["cluster"])),
            "after": len(np.unique(rollouts["cluster"][kept])),
        },
    }
    return {**found, "warnings": _warnings(found)}


def lines(found: Mapping[str, Any]) -> list[str]:
    """The same for people: warnings first, then a short table."""
    whole = found["rollouts"]
    out = [f"side effects: {text}" for text in found["warnings"]] or ["side effects: no task or sub-goal is lost"]
    for by in ("level", "task", "length", "difficulty"):
        entries = found["kept_share_by"][by]
        if len(entries) > 1:
            out.append(f"  kept by {by}: " + "; ".join(f"{e['name']} {_said(e)}" for e in entries[:12]))
    joint = found["states"].get("all blocks")
    if joint:
        out.append(
            f"  states: {joint['cells_after']:,} of {joint['cells_before']:,} cells still visited (a random subset of "
            f"this size: {joint['cells_random']:,.0f}), entropy {joint['entropy_before']:.2f} to "
            f"{joint['entropy_after']:.2f} nats"
        )
    effective, starts = found["effective_rollouts"], found["distinct_starts"]
    out.append(
        f"  effective rollouts {effective['before']:,.0f} to {effective['after']:,.0f} (Kish, by transitions), "
        f"distinct starts {starts['before']:,} to {starts['after']:,}, kept in all {_said(whole)}"
    )
    return out


def _share(name: str, n: int, k: int) -> dict[str, Any]:
    low, high = clopper_pearson(k, n)
    return {"name": name, "all": n, "kept": k, "share": k / n if n else None, "low": low, "high": high}


def _said(entry: Mapping[str, Any]) -> str:
    if entry["share"] is None:
        return "-"
    low, high = 100 * entry["low"], 100 * entry["high"]
    return f"{100 * entry['share']:.0f} % of {entry['all']:,} [{low:.0f}, {high:.0f}]"


def _shares(names: AnyArray, kept: BoolArray, in_order: bool = False) -> list[dict[str, Any]]:
    """Kept share of each name, the most frequent first or in the order of the names."""
    distinct, member = np.unique(names, return_inverse=True)
    every = np.bincount(member.reshape(-1), minlength=len(distinct))
    mine = np.bincount(member.reshape(-1)[kept], minlength=len(distinct))
    found = [
        _share(str(name) or "(none)", int(n), int(k)) for name, n, k in zip(distinct, every, mine, strict=True) if n
    ]
    return found if in_order else sorted(found, key=lambda entry: (-entry["all"], entry["name"]))


def _length_bins(length: IntArray) -> AnyArray:
    """A name for each length, which sorts as the lengths do, (N,)."""
    if not len(length):
        return np.zeros(0, str)
    edges = np.unique(np.quantile(length, np.linspace(0, 1, LENGTH_BINS + 1)).astype(np.int64))
    width = len(str(int(edges[-1])))
    place = np.clip(np.searchsorted(edges, length, side="right") - 1, 0, max(len(edges) - 2, 0))
    last = len(edges) - 2
    names = [
        f"{low:{width}d} to {high if at == last else high - 1:{width}d} steps"
        for at, (low, high) in enumerate(zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True))
    ] or [f"{int(edges[0])} steps"]
    return np.array(names)[place]


def _difficulty(task: AnyArray, random_floor: Mapping[str, float]) -> AnyArray:
    names = []
    for name in task.tolist():
        floor = random_floor.get(name)
        if floor is None:
            names.append("unknown")
            continue
        low, high = next(((a, b) for a, b in HARD if 1 - floor < b), HARD[-1])
        names.append(f"random policy misses {100 * low:.0f} to {100 * high:.0f} %")
    return np.array(names, str)


def _vanished(task: AnyArray, before: FloatArray, after: FloatArray) -> list[dict[str, Any]]:
    """Tasks of which no kept piece reaches as many sub-goals at once as some rollout did."""
    found = []
    for name in np.unique(task):
        mine = task == name
        most, left = (float(np.nanmax(values[mine], initial=0.0)) for values in (before, after))
        if name and left < most - 1e-6:
            found.append({"task": str(name), "share_before": most, "share_after": left})
    return found


def _kish(weight: FloatArray) -> float:
    """(sum w)^2 / sum w^2, the number of equal weights that say as much. Source: Kish, Survey Sampling (1965)."""
    total = float((weight**2).sum())
    return float(weight.sum()) ** 2 / total if total else 0.0


def _warnings(found: Mapping[str, Any]) -> list[str]:
    lost = []
    for entry in found["kept_share_by"]["task"]:
        if not entry["kept"]:
            lost.append(f"task {entry['name']}: none of {entry['all']:,} rollouts is kept")
        elif entry["kept"] < FEW <= entry["all"]:
            lost.append(f"task {entry['name']}: only {entry['kept']} of {entry['all']:,} rollouts are kept")
    named = {text.split(":")[0] for text in lost}
    for gone in found["vanished_sub_goals"]:
        if f"task {gone['task']}" not in named:
            lost.append(
                f"task {gone['task']}: no kept rollout reaches more than {gone['share_after']:.2g} of its sub-goals, "
                f"{gone['share_before']:.2g} was reached before"
            )
    whole = found["rollouts"]
    for by in ("level", "length", "difficulty"):
        for entry in found["kept_share_by"][by]:
            if entry["all"] >= FEW and whole["share"] and entry["high"] < 0.5 * whole["share"]:
                lost.append(
                    f"{by} {' '.join(entry['name'].split())}: {_said(entry)} kept, less than half of the share of all"
                )
    joint = found["states"].get("all blocks")
    if joint and joint["cells_random"] and joint["cells_after"] < 0.8 * joint["cells_random"]:
        lost.append(
            f"states: {joint['cells_after']:,} cells visited where a random subset of the same size visits "
            f"{joint['cells_random']:,.0f}"
        )
    return lost
