"""Real rollouts of the experts: they succeed, score, and say the truth of themselves."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import qualcheck
from qualcheck.collecting import Collected
from qualcheck.errors import DataError, MissingExtra, UnknownName, UsageError
from qualcheck.io import open_source
from qualcheck.registry import load
from qualcheck.table import Run

Collect = Callable[..., Collected]


def collected(env: str, level: str, n: int, out: Path, **options: Any) -> Collected:
    try:
        return qualcheck.collect(env, level, n, out, **options)
    except MissingExtra as error:
        pytest.skip(str(error))


CASES = [
    *(("babyai", level, 6, {"noise": 0.3}) for level in ("real", "rephrase", "easy", "hard")),
    ("babyai", "hard", 5, {"random_share": 1.0, "horizon": 20}),
    ("halfcheetah", "real", 3, {}),
    ("halfcheetah", "hard", 3, {"storage": "float32", "random_share": 0.5}),
    ("clevr", "rephrase", 4, {"storage": "float32"}),
    ("clevr", "easy", 8, {"noise": 0.3}),
    ("libero", "real", 2, {"task": "place-cream_cheese"}),
    ("metaworld", "hard", 2, {"task": "make-coffee"}),
    ("metaworld", "real", 3, {"task": "reach", "noise": 0.4, "random_share": 0.3}),
]


@pytest.mark.parametrize(("env", "level", "n", "options"), CASES)
def test_collected_rollouts_are_right_end_right_and_know_whether_they_succeed(
    env: str, level: str, n: int, options: dict[str, Any], tmp_path: Path
) -> None:
    done = collected(env, level, n, tmp_path / "real.parquet", **options)
    source = open_source(done.out, load(env).layouts())
    rollouts = next(source.batches(1_000_000, extras=True))
    told = np.array(rollouts.extra_rollout["success"])
    assert rollouts.n_rollouts == len(told) == done.n_rollouts
    assert sum(task.won for task in done.tasks) == told.sum()
    last = rollouts.offsets[1:] - 1
    assert rollouts.terminal is not None
    assert rollouts.truncated is not None
    assert np.array_equal(rollouts.terminal[last], told)
    assert np.array_equal(rollouts.truncated[last], ~told)
    assert rollouts.terminal.sum() == told.sum()
    assert rollouts.truncated.sum() == (~told).sum()
    if not options.get("random_share") and env != "libero":
        horizon = 1 if (env, level) == ("clevr", "easy") else options.get("horizon", load(env).spec.horizon)
        assert (rollouts.length[~told] == horizon).all()
    run = qualcheck.score(done.out, env, tmp_path / "run", recheck=0 if env == "libero" else 50)
    results, table = run.manifest["results"], Run.open(run.path)
    verified, passed = results["counts"]["verified"], results["counts"]["passed"]
    imagined = pq.read_table(table.path / "rollouts.parquet", columns=["gc_imagined"])["gc_imagined"].to_numpy()
    assert np.array_equal(imagined == 1, told)
    for metric in ("transition_correctness", "dynamics_legality"):
        assert verified[metric] == rollouts.n_transitions
        assert passed[metric] >= (1.0 if env == "babyai" else 0.99) * verified[metric]
    assert not [name for name in results["findings"] if "timeout_as_terminal" in name or "terminal_without" in name]


def test_experts_succeed(tmp_path: Path) -> None:
    for env, level in (("babyai", "real"), ("babyai", "easy"), ("babyai", "hard"), ("halfcheetah", "hard")):
        done = collected(env, level, 20, tmp_path / f"{env}_{level}.parquet")
        assert {task.task for task in done.tasks} == set(load(env).tasks()[level])
        assert all(task.rate >= 0.8 for task in done.tasks), done.tasks
    dead = next(
        task for task in collected("babyai", "easy", 5, tmp_path / "5.parquet").tasks if task.task == "open_pick"
    )
    assert (dead.won, dead.won_released) == (5, 0)


@pytest.mark.parametrize(
    ("env", "level"), [("babyai", "real"), ("halfcheetah", "easy"), ("clevr", "easy"), ("metaworld", "easy")]
)
def test_two_runs_with_one_seed_are_equal_bytes_and_another_seed_is_not(env: str, level: str, tmp_path: Path) -> None:
    files = [tmp_path / f"{name}.parquet" for name in "abc"]
    for path, seed in zip(files, (5, 5, 6), strict=True):
        collected(env, level, 2, path, seed=seed, noise=0.2, random_share=0.5)
    assert files[0].read_bytes() == files[1].read_bytes()
    assert files[0].read_bytes() != files[2].read_bytes()


def test_a_task_alone_has_the_rollouts_that_it_has_among_the_others(tmp_path: Path) -> None:
    whole, part = tmp_path / "whole.parquet", tmp_path / "part.parquet"
    collected("babyai", "real", 3, whole)
    collected("babyai", "real", 3, part, task="pickup")
    tables = [pq.read_table(path, columns=["task", "obs", "action"]).to_pylist() for path in (whole, part)]
    assert [row for row in tables[0] if row["task"] == "pickup"] == tables[1]


def test_scenes_from_start_files_are_told_from_own_ones(shared_data: Path, tmp_path: Path) -> None:
    folder, task = shared_data / "real", "pick-alphabet_soup"
    own = collected("libero", "real", 1, tmp_path / "own.parquet", task=task)
    given = collected("libero", "real", 2, tmp_path / "given.parquet", task=task, inits=folder)
    assert own.starts == {"own placement": 1}
    assert given.starts == {"imaginebench_libero_pick_alphabet_soup_inits.npz": 2}
    assert [rate.rate for rate in (*own.tasks, *given.tasks)] == [1, 1]
    told = pq.read_table(given.out, columns=["x_start_from"])["x_start_from"].unique().to_pylist()
    assert all(name.startswith("imaginebench_libero_pick_alphabet_soup_inits.npz row ") for name in told)


def test_what_cannot_be_collected_is_refused_and_nothing_is_left(tmp_path: Path) -> None:
    out = tmp_path / "out.parquet"

    def refused(kind: type[Exception], words: str, *arguments: Any, **options: Any) -> None:
        with pytest.raises(kind, match=words):
            qualcheck.collect(*arguments, out, **options)

    refused(UnknownName, "level of babyai", "babyai", "medium", 2)
    refused(UnknownName, "no environment", "babyia", "real", 2)
    refused(UnknownName, "task of babyai at level real", "babyai", "real", 2, task="go_wall")
    refused(UsageError, "-n 0", "babyai", "real", 0)
    refused(UsageError, "--random-share 2", "babyai", "real", 2, random_share=2)
    refused(UsageError, "--seed -1", "babyai", "real", 2, seed=-1)
    refused(UsageError, "--noise -1", "babyai", "real", 2, noise=-1)
    refused(UsageError, "--noise 1.5: with discrete actions the share", "babyai", "real", 2, noise=1.5)
    refused(UsageError, "--storage int8: rows of halfcheetah", "halfcheetah", "real", 2, storage="int8")
    refused(UsageError, "--storage float64: rows of clevr", "clevr", "real", 2, storage="float64")
    refused(UsageError, "--horizon 0", "babyai", "real", 2, horizon=0)
    refused(UsageError, "--inits: the experts of babyai", "babyai", "real", 2, inits=tmp_path)
    refused(UsageError, "toy has no scripted experts", "toy", "real", 2)
    assert list(tmp_path.iterdir()) == []
    out.write_text("mine")
    refused(UsageError, "exists already", "babyai", "real", 2)
    assert out.read_text() == "mine"


@pytest.mark.parametrize("harm", ["nan", "zeros", "moved"])
def test_starts_that_no_simulator_takes_on_are_refused(harm: str, shared_data: Path, tmp_path: Path) -> None:
    pytest.importorskip("robosuite")
    name = "imaginebench_libero_pick_alphabet_soup_inits.npz"
    rows = np.load(shared_data / "real" / name)["observations"].copy()
    rows[7:9] = {"nan": np.nan, "zeros": 0.0, "moved": rows[7:9] + 1}[harm]
    np.savez(tmp_path / name, observations=rows)
    with pytest.raises(
        DataError, match=r"inits\.npz: 2 of 1000 rows are no states that the simulator takes on; row 7: "
    ):
        qualcheck.collect("libero", "real", 1, tmp_path / "o.parquet", inits=tmp_path, task="pick-alphabet_soup")
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_the_released_starts_are_all_taken(shared_data: Path) -> None:
    from qualcheck.envs.libero.starts import read_inits

    for way in ("pick", "place", "safe"):
        for thing in ("alphabet_soup", "cream_cheese", "salad_dressing"):
            assert len(read_inits(shared_data / "real", f"{way}-{thing}")[1]) == 1000


def test_the_command_prints_rates_and_ends_with_2_on_wrong_usage(tmp_path: Path) -> None:
    def run(*words: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "qualcheck", "collect", "babyai", "-o", str(tmp_path / "out.parquet"), *words]
        return subprocess.run(command, capture_output=True, text=True)

    done = run("--level", "easy", "-n", "3", "--task", "open_pick")
    assert done.returncode == 0, done.stderr
    assert "open_pick  100.0 %  of 3  [29.2, 100.0]; by the benchmark's own test 0.0 %" in done.stdout
    again = run("--level", "easy", "-n", "3")
    assert again.returncode == 2
    assert "exists already" in again.stderr
    assert run("--level", "medium", "-n", "3").returncode == 2


def test_a_folder_without_start_files_is_refused(tmp_path: Path) -> None:
    with pytest.raises((DataError, MissingExtra)):
        qualcheck.collect("libero", "real", 1, tmp_path / "out.parquet", inits=tmp_path, task="pick-cream_cheese")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
@pytest.mark.parametrize("level", ["real", "rephrase", "easy", "hard"])
@pytest.mark.parametrize("env", ["babyai", "halfcheetah", "clevr", "libero", "metaworld"])
def test_a_hundred_rollouts_of_each_task_reach_it_four_times_in_five(env: str, level: str, tmp_path: Path) -> None:
    done = collected(env, level, 100, tmp_path / "real.parquet")
    low = {task.task: task.rate for task in done.tasks if task.rate < 0.8}
    assert set(low) <= {"push_still", "door-unlock", "locked-door-open", "soccer", "order"}, low
    assert all(task.reason for task in done.tasks if task.rate < 0.8)


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT])
def test_a_stopped_collect_leaves_nothing(how: signal.Signals, tmp_path: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "qualcheck", "collect", "metaworld", "--level", "hard", "-n", "9000", "-o", "o.parquet"],
        cwd=tmp_path,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    end = time.monotonic() + 60
    while not list(tmp_path.glob(".o.parquet.partial*")) and time.monotonic() < end:
        time.sleep(0.05)
    time.sleep(1)
    process.send_signal(how)
    said = process.communicate(timeout=120)[1]
    assert process.returncode == {signal.SIGTERM: 143, signal.SIGINT: 130}[how]
    assert "Traceback" not in said
    assert not list(tmp_path.iterdir())


def test_rewards_that_no_row_tells_are_empty_cells_and_no_fault(tmp_path: Path) -> None:
    qualcheck.collect("metaworld", "real", 2, tmp_path / "m.parquet", task="reach")
    rewards = pq.read_table(tmp_path / "m.parquet", columns=["reward"])["reward"]
    assert 0 < rewards.null_count < len(rewards)
    assert rewards.drop_null().to_pylist() == [10.0, 10.0]
    run = qualcheck.score(tmp_path / "m.parquet", env="metaworld", out=tmp_path / "run", strict=True)
    assert "non_finite" not in run.manifest["results"]["flags"]
    kept = qualcheck.filter(run.path, tmp_path / "kept.parquet", min_correctness=0.5)
    assert kept is not None
    again = pq.read_table(tmp_path / "kept.parquet", columns=["reward"])["reward"]
    assert again.to_pylist() == rewards.to_pylist()


def test_a_reward_of_the_user_that_is_no_number_stays_a_fault(tmp_path: Path) -> None:
    qualcheck.collect("halfcheetah", "real", 1, tmp_path / "h.parquet", task="move-forward")
    table = pq.read_table(tmp_path / "h.parquet")
    rewards = table["reward"].to_numpy().copy()
    rewards[3] = np.nan
    at = table.schema.get_field_index("reward")
    bad = table.set_column(at, table.schema.field(at), pa.array(rewards))
    pq.write_table(bad, tmp_path / "bad.parquet")
    flags = []
    for name in ("bad", "again"):
        run = qualcheck.score(tmp_path / f"{name}.parquet", env="halfcheetah", out=tmp_path / name)
        flags.append(run.manifest["results"]["flags"].get("non_finite"))
        if name == "bad":
            qualcheck.convert(tmp_path / "bad.parquet", tmp_path / "again.parquet", env="halfcheetah")
    assert flags == [1, 1]
