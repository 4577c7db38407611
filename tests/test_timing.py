"""Where the time of a run goes is counted once, whoever spends it, and changes no result."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

import qualcheck
from qualcheck.timing import CHECK, PHASES, RESTORE, SIMULATE, phase, running, started

SHIPPED = Path(qualcheck.__file__).parent / "data/babyai_imagined.parquet"


def test_a_nested_phase_counts_for_itself_alone_and_threads_add_up() -> None:
    def work() -> None:
        with phase(RESTORE):
            time.sleep(0.02)
            with phase(SIMULATE, threads=2):
                time.sleep(0.03)

    with started() as clock:
        threads = [threading.Thread(target=work) for _ in range(3)]
        [thread.start() for thread in threads]
        [thread.join() for thread in threads]
        with phase(CHECK):
            pass
        found = clock.take()
        assert clock.take() == {}
    assert list(found) == ["restore", "simulate", "check"]
    assert 0.06 <= found["restore"] < 0.06 + 0.05
    assert 0.18 <= found["simulate"] < 0.18 + 0.1
    assert found["check"] < 0.01
    assert not running()


def test_a_phase_that_ends_in_an_error_is_counted_and_left() -> None:
    with started() as clock:
        with pytest.raises(KeyError), phase(CHECK), phase(SIMULATE):
            raise KeyError
        with phase(RESTORE):
            pass
        assert list(clock.take()) == ["restore", "simulate", "check"]


@pytest.mark.parametrize("workers", [1, 2])
def test_a_profiled_run_tells_its_phases_and_has_the_same_bytes(
    workers: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    qualcheck.collect("halfcheetah", "hard", 6, "h.parquet", random_share=0.3)
    plain = qualcheck.score("h.parquet", env="halfcheetah", out="plain")
    assert "profile" not in plain.manifest["run"]
    begin = time.perf_counter()
    run = qualcheck.score("h.parquet", env="halfcheetah", out="run", profile=True, workers=workers)
    wall = time.perf_counter() - begin
    seconds = run.manifest["run"]["profile"]
    assert set(seconds) == set(PHASES)
    assert seconds["simulate"] > max(seconds["restore"], seconds["read"], seconds["write"]) > 0
    assert sum(seconds.values()) < 4 * wall + 1
    for name in ("transitions.parquet", "rollouts.parquet"):
        assert (run.path / name).read_bytes() == (plain.path / name).read_bytes()
    assert run.manifest["results"] == plain.manifest["results"]
    assert not running()
