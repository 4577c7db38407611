"""`qualcheck inspect`."""

from __future__ import annotations

import pydoc
import sys
from pathlib import Path
from typing import Annotated

import typer


def inspect(
    run: Annotated[
        Path | None, typer.Argument(metavar="RUN", help="Folder written by `qualcheck score`.", show_default=False)
    ] = None,
    place: Annotated[
        str | None,
        typer.Argument(
            metavar="ROLLOUT[:STEP]", help="Rollout as numbered in rollouts.parquet, and step.", show_default=False
        ),
    ] = None,
    starts: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Judge a file of start rows instead; needs --env.")
    ] = None,
    env: Annotated[str | None, typer.Option(help="Environment of the start rows.")] = None,
    task: Annotated[str | None, typer.Option(help="Task whose own starts they must be.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    trust_pickle: Annotated[
        bool, typer.Option("--trust-pickle", help="Load pickles that may execute code. Only for files you made.")
    ] = False,
) -> None:
    """Show one rollout step by step, or one step with its imagined and simulated rows; or judge start rows."""
    from qualcheck.errors import UsageError
    from qualcheck.inspection import inspect as look
    from qualcheck.inspection import parse_place
    from qualcheck.manifest import dump
    from qualcheck.reports.transcript import transcript_text

    if starts is not None:
        if run is not None:
            raise UsageError("inspect --starts FILE --env ENV takes no run: it judges the rows of a file.")
        if env is None:
            raise UsageError("inspect --starts needs --env ENV: start rows do not tell their environment.")
        from qualcheck.starting import inspect_starts, starts_facts, starts_text

        found = inspect_starts(starts, env, task or "")
        typer.echo(dump(starts_facts(found)) if as_json else starts_text(starts, found))
        return
    if run is None or place is None:
        raise UsageError("inspect needs a run and a rollout, such as: qualcheck inspect RUN 12:3")
    if env is not None or task is not None:
        raise UsageError("inspect: --env and --task go with --starts; a run knows its environment.")
    rollout, step = parse_place(place)
    seen = look(run, rollout, step, trust_pickle=trust_pickle)
    text = dump(seen) if as_json else transcript_text(seen).rstrip("\n") + "\n"
    if not as_json and sys.stdout.isatty() and text.count("\n") > 40:
        pydoc.pager(text)
    else:
        typer.echo(text, nl=False)
