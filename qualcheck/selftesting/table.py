"""What a self-test found: detection by fault and size, false alarms, smallest faults that are seen, and the bars."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np

from qualcheck.selftesting.judging import Verdicts, found_at
from qualcheck.selftesting.plant import Plant
from qualcheck.stats import Interval, clopper_pearson

CLEAR = 2.0  # tolerances from which a fault must be found
FALSE_ALARMS = 0.05  # largest share of honest steps that may be rejected
HALF = 0.5


@dataclass(frozen=True)
class Row:
    """One fault at one size."""

    fault: str
    size: str
    metric: str
    n: int
    at_step: int
    within_3: int
    strict: int  # at its step, at the noise floor
    counted: int  # whose effect is at least `CLEAR` tolerances
    counted_found: int  # of them, at their step
    effect_median: float | None  # in tolerances
    low: float
    high: float


@dataclass
class SelfTest:
    """Everything a self-test says; `passed` is what its exit code stands for."""

    env: str
    source: str
    rollouts: int
    grade: str
    tolerance: str
    rows: list[Row]
    honest_steps: int
    false_alarms: int
    false_alarms_strict: int
    after_fault_steps: int
    after_fault_alarms: int
    rules: int
    rules_unbroken: list[str]
    smallest: dict[str, float | None]
    stubs: dict[str, dict[str, Any]]
    bar: float
    failures: list[str] = field(default_factory=list)

    @property
    def passed(self) -> bool:
        return not self.failures

    def to_json(self) -> dict[str, Any]:
        return {"schema": 1, **asdict(self), "passed": self.passed}


@dataclass(frozen=True)
class Tally:
    """How one checker fares."""

    rows: list[Row]
    honest: int
    alarms: int
    alarms_strict: int
    after: int
    after_alarms: int


def tally(plants: Sequence[Plant], effects: Sequence[float], verdicts: Verdicts, clean: Verdicts) -> Tally:
    """Count what a checker says of the plants and of the untouched rollouts.

    Steps before a fault and those of untouched rollouts are honest; the few right after a fault are left out, since
    they start from a false row; later ones are counted apart.
    """
    rows: list[Row] = []
    keys = list(dict.fromkeys((plant.fault, plant.size, plant.metric) for plant in plants))
    for key in keys:
        mine = [k for k, plant in enumerate(plants) if (plant.fault, plant.size, plant.metric) == key]
        hits = [found_at(plants[k], verdicts, k) for k in mine]
        strict = [found_at(plants[k], verdicts, k, strict=True)[0] for k in mine]
        big = [i for i, k in enumerate(mine) if np.isnan(effects[k]) or effects[k] >= CLEAR]
        sizes = [effects[k] for k in mine if np.isfinite(effects[k])]
        at_step = sum(hit for hit, _ in hits)
        limits = clopper_pearson(at_step, len(mine))
        rows.append(
            Row(
                *key,
                len(mine),
                at_step,
                sum(near for _, near in hits),
                sum(strict),
                len(big),
                sum(hits[i][0] for i in big),
                float(np.median(sizes)) if sizes else None,
                *limits,
            )
        )
    honest = alarms = alarms_strict = after = after_alarms = 0
    for judged, floor in zip(clean.step, clean.strict, strict=True):
        honest, alarms, alarms_strict = (
            honest + len(judged),
            alarms + int((judged == 0).sum()),
            alarms_strict + int((floor == 0).sum()),
        )
    for k, plant in enumerate(plants):
        if plant.metric != "step":
            continue
        later = verdicts.step[k][plant.step + plant.honest_after :]
        after, after_alarms = after + len(later), after_alarms + int((later == 0).sum())
    return Tally(rows, honest, alarms, alarms_strict, after, after_alarms)


def failures(found: Tally, bar: float, exact: bool) -> list[str]:
    """Which bars a checker misses: false alarms on honest steps, and detection of clear faults, fault by fault.

    Args:
        found: of the checker.
        bar: share of each fault of at least `CLEAR` tolerances that must be found at its step.
        exact: the environment has no noise, so that no honest step may be rejected.
    """
    most = 0.0 if exact else FALSE_ALARMS
    out = []
    if found.honest and found.alarms / found.honest > most:
        out.append(f"{found.alarms} of {found.honest} honest steps rejected, the bar is {most:g}")
    by_fault: dict[str, list[Row]] = {}
    for row in found.rows:
        by_fault.setdefault(row.fault if not row.fault.startswith("rule ") else "rules", []).append(row)
    for name, rows in by_fault.items():
        n, k = sum(row.counted for row in rows), sum(row.counted_found for row in rows)
        if n and k / n < bar:
            out.append(f"{name}: {k} of {n} faults of at least {CLEAR:g} tolerances found, the bar is {bar:g}")
    return out


def smallest(rows: Sequence[Row]) -> dict[str, float | None]:
    """Block -> displacement in tolerances at which half of the faults are found, between the sizes planted.

    None where even the largest is not found by half, 0 where the smallest already is.
    """
    found: dict[str, float | None] = {}
    for name in dict.fromkeys(row.fault for row in rows if row.fault.startswith("displaced ") and row.size):
        mine = sorted((float(row.size), row.at_step / row.n) for row in rows if row.fault == name)
        found[name.removeprefix("displaced ")] = _crossing(mine)
    return found


def _crossing(points: list[tuple[float, float]]) -> float | None:
    if points[0][1] >= HALF:
        return 0.0
    for (x0, y0), (x1, y1) in pairwise(points):
        if y0 < HALF <= y1:
            return float(np.exp(np.interp(HALF, [y0, y1], np.log([x0, x1]))))
    return None


def text(found: SelfTest) -> str:
    """The self-test as lines of text."""
    lines = [
        f"self-test of {found.env}: {found.rollouts} real rollouts, {found.source}",
        f"  judged {found.grade}; {found.tolerance}",
        "",
        f"  {'fault':<24}{'size':>6}{'n':>5}{'at its step':>13}{'95 %':>14}{'within 3':>10}{'strict':>8}{'effect':>9}",
    ]
    for row in found.rows:
        if row.fault.startswith("rule "):
            continue
        share = [f"{100 * k / row.n:.0f} %" for k in (row.at_step, row.within_3, row.strict)]
        limits = f"[{100 * row.low:.0f}, {100 * row.high:.0f}]"
        effect = "" if row.effect_median is None else f"{row.effect_median:.2g}"
        lines.append(
            f"  {row.fault:<24}{row.size:>6}{row.n:>5}{share[0]:>13}{limits:>14}{share[1]:>10}{share[2]:>8}{effect:>9}"
        )
    lines += [
        "  size and effect (median) in tolerances of the judging grade; a fault under them cannot be found by it",
        "",
        f"  rules broken first by a plant: {found.rules - len(found.rules_unbroken)} of {found.rules}",
    ]
    alarm = clopper_pearson(found.false_alarms, found.honest_steps)
    lines.append(
        f"  false alarms: {found.false_alarms} of {found.honest_steps:,} honest steps "
        f"({_percent(found.false_alarms, found.honest_steps)}, {_limits(alarm)}), strict {found.false_alarms_strict}; "
        f"later than a fault {found.after_fault_alarms} of {found.after_fault_steps:,}"
    )
    if found.smallest:
        said = ", ".join(
            f"{name} {'-' if size is None else f'{size:.2g}' if size else f'under {0.25:g}'}"
            for name, size in found.smallest.items()
        )
        lines.append(f"  half of the displacements are found from, in tolerances: {said}")
    for name, stub in found.stubs.items():
        lines.append(f"  a checker that {name}: {'exposed' if stub['exposed'] else 'NOT EXPOSED'} ({stub['why']})")
    lines += [f"  missed: {failure}" for failure in found.failures]
    lines.append("passed" if found.passed else "failed")
    return "\n".join(lines)


def _percent(k: int, n: int) -> str:
    return f"{100 * k / n:.2g} %" if n else "-"


def _limits(interval: Interval) -> str:
    return f"[{100 * interval.low:.2g}, {100 * interval.high:.2g}]"
