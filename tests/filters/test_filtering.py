"""The filter verb on run folders: what it refuses, what it writes, and in which order."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from qualcheck.envs.babyai import BabyAI
from qualcheck.errors import DataError, UsageError
from qualcheck.filtering import FilterOptions, filter_run
from qualcheck.io import open_source
from qualcheck.pipeline import score


def recorded(path: Path, seed: int = 0) -> Path:
    """Eight random walks in rooms of their own; the last step of every other one is a teleport."""
    rng = np.random.default_rng(seed)
    n, steps = 8, 6
    obs = np.zeros((n, steps + 1, 17), np.float32)
    obs[:, :, [0, 3, 6, 9]] = rng.integers(0, 6, (n, 1, 4))
    obs[:, :, 1:3], obs[:, :, 4:6], obs[:, :, 7:9] = (1, 1), (1, 3), (1, 5)
    obs[:, :, 10:13] = (6, 7, 1)
    actions = rng.choice([0, 1, 2, 6], (n, steps))
    agent = np.tile([3, 3], (n, 1))
    delta = {0: (0, -1), 1: (0, 1), 2: (-1, 0), 6: (1, 0)}
    for t in range(steps + 1):
        obs[:, t, 13:15] = agent
        if t < steps:
            agent = np.clip(agent + np.array([delta[int(a)] for a in actions[:, t]]), 1, 6)
    obs[::2, steps, 13:15] = 7 - obs[::2, steps, 13:15]
    keys = {
        "observations": obs[:, :-1],
        "next_observations": obs[:, 1:],
        "actions": actions,
        "rewards": np.zeros((n, steps, 1), np.float32),
        "masks": np.ones((n, steps, 1), np.float32),
        "instructions": [["goto the center of the room"] if i < 4 else ["goto the side of the wall"] for i in range(n)],
    }
    np.save(path, np.array(keys, dtype=object), allow_pickle=True)
    return path


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One input and the run over it."""
    where = tmp_path_factory.mktemp("filtering")
    recorded(where / "in.npy")
    score([where / "in.npy"], "babyai", where / "run")
    return where


@pytest.fixture
def work(folder: Path, tmp_path: Path) -> Path:
    """A copy of its own; the run still names the first place of the input."""
    shutil.copytree(folder / "run", tmp_path / "run")
    return tmp_path


def report_of(out: Path) -> dict[str, Any]:
    loaded = json.loads(out.with_name(f"{out.name}.filter.json").read_text())
    assert isinstance(loaded, dict)
    return loaded


def test_the_report_adds_up_and_names_every_parameter(work: Path) -> None:
    result = filter_run(work / "run", work / "out.parquet", min_correctness=1)
    report = report_of(work / "out.parquet")
    assert report == result.report
    assert report["rollouts"] == {"all": 8, "kept": 4, "dropped": {"low_correctness": 4}}
    assert report["transitions"] == {"all": 48, "kept": 24, "dropped": {"low_correctness": 24}}
    assert set(report["parameters"]) == set(FilterOptions.__dataclass_fields__)
    assert report["parameters"]["min_coverage"] == 0.5
    decisions = pq.read_table(work / "out.parquet.decisions.parquet")
    assert decisions["kept"].to_pylist() == [False, True] * 4
    assert decisions["reason"].to_pylist() == ["low_correctness", ""] * 4
    assert decisions["transitions_kept"].to_pylist() == [0, 6] * 4


def test_kept_rollouts_that_fail_replay_are_counted(work: Path) -> None:
    result = filter_run(work / "run", work / "out.parquet")
    replay = result.report["kept_replay"]
    gc = pq.read_table(work / "run" / "rollouts.parquet")["gc_replayed"].to_numpy()
    assert replay["fails"] == int((gc == 0).sum())
    assert replay["reaches_goal"] == int((gc == 1).sum())
    assert 0 < replay["fails"] < 8


def test_nothing_beside_the_three_files_is_left(work: Path) -> None:
    filter_run(work / "run", work / "out.parquet", mode="truncate")
    names = sorted(path.name for path in work.iterdir())
    assert names == ["out.parquet", "out.parquet.decisions.parquet", "out.parquet.filter.json", "run"]


@pytest.mark.parametrize("like_input", [False, True])
def test_a_filtering_that_keeps_nothing_writes_an_empty_set(tmp_path: Path, like_input: bool) -> None:
    keys = np.load(recorded(tmp_path / "in.npy"), allow_pickle=True).item()
    keys["instructions"] = [["open the red door"]] * 8  # nobody toggles anything
    np.save(tmp_path / "in.npy", np.array(keys, dtype=object), allow_pickle=True)
    score([tmp_path / "in.npy"], "babyai", tmp_path / "run")
    result = filter_run(tmp_path / "run", tmp_path / "out", min_consistency=1, like_input=like_input)
    assert result.report["rollouts"] == {"all": 8, "kept": 0, "dropped": {"low_consistency": 8}}
    assert "empty set" in result.lines[-1]
    assert open_source(tmp_path / "out", BabyAI().spec).n_rollouts == 0


def test_an_existing_output_is_refused_and_left_alone(work: Path) -> None:
    (work / "mine").write_text("precious")
    with pytest.raises(UsageError, match="exists already"):
        filter_run(work / "run", work / "mine")
    assert (work / "mine").read_text() == "precious"


def test_an_output_that_is_an_input_under_any_name_is_refused(folder: Path, work: Path) -> None:
    source = folder / "in.npy"
    before = source.read_bytes()
    (work / "link.npy").symlink_to(source)
    (work / "hard.npy").hardlink_to(source)
    relative = Path(os.path.relpath(source))
    for out in (source, work / "link.npy", work / "hard.npy", relative, folder / "." / "in.npy"):
        with pytest.raises(UsageError, match="overwrite the input"):
            filter_run(work / "run", out)
    with pytest.raises(UsageError, match="case only"):
        filter_run(work / "run", folder / "IN.npy")
    assert source.read_bytes() == before


def test_an_output_in_the_run_folder_is_refused(work: Path) -> None:
    (work / "alias").symlink_to(work / "run")
    for out in (work / "run" / "out.parquet", work / "alias" / "out.parquet", work / "run"):
        with pytest.raises(UsageError):
            filter_run(work / "run", out)
    assert sorted(path.name for path in (work / "run").iterdir()) == sorted(
        ["manifest.json", "rollouts.parquet", "transitions.parquet"]
    )


def test_a_changed_input_is_refused(tmp_path: Path) -> None:
    recorded(tmp_path / "in.npy")
    score([tmp_path / "in.npy"], "babyai", tmp_path / "run")
    recorded(tmp_path / "in.npy", seed=1)
    with pytest.raises(DataError, match="changed since"):
        filter_run(tmp_path / "run", tmp_path / "out.parquet")
    assert not (tmp_path / "out.parquet").exists()


def test_a_moved_input_is_found_with_input_path(tmp_path: Path) -> None:
    recorded(tmp_path / "in.npy")
    score([tmp_path / "in.npy"], "babyai", tmp_path / "run")
    (tmp_path / "in.npy").rename(tmp_path / "moved.npy")
    with pytest.raises(DataError, match="--input PATH"):
        filter_run(tmp_path / "run", tmp_path / "out.parquet")
    result = filter_run(tmp_path / "run", tmp_path / "out.parquet", input_path=tmp_path / "moved.npy")
    assert result.report["rollouts"]["kept"] == 8
    recorded(tmp_path / "other.npy", seed=2)
    with pytest.raises(DataError, match="not a file that"):
        filter_run(tmp_path / "run", tmp_path / "out2.parquet", input_path=tmp_path / "other.npy")


def test_several_inputs_merge_and_like_input_takes_one(tmp_path: Path) -> None:
    inputs = [recorded(tmp_path / "a.npy"), recorded(tmp_path / "b.npy", seed=1)]
    score(inputs, "babyai", tmp_path / "run")
    merged = filter_run(tmp_path / "run", tmp_path / "all.parquet", min_correctness=1)
    assert merged.report["rollouts"]["kept"] == 8
    with pytest.raises(UsageError, match="2 inputs"):
        filter_run(tmp_path / "run", tmp_path / "b2.npy", like_input=True)
    one = filter_run(
        tmp_path / "run", tmp_path / "b2.npy", min_correctness=1, like_input=True, input_path=tmp_path / "b.npy"
    )
    assert one.report["rollouts"] == {"all": 16, "kept": 4, "dropped": {"low_correctness": 4, "other_input": 8}}
    kept = np.load(tmp_path / "b2.npy", allow_pickle=True).item()
    want = np.load(tmp_path / "b.npy", allow_pickle=True).item()
    assert (kept["observations"] == want["observations"][1::2]).all()


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"mode": "best"}, "rollouts, truncate, segments"),
        ({"min_correctness": 88}, "share from 0 to 1"),
        ({"min_consistency": float("nan")}, "share from 0 to 1"),
        ({"top_fraction": 0.0}, "above 0"),
        ({"max_scaled_error": 0.5}, "--min-correctness"),
        ({"min_corectness": 1}, "it has: "),
    ],
)
def test_a_senseless_option_is_refused(work: Path, options: dict[str, Any], says: str) -> None:
    with pytest.raises(UsageError, match=says):
        filter_run(work / "run", work / "out.parquet", **options)
    assert not (work / "out.parquet").exists()


def test_a_failure_while_writing_leaves_nothing(work: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any, **__: Any) -> None:
        raise OSError("no space left on device")

    monkeypatch.setattr("qualcheck.filtering._write_decisions", full)
    with pytest.raises(OSError, match="no space"):
        filter_run(work / "run", work / "out.parquet")
    assert [path.name for path in work.iterdir()] == ["run"]


def test_the_data_takes_its_name_last(work: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    order: list[str] = []
    link = os.link

    def noted(path: Path, target: Path) -> None:
        order.append(Path(target).name)
        link(path, target)

    monkeypatch.setattr(os, "link", noted)
    filter_run(work / "run", work / "out.npy", like_input=True)
    assert sorted(order[:-1]) == ["out.npy.decisions.parquet", "out.npy.filter.json"]
    assert order[-1] == "out.npy"


def test_the_best_share_is_re_applied_and_drops_nothing_more(tmp_path: Path) -> None:
    keys = np.load(recorded(tmp_path / "in.npy"), allow_pickle=True).item()
    moved = (keys["observations"] != keys["next_observations"]).any(axis=2)
    for i in range(8):
        keys["actions"][i, np.flatnonzero(moved[i])[: (0, 0, 1, 3)[i % 4]]] = (
            5  # a toggle far from the door moves nobody
        )
    np.save(tmp_path / "in.npy", np.array(keys, dtype=object), allow_pickle=True)
    run = score([tmp_path / "in.npy"], "babyai", tmp_path / "run")
    for name, like in (("best.parquet", False), ("best.npy", True)):
        first = filter_run(run.path, tmp_path / name, top_fraction=0.5, like_input=like)
        assert first.report["rollouts"]["kept"] == 4
        assert first.report["top_fraction"]["cutoffs"]["go_center"]["column"] == "correctness"
        assert any("ranked by correctness" in line for line in first.lines)
        score([tmp_path / name], "babyai", tmp_path / f"{name}.run")
        again = filter_run(tmp_path / f"{name}.run", tmp_path / f"again-{name}", top_fraction=0.5)
        assert again.report["rollouts"]["dropped"] == {}
        assert again.report["top_fraction"]["cutoffs"] == first.report["top_fraction"]["cutoffs"]
        stricter = filter_run(tmp_path / f"{name}.run", tmp_path / f"less-{name}", top_fraction=0.25)
        assert stricter.report["rollouts"]["kept"] == 2


def test_a_kill_at_any_moment_leaves_no_half_written_file(work: Path) -> None:
    """The process dies inside each naming in turn; what bears a final name is whole."""
    script = (
        "import os, sys\n"
        "from qualcheck.filtering import filter_run\n"
        "left, link = int(sys.argv[1]), os.link\n"
        "def dying(path, target):\n"
        "    global left\n"
        "    if not left:\n"
        "        os.kill(os.getpid(), 9)\n"
        "    left -= 1\n"
        "    link(path, target)\n"
        "os.link = dying\n"
        "filter_run(sys.argv[2], sys.argv[3], like_input=True)\n"
    )
    for moment in range(3):
        out = work / f"out{moment}.npy"
        done = subprocess.run([sys.executable, "-c", script, str(moment), str(work / "run"), str(out)], check=False)
        assert done.returncode == -9
        assert not out.exists()
        for beside in work.glob(f"{out.name}.*"):
            assert json.loads(beside.read_text()) if beside.suffix == ".json" else pq.read_table(beside).num_rows == 8
