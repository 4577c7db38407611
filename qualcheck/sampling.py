"""Audits on a budget: which rollouts are scored, and when enough of them are.

Whole rollouts are drawn, in proportion to their tasks: within each task in random order, and the tasks interleaved so
that every beginning of the list holds them in proportion and every rollout with the same probability. Rates of the
drawn rollouts are then rates of the file, without weights. Their intervals leave out what the strata and the finite
file would narrow, so they err on the wide side.

With a target width the sample grows by planned looks, each twice the one before. An interval at each of K looks holds
at 1 - 0.05 / K, so that all of them hold together at 95 %, and with them the one at which the run stops (Bonferroni
over planned looks: Armitage, Sequential Medical Trials, 1975).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from qualcheck.adapter import EnvAdapter
from qualcheck.io import Source
from qualcheck.scoring import Labels, Placer, of_task
from qualcheck.stats import LEVEL, Interval, clopper_pearson, korn_graubard
from qualcheck.subset import Subset
from qualcheck.types import AnyArray, BoolArray, IntArray

FIRST_LOOK = 64  # rollouts
WIDTH_COLUMNS = ("gc_imagined", "correctness", "legality", "coverage_tc", "coverage_dl", "length", "cluster")
NOTHING = (float("nan"), None)  # a rate without a verdict


@dataclass(frozen=True)
class Plan:
    """The rollouts of a budgeted run, look by look."""

    looks: list[list[Source]]  # of each look the inputs, with the rollouts that are new in it
    places: list[list[IntArray]]  # the same as places in each input
    level: float  # of the intervals of this run
    of: int  # rollouts in the inputs

    def seen(self, sources: Sequence[Source], looks: int) -> list[Source]:
        """The inputs with the rollouts of so many looks alone."""
        found: list[Source] = []
        for number, source in enumerate(sources):
            keep: BoolArray = np.zeros(source.n_rollouts, bool)
            for look in self.places[:looks]:
                keep[look[number]] = True
            found.append(Subset(source, keep))
        return found

    def done(self, looks: int, rollouts: Mapping[str, AnyArray], target: float | None) -> dict[str, Any]:
        """What the manifest says when so many looks were taken.

        Args:
            looks: parts that were scored.
            rollouts: `WIDTH_COLUMNS` of them, (N,) each.
            target: width at which scoring was to stop; None: it was not asked for.
        """
        found = headline(rollouts, self.level)
        return {
            "target_width": target,
            "reached": None if target is None else _reached(found, target),
            "rates": {
                name: None if limits is None else {"value": value, "low": limits.low, "high": limits.high}
                for name, (value, limits) in found.items()
            },
            "rollouts": sum(len(at) for look in self.places[:looks] for at in look),
            "of": self.of,
            "looks": looks,
            "planned_looks": len(self.looks),
            "level": self.level,
            "order": [[at.tolist() for at in look] for look in self.places[:looks]],
        }


def plan(
    adapter: EnvAdapter,
    sources: Sequence[Source],
    labels: Sequence[Labels],
    sample: int | None,
    seed: int,
) -> Plan:
    """Draw the rollouts, all at once or by looks.

    Args:
        adapter: places the instructions.
        sources: opened inputs.
        labels: what is said of each.
        sample: rollouts to draw; None: by looks that double, until there are no more.
        seed: of the draw.
    """
    stratum, source, place = _strata(adapter, sources, labels)
    order = proportional_order(stratum, np.random.default_rng(seed))
    total = len(order)
    ends = [min(sample, total)] if sample is not None else look_sizes(total)
    length = [np.concatenate([b.length for b in s.batches()] or [np.zeros(0, np.int64)]) for s in sources]
    looks: list[list[Source]] = []
    places: list[list[IntArray]] = []
    for begin, end in zip([0, *ends], ends, strict=False):
        mine = order[begin:end]
        keeps: list[Source] = []
        found: list[IntArray] = []
        for number, each in enumerate(sources):
            keep: BoolArray = np.zeros(each.n_rollouts, bool)
            keep[place[mine[source[mine] == number]]] = True
            keeps.append(Subset(each, keep, length[number]))
            found.append(np.flatnonzero(keep))
        looks.append(keeps)
        places.append(found)
    return Plan(looks, places, 1 - (1 - LEVEL) / max(len(ends), 1), total)


def look_sizes(total: int) -> list[int]:
    """Rollouts scored at each look: 64, twice as many at each next one, all of them at the last."""
    sizes = []
    size = FIRST_LOOK
    while size < total:
        sizes.append(size)
        size *= 2
    return [*sizes, total]


def proportional_order(stratum: IntArray, rng: np.random.Generator) -> IntArray:
    """An order of N rollouts whose every beginning holds the strata in proportion, (N,) -> (N,).

    The i-th rollout of a stratum of n, in random order, has the key (i + u) / n with one u for the stratum: the share
    t of smallest keys holds floor or ceil of t n of each stratum, and each rollout with probability t (systematic
    sampling: Madow and Madow, Annals of Mathematical Statistics 15, 1944).
    """
    key = np.empty(len(stratum))
    for name in np.unique(stratum):
        mine = np.flatnonzero(stratum == name)
        key[mine] = (rng.permutation(len(mine)) + rng.random()) / len(mine)
    return np.argsort(key, kind="stable")


def narrow_enough(level: float, target: float) -> Callable[[Sequence[Mapping[str, Any]]], bool]:
    """Whether the intervals of all headline rates are so narrow; rates without any verdict are not waited for.

    Args:
        level: of the intervals.
        target: largest width.
    """

    def enough(parts: Sequence[Mapping[str, Any]]) -> bool:
        columns = {name: np.concatenate([np.asarray(part[name]) for part in parts]) for name in WIDTH_COLUMNS}
        return _reached(headline(columns, level), target)

    return enough


def finding(sample: Mapping[str, Any] | None) -> list[str]:
    """What a reader must know of a run that did not see every rollout."""
    if sample is None:
        return []
    told = "; ".join(
        f"{name.replace('_', ' ')} {100 * rate['value']:.1f} % [{100 * rate['low']:.1f}, {100 * rate['high']:.1f}]"
        for name, rate in sample["rates"].items()
        if rate
    )
    lines = [f"sample: {told}"] if told else []
    if sample["reached"] is False:
        lines.append(
            f"sample: not all of these intervals are as narrow as --target-width {sample['target_width']:g}, "
            "and there are no more rollouts"
        )
    if sample["rollouts"] == sample["of"]:
        return [f"sample: all {sample['of']:,} rollouts were scored", *lines]
    looks = ""
    if sample["planned_looks"] > 1:
        looks = (
            f"; {sample['looks']} of {sample['planned_looks']} planned looks were taken, and intervals are of level "
            f"{100 * sample['level']:.1f} %, which hold together at 95 %"
        )
    return [
        f"sample: {sample['rollouts']:,} of {sample['of']:,} rollouts, drawn in proportion to their tasks; the rates "
        f"are estimates for all of them{looks}",
        *lines,
    ]


def headline(rollouts: Mapping[str, AnyArray], level: float) -> dict[str, tuple[float, Interval | None]]:
    """Each headline rate of all rollouts together, with its interval, None where nothing was verified.

    Args:
        rollouts: columns (N,): gc_imagined, correctness, legality, coverage_tc, coverage_dl, length, cluster.
        level: of the intervals.
    """
    goal = rollouts["gc_imagined"]
    known = ~np.isnan(goal)
    reached, n_known = float(goal[known].sum()), int(known.sum())
    found: dict[str, tuple[float, Interval | None]] = {
        "goal_consistency": (reached / n_known, clopper_pearson(reached, n_known, level)) if n_known else NOTHING
    }
    _, cluster = np.unique(rollouts["cluster"], return_inverse=True)
    for name, share, coverage in (
        ("transition_correctness", "correctness", "coverage_tc"),
        ("dynamics_legality", "legality", "coverage_dl"),
    ):
        n = np.round(np.nan_to_num(rollouts[coverage].astype(np.float64)) * rollouts["length"])
        k = np.round(np.nan_to_num(rollouts[share].astype(np.float64)) * n)
        if not n.sum():
            found[name] = NOTHING
            continue
        limits = korn_graubard(np.bincount(cluster, k), np.bincount(cluster, n), level)
        found[name] = (float(k.sum() / n.sum()), Interval(limits.low, limits.high))
    return found


def _reached(found: Mapping[str, tuple[float, Interval | None]], target: float) -> bool:
    """Whether every rate with a verdict is so narrow, and there is one."""
    widths = [limits.high - limits.low for _, limits in found.values() if limits is not None]
    return bool(widths) and max(widths) <= target


def _strata(
    adapter: EnvAdapter, sources: Sequence[Source], labels: Sequence[Labels]
) -> tuple[IntArray, IntArray, IntArray]:
    """Task, input and place in it of every rollout, (N,) each."""
    placer = Placer(adapter)
    names: dict[str, int] = {}
    stratum: list[int] = []
    source: list[IntArray] = []
    place: list[IntArray] = []
    for number, (each, label) in enumerate(zip(sources, labels, strict=True)):
        first = 0
        for batch in each.batches(adapter.spec.batch_transitions):
            rollouts = of_task(batch, label.task.task if label.task else None)
            placements, which = placer.place(rollouts, label.task)
            stratum += [names.setdefault(placements[at].task, len(names)) for at in which.tolist()]
            first += rollouts.n_rollouts
        source.append(np.full(first, number, np.int64))
        place.append(np.arange(first))
    none = np.zeros(0, np.int64)
    return np.array(stratum, np.int64), np.concatenate([none, *source]), np.concatenate([none, *place])
