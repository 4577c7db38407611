"""What rows of real files look like, column by column; ships with the package.

`python -m qualcheck.explaining.real_rows OUT ENV=FILE,FILE ...` learns it from real files named by level.
"""

from __future__ import annotations

import json
import sys
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np

from qualcheck.explaining.hypothesis import RowStatistics
from qualcheck.io import Source, open_source
from qualcheck.manifest import dump
from qualcheck.registry import load
from qualcheck.spec import EnvSpec
from qualcheck.types import AnyArray

SHIPPED = "real_rows.json"
ROWS = 100_000  # of a file, at least, where it has so many
PARTS = ("mean", "std", "low", "high")


def known_rows(spec: EnvSpec) -> tuple[RowStatistics, ...]:
    """The shipped statistics of an environment's layout, those of all levels first; none where it has none."""
    found = _shipped().get(f"{spec.id}-{spec.obs_size}", {})
    return tuple(
        RowStatistics(name, **{part: np.array(values[part], np.float64) for part in PARTS})
        for name, values in found.items()
    )


def statistics_of(source: Source) -> RowStatistics | None:
    """Those of the first rows before an action of a file; None where it has none that are finite."""
    parts = [np.zeros((0, source.spec.obs_size))]
    for batch in source.batches(ROWS):
        parts.append(batch.start_obs)
        if sum(map(len, parts)) >= ROWS:
            break
    rows = np.concatenate(parts)
    rows = rows[np.isfinite(rows).all(axis=1)]
    if not len(rows):
        return None
    found = _statistics(rows.astype(np.float64))
    return RowStatistics(source.path.name, **{part: np.array(found[part]) for part in PARTS})


@cache
def _shipped() -> dict[str, Any]:
    content: dict[str, Any] = json.loads((files("qualcheck.explaining") / SHIPPED).read_text(encoding="utf-8"))
    return content


def learn(env: str, paths: dict[str, Path]) -> dict[str, dict[str, dict[str, list[float]]]]:
    """Layout -> file's name -> statistics of the rows before actions, of even-numbered rollouts of real files."""
    adapter = load(env)
    rows: dict[str, AnyArray] = {}
    for name, path in paths.items():
        parts = open_source(path, adapter.layouts()).batches()
        even = [part.start_obs[part.source_rollout[part.rollout] % 2 == 0] for part in parts]
        rows[name] = np.concatenate(even).astype(np.float64)
    sizes = sorted({spec.obs_size for spec in adapter.layouts()})
    adapter.close()
    rows = {"all levels": np.concatenate(list(rows.values())), **rows}
    return {
        f"{env}-{size}": {
            f"real rows ({name})": _short(_statistics(values[:, -size:])) for name, values in rows.items()
        }
        for size in sizes
    }


def _statistics(values: AnyArray) -> dict[str, list[float]]:
    std = values.std(axis=0)
    parts = (values.mean(axis=0), np.where(std > 0, std, 1.0), values.min(axis=0), values.max(axis=0))
    return {name: part.tolist() for name, part in zip(PARTS, parts, strict=True)}


def _short(statistics: dict[str, list[float]]) -> dict[str, list[float]]:
    return {name: [float(f"{value:.7g}") for value in values] for name, values in statistics.items()}


def main(arguments: list[str]) -> None:
    """Write the statistics of each ENV=FILE,FILE to the first argument."""
    out, *named = arguments
    content: dict[str, Any] = {}
    for entry in named:
        env, _, listed = entry.partition("=")
        content |= learn(env, {Path(name).stem.rpartition("_")[2]: Path(name) for name in listed.split(",")})
    Path(out).write_text(dump(content), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
