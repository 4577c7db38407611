"""`qualcheck inspect`."""

from __future__ import annotations

import pydoc
import sys
from pathlib import Path
from typing import Annotated

import typer


def inspect(
    run: Annotated[
        Path, typer.Argument(metavar="RUN", help="Folder written by `qualcheck score`.", show_default=False)
    ],
    place: Annotated[
        str,
        typer.Argument(
            metavar="ROLLOUT[:STEP]", help="Rollout as numbered in rollouts.parquet, and step.", show_default=False
        ),
    ],
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    trust_pickle: Annotated[
        bool, typer.Option("--trust-pickle", help="Load pickles that may execute code. Only for files you made.")
    ] = False,
) -> None:
    """Show one rollout step by step, or one step with its imagined and simulated rows."""
    from qualcheck.inspection import inspect as look
    from qualcheck.inspection import parse_place
    from qualcheck.manifest import dump
    from qualcheck.reports.transcript import transcript_text

    rollout, step = parse_place(place)
    seen = look(run, rollout, step, trust_pickle=trust_pickle)
    text = dump(seen) if as_json else transcript_text(seen).rstrip("\n") + "\n"
    if not as_json and sys.stdout.isatty() and text.count("\n") > 40:
        pydoc.pager(text)
    else:
        typer.echo(text, nl=False)
