"""`qualcheck demo`."""

from __future__ import annotations

import tempfile
from importlib.resources import as_file, files
from pathlib import Path
from typing import Annotated

import typer


def demo(
    out: Annotated[
        Path | None, typer.Option("-o", "--out", metavar="FOLDER", help="Keep the results in this new folder.")
    ] = None,
) -> None:
    """Score, report and filter the small data set that ships with the package."""
    from qualcheck.cli.score import summary
    from qualcheck.errors import UsageError
    from qualcheck.filtering import filter_run
    from qualcheck.pipeline import score
    from qualcheck.reporting import report

    if out is not None and out.exists():
        raise UsageError(f"-o {out} exists already; nothing is overwritten. Remove it or choose another name.")
    data = files("qualcheck") / "data"
    with (
        tempfile.TemporaryDirectory() as temporary,
        as_file(data / "babyai_imagined.parquet") as imagined,
        as_file(data / "babyai_real.parquet") as real,
    ):
        folder = Path(temporary) if out is None else out
        folder.mkdir(parents=True, exist_ok=True)
        run = score([imagined], "babyai", folder / "run", reference=[real])
        typer.echo(summary(run))
        typer.echo("")
        typer.echo(report(run))
        kept = filter_run(run.path, folder / "kept.parquet", min_consistency=1, min_correctness=1, min_legality=1)
        typer.echo("\n".join(kept.lines))
