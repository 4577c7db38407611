"""How fast and in how little memory BabyAI files of every layout are read and scored, against a plain read, in one run.

    python benchmarks/reading.py [--rows 100000,1000000] [--columns 17,785] [--formats h5,h5-gzip,parquet,npy]
        [--repeats 3] [--folder FOLDER]

Each figure comes from a process of its own, imports excluded, its peak memory (VmHWM) included:
- plain: the library reads every byte of the file, 64 MB at a time (h5py), by row groups (pyarrow) or at once (np.load);
- read: qualcheck hands on every rollout in batches;
- score: end to end, `qualcheck.score` of the file into a run folder.
Rounds are interleaved. The slopes are those of log seconds over log rows between neighbouring sizes: 1 is proportional.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import h5py
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from babyai_speed import SENTENCES, STEPS

from qualcheck.envs.babyai import kernel
from qualcheck.envs.babyai.layout import fields
from qualcheck.envs.babyai.reset import sample_rows
from qualcheck.types import AnyArray

PIECE = 2_500  # rollouts made together
SLAB = 64 << 20  # bytes of a plain read
CODE = 768


def pieces(rollouts: int, columns: int, rng: np.random.Generator) -> Iterator[tuple[dict[str, AnyArray], list[str]]]:
    """Rollouts of all tasks with random actions, a piece at a time, and their instructions."""
    codes = rng.random((len(SENTENCES), CODE), np.float32)
    tasks = list(SENTENCES)
    starts = {task: sample_rows(task, None, 200, rng) for task in tasks}
    for first in range(0, rollouts, PIECE):
        n = min(PIECE, rollouts - first)
        which = rng.integers(0, len(tasks), n)
        begin = np.stack([starts[tasks[k]][i] for k, i in zip(which, rng.integers(0, 200, n), strict=True)])
        state = fields(begin).value
        obs = np.zeros((n, STEPS, columns), np.float32)
        action = rng.integers(0, 7, (n, STEPS))
        for step in range(STEPS):
            obs[:, step, : len(state)] = state.T
            state = kernel.step(state, action[:, step])
        if columns > len(state):
            obs[:, :, len(state) :] = codes[which][:, None]
        reward = rng.random((n, STEPS, 1), np.float32)
        mask = np.ones((n, STEPS, 1), np.float32)
        texts = [SENTENCES[tasks[k]] for k in which]
        yield {"observations": obs, "actions": action, "rewards": reward, "masks": mask}, texts


def make(path: Path, form: str, rows: int, columns: int) -> int:
    """Write a file; its rows come back."""
    n = max(rows // STEPS, 1)
    made = pieces(n, columns, np.random.default_rng(0))
    if form.startswith("h5"):
        options = {"compression": "gzip", "compression_opts": 1, "chunks": True} if form == "h5-gzip" else {}
        with h5py.File(path, "w") as file:
            done = 0
            for arrays, texts in made:
                for key, value in arrays.items():
                    if not done:
                        file.create_dataset(key, (n, *value.shape[1:]), value.dtype, **options)
                    file[key][done : done + len(value)] = value
                if not done:
                    file.create_dataset("instructions", (n,), h5py.string_dtype())
                file["instructions"][done : done + len(texts)] = texts
                done += len(texts)
    elif form == "parquet":
        writer, done = None, 0
        for arrays, texts in made:
            size = len(texts)
            table = {"file_name": [path.name] * size, "row_index": np.arange(done, done + size)}
            for key, value in arrays.items():
                table |= {
                    f"{key}_shape": [str((n, *value.shape[1:]))] * size,
                    f"{key}_dtype": [value.dtype.name] * size,
                }
                table[f"{key}_data"] = [entry.tobytes() for entry in value]
            table |= {"instructions_shape": [f"({n}, 1)"] * size, "instructions_dtype": ["<U60"] * size}
            table["instructions_data"] = [[text] for text in texts]
            done += size
            writer = writer or pq.ParquetWriter(path, pa.table(table).schema)
            writer.write_table(pa.table(table))
        if writer is not None:
            writer.close()
    else:
        parts, texts = zip(*made, strict=True)
        whole: dict[str, object] = {key: np.concatenate([part[key] for part in parts]) for key in parts[0]}
        whole["instructions"] = [[text] for part in texts for text in part]
        with path.open("wb") as stream:
            np.save(stream, np.array(whole, dtype=object), allow_pickle=True)
    return n * STEPS


def plain(path: Path, form: str) -> None:
    """Read every byte with the library of the format."""
    if form.startswith("h5"):
        with h5py.File(path) as file:
            for data in file.values():
                step = max(SLAB // max(data.dtype.itemsize * math.prod(data.shape[1:]), 1), 1)
                for first in range(0, len(data), step):
                    data[first : first + step]
    elif form == "parquet":
        with path.open("rb") as stream:
            file = pq.ParquetFile(stream)
            for group in range(file.num_row_groups):
                file.read_row_group(group)
    else:
        np.load(path, allow_pickle=True)


def child(what: str, path: Path, form: str) -> None:
    """One measurement in this process, printed as JSON."""
    import qualcheck
    from qualcheck.io import open_source
    from qualcheck.registry import load

    adapter = load("babyai")
    began = time.perf_counter()
    if what == "plain":
        plain(path, form)
    elif what == "read":
        for _ in open_source(path, adapter.layouts()).batches():
            pass
    else:
        with tempfile.TemporaryDirectory(dir=path.parent) as folder:
            began = time.perf_counter()
            qualcheck.score(path, "babyai", Path(folder) / "run")
            seconds = time.perf_counter() - began
            began = time.perf_counter() - seconds
    seconds = time.perf_counter() - began
    peak = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM"))
    print(json.dumps({"seconds": seconds, "mib": int(peak.split()[1]) / 1024}))


def measured(*arguments: str) -> dict[str, float]:
    command = [sys.executable, __file__, *arguments]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", default="100000,1000000")
    parser.add_argument("--columns", default="17,785")
    parser.add_argument("--formats", default="h5,h5-gzip,parquet,npy")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--folder", help="where the files go; beyond 10^7 rows of 785 columns they need 31 GB each")
    parser.add_argument("--child", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        what, path, form = options.child
        child(what, Path(path), form)
        return
    sizes = [int(float(size)) for size in options.rows.split(",")]
    for columns in map(int, options.columns.split(",")):
        for form in options.formats.split(","):
            seconds: dict[int, float] = {}
            for rows in sizes:
                with tempfile.TemporaryDirectory(dir=options.folder) as folder:
                    path = Path(folder) / "rollouts"
                    held = make(path, form, rows, columns)
                    rounds: dict[str, list[dict[str, float]]] = {what: [] for what in ("plain", "read", "score")}
                    for _ in range(options.repeats):
                        for what, found in rounds.items():
                            found.append(measured("--child", what, str(path), form))
                    median = {k: statistics.median(f["seconds"] for f in v) for k, v in rounds.items()}
                    peak = {k: max(f["mib"] for f in v) for k, v in rounds.items()}
                    size = path.stat().st_size
                seconds[held] = median["score"]
                print(f"{form}, {columns} columns, {held:,} rows, {size >> 20:,} MiB, load {os.getloadavg()[0]:.1f}")
                for what in rounds:
                    ratio = median["plain"] / median[what]
                    speed = held / median[what]
                    print(f"  {what:<6} {speed:>12,.0f} rows/s  {ratio:5.2f} x plain  peak {peak[what]:6,.0f} MiB")
            for (a, first), (b, second) in pairwise(seconds.items()):
                print(f"  slope of score from {a:,} to {b:,} rows: {math.log(second / first) / math.log(b / a):.2f}")


if __name__ == "__main__":
    main()
