"""CLEVR-Robot files of other people: another simulator family, late terminals, unequal pairs, text alone."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

LEVELS = ("real", "rephrase", "easy", "hard")
KEYS = ("observations", "next_observations", "actions", "rewards", "masks", "terminals")
ROBOT, PROMPT = "real/kalm_clevr_robot.npy", "real/kalm_clevr_rephrase_prompt.npy"


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


def family_lines(run: Any) -> list[str]:
    return [line for line in run.manifest["results"]["findings"] if "mujoco-" in line]


def test_the_older_simulator_is_recognised_with_evidence_and_reproduces_its_rollouts(score: Any) -> None:
    run = score(ROBOT)
    assert run.manifest["results"]["family"] == "mujoco-2"
    (line,) = [line for line in family_lines(run) if ROBOT in line or Path(ROBOT).name in line]
    assert "mujoco-2" in line
    assert any(letter.isdigit() for letter in line.split("mujoco-2", 1)[1])
    assert (run.t["tc"] == 1).mean() >= 0.97
    assert (run.t["tc_strict"] == 1).mean() >= 0.97
    assert (run.t["dl"] == 1).all()
    errors = np.stack([run.t[name] for name in run.t if name.startswith("err_")])
    assert np.nanmax(errors) <= 1e-5


def test_all_80_goals_of_the_older_file_are_reached(score: Any) -> None:
    run = score(ROBOT)
    assert len(run.r["rollout"]) == 80
    for column in ("gc_imagined", "gc_replayed", "gc_imagined_released", "gc_replayed_released"):
        assert (run.r[column] == 1).all(), column
    assert np.nanmax(np.abs(run.t["reward_error"])) <= 1e-4
    assert not np.isnan(run.t["reward_error"]).any()


def test_the_wrong_family_gives_far_lower_correctness(score: Any, content: Any, bench: Any, tmp_path: Path) -> None:
    right, recorded = score(ROBOT), content(ROBOT)
    short = np.flatnonzero(recorded["masks"].sum(axis=1) <= 8)
    few = {key: recorded[key][short] for key in (*KEYS, "instructions", "goals")}
    forced = score(bench.npy(tmp_path / "a.npy", few), "--family", "mujoco-3")
    same = np.isin(right.t["rollout"], short)
    assert forced.manifest["results"]["family"] == "mujoco-3"
    assert len(forced.t["tc"]) == same.sum() > 150
    assert (forced.t["tc_strict"] == 1).mean() <= (right.t["tc_strict"][same] == 1).mean() - 0.5
    assert (forced.t["tc"] == 1).mean() <= (right.t["tc"][same] == 1).mean() - 0.1
    assert (forced.t["tc_strict"][forced.t["step"] == 0] == 0).mean() >= 0.5


def test_recordings_of_the_pinned_simulator_fail_in_the_older_one(score: Any) -> None:
    forced = score("golden/clevr_easy.npy", "--family", "mujoco-2")
    assert (forced.t["tc_strict"] == 1).mean() <= 0.6
    (line,) = family_lines(forced)
    assert "mujoco-2, as --family says; its rows look like mujoco-3" in line


def test_files_of_two_families_are_not_scored_together(qualcheck: Any, shared_data: Path, tmp_path: Path) -> None:
    paths = shared_data / "golden/clevr_rephrase.npy", shared_data / ROBOT
    done = qualcheck("score", *paths, "--env", "clevr", "-o", tmp_path / "run")
    assert done.returncode == 2
    assert "mujoco-2" in done.stderr
    assert "mujoco-3" in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "run" / "manifest.json").exists()


def test_an_unknown_family_is_refused_with_those_that_exist(qualcheck: Any, shared_data: Path, tmp_path: Path) -> None:
    path = shared_data / "golden/clevr_easy.npy"
    done = qualcheck("score", path, "--env", "clevr", "--family", "bullet", "-o", tmp_path / "run")
    assert done.returncode == 2
    assert "mujoco-3" in done.stderr


def test_the_prompt_file_is_flagged_for_short_rewards_and_late_terminals(score: Any, content: Any) -> None:
    run, recorded = score(PROMPT), content(PROMPT)
    flags = [set(names) for names in run.r["flags"]]
    late = np.array(["terminal_late" in names for names in flags])
    short = np.array(["reward_count" in names for names in flags])
    assert (short.sum(), late.sum()) == (18, 62)
    assert np.array_equal(late, [bool(success.any()) for success in recorded["success"]])
    given, played = map(recorded.get, ("rewards", "action_masks"))
    assert short.tolist() == [len(r) < mask.sum() for r, mask in zip(given, played, strict=True)]
    assert (run.r["task"] != "").all()


def test_the_rows_of_the_prompt_file_are_imagined_and_no_family_is_named_for_them(score: Any, content: Any) -> None:
    run, recorded = score(PROMPT), content(PROMPT)
    shown = zip(recorded["observations"], recorded["observation_masks"], strict=True)
    balls = np.concatenate([rows[mask] for rows, mask in shown])
    beyond = (np.abs(balls[:, ::2]) > 0.5).any(axis=1) | (balls[:, 1::2] > 0.6).any(axis=1)
    assert beyond.mean() > 0.1  # no simulator can have made them
    assert any("its rows do not tell" in line for line in family_lines(run))
    assert np.nanmean(run.t["tc"]) < 0.1
    reached = run.r["gc_imagined_released"] == 1
    assert reached.sum() > 20
    assert all(recorded["success"][i].any() for i in np.flatnonzero(reached))


def test_a_pair_with_unequal_counts_is_scored_and_the_rest_flagged(score: Any, shared_data: Path) -> None:
    run = score("formats/ball_real.hdf5")
    assert len(run.r["rollout"]) == 4
    extra = np.array(["count_mismatch" in flags for flags in run.r["flags"]])
    assert extra.tolist() == [False, False, False, True]
    assert not (run.t["tc"] == 0).any()
    assert (run.t["tc"] == 1).mean() >= 0.9
    assert (run.r["task"][:3] != "").all()
    assert not np.isnan(run.r["gc_imagined"][:3]).any()


def last_steps(recorded: dict[str, Any], steps: int) -> dict[str, Any]:
    """The last steps of every rollout, without goals and names of tasks."""
    valid = recorded["masks"].reshape(len(recorded["masks"]), -1).sum(axis=1).astype(int)
    kept = {"instructions": recorded["instructions"]}
    for key in KEYS:
        pieces = zip(recorded[key], np.maximum(valid - steps, 0), strict=True)
        kept[key] = np.stack([np.roll(whole, -first, axis=0)[:steps] for whole, first in pieces])
    return kept


@pytest.mark.parametrize("level", LEVELS)
def test_the_text_alone_gives_the_recorded_labels(
    level: str, score: Any, content: Any, bench: Any, tmp_path: Path
) -> None:
    recorded = content(f"golden/clevr_{level}.npy")
    # an easy episode is its first action; the pieces of the others start in the middle
    steps, start = (1, "auto") if level == "easy" else (3, "any")
    run = score(bench.npy(tmp_path / "a.npy", last_steps(recorded, steps)), "--start", start)
    names = {"ORDER": "order", "SORT": "gather", "TAU_2": "tau_2", "TAU_3": "tau_3"}
    assert list(run.r["task"]) == [names.get(name, name) for name in recorded["task_str"]]
    assert np.array_equal(run.r["gc_imagined_released"], recorded["success"])


def test_the_text_alone_places_all_80_rollouts_of_the_older_file(
    score: Any, content: Any, bench: Any, tmp_path: Path
) -> None:
    by_goal, recorded = score(ROBOT), content(ROBOT)
    by_text = score(bench.npy(tmp_path / "a.npy", last_steps(recorded, 2)), "--start", "any", "--family", "mujoco-2")
    for column in ("task", "task_released"):
        assert np.array_equal(by_text.r[column], by_goal.r[column]), column
    assert (by_text.r["gc_imagined"] == 1).sum() == 80
    assert (by_text.r["gc_imagined_released"] == 1).sum() == 80
