"""CLEVR-Robot: planted faults are found at their step, honest steps after them are not charged, filters keep both."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

BALLS = ("red", "blue", "green", "purple", "cyan")
MEASURED = ("tc", "tc_strict", "tc_error", "dl", "reward_error")
ONE_ROW = ("teleport_object", "frozen_object", "off_table", "penetration", "swap_objects")
CODED = ("seeding", "tc_code", "dl_rule")


@pytest.fixture(scope="module")
def score(qualcheck: Any, shared_data: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Any]:
    """Score a shared file or another one, once; its tables."""
    folder = tmp_path_factory.mktemp("clevr")

    @cache
    def get(name: str | Path, *options: object) -> Any:
        out = folder / str(len(list(folder.iterdir())))
        # the last --env counts
        return qualcheck.score(out, shared_data / name, options=("--env", "clevr", "--recheck", 100, *options))

    return get


@pytest.fixture(scope="module")
def content(shared_data: Path) -> Callable[[str], dict[str, Any]]:
    return cache(lambda name: np.load(shared_data / name, allow_pickle=True).item())


def errors(run: Any) -> np.ndarray:
    """Error of every ball at every transition, (M, 5) m."""
    return np.stack([run.t[f"err_{ball}"] for ball in BALLS], axis=1)


def wrong(run: Any, column: str) -> np.ndarray:
    """Transitions charged under one grade or by a rule, (M,)."""
    return (run.t[column] == 0) | (run.t["dl"] == 0)


@pytest.fixture(scope="module")
def mutated(score: Any, content: Any) -> tuple[Any, dict[str, Any]]:
    name = "mutated/clevr_mutated.npy"
    return score(name), content(name)


@pytest.mark.parametrize("column", ["tc", "tc_strict"])
def test_planted_faults_are_found_at_the_first_bad_transition(column: str, mutated: Any) -> None:
    run, recorded = mutated
    fault = np.array(recorded["fault"])
    planted = np.flatnonzero((fault != "none") & (fault != "truncated_goal"))
    assert len(planted) == 28
    shape = recorded["masks"].shape[:2]
    tc, dl = run.grid(column, shape), run.grid("dl", shape)
    at = recorded["first_bad_transition"][planted]
    found = (tc[planted, at] == 0) | (dl[planted, at] == 0)
    assert found.mean() >= 0.95, [(fault[i], int(i), int(s)) for i, s in zip(planted[~found], at[~found], strict=True)]


def before_fault(run: Any, recorded: dict[str, Any]) -> np.ndarray:
    """Transitions before a fault, and all of rollouts that have none, (M,)."""
    fault = np.array(recorded["fault"])
    begin = np.where(np.isin(fault, ("none", "truncated_goal")), 1000, recorded["first_bad_transition"])
    return run.t["step"] < begin[run.t["rollout"]]


def test_nothing_is_charged_before_a_fault_or_without_one(mutated: Any) -> None:
    run, recorded = mutated
    honest = before_fault(run, recorded)
    assert honest.sum() > 1000
    assert (run.t["tc"][honest] == 1).all()
    assert (run.t["dl"][honest] == 1).all()


def test_three_in_a_thousand_honest_transitions_are_charged_at_the_noise_floor(mutated: Any) -> None:
    run, recorded = mutated
    honest = before_fault(run, recorded)
    assert (run.t["tc_strict"][honest] == 0).mean() <= 0.003
    assert np.isnan(run.t["tc_strict"][honest]).mean() <= 0.005


def after_fault(run: Any, recorded: dict[str, Any]) -> np.ndarray:
    """Honest transitions of rollouts with one false row or one false action, after the false part, (M,)."""
    fault, step = np.array(recorded["fault"]), recorded["fault_step"]
    begin = np.where(np.isin(fault, (*ONE_ROW, "wrong_action")), step + 1, 1000)
    return run.t["step"] >= begin[run.t["rollout"]]


def test_honest_transitions_after_a_false_row_are_not_charged_at_the_noise_floor(mutated: Any) -> None:
    run, recorded = mutated
    later = after_fault(run, recorded)
    assert later.sum() > 300
    charged = wrong(run, "tc_strict")[later]
    assert charged.sum() <= 1, [
        (recorded["fault"][i], int(i), int(s))
        for i, s in zip(run.t["rollout"][later][charged], run.t["step"][later][charged], strict=True)
    ]


def test_few_honest_transitions_after_a_false_row_are_charged_at_the_judging_grade(mutated: Any) -> None:
    run, recorded = mutated
    later = after_fault(run, recorded)
    charged = wrong(run, "tc")[later]
    assert charged.mean() <= 0.02
    assert not np.isnan(run.t["tc"][later]).any()


def test_a_row_that_no_simulator_can_take_on_is_charged_once(mutated: Any) -> None:
    run, recorded = mutated
    shape = recorded["masks"].shape[:2]
    tc, dl = run.grid("tc", shape), run.grid("dl", shape)
    code = run.grid("tc_code", shape, "")
    at = recorded["fault_step"]
    where = np.flatnonzero([c[s - 1] in ("outside_walls", "overlap") for c, s in zip(code, at, strict=True)])
    off_table = np.flatnonzero(np.array(recorded["fault"]) == "off_table")
    assert set(off_table) < set(where)
    assert (tc[where, at[where] - 1] == 0).all()
    assert (dl[where, at[where] - 1] == 0).all()
    assert np.isnan(tc[where, at[where]]).all()
    assert (tc[where, at[where] + 1] == 1).all()


def test_a_cut_tail_is_a_missing_goal(mutated: Any) -> None:
    run, recorded = mutated
    short = np.flatnonzero(np.array(recorded["fault"]) == "truncated_goal")
    assert len(short) == 3
    assert (run.r["gc_imagined_released"][short] == 0).all()
    assert (run.r["gc_imagined"][short] == 0).all()
    assert all("terminal_without_goal" in run.flags(int(i)) for i in short)
    assert (run.r["correctness"][short] == 1).all()


# filter, report and inspect


def test_segments_keep_the_verdicts_of_their_source(mutated: Any, qualcheck: Any, score: Any, tmp_path: Path) -> None:
    run, recorded = mutated
    options = ("--mode", "segments", "--min-correctness", 1, "--min-legality", 1)
    kept = tmp_path / "kept.parquet"
    done = qualcheck("filter", run.path, *options, "--json", "-o", kept)
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    again = score(kept)
    assert len(again.t["tc"]) == said["transitions"]["kept"] < len(run.t["tc"])
    assert len(again.r["rollout"]) == said["pieces"] > len(recorded["masks"])
    assert "cut" in set(again.r["start"])
    first = np.concatenate([[0], np.cumsum(run.r["length"])])
    here = again.t["rollout"]
    row = first[again.r["source_rollout"][here]] + again.r["source_step"][here] + again.t["step"]
    assert len(set(row.tolist())) == len(row)
    for name in (*MEASURED, *(f"err_{ball}" for ball in BALLS)):
        assert np.array_equal(again.t[name], run.t[name][row], equal_nan=True), name
    for name in CODED:
        assert np.array_equal(again.t[name], run.t[name][row]), name
    assert (again.t["tc"] == 1).all()
    assert np.array_equal(again.r["task"], run.r["task"][again.r["source_rollout"]])
    twice = qualcheck("filter", again.path, *options, "--json", "-o", tmp_path / "twice.parquet")
    assert json.loads(twice.stdout)["transitions"]["dropped"] == {}


def test_thresholds_keep_the_rollouts_that_reach_them(mutated: Any, qualcheck: Any, score: Any, tmp_path: Path) -> None:
    run, recorded = mutated
    kept = tmp_path / "kept.parquet"
    options = ("--min-consistency", 1, "--min-consistency-replayed", 1, "--min-correctness", 1)
    done = qualcheck("filter", run.path, *options, "-o", kept)
    assert done.returncode == 0, done.stderr
    want = (run.r["consistency"] == 1) & (run.r["consistency_replayed"] == 1) & (run.r["correctness"] == 1)
    again = score(kept)
    assert np.array_equal(again.r["source_rollout"], np.flatnonzero(want))
    faulty = set(np.flatnonzero(np.isin(recorded["fault"], (*ONE_ROW, "wrong_action", "shift_by_one"))))
    assert not faulty & set(again.r["source_rollout"].tolist())


def test_a_filtered_file_in_the_layout_of_its_input_scores_the_same(
    mutated: Any, qualcheck: Any, score: Any, tmp_path: Path
) -> None:
    run, _ = mutated
    kept = tmp_path / "kept.npy"
    done = qualcheck("filter", run.path, "--min-correctness", 1, "--like-input", "-o", kept)
    assert done.returncode == 0, done.stderr
    again = score(kept)
    rows = np.isin(run.t["rollout"], np.flatnonzero(run.r["correctness"] == 1))
    assert np.array_equal(again.t["tc_error"], run.t["tc_error"][rows], equal_nan=True)


def test_every_command_prints_a_report_and_a_step_with_the_candidate_that_counted(mutated: Any, qualcheck: Any) -> None:
    run, recorded = mutated
    text = qualcheck("report", run.path)
    assert text.returncode == 0, text.stderr
    assert "Goal matrix" in text.stdout
    planted = np.isin(recorded["fault"], ONE_ROW)[run.t["rollout"]]
    other = np.flatnonzero(planted & (run.t["seeding"] != "carried") & (run.t["seeding"] != ""))
    assert len(other)
    for row in (0, int(other[0])):
        place = f"{run.t['rollout'][row]}:{run.t['step'][row]}"
        done = qualcheck("inspect", run.path, place, "--json")
        assert done.returncode == 0, done.stderr
        seen = json.loads(done.stdout)
        (step,) = seen["steps"]
        assert step["seeding"] == run.t["seeding"][row]
        assert [column["name"] for column in seen["columns"]][:2] == ["red_x_m", "red_y_m"]
        off = np.abs([column["difference"] for column in seen["columns"]]).reshape(5, 2).max(axis=1)
        assert off == pytest.approx(errors(run)[row], rel=1e-4, abs=1e-9)
