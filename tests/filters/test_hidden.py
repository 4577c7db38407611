"""Pieces of an environment whose rows hide part of the state keep the verdicts of their source."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import qualcheck
from qualcheck.envs.toy import record
from qualcheck.filtering import filter_run
from qualcheck.filters.pieces import ranges
from qualcheck.io import CanonicalWriter, open_source
from qualcheck.registry import load
from qualcheck.table import Run
from qualcheck.types import Rollouts

PER_STEP = ("tc", "tc_strict", "tc_error", "tc_code", "tc_scaled", "skill", "seeding", "dl", "dl_rule")


def write(path: Path, rollouts: Rollouts) -> Path:
    with CanonicalWriter(path, load("toy").spec, {}) as writer:
        writer.append(rollouts)
    return path


@pytest.fixture(scope="module")
def calibration(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("toy")
    real = write(folder / "real.parquet", record(150, np.random.default_rng(0)))
    qualcheck.calibrate(real, "toy", folder / "toy.json")
    return folder / "toy.json"


@pytest.fixture
def spoilt(calibration: Path, tmp_path: Path) -> Run:
    rollouts = record(60, np.random.default_rng(1))
    obs, rng = rollouts.obs.copy(), np.random.default_rng(2)
    wrong = np.flatnonzero(rng.random(len(obs)) < 0.1)
    obs[wrong, 0] = np.clip(obs[wrong, 0] + rng.choice([-0.2, 0.2], len(wrong)), 0, 1)
    path = write(tmp_path / "spoilt.parquet", replace(rollouts, obs=obs))
    return qualcheck.score(path, "toy", tmp_path / "run", calibration=str(calibration), recheck=50)


@pytest.mark.parametrize("start", ["auto", "any"])
def test_a_filtered_set_has_the_verdicts_of_its_source(
    spoilt: Run, calibration: Path, tmp_path: Path, start: str
) -> None:
    if start == "any":
        path = spoilt.path.parent / "spoilt.parquet"
        spoilt = qualcheck.score(path, "toy", tmp_path / "any", calibration=str(calibration), recheck=0, start="any")
    kept = filter_run(spoilt.path, tmp_path / "kept.parquet", mode="segments", min_correctness=1).pieces
    assert (kept.start > 0).sum() > 10
    again = qualcheck.score(tmp_path / "kept.parquet", "toy", calibration=str(calibration), recheck=50)
    rows = ranges(spoilt.offsets()[kept.rollout] + kept.start, kept.stop - kept.start)
    before, after = spoilt.transitions().take(rows), again.transitions()
    for name in PER_STEP:
        assert [str(value) for value in before[name].to_pylist()] == [str(v) for v in after[name].to_pylist()], name
    # the reverse: without its hidden state the same piece is another one
    source = next(open_source(tmp_path / "kept.parquet", load("toy").layouts()).batches())
    assert source.hidden is not None
    assert np.isnan(source.hidden).all(axis=1).sum() < source.n_rollouts
    bare = write(tmp_path / "bare.parquet", replace(source, hidden=None))
    lost = qualcheck.score(bare, "toy", calibration=str(calibration), recheck=0).transitions(["tc", "tc_code"])
    assert lost["tc_code"].to_pylist().count("hidden_velocity_unknown") > 10


def test_without_the_hidden_state_the_strict_verdict_is_open_between_the_tolerances(
    calibration: Path, tmp_path: Path
) -> None:
    content = json.loads(calibration.read_text())
    for found in content["storages"].values():
        for seeding in found["situations"]["unsettled"]["seedings"].values():
            seeding["tolerance"] *= 1e4  # of a puck whose rows tell less of its velocity
    loose = tmp_path / "loose.json"
    loose.write_text(json.dumps(content))
    rollouts, rng = record(60, np.random.default_rng(3)), np.random.default_rng(5)
    obs = rollouts.obs.copy()
    obs[:, 0] = np.clip(obs[:, 0] + rng.uniform(-0.01, 0.01, len(obs)), 0, 1)
    path = write(tmp_path / "real.parquet", replace(rollouts, obs=obs))
    options = {"calibration": str(loose), "recheck": 0}
    known = qualcheck.score(path, "toy", **options).transitions(["tc_strict"])["tc_strict"].to_numpy()
    assert np.mean(known == 0) > 0.5
    assert not np.isnan(known).any()
    lost = qualcheck.score(path, "toy", start="any", **options).transitions()
    strict, codes = lost["tc_strict"].to_numpy(), np.array(lost["tc_code"].to_pylist())
    first = (lost["step"].to_numpy() == 0) & np.isnan(strict)
    assert set(codes[first]) == {"hidden_velocity_unknown"}
    assert np.isnan(strict[~first]).mean() > 0.5
    assert not (strict == 0).any(), "nothing is charged for what the rows do not show"
    graded = qualcheck.score(path, "toy", start="any", grade="strict", **options).transitions(["tc", "tc_code"])
    still_open = np.array(graded["tc_code"].to_pylist()) == "hidden_state_open"
    np.testing.assert_array_equal(still_open, np.isnan(strict) & ~first)
    assert np.isnan(graded["tc"].to_numpy()[still_open]).all()


def test_rows_far_off_fail_at_the_strict_grade_also_out_of_an_unknown_hidden_state(
    calibration: Path, tmp_path: Path
) -> None:
    rollouts = record(40, np.random.default_rng(4))
    obs = rollouts.obs.copy()
    far = rollouts.row_offsets[:-1] + np.minimum(rollouts.length, 4)
    obs[far, 1] = np.where(obs[far, 1] > 0.5, obs[far, 1] - 0.5, obs[far, 1] + 0.5)  # no step opens the gripper so far
    path = write(tmp_path / "far.parquet", replace(rollouts, obs=obs))
    table = qualcheck.score(path, "toy", calibration=str(calibration), recheck=0, start="any").transitions()
    at = rollouts.offsets[:-1] + np.minimum(rollouts.length, 4) - 1
    at = at[table["step"].to_numpy()[at] > 0]
    assert (table["tc_strict"].to_numpy()[at] == 0).mean() > 0.9
