"""Hand-made rollouts with a defect of their recording: a flag for that rollout alone, the others are scored."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest


@pytest.fixture(scope="module")
def defects(qualcheck: Any, bench: Any, episode: Any, tour: Any, world: Any, tmp_path_factory: Any) -> Any:
    hole = np.ones(10)
    hole[5] = 0
    rows = world.play(world.ROW0, tour)
    broken = rows[1:].copy()
    broken[3] = world.step(rows[3], 0)  # the next observation is wrong, row 4 is right
    names = {
        "clean": episode(tour),
        "hole": episode(tour, instruction="walk to the blue ball", mask=hole),
        "action 7": episode(tour, instruction="move to the blue ball"),
        "action -1": episode(tour, instruction="approach the blue ball"),
        "empty": episode((), instruction="get to the blue ball"),
        "chain break": episode(tour, instruction="reach the blue ball", next_rows=broken),
        "twin": episode(tour, instruction="travel to the blue ball"),
        "twin again": episode(tour, instruction="travel to the blue ball"),
        "last": episode(tour[:5], instruction="proceed to the blue ball"),
    }
    names["action 7"].actions[3] = 7
    names["action -1"].actions[3] = -1
    folder = tmp_path_factory.mktemp("defects")
    content = bench.arrays(list(names.values()))
    return list(names), qualcheck.score(folder / "run", bench.npy(folder / "defects.npy", content)), content


@pytest.mark.parametrize("name", ["clean", "twin", "last"])
def test_rollouts_beside_defective_ones_are_scored(name: str, defects: Any) -> None:
    names, run, _ = defects
    i = names.index(name)
    assert (run.steps(i, "tc") == 1).all()
    assert (run.steps(i, "dl") == 1).all()
    assert run.r["length"][i] == (5 if name == "last" else 10)
    assert run.r["gc_imagined"][i] == (0 if name == "last" else 1)


def test_a_mask_hole_makes_its_rollout_unverifiable(defects: Any) -> None:
    names, run, _ = defects
    i = names.index("hole")
    assert "mask_hole" in run.flags(i)
    assert np.isnan(run.steps(i, "tc")).all()
    assert np.isnan(run.steps(i, "dl")).all()
    assert not (run.steps(i, "tc_code") == "").any()
    assert np.isnan(run.r["gc_imagined"][i])
    assert np.isnan(run.r["gc_replayed"][i])
    assert run.r["gc_code"][i] != ""
    assert np.isnan(run.r["correctness"][i])
    assert run.r["first_fault_step"][i] == -1


@pytest.mark.parametrize("name", ["action 7", "action -1"])
def test_an_action_outside_the_set_is_a_code_and_a_flag(name: str, defects: Any) -> None:
    names, run, _ = defects
    i = names.index(name)
    assert np.isnan(run.steps(i, "tc")[3])
    assert "action" in run.steps(i, "tc_code")[3]
    assert run.flags(i)
    assert np.isnan(run.r["gc_replayed"][i])
    assert run.r["gc_code"][i] != ""


def test_an_empty_mask_is_a_rollout_without_transitions(defects: Any) -> None:
    names, run, _ = defects
    i = names.index("empty")
    assert run.r["length"][i] == 0
    assert len(run.steps(i, "tc")) == 0
    assert np.isnan(run.r["correctness"][i])
    assert np.isnan(run.r["gc_imagined"][i])
    assert run.r["first_fault_step"][i] == -1


def test_a_broken_chain_is_flagged_and_the_next_observation_is_judged(defects: Any) -> None:
    names, run, _ = defects
    i = names.index("chain break")
    assert "chain_break" in run.flags(i)
    assert list(run.steps(i, "tc")) == [1, 1, 1, 0, 1, 1, 1, 1, 1, 1]
    others = [name for k, name in enumerate(names) if k != i and "chain_break" in run.flags(k)]
    assert not set(others) - {"hole"}


def test_a_mask_hole_alone_is_no_broken_chain(defects: Any) -> None:
    names, run, _ = defects
    assert "chain_break" not in run.flags(names.index("hole"))


def test_a_duplicate_is_flagged(defects: Any) -> None:
    names, run, _ = defects
    marked = {names[i] for i in range(len(names)) if "duplicate" in run.flags(i)}
    assert marked
    assert marked <= {"twin", "twin again"}


def test_strict_turns_a_defect_into_exit_1(defects: Any, qualcheck: Any, bench: Any, tmp_path: Path) -> None:
    _, _, content = defects
    path = bench.npy(tmp_path / "a.npy", content)
    done = qualcheck("score", path, "--env", "babyai", "--strict", "-o", tmp_path / "run")
    assert done.returncode == 1
    assert "Traceback" not in done.stderr


def test_strict_leaves_clean_data_at_exit_0(
    qualcheck: Any, bench: Any, episode: Any, tour: Any, tmp_path: Path
) -> None:
    path = bench.npy(tmp_path / "a.npy", bench.arrays([episode(tour), episode(tour[:3])]))
    qualcheck.score(tmp_path / "run", path, options=["--strict"])


def test_whole_numbers_stored_as_floats_are_actions_and_halves_are_not(
    qualcheck: Any, bench: Any, episode: Any, tour: Any, tmp_path: Path
) -> None:
    good = episode(np.array(tour, float))
    bad = episode(np.array(tour, float), instruction="walk to the blue ball")
    bad.actions[3] = 2.5
    lost = episode(np.array(tour, float), instruction="reach the blue ball")
    lost.actions[3] = np.nan
    run = qualcheck.score(tmp_path / "run", bench.npy(tmp_path / "a.npy", bench.arrays([good, bad, lost])))
    assert (run.steps(0, "tc") == 1).all()
    assert run.r["gc_replayed"][0] == 1
    for i in (1, 2):
        assert np.isnan(run.steps(i, "tc")[3])
        assert "action" in run.steps(i, "tc_code")[3] or "finite" in run.steps(i, "tc_code")[3]
        assert run.flags(i)
        assert np.isnan(run.r["gc_replayed"][i])


def test_fewer_instructions_than_rollouts_score_the_common_part_with_text(
    qualcheck: Any, bench: Any, episode: Any, tour: Any, tmp_path: Path
) -> None:
    content = bench.arrays([episode(tour), episode(tour[:4]), episode(tour[:6])])
    content["instructions"] = content["instructions"][:2]
    run = qualcheck.score(tmp_path / "run", bench.npy(tmp_path / "a.npy", content))
    assert len(run.r["rollout"]) == 3
    assert list(run.r["gc_imagined"][:2]) == [1, 0]
    assert np.isnan(run.r["gc_imagined"][2])
    assert run.r["gc_code"][2] == "no_instruction"
    assert "count_mismatch" in run.flags(2)
    assert (run.t["tc"] == 1).all()


def test_fewer_actions_than_rollouts_score_the_common_part(
    qualcheck: Any, bench: Any, episode: Any, tour: Any, tmp_path: Path
) -> None:
    content = bench.arrays([episode(tour), episode(tour[:4])])
    content["actions"] = content["actions"][:1]
    run = qualcheck.score(tmp_path / "run", bench.npy(tmp_path / "a.npy", content))
    assert (run.steps(0, "tc") == 1).all()
    assert len(run.steps(0, "tc")) == 10
    assert any("count_mismatch" in flags for flags in run.r["flags"]) or len(run.r["rollout"]) == 1
    assert not (run.t["tc"] == 0).any()


def test_a_time_out_marked_terminal_is_flagged_and_a_success_is_not(
    qualcheck: Any, bench: Any, episode: Any, tour: Any, tmp_path: Path
) -> None:
    wander = (0, 1) * 64
    episodes = [
        episode(wander, terminal=True),
        episode(wander, terminal=False, instruction="walk to the blue ball"),
        episode(tour, terminal=True),
    ]
    run = qualcheck.score(tmp_path / "run", bench.npy(tmp_path / "a.npy", bench.arrays(episodes)))
    assert ["timeout_as_terminal" in run.flags(i) for i in range(3)] == [True, False, False]


def test_rewards_one_step_late_are_flagged_and_right_ones_are_not(
    qualcheck: Any, bench: Any, episode: Any, tour: Any, world: Any, tmp_path: Path
) -> None:
    rewards = world.goto_reward(world.play(world.ROW0, tour))
    late = np.concatenate([[0], rewards[:-1]])
    noise = rewards + np.linspace(-1, 1, len(rewards)) ** 2 + 0.3
    episodes = [
        episode(tour, rewards=rewards),
        episode(tour, rewards=late, instruction="walk to the blue ball"),
        episode(tour, rewards=noise, instruction="reach the blue ball"),
    ]
    run = qualcheck.score(tmp_path / "run", bench.npy(tmp_path / "a.npy", bench.arrays(episodes)))
    assert ["reward_shift" in run.flags(i) for i in range(3)] == [False, True, False]
    assert np.abs(run.steps(0, "reward_error")).max() < 1e-5
    assert np.allclose(run.steps(2, "reward_error"), noise - rewards, atol=1e-5)
    assert (run.t["tc"] == 1).all()


def test_without_rewards_the_reward_error_is_not_a_number(
    qualcheck: Any, bench: Any, episode: Any, tour: Any, tmp_path: Path
) -> None:
    content = bench.arrays([episode(tour)])
    del content["rewards"]
    run = qualcheck.score(tmp_path / "run", bench.npy(tmp_path / "a.npy", content))
    assert np.isnan(run.t["reward_error"]).all()
    assert (run.t["tc"] == 1).all()
