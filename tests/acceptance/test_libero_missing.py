"""Without its extra, LIBERO files are read, and what needs the simulator says how to install it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

HIDE = """
import sys
sys.modules.update(dict.fromkeys(("numba", "robosuite", "libero")))
from qualcheck.cli import main
main()
"""


def without_the_extra(*words: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", HIDE, *map(str, words)], capture_output=True, text=True, check=False)


def test_score_says_how_to_install_the_simulator(shared_data: Path, tmp_path: Path) -> None:
    path = shared_data / "golden/libero_rephrase.npy"
    done = without_the_extra("score", path, "--env", "libero", "-o", tmp_path / "run")
    assert done.returncode == 2
    assert done.stderr.strip() == (
        "error: libero needs its simulator. Install it with: pip install 'qualcheck[libero]'"
    )
    assert not (tmp_path / "run").exists()


def test_everything_else_works(shared_data: Path, tmp_path: Path) -> None:
    path = shared_data / "golden/libero_rephrase.npy"
    done = without_the_extra("convert", path, "--env", "libero", "-o", tmp_path / "rows.parquet")
    assert done.returncode == 0, done.stderr
    starts = shared_data / "real/imaginebench_libero_pick_cream_cheese_inits.npz"
    done = without_the_extra("inspect", "--starts", starts, "--env", "libero")
    assert done.returncode == 0, done.stderr
    assert "52 different, 48 at 1e-6" in done.stdout
    done = without_the_extra("envs")
    assert "libero rules" in done.stdout
