"""`report`: the quality tables of one or several runs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from qualcheck.reports.bar import fail_under as check_bar
from qualcheck.reports.cells import build_report
from qualcheck.reports.tables import render
from qualcheck.table import Run


def report(
    runs: str | Path | Run | Sequence[str | Path | Run],
    format: str = "table",
    *,
    by_task: bool = False,
    mixed: bool = False,
) -> str:
    """The text of a report on finished runs; shards of one cell are pooled.

    Args:
        runs: run folders.
        format: table, md, csv, tex or json.
        by_task: one cell a task.
        mixed: print runs of different definitions, grade or calibration apart instead of refusing them.

    Raises:
        DataError: a folder that is no finished run.
        UsageError: runs that must not be pooled, or an unknown format.
    """
    listed = [runs] if isinstance(runs, (str, Path, Run)) else list(runs)
    opened = [run if isinstance(run, Run) else Run.open(run) for run in listed]
    return render(build_report(opened, by_task=by_task, mixed=mixed), format)


def require(runs: Sequence[str | Path], bars: Sequence[str], *, by_task: bool = False, mixed: bool = False) -> None:
    """Return if every cell reaches every bar, each "metric=x".

    Raises:
        BelowBar: with the cells that do not.
    """
    content = build_report([Run.open(run) for run in runs], by_task=by_task, mixed=mixed)
    for bar in bars:
        check_bar(content, bar)
