"""`qualcheck calibrate`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def calibrate(
    real: Annotated[list[Path], typer.Argument(metavar="REAL...", help="Real rollouts.", show_default=False)],
    env: Annotated[str, typer.Option("--env", help="Environment; see `qualcheck envs`.", show_default=False)],
    out: Annotated[Path, typer.Option("-o", "--out", metavar="FILE", help="File to create.", show_default=False)],
    alpha: Annotated[
        float, typer.Option("--alpha", metavar="A", help="Share of new real rollouts that may be rejected.")
    ] = 0.01,
    family: Annotated[
        str | None,
        typer.Option("--family", metavar="NAME", help="Simulator that made them; else recognised."),
    ] = None,
    trust_pickle: Annotated[
        bool, typer.Option("--trust-pickle", help="Load pickles that may execute code. Only for files you made.")
    ] = False,
) -> None:
    """Learn the tolerances of an environment from real rollouts."""
    from qualcheck.calibrating import calibrate as learn

    content = learn(real, env, out, alpha=alpha, trust_pickle=trust_pickle, family=family).content
    columns, stored = len(content["columns"]), ", ".join(content["native_storages"])
    typer.echo(f"{out}: {content['env']}, rows of {columns} columns, stored as {stored}")
    for storage, found in content["storages"].items():
        need = "" if found["rollouts"] >= found["need_rollouts"] else f"; need n >= {found['need_rollouts']}"
        typer.echo(
            f"  {storage:<11} tolerance {found['tolerance']:.3g} medians, {found['label']} "
            f"(n = {found['rollouts']} rollouts{need})"
        )
    for doubt in content["doubts"]:
        typer.echo(f"  note: {doubt}")
