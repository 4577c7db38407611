"""Inputs are read and never written, whatever name an output is given."""

from __future__ import annotations

import hashlib
import os
import shutil
import stat
from pathlib import Path
from typing import Any


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _filter(qualcheck: Any, run: Path, out: Path, *options: object) -> None:
    done = qualcheck("filter", run, *options, "-o", out)
    assert done.returncode == 0, done.stderr


def _refused(qualcheck: Any, run: Path, out: object, source: Path, cwd: Path, *options: str) -> None:
    before = {path: _digest(path) for path in (source, *run.iterdir())}
    done = qualcheck("filter", run, "--min-correctness", 1, *options, "-o", out, cwd=cwd)
    assert done.returncode == 2, f"{out}: {done.stdout}{done.stderr}"
    assert done.stderr.count("\n") == 1
    assert {path: _digest(path) for path in (source, *run.iterdir())} == before


def test_an_output_that_is_the_input_is_refused_and_nothing_changes(
    qualcheck: Any, bench: Any, episode: Any, tour: Any, tmp_path: Path
) -> None:
    data = tmp_path / "data"
    data.mkdir()
    source = bench.npy(data / "in.npy", bench.arrays([episode(tour), episode(tour[:4])]))
    run = qualcheck.score(tmp_path / "run", source).path
    (tmp_path / "soft.npy").symlink_to(source)
    os.link(source, tmp_path / "hard.npy")
    (tmp_path / "elsewhere").symlink_to(data)
    names = [
        source,
        "data/in.npy",
        "data/../data/./in.npy",
        "soft.npy",
        "hard.npy",
        "elsewhere/in.npy",
        run,
        run / "manifest.json",
        run / "transitions.parquet",
    ]
    for name in names:
        for options in ((), ("--like-input",)):
            _refused(qualcheck, run, name, source, tmp_path, *options)
    before = _digest(source)
    for name in (source, "soft.npy", "hard.npy"):
        done = qualcheck("score", source, "--env", "babyai", "-o", name, cwd=tmp_path)
        assert done.returncode == 2
    assert _digest(source) == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["data", "elsewhere", "hard.npy", "run", "soft.npy"]


def test_read_only_inputs_are_enough(qualcheck: Any, bench: Any, episode: Any, tour: Any, tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    source = bench.npy(data / "in.npy", bench.arrays([episode(tour), episode(tour[:4])]))
    source.chmod(0o444)
    data.chmod(0o555)
    try:
        run = qualcheck.score(tmp_path / "run", source).path
        for path in run.iterdir():
            path.chmod(0o444)
        run.chmod(0o555)
        _filter(qualcheck, run, tmp_path / "kept.parquet", "--min-correctness", 1)
        _filter(qualcheck, run, tmp_path / "kept.npy", "--min-correctness", 1, "--like-input")
        assert qualcheck.report(run)["cells"]
        assert sorted(path.name for path in data.iterdir()) == ["in.npy"]
        assert sorted(path.name for path in run.iterdir()) == [
            "manifest.json",
            "rollouts.parquet",
            "transitions.parquet",
        ]
    finally:
        data.chmod(0o755)
        (tmp_path / "run").chmod(0o755)
    assert stat.S_IMODE(source.stat().st_mode) == 0o444


def test_a_moved_input_is_found_by_option_and_a_changed_one_is_refused(
    qualcheck: Any, bench: Any, episode: Any, tour: Any, tmp_path: Path
) -> None:
    source = bench.npy(tmp_path / "in.npy", bench.arrays([episode(tour), episode(tour[:4])]))
    run = qualcheck.score(tmp_path / "run", source).path
    moved = Path(shutil.move(source, tmp_path / "moved.npy"))
    done = qualcheck("filter", run, "--min-correctness", 1, "-o", tmp_path / "kept.parquet")
    assert done.returncode == 1
    assert "--input" in done.stderr
    _filter(qualcheck, run, tmp_path / "kept.parquet", "--min-correctness", 1, "--input", moved)
    bench.npy(moved, bench.arrays([episode(tour), episode(tour[:5])]))
    done = qualcheck("filter", run, "--min-correctness", 1, "--input", moved, "-o", tmp_path / "other.parquet")
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert not (tmp_path / "other.parquet").exists()
