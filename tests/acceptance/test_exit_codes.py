"""Exit codes, and what is printed where nothing could be measured."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

FORMATS = ("table", "md", "csv", "tex", "json")


@pytest.fixture(scope="module")
def mixed(qualcheck: Any, bench: Any, episode: Any, tour: Any, tmp_path_factory: Any) -> Path:
    """Ten rollouts, five of them with one wrong step."""
    episodes = []
    for i, text in enumerate(("go", "walk", "navigate", "proceed", "travel") * 2):
        one = episode(tour, instruction=f"{text} to the blue ball")
        if i < 5:
            one.rows[4, 13] = 6
        episodes.append(one)
    folder = tmp_path_factory.mktemp("mixed")
    path: Path = qualcheck.score(folder / "run", bench.npy(folder / "a.npy", bench.arrays(episodes))).path
    return path


def _one_line(done: Any) -> None:
    assert done.stderr.count("\n") == 1, done.stderr
    assert "Traceback" not in done.stderr
    assert "fault of qualcheck" not in done.stderr


@pytest.mark.parametrize("kind", ["holes", "empty masks"])
def test_nothing_verified_is_exit_3(
    kind: str, qualcheck: Any, bench: Any, episode: Any, tour: Any, tmp_path: Path
) -> None:
    hole = np.ones(10)
    hole[3] = 0
    episodes = [episode(tour), episode(tour, instruction="walk to the blue ball")]
    for one in episodes:
        if kind == "holes":
            one.mask = hole
        else:
            one.mask = np.zeros(10)
    path = bench.npy(tmp_path / "a.npy", bench.arrays(episodes))
    done = qualcheck("score", path, "--env", "babyai", "-o", tmp_path / "run")
    assert done.returncode == 3
    _one_line(done)


@pytest.mark.parametrize(
    "arguments",
    [
        ("score",),
        ("score", "a.npy", "-o", "run"),
        ("score", "a.npy", "--env", "babyai"),
        ("score", "a.npy", "--env", "babyai", "-o", "run", "--colour", "red"),
        ("score", "a.npy", "--env", "babyia", "-o", "run"),
        ("score", "a.npy", "--env", "babyai", "-o", "run", "--grade", "nearly"),
        ("score", "a.npy", "--env", "babyai", "-o", "run", "--start", "sometimes"),
        ("score", "a.npy", "--env", "babyai", "-o", "run", "--seed", "x"),
        ("report", "{run}", "--format", "docx"),
        ("report", "{run}", "--by", "colour"),
        ("report", "{run}", "--fail-under", "transition_correctness"),
        ("report", "{run}", "--fail-under", "beauty=1"),
        ("report", "{run}", "--fail-under", "transition_correctness=high"),
        ("filter", "{run}", "--mode", "some", "-o", "kept.parquet"),
        ("filter", "{run}", "--min-correctness", "many", "-o", "kept.parquet"),
        ("filter", "{run}", "--min-correctness", "1"),
        ("inspect", "{run}", "first"),
        ("inspect", "{run}", "999"),
        ("inspect", "{run}", "0:999"),
        ("frobnicate",),
    ],
)
def test_a_usage_error_is_exit_2_and_writes_nothing(
    arguments: tuple[str, ...], mixed: Path, qualcheck: Any, bench: Any, episode: Any, tour: Any, tmp_path: Path
) -> None:
    bench.npy(tmp_path / "a.npy", bench.arrays([episode(tour)]))
    done = qualcheck(*(part.format(run=mixed) for part in arguments), cwd=tmp_path)
    assert done.returncode == 2, done.stderr + done.stdout
    assert "Traceback" not in done.stderr
    assert done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["a.npy"]


def test_an_unknown_environment_is_answered_with_the_nearest_name(qualcheck: Any, tmp_path: Path) -> None:
    done = qualcheck("score", "a.npy", "--env", "babyia", "-o", tmp_path / "run", cwd=tmp_path)
    assert "babyai" in done.stderr


def test_a_folder_that_is_no_run_is_exit_1(qualcheck: Any, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken/manifest.json").write_text("{", encoding="utf-8")
    for name in ("empty", "broken", "absent"):
        for command in (("report",), ("filter", "-o", str(tmp_path / "kept.parquet")), ("inspect",)):
            rest = ("0",) if command[0] == "inspect" else ()
            done = qualcheck(command[0], tmp_path / name, *rest, *command[1:])
            assert done.returncode == 1, (name, command)
            _one_line(done)


@pytest.mark.parametrize(
    ("bar", "code"),
    [
        ("transition_correctness=0.9", 0),
        ("transition_correctness=0.95", 4),
        ("dynamics_legality=0.99", 4),
        ("goal_consistency=1", 0),
    ],
)
def test_fail_under_is_exit_4_and_still_prints(bar: str, code: int, mixed: Path, qualcheck: Any) -> None:
    done = qualcheck("report", mixed, "--fail-under", bar)
    assert done.returncode == code, done.stderr
    assert "babyai" in done.stdout
    if code:
        _one_line(done)
        assert bar.split("=")[0].replace("_", " ") in done.stderr.replace("_", " ")


def test_a_metric_that_could_not_be_measured_does_not_pass_a_bar(
    qualcheck: Any, bench: Any, episode: Any, tour: Any, tmp_path: Path
) -> None:
    path = bench.npy(tmp_path / "a.npy", bench.arrays([episode(tour, instruction="")]))
    run = qualcheck.score(tmp_path / "run", path).path
    done = qualcheck("report", run, "--fail-under", "goal_consistency=0.1")
    assert done.returncode == 4


@pytest.mark.parametrize("kind", FORMATS)
def test_what_is_missing_is_never_printed_as_a_number(
    kind: str, qualcheck: Any, bench: Any, episode: Any, tour: Any, tmp_path: Path
) -> None:
    content = bench.arrays([episode(tour), episode(tour[:4])])
    del content["instructions"], content["rewards"]
    run = qualcheck.score(tmp_path / "run", bench.npy(tmp_path / "a.npy", content))
    done = qualcheck("report", run.path, "--format", kind)
    assert done.returncode == 0, done.stderr
    words = done.stdout.replace(",", " ").replace("|", " ").replace("&", " ").replace(":", " ").split()
    assert not {"nan", "NaN", "inf", "-inf", "Infinity", "None"} & {word.strip("()[]{}.%;") for word in words}
    assert "nan" not in run.done.stdout.lower().split()
    text = (run.path / "manifest.json").read_text(encoding="utf-8")
    assert "NaN" not in text
    look = qualcheck("inspect", run.path, "0:1", "--json")
    assert look.returncode == 0, look.stderr
    assert "NaN" not in look.stdout


def test_a_rate_of_all_or_none_has_an_interval_that_is_not_a_point(mixed: Path, qualcheck: Any) -> None:
    cell = qualcheck.report(mixed)["cells"][0]
    rates = {key: value for key, value in cell.items() if isinstance(value, dict) and "low" in value}
    assert rates["goal_consistency"]["value"] == 1
    for key, value in rates.items():
        assert value["low"] < value["high"], key
        assert value["low"] <= value["value"] <= value["high"], key
        assert value["low_all"] <= value["low"], key
        assert value["high"] <= value["high_all"], key
        assert key == "fabrication_excess" or 0 <= value["low_all"] <= value["high_all"] <= 1, key


def test_an_existing_output_is_not_overwritten(
    mixed: Path, qualcheck: Any, bench: Any, episode: Any, tour: Any, tmp_path: Path
) -> None:
    path = bench.npy(tmp_path / "a.npy", bench.arrays([episode(tour)]))
    (tmp_path / "precious").mkdir()
    (tmp_path / "precious/thesis.txt").write_text("mine", encoding="utf-8")
    done = qualcheck("score", path, "--env", "babyai", "-o", tmp_path / "precious")
    assert done.returncode == 2
    _one_line(done)
    assert [file.name for file in (tmp_path / "precious").iterdir()] == ["thesis.txt"]


def test_runs_of_two_levels_are_two_cells_and_tasks_can_be_told_apart(
    qualcheck: Any, bench: Any, episode: Any, tour: Any, world: Any, tmp_path: Path
) -> None:
    near = world.ROW0.copy()
    near[13:15] = 3, 6
    episodes = [episode(tour), episode((5,), near, instruction="open the red door")]
    easy = bench.npy(tmp_path / "a.npy", bench.arrays(episodes))
    hard = bench.npy(tmp_path / "b.npy", bench.arrays([episode(tour[:5]), episode(tour[:4])]))
    one = qualcheck.score(tmp_path / "one", easy, options=["--level", "easy"]).path
    two = qualcheck.score(tmp_path / "two", hard, options=["--level", "hard"]).path
    cells = qualcheck.report(one, two)["cells"]
    assert [(cell["level"], cell["n_rollouts"]) for cell in cells] == [("easy", 2), ("hard", 2)]
    tasks = qualcheck.report(one, options=["--by", "task"])["cells"]
    assert len(tasks) == 2
    assert {cell["n_rollouts"] for cell in tasks} == {1}
    assert all(cell["task"] for cell in tasks)
