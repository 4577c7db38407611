"""`qualcheck demo`."""

from __future__ import annotations

import contextlib
import tempfile
from importlib.resources import files
from pathlib import Path
from typing import Annotated

import typer

DATA = ("babyai_imagined.parquet", "babyai_real.parquet")


def demo(
    out: Annotated[
        Path | None, typer.Option("-o", "--out", metavar="FOLDER", help="Keep data and results in this new folder.")
    ] = None,
) -> None:
    """Score, report and filter the small data set that ships with the package."""
    from qualcheck.errors import UsageError

    if out is None:
        with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
            _tour(Path())
        typer.echo("\nkeep the data and these results with: qualcheck demo -o FOLDER")
        return
    if out.exists():
        raise UsageError(f"-o {out} exists already; nothing is overwritten. Remove it or choose another name.")
    out.mkdir(parents=True)
    _tour(out)
    typer.echo(f"\nnext: qualcheck report {out / 'run'}")


def _tour(folder: Path) -> None:
    from qualcheck.cli.score import summary
    from qualcheck.filtering import filter_run
    from qualcheck.pipeline import score
    from qualcheck.reports.cells import build_report
    from qualcheck.reports.tables import headline

    for name in DATA:
        (folder / name).write_bytes((files("qualcheck") / "data" / name).read_bytes())
    imagined, real = (folder / name for name in DATA)
    run = score([imagined], "babyai", folder / "run", reference=[real])
    typer.echo(summary(run) + "\n")
    typer.echo(headline(build_report([run])))
    kept = filter_run(run.path, folder / "kept.parquet", min_consistency=1, min_correctness=1, min_legality=1)
    typer.echo("\n".join(kept.lines))
