"""`qualcheck score`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from qualcheck.cli.progress import bar


def score(
    inputs: Annotated[list[Path], typer.Argument(metavar="INPUT...", help="Files of rollouts.", show_default=False)],
    env: Annotated[str, typer.Option("--env", help="Environment; see `qualcheck envs`.", show_default=False)],
    out: Annotated[Path, typer.Option("-o", "--out", metavar="RUN", help="Folder to create.", show_default=False)],
    level: Annotated[
        str | None,
        typer.Option(help="real, rephrase, easy, hard, or any text. Default: the file's own word, else custom."),
    ] = None,
    generator: Annotated[str | None, typer.Option(help="Name of the model that imagined the rollouts.")] = None,
    reference: Annotated[
        list[Path] | None, typer.Option(metavar="REAL", help="Real rollouts to stand beside as control; repeatable.")
    ] = None,
    calibration: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Tolerances that `qualcheck calibrate` learnt.")
    ] = None,
    task: Annotated[
        str | None, typer.Option(metavar="NAME", help="Task of every rollout, instead of its instruction.")
    ] = None,
    encodings: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Reference codes that name the tasks of files without text.")
    ] = None,
    obs_mean: Annotated[Path | None, typer.Option(metavar="FILE", help="Means of standardised observations.")] = None,
    obs_std: Annotated[Path | None, typer.Option(metavar="FILE", help="Their standard deviations.")] = None,
    restarts: Annotated[
        int, typer.Option(metavar="K", help="Replays from shaken starts where a chaotic one ends near a threshold.")
    ] = 8,
    family: Annotated[
        str | None, typer.Option(metavar="NAME", help="Simulator family of the rollouts. Default: recognised.")
    ] = None,
    grade: Annotated[str | None, typer.Option(help="exact, strict or scaled:S. Default: the judging grade.")] = None,
    start: Annotated[str, typer.Option(help="Rollouts start at a reset, anywhere (any), or as the file says.")] = (
        "auto"
    ),
    last_action: Annotated[
        str, typer.Option(help="Was the last action of each rollout executed or a filler? auto decides once per file.")
    ] = "auto",
    floors: Annotated[
        int | None, typer.Option(metavar="N", help="Measure the floors on N starts instead of the shipped table.")
    ] = None,
    recheck: Annotated[
        int, typer.Option(metavar="N", help="Transitions to step in the real simulator as well.")
    ] = 1_000,
    sample: Annotated[
        int | None, typer.Option(metavar="N", help="Score N whole rollouts only, drawn in proportion to their tasks.")
    ] = None,
    target_width: Annotated[
        float | None,
        typer.Option(metavar="W", help="Score until the intervals of the headline rates are so narrow, such as 0.1."),
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of every random draw.")] = 0,
    workers: Annotated[
        int, typer.Option(metavar="N", help="Processes that check, one simulator each; 1: threads of this one.")
    ] = 1,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on with what a stopped run of the same inputs and options left.")
    ] = False,
    engine: Annotated[
        str, typer.Option(help="local, or ray: one worker an actor of the Ray cluster that runs here.")
    ] = "local",
    profile: Annotated[
        bool, typer.Option("--profile", help="Print where the time goes: read, restore, simulate, check, write.")
    ] = False,
    shard: Annotated[
        str | None, typer.Option(metavar="I/N", help="Check one of N shares only, for `qualcheck merge`.")
    ] = None,
    trust_pickle: Annotated[
        bool, typer.Option("--trust-pickle", help="Load pickles that may execute code. Only for files you made.")
    ] = False,
    strict: Annotated[
        bool, typer.Option("--strict", help="Exit 1 when any rollout of the input is defective.")
    ] = False,
) -> None:
    """Replay and check every transition, and write a run folder."""
    from qualcheck.errors import NothingVerified, QualcheckError
    from qualcheck.pipeline import score as run_score
    from qualcheck.table import Run

    options: dict[str, Any] = {
        "level": level,
        "generator": generator,
        "calibration": str(calibration) if calibration else None,
        "encodings": str(encodings) if encodings else None,
        "obs_mean": str(obs_mean) if obs_mean else None,
        "obs_std": str(obs_std) if obs_std else None,
        "family": family,
        "grade": grade,
        "task": task,
        "restarts": restarts,
        "start": start,
        "last_action": last_action,
        "floors": floors,
        "recheck": recheck,
        "sample": sample,
        "target_width": target_width,
        "seed": seed,
        "trust_pickle": trust_pickle,
        "strict": strict,
    }
    how: dict[str, Any] = {"reference": reference or (), "workers": workers, "resume": resume, "engine": engine}
    if shard is not None:
        from qualcheck.sharding import score_shard

        with bar() as progress:
            folder = score_shard(inputs, env, out, shard, progress=progress, **how, **options)
        typer.echo(f"{folder}: shard {shard}")
        typer.echo(f"next, when all of them are there: qualcheck merge {folder} ... -o RUN")
        return
    try:
        with bar() as progress:
            run = run_score(inputs, env, out, progress=progress, profile=profile, **how, **options)
    except (NothingVerified, QualcheckError):
        if (out / "manifest.json").is_file() and strict:
            typer.echo(summary(Run.open(out)))
        raise
    typer.echo(summary(run))
    if profile:
        typer.echo(spent(run.manifest["run"]["profile"]))
    typer.echo(f"next: qualcheck report {run.path}")


def spent(seconds: dict[str, float]) -> str:
    """Where the time of a run went, a line a phase."""
    from qualcheck.timing import PHASES

    total = sum(seconds.values()) or 1.0
    shown = [(name, seconds[name]) for name in PHASES if name in seconds]
    lines = [f"  {name:<28}{100 * each / total:>7.1f} %  {each:,.2f} s" for name, each in shown]
    return "\n".join(["time of all threads", *lines])


def summary(run: Any) -> str:
    """A few lines on what a run found."""
    from qualcheck.cli.words import percent

    results = run.manifest["results"]
    counts, verified, passed = (results["counts"], results["counts"]["verified"], results["counts"]["passed"])
    lines = [
        f"{run.path}: {counts['rollouts']:,} rollouts, {counts['transitions']:,} transitions of {results['env']} "
        f"in {run.manifest['run']['seconds']:.1f} s"
    ]
    for metric, title in (
        ("goal_consistency", "goal consistency, imagined"),
        ("goal_consistency_replayed", "goal consistency, replayed"),
        ("transition_correctness", "transition correctness"),
        ("dynamics_legality", "dynamics legality"),
    ):
        n = verified.get(metric, 0)
        lines.append(f"  {title:<28}{percent(passed.get(metric, 0), n):>8}  of {n:,} verified")
    referee = results["referee"]
    lines.append(f"  {'checked in the simulator':<28}{referee['agreed']:,} of {referee['checked']:,} agree")
    lines += [f"  note: {finding}" for finding in results["findings"]]
    lines += [f"  explanation: {each['text']}" for each in results.get("explanations", ())]
    return "\n".join(lines)
