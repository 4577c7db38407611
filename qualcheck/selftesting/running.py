"""The self-test of one environment from beginning to end."""

from __future__ import annotations

import importlib
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from qualcheck.errors import DataError, UsageError
from qualcheck.registry import known
from qualcheck.selftesting import generic
from qualcheck.selftesting.judging import effects, judge
from qualcheck.selftesting.plant import Fault, Plant
from qualcheck.selftesting.real import Real, real_rollouts
from qualcheck.selftesting.rules import rule_plants
from qualcheck.selftesting.table import SelfTest, Tally, failures, smallest, tally

ROLLOUTS = 60
PLANTS = 20  # of each fault and size
BAR = 0.9


def selftest(
    env: str,
    real: Sequence[str | Path] = (),
    *,
    fail_under: float = BAR,
    rollouts: int = ROLLOUTS,
    plants: int = PLANTS,
    seed: int = 0,
    trust_pickle: bool = False,
) -> SelfTest:
    """Plant faults of known kind and size into real rollouts, score them as any file is scored, and count.

    Args:
        env: id of the environment.
        real: files of real rollouts; none: the environment's own experts record some now.
        fail_under: share of the faults of at least two tolerances that must be found at their step, of every kind.
        rollouts: real rollouts to use.
        plants: of each fault and size.
        seed: of all that is drawn.
        trust_pickle: load pickles with numpy's own loader.

    Raises:
        DataError: the files cannot be used, or the environment has no tolerances for them.
        UsageError: a number that makes no sense, or there are neither files nor experts.
        UnknownName: no such environment.
    """
    if not 0 < fail_under <= 1:
        raise UsageError(f"--fail-under {fail_under}; it is a share above 0, up to 1.")
    for name, value in (("rollouts", rollouts), ("plants", plants)):
        if value < 1:
            raise UsageError(f"--{name} {value}; it is a whole number from 1.")
    if seed < 0:
        raise UsageError(f"--seed {seed}; it is a whole number from 0.")
    with tempfile.TemporaryDirectory(prefix="qualcheck-selftest-") as name:
        folder = Path(name)
        found = real_rollouts(env, [Path(path) for path in real], folder, rollouts, seed, trust_pickle)
        try:
            return _run(found, folder, fail_under, plants, np.random.default_rng(seed))
        finally:
            found.adapter.close()


def _run(real: Real, folder: Path, bar: float, count: int, rng: np.random.Generator) -> SelfTest:
    spec = real.adapter.spec
    if not spec.exact and real.scale is None:
        raise DataError(
            f"{real.source}: {spec.id} has no tolerances for rows stored as {real.storage}. Fit them with `qualcheck "
            "calibrate`, on rollouts of that storage or a finer one."
        )
    own = own_faults(spec.id)
    plants = [
        plant
        for fault in [*generic.faults(real), *own.get("FAULTS", [])]
        for size in fault.sizes or (1.0,)
        for plant in _several(real, fault, size, count, rng)
    ]
    by_rule, unbroken = rule_plants(real, own.get("CRAFTED", {}), rng)
    plants += by_rule
    sizes = effects(real, plants)
    clean = judge(real, real.rollouts, folder, "clean")
    judged = judge(real, [plant.rollouts for plant in plants], folder, "planted")
    mine = tally(plants, sizes, judged, clean)
    stubs = {}
    for name, value in (("always passes", 1.0), ("always fails", 0.0)):
        missed = failures(tally(plants, sizes, judged.same(value), clean.same(value)), bar, spec.exact)
        stubs[name] = {"exposed": bool(missed), "why": missed[0] if missed else "no bar was missed"}
    return _conclude(real, mine, unbroken, stubs, bar)


def _conclude(real: Real, mine: Tally, unbroken: list[str], stubs: dict[str, Any], bar: float) -> SelfTest:
    spec = real.adapter.spec
    missed = failures(mine, bar, spec.exact)
    missed += [f"rule {name}: nothing that was planted breaks it" for name in unbroken]
    missed += [f"a checker that {name} is not exposed" for name, stub in stubs.items() if not stub["exposed"]]
    return SelfTest(
        env=spec.id,
        source=real.source,
        rollouts=len(real.rollouts),
        grade=spec.judging_grade,
        tolerance="every field must be equal"
        if real.scale is None
        else f"stored as {real.storage}, {real.scale.label}",
        rows=mine.rows,
        honest_steps=mine.honest,
        false_alarms=mine.alarms,
        false_alarms_strict=mine.alarms_strict,
        after_fault_steps=mine.after,
        after_fault_alarms=mine.after_alarms,
        rules=sum(rule.hard for rule in real.adapter.rules),
        rules_unbroken=unbroken,
        smallest=smallest(mine.rows),
        stubs=stubs,
        bar=bar,
        failures=missed,
    )


def _several(real: Real, fault: Fault, size: float, count: int, rng: np.random.Generator) -> list[Plant]:
    """As many plants of a fault as can be made, on rollouts in random order."""
    made: list[Plant] = []
    for at in rng.permutation(np.tile(np.arange(len(real.rollouts)), 3)).tolist():
        if len(made) == count:
            break
        plant = fault.plant(real, at, size, rng)
        if plant is not None:
            made.append(plant)
    return made


def own_faults(env: str) -> dict[str, Any]:
    """`FAULTS` and `CRAFTED` of the module `faults` beside an environment's adapter; empty where it has none."""
    package = known()[env].partition(":")[0]
    try:
        module = importlib.import_module(f"{package}.faults")
    except ModuleNotFoundError as error:
        if error.name != f"{package}.faults" and not str(error.name).startswith(f"{package}.faults"):
            raise
        return {}
    return {name: getattr(module, name) for name in ("FAULTS", "CRAFTED") if hasattr(module, name)}
