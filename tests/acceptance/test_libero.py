"""LIBERO, on recorded and on falsified rollouts, with the simulator of the extra."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest

LEVELS = ("real", "rephrase", "easy", "hard")
STARTS = {"pick_alphabet_soup": (59, 50), "pick_cream_cheese": (52, 48), "pick_salad_dressing": (59, 50)}
BODIES = ("alphabet_soup", "cream_cheese", "salad_dressing")


@pytest.fixture(scope="module", autouse=True)
def _extra() -> None:
    pytest.importorskip("robosuite", reason="needs the extra libero")
    pytest.importorskip("numba", reason="needs the extra libero")


def load(path: Path) -> dict[str, Any]:
    data: dict[str, Any] = np.load(path, allow_pickle=True).item()
    return data


@pytest.fixture(scope="module")
def golden(qualcheck: Any, shared_data: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("libero")
    return {
        level: qualcheck.score(
            folder / level, shared_data / f"golden/libero_{level}.npy", env="libero", options=["--recheck", 10]
        )
        for level in LEVELS
    }


def errors(golden: dict[str, Any], name: str) -> np.ndarray:
    return np.concatenate([run.t[f"err_{name}"] for run in golden.values()])


def test_rows_alone_restore_the_arm_and_the_objects(golden: dict[str, Any], shared_data: Path) -> None:
    hand = np.quantile(errors(golden, "hand"), [0.5, 0.95, 0.99])
    assert (hand <= [2e-4, 6e-4, 2e-3]).all(), hand
    assert np.quantile(errors(golden, "joints"), 0.95) <= 3e-3
    handled = []
    for level, run in golden.items():
        tasks = load(shared_data / f"golden/libero_{level}.npy")["task_str"]
        for rollout, task in enumerate(tasks):
            named = sorted((task.find(body), body) for body in BODIES if body in task)
            body = named[0][1] if named else BODIES[0]
            handled.append(run.steps(rollout, f"err_{body}"))
    assert np.quantile(np.concatenate(handled), 0.99) <= 6e-3


@pytest.mark.parametrize("level", LEVELS)
def test_the_released_goal_is_the_recorded_judge(golden: dict[str, Any], shared_data: Path, level: str) -> None:
    run, data = golden[level], load(shared_data / f"golden/libero_{level}.npy")
    np.testing.assert_array_equal(run.r["gc_imagined_released"] == 1, data["success"])
    assert np.nanmax(np.abs(run.t["reward_error"])) <= 1e-5


def test_few_transitions_are_unverifiable_and_few_held_out_ones_rejected(golden: dict[str, Any]) -> None:
    nothing = np.concatenate([np.isnan(run.t["tc"]) for run in golden.values()])
    assert nothing.mean() <= 0.05
    odd = np.concatenate([run.t["tc_strict"][run.t["rollout"] % 2 == 1] for run in golden.values()])
    assert (odd == 0).mean() <= 0.005
    assert np.isnan(odd).mean() <= 0.05
    assert np.concatenate([run.t["tc"] for run in golden.values()]).mean() >= 0.97
    assert np.concatenate([run.t["dl"] for run in golden.values()]).all()


def test_labels_stay_without_next_observations(qualcheck: Any, shared_data: Path, tmp_path: Path) -> None:
    data = load(shared_data / "golden/libero_real.npy")
    del data["next_observations"]
    np.save(tmp_path / "stripped.npy", np.array(data, dtype=object), allow_pickle=True)
    run = qualcheck.score(tmp_path / "run", tmp_path / "stripped.npy", env="libero", options=["--recheck", 0])
    assert (run.r["gc_imagined_released"] == data["success"]).mean() >= 0.98


def test_planted_faults_are_found_at_their_step(qualcheck: Any, shared_data: Path, tmp_path: Path) -> None:
    path = shared_data / "mutated/libero_mutated.npy"
    run, data = qualcheck.score(tmp_path / "run", path, env="libero", options=["--recheck", 0]), load(path)
    found: dict[str, list[bool]] = defaultdict(list)
    false_alarms, honest = 0, 0
    for rollout, (fault, first) in enumerate(zip(data["fault"], data["first_bad_transition"], strict=True)):
        tc, strict, dl = (run.steps(rollout, name) for name in ("tc", "tc_strict", "dl"))
        if fault == "truncated_goal":
            continue
        before = slice(None) if fault == "none" else slice(0, int(first))
        false_alarms += int(((tc[before] == 0) | (strict[before] == 0) | (dl[before] == 0)).sum())
        honest += len(tc[before])
        if fault != "none":
            found[fault].append(bool(tc[first] == 0 or strict[first] == 0 or dl[first] == 0))
    every = [hit for hits in found.values() for hit in hits]
    assert np.mean(every) >= 0.9, found
    for fault in ("wrong_action", "frozen_object"):  # in the grip and in contact
        assert np.mean(found[fault]) >= 0.5, found
    for fault in ("teleport_object", "off_table", "penetration", "quat_unnormalised", "swap_objects"):
        assert all(found[fault]), fault
    assert false_alarms / honest <= 0.02


def test_a_run_with_its_referee_takes_less_than_600_mb(shared_data: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "qualcheck", "score", str(shared_data / "golden/libero_real.npy")]
    with (tmp_path / "said").open("w") as said:
        run = subprocess.Popen(
            [*command, "--env", "libero", "-o", str(tmp_path / "run"), "--recheck", "20"], stdout=said
        )
        _, status, used = os.wait4(run.pid, 0)
    text = (tmp_path / "said").read_text()
    assert os.waitstatus_to_exitcode(status) == 0
    assert "20 of 20 agree" in text
    assert used.ru_maxrss / 1024 < 600


def test_filtered_pieces_keep_their_verdicts(qualcheck: Any, shared_data: Path, tmp_path: Path) -> None:
    path = shared_data / "mutated/libero_mutated.npy"
    run = qualcheck.score(tmp_path / "run", path, env="libero", options=["--recheck", 0])
    done = qualcheck(
        "filter", run.path, "--mode", "segments", "--min-correctness", "1", "-o", tmp_path / "kept.parquet"
    )
    assert done.returncode == 0, done.stderr
    again = qualcheck.score(tmp_path / "again", tmp_path / "kept.parquet", env="libero", options=["--recheck", 0])
    source, step = again.r["source_rollout"], again.r["source_step"]
    assert (step > 0).sum() > 5
    first = np.concatenate([[0], np.cumsum(run.r["length"])])
    rows = np.concatenate(
        [np.arange(first[s] + t, first[s] + t + n) for s, t, n in zip(source, step, again.r["length"], strict=True)]
    )
    for name in ("tc", "tc_strict", "tc_error", "tc_scaled", "dl", "err_hand", "err_joints"):
        np.testing.assert_array_equal(run.t[name][rows], again.t[name], err_msg=name)
    assert run.t["seeding"][rows].tolist() == again.t["seeding"].tolist()


@pytest.mark.parametrize("name", STARTS)
def test_the_released_starts_are_counted_and_judged(qualcheck: Any, shared_data: Path, name: str) -> None:
    path = shared_data / f"real/imaginebench_libero_{name}_inits.npz"
    done = qualcheck("inspect", "--starts", path, "--env", "libero", "--json")
    assert done.returncode == 0, done.stderr
    facts = json.loads(done.stdout)
    assert (facts["rows"], facts["unique"], facts["unique_to_1e-6"]) == (1000, *STARTS[name])
    sunk = facts["facts"]["lowest_point_of_salad_dressing_m"] < -0.03
    assert sunk == ("cream_cheese" in name)
    assert ("row.floor_penetration" in facts["rules"]) == sunk
