"""Row layouts of the benchmark's environments, as far as reading a file needs them, and which of them a file has."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from qualcheck.errors import DataError, MissingExtra, unknown_name
from qualcheck.registry import known, load
from qualcheck.spec import EnvSpec


def environments() -> list[str]:
    """Ids of every environment whose files can be told by their rows; members of a family have to be named."""
    return sorted(name for name in known() if "/" not in name)


def specs(env: str) -> list[EnvSpec]:
    """Every row layout of an environment, the usual one first.

    Raises:
        UnknownName: no environment has that id.
    """
    if env not in known():
        raise unknown_name("environment", env, environments())
    adapter = load(env)
    found = list(adapter.layouts())
    adapter.close()
    return found


def choose(path: Path | str, specs: Sequence[EnvSpec], columns: int, actions: tuple[int, ...]) -> EnvSpec:
    """The layout of rows of `columns` numbers; where several are, the one whose actions fit.

    Args:
        actions: shape of one action as stored, () or (A,).

    Raises:
        DataError: none has so many columns.
    """
    wide = [spec for spec in specs if columns in widths(spec)]
    if not wide:
        sizes = sorted({size for spec in specs for size in widths(spec)})
        names = ", ".join(dict.fromkeys(spec.id for spec in specs))
        raise DataError(
            f"{path}: 'observations' has {columns} columns; expected {' or '.join(map(str, sizes))} for {names}. "
            f"{advice(columns, actions, specs)}"
        )
    return next((spec for spec in wide if takes(spec, actions)), wide[0])


def advice(columns: int, actions: tuple[int, ...], specs: Sequence[EnvSpec]) -> str:
    """What to ask of a file whose rows or actions do not fit: which other environments they do fit, if any.

    Args:
        columns: numbers of a row as stored.
        actions: shape of one action as stored, () or (A,).
        specs: the layouts that were expected.
    """
    fitting = []
    for env in sorted(set(known()) - {spec.id for spec in specs}):
        try:
            adapter = load(env)
        except MissingExtra:  # nothing is known of it here
            continue
        if any(columns in widths(spec) and takes(spec, actions) for spec in adapter.layouts()):
            fitting.append(env)
        adapter.close()
    fitting = [env for env in fitting if "/" not in env] or fitting  # members of a family only where nothing else fits
    return f"It looks like {' or '.join(fitting)}. Is --env right?" if fitting else "Is --env right?"


def widths(spec: EnvSpec) -> list[int]:
    """Columns that a row may have, without and with the instruction code."""
    return [spec.obs_size] + ([spec.obs_size + spec.code_size] if spec.code_size else [])


def takes(spec: EnvSpec, actions: tuple[int, ...]) -> bool:
    """Whether an action of this shape, () or (A,), is one of the environment."""
    columns = 1 if spec.action.kind == "discrete" else spec.action.size
    return actions == (columns,) or (actions == () and columns == 1)
