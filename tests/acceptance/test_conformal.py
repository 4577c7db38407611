"""Split conformal prediction over rollouts holds what it promises: 200 random splits of the golden real rollouts.

The mean share of rejected held-out rollouts lies between alpha - 1/(n+1) - 2 MCSE and alpha + 2 MCSE. Rollouts of all
levels are pooled and split at random, so that they are exchangeable by construction. Beside it, what tolerances of
these levels find in the files of planted faults.
"""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from qualcheck.calibration import shipped
from qualcheck.conformal import Measured, known_states, quantile
from qualcheck.io import open_source
from qualcheck.io.npy import load_npy
from qualcheck.registry import load
from qualcheck.tolerance import Tolerance, block_errors, stored

SPLITS = 200
FILES = {
    "halfcheetah": ("mujoco_real",),
    "clevr": ("clevr_real", "clevr_easy"),
    "libero": ("libero_real", "libero_rephrase", "libero_easy", "libero_hard"),
    "metaworld": ("metaworld_real", "metaworld_rephrase", "metaworld_easy", "metaworld_hard"),
}
_KNOWN: dict[str, tuple[Measured, dict[str, int], dict[str, str]]] = {}


def _measured(env: str, shared_data: Path) -> tuple[Measured, dict[str, int], dict[str, str]]:
    """Block errors of every real transition, with rollouts numbered over all files; settled situations; groups."""
    if env in _KNOWN:
        return _KNOWN[env]
    adapter = load(env)
    parts, first = [], 0
    for name in FILES[env]:
        source = open_source(shared_data / "golden" / f"{name}.npy", adapter.layouts())
        adapter = adapter.with_layout(source.spec.obs_size)
        for batch in source.batches(20_000):
            whole = replace(batch, is_reset=np.ones(batch.n_rollouts, bool))
            found = block_errors(adapter, stored(whole, "float32"))
            parts.append(replace(found, owner=found.owner + first))
        first += source.n_rollouts
    spec = adapter.spec
    adapter.close()
    numbers = {name: at for at, name in enumerate(spec.situations) if name not in spec.unsettled}
    together = Measured(
        np.concatenate([part.errors for part in parts], axis=1),
        np.concatenate([part.owner for part in parts]),
        np.concatenate([part.situation for part in parts]),
        parts[0].seedings,
    )
    _KNOWN[env] = together, numbers, {block.name: block.group or block.name for block in spec.blocks}
    return _KNOWN[env]


def _of(measured: Measured, owners: np.ndarray) -> Measured:
    return measured.of(np.isin(measured.owner, owners))


ALL = [
    *(("halfcheetah", alpha) for alpha in (0.1, 0.05, 0.01)),
    *(("clevr", alpha) for alpha in (0.1, 0.05)),
    *(pytest.param(env, alpha, marks=pytest.mark.slow) for env in ("libero", "metaworld") for alpha in (0.1, 0.05)),
]


def _worst(measured: Measured, numbers: dict[str, int], blocks: dict[str, str], known: dict) -> np.ndarray:
    """The largest joint error of each rollout in tolerances of `known`."""
    error = np.nan_to_num(measured.errors, nan=np.inf)
    best = error[error.sum(axis=2).argmin(axis=0), np.arange(error.shape[1])]
    over = np.zeros(best.shape[0])
    for name, number in numbers.items():
        inside = measured.situation == number
        # a situation that the fitting part never met is held against the first one, as scoring does
        each = known.get(name, known[next(iter(known))])
        over[inside] = Tolerance(each["median"], each["tolerance"]).error(best[inside], list(blocks))
    owners, at = np.unique(measured.owner, return_inverse=True)
    worst = np.zeros(len(owners))
    np.maximum.at(worst, at, over)
    return worst


def _splits(env: str, alpha: float, shared_data: Path) -> tuple[float, float, int]:
    """Mean held-out rejection, its Monte Carlo error, and the rollouts fitted on."""
    if env == "libero":
        pytest.importorskip("robosuite")
    measured, numbers, blocks = _measured(env, shared_data)
    rollouts = np.unique(measured.owner)
    rng = np.random.default_rng(0)
    n = len(rollouts) // 2
    if math.ceil((n + 1) * (1 - alpha)) > n:
        pytest.skip(f"need {math.ceil(1 / alpha) - 1} rollouts, there are {n}")
    rates = []
    for _ in range(SPLITS):
        mixed = rng.permutation(rollouts)
        known = known_states(_of(measured, mixed[:n]), numbers, blocks, alpha)
        rates.append(float((_worst(_of(measured, mixed[n:]), numbers, blocks, known) > 1).mean()))
    return float(np.mean(rates)), float(np.std(rates) / np.sqrt(SPLITS)), n


@pytest.mark.parametrize(("env", "alpha"), ALL)
def test_held_out_rejection_is_the_promised_one(env: str, alpha: float, shared_data: Path) -> None:
    mean, mcse, n = _splits(env, alpha, shared_data)
    low, high = alpha - 1 / (n + 1) - 2 * mcse, alpha + 2 * mcse
    assert low <= mean <= high, f"{env}, alpha {alpha}: {mean:.4f} not in [{low:.4f}, {high:.4f}], n {n}"


def test_too_few_rollouts_are_told_how_many_are_needed() -> None:
    rng = np.random.default_rng(0)
    values, owner = rng.random(500), np.repeat(np.arange(50), 10)
    _, told = quantile(values, owner, 0.01)
    assert (told["label"], told["need_rollouts"]) == ("pooled, no guarantee", 99)
    _, told = quantile(rng.random(990), np.repeat(np.arange(99), 10), 0.01)
    assert told["label"] == "conformal"


# fault file, the key of a planted step in it, and the share that is found at its step at the least
MUTATED = {
    "halfcheetah": ("mujoco_mutated", "fault_step", 0.98),
    "clevr": ("clevr_mutated", "first_bad_transition", 0.95),
    "libero": ("libero_mutated", "first_bad_transition", 0.85),
    "metaworld": ("metaworld_mutated", "fault_step", 0.85),
}


@pytest.mark.parametrize(
    "env", ["halfcheetah", "clevr", *(pytest.param(env, marks=pytest.mark.slow) for env in ("libero", "metaworld"))]
)
def test_planted_faults_are_found_at_the_same_tolerances(
    env: str, qualcheck: Any, shared_data: Path, tmp_path: Path
) -> None:
    if env == "libero":
        pytest.importorskip("robosuite")
    measured, numbers, blocks = _measured(env, shared_data)
    even = _of(measured, np.unique(measured.owner)[::2])
    name, key, least = MUTATED[env]
    content = load_npy(shared_data / f"mutated/{name}.npy")
    fault = np.array(content["fault"])
    planted = np.flatnonzero(~np.isin(fault, ("none", "truncated_goal")))
    found = {}
    for alpha in (0.1, 0.05, 0.01):
        path = tmp_path / f"{alpha}.json"
        path.write_text(json.dumps(_with_tolerances(env, known_states(even, numbers, blocks, alpha), alpha)))
        run = qualcheck.score(
            tmp_path / f"{alpha}", shared_data / f"mutated/{name}.npy", env=env,
            options=["--calibration", path, "--recheck", 0],
        )  # fmt: skip
        hit = [(run.steps(i, "tc_strict") == 0) | (run.steps(i, "dl") == 0) for i in planted]
        found[alpha] = np.array([each[int(content[key][i])] for i, each in zip(planted, hit, strict=True)])
    assert found[0.01].mean() >= least, {alpha: each.mean() for alpha, each in found.items()}
    assert (found[0.1] >= found[0.05]).all(), "a wide tolerance finds what a narrow one misses"
    if len(np.unique(even.owner)) >= 99:  # else the tolerance at 0.01 is pooled, in other units
        assert (found[0.05] >= found[0.01]).all(), "a wide tolerance finds what a narrow one misses"


def _with_tolerances(env: str, known: dict[str, Any], alpha: float) -> dict[str, Any]:
    """The shipped calibration of an environment with other tolerances of float32 rows."""
    adapter = load(env)
    families = adapter.families()
    content: dict[str, Any] = dict(shipped(adapter.spec, families[0] if families else "").content)
    adapter.close()
    mine = {**content["storages"]["float32"], **known.pop(adapter.spec.situations[0]), "settled": known}
    return {**content, "alpha": alpha, "storages": {**content["storages"], "float32": mine}}
