"""`validate`: does a score say anything about an outcome, such as what a policy made of the rollouts?"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from qualcheck.errors import UsageError
from qualcheck.outcomes import match
from qualcheck.rank_correlation import Correlation, holm, kendall, spearman, tied
from qualcheck.table import Run

SCORES = {  # score -> the option of `filter` that keeps its high values, "" where there is none
    "consistency": "--min-consistency",
    "consistency_replayed": "--min-consistency-replayed",
    "gc_imagined": "--min-consistency 1",
    "gc_replayed": "--min-consistency-replayed 1",
    "correctness": "--min-correctness",
    "correctness_strict": "",
    "legality": "--min-legality",
    "scaled_error": "--max-scaled-error",
    "skill": "",
    "reward_consistency": "",
}
LOW_IS_GOOD = ("scaled_error",)
LEAST = 10  # rollouts or cells under which nothing is said
LEVEL = 0.05
MANY_TIES = 0.5


@dataclass(frozen=True)
class Finding:
    """One score against one outcome; correlations are of the score turned so that high is good."""

    score: str
    outcome: str
    n: int
    clusters: int
    spearman: Correlation | None
    kendall: Correlation | None
    adjusted_p: float | None  # Holm over the scores of an outcome
    verdict: str  # "validated", "not validated here", "against the outcome", or why nothing is said
    notes: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Validation:
    run: str
    outcome_file: str
    unit: str
    keys: tuple[str, ...]
    matched: int
    unmatched_lines: int
    without_outcome: int
    findings: list[Finding]
    recommended: dict[str, str | None]  # outcome -> option of `filter`, None: no score is validated here

    def to_json(self) -> dict[str, Any]:
        content = asdict(self)
        for entry, found in zip(content["findings"], self.findings, strict=True):
            for name in ("spearman", "kendall"):
                value: Correlation | None = getattr(found, name)
                entry[name] = None if value is None else value._asdict()
        return content


def validate(run: str | Path | Run, outcome: str | Path, *, seed: int = 0, resamples: int = 2_000) -> Validation:
    """Rank correlation of each score of a run with each outcome column of a file.

    Args:
        run: finished run folder.
        outcome: CSV, Parquet or JSON, one line a rollout or a cell; see `qualcheck.outcomes.match`.
        seed: of the bootstrap.
        resamples: of whole clusters (equal first row and instruction).

    Returns:
        For each pair the coefficients with 95 % intervals, and for each outcome the filter that is worth recommending:
        the one whose score correlates most, if its interval and Holm's adjusted p-value exclude zero.

    Raises:
        DataError: the run or the file cannot be used.
        UsageError: a number that makes no sense.
    """
    if not isinstance(seed, int) or seed < 0:
        raise UsageError(f"--seed {seed}; it is a whole number from 0.")
    if resamples < 100:
        raise UsageError(f"{resamples} resamples; at least 100 are needed for an interval.")
    opened = run if isinstance(run, Run) else Run.open(run)
    known = match(opened, Path(outcome), tuple(SCORES))
    findings: list[Finding] = []
    recommended: dict[str, str | None] = {}
    for name in known.names:
        mine = [_compare(known.table, score, name, seed, resamples) for score in SCORES]
        tested = [at for at, found in enumerate(mine) if found.spearman is not None]
        adjusted = holm(np.array([mine[at].spearman.p for at in tested]))  # type: ignore[union-attr]
        for at, p in zip(tested, adjusted, strict=True):
            mine[at] = _judged(mine[at], float(p))
        findings += mine
        good = [found for found in mine if found.verdict == "validated" and SCORES[found.score]]
        best = max(good, key=lambda found: found.spearman.value, default=None)  # type: ignore[union-attr]
        recommended[name] = None if best is None else SCORES[best.score]
    return Validation(
        str(opened.path),
        str(outcome),
        known.unit,
        known.keys,
        len(known.table),
        known.unmatched,
        known.missing,
        findings,
        recommended,
    )


def _compare(table: pd.DataFrame, score: str, outcome: str, seed: int, resamples: int) -> Finding:
    x = table[score].to_numpy(np.float64) * (-1 if score in LOW_IS_GOOD else 1)
    y, cluster = table[outcome].to_numpy(np.float64), table["cluster"].to_numpy()
    both = np.isfinite(x) & np.isfinite(y)
    x, y, cluster = x[both], y[both], cluster[both]
    n, m = len(x), len(np.unique(cluster))
    notes = [f"{len(both) - n} without a verdict or an outcome"] if n < len(both) else []
    for what, values in (("score", x), ("outcome", y)):
        if n and np.ptp(values) == 0:
            return Finding(score, outcome, n, m, None, None, None, f"constant {what}: says nothing", notes)
        if tied(values) > MANY_TIES:
            notes.append(f"{100 * tied(values):.0f} % of the {what}s are tied")
    if m < LEAST:
        return Finding(score, outcome, n, m, None, None, None, f"too few: {m} independent, need {LEAST}", notes)
    rng = np.random.default_rng([seed, list(SCORES).index(score)])
    rho, tau = spearman(x, y, cluster, rng, resamples), kendall(x, y, cluster, rng, resamples)
    return Finding(score, outcome, n, m, rho, tau, None, "", notes)


def _judged(found: Finding, p: float) -> Finding:
    rho = found.spearman
    assert rho is not None
    if rho.low > 0 and p <= LEVEL:
        verdict = "validated"
    elif rho.high < 0 and p <= LEVEL:
        verdict = "against the outcome"
    else:
        verdict = "not validated here"
    return Finding(found.score, found.outcome, found.n, found.clusters, rho, found.kendall, p, verdict, found.notes)
