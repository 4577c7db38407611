"""Split conformal prediction over rollouts holds what it promises: 200 random splits of the golden real rollouts.

The joint error of a rollout is measured in usual errors that are learnt too. With those from rollouts of their own the
promise is exact: the mean share of rejected held-out rollouts lies between alpha - 1/(n+1) - 2 MCSE and
alpha + 2 MCSE. Calibration learns them on the very rollouts that set the tolerance, since real rollouts are few; what
that costs is measured here as well. Rollouts of all levels are pooled and split at random, so that they are
exchangeable by construction.
"""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from qualcheck.io import open_source
from qualcheck.registry import load
from qualcheck.tolerance import Tolerance, _errors, _Measured, _noise, _quantile, stored

SPLITS = 200
FILES = {
    "halfcheetah": ("mujoco_real",),
    "clevr": ("clevr_real", "clevr_easy"),
    "libero": ("libero_real", "libero_rephrase", "libero_easy", "libero_hard"),
    "metaworld": ("metaworld_real", "metaworld_rephrase", "metaworld_easy", "metaworld_hard"),
}
_KNOWN: dict[str, tuple[_Measured, dict[str, int], dict[str, str]]] = {}


def _measured(env: str, shared_data: Path) -> tuple[_Measured, dict[str, int], dict[str, str]]:
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
            found = _errors(adapter, stored(whole, "float32"))
            parts.append(replace(found, owner=found.owner + first))
        first += source.n_rollouts
    spec = adapter.spec
    adapter.close()
    numbers = {name: at for at, name in enumerate(spec.situations) if name not in spec.unsettled}
    together = _Measured(
        np.concatenate([part.errors for part in parts], axis=1),
        np.concatenate([part.owner for part in parts]),
        np.concatenate([part.situation for part in parts]),
        parts[0].seedings,
    )
    _KNOWN[env] = together, numbers, {block.name: block.group or block.name for block in spec.blocks}
    return _KNOWN[env]


def _of(measured: _Measured, owners: np.ndarray) -> _Measured:
    mine = np.isin(measured.owner, owners)
    return _Measured(measured.errors[:, mine], measured.owner[mine], measured.situation[mine], measured.seedings)


ALL = [
    *(("halfcheetah", alpha) for alpha in (0.1, 0.05, 0.01)),
    *(("clevr", alpha) for alpha in (0.1, 0.05)),
    *(pytest.param(env, alpha, marks=pytest.mark.slow) for env in ("libero", "metaworld") for alpha in (0.1, 0.05)),
]
SHAPE = 0.2  # share of the rollouts that usual errors are learnt from where they have rollouts of their own
# what learning usual errors on the same rollouts costs at most, measured: LIBERO has 29 here, of which few reach each
# situation, where a 0.99 quantile is then little more than the largest error (its shipped calibration rests on 145)
COST = {"halfcheetah": 0.01, "clevr": 0.01, "metaworld": 0.02, "libero": 0.15}


def _worst(measured: _Measured, numbers: dict[str, int], blocks: dict[str, str], known: dict) -> np.ndarray:
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


def _splits(env: str, alpha: float, shared_data: Path, own_shape: bool) -> tuple[float, float, int]:
    """Mean held-out rejection, its Monte Carlo error, and the rollouts that set the tolerance."""
    if env == "libero":
        pytest.importorskip("robosuite")
    measured, numbers, blocks = _measured(env, shared_data)
    rollouts = np.unique(measured.owner)
    rng = np.random.default_rng(0)
    shape = int(SHAPE * len(rollouts)) if own_shape else 0
    n = (len(rollouts) - shape) // 2
    if math.ceil((n + 1) * (1 - alpha)) > n:
        pytest.skip(f"need {math.ceil(1 / alpha) - 1} rollouts, there are {n}")
    rates = []
    for _ in range(SPLITS):
        mixed = rng.permutation(rollouts)
        fitting, held = _of(measured, mixed[shape : shape + n]), _of(measured, mixed[shape + n :])
        if own_shape:
            known = _noise([_of(measured, mixed[:shape])], numbers, blocks, 0.2)
            limit = np.sort(_worst(fitting, numbers, blocks, known))[math.ceil((n + 1) * (1 - alpha)) - 1]
        else:
            known, limit = _noise([fitting], numbers, blocks, alpha), 1.0
        rates.append(float((_worst(held, numbers, blocks, known) > limit).mean()))
    return float(np.mean(rates)), float(np.std(rates) / np.sqrt(SPLITS)), n


@pytest.mark.parametrize(("env", "alpha"), ALL)
def test_held_out_rejection_is_the_promised_one(env: str, alpha: float, shared_data: Path) -> None:
    mean, mcse, n = _splits(env, alpha, shared_data, own_shape=True)
    low, high = alpha - 1 / (n + 1) - 2 * mcse, alpha + 2 * mcse
    assert low <= mean <= high, f"{env}, alpha {alpha}: {mean:.4f} not in [{low:.4f}, {high:.4f}], n {n}"


@pytest.mark.parametrize(("env", "alpha"), ALL)
def test_learning_usual_errors_on_the_same_rollouts_costs_what_is_known(
    env: str, alpha: float, shared_data: Path
) -> None:
    mean, mcse, n = _splits(env, alpha, shared_data, own_shape=False)
    low, high = alpha - 1 / (n + 1) - 2 * mcse, alpha + COST[env] + 2 * mcse
    assert low <= mean <= high, f"{env}, alpha {alpha}: {mean:.4f} not in [{low:.4f}, {high:.4f}], n {n}"


def test_too_few_rollouts_are_told_how_many_are_needed() -> None:
    rng = np.random.default_rng(0)
    values, owner = rng.random(500), np.repeat(np.arange(50), 10)
    _, told = _quantile([values], [owner], 0.01)
    assert (told["label"], told["need_rollouts"]) == ("pooled, no guarantee", 99)
    _, told = _quantile([rng.random(990)], [np.repeat(np.arange(99), 10)], 0.01)
    assert told["label"] == "conformal"
