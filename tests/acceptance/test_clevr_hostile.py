"""CLEVR-Robot rows, actions and goals that cannot be: a code for that step or rollout, never a traceback."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

KEYS = ("observations", "next_observations", "actions", "rewards", "masks", "terminals")


@pytest.fixture(scope="module")
def rollouts(shared_data: Path) -> Callable[[], dict[str, Any]]:
    """Give the first ten steps of eight recorded rollouts, with actions as float64, as often as they are spoilt."""
    recorded = np.load(shared_data / "golden/clevr_real.npy", allow_pickle=True).item()
    which = np.flatnonzero(recorded["masks"].sum(axis=(1, 2)) >= 10)[:8]

    def get() -> dict[str, Any]:
        few = {key: recorded[key][which, :10].copy() for key in KEYS}
        few["goals"] = recorded["goals"][which].astype(np.float64)
        few["actions"] = few["actions"].astype(np.float64)
        few["instructions"] = [recorded["instructions"][i][:1] for i in which]
        return few

    return get


@pytest.fixture(scope="module")
def score(qualcheck: Any, bench: Any, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Any]:
    folder = tmp_path_factory.mktemp("hostile")

    def get(content: dict[str, Any], *options: object) -> Any:
        path = bench.npy(folder / f"{len(list(folder.iterdir()))}.npy", content)
        run = qualcheck.score(path.with_suffix(""), path, options=("--env", "clevr", "--recheck", 50, *options))
        assert "Traceback" not in run.done.stderr
        assert "fault of qualcheck" not in run.done.stderr + run.done.stdout
        return run

    return get


@pytest.fixture(scope="module")
def honest(rollouts: Callable[[], dict[str, Any]], score: Any) -> Any:
    return score(rollouts())


def test_an_action_that_does_not_exist_is_unverifiable_and_forgets_the_velocities(
    rollouts: Any, honest: Any, score: Any
) -> None:
    content = rollouts()
    content["actions"][:7, 4] = 40, -1, 2.5, np.nan, np.inf, 1e30, -0.5
    run = score(content)
    for i in range(7):
        code, tc = run.steps(i, "tc_code"), run.steps(i, "tc")
        assert code[4] == "bad_action"
        assert code[5] == "hidden_unknown"
        assert np.isnan(tc[4:6]).all()
        assert (tc[:4] == 1).all()
        assert not (run.steps(i, "tc_strict") == 0).any()
        assert "bad_action" in run.flags(i)
    for name in ("tc", "tc_strict", "tc_error", "dl"):
        assert np.array_equal(run.steps(7, name), honest.steps(7, name), equal_nan=True), name
    assert np.array_equal(run.r["gc_imagined"], honest.r["gc_imagined"])


def test_a_row_that_is_no_place_on_the_table_is_charged_once(rollouts: Any, score: Any) -> None:
    content = rollouts()
    values = np.nan, np.inf, -np.inf, 1e30
    for i, value in enumerate(values):
        content["observations"][i, 5, 3] = content["next_observations"][i, 4, 3] = value
    for key, step in (("observations", 5), ("next_observations", 4)):
        content[key][4, step, 2:4] = content[key][4, step, 0:2]
    run = score(content)
    for i, why in enumerate(("non_finite_row", "non_finite_row", "non_finite_row", "outside_walls", "overlap")):
        tc = run.steps(i, "tc")
        assert (tc[4], run.steps(i, "dl")[4], run.steps(i, "tc_code")[4]) == (0, 0, why)
        assert run.steps(i, "dl_rule")[4].startswith("row.")
        assert np.isnan(tc[5])
        assert (tc[:4] == 1).all()
        assert not (run.steps(i, "tc_strict")[6:] == 0).any()
        assert run.r["first_fault_step"][i] == 4
    assert (run.t["tc"][run.t["rollout"] > 4] == 1).all()


def test_rollouts_without_a_true_row_leave_the_others_alone(rollouts: Any, score: Any) -> None:
    content = rollouts()
    content["observations"][0, 0] = np.nan
    content["observations"][3] = content["next_observations"][3] = np.nan
    run = score(content)
    assert np.isnan(run.steps(0, "tc")[0])
    assert run.r["dl_row0"][0] != 1
    assert not (run.steps(3, "tc") == 1).any()
    assert not (run.steps(3, "dl") == 1).any()
    assert run.r["gc_imagined"][3] != 1
    assert (run.t["tc"][~np.isin(run.t["rollout"], (0, 3))] == 1).all()


def test_rollouts_of_one_row_and_of_none_have_no_verdict_on_a_step(rollouts: Any, score: Any) -> None:
    content = rollouts()
    del content["next_observations"]
    content["masks"][4, 1:] = 0
    content["masks"][5] = 0
    run = score(content, "--last-action", "executed")
    assert run.r["length"][4:6].tolist() == [1, 0]
    assert np.isnan(run.steps(4, "tc")).all()
    assert not run.r["coverage_tc"][4] > 0
    assert "final_row_simulated" in run.flags(4)
    assert run.r["gc_code"][5] == "empty"
    assert np.isnan(run.r["gc_imagined"][5])
    filler = score(content, "--last-action", "filler")
    assert filler.r["length"][4:6].tolist() == [0, 0]
    assert np.isnan(filler.r["gc_imagined"][4:6]).all()


BAD_GOALS = (
    [0, 0, 0, 0, 0, 0],
    [1, 1, 2, 0, 0, 0],  # two sources
    [2, 2, 1, 0, 0, 0],  # two destinations
    [1, 2, 0, 0, 0, 7],  # no such direction
    [-1, -2, 0, 0, 0, 0],
    [np.nan] * 6,
    [1, 2, 0, 0, 0, 0.5],
)


def test_a_goal_that_says_nothing_gives_way_to_the_text(rollouts: Any, honest: Any, score: Any) -> None:
    content = rollouts()
    content["goals"][:7] = BAD_GOALS
    run = score(content)
    assert np.array_equal(run.r["task"], honest.r["task"])
    assert np.array_equal(run.r["gc_imagined"], honest.r["gc_imagined"])
    del content["instructions"]
    silent = score(content)
    assert set(silent.r["task"][:7]) == {""}
    assert set(silent.r["gc_code"][:7]) <= {"no_instruction", "ambiguous_instruction"}
    assert np.isnan(silent.r["gc_imagined"][:7]).all()
    assert silent.r["task"][7] == honest.r["task"][7]
    assert silent.r["gc_imagined"][7] == honest.r["gc_imagined"][7]
    assert np.array_equal(silent.t["tc"], honest.t["tc"], equal_nan=True)


@pytest.mark.parametrize("width", [1, 5, 7, 17])
def test_goals_of_a_wrong_length_give_way_to_the_text(width: int, rollouts: Any, honest: Any, score: Any) -> None:
    run = score({**rollouts(), "goals": np.full((8, width), 3)})
    assert np.array_equal(run.r["task"], honest.r["task"])
    assert np.array_equal(run.r["gc_imagined"], honest.r["gc_imagined"])


def test_ragged_goals_and_a_missing_one_are_judged_each_for_itself(rollouts: Any, honest: Any, score: Any) -> None:
    content = rollouts()
    goals = list(content["goals"].astype(np.float32))
    goals[0], goals[1], goals[2] = goals[0][:0], np.tile(goals[1], (4, 1)), goals[2][:2]
    run = score({**content, "goals": goals})
    assert np.array_equal(run.r["task"], honest.r["task"])
    assert np.array_equal(run.r["gc_imagined"], honest.r["gc_imagined"])


@pytest.mark.parametrize("change", ["observations", "actions"])
def test_a_file_of_another_shape_is_refused_in_one_line(
    change: str, rollouts: Any, qualcheck: Any, bench: Any, tmp_path: Path
) -> None:
    content = rollouts()
    if change == "observations":
        for key in ("observations", "next_observations"):
            content[key] = np.concatenate([content[key], content[key][..., :1]], axis=-1)
    else:
        content["actions"] = np.zeros((*content["actions"].shape, 6))
    path = bench.npy(tmp_path / "a.npy", content)
    done = qualcheck("score", path, "--env", "clevr", "-o", tmp_path / "run")
    assert done.returncode == 1, done.stdout + done.stderr
    assert done.stderr.count("\n") == 1
    assert "fault of qualcheck" not in done.stderr
    assert not (tmp_path / "run").exists()
