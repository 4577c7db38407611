"""`qualcheck convert`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def convert(
    input: Annotated[Path, typer.Argument(metavar="INPUT", help="File of rollouts, of any layout.")],
    out: Annotated[Path, typer.Option("-o", "--out", metavar="OUT", help="File to create.", show_default=False)],
    env: Annotated[str | None, typer.Option(help="Environment, where the file does not tell.")] = None,
    to: Annotated[str, typer.Option(help="canonical, npy, benchmark_parquet, d4rl or minari.")] = "canonical",
    encodings: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Reference codes that name instructions given as codes only.")
    ] = None,
    last_action: Annotated[
        str, typer.Option(help="Was the last action of each rollout executed or a filler? auto decides once per file.")
    ] = "auto",
    obs_mean: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Means that were subtracted from the observations.")
    ] = None,
    obs_std: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Deviations that the observations were divided by.")
    ] = None,
    trust_pickle: Annotated[
        bool, typer.Option("--trust-pickle", help="Load pickles that may execute code. Only for files you made.")
    ] = False,
) -> None:
    """Write a rollout file in another layout; nothing in its rollouts is lost."""
    from qualcheck.converting import convert as run_convert
    from qualcheck.io import read_statistics

    done = run_convert(
        input,
        out,
        env,
        to=to,
        trust_pickle=trust_pickle,
        encodings=encodings,
        last_action=last_action,
        obs_mean=None if obs_mean is None else read_statistics(obs_mean),
        obs_std=None if obs_std is None else read_statistics(obs_std),
    )
    typer.echo(
        f"{done.out}: {done.n_rollouts:,} rollouts, {done.n_transitions:,} transitions of {done.env}, read as "
        f"{done.format}, written as {to}"
    )
    for finding in done.findings:
        typer.echo(f"  note: {finding}")
