"""Plants through the ordinary scoring, as files, at the tolerances that any file is held against."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np

from qualcheck.inputs import FAMILY_KEY, STORAGE_KEY
from qualcheck.io.canonical import CanonicalWriter
from qualcheck.pipeline import score
from qualcheck.selftesting.generic import limit_of
from qualcheck.selftesting.plant import Plant, joined
from qualcheck.selftesting.real import Real
from qualcheck.types import AnyArray, BoolArray, FloatArray, Rollouts


@dataclass(frozen=True)
class Verdicts:
    """What a checker says of rollouts, one entry each; a stub is another object of this kind."""

    step: list[FloatArray]  # (T,) 0 where correctness or legality fails at the judging grade, 1 where not, NaN unknown
    strict: list[FloatArray]  # (T,) the same at the noise floor
    goal: FloatArray  # (N,)
    row0: FloatArray  # (N,)
    rule: list[list[str]]  # (T,) first hard rule broken
    row0_rule: list[str]
    flags: list[set[str]]

    def same(self, value: float) -> Verdicts:
        """A checker that says the same of everything: 1 always passes, 0 always fails."""
        every = set() if value else {name for flags in self.flags for name in flags} | {"reward_shift"}
        steps = [np.full(len(part), value) for part in self.step]
        rule = "" if value else "row.anything"
        return Verdicts(
            steps,
            steps,
            np.full(len(self.goal), value),
            np.full(len(self.row0), value),
            [[rule] * len(part) for part in self.step],
            [rule] * len(self.row0),
            [set(every) for _ in self.flags],
        )


def judge(real: Real, rollouts: Sequence[Rollouts], folder: Path, name: str) -> Verdicts:
    """Write the rollouts to a file, score it, and read the verdicts."""
    path = folder / f"{name}.parquet"
    metadata = {FAMILY_KEY: real.adapter.family} if real.adapter.family else {}
    if not real.adapter.spec.exact:
        metadata[STORAGE_KEY] = real.storage  # planted numbers are finer than what the file rounds to
    with CanonicalWriter(path, real.adapter.spec, metadata) as writer:
        writer.append(joined(rollouts))
    run = score(path, env=real.adapter.spec.id, out=folder / name, family=real.adapter.family or None, recheck=0)
    steps = run.transitions(["tc", "tc_strict", "dl", "dl_rule"])
    table = run.rollouts(["gc_imagined", "dl_row0", "dl_row0_rule", "flags"])
    offsets = run.offsets()
    tc, strict, dl = (steps[column].to_numpy() for column in ("tc", "tc_strict", "dl"))
    rule = steps["dl_rule"].to_pylist()

    def parts(values: AnyArray) -> list[AnyArray]:
        return [values[a:b] for a, b in pairwise(offsets)]

    return Verdicts(
        parts(_both(tc, dl)),
        parts(_both(strict, dl)),
        table["gc_imagined"].to_numpy(),
        table["dl_row0"].to_numpy(),
        [rule[a:b] for a, b in pairwise(offsets)],
        [text or "" for text in table["dl_row0_rule"].to_pylist()],
        [set(names) for names in table["flags"].to_pylist()],
    )


def _both(tc: FloatArray, dl: FloatArray) -> FloatArray:
    return np.where((tc == 0) | (dl == 0), 0.0, np.where(np.isnan(tc) & np.isnan(dl), np.nan, 1.0))


def effects(real: Real, plants: Sequence[Plant]) -> list[float]:
    """The size of each fault in tolerances: as planted, or how far the simulator ends from where it did before."""
    unknown = [k for k, plant in enumerate(plants) if np.isnan(plant.effect) and plant.metric == "step"]
    sizes = [plant.effect for plant in plants]
    if not unknown:
        return sizes
    after = _ends(real, [plants[k].rollouts for k in unknown], [plants[k].step for k in unknown])
    shown = [plants[k].rollouts.obs[plants[k].step + 1].astype(np.float64) for k in unknown]
    before = _ends(real, [real.rollouts[plants[k].origin] for k in unknown], [plants[k].step for k in unknown])
    for place, k in enumerate(unknown):
        plant = plants[k]
        same_row = np.array_equal(plant.rollouts.obs[plant.step], real.rollouts[plant.origin].obs[plant.step])
        same_end = np.array_equal(shown[place], real.rollouts[plant.origin].obs[plant.step + 1])
        # with the rows as they were only the simulator ends elsewhere; else the row itself says how far off it is
        gap = np.abs(after[place] - (before[place] if same_row and same_end else shown[place]))
        sizes[k] = _in_tolerances(real, plant, gap)
    return sizes


def _ends(real: Real, rollouts: Sequence[Rollouts], steps: Sequence[int]) -> list[FloatArray]:
    every = joined(rollouts)
    candidate = real.adapter.replay(every).candidates[0]
    return [candidate[int(every.offsets[k]) + step].astype(np.float64) for k, step in enumerate(steps)]


def _in_tolerances(real: Real, plant: Plant, gap: FloatArray) -> float:
    spec = real.adapter.spec
    if not np.isfinite(gap).all():
        return np.inf
    if spec.exact:
        return np.inf if gap.any() else 0.0
    limit, worst = limit_of(real), 0.0
    step = min(plant.step, real.rollouts[plant.origin].n_transitions - 1)
    for block in spec.blocks:
        for column in block.columns:
            if gap[column] > 0:
                tolerance = real.tolerance(plant.origin, step, column, limit)
                worst = max(worst, gap[column] / tolerance if tolerance > 0 else np.inf)
    return float(worst)


def found_at(plant: Plant, verdicts: Verdicts, k: int, strict: bool = False) -> tuple[bool, bool]:
    """Whether a checker notices a plant where it is, and within 3 steps."""
    if plant.metric == "goal":
        return (hit := bool(verdicts.goal[k] == 0)), hit
    if plant.metric.startswith("flag:"):
        return (hit := plant.metric.removeprefix("flag:") in verdicts.flags[k]), hit
    if plant.metric == "row0":
        return (hit := verdicts.row0_rule[k] == plant.fault.removeprefix("rule ")), hit
    if plant.metric == "rule":
        hit = verdicts.rule[k][plant.step] == plant.fault.removeprefix("rule ")
        return hit, hit
    wrong: BoolArray = (verdicts.strict if strict else verdicts.step)[k] == 0
    return bool(wrong[plant.step]), bool(wrong[plant.step : plant.step + 4].any())
