"""`qualcheck envs`."""

from __future__ import annotations

import json
import shutil
import textwrap
from typing import Annotated, Any

import typer


def envs(as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False) -> None:
    """List the environments, their tasks and rules."""
    from qualcheck.errors import QualcheckError
    from qualcheck.registry import known, load

    found: dict[str, Any] = {}
    for name in sorted(known()):
        try:
            adapter = load(name)
        except QualcheckError as error:
            found[name] = {"unavailable": str(error)}
            continue
        found[name] = {
            "version": adapter.spec.version,
            "judging_grade": adapter.spec.judging_grade,
            "restores": adapter.spec.restores,
            "horizon": adapter.spec.horizon,
            "families": list(adapter.families()),
            "blocks": {block.name: block.unit for block in adapter.spec.blocks},
            "tasks": {level: list(tasks) for level, tasks in adapter.tasks().items()},
            "rules": {rule.id: rule.text for rule in adapter.rules},
        }
        adapter.close()
    if as_json:
        typer.echo(json.dumps(found, indent=1))
        return
    families: dict[str, list[str]] = {}
    for name, facts in found.items():
        family, slash, member = name.partition("/")
        if slash:
            families.setdefault(family, []).append(member)
            continue
        if "unavailable" in facts:
            typer.echo(f"{name}: {facts['unavailable']}")
            continue
        typer.echo(f"{name} {facts['version']}: judged {facts['judging_grade']}, {len(facts['rules'])} rules")
        for level, tasks in facts["tasks"].items():
            typer.echo(_wrapped(f"  {level:<9} ", tasks))
    for family, members in families.items():
        typer.echo(f"{family}/NAME: judged by its simulator and its laws, no tasks")
        typer.echo(_wrapped(f"  {'NAME':<9} ", members))


def _wrapped(head: str, tasks: list[str]) -> str:
    """The tasks behind the head, on as many lines as the terminal needs."""
    width = shutil.get_terminal_size((100, 24)).columns
    return textwrap.fill(
        " ".join(tasks),
        width=max(width, 40),
        initial_indent=head,
        subsequent_indent=" " * len(head),
        break_long_words=False,
        break_on_hyphens=False,
    )
