"""Worker processes give the bytes that threads give, and a run that lost one goes on."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import qualcheck
from qualcheck.engines import Job, open_engine
from qualcheck.engines.job import check
from qualcheck.engines.processes import Processes
from qualcheck.errors import DataError, UsageError, WorkerLost
from qualcheck.inputs import open_inputs
from qualcheck.options import ScoreOptions
from qualcheck.registry import load
from qualcheck.scorepass import Referee, _jobs
from qualcheck.scoring import Placer

SHIPPED = Path(qualcheck.__file__).parent / "data/babyai_imagined.parquet"
TABLES = ("transitions.parquet", "rollouts.parquet")


def _bytes(run: Path) -> list[bytes]:
    return [(run / name).read_bytes() for name in (*TABLES, "hidden.parquet") if (run / name).exists()]


def _results(run: Path) -> object:
    from qualcheck.manifest import read_manifest

    return read_manifest(run)["results"]


@pytest.fixture
def jobs() -> list[Job]:
    inputs = open_inputs(load("babyai"), [SHIPPED], ScoreOptions())
    referee = Referee.draw(inputs.transitions, 20, 0)
    found = list(_jobs(inputs.adapter, inputs.sources, inputs.labels, referee, Placer(inputs.adapter)))
    assert len(found) == 1
    return [replace(found[0], number=number) for number in range(4)]


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("recorded")
    files = {}
    for env, level, count in (("clevr", "hard", 2), ("halfcheetah", "hard", 5), ("metaworld", "real", 1)):
        files[env] = folder / f"{env}.parquet"
        qualcheck.collect(env, level, count, files[env], random_share=0.3, seed=1)
    files["babyai"] = SHIPPED
    return files


@pytest.mark.parametrize("env", ["babyai", "halfcheetah", "clevr", "metaworld"])
def test_bytes_do_not_depend_on_workers_or_batches(
    env: str, recorded: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    whole = qualcheck.score(recorded[env], env=env, out="whole").path
    monkeypatch.setattr("qualcheck.scorepass.batch_size", lambda adapter: 700)
    parts = qualcheck.score(recorded[env], env=env, out="parts").path
    workers = qualcheck.score(recorded[env], env=env, out="workers", workers=3).path
    assert _bytes(parts) == _bytes(whole)
    assert _bytes(workers) == _bytes(whole)
    assert _results(parts) == _results(whole) == _results(workers)


def test_the_reading_of_rewards_is_found_without_a_second_pass(tmp_path: Path, shared_data: Path) -> None:
    adapter_steps = []
    for name in ("babyai_easy.npy", "babyai_real.npy"):
        run = qualcheck.score(shared_data / "golden" / name, env="babyai", out=tmp_path / name, recheck=0)
        results = run.manifest["results"]
        assert results["inputs"][0]["reward_reading"] == "released"
        assert results["counts"]["passed"]["reward"] == results["counts"]["verified"]["reward"]
        errors = run.transitions(["reward_error"])["reward_error"].to_numpy()
        assert np.nanmax(np.abs(errors)) < 1e-5
        adapter_steps.append(run.manifest["run"]["simulator_steps"])
        assert not [path for path in run.path.iterdir() if path.name.startswith(".")]


def test_a_job_whose_worker_was_killed_is_done_again(jobs: list[Job]) -> None:
    engine = Processes(load("babyai"), 1)
    try:
        first = engine.submit(jobs[0]).result(60)
        os.kill(engine._all[-1]._process.pid, signal.SIGKILL)
        second = engine.submit(jobs[1]).result(60)
    finally:
        engine.close()
    want = check(load("babyai"), jobs[0])
    for done in (first, second):
        assert done.rechecked == want.rechecked
        assert done.scored.tally == want.scored.tally
        assert done.scored.transitions["tc"].tobytes() == want.scored.transitions["tc"].tobytes()


class Deadly:
    """A label that ends whoever reads it."""

    def __init__(self, source: str) -> None:
        self.source = source

    def __reduce__(self) -> tuple[object, tuple[int]]:
        return os._exit, (7,)


def test_a_job_that_kills_every_worker_ends_the_run_with_one_line(jobs: list[Job]) -> None:
    engine = Processes(load("babyai"), 2)
    try:
        with pytest.raises(WorkerLost, match=r"a\.npy: a worker died 2 times .*exit 7.*--workers"):
            engine.submit(replace(jobs[0], label=Deadly("a.npy"))).result(60)  # type: ignore[arg-type]
        assert engine.submit(jobs[1]).result(60).scored.tally.rollouts == 332
    finally:
        engine.close()


class Broken:
    """A label on which the check ends in an error for the user."""

    source = "b.npy"

    def __getattr__(self, name: str) -> object:
        if name.startswith("__"):
            raise AttributeError(name)
        raise DataError("b.npy: unusable")


def test_an_error_for_the_user_comes_through_from_a_worker(jobs: list[Job]) -> None:
    module = Path(__file__)
    engine = Processes(load("babyai"), 1)
    engine.close()
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(module.parent)  # so that the worker can read the label's class
        import importlib

        label = importlib.import_module(module.stem).Broken()
        engine = Processes(load("babyai"), 1)
        try:
            with pytest.raises(DataError, match=r"b\.npy: unusable"):
                engine.submit(replace(jobs[0], label=label)).result(60)
        finally:
            engine.close()


def test_workers_end_with_the_engine(jobs: list[Job]) -> None:
    engine = open_engine(load("babyai"), 3)
    assert isinstance(engine, Processes)
    engine.submit(jobs[0])
    processes = [worker._process for worker in engine._all]
    assert all(process.poll() is None for process in processes)
    engine.close()
    assert all(process.poll() is not None for process in processes)


def test_a_script_without_a_main_guard_may_use_workers(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "import qualcheck\n"
        f"run = qualcheck.score({str(SHIPPED)!r}, env='babyai', out='run', workers=2)\n"
        "print(run.manifest['run']['workers'])\n"
    )
    done = subprocess.run([sys.executable, str(script)], cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout, done.stderr) == (0, "2\n", "")


@pytest.mark.parametrize("workers", [0, -1, 1.5])
def test_a_number_of_workers_that_makes_no_sense_is_refused(workers: int, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="--workers"):
        qualcheck.score(SHIPPED, env="babyai", out=tmp_path / "run", workers=workers)
