"""A filtered file says which simulator family its run used, and where the run took its pieces to start."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import qualcheck
from qualcheck.filtering import filter_run


@pytest.mark.parametrize("like_input", [False, True])
def test_a_filtered_set_keeps_the_family_and_the_starts_of_its_run(
    shared_data: Path, tmp_path: Path, like_input: bool
) -> None:
    data = np.load(shared_data / "real/kalm_clevr_robot.npy", allow_pickle=True).item()
    few = {name: value[:4] if np.ndim(value) else value for name, value in data.items() if name != "states"}
    np.save(tmp_path / "few.npy", np.array(few, dtype=object), allow_pickle=True)
    out = tmp_path / ("kept.npy" if like_input else "kept.parquet")
    for start, family in (("any", "mujoco-2"), ("auto", "mujoco-3")):
        run = qualcheck.score(tmp_path / "few.npy", "clevr", tmp_path / start, start=start, family=family, recheck=0)
        filter_run(run.path, out, keep_unverifiable=True, like_input=like_input)
        again = qualcheck.score(out, "clevr", recheck=0)
        assert again.manifest["results"]["family"] == family
        for name in ("tc", "tc_strict", "tc_code", "seeding", "tc_error"):
            before, after = (str(each.transitions([name])[name].to_pylist()) for each in (run, again))
            assert before == after, name
        assert again.rollouts(["start"])["start"].to_pylist() == run.rollouts(["start"])["start"].to_pylist()
        for path in tmp_path.glob("kept*"):
            path.unlink()


def test_a_silent_reference_is_of_the_family_of_the_inputs(shared_data: Path, tmp_path: Path) -> None:
    data = np.load(shared_data / "real/kalm_clevr_robot.npy", allow_pickle=True).item()
    two = {name: value[:2] if np.ndim(value) else value for name, value in data.items()}
    np.save(tmp_path / "two.npy", np.array(two, dtype=object), allow_pickle=True)
    path = shared_data / "real/kalm_clevr_robot.npy"
    run = qualcheck.score(path, "clevr", reference=tmp_path / "two.npy", recheck=0)
    table = run.manifest["results"]["control"]["rollouts"]
    assert sum(table["tc_pass"]) == sum(table["tc_n"]) > 0
