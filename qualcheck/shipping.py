"""Makes the calibrations that ship with the package, from real rollouts of others and recordings of its own.

    python -m qualcheck.shipping halfcheetah REAL... [--spread REAL] -o FOLDER

Even-numbered rollouts of the files are fitted on, so that the odd ones can test the result; of the files nothing but
numbers learnt from them is kept. The standard deviations come from all rollouts of the file named by --spread: the
tasks of a recording may alternate, so that its even half holds only some of them. The control is made of own
recordings alone.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path

import numpy as np

from qualcheck import __version__
from qualcheck.calibrating import build
from qualcheck.envs.halfcheetah.adapter import HalfCheetah
from qualcheck.envs.halfcheetah.goals import TASKS
from qualcheck.envs.halfcheetah.record import record
from qualcheck.io import open_source
from qualcheck.manifest import sha256
from qualcheck.subset import Subset
from qualcheck.tolerance import ALPHA
from qualcheck.types import Rollouts

FIT_EACH, CONTROL_EACH = 20, 20  # own rollouts of each task
NOISE, RANDOM_SHARE = 0.1, 0.15
SEEDS = {"fit": 1001, "control": 1002}


def own(purpose: str, each: int) -> Iterator[Rollouts]:
    """Own recordings of every task, level by level."""
    rng = np.random.default_rng(SEEDS[purpose])
    for level, tasks in TASKS.items():
        for task in tasks:
            rollouts = record(task, each, rng, NOISE, RANDOM_SHARE)
            yield replace(rollouts, level=[level] * rollouts.n_rollouts)


def in_layout(rollouts: Rollouts, columns: int) -> Rollouts:
    """The rollouts with rows of the last `columns` numbers."""
    first = rollouts.obs.shape[1] - columns
    return replace(
        rollouts,
        obs=rollouts.obs[:, first:],
        break_obs=None if rollouts.break_obs is None else rollouts.break_obs[:, first:],
        reset_obs=None if rollouts.reset_obs is None else rollouts.reset_obs[:, first:],
    )


def halfcheetah(paths: list[Path], spread: Path | None, folder: Path) -> None:
    """Write halfcheetah-18.json and halfcheetah-17.json."""
    usual = HalfCheetah()
    given: list[Rollouts] = []
    for path in paths:
        source = open_source(path, usual.spec)
        given += Subset(source, np.arange(source.n_rollouts) % 2 == 0).batches()
    whole = list(open_source(spread, usual.spec).batches()) if spread is not None else given
    for spec in usual.layouts():
        adapter = usual.with_layout(spec.obs_size)
        fitted = [in_layout(part, spec.obs_size) for part in [*given, *own("fit", FIT_EACH)]]
        measured = [in_layout(part, spec.obs_size) for part in whole] or None
        kept = [in_layout(part, spec.obs_size) for part in own("control", CONTROL_EACH)]
        provenance = {
            "source": "shipped calibration: own recordings of every task, held out",
            "data": [{"name": path.name, "sha256": sha256(path), "rollouts": "even"} for path in paths],
            "made_by": {
                "command": "python -m qualcheck.shipping halfcheetah",
                "qualcheck": __version__,
                "mujoco": version("mujoco"),
                "seeds": SEEDS,
            },
        }
        content = build(adapter, fitted, kept, ALPHA, provenance, measured)
        adapter.close()
        text = json.dumps(content, sort_keys=True, allow_nan=False, separators=(",", ":"))
        (folder / f"halfcheetah-{spec.obs_size}.json").write_text(text + "\n", encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("env", choices=["halfcheetah"])
    parser.add_argument("real", nargs="*", type=Path)
    parser.add_argument("--spread", type=Path)
    parser.add_argument("-o", "--out", type=Path, required=True)
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    halfcheetah(options.real, options.spread, options.out)


if __name__ == "__main__":
    main()
