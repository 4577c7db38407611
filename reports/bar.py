"""`--fail-under METRIC=X`: a report as a test."""

from __future__ import annotations

import math

from qualcheck.errors import BelowBar, UsageError, unknown_name
from qualcheck.reports.cells import Report

METRICS = (
    "goal_consistency", "goal_consistency_released", "goal_consistency_replayed",
    "transition_correctness", "transition_correctness_rollout", "transition_correctness_strict",
    "dynamics_legality", "dynamics_legality_rollout", "row0_legality", "reward_consistency",
    "consistency", "consistency_replayed", "skill_median",
)  # fmt: skip


def parse_bar(text: str) -> tuple[str, float]:
    """(metric, bar) from "metric=x".

    Raises:
        UnknownName: no such metric, or one of which less is better.
        UsageError: x is not a fraction.
    """
    name, sign, number = text.partition("=")
    name = name.strip().replace("-", "_")
    if not sign:
        raise UsageError(f"--fail-under {text!r}: expected METRIC=X, for instance transition_correctness=0.9.")
    if name not in METRICS:
        raise unknown_name("metric", name, list(METRICS))
    try:
        bar = float(number)
    except ValueError:
        bar = math.nan
    if not (math.isfinite(bar) and bar <= 1):
        raise UsageError(
            f"--fail-under {text!r}: {number.strip()!r} is no fraction of at most 1, such as 0.9 for 90 %."
        )
    return name, bar


def fail_under(report: Report, text: str) -> None:
    """Return if every cell reaches the bar (its value, not its interval); a missing value is below.

    Raises:
        BelowBar: with the cells that do not, or because there is no cell at all.
        UnknownName, UsageError: see `parse_bar`.
    """
    metric, bar = parse_bar(text)
    below = []
    for cell in report["cells"]:
        share = cell[metric]
        if share is None or not share["value"] >= bar:
            name = " ".join(cell[key] for key in ("env", "level", "generator", "task") if cell[key])
            below.append(f"{name}: {cell[metric + '_reason'] if share is None else format(share['value'], '.4f')}")
    if not report["cells"]:
        below.append("no rollouts")
    if below:
        raise BelowBar(f"{metric} is below {bar:g} in {len(below)} cells ({'; '.join(below)}).")
