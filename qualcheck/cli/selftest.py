"""`qualcheck selftest`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def selftest(
    env: Annotated[str, typer.Argument(metavar="ENV", help="Environment; see `qualcheck envs`.", show_default=False)],
    real: Annotated[
        list[Path] | None,
        typer.Argument(metavar="[REAL...]", help="Real rollouts. Default: recorded now.", show_default=False),
    ] = None,
    fail_under: Annotated[
        float,
        typer.Option(
            "--fail-under",
            metavar="X",
            help="Exit 4 if less than X of the faults of at least 2 tolerances are found at their step, of any kind.",
        ),
    ] = 0.9,
    rollouts: Annotated[int, typer.Option(metavar="N", help="Real rollouts to plant faults into.")] = 60,
    plants: Annotated[int, typer.Option(metavar="N", help="Plants of each fault and size.")] = 20,
    seed: Annotated[int, typer.Option(help="Seed of every random draw.")] = 0,
    trust_pickle: Annotated[
        bool, typer.Option("--trust-pickle", help="Load pickles that may execute code. Only for files you made.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Plant faults of known kind and size into real rollouts and count which are found."""
    from qualcheck.errors import BelowBar
    from qualcheck.manifest import dump
    from qualcheck.selftesting import selftest as run
    from qualcheck.selftesting.table import text

    found = run(
        env,
        real or (),
        fail_under=fail_under,
        rollouts=rollouts,
        plants=plants,
        seed=seed,
        trust_pickle=trust_pickle,
    )
    typer.echo(dump(found.to_json()).rstrip() if as_json else text(found))
    if not found.passed:
        raise BelowBar(f"self-test of {env}: {'; '.join(found.failures[:3])}")
