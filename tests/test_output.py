"""Outputs are whole, and over nothing of the user's."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from qualcheck.errors import UsageError
from qualcheck.output import refuse_overlap, staged_files, staged_folder


def test_a_folder_takes_its_name_when_all_went_well(tmp_path: Path) -> None:
    out = tmp_path / "deep" / "run"
    with staged_folder(out) as stage:
        (stage / "a").write_text("1")
        assert not out.exists()
    assert (out / "a").read_text() == "1"
    assert [path.name for path in out.parent.iterdir()] == ["run"]


def test_a_folder_is_gone_when_something_went_wrong(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError), staged_folder(tmp_path / "run"):
        raise RuntimeError
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("kind", ["file", "folder", "link"])
def test_what_exists_is_refused_and_kept(tmp_path: Path, kind: str) -> None:
    out = tmp_path / "run"
    if kind == "file":
        out.write_text("mine")
    elif kind == "folder":
        out.mkdir()
        (out / "mine").write_text("mine")
    else:
        out.symlink_to(tmp_path / "nowhere")
    with pytest.raises(UsageError, match="exists already"), staged_folder(out):
        pass
    assert out.is_symlink() or "mine" in (out.read_text() if out.is_file() else (out / "mine").read_text())


def test_an_empty_folder_may_be_filled(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    with staged_folder(tmp_path / "run") as stage:
        (stage / "a").touch()
    assert (tmp_path / "run" / "a").exists()


def test_the_file_named_by_the_user_appears_last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = []
    link = os.link
    monkeypatch.setattr(os, "link", lambda path, target: (names.append(path.name), link(path, target))[1])
    with staged_files(tmp_path / "a.parquet") as stage:
        for name in ("a.parquet", "a.parquet.z", "0"):
            (stage / name).touch()
    assert names[-1] == "a.parquet"
    assert len(names) == 3


def test_stages_of_dead_processes_are_removed_and_those_of_living_ones_kept(tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from qualcheck.output import staged_folder; import os, signal\n"
        "with staged_folder(Path(sys.argv[1])):\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    subprocess.run([sys.executable, "-c", code, str(tmp_path / "run")], check=False)
    (dead,) = tmp_path.iterdir()
    alive = tmp_path / dead.name.replace(dead.name.split("-")[-2], str(os.getpid()))
    alive.mkdir()
    with staged_folder(tmp_path / "run"):
        assert not dead.exists()
        assert alive.exists()


def test_an_output_that_is_an_input_under_any_name_is_refused(tmp_path: Path) -> None:
    source = tmp_path / "in.npy"
    source.write_text("x")
    (tmp_path / "soft").symlink_to(source)
    os.link(source, tmp_path / "hard")
    for out in (source, tmp_path / "soft", tmp_path / "hard", tmp_path / "." / "in.npy", tmp_path, source / "run"):
        with pytest.raises(UsageError, match="overwrite"):
            refuse_overlap(out, [source])
    refuse_overlap(tmp_path / "other", [source])


def test_of_two_who_write_one_output_the_second_is_refused(tmp_path: Path) -> None:
    out = tmp_path / "a.parquet"
    second = staged_files(out)
    (second.__enter__() / "a.parquet").write_text("second")
    with staged_files(out) as first:
        (first / "a.parquet").write_text("first")
    with pytest.raises(UsageError, match="appeared"):
        second.__exit__(None, None, None)
    assert out.read_text() == "first"
    assert [path.name for path in tmp_path.iterdir()] == ["a.parquet"]
