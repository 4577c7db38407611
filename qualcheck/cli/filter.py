"""`qualcheck filter`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer


def filter_(
    run: Annotated[
        Path, typer.Argument(metavar="RUN", help="Folder written by `qualcheck score`.", show_default=False)
    ],
    out: Annotated[Path, typer.Option("-o", "--out", metavar="OUT", help="File to create.", show_default=False)],
    min_consistency: Annotated[
        float | None, typer.Option(metavar="X", help="Share of the task's sub-goals reached in the imagined rows.")
    ] = None,
    min_consistency_replayed: Annotated[
        float | None, typer.Option(metavar="X", help="The same when the actions are really executed.")
    ] = None,
    min_correctness: Annotated[float | None, typer.Option(metavar="X", help="Share of correct transitions.")] = None,
    min_legality: Annotated[float | None, typer.Option(metavar="X", help="Share of legal transitions.")] = None,
    min_coverage: Annotated[
        float | None,
        typer.Option(
            metavar="X",
            help="Share of transitions that could be verified. Default: 0.5; none with --keep-unverifiable.",
        ),
    ] = None,
    max_scaled_error: Annotated[
        float | None, typer.Option(metavar="X", help="Median error in standard deviations of the real change.")
    ] = None,
    top_fraction: Annotated[float | None, typer.Option(metavar="X", help="Best share within each task.")] = None,
    mode: Annotated[
        str, typer.Option(help="Keep whole rollouts, truncate before the first fault, or keep all good segments.")
    ] = "rollouts",
    drop_trivial: Annotated[
        bool, typer.Option("--drop-trivial", help="Drop rollouts whose goal holds at row 0.")
    ] = False,
    keep_unverifiable: Annotated[
        bool, typer.Option("--keep-unverifiable", help="Keep what could not be verified.")
    ] = False,
    like_input: Annotated[
        bool, typer.Option("--like-input", help="Write the layout of the input instead of canonical Parquet.")
    ] = False,
    input_path: Annotated[
        Path | None, typer.Option("--input", metavar="PATH", help="Where the scored input lies now.")
    ] = None,
    trust_pickle: Annotated[
        bool, typer.Option("--trust-pickle", help="Load pickles that may execute code. Only for files you made.")
    ] = False,
    audit: Annotated[
        bool, typer.Option("--audit", help="Also say which tasks, lengths and states the filter thins out.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Keep the rollouts, prefixes or segments of a run that pass, and write them as a data set."""
    from qualcheck.filtering import filter_run
    from qualcheck.manifest import dump

    options: dict[str, Any] = {
        "min_consistency": min_consistency,
        "min_consistency_replayed": min_consistency_replayed,
        "min_correctness": min_correctness,
        "min_legality": min_legality,
        "min_coverage": min_coverage,
        "max_scaled_error": max_scaled_error,
        "top_fraction": top_fraction,
        "mode": mode,
        "drop_trivial": drop_trivial,
        "keep_unverifiable": keep_unverifiable,
        "like_input": like_input,
    }
    result = filter_run(run, out, input_path=input_path, trust_pickle=trust_pickle, audit=audit, **options)
    typer.echo(dump(result.report) if as_json else "\n".join(result.lines), nl=not as_json)
