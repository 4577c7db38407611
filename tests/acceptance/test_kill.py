"""A run that is killed at any moment leaves nothing that looks finished, and the next one works."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

SCRIPT = Path(sys.executable).parent / "qualcheck"
DELAYS = tuple(np.linspace(0.15, 1.1, 12).round(3))  # shares of an undisturbed run


@pytest.fixture(scope="module")
def large(bench: Any, episode: Any, world: Any, tour: Any, tmp_path_factory: Any) -> Path:
    """200,000 transitions from 20,000 different rollouts."""
    starts = 200
    episodes = []
    for i in range(starts):
        row0 = world.ROW0.copy()
        row0[3], row0[6], row0[9] = i % 6, i // 6 % 6, i // 36
        episodes.append(episode(tour, row0))
    content = bench.arrays(episodes)
    content = {
        key: np.repeat(value, 100, 0) if isinstance(value, np.ndarray) else [x for x in value for _ in range(100)]
        for key, value in content.items()
    }
    return Path(bench.npy(tmp_path_factory.mktemp("large") / "large.npy", content))


def _start(arguments: list[str], cwd: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [str(SCRIPT), *arguments],
        cwd=cwd,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        # a test runner in the background hands down an ignored SIGINT
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )


def _strike(arguments: list[str], cwd: Path, delay: float, how: signal.Signals) -> tuple[int, str]:
    process = _start(arguments, cwd)
    try:
        process.wait(delay)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, how)
    _, said = process.communicate(timeout=60)
    return process.returncode, said


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _visible(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir() if not path.name.startswith(".")}


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_a_killed_score_leaves_no_unfinished_run_under_its_name(
    how: signal.Signals, large: Path, tmp_path: Path
) -> None:
    reference = tmp_path / "reference"
    reference.mkdir()
    work = tmp_path / "work"
    work.mkdir()
    arguments = ["score", str(large), "--env", "babyai", "-o", "run"]
    begin = time.monotonic()
    assert _start(arguments, reference).wait(120) == 0
    whole = time.monotonic() - begin
    want = {path.name: _digest(path) for path in (reference / "run").iterdir() if path.name != "manifest.json"}
    struck = 0
    for share in DELAYS if how == signal.SIGKILL else DELAYS[::3]:
        code, said = _strike(arguments, work, share * whole, how)
        struck += code != 0
        if (work / "run").exists():
            manifest = json.loads((work / "run/manifest.json").read_text(encoding="utf-8"))
            assert manifest["results"]
            assert {name: _digest(work / "run" / name) for name in want} == want
            assert {path.name for path in (work / "run").iterdir()} == {*want, "manifest.json"}
            shutil.rmtree(work / "run")
        else:
            assert code != 0
        assert _visible(work) == set()
        if share > 0.4:  # before that the interpreter itself is still starting
            assert "Traceback" not in said
    assert struck >= 2
    assert _start(arguments, work).wait(120) == 0
    assert {path.name for path in work.iterdir()} == {"run"}
    assert {name: _digest(work / "run" / name) for name in want} == want


@pytest.mark.parametrize("layout", ["canonical", "like_input"])
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_a_killed_filter_leaves_no_unfinished_file_under_a_final_name(
    how: signal.Signals, layout: str, large: Path, qualcheck: Any, tmp_path: Path
) -> None:
    run = qualcheck.score(tmp_path / "run", large).path
    before = _digest(large)
    arguments = ["filter", str(run), "--min-correctness", "1", "-o", "out"]
    arguments += ["--like-input"] if layout == "like_input" else []
    reference, work = tmp_path / "reference", tmp_path / "work"
    reference.mkdir()
    work.mkdir()
    begin = time.monotonic()
    assert _start(arguments, reference).wait(120) == 0
    whole = time.monotonic() - begin
    want = {path.name: _digest(path) for path in reference.iterdir()}
    assert "out" in want
    struck = 0
    for share in DELAYS if how == signal.SIGKILL else DELAYS[::3]:
        code, _ = _strike(arguments, work, share * whole, how)
        struck += code != 0
        there = _visible(work)
        assert there <= set(want)
        for name in there:
            assert _digest(work / name) == want[name], f"{name} is not what a whole run writes"
        if "out" in there:
            assert there == set(want), "the data set stands there without the record of how it was made"
        for name in there:
            (work / name).unlink()
    assert struck >= 2
    assert _start(arguments, work).wait(120) == 0
    assert {path.name for path in work.iterdir()} == set(want)
    assert {name: _digest(work / name) for name in want} == want
    assert _digest(large) == before


def test_a_reader_that_goes_away_is_no_crash(large: Path, qualcheck: Any, tmp_path: Path) -> None:
    run = qualcheck.score(tmp_path / "run", large).path
    report = subprocess.Popen(
        [str(SCRIPT), "report", str(run)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert report.stdout is not None
    report.stdout.close()
    assert report.stderr is not None
    said = report.stderr.read()
    report.wait(60)
    assert "Traceback" not in said


def test_two_runs_into_one_name_leave_one_whole_run(large: Path, tmp_path: Path) -> None:
    arguments = ["score", str(large), "--env", "babyai", "-o", "run"]
    both = [_start(arguments, tmp_path) for _ in range(2)]
    codes = sorted(process.wait(120) for process in both)
    said = "".join(process.communicate()[1] for process in both)
    assert "Traceback" not in said
    assert codes[0] == 0
    assert (tmp_path / "run/manifest.json").is_file()
    assert {path.name for path in tmp_path.iterdir()} == {"run"}
    assert codes[1] in (0, 2)
