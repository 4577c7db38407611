"""A stopped run goes on where it stopped, with the very bytes of one that was never stopped."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

import qualcheck
from qualcheck.journal import Journal

SHIPPED = Path(qualcheck.__file__).parent / "data/babyai_imagined.parquet"


class Stopped(Exception):
    """Stands for whatever ends a run midway."""


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("qualcheck.scorepass.batch_size", lambda adapter: 300)


def _bytes(run: Path) -> dict[str, bytes]:
    found = {path.name: path.read_bytes() for path in run.iterdir() if path.suffix == ".parquet"}
    return {**found, "results": json.dumps(json.loads((run / "manifest.json").read_text())["results"]).encode()}


def _stop_after(pieces: int, monkeypatch: pytest.MonkeyPatch, folder: Path, **options: Any) -> Path:
    """A run into `folder`/run that ends after some pieces; their folder comes back."""
    kept = Journal.save
    done = []

    def save(self: Journal, *args: Any) -> None:
        if len(done) == pieces:
            raise Stopped
        done.append(1)
        kept(self, *args)

    with monkeypatch.context() as patch:
        patch.setattr(Journal, "save", save)
        with pytest.raises(Stopped):
            qualcheck.score(SHIPPED, env="babyai", out=folder / "run", **{"resume": True, **options})
    assert {path.name for path in folder.iterdir() if not path.name.startswith(".")} == set()
    (left,) = [path for path in folder.iterdir() if ".pieces-" in path.name]
    assert len(list(left.iterdir())) == pieces
    return left


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    return _bytes(qualcheck.score(SHIPPED, env="babyai", out=tmp_path_factory.mktemp("whole") / "run").path)


@pytest.mark.parametrize("pieces", [1, 4, 8])
@pytest.mark.parametrize("workers", [1, 2])
def test_a_resumed_run_has_the_same_bytes(
    pieces: int, workers: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, whole: dict[str, bytes]
) -> None:
    _stop_after(pieces, monkeypatch, tmp_path)
    run = qualcheck.score(SHIPPED, env="babyai", out=tmp_path / "run", resume=True, workers=workers)
    assert run.manifest["run"]["pieces_reused"] == pieces
    assert _bytes(run.path) == whole
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


def test_without_resume_nothing_is_taken_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, whole: dict[str, bytes]
) -> None:
    _stop_after(3, monkeypatch, tmp_path)
    for workers in (1, 2):
        run = qualcheck.score(SHIPPED, env="babyai", out=tmp_path / "run", workers=workers)
        assert run.manifest["run"]["pieces_reused"] == 0
        assert _bytes(run.path) == whole
        shutil.rmtree(tmp_path / "run")
    assert workers == 2


@pytest.mark.parametrize("harm", ["cut", "flipped", "empty", "swapped", "garbage", "folder"])
def test_a_damaged_piece_is_made_again(
    harm: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, whole: dict[str, bytes]
) -> None:
    left = _stop_after(4, monkeypatch, tmp_path)
    first, second = sorted(left.iterdir())[:2]
    data = first.read_bytes()
    if harm == "cut":
        first.write_bytes(data[: len(data) // 2])
    elif harm == "flipped":
        first.write_bytes(data[:5000] + bytes([data[5000] ^ 1]) + data[5001:])
    elif harm == "empty":
        first.write_bytes(b"")
    elif harm == "swapped":
        shutil.copy(second, first)
    elif harm == "garbage":
        first.write_bytes(os.urandom(4000))
    else:
        first.unlink()
        first.mkdir()
    run = qualcheck.score(SHIPPED, env="babyai", out=tmp_path / "run", resume=True)
    assert run.manifest["run"]["pieces_reused"] == 3
    assert _bytes(run.path) == whole


def test_pieces_of_other_options_are_not_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _stop_after(4, monkeypatch, tmp_path)
    run = qualcheck.score(SHIPPED, env="babyai", out=tmp_path / "run", resume=True, start="any")
    assert run.manifest["run"]["pieces_reused"] == 0
    fresh = qualcheck.score(SHIPPED, env="babyai", out=tmp_path / "fresh", start="any")
    assert _bytes(run.path) == _bytes(fresh.path)
    assert {path.name for path in tmp_path.iterdir()} == {"run", "fresh"}


def test_pieces_of_a_file_that_changed_are_not_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    copy = tmp_path / "copy.parquet"
    shutil.copy(SHIPPED, copy)
    monkeypatch.setattr(sys.modules[__name__], "SHIPPED", copy)
    with monkeypatch.context() as patch:
        patch.setattr(Journal, "remove", lambda self: None)
        qualcheck.score(copy, env="babyai", out=tmp_path / "run", resume=True)
    shutil.rmtree(tmp_path / "run")
    os.utime(copy, ns=(1, 1))
    run = qualcheck.score(copy, env="babyai", out=tmp_path / "run", resume=True)
    assert run.manifest["run"]["pieces_reused"] == 0


def test_a_disk_without_room_for_pieces_stops_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, whole: dict[str, bytes]
) -> None:
    def full(self: Path, data: bytes) -> int:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(Path, "write_bytes", full)
        run = qualcheck.score(SHIPPED, env="babyai", out=tmp_path / "run", resume=True)
    assert _bytes(run.path) == whole


def _score(recorded: Path, folder: Path, *more: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "qualcheck", "score", str(recorded), "--env", "clevr", "-o", "run", *more],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )


def _pieces(folder: Path) -> int:
    return len(list(folder.glob(".run.pieces-*/*.piece")))


def _alive(group: int) -> list[str]:
    """Processes of a session that still run."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[3]) == group and fields[0] != "Z":
            found.append(stat.parent.name)
    return found


@pytest.mark.slow
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_runs_killed_again_and_again_end_in_the_same_bytes(how: signal.Signals, tmp_path: Path) -> None:
    recorded = tmp_path / "clevr.parquet"
    qualcheck.collect("clevr", "hard", 70, recorded, random_share=0.5, seed=3)
    (tmp_path / "quiet").mkdir()
    (tmp_path / "loud").mkdir()
    assert _score(recorded, tmp_path / "quiet").wait(600) == 0
    want = {path.name: path.read_bytes() for path in (tmp_path / "quiet/run").iterdir() if path.suffix == ".parquet"}
    struck = 0
    for _ in range(20):
        before = _pieces(tmp_path / "loud")
        process = _score(recorded, tmp_path / "loud", "--resume", "--workers", "2")
        end = time.monotonic() + 600
        while process.poll() is None and _pieces(tmp_path / "loud") <= before and time.monotonic() < end:
            time.sleep(0.01)
        time.sleep(0.05 * (struck % 5))
        if process.poll() is not None:
            break
        (os.kill if how != signal.SIGKILL else os.killpg)(process.pid, how)
        said = process.communicate(timeout=120)[1]
        struck += 1
        assert "Traceback" not in said
        time.sleep(0.2)
        assert not _alive(process.pid), "a worker outlives its run"
        if (tmp_path / "loud/run").exists():  # it was done before the signal came
            break
        assert _pieces(tmp_path / "loud") > before
    assert struck >= 3
    if not (tmp_path / "loud/run").exists():
        assert _score(recorded, tmp_path / "loud", "--resume", "--workers", "5").wait(600) == 0
    found = {path.name: path.read_bytes() for path in (tmp_path / "loud/run").iterdir() if path.suffix == ".parquet"}
    assert found == want
    assert [path.name for path in (tmp_path / "loud").iterdir()] == ["run"]
