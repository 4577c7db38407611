"""`qualcheck validate`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer


def validate(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="Finished run folder.", show_default=False)],
    outcome: Annotated[
        Path,
        typer.Option(
            "--outcome", metavar="FILE", help="CSV, Parquet or JSON: one line a rollout or cell.", show_default=False
        ),
    ],
    seed: Annotated[int, typer.Option(help="Seed of the bootstrap.")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Tell whether the scores of a run go with an outcome, such as a policy's return."""
    from qualcheck.manifest import dump
    from qualcheck.validating import validate as compare

    found = compare(run, outcome, seed=seed)
    typer.echo(dump(found.to_json()).rstrip() if as_json else text(found))


def text(found: Any) -> str:
    """The findings as lines."""
    lines = [f"{found.matched:,} {found.unit}s of {found.run} with an outcome, matched by {', '.join(found.keys)}"]
    if found.unmatched_lines:
        lines.append(f"  note: {found.unmatched_lines:,} lines of {found.outcome_file} belong to no {found.unit}")
    if found.without_outcome:
        lines.append(f"  note: {found.without_outcome:,} {found.unit}s have no outcome")
    for outcome, option in found.recommended.items():
        lines += ["", f"{outcome}: rank correlation with each score, 95 % intervals"]
        lines.append(f"  {'score':<21}{'n':>8}  {'Spearman':<23}{'Kendall':<23}verdict")
        for entry in found.findings:
            if entry.outcome != outcome:
                continue
            pair = [
                "-" if value is None else f"{value.value:+.2f} [{value.low:+.2f}, {value.high:+.2f}]"
                for value in (entry.spearman, entry.kendall)
            ]
            notes = f" ({'; '.join(entry.notes)})" if entry.notes else ""
            lines.append(f"  {entry.score:<21}{entry.n:>8,}  {pair[0]:<23}{pair[1]:<23}{entry.verdict}{notes}")
        advice = f"filter with {option}" if option else "no filter is recommended: none of its scores is validated here"
        lines.append(f"  {advice}")
    return "\n".join(lines)
