"""A filtered file is held against the noise floor that its run used, whatever its own rows look like."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import qualcheck
from qualcheck.envs.toy import record
from qualcheck.errors import UsageError
from qualcheck.filtering import filter_run
from qualcheck.io import CanonicalWriter
from qualcheck.registry import load
from qualcheck.types import Rollouts


def write(path: Path, rollouts: Rollouts) -> Path:
    with CanonicalWriter(path, load("toy").spec, {}) as writer:
        writer.append(rollouts)
    return path


@pytest.fixture(scope="module")
def tolerances(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("toy")
    qualcheck.calibrate(write(folder / "real.parquet", record(150, np.random.default_rng(0))), "toy", folder / "t.json")
    return str(folder / "t.json")


def test_what_is_kept_is_judged_as_before_though_it_looks_finer(tmp_path: Path, tolerances: str) -> None:
    rollouts = record(100, np.random.default_rng(1))
    rows_of = np.repeat(np.arange(100), rollouts.length + 1)[: len(rollouts.obs)]
    fine = rows_of >= 98
    obs = rollouts.obs.astype(np.float64)
    obs[~fine] += np.random.default_rng(2).normal(0, 0.3, (int((~fine).sum()), 3))  # every coarse rollout is wrong
    obs = np.where(fine[:, None], obs, np.round(obs, 2))
    obs[fine] += np.where(np.arange(fine.sum()) % 2, 1e-3, -1e-3)[:, None]  # within 2 decimals, far beyond float64
    path = write(tmp_path / "mixed.parquet", replace(rollouts, obs=obs))
    run = qualcheck.score(path, "toy", tmp_path / "run", calibration=tolerances, grade="strict", recheck=0)
    assert run.manifest["results"]["inputs"][0]["storage"] == "2 decimals"
    kept = filter_run(run.path, tmp_path / "kept.parquet", min_correctness=0.9)
    assert 0 < len(np.unique(kept.pieces.rollout)) <= 2
    again = qualcheck.score(kept.out, "toy", calibration=tolerances, grade="strict", recheck=0)
    assert again.manifest["results"]["inputs"][0]["storage"] == "2 decimals"
    assert np.nanmean(again.transitions(["tc"])["tc"].to_numpy()) > 0.9


def test_two_storages_do_not_go_into_one_file(tmp_path: Path, tolerances: str) -> None:
    rollouts = record(10, np.random.default_rng(2))
    fine = write(tmp_path / "fine.parquet", rollouts)
    coarse = write(tmp_path / "coarse.parquet", replace(rollouts, obs=np.round(rollouts.obs.astype(np.float64), 2)))
    run = qualcheck.score([fine, coarse], "toy", tmp_path / "run", calibration=tolerances, recheck=0)
    with pytest.raises(UsageError, match=r"coarse.parquet \(2 decimals\).*--input"):
        filter_run(run.path, tmp_path / "kept.parquet")
    assert not list(tmp_path.glob("kept*"))
    filter_run(run.path, tmp_path / "kept.parquet", input_path=coarse)
    again = qualcheck.score(tmp_path / "kept.parquet", "toy", calibration=tolerances, recheck=0)
    assert again.manifest["results"]["inputs"][0]["storage"] == "2 decimals"
