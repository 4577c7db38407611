"""`qualcheck collect`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer


def collect(
    env: Annotated[str, typer.Argument(metavar="ENV", help="Environment; see `qualcheck envs`.")],
    level: Annotated[str, typer.Option("--level", help="real, rephrase, easy or hard.", show_default=False)],
    n: Annotated[int, typer.Option("-n", "--rollouts", metavar="N", help="Rollouts of each task.", show_default=False)],
    out: Annotated[Path, typer.Option("-o", "--out", metavar="FILE", help="File to create.", show_default=False)],
    task: Annotated[str | None, typer.Option(metavar="NAME", help="Only this task of the level.")] = None,
    noise: Annotated[
        float | None,
        typer.Option(metavar="X", help="Noise on the experts' actions; discrete ones: share that is random."),
    ] = None,
    random_share: Annotated[
        float | None, typer.Option(metavar="X", help="Share of the rollouts that act at random throughout.")
    ] = None,
    seed: Annotated[int, typer.Option(metavar="S", help="Seed of all that is drawn.")] = 0,
    inits: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="LIBERO: the benchmark's files of starts. Default: own placement."),
    ] = None,
    storage: Annotated[
        str | None, typer.Option(help="float32 or, in HalfCheetah, float64. Default: as in the benchmark.")
    ] = None,
    horizon: Annotated[
        int | None, typer.Option(metavar="N", help="Steps after which a rollout is cut. Default: the benchmark's.")
    ] = None,
) -> None:
    """Record real rollouts of scripted experts, and print how often they succeed."""
    from qualcheck.collecting import collect as run_collect

    done = run_collect(
        env,
        level,
        n,
        out,
        task=task,
        noise=noise,
        random_share=random_share,
        seed=seed,
        inits=inits,
        storage=storage,
        horizon=horizon,
    )
    typer.echo(summary(done))
    typer.echo(f"next: qualcheck score {done.out} --env {done.env} -o RUN")


def summary(done: Any) -> str:
    """A few lines on what was collected."""
    counts = f"{done.n_rollouts:,} rollouts, {done.n_transitions:,} transitions"
    lines = [f"{done.out}: {counts} of {done.env}, level {done.level}"]
    width = max(len(rate.task) for rate in done.tasks)
    for rate in done.tasks:
        low, high = (100 * limit for limit in rate.interval)
        line = f"  {rate.task:<{width}}  {100 * rate.rate:5.1f} %  of {rate.n:,}  [{low:.1f}, {high:.1f}]"
        if rate.won_released != rate.won:
            line += f"; by the benchmark's own test {100 * rate.won_released / rate.n:.1f} %"
        lines.append(f"{line}; {rate.reason}" if rate.reason else line)
    for place, count in done.starts.items():
        lines.append(f"  note: {count:,} rollouts start from {place}")
    return "\n".join(lines)
