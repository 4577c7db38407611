"""`convert`: any rollout file to qualcheck's own layout, or on to the benchmark's."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from qualcheck.errors import UsageError
from qualcheck.io import write_episodes
from qualcheck.io.arrays import GOAL_KEYS
from qualcheck.io.canonical import CanonicalWriter
from qualcheck.io.layouts import environments, specs
from qualcheck.io.source import FileSource, open_source
from qualcheck.io.to_padded import BEYOND_KEY, LAYOUT_KEY, PADDED, describe, to_padded, whole_batches
from qualcheck.io.write_benchmark import write_benchmark
from qualcheck.io.write_npy import write_npy
from qualcheck.output import refuse_overlap, staged_files
from qualcheck.spec import EnvSpec
from qualcheck.storage import find_storage, sample
from qualcheck.types import AnyArray

LAYOUTS = ("canonical", "npy", "benchmark_parquet", *write_episodes.LAYOUTS)


@dataclass(frozen=True)
class Converted:
    """What was written, and what there is to say of its input."""

    out: Path
    env: str
    format: str  # of the input
    n_rollouts: int
    n_transitions: int
    findings: list[str]


def convert(
    input: str | Path,
    out: str | Path,
    env: str | None = None,
    *,
    to: str = "canonical",
    trust_pickle: bool = False,
    encodings: str | Path | None = None,
    last_action: str = "auto",
    obs_mean: AnyArray | None = None,
    obs_std: AnyArray | None = None,
) -> Converted:
    """Write a rollout file in another layout; every value of its rollouts is kept, padding is not.

    Args:
        input: any file that `qualcheck score` reads, also of an environment that it cannot score yet.
        out: file to create.
        env: environment of the rows; None: what the file says, else the one environment whose rows and actions fit.
        to: one of `LAYOUTS`.
        encodings: reference codes that name the instructions, as in `open_source`; so the next three.

    Raises:
        DataError: the input cannot be read.
        UsageError: no or several environments fit, `out` exists or is the input, or the layout cannot hold the rows.
    """
    path, out = Path(input), Path(out)
    if to not in LAYOUTS:
        raise UsageError(f"--to {to!r}; it is one of: {', '.join(LAYOUTS)}.")
    kind = {".npy": "npy", ".parquet": None}.get(out.suffix, to)
    if (kind is None and to == "npy") or (kind == "npy" and to != "npy"):
        raise UsageError(f"-o {out}: the name says {out.suffix}, --to says {to}. Change one of them.")
    every = [spec for name in environments() for spec in specs(name)] if env is None else specs(env)
    source = open_source(
        path,
        every,
        last_action=last_action,
        trust_pickle=trust_pickle,
        encodings=encodings,
        obs_mean=obs_mean,
        obs_std=obs_std,
    )
    findings = [] if env is not None else _only_one(source, every)
    refuse_overlap(out, source.files)
    for beside in (out, out.with_name(f"{out.name}.codes.npy")):
        if beside.exists() or beside.is_symlink():
            raise UsageError(f"-o {out}: {beside} exists already; nothing is overwritten. Choose another name.")
    with staged_files(out) as stage:
        if to == "canonical":
            with CanonicalWriter(stage / out.name, source.spec, _metadata(source), [str(path)]) as writer:
                for batch in whole_batches(source):
                    writer.append(batch)
        elif to in write_episodes.LAYOUTS:
            write_episodes.write_episodes(to, whole_batches(source), stage / out.name)
        else:
            keys = to_padded(source)
            if to == "npy":
                write_npy(keys, stage / out.name)
            else:
                write_benchmark(keys, stage / out.name, f"{path.stem}.npy")
    findings += source.findings
    if not source.spec.exact:
        findings.append(f"storage: {find_storage(sample(source))}")
    return Converted(out, source.spec.id, source.format, source.n_rollouts, source.n_transitions, findings)


def _only_one(source: FileSource, every: Sequence[EnvSpec]) -> list[str]:
    """A finding that says which environment the rows were taken for."""
    own = source.spec
    if source.format == "canonical":
        return []
    fitting = {spec.id for spec in every if (spec.obs_size, spec.action.size) == (own.obs_size, own.action.size)}
    if len(fitting) > 1:
        raise UsageError(f"{source.path}: rows of {', '.join(sorted(fitting))} look alike; say which with --env ENV.")
    return [f"taken for {own.id}, the only environment with rows of {own.obs_size} columns and such actions"]


def _metadata(source: FileSource) -> dict[str, Any]:
    metadata = dict(source.metadata)
    if source.format.partition(",")[0] in PADDED:
        metadata[LAYOUT_KEY] = describe(source)
        for name in ("instructions", *GOAL_KEYS):
            value = source.keys().get(name)
            if isinstance(value, list | tuple | np.ndarray) and len(value) > source.n_rollouts:
                metadata[BEYOND_KEY + name] = list(value[source.n_rollouts :])
    return metadata
