"""Makes the data set and the BabyAI control that ship inside the package: `python -m qualcheck.demo.build`.

Takes some 20 seconds on one core; on a busy machine set OPENBLAS_NUM_THREADS=1, since the matrices are small.
"""

from __future__ import annotations

import argparse
import json
import platform
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from qualcheck import __version__
from qualcheck.calibration import control_of_run
from qualcheck.demo import corrupt, imagine, label, model, record
from qualcheck.demo.episode import Episode
from qualcheck.envs.babyai import BabyAI, goals
from qualcheck.io.canonical import CanonicalWriter
from qualcheck.pipeline import score
from qualcheck.types import Rollouts

PACKAGE = Path(__file__).resolve().parents[1]
COMMAND = "python -m qualcheck.demo.build"
# no two of them share random numbers, so that the control is held out from everything else
REAL, TRAINING, FITTING, DREAMS, TAPES, FAULTS, CONTROL = range(7)
TRAINING_SHARES = (0.0, 0.05)  # with more chance in its data the model dreams hardly a fault


@dataclass(frozen=True)
class Plan:
    """How much of everything; per task and level where not said otherwise."""

    seed: int = 2025
    real: int = 25
    rephrase: int = 10
    easy: int = 10
    hard: int = 14
    training: int = 1_200  # real rollouts of each recorded task that the model is fitted to
    epochs: int = 20
    dreams: int = 20
    tapes: int = 40  # recordings that faults are planted in
    per_fault: int = 7
    control: int = 100  # per task

    def rng(self, stream: int) -> np.random.Generator:
        return np.random.default_rng([self.seed, stream])


def real_rollouts(plan: Plan) -> Rollouts:
    """Recordings of every task under every level that has it, labelled."""
    rng = plan.rng(REAL)
    counts = {"real": plan.real, "rephrase": plan.rephrase, "easy": plan.easy, "hard": plan.hard}
    return label.labelled(_record(counts, rng))


def _record(counts: dict[str, int], rng: np.random.Generator) -> list[Episode]:
    return [
        episode
        for level, count in counts.items()
        for task in goals.TASKS[level]
        for episode in record.record(task, level, count, rng)
    ]


def training_rollouts(plan: Plan) -> list[Episode]:
    """What the small model is fitted to: recordings of the four recorded tasks in the recorded sentences."""
    rng = plan.rng(TRAINING)
    tasks = goals.TASKS["real"]
    return [episode for task in tasks for episode in record.record(task, "real", plan.training, rng, TRAINING_SHARES)]


def imagined_rollouts(plan: Plan) -> Rollouts:
    """What the small model dreams up for the three unseen levels, then recordings with planted faults, all labelled."""
    fitted = model.fit(training_rollouts(plan), plan.rng(FITTING), plan.epochs)
    rng = plan.rng(DREAMS)
    unseen = ("rephrase", "easy", "hard")
    starts = [
        start
        for level in unseen
        for task in goals.TASKS[level]
        for start in record.draw_starts(task, level, plan.dreams, rng)
    ]
    dreams = imagine.imagine(fitted, starts, rng)
    tapes = _record(dict.fromkeys(unseen, plan.tapes), plan.rng(TAPES))
    return label.labelled([*dreams, *corrupt.corrupt(tapes, plan.per_fault, plan.rng(FAULTS))])


def control(plan: Plan, scratch: Path) -> dict[str, Any]:
    """Held-out recordings of all tasks, scored: the table behind the control row of a report."""
    rng = plan.rng(CONTROL)
    levels = ("real", "easy", "hard")
    episodes = _record(dict.fromkeys(levels, plan.control), rng)
    rollouts = label.labelled(episodes)
    write(rollouts, scratch / "control.parquet", plan)
    run = score(scratch / "control.parquet", "babyai", scratch / "run", seed=plan.seed)
    source = f"shipped calibration: {rollouts.n_rollouts:,} real rollouts recorded by qualcheck, held out"
    return {**control_of_run(run.path, source), "made_by": made_by(plan)}


def made_by(plan: Plan) -> dict[str, Any]:
    """Command, seed, amounts and versions."""
    packages = ("numpy", "pyarrow", "minigrid", "gymnasium")
    return {
        "command": COMMAND,
        "plan": asdict(plan),
        "versions": {
            "qualcheck": __version__,
            "python": platform.python_version(),
            **{package: version(package) for package in packages},
        },
    }


def write(rollouts: Rollouts, path: Path, plan: Plan) -> None:
    """Write a canonical file with what made it in the metadata."""
    writer = CanonicalWriter(path, BabyAI.spec, {"qualcheck.made_by": json.dumps(made_by(plan), sort_keys=True)})
    writer.append(rollouts)
    writer.close()


def build(folder: Path, plan: Plan) -> list[Path]:
    """Write `data/` and `calibration/` under a folder; the paths come back."""
    real, dreamt = folder / "data" / "babyai_real.parquet", folder / "data" / "babyai_imagined.parquet"
    stored = folder / "calibration" / "babyai.json"
    for path in (real, stored):
        path.parent.mkdir(parents=True, exist_ok=True)
    write(real_rollouts(plan), real, plan)
    write(imagined_rollouts(plan), dreamt, plan)
    with tempfile.TemporaryDirectory() as scratch:
        table = control(plan, Path(scratch))
    text = json.dumps(table, sort_keys=True, separators=(",", ":"), allow_nan=False, ensure_ascii=False)
    stored.write_text(text + "\n", encoding="utf-8")
    return [real, dreamt, stored]


def main(arguments: Sequence[str] | None = None) -> None:
    """Read the command line and build."""
    parser = argparse.ArgumentParser(prog=COMMAND, description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("-o", dest="folder", type=Path, default=PACKAGE, help="default: inside the package")
    parser.add_argument("--seed", type=int, default=Plan.seed)
    chosen = parser.parse_args(arguments)
    for path in build(chosen.folder, Plan(seed=chosen.seed)):
        sys.stdout.write(f"{path}  {path.stat().st_size:,} bytes\n")


if __name__ == "__main__":
    main()
