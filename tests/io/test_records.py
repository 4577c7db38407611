"""Files without padding: lists of rollouts, and all steps in a row."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from qualcheck.errors import DataError
from qualcheck.io import open_source

LENGTH = (3, 1, 4)


def rollouts(**drop: Any) -> list[dict[str, Any]]:
    """Rollouts as cs285 saves them; `drop` replaces or, by None, removes keys."""
    made = []
    for i, n in enumerate(LENGTH):
        rows = (100 * i + np.arange((n + 1) * 3)).reshape(n + 1, 3).astype(np.float64)
        base = {
            "observation": rows[:-1],
            "next_observation": rows[1:],
            "action": np.arange(n),
            "reward": np.full(n, i, np.float64),
            "terminal": np.arange(n) == n - 1,
            "image_obs": np.ones((n, 2), np.uint8),
            "name": f"r{i}",
        }
        made.append(
            {k: v for k, v in {**base, **{k: v and v(i, n, rows) for k, v in drop.items()}}.items() if v is not None}
        )
    return made


def source(folder: Path, content: Any, grid: Any, **options: Any) -> Any:
    (folder / "a.pkl").write_bytes(pickle.dumps(content))
    return open_source(folder / "a.pkl", grid, **options)


def flat() -> dict[str, Any]:
    """The same steps in a row, as D4RL saves them."""
    made = rollouts()
    keys = {"observation": "observations", "next_observation": "next_observations", "action": "actions"}
    keys |= {"reward": "rewards", "terminal": "terminals", "image_obs": "infos"}
    return {new: np.concatenate([one[old] for one in made]) for old, new in keys.items()}


def test_a_list_of_rollouts_is_read_in_its_order(tmp_path: Path, grid: Any) -> None:
    opened = source(tmp_path, rollouts(), grid)
    assert (opened.format, opened.n_rollouts, opened.n_transitions, opened.longest) == ("records", 3, 8, 4)
    assert opened.last_action == "none"
    (r,) = opened.batches(extras=True)
    assert r.length.tolist() == list(LENGTH)
    assert r.has_final.all()
    np.testing.assert_array_equal(r.start_obs, np.concatenate([one["observation"] for one in rollouts()]))
    np.testing.assert_array_equal(r.end_obs, np.concatenate([one["next_observation"] for one in rollouts()]))
    np.testing.assert_array_equal(r.reward, [0, 0, 0, 1, 2, 2, 2, 2])
    assert np.flatnonzero(r.terminal).tolist() == [2, 3, 7]
    assert not len(r.break_at)
    assert r.extra_step["image_obs"].shape == (8, 2)
    assert r.extra_rollout == {"name": ["r0", "r1", "r2"]}
    assert not any(flag.any() for flag in r.flags.values())
    assert [part.n_rollouts for part in opened.batches(3)] == [1, 1, 1]
    parts = list(opened.batches(4))
    np.testing.assert_array_equal(np.concatenate([part.obs for part in parts]), r.obs)


def test_other_names_lists_and_an_object_array_are_read_alike(tmp_path: Path, grid: Any) -> None:
    (plain,) = source(tmp_path, rollouts(), grid).batches()
    renamed = [
        {"obs": one["observation"].tolist(), "next_obs": one["next_observation"], "acts": one["action"][:, None]}
        for one in rollouts()
    ]
    np.save(tmp_path / "b.npy", np.array(renamed, object))
    listed = {key: [one[key] for one in rollouts()] for key in rollouts()[0]}
    np.save(tmp_path / "c.npy", np.array({**listed, "made_by": "hand"}, object))
    for name in ("b.npy", "c.npy"):
        (r,) = open_source(tmp_path / name, grid).batches()
        np.testing.assert_array_equal(r.obs, plain.obs)
        np.testing.assert_array_equal(r.action, plain.action)
    assert open_source(tmp_path / "c.npy", grid).metadata == {"made_by": "hand"}


def test_a_row_more_than_actions_is_the_final_row(tmp_path: Path, grid: Any) -> None:
    (plain,) = source(tmp_path, rollouts(), grid).batches()
    opened = source(tmp_path, rollouts(observation=lambda i, n, rows: rows, next_observation=None), grid)
    assert opened.last_action == "none"
    (r,) = opened.batches()
    np.testing.assert_array_equal(r.obs, plain.obs)
    np.testing.assert_array_equal(r.end_obs, plain.end_obs)


def test_without_next_rows_the_last_action_is_settled_once_per_file(tmp_path: Path, grid: Any) -> None:
    content = rollouts(next_observation=None)
    executed = source(tmp_path, content, grid)
    assert executed.last_action == "executed"
    (r,) = executed.batches()
    assert r.length.tolist() == list(LENGTH)
    assert not r.has_final.any()
    filler = source(tmp_path, content, grid, last_action="filler")
    (f,) = filler.batches(extras=True)
    assert f.length.tolist() == [2, 0, 3]
    np.testing.assert_array_equal(f.obs, r.obs)
    assert f.extra_rollout["filler_action"] == [2, 0, 3]
    assert f.extra_rollout["filler_reward"] == [0, 1, 2]
    many = [{**content[1], "reward": np.zeros(1)}] * 20
    assert source(tmp_path, many, grid).last_action == "filler"


def test_a_rollout_whose_arrays_differ_in_length_is_flagged_and_its_common_part_read(tmp_path: Path, grid: Any) -> None:
    content = rollouts()
    content[0]["action"] = content[0]["action"][:2]
    content[2]["reward"] = content[2]["reward"][:1]
    (r,) = source(tmp_path, content, grid).batches()
    assert r.length.tolist() == [2, 1, 4]
    assert np.flatnonzero(r.flags["count_mismatch"]).tolist() == [0, 2]
    np.testing.assert_array_equal(r.reward[3:], [2, np.nan, np.nan, np.nan])
    assert not r.flags["non_finite"].any()


def test_masks_of_a_rollout_hide_its_padding(tmp_path: Path, grid: Any) -> None:
    rows = np.arange(18.0).reshape(6, 3)
    masks = ([1, 1, 1, 0, 0], [1, 1, 1, 1, 1], [1, 0, 1, 0, 0])
    content = [
        {"observations": rows, "actions": np.arange(5), "rewards": np.ones(3), "action_masks": np.array(mask)}
        for mask in masks
    ]
    opened = source(tmp_path, content, grid)
    assert opened.last_action == "none"
    (r,) = opened.batches()
    assert r.length.tolist() == [3, 5, 1]
    np.testing.assert_array_equal(r.obs, np.concatenate([rows[:4], rows, rows[:2]]))
    assert r.flags["mask_hole"].tolist() == [False, False, True]
    assert r.flags["count_mismatch"].tolist() == [False, True, True]


def test_a_broken_chain_and_bad_numbers_are_flags_of_their_rollout(tmp_path: Path, grid: Any) -> None:
    content = rollouts()
    content[2]["next_observation"] = content[2]["next_observation"].copy()
    content[2]["next_observation"][1] = -5
    content[0]["observation"] = content[0]["observation"].copy()
    content[0]["observation"][0, 0] = np.nan
    content[1]["action"] = np.array([7])
    (r,) = source(tmp_path, content, grid).batches()
    assert r.flags["chain_break"].tolist() == [False, False, True]
    assert r.flags["non_finite"].tolist() == [True, False, False]
    assert r.flags["bad_action"].tolist() == [False, True, False]
    assert (r.end_obs[5] == -5).all()


@pytest.mark.parametrize(
    ("place", "key", "value", "message"),
    [
        (1, "observation", None, "rollout 1 has no 'observations'"),
        (0, "action", None, "rollout 0 has no 'actions'"),
        (1, "next_observation", None, "some rollouts have 'next_observation'"),
        (2, "observation", np.zeros((4, 5)), "rows of [3, 5] columns"),
        (2, "observation", "text", "rollout 2 has str as 'observation'"),
        (0, "observation", np.zeros(3), "expected (L, O)"),
        (0, "reward", np.zeros((3, 2)), "expected one number a step"),
        (0, "observation", [[1, 2, 3], [1]], "ragged"),
    ],
)
def test_broken_rollouts_are_an_error_that_names_them(
    tmp_path: Path, grid: Any, place: int, key: str, value: Any, message: str
) -> None:
    content = rollouts()
    content[place][key] = value
    with pytest.raises(DataError, match=r"a\.pkl: ") as caught:
        source(tmp_path, content, grid)
    assert message in str(caught.value)


# -- all steps in a row --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("end", ["terminals", "timeouts", "both", "next rows", "ids"])
def test_steps_in_a_row_are_split_where_an_episode_ends(tmp_path: Path, grid: Any, end: str) -> None:
    (plain,) = source(tmp_path, rollouts(), grid).batches()
    content = flat()
    ends = content.pop("terminals")
    if end in ("terminals", "timeouts"):
        content[end] = ends
    elif end == "both":
        content["terminals"], content["timeouts"] = ends & (np.arange(8) == 2), ends & (np.arange(8) != 2)
    elif end == "ids":
        order = np.array([4, 0, 3, 5, 1, 6, 2, 7])
        content = {key: value[order] for key, value in content.items()}
        content["rollout"] = np.array([30, 10, 20, 30, 10, 30, 10, 30])
    np.savez(tmp_path / "a.npz", **content)
    opened = open_source(tmp_path / "a.npz", grid)
    assert (opened.format, opened.n_rollouts) == ("flat", 3)
    assert "8 steps in a row, split into 3 rollouts" in opened.findings[0]
    (r,) = opened.batches(extras=True)
    if end == "ids":
        assert r.length.tolist() == [4, 3, 1]
        np.testing.assert_array_equal(r.obs[:5], plain.obs[6:])
    else:
        np.testing.assert_array_equal(r.obs, plain.obs)
        np.testing.assert_array_equal(r.action, plain.action)
        assert r.extra_step["infos"].shape == (8, 2)
    if end == "both":
        assert np.flatnonzero(r.terminal).tolist() == [2]
        assert np.flatnonzero(r.truncated).tolist() == [3, 7]


def test_an_episode_that_the_file_breaks_off_is_a_rollout_too(tmp_path: Path, grid: Any) -> None:
    content = {key: value[:6] for key, value in flat().items() if key != "next_observations"}
    opened = source(tmp_path, content, grid)
    (r,) = opened.batches()
    assert r.length.tolist() == [3, 1, 2]
    assert opened.last_action == "executed"


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("actions", None, "no 'actions'"),
        ("actions", np.zeros(7), "expected numbers, one a step, 8"),
        ("rewards", np.zeros((8, 2)), "expected (8,)"),
        ("next_observations", np.zeros((8, 2)), "'next_observations' has shape (8, 2)"),
        ("observations", np.zeros((8, 4)), "4 columns; expected 3 or 7 for grid"),
        ("actions", np.zeros((8, 2)), "'actions' has float64 of shape (8, 2)"),
    ],
)
def test_steps_that_do_not_fit_each_other_are_an_error(
    tmp_path: Path, grid: Any, key: str, value: Any, message: str
) -> None:
    with pytest.raises(DataError) as caught:
        source(tmp_path, {**flat(), key: value}, grid)
    assert message in str(caught.value)
