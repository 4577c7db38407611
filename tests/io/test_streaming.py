"""Files that are read by blocks of whole rollouts: the same rollouts as from memory, in little memory."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import qualcheck
from qualcheck.envs.babyai.reset import sample_rows
from qualcheck.errors import DataError
from qualcheck.io import open_source, parquet_columns, stored
from qualcheck.types import AnyArray

N, T = 60, 5
Content = dict[str, Any]


def _content(kind: str) -> Content:
    rng = np.random.default_rng(3)
    valid = rng.integers(0, T + 1, N)
    mask = np.arange(T) < valid[:, None]
    rows = rng.integers(0, 9, (N, T + 1, 3)).astype(np.float32)
    content: Content = {
        "observations": rows[:, :-1],
        "actions": np.where(mask, rng.integers(0, 7, (N, T)), 0),
        "rewards": np.where(mask, rng.random((N, T)), 0)[..., None].astype(np.float32),
        "masks": mask[..., None].astype(np.float32),
        "terminals": np.arange(T) == valid[:, None] - rng.integers(0, 2, (N, 1)),
        "instructions": [[f"text {i % 7}", "other"] for i in range(N)],
        "score": rng.random((N, T, 2)),
    }
    if kind == "filler":
        content["rewards"][np.arange(N), np.maximum(valid - 1, 0)] = 0
    elif kind == "final row":
        content["observations"] = rows
    elif kind in ("codes", "defects"):
        code = np.repeat(rng.random((N, 1, 4), np.float32), T, axis=1)
        code[7, 1, 2], code[9, :, 1], code[11, 0] = 5, np.nan, np.nan
        content["observations"] = np.concatenate([rows[:, :-1], code], axis=2)
        content["next_observations"] = np.concatenate([rows[:, 1:], code], axis=2)
    if kind == "defects":
        content["masks"][3, 0], content["masks"][4, 1], content["masks"][5, 0], content["masks"][6] = 0, 0.5, np.nan, 0
        content["actions"] = content["actions"].astype(np.float64)
        content["observations"][12, 0, 0] = np.inf
    return content


def _npy(path: Path, content: Content) -> None:
    with path.open("wb") as stream:
        np.save(stream, np.array(content, dtype=object), allow_pickle=True)


def _hdf5(path: Path, content: Content, **options: Any) -> None:
    with h5py.File(path, "w") as file:
        for name, value in content.items():
            if isinstance(value, np.ndarray):
                file.create_dataset(name, data=value, **options)
            else:
                file.create_dataset(name, data=[texts[0] for texts in value], dtype=h5py.string_dtype())


def _parquet(path: Path, content: Content, order: AnyArray | None = None, group: int | None = None) -> None:
    columns: dict[str, Any] = {"file_name": ["f"] * N, "row_index": np.arange(N)}
    for name, value in content.items():
        if isinstance(value, np.ndarray):
            columns |= {f"{name}_shape": [str(value.shape)] * N, f"{name}_dtype": [value.dtype.name] * N}
            columns[f"{name}_data"] = [row.tobytes() for row in value]
        else:
            columns |= {f"{name}_shape": [f"({N}, 2)"] * N, f"{name}_dtype": ["<U9"] * N, f"{name}_data": value}
    table = pa.table(columns)
    pq.write_table(table if order is None else table.take(pa.array(order)), path, row_group_size=group)


WRITERS: dict[str, Callable[[Path, Content], None]] = {
    "hdf5": _hdf5,
    "hdf5 gzip": lambda path, content: _hdf5(path, content, compression="gzip", chunks=True),
    "npz": lambda path, content: np.savez(path.open("wb"), **content),
    "parquet": _parquet,
    "parquet in small groups": lambda path, content: _parquet(path, content, group=7),
    "parquet shuffled": lambda path, content: _parquet(path, content, np.random.default_rng(1).permutation(N), 11),
}


@pytest.mark.parametrize("writer", list(WRITERS))
@pytest.mark.parametrize("kind", ["plain", "filler", "final row", "codes", "defects"])
def test_a_streamed_file_gives_the_rollouts_of_the_same_npy(
    tmp_path: Path, grid: Any, writer: str, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stored, "BLOCK", 200)  # bytes, so that every array takes many blocks
    monkeypatch.setattr(parquet_columns, "BLOCK", 200)
    content = _content(kind)
    _npy(tmp_path / "a.npy", content)
    WRITERS[writer](tmp_path / "b", content)
    held, streamed = open_source(tmp_path / "a.npy", grid), open_source(tmp_path / "b", grid)
    assert streamed.findings == held.findings
    assert (streamed.last_action, streamed.longest) == (held.last_action, held.longest)
    for extras in (False, True):
        both = list(zip(held.batches(17, extras), streamed.batches(17, extras), strict=True))
        assert len(both) > 5
        for one, other in both:
            for field in fields(one):
                if field.name != "extra_rollout":  # holds the texts as the container has them
                    _assert_same(getattr(one, field.name), getattr(other, field.name), field.name)


def _assert_same(one: Any, other: Any, name: str) -> None:
    if isinstance(one, dict):
        assert one.keys() == other.keys(), name
        for key in one:
            _assert_same(one[key], other[key], f"{name} {key}")
    elif isinstance(one, np.ndarray):
        assert one.dtype == other.dtype, name
        np.testing.assert_array_equal(one, other, err_msg=name)
    else:
        assert one == other, name


@pytest.mark.parametrize("suffix", ["h5", "parquet"])
def test_the_tables_of_a_streamed_file_are_those_of_the_same_npy(tmp_path: Path, suffix: str) -> None:
    rng = np.random.default_rng(0)
    rows = np.repeat(sample_rows("goto", None, N, rng)[:, None], T, axis=1).astype(np.float32)
    rows[1] = rows[0]
    content: Content = {
        "observations": np.concatenate([rows, np.repeat(rng.random((N, 1, 768), np.float32), T, axis=1)], axis=2),
        "actions": np.repeat(rng.integers(0, 7, (N, 1)), T, axis=1),
        "rewards": rng.random((N, T, 1)),
        "masks": np.ones((N, T)),
        "instructions": [["go to the blue ball", ""]] * N,
    }
    _npy(tmp_path / "a.npy", content)
    (_hdf5 if suffix == "h5" else _parquet)(tmp_path / f"a.{suffix}", content)
    one, other = (
        qualcheck.score(tmp_path / name, "babyai", tmp_path / f"of-{name}") for name in ("a.npy", f"a.{suffix}")
    )
    assert (one.path / "transitions.parquet").read_bytes() == (other.path / "transitions.parquet").read_bytes()
    tables = [run.rollouts().drop_columns(["source"]).to_pandas() for run in (one, other)]
    pd.testing.assert_frame_equal(*tables)
    assert tables[0]["flags"].map(lambda names: "duplicate" in names).sum() >= 1
    assert one.manifest["results"]["flags"] == other.manifest["results"]["flags"]


def test_a_file_cut_short_while_it_is_read_is_one_line(
    tmp_path: Path, grid: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stored, "BLOCK", 200)
    content = _content("plain")
    path = tmp_path / "a.h5"
    _hdf5(path, {"actions": content["actions"], "observations": content["observations"]})
    batches = open_source(path, grid).batches(17)
    next(batches)
    with path.open("r+b") as file:
        file.truncate(3_000)
    with pytest.raises(DataError, match=r"goes on past the end of the file|cannot be read") as caught:
        list(batches)
    assert "\n" not in str(caught.value)


MEASURE = """
import sys
from pathlib import Path
from qualcheck.io import open_source
from qualcheck.registry import load
import pyarrow.parquet, h5py, pandas
def peak():
    return next(int(x.split()[1]) for x in Path("/proc/self/status").read_text().splitlines() if x.startswith("VmHWM"))
specs = load("babyai").layouts()
before = peak()
rollouts = sum(batch.n_rollouts for batch in open_source(sys.argv[1], specs).batches(32768))
print(rollouts, (peak() - before) / 1024)
"""


def _grown(path: Path) -> tuple[int, float]:
    """Rollouts read in a process of their own, and by how many MiB its peak memory grew."""
    done = subprocess.run([sys.executable, "-c", MEASURE, str(path)], check=True, capture_output=True, text=True)
    rollouts, grown = done.stdout.split()
    return int(rollouts), float(grown)


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="peak memory is read from /proc")
@pytest.mark.parametrize("suffix", ["h5", "parquet", "npy"])
def test_the_memory_of_reading_does_not_grow_with_the_file(tmp_path: Path, suffix: str) -> None:
    # Arrow writes at least 1,024 rows into a page and holds one page: with codes that alone is 92 MiB here
    n, steps, width = (80_000, 30, 17) if suffix == "parquet" else (2_000, 30, 785)
    rng = np.random.default_rng(0)
    observations = np.repeat(rng.random((n, 1, width), np.float32), steps, axis=1)  # 156 or 180 MiB
    content: Content = {
        "observations": observations,
        "actions": np.zeros((n, steps), np.int64),
        "rewards": np.zeros((n, steps, 1), np.float32),
        "masks": np.ones((n, steps, 1), np.float32),
    }
    path = tmp_path / f"a.{suffix}"
    size = observations.nbytes / 2**20
    if suffix == "parquet":
        columns: dict[str, Any] = {"row_index": np.arange(n)}
        for name, value in content.items():
            columns |= {f"{name}_shape": [str(value.shape)] * n, f"{name}_dtype": [value.dtype.name] * n}
            columns[f"{name}_data"] = [row.tobytes() for row in value]
        pq.write_table(pa.table(columns), path, compression="none")  # one row group
    else:
        (_hdf5 if suffix == "h5" else _npy)(path, content)
    rollouts, grown = _grown(path)
    assert rollouts == n
    if suffix == "npy":  # a pickle is in memory as a whole: its arrays, and at most one more copy of the largest
        assert 0.9 * size < grown < 2 * size + 40
    else:
        assert grown < (60 if suffix == "h5" else 110) < size, grown
