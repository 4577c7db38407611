"""Recorded rollouts of the benchmark's own classes: everything must be right, and found to be right."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

FILES = ("real", "rephrase", "easy", "hard")
TRANSITIONS = {"real": 19_995, "rephrase": 7_437, "easy": 11_749, "hard": 15_299}


@pytest.fixture(params=FILES)
def golden(request: pytest.FixtureRequest, scored: Any) -> tuple[str, Any, dict[str, Any]]:
    run, content = scored(f"golden/babyai_{request.param}.npy")
    return request.param, run, content


def test_every_recorded_transition_has_a_row_and_is_correct_and_legal(golden: Any) -> None:
    name, run, content = golden
    t, masks = run.t, content["masks"][..., 0]
    assert len(t["tc"]) == masks.sum() == TRANSITIONS[name]
    assert np.array_equal(np.bincount(t["rollout"], minlength=len(masks)), masks.sum(1))
    assert (t["tc"] == 1).all()
    assert (t["tc_strict"] == 1).all()
    assert (t["tc_error"] == 0).all()
    assert (t["dl"] == 1).all()
    assert set(t["tc_code"]) == set(t["dl_rule"]) == {""}


def test_rows_are_numbered_in_source_order(golden: Any) -> None:
    _, run, content = golden
    length = content["masks"][..., 0].sum(1).astype(int)
    assert np.array_equal(run.t["step"], np.concatenate([np.arange(n) for n in length]))
    assert np.array_equal(run.r["rollout"], np.arange(len(length)))
    assert np.array_equal(run.r["source_rollout"], np.arange(len(length)))
    assert np.array_equal(run.r["length"], length)


def test_the_released_goal_and_the_trivial_goal_equal_the_recorded_success(golden: Any) -> None:
    _, run, content = golden
    assert np.array_equal(run.r["gc_imagined_released"], content["success"][:, 1])
    assert np.array_equal(run.r["gc_replayed_released"], content["success"][:, 1])
    assert np.array_equal(run.r["trivial_released"], content["success"][:, 0])
    assert np.array_equal(run.r["trivial"], content["success"][:, 0])


def test_intended_goals_differ_from_released_ones_only_where_the_benchmark_cannot_succeed(golden: Any) -> None:
    _, run, content = golden
    differ = run.r["gc_imagined"] != run.r["gc_imagined_released"]
    texts = {content["instructions"][i][0] for i in np.flatnonzero(differ)}
    assert texts <= {"open the door, then pick up any object"}
    after = content["next_observations"]
    held = ((after[..., 12] == 0) & (after[..., 15] > 0) & (content["masks"][..., 0] == 1)).any(1)
    pick = np.array([text[0] == "open the door, then pick up any object" for text in content["instructions"]])
    assert np.array_equal(run.r["gc_imagined"][pick], held[pick])


def test_recorded_rewards_are_recomputed(golden: Any) -> None:
    _, run, _ = golden
    assert np.nanmax(np.abs(run.t["reward_error"])) <= 1e-5
    assert not np.isnan(run.t["reward_error"]).any()


def test_row_0_is_a_possible_reset_everywhere(golden: Any) -> None:
    _, run, _ = golden
    assert (run.r["dl_row0"] == 1).all()
    assert (run.r["first_fault_step"] == -1).all()
    assert (run.r["first_divergence_step"] == -1).all()
    assert (run.r["correctness"] == 1).all()
    assert (run.r["legality"] == 1).all()
    assert (run.r["coverage_tc"] == 1).all()
    assert (run.r["coverage_dl"] == 1).all()


def test_every_text_is_placed_in_its_task(golden: Any) -> None:
    _, run, _ = golden
    assert not (run.r["task"] == "").any()
    assert set(run.r["gc_code"]) == {""}


def test_only_honest_flags_stand_on_recorded_rollouts(golden: Any) -> None:
    _, run, content = golden
    named = {flag for flags in run.r["flags"] for flag in flags}
    forbidden = {"mask_hole", "non_finite", "chain_break", "count_mismatch", "final_row_simulated", "reward_shift"}
    assert not named & (forbidden | {"timeout_as_terminal"})
    seen: dict[bytes, int] = {}
    for i in range(len(content["masks"])):
        parts = [content[key][i].tobytes() for key in ("observations", "next_observations", "actions")]
        key = b"".join(parts) + content["instructions"][i][0].encode()
        seen[key] = seen.get(key, 0) + 1
    twins = sum(count for count in seen.values() if count > 1)
    marked = sum("duplicate" in flags for flags in run.r["flags"])
    assert twins - sum(count > 1 for count in seen.values()) <= marked <= twins


def test_the_referee_stepped_a_sample_in_the_simulator_and_agreed(golden: Any) -> None:
    _, run, _ = golden
    referee = run.manifest["results"]["referee"]
    assert referee["checked"] >= 1_000
    assert referee["agreed"] == referee["checked"]


def test_the_second_model_of_these_tests_agrees_with_the_recordings(scored: Any, world: Any) -> None:
    for name in FILES:
        _, content = scored(f"golden/babyai_{name}.npy")
        for i, t in np.argwhere(content["masks"][..., 0] == 1)[::7]:
            row = content["observations"][i, t].astype(int)
            assert np.array_equal(world.step(row, int(content["actions"][i, t])), content["next_observations"][i, t])


@pytest.mark.parametrize("name", FILES)
def test_released_goals_stay_when_next_observations_are_taken_away(
    name: str, scored: Any, qualcheck: Any, bench: Any, tmp_path: Path
) -> None:
    before, content = scored(f"golden/babyai_{name}.npy")
    bare = {key: value for key, value in content.items() if key not in ("next_observations", "success")}
    run = qualcheck.score(tmp_path / "run", bench.npy(tmp_path / f"babyai_{name}.npy", bare))
    assert np.array_equal(run.r["gc_imagined_released"], content["success"][:, 1])
    assert np.array_equal(run.r["gc_replayed_released"], content["success"][:, 1])
    assert np.array_equal(run.r["gc_imagined"], before.r["gc_imagined"])
    assert np.array_equal(run.r["trivial"], before.r["trivial"])
    assert all("final_row_simulated" in flags for flags in run.r["flags"])
    assert (run.r["correctness"][run.r["coverage_tc"] > 0] == 1).all()
    length = content["masks"][..., 0].sum(1).astype(int)
    verified = ~np.isnan(run.t["tc"])
    assert np.array_equal(np.bincount(run.t["rollout"][verified], minlength=len(length)), length - 1)
    assert (run.t["tc"][verified] == 1).all()
    known = ~np.isnan(run.t["dl"])
    assert (run.t["step"][known] < length[run.t["rollout"][known]] - 1).all()


@pytest.mark.parametrize("protocol", range(2, pickle.HIGHEST_PROTOCOL + 1))
def test_every_pickle_protocol_of_numpy_is_read(
    protocol: int, scored: Any, qualcheck: Any, bench: Any, tmp_path: Path
) -> None:
    before, content = scored("golden/babyai_rephrase.npy")
    few = {key: value[:30] for key, value in content.items()}
    run = qualcheck.score(tmp_path / "run", bench.npy(tmp_path / "few.npy", few, protocol))
    n = len(run.t["tc"])
    assert n == few["masks"].sum()
    assert np.array_equal(run.t["tc"], before.t["tc"][:n])
    assert np.array_equal(run.r["gc_imagined"], before.r["gc_imagined"][:30])
