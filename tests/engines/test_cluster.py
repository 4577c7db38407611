"""A real Ray cluster of two nodes gives the bytes of threads, also when one of them is killed midway."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import qualcheck
from qualcheck.engines.cluster import Cluster as Actors
from qualcheck.errors import UsageError, WorkerLost

ray = pytest.importorskip("ray")
SHIPPED = Path(qualcheck.__file__).parent / "data/babyai_imagined.parquet"


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("qualcheck.scorepass.batch_size", lambda adapter: 300)


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A head that gives no core, and two nodes with one core each."""
    from ray.cluster_utils import Cluster

    root = str(Path(qualcheck.__file__).parents[1])
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([root, os.environ.get("PYTHONPATH", "")]))
    monkeypatch.setenv("RAY_DISABLE_DOCKER_CPU_WARNING", "1")
    memory = 100 * 2**20
    found = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "object_store_memory": memory})
    found.two = [found.add_node(num_cpus=1, object_store_memory=memory) for _ in range(2)]
    monkeypatch.setenv("RAY_ADDRESS", found.address)
    yield found
    ray.shutdown()
    found.shutdown()


def _bytes(run: Path) -> dict[str, bytes]:
    found = {path.name: path.read_bytes() for path in run.iterdir() if path.suffix == ".parquet"}
    return {**found, "results": json.dumps(json.loads((run / "manifest.json").read_text())["results"]).encode()}


def _when(steps: int, act: Callable[[], object]) -> Callable[[str, int], Callable[[int], None]]:
    """A progress bar that acts once after some transitions."""
    done, acted = [0], []

    def advance(count: int) -> None:
        done[0] += count
        if done[0] >= steps and not acted:
            acted.append(act())

    return lambda title, total: advance


def _answers(actor: Any) -> bool:
    try:
        ray.get(actor.ready.remote(), timeout=30)
    except ray.exceptions.RayError:
        return False
    return True


def test_a_cluster_gives_the_bytes_of_threads_and_survives_a_node(
    cluster: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    want = qualcheck.score(SHIPPED, env="babyai", out=tmp_path / "want")
    whole = qualcheck.score(SHIPPED, env="babyai", out=tmp_path / "whole", engine="ray", workers=2)
    assert _bytes(whole.path) == _bytes(want.path)
    started: list[Actors] = []
    kept = Actors._start
    monkeypatch.setattr(Actors, "_start", lambda self: (started.append(self), kept(self)))

    def lose() -> None:
        end = time.monotonic() + 60
        while started[0]._spare.qsize() + started[0]._busy < 2 and time.monotonic() < end:
            time.sleep(0.05)  # until both actors take jobs
        cluster.remove_node(cluster.two[1], allow_graceful=False)
        while sum(map(_answers, started[0]._all)) > 1 and time.monotonic() < end:
            time.sleep(0.05)  # a worker notices only after a while that its node is gone

    lost = _when(900, lose)
    run = qualcheck.score(SHIPPED, env="babyai", out=tmp_path / "run", engine="ray", workers=2, progress=lost)
    assert len(started) == 3, "the actor of the killed node was in use, and another one asked for"
    assert _bytes(run.path) == _bytes(want.path)
    shards = [qualcheck.score_shard([SHIPPED], "babyai", tmp_path / f"{i}", f"{i}/2", engine="ray") for i in (1, 2)]
    assert _bytes(qualcheck.merge(shards, tmp_path / "merged").path) == _bytes(want.path)


def test_a_cluster_without_a_core_ends_the_run_with_one_line(
    cluster: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for node in cluster.two:
        cluster.remove_node(node)
    monkeypatch.setattr("qualcheck.engines.cluster.PATIENCE_S", 3.0)
    with pytest.raises(WorkerLost, match=r"the Ray cluster gave no actor within 3 s"):
        qualcheck.score(SHIPPED, env="babyai", out=tmp_path / "run", engine="ray")
    assert not (tmp_path / "run").exists()


def test_without_a_cluster_one_line_says_how_to_start_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    done = subprocess.run(
        [sys.executable, "-m", "qualcheck", "score", str(SHIPPED), "--env", "babyai", "-o", "run", "--engine", "ray"],
        cwd=tmp_path, capture_output=True, text=True, timeout=120,
        env={**os.environ, "RAY_TMPDIR": str(tmp_path)},
    )  # fmt: skip
    assert done.returncode == 2
    assert "no Ray cluster is running here" in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
    assert not list(tmp_path.glob("run*"))


def test_an_unknown_engine_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="--engine 'spark'; it is one of: local, ray"):
        qualcheck.score(SHIPPED, env="babyai", out=tmp_path / "run", engine="spark")
