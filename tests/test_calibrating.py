"""Tolerances are learnt from real rollouts and hold for new ones."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import qualcheck
from qualcheck.cli.app import app
from qualcheck.envs.halfcheetah.layout import make_spec
from qualcheck.envs.halfcheetah.record import record
from qualcheck.envs.toy import record as record_toy
from qualcheck.errors import DataError, UsageError
from qualcheck.io import CanonicalWriter
from qualcheck.registry import load


def write(path: Path, env: str, *parts: object) -> Path:
    with CanonicalWriter(path, load(env).spec, {}) as writer:
        for part in parts:
            writer.append(part)
    return path


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """real.parquet and new.parquet of one distribution, and what was learnt from the first."""
    folder = tmp_path_factory.mktemp("calibrating")
    for name, seed in (("real", 1), ("new", 2)):
        rng = np.random.default_rng(seed)
        parts = [
            record(task, 30, rng) for task in ("jump-forward", "rep-jump-backward", "jump-in-place", "move-forward")
        ]
        write(folder / f"{name}.parquet", "halfcheetah", *parts)
    shown = CliRunner().invoke(
        app,
        [
            "calibrate",
            str(folder / "real.parquet"),
            "--env",
            "halfcheetah",
            "-o",
            str(folder / "a.json"),
            "--alpha",
            "0.1",
        ],
    )
    assert shown.exit_code == 0, shown.output
    assert "conformal" in shown.output
    return folder


def test_new_real_rollouts_are_rejected_no_more_often_than_alpha(folder: Path) -> None:
    run = qualcheck.score(folder / "new.parquet", "halfcheetah", calibration=str(folder / "a.json"), recheck=0)
    strict = run.rollouts(["correctness_strict"])["correctness_strict"].to_numpy()
    assert (strict < 1).mean() <= 0.1 + 3 * np.sqrt(0.1 * 0.9 / len(strict))
    assert run.manifest["results"]["inputs"][0]["tolerance"] == "conformal"


def test_the_control_is_the_held_out_part(folder: Path) -> None:
    content = json.loads((folder / "a.json").read_text())
    assert {len(table["task"]) for table in content["controls"].values()} == {24}
    run = qualcheck.score(folder / "new.parquet", "halfcheetah", calibration=str(folder / "a.json"), recheck=0)
    (cell,) = json.loads(qualcheck.report(run, "json"))["cells"]
    assert "held-out part of real.parquet" in cell["control"]["source"]
    assert cell["control"]["n_rollouts"] == 24


def test_what_was_learnt_holds_for_every_coarser_storage(folder: Path) -> None:
    content = json.loads((folder / "a.json").read_text())
    assert set(content["storages"]) == {
        "float64", "float32", "float16", *(f"{d} decimals" for d in range(1, 7))
    }  # fmt: skip
    median = {name: found["median"]["joints"] for name, found in content["storages"].items()}
    assert median["float64"] < 1e-10 < median["float32"] < 1e-5 < median["2 decimals"] < median["1 decimals"]


def test_too_few_rollouts_give_no_guarantee_and_say_how_many_are_needed(folder: Path, tmp_path: Path) -> None:
    few = write(tmp_path / "few.parquet", "halfcheetah", record("jump-forward", 10, np.random.default_rng(0)))
    learnt = qualcheck.calibrate(few, "halfcheetah", tmp_path / "few.json")
    found = learnt.content["storages"]["float64"]
    assert found["label"] == "pooled, no guarantee"
    assert found["need_rollouts"] == 99
    run = qualcheck.score(few, "halfcheetah", calibration=str(tmp_path / "few.json"), recheck=0)
    assert any("no guarantee" in finding for finding in run.manifest["results"]["findings"])


def test_an_environment_without_calibration_is_not_verifiable_and_with_one_it_is(tmp_path: Path) -> None:
    path = write(tmp_path / "toy.parquet", "toy", record_toy(150, np.random.default_rng(0)))
    run = qualcheck.score(path, "toy", tmp_path / "bare", recheck=0)
    assert run.manifest["results"]["unverifiable"]["transition_correctness"].keys() == {"no_calibration"}
    qualcheck.calibrate(path, "toy", tmp_path / "toy.json")
    run = qualcheck.score(path, "toy", tmp_path / "known", calibration=str(tmp_path / "toy.json"), recheck=0)
    tc = run.transitions(["tc"])["tc"].to_numpy()
    assert (tc == 1).mean() > 0.99


def test_a_calibration_that_does_not_fit_is_refused(folder: Path, tmp_path: Path) -> None:
    toy = write(tmp_path / "toy.parquet", "toy", record_toy(5, np.random.default_rng(0)))
    with pytest.raises(DataError, match="halfcheetah"):
        qualcheck.score(toy, "toy", calibration=str(folder / "a.json"))
    obs = np.zeros((4, make_spec(17, "1").obs_size))
    with pytest.raises(DataError, match="18 columns"):
        qualcheck.score(obs, np.zeros((4, 6)), obs, env="halfcheetah", calibration=str(folder / "a.json"))
    (tmp_path / "b.json").write_text("{}")
    with pytest.raises(DataError, match="no calibration"):
        qualcheck.score(toy, "toy", calibration=str(tmp_path / "b.json"))


def test_what_cannot_be_calibrated_is_refused(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="exactly"):
        qualcheck.calibrate(folder / "real.parquet", "babyai", tmp_path / "a.json")
    with pytest.raises(UsageError, match="exists already"):
        qualcheck.calibrate(folder / "real.parquet", "halfcheetah", folder / "a.json")
    with pytest.raises(UsageError, match="alpha"):
        qualcheck.calibrate(folder / "real.parquet", "halfcheetah", tmp_path / "a.json", alpha=0)
    with pytest.raises(DataError, match="no such file"):
        qualcheck.calibrate(tmp_path / "nothing.npy", "halfcheetah", tmp_path / "a.json")
    assert list(tmp_path.iterdir()) == []


def test_rollouts_that_do_not_replay_raise_a_doubt(folder: Path, tmp_path: Path) -> None:
    assert json.loads((folder / "a.json").read_text())["doubts"] == []
    rollouts = record("jump-forward", 30, np.random.default_rng(5))
    rolled = replace(rollouts, action=np.roll(rollouts.action, 1, axis=0))
    learnt = qualcheck.calibrate(
        write(tmp_path / "a.parquet", "halfcheetah", rolled), "halfcheetah", tmp_path / "b.json"
    )
    assert "out of step" in learnt.content["doubts"][0]


def test_rollouts_without_a_finite_row_cannot_be_learnt_from(tmp_path: Path) -> None:
    rollouts = record("jump-forward", 3, np.random.default_rng(5))
    path = write(tmp_path / "a.parquet", "halfcheetah", replace(rollouts, obs=np.full_like(rollouts.obs, np.nan)))
    with pytest.raises(DataError, match="no transition"):
        qualcheck.calibrate(path, "halfcheetah", tmp_path / "b.json")


def test_the_manifest_counts_the_steps_of_every_worker(folder: Path) -> None:
    run = qualcheck.score(folder / "new.parquet", "halfcheetah", recheck=0, restarts=0)
    transitions = run.manifest["results"]["counts"]["transitions"]
    assert run.manifest["results"]["counts"]["simulator_steps"] == 5 * transitions
    assert run.manifest["run"]["simulator_steps"] >= 10 * transitions  # the open loop executes them once more
