"""`qualcheck report`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from qualcheck.errors import UsageError


def report(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN...", help="Run folders.", show_default=False)],
    format: Annotated[str, typer.Option("--format", help="table, md, csv, tex or json.")] = "table",
    by: Annotated[str | None, typer.Option("--by", help="task: one row a task.")] = None,
    mixed: Annotated[
        bool, typer.Option("--mixed", help="Print runs of different definitions, grade or calibration apart.")
    ] = False,
    fail_under: Annotated[
        list[str] | None,
        typer.Option("--fail-under", metavar="METRIC=X", help="Exit 4 where a cell is below; repeatable."),
    ] = None,
) -> None:
    """Print the quality tables of runs."""
    from qualcheck.reporting import report as make_report
    from qualcheck.reporting import require
    from qualcheck.reports.bar import parse_bar

    if by not in (None, "task"):
        raise UsageError(f"--by {by!r}; it is: task.")
    for bar in fail_under or ():
        parse_bar(bar)
    typer.echo(make_report(runs, format, by_task=by == "task", mixed=mixed), nl=False)
    if fail_under:
        require(runs, fail_under, by_task=by == "task", mixed=mixed)
