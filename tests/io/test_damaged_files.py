"""Files cut at every 4 KiB, and with bytes changed at random, end in one line, whatever the format."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pyarrow.parquet as pq
import pytest

import qualcheck

SHIPPED = Path(qualcheck.__file__).parent / "data/babyai_imagined.parquet"
SHARED = {
    "babyai_easy.parquet": "babyai", "babyai_imaginary_hard.npy": "babyai", "ball_real.hdf5": "clevr",
    "ball_real.npy": "clevr", "libero_real.npy": "libero", "metaworld_real.h5": "metaworld",
    "mujoco_hard_qwen.parquet": "halfcheetah",
}  # fmt: skip
OWN = {"canonical.parquet": "babyai", "d4rl.hdf5": "halfcheetah", "arrays.npz": "halfcheetah"}
FLAT = {"rewards": "reward", "terminals": "terminal", "timeouts": "truncated"}
MOST_MB = 1_000


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A file of each format that this project writes or that is plain."""
    folder = tmp_path_factory.mktemp("files")
    made = {"canonical.parquet": SHIPPED, "d4rl.hdf5": folder / "d4rl.hdf5", "arrays.npz": folder / "arrays.npz"}
    qualcheck.collect("halfcheetah", "hard", 1, folder / "h.parquet", seed=1)
    table = pq.read_table(folder / "h.parquet")
    obs, action = (np.stack(table[name].to_numpy()) for name in ("obs", "action"))
    rest = {name: table[other].to_numpy() for name, other in FLAT.items()}
    arrays = {"observations": obs, "actions": action, **rest}
    np.savez(made["arrays.npz"], **arrays)
    with h5py.File(made["d4rl.hdf5"], "w") as file:
        for name, values in arrays.items():
            file.create_dataset(name, data=values, compression="gzip")
    return made


def _check(path: Path, env: str, how: str, count: int = 0) -> list[dict[str, Any]]:
    done = subprocess.run(
        [sys.executable, str(Path(__file__).with_name("damage.py")), str(path), env, how, str(count)],
        capture_output=True, text=True, timeout=900, env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )  # fmt: skip
    lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    cases = {line["case"]: line for line in lines}  # the last word on each
    assert done.returncode == 0, (lines[-1:], done.stderr[-500:])
    wrong = [each for each in cases.values() if not each["outcome"].startswith(("read", "refused: "))]
    assert not wrong, wrong[:5]
    long = [each for each in cases.values() if "\n" in each["outcome"] or each["seconds"] > 20]
    assert not long, long[:5]
    assert max(each["peak_mb"] for each in cases.values()) < MOST_MB
    return list(cases.values())


@pytest.mark.parametrize("name", [*SHARED, *OWN])
def test_a_file_cut_at_every_4_kib_is_refused(name: str, files: dict[str, Path], request: Any) -> None:
    path = files[name] if name in OWN else request.getfixturevalue("shared_data") / "formats" / name
    found = _check(path, (SHARED | OWN)[name], "cuts")
    assert len(found) == -(-path.stat().st_size // 4096)
    assert all(each["outcome"].startswith("refused") for each in found), [
        each for each in found if not each["outcome"].startswith("refused")
    ][:3]


@pytest.mark.parametrize("name", [*SHARED, *OWN])
def test_a_file_with_changed_bytes_is_read_or_refused(name: str, files: dict[str, Path], request: Any) -> None:
    path = files[name] if name in OWN else request.getfixturevalue("shared_data") / "formats" / name
    assert len(_check(path, (SHARED | OWN)[name], "flips", 60)) == 60


@pytest.mark.slow
@pytest.mark.parametrize("name", [*SHARED, *OWN])
def test_a_thousand_copies_with_changed_bytes(name: str, files: dict[str, Path], request: Any) -> None:
    path = files[name] if name in OWN else request.getfixturevalue("shared_data") / "formats" / name
    assert len(_check(path, (SHARED | OWN)[name], "flips", 1_000)) == 1_000
