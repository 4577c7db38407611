"""CLEVR-shaped files: goals beside the rows, states a step, pairs, and the defects that such files really have."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from qualcheck.converting import convert
from qualcheck.cut import cut
from qualcheck.errors import UsageError
from qualcheck.filters.pieces import Pieces
from qualcheck.io import open_source
from qualcheck.io.layouts import specs
from qualcheck.io.like_input import write_like_input
from qualcheck.types import Rollouts

GOLDEN = {  # file -> rollouts, transitions, numbers of a goal
    "golden/clevr_real.npy": (120, 2865, 6),
    "golden/clevr_rephrase.npy": (48, 1193, 6),
    "golden/clevr_easy.npy": (160, 160, 6),
    "golden/clevr_hard.npy": (60, 1706, 24),
    "mutated/clevr_mutated.npy": (40, 1677, 6),
}
ROBOT = "real/kalm_clevr_robot.npy"
PROMPT = "real/kalm_clevr_rephrase_prompt.npy"
PAIR = "formats/ball_real.hdf5"


def raw(path: Path) -> Any:
    return np.load(path, allow_pickle=True).item()


def whole(path: Path) -> Rollouts:
    (r,) = open_source(path, specs("clevr")).batches(1 << 22, extras=True)
    return r


def save(path: Path, content: Any) -> Path:
    np.save(path, np.array(content, object), allow_pickle=True)
    return path


def flagged(r: Rollouts) -> dict[str, list[int]]:
    return {name: np.flatnonzero(flag).tolist() for name, flag in r.flags.items() if flag.any()}


def padded(**changes: Any) -> dict[str, Any]:
    """Three rollouts of 2, 4 and 3 transitions in T = 4, with next_observations; None drops a key."""
    valid = np.array([2, 4, 3])
    mask = np.arange(4) < valid[:, None]
    rows = np.arange(3 * 5 * 10, dtype=np.float32).reshape(3, 5, 10) / 1000
    base: dict[str, Any] = {
        "observations": rows[:, :-1],
        "next_observations": rows[:, 1:],
        "actions": np.tile(np.array([3, 17, 39, 0]), (3, 1)),
        "rewards": np.ones((3, 4, 1)),
        "masks": mask,
        "terminals": np.arange(4) == valid[:, None] - 1,
        "goals": np.array([[1, 2, 0, 0, 0, 3], [0, 1, 2, 0, 0, 0], [0, 0, 0, 2, 1, 1]]),
    }
    return {name: value for name, value in {**base, **changes}.items() if value is not None}


def ragged(**changes: Any) -> dict[str, Any]:
    """Two rollouts of 2 and 3 actions, each with the row after the last; keys hold one entry a rollout."""
    base = {
        "observations": [np.zeros((3, 10), np.float32), np.ones((4, 10), np.float32)],
        "actions": [np.array([1, 2]), np.array([3, 4, 5])],
        "rewards": [np.ones((2, 1)), np.ones((3, 1))],
        "terminals": [np.array([0, 1]), np.array([0, 0, 1])],
        "goals": [np.array([1, 2, 0, 0, 0, 0], np.float32)] * 2,
    }
    return {**base, **changes}


@pytest.mark.parametrize("name", list(GOLDEN))
def test_recorded_files_are_read_whole(name: str, shared_data: Path) -> None:
    given = raw(shared_data / name)
    source = open_source(shared_data / name, specs("clevr"))
    assert (source.n_rollouts, source.n_transitions, given["goals"].shape[1]) == GOLDEN[name]
    assert (source.spec.id, source.spec.obs_size, source.last_action) == ("clevr", 10, "none")
    r = whole(shared_data / name)
    mask = given["masks"][..., 0] == 1
    np.testing.assert_array_equal(r.length, mask.sum(axis=1))
    assert r.has_final.all()
    np.testing.assert_array_equal(r.start_obs, given["observations"][mask])
    np.testing.assert_array_equal(r.end_obs, given["next_observations"][mask])
    np.testing.assert_array_equal(r.action, given["actions"][mask])
    assert r.action.dtype.kind == "i"
    np.testing.assert_array_equal(r.reward, given["rewards"][mask][:, 0].astype(np.float64))
    np.testing.assert_array_equal(r.terminal, given["terminals"][mask][:, 0])
    assert r.instruction == [texts[0] for texts in given["instructions"]]
    assert r.goal is not None
    assert {goal.dtype for goal in r.goal if goal is not None} == {np.dtype(np.int64)}
    np.testing.assert_array_equal(np.stack(r.goal), given["goals"])
    for key in {"states", "step_success"} & set(given):
        np.testing.assert_array_equal(r.extra_step[key], given[key][mask])
    for key in {"success", "task_str", "policy", "fault", "fault_step"} & set(given):
        assert list(r.extra_rollout[key]) == list(given[key])
    assert flagged(r) == {}
    assert r.defect == [""] * r.n_rollouts


def test_the_easy_file_shows_both_rows_of_its_one_step(shared_data: Path) -> None:
    r = whole(shared_data / "golden/clevr_easy.npy")
    assert r.length.tolist() == [1] * 160
    assert r.obs.shape == (320, 10)
    assert r.extra_step["states"].shape == (160, 69)
    assert r.terminal is not None
    assert r.terminal.all()


def test_goals_written_once_a_step_are_read_from_row_0(shared_data: Path) -> None:
    given = raw(shared_data / ROBOT)
    source = open_source(shared_data / ROBOT, specs("clevr"))
    assert (source.n_rollouts, source.n_transitions, source.longest, source.last_action) == (80, 898, 49, "none")
    told = ("num_trajectories", "observation_type", "observation_dim", "action_type", "action_dim")
    assert [source.metadata[key] for key in told] == [80, "continuous", 10, "discrete", 40]
    r = whole(shared_data / ROBOT)
    assert r.goal is not None
    assert r.goal[0] is not None
    assert r.goal[0].tolist() == [0.0, 0.0, 0.0, 1.0, 2.0, 0.0]
    assert {None if goal is None else goal.dtype for goal in r.goal} == {np.dtype(np.float64)}
    np.testing.assert_array_equal(np.stack(r.goal), given["goals"][:, 0])
    mask = given["masks"] == 1
    np.testing.assert_array_equal(r.extra_step["states"], given["states"][mask])
    np.testing.assert_array_equal(r.extra_step["goals"], given["goals"][mask])
    assert r.instruction == given["instructions"][:, 0].tolist()
    assert r.terminal is not None
    assert np.flatnonzero(r.terminal).tolist() == (r.offsets[1:] - 1).tolist()
    assert flagged(r) == {}


def test_a_goal_that_changes_within_a_rollout_is_flagged_and_one_that_changes_in_the_padding_is_not(
    shared_data: Path, tmp_path: Path
) -> None:
    given = raw(shared_data / ROBOT)
    length = (given["masks"] == 1).sum(axis=1)
    given["goals"][7, length[7] - 1, 5] += 1  # its last transition
    given["goals"][9, length[9], 5] += 1  # the first row of its padding
    r = whole(save(tmp_path / "a.npy", given))
    assert flagged(r) == {"goal_changes": [7]}
    assert r.goal is not None
    np.testing.assert_array_equal(np.stack(r.goal), given["goals"][:, 0])
    source = open_source(tmp_path / "a.npy", specs("clevr"))
    assert "1 rollouts flagged goal_changes" in source.findings


def test_both_defects_of_the_prompt_file_are_told_and_nothing_of_it_is_dropped(shared_data: Path) -> None:
    given = raw(shared_data / PROMPT)
    source = open_source(shared_data / PROMPT, specs("clevr"))
    assert (source.format, source.n_rollouts, source.n_transitions) == ("records", 80, 1517)
    assert {"18 rollouts flagged reward_count", "62 rollouts flagged terminal_late"} <= set(source.findings)
    r = whole(shared_data / PROMPT)
    shown = np.array([int(mask.sum()) for mask in given["action_masks"]])
    short = np.array([len(rewards) for rewards in given["rewards"]]) == shown - 1
    late = np.array([bool(flags[n : n + 1].any()) for flags, n in zip(given["terminals"], shown, strict=True)])
    assert (int(short.sum()), int(late.sum()), int((short & late).sum())) == (18, 62, 0)
    np.testing.assert_array_equal(r.flags["reward_count"], short)
    np.testing.assert_array_equal(r.flags["terminal_late"], late)
    assert set(flagged(r)) == {"reward_count", "terminal_late", "count_mismatch"}
    assert r.defect == [""] * 80
    np.testing.assert_array_equal(r.length, shown)
    np.testing.assert_array_equal(r.has_final, late)
    for i in range(80):
        rows = given["observations"][i][: shown[i] + late[i]]
        np.testing.assert_array_equal(r.obs[r.row_offsets[i] : r.row_offsets[i + 1]], rows)
        np.testing.assert_array_equal(r.action[r.offsets[i] : r.offsets[i + 1]], given["actions"][i][: shown[i]])
    assert r.reward is not None
    assert np.flatnonzero(np.isnan(r.reward)).tolist() == (r.offsets[1:][short] - 1).tolist()
    np.testing.assert_array_equal(r.reward[~np.isnan(r.reward)], np.concatenate(given["rewards"])[:, 0])
    assert source.metadata == {"number_of_objects": 5}
    for key in ("observation_masks", "action_masks", "success"):
        np.testing.assert_equal(r.extra_rollout[key], given[key])


def test_the_first_prompt_is_as_typed_by_hand(shared_data: Path) -> None:
    r = whole(shared_data / PROMPT)
    assert r.instruction[0] == (
        "I can't stand the red ball ahead of the blue one. Could you switch the positions of them?"
    )
    assert r.action[:11].tolist() == [12, 12, 12, 37, 37, 12, 12, 0, 12, 12, 12]
    assert r.reward is not None
    np.testing.assert_array_equal(r.reward[[0, 10]], [1.9765999913215637, 100.0])
    assert r.goal is not None
    np.testing.assert_array_equal(r.goal[0], np.array([1.0, 2, 0, 0, 0, 0]))
    row = [0.19579253, 0.43285352, 0.06438985, 0.25384727, -0.27546093, 0.5071812, 0.3869139, 0.5464186, 0.3643204]
    np.testing.assert_allclose(r.obs[11], [*row, 0.14730217], atol=2e-8)  # the row after the eleventh action


@pytest.mark.parametrize(
    ("rewards", "flags"),
    [
        ([2, 3], {}),
        ([3, 4], {}),  # a last entry for the episode as a whole
        ([2, 2], {"reward_count": [1], "count_mismatch": [1]}),
        ([0, 3], {"reward_count": [0], "count_mismatch": [0]}),
        ([2, 5], {"reward_count": [1], "count_mismatch": [1]}),
    ],
)
def test_another_number_of_rewards_than_of_actions_is_flagged(
    rewards: list[int], flags: dict[str, list[int]], tmp_path: Path
) -> None:
    r = whole(save(tmp_path / "a.npy", ragged(rewards=[np.ones((n, 1)) for n in rewards])))
    assert flagged(r) == flags
    assert r.defect == ["", ""]
    assert r.length.tolist() == [2, 3]


@pytest.mark.parametrize(
    ("terminals", "late"),
    [
        ([[0, 1], [0, 0, 1]], []),
        ([[0, 0, 1], [0, 0, 1, 0]], [0]),
        ([[0, 0, 1], [0, 0, 0, 1]], [0, 1]),
        ([[0, 1, 1], [0, 0, 0, 0]], []),  # on the action too; nowhere
        ([[1, 0, 1], [0, 0, 0]], []),
    ],
)
def test_a_terminal_flag_on_the_row_after_the_last_action_is_late(
    terminals: list[list[int]], late: list[int], tmp_path: Path
) -> None:
    r = whole(save(tmp_path / "a.npy", ragged(terminals=[np.array(flags, bool) for flags in terminals])))
    assert flagged(r) == ({"terminal_late": late} if late else {})
    assert r.terminal is not None
    wanted = [flags[:n] for flags, n in zip(terminals, (2, 3), strict=True)]
    np.testing.assert_array_equal(r.terminal, np.concatenate(wanted).astype(bool))


def test_late_terminals_of_padded_arrays_are_told_from_padding(tmp_path: Path) -> None:
    on_time = padded()["terminals"]
    late = on_time.copy()
    late[0] = [0, 0, 1, 0]
    beyond = np.arange(4) >= np.array([2, 4, 3])[:, None]
    assert flagged(whole(save(tmp_path / "a.npy", padded()))) == {}
    assert flagged(whole(save(tmp_path / "b.npy", padded(terminals=late)))) == {"terminal_late": [0]}
    twice = on_time | late
    assert flagged(whole(save(tmp_path / "e.npy", padded(terminals=twice)))) == {}
    padded_with_true = np.where(beyond, True, on_time & (np.arange(3) < 2)[:, None])  # rollout 2 timed out
    assert flagged(whole(save(tmp_path / "c.npy", padded(terminals=padded_with_true)))) == {}
    assert flagged(whole(save(tmp_path / "d.npy", padded(terminals=None)))) == {}


def as_list(goals: Any) -> Any:
    return list(goals)


def as_objects(goals: Any) -> Any:
    return np.fromiter(goals, object, len(goals))


@pytest.mark.parametrize("form", [as_list, as_objects])
def test_goals_of_different_sizes_stand_in_a_list(form: Callable[[Any], Any], tmp_path: Path) -> None:
    goals = [np.array([1, 2, 0, 0, 0, 3], np.int32), np.tile(np.arange(24, dtype=np.float32), (4, 1)), "none"]
    r = whole(save(tmp_path / "a.npy", padded(goals=form(goals))))
    assert r.goal is not None
    first, second, third = r.goal
    assert first is not None
    assert (first.dtype, first.tolist()) == (np.int64, [1, 2, 0, 0, 0, 3])
    assert second is not None
    assert (second.dtype, second.tolist()) == (np.float64, list(range(24)))
    assert third is None
    assert flagged(r) == {}
    assert len(r.extra_rollout["goals"]) == 3


@pytest.mark.parametrize("goals", [["go", "there", "now"], np.zeros(3), np.array(["a", "b", "c"]), 7, []])
def test_what_holds_no_numbers_is_no_goal(goals: Any, tmp_path: Path) -> None:
    r = whole(save(tmp_path / "a.npy", padded(goals=goals)))
    assert r.goal is None
    assert flagged(r) == {}


def test_goals_of_flat_arrays_are_those_of_each_rollouts_first_step(tmp_path: Path) -> None:
    goals = np.array([[1, 2], [1, 2], [3, 4], [3, 5], [6, 7]], np.float32)
    content = {
        "observations": np.zeros((5, 10), np.float32),
        "actions": np.arange(5),
        "terminals": np.array([0, 1, 0, 1, 1]),
        "goals": goals,
    }
    r = whole(save(tmp_path / "a.npy", content))
    assert r.goal is not None
    np.testing.assert_array_equal(np.stack(r.goal), [[1, 2], [3, 4], [6, 7]])
    assert flagged(r) == {"goal_changes": [1]}
    np.testing.assert_array_equal(r.extra_step["goals"], goals)


@pytest.mark.parametrize("name", ["golden/clevr_hard.npy", ROBOT])
def test_actions_stored_as_floats_are_the_same_integers(name: str, shared_data: Path, tmp_path: Path) -> None:
    given = raw(shared_data / name)
    plain = whole(shared_data / name)
    floats = given["actions"].astype(np.float32)[..., None]
    floats[np.broadcast_to(given["masks"].reshape(floats.shape) != 1, floats.shape)] = np.nan  # padding says nothing
    r = whole(save(tmp_path / "a.npy", {**given, "actions": floats}))
    assert (r.action.dtype, r.action.shape) == (np.int64, plain.action.shape)
    np.testing.assert_array_equal(r.action, plain.action)
    assert flagged(r) == {}


@pytest.mark.parametrize("value", [3.5, 40.0, -1.0, np.nan, np.inf])
def test_a_number_that_is_no_action_is_flagged_in_its_rollout_alone(value: float, tmp_path: Path) -> None:
    actions = padded()["actions"].astype(np.float64)
    actions[1, 2] = value
    r = whole(save(tmp_path / "a.npy", padded(actions=actions[..., None])))
    wanted = {"bad_action": [1]} if np.isfinite(value) else {"bad_action": [1], "non_finite": [1]}
    assert flagged(r) == wanted
    np.testing.assert_array_equal(r.action, np.concatenate([actions[0, :2], actions[1], actions[2, :3]]))
    assert r.defect == [""] * 3
    listed = [np.array([1, value]), np.array([3.0, 4, 5])]
    lists = whole(save(tmp_path / "b.npy", ragged(actions=listed)))
    assert flagged(lists).get("bad_action") == [0]
    np.testing.assert_array_equal(lists.action, np.concatenate(listed))


@pytest.mark.parametrize("name", [*GOLDEN, ROBOT, PAIR, PROMPT])
def test_goals_and_states_survive_conversion_there_and_back(name: str, shared_data: Path, tmp_path: Path) -> None:
    given = whole(shared_data / name)
    convert(shared_data / name, tmp_path / "a.parquet", "clevr")
    paths = [tmp_path / "a.parquet"]
    if name == PROMPT:
        with pytest.raises(UsageError, match="18 of 80 rollouts lack the row after their last action"):
            convert(paths[0], tmp_path / "b.npy", "clevr", to="npy")
    else:
        convert(paths[0], tmp_path / "b.npy", "clevr", to="npy")
        paths.append(tmp_path / "b.npy")
    if name not in (PROMPT, PAIR):
        convert(paths[0], tmp_path / "c.parquet", "clevr", to="benchmark_parquet")
        paths.append(tmp_path / "c.parquet")
        stored, back = raw(shared_data / name)["goals"], raw(tmp_path / "b.npy")["goals"]
        assert (back.dtype, back.shape) == (stored.dtype, stored.shape)
    assert given.goal is not None
    for path in paths:
        r = whole(path)
        assert r.goal is not None
        for left, right in zip(r.goal, given.goal, strict=True):
            assert (None if left is None else left.dtype) == (None if right is None else right.dtype)
            np.testing.assert_equal(left, right)
        for key, values in given.extra_step.items():
            np.testing.assert_array_equal(r.extra_step[key], values, err_msg=key)
        assert flagged(r) == flagged(given)
        assert r.instruction == given.instruction


def test_a_changing_goal_stays_flagged_through_conversion(tmp_path: Path) -> None:
    goals = np.repeat(padded()["goals"][:, None], 4, axis=1)
    goals[2, 1] = 0
    path = save(tmp_path / "a.npy", padded(goals=goals))
    convert(path, tmp_path / "b.parquet", "clevr")
    convert(tmp_path / "b.parquet", tmp_path / "c.npy", "clevr", to="npy")
    for each in (path, tmp_path / "b.parquet", tmp_path / "c.npy"):
        assert flagged(whole(each)) == {"goal_changes": [2]}


@pytest.mark.parametrize("name", ["golden/clevr_hard.npy", "golden/clevr_easy.npy", ROBOT])
def test_a_filtered_file_in_the_layout_of_its_input_keeps_each_goal_with_its_rollout(
    name: str, shared_data: Path, tmp_path: Path
) -> None:
    given = raw(shared_data / name)
    source = open_source(shared_data / name, specs("clevr"))
    length = np.concatenate([part.length for part in source.batches()])
    kept = np.array([3, 8, 21, 40])
    start = np.array([0, min(1, length[8] - 1), 0, 0])  # the second is a piece that begins at a cut
    write_like_input(source, Pieces(kept, start, length[kept]), tmp_path / "out.npy", {})
    back = raw(tmp_path / "out.npy")
    np.testing.assert_array_equal(back["goals"], given["goals"][kept])
    assert [list(texts) for texts in back["instructions"]] == [list(given["instructions"][i]) for i in kept]
    r = whole(tmp_path / "out.npy")
    assert r.goal is not None
    first = given["goals"][kept] if given["goals"].ndim == 2 else given["goals"][kept, 0]
    np.testing.assert_array_equal(np.stack(r.goal), first)
    states = [given["states"][i, s : length[i]] for i, s in zip(kept, start, strict=True)]
    np.testing.assert_array_equal(r.extra_step["states"], np.concatenate(states))


def test_pieces_keep_the_states_of_their_steps_and_the_goal_of_their_rollout(shared_data: Path) -> None:
    r = whole(shared_data / "golden/clevr_hard.npy")
    piece = cut(r, np.array([5, 2]), np.array([1, 0]), np.array([3, 2]))
    at = [r.offsets[5] + 1, r.offsets[5] + 2, r.offsets[2], r.offsets[2] + 1]
    np.testing.assert_array_equal(piece.extra_step["states"], r.extra_step["states"][at])
    assert r.goal is not None
    assert piece.goal is not None
    np.testing.assert_array_equal(np.stack(piece.goal), np.stack([r.goal[5], r.goal[2]]))


@pytest.mark.parametrize("name", ["formats/ball_real.hdf5", "formats/ball_real.npy"])
def test_a_pair_with_fewer_goals_than_rollouts_gives_the_common_part_its_goals(name: str, shared_data: Path) -> None:
    r = whole(shared_data / name)
    assert r.n_rollouts == 4
    assert r.goal is not None
    assert [None if goal is None else goal.dtype for goal in r.goal] == [np.dtype(np.int64)] * 3 + [None]
    assert flagged(r) == {"count_mismatch": [3]}
    assert r.action.dtype.kind == "i"
    assert not r.has_final.any()
