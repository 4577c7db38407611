"""However a run is worked off, and however often it is killed, its tables have the same bytes."""

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

import numpy as np
import pytest

import qualcheck

KILLS = 20
DRIVER = """
import sys
import qualcheck
import qualcheck.pipeline
import qualcheck.scorepass

path, size, workers, engine = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
qualcheck.scorepass.batch_size = qualcheck.pipeline.batch_size = lambda adapter: size
qualcheck.score(path, env="halfcheetah", out="run", workers=workers, engine=engine, resume=True)
"""
WAYS = [  # transitions of a batch, workers, engine
    (100, 1, "local"),
    (100, 2, "local"),
    (250, 5, "local"),
    (250, 2, "ray"),
]


def _start(path: Path, folder: Path, way: tuple[int, int, str]) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-c", DRIVER, str(path), *map(str, way)],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


def _hashes(run: Path) -> dict[str, str]:
    found = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(run.glob("*.parquet"))}
    results = json.dumps(json.loads((run / "manifest.json").read_text())["results"]).encode()
    return {**found, "results": hashlib.sha256(results).hexdigest()}


@pytest.mark.slow
def test_killed_at_random_moments_and_resumed_every_way_ends_in_the_same_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ray = pytest.importorskip("ray")
    from ray.cluster_utils import Cluster

    path = tmp_path / "h.parquet"
    qualcheck.collect("halfcheetah", "hard", 20, path, random_share=0.3, seed=1)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 2, "object_store_memory": 100 * 2**20})
    monkeypatch.setenv("RAY_ADDRESS", cluster.address)
    try:
        rng, want, kills = np.random.default_rng(0), None, 0
        for way in WAYS:
            folder = tmp_path / "-".join(map(str, way))
            folder.mkdir()
            begin = time.monotonic()
            assert _start(path, folder, way).wait(600) == 0
            whole = time.monotonic() - begin
            got = _hashes(folder / "run")
            want = want or got
            assert got == want, way
            struck = 0
            while struck < KILLS // len(WAYS):
                shutil.rmtree(folder / "run", ignore_errors=True)
                process = _start(path, folder, way)
                time.sleep(whole * (0.3 + 0.7 * rng.random()))
                if process.poll() is None:
                    os.killpg(process.pid, signal.SIGKILL)
                    struck += 1
                process.wait(60)
                if (folder / "run").exists():
                    assert _hashes(folder / "run") == want, way
            assert _start(path, folder, way).wait(600) == 0
            assert _hashes(folder / "run") == want, way
            assert [each.name for each in folder.iterdir()] == ["run"]
            kills += struck
        assert kills == KILLS
        print(json.dumps(want, indent=1))  # noqa: T201 - the hashes are to be listed
    finally:
        ray.shutdown()
        cluster.shutdown()
