"""What is common noise in real data is right on every rung of the ladder."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np

import qualcheck
from qualcheck.envs.toy import record
from qualcheck.io import CanonicalWriter
from qualcheck.registry import load


def test_a_column_that_hardly_ever_changes_does_not_reject_real_transitions(tmp_path: Path) -> None:
    rollouts = record(150, np.random.default_rng(0))
    with CanonicalWriter(tmp_path / "real.parquet", load("toy").spec, {}) as writer:
        writer.append(rollouts)
    content = json.loads(
        json.dumps(qualcheck.calibrate(tmp_path / "real.parquet", "toy", tmp_path / "toy.json").content)
    )
    content["std_change"] = [1e-12] * 3  # real changes far below the noise of the storage
    (tmp_path / "still.json").write_text(json.dumps(content))
    run = qualcheck.score(tmp_path / "real.parquet", "toy", calibration=str(tmp_path / "still.json"), recheck=0)
    table = run.transitions(["tc", "tc_strict", "tc_noise", "tc_scaled"])
    tc, strict, noise, scaled = (table[name].to_numpy() for name in ("tc", "tc_strict", "tc_noise", "tc_scaled"))
    assert (strict == 1).mean() > 0.98
    assert (scaled > 0.5).mean() > 0.5, "half a deviation alone would reject most of them"
    assert 0.97 < tc.mean() <= (strict == 1).mean(), "99 of 100 are common; whole rollouts keep more"
    np.testing.assert_array_equal(tc, (noise <= 1) | (scaled <= 0.5))
    (cell,) = json.loads(qualcheck.report(run, "json"))["cells"]
    assert cell["ladder"]["0.1"]["value"] >= 0.97
    obs = rollouts.obs.copy()
    obs[1::7, 0] += 0.05  # beyond the noise: wrong again
    with CanonicalWriter(tmp_path / "wrong.parquet", load("toy").spec, {}) as writer:
        writer.append(replace(rollouts, obs=obs))
    wrong = qualcheck.score(tmp_path / "wrong.parquet", "toy", calibration=str(tmp_path / "still.json"), recheck=0)
    assert (wrong.transitions(["tc"])["tc"].to_numpy() == 0).mean() > 0.1
