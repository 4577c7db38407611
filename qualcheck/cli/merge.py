"""`qualcheck merge`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from qualcheck.cli.progress import bar


def merge(
    shards: Annotated[
        list[Path],
        typer.Argument(metavar="SHARD...", help="All folders of `score --shard` of a run.", show_default=False),
    ],
    out: Annotated[Path, typer.Option("-o", "--out", metavar="RUN", help="Folder to create.", show_default=False)],
) -> None:
    """Make the run of its shards; its bytes are those of a run in one go."""
    from qualcheck.cli.score import summary
    from qualcheck.sharding import merge as run_merge

    with bar() as progress:
        run = run_merge(shards, out, progress=progress)
    typer.echo(summary(run))
    typer.echo(f"next: qualcheck report {run.path}")
