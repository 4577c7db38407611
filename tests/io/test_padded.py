"""The benchmark's padded files as whole rollouts: layouts, flags, defects and the last row."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from qualcheck.errors import DataError, UsageError
from qualcheck.io import Source, open_source
from qualcheck.spec import ActionSpec, EnvSpec
from qualcheck.types import Rollouts

SPEC = EnvSpec(
    id="grid",
    version="1",
    blocks=(),
    obs_size=3,
    code_size=4,
    action=ActionSpec("discrete", 7),
    step_seconds=None,
    horizon=20,
    judging_grade="exact",
    restores="exact",
    codes=("",),
    columns=("a", "b", "c"),
)
VALID = np.array([5, 3, 1, 4])  # rows of each rollout in `keys`
N, T = 4, 5


def keys(**changes: Any) -> dict[str, Any]:
    """Four chained rollouts with next_observations; a value of None drops its key."""
    rows = np.arange(N * (T + 1) * 3, dtype=np.float32).reshape(N, T + 1, 3)
    mask = np.arange(T) < VALID[:, None]
    base: dict[str, Any] = {
        "observations": np.where(mask[..., None], rows[:, :-1], 0),
        "next_observations": np.where(mask[..., None], rows[:, 1:], 0),
        "actions": np.where(mask, np.arange(T) % 7, 0),
        "rewards": np.where(mask, 0.5, 0)[..., None].astype(np.float32),
        "masks": mask[..., None].astype(np.float32),
        "terminals": (np.arange(T) == VALID[:, None] - 1)[..., None],
        "instructions": [["first", "other"], ["second"], ["third"], ["fourth"]],
    }
    return {key: value for key, value in {**base, **changes}.items() if value is not None}


def saved(folder: Path, content: Any) -> Path:
    path = folder / "some_file"
    with path.open("wb") as stream:
        np.save(stream, np.array(content, dtype=object), allow_pickle=True)
    return path


@pytest.fixture
def load(tmp_path: Path) -> Callable[..., tuple[Source, Rollouts]]:
    """Save changed keys, open the file, and hand back the source with its rollouts as one batch."""

    def opened(last_action: str = "auto", **changes: Any) -> tuple[Source, Rollouts]:
        source = open_source(saved(tmp_path, keys(**changes)), SPEC, index=2, last_action=last_action)
        (batch,) = source.batches(extras=True)
        return source, batch

    return opened


def only(rollouts: Rollouts) -> dict[str, list[int]]:
    """Rollouts that carry each flag; flags that none carries are left out."""
    return {name: np.flatnonzero(flag).tolist() for name, flag in rollouts.flags.items() if flag.any()}


def many(count: int, **changes: Any) -> dict[str, Any]:
    """`count` rollouts of 3 valid rows without next_observations, all rewards 0."""
    base = {
        "observations": np.arange(count * T * 3, dtype=np.float32).reshape(count, T, 3),
        "actions": np.ones((count, T), np.int64),
        "rewards": np.zeros((count, T, 1)),
        "masks": np.tile(np.arange(T) < 3, (count, 1)),
    }
    return {**base, **changes}


# -- layouts -------------------------------------------------------------------------------------------------------


def test_padding_never_enters_and_rows_keep_their_order(load: Any) -> None:
    source, r = load()
    assert (source.format, source.n_rollouts, source.n_transitions) == ("npy", 4, 13)
    assert (source.last_action, source.longest) == ("none", 5)
    assert r.length.tolist() == VALID.tolist()
    assert r.has_final.all()
    rows = np.arange(N * (T + 1) * 3, dtype=np.float32).reshape(N, T + 1, 3)
    np.testing.assert_array_equal(r.obs, np.concatenate([rows[i, : n + 1] for i, n in enumerate(VALID)]))
    np.testing.assert_array_equal(r.action, np.concatenate([np.arange(n) for n in VALID]))
    np.testing.assert_array_equal(r.reward, np.full(13, 0.5))
    assert r.reward.dtype == np.float64
    assert np.flatnonzero(r.terminal).tolist() == [4, 7, 8, 12]
    assert r.instruction == ["first", "second", "third", "fourth"]
    assert r.source.tolist() == [2] * 4
    assert r.source_rollout.tolist() == [0, 1, 2, 3]
    assert only(r) == {}
    assert r.defect == [""] * 4


@pytest.mark.parametrize(
    "changes",
    [
        {"masks": keys()["masks"][:, :, 0]},
        {"masks": keys()["masks"].astype(bool)},
        {"masks": keys()["masks"].astype(np.int8)},
        {"masks": None, "action_masks": keys()["masks"][:, :, 0]},
        {"actions": keys()["actions"][..., None]},
        {"actions": keys()["actions"].astype(np.float32)},
        {"actions": keys()["actions"].astype(np.uint8)},
        {"rewards": keys()["rewards"][:, :, 0]},
        {"rewards": keys()["rewards"].astype(np.float16)},
        {"observations": keys()["observations"].astype(">f4")},
        {"observations": np.asfortranarray(keys()["observations"])},
        {"observations": np.repeat(keys()["observations"], 2, axis=0)[::2]},
        {"observations": keys()["observations"].astype(np.float64)},
        {"observations": keys()["observations"].astype(np.float16)},
        {"observations": keys()["observations"].astype(np.uint8)},
        {"next_observations": np.asfortranarray(keys()["next_observations"].astype(">f8"))},
        {"terminals": keys()["terminals"].astype(np.float32)},
    ],
    ids=lambda changes: "-".join(
        f"{k}:{v.dtype}:{'x'.join(map(str, v.shape))}" for k, v in changes.items() if v is not None
    ),
)
def test_every_spelling_of_an_array_gives_the_same_rollouts(load: Any, changes: dict[str, Any]) -> None:
    _, plain = load()
    _, r = load(**changes)
    for name in ("obs", "action", "reward", "terminal", "offsets", "has_final"):
        np.testing.assert_array_equal(getattr(r, name), getattr(plain, name), err_msg=name)
    assert r.obs.dtype == changes.get("observations", plain.obs).dtype.newbyteorder("=")
    assert only(r) == {}


def test_missing_masks_mean_that_every_row_counts(load: Any) -> None:
    source, r = load(masks=None, next_observations=None)
    assert source.n_transitions == N * T
    assert r.length.tolist() == [T] * N


def test_a_row_more_than_actions_is_the_final_row(load: Any) -> None:
    rows = np.arange(N * (T + 1) * 3, dtype=np.float32).reshape(N, T + 1, 3)
    _, plain = load()
    source, r = load(observations=rows, next_observations=None)
    assert source.last_action == "none"
    np.testing.assert_array_equal(r.obs, plain.obs)
    np.testing.assert_array_equal(r.action, plain.action)
    mask = np.arange(T + 1) <= VALID[:, None]
    _, r = load(observations=rows, next_observations=None, masks=mask)
    np.testing.assert_array_equal(r.obs, plain.obs)
    np.testing.assert_array_equal(r.action, plain.action)


def test_instruction_codes_are_split_off(load: Any) -> None:
    codes = np.arange(N * 4, dtype=np.float32).reshape(N, 4)
    wide = np.concatenate([keys()["observations"], np.repeat(codes[:, None], T, axis=1)], axis=2)
    _, plain = load()
    _, r = load(observations=wide)
    np.testing.assert_array_equal(r.obs, plain.obs)
    np.testing.assert_array_equal(r.code, codes)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (["a", "b", "c", "d"], ["a", "b", "c", "d"]),
        (np.array(["a", "b", "c", "d"]), ["a", "b", "c", "d"]),
        (np.array([["a", "z"], ["b", "z"], ["c", "z"], ["d", "z"]]), ["a", "b", "c", "d"]),
        (np.array([b"a", b"b", b"c", b"d"]), ["a", "b", "c", "d"]),
        ([["a"], [], None, [""]], ["a", None, None, None]),
        ([np.array(["a", "z"]), np.array([]), ("c",), np.str_("d")], ["a", None, "c", "d"]),
        (np.zeros((4, 0), "U1"), [None] * 4),
        (None, [None] * 4),
    ],
)
def test_element_0_of_the_instructions_is_the_one_used(load: Any, given: Any, expected: list[str | None]) -> None:
    _, r = load(instructions=given)
    assert r.instruction == expected
    assert all(type(text) in (str, type(None)) for text in r.instruction)


def test_unknown_keys_travel_with_their_steps_and_rollouts(load: Any) -> None:
    places = np.arange(N * T * 2).reshape(N, T, 2)
    source, r = load(
        temperature=np.array([0.1, 0.2, 0.3, 0.4]), place=places, name=["p", "q", "r", "s"], observation_dim=3
    )
    assert source.metadata == {"observation_dim": 3}
    assert r.extra_rollout["temperature"] == [0.1, 0.2, 0.3, 0.4]
    assert r.extra_rollout["name"] == ["p", "q", "r", "s"]
    assert r.extra_rollout["instructions"][0] == ["first", "other"]
    np.testing.assert_array_equal(r.extra_step["place"], np.concatenate([places[i, :n] for i, n in enumerate(VALID)]))
    (plain,) = source.batches()
    assert plain.extra_rollout == {}
    assert plain.extra_step == {}
    assert source.keys()["place"] is not None


def test_goal_arrays_travel(load: Any) -> None:
    _, r = load(goals=np.arange(8.0).reshape(4, 2))
    np.testing.assert_array_equal(r.goal, np.arange(8.0).reshape(4, 2))


@pytest.mark.parametrize("most", [1, 4, 5, 8, 100])
def test_batches_hold_whole_rollouts_and_together_all_of_them(load: Any, most: int) -> None:
    source, whole = load()
    parts = list(source.batches(most))
    assert all(part.n_transitions <= most or part.n_rollouts == 1 for part in parts)
    np.testing.assert_array_equal(np.concatenate([part.obs for part in parts]), whole.obs)
    np.testing.assert_array_equal(np.concatenate([part.source_rollout for part in parts]), whole.source_rollout)
    assert [text for part in parts for text in part.instruction] == whole.instruction


def test_an_impossible_batch_size_is_refused(load: Any) -> None:
    source, _ = load()
    with pytest.raises(UsageError):
        next(source.batches(0))


def test_pieces_carry_where_they_start(load: Any) -> None:
    reset = np.ones((N, 3), np.float32)
    _, r = load(
        qualcheck_start=["reset", "cut", "cut", "reset"],
        qualcheck_source_step=np.array([0, 4, 2, 0]),
        qualcheck_source_rollout=np.array([7, 7, 8, 9]),
        qualcheck_reset_obs=reset,
    )
    assert r.is_reset.tolist() == [True, False, False, True]
    assert r.source_step.tolist() == [0, 4, 2, 0]
    assert r.source_rollout.tolist() == [0, 1, 2, 3]  # the place in this file
    assert r.extra_rollout["qualcheck_source_rollout"] == [7, 7, 8, 9]
    np.testing.assert_array_equal(r.context_obs, reset)


# -- flags and defects ---------------------------------------------------------------------------------------------


def test_a_mask_hole_keeps_its_rows_in_order_and_is_a_defect(load: Any) -> None:
    masks = keys()["masks"].copy()
    masks[0, 2] = 0
    source, r = load(masks=masks)
    assert only(r)["mask_hole"] == [0]
    assert r.defect == ["mask_hole", "", "", ""]
    np.testing.assert_array_equal(r.obs[:4], keys()["observations"][0, [0, 1, 3, 4]])
    assert any("mask_hole" in line for line in source.findings)


@pytest.mark.parametrize("value", [np.nan, 0.5, -1.0, 2.0])
def test_a_mask_of_other_numbers_is_flagged(load: Any, value: float) -> None:
    masks = keys()["masks"].copy()
    masks[1, 2] = value
    _, r = load(masks=masks)
    assert only(r)["mask_value"] == [1]
    assert r.defect == ["", "mask_value", "", ""]


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("key", ["observations", "next_observations", "rewards"])
def test_a_number_that_is_not_finite_flags_its_rollout_only(load: Any, key: str, value: float) -> None:
    array = keys()[key].copy()
    array[1, 2] = value
    _, r = load(**{key: array})
    assert only(r)["non_finite"] == [1]
    assert r.defect == [""] * 4


def test_a_nan_in_the_padding_is_nothing(load: Any) -> None:
    arrays = {key: keys()[key].copy() for key in ("observations", "next_observations", "rewards")}
    for array in arrays.values():
        array[1, 3:] = np.nan
    _, r = load(**arrays)
    assert only(r) == {}


def test_huge_finite_numbers_are_not_called_infinite(load: Any) -> None:
    _, r = load(observations=np.full((N, T, 3), 3e38, np.float32), next_observations=None)
    assert only(r) == {}


def test_a_broken_chain_keeps_both_readings(load: Any) -> None:
    following = keys()["next_observations"].copy()
    following[1, 0] = [7, 8, 9]
    _, r = load(next_observations=following)
    assert only(r) == {"chain_break": [1]}
    assert r.break_at.tolist() == [5]
    np.testing.assert_array_equal(r.break_obs, [[7, 8, 9]])
    np.testing.assert_array_equal(r.end_obs[5], [7, 8, 9])
    np.testing.assert_array_equal(r.start_obs[6], keys()["observations"][1, 1])


def test_nan_on_both_sides_is_no_broken_chain(load: Any) -> None:
    rows, following = keys()["observations"].copy(), keys()["next_observations"].copy()
    rows[0, 2, 1] = following[0, 1, 1] = np.nan
    _, r = load(observations=rows, next_observations=following)
    assert only(r) == {"non_finite": [0]}


def test_a_final_row_that_differs_from_the_padding_is_no_broken_chain(load: Any) -> None:
    following = keys()["next_observations"].copy()
    following[1, 2] = 99
    _, r = load(next_observations=following)
    assert only(r) == {}
    assert (r.end_obs[7] == 99).all()


def test_rollouts_beyond_a_shorter_instruction_list_have_none(load: Any) -> None:
    source, r = load(instructions=[["first"], ["second"]])
    assert r.instruction == ["first", "second", None, None]
    assert only(r) == {"count_mismatch": [2, 3]}
    assert r.defect == [""] * 4
    assert any("instructions hold 2 rollouts" in line for line in source.findings)


@pytest.mark.parametrize("key", ["actions", "rewards", "next_observations", "masks"])
def test_rollouts_beyond_a_shorter_array_cannot_be_scored(load: Any, key: str) -> None:
    source, r = load(**{key: keys()[key][:2]})
    assert only(r)["count_mismatch"] == [2, 3]
    assert r.defect == ["", "", "count_mismatch", "count_mismatch"]
    assert r.length.tolist() == [5, 3, 0, 0]
    assert source.n_transitions == 8
    assert [part.n_rollouts for part in source.batches(1)] == [1, 1, 1, 1]


def test_longer_arrays_are_cut_to_the_rollouts(load: Any) -> None:
    source, r = load(actions=np.concatenate([keys()["actions"]] * 2))
    assert only(r) == {}
    assert r.length.tolist() == VALID.tolist()
    assert any("actions hold 8 rollouts, observations 4" in line for line in source.findings)


def test_a_rollout_without_a_valid_step_is_empty(load: Any) -> None:
    masks = keys()["masks"].copy()
    masks[[0, 3]] = 0
    _, r = load(masks=masks)
    assert only(r) == {"empty": [0, 3]}
    assert r.defect == ["empty", "", "", "empty"]
    assert r.length.tolist() == [0, 3, 1, 0]
    assert r.has_final.tolist() == [False, True, True, False]
    assert r.row_offsets[-1] == len(r.obs)


@pytest.mark.parametrize(
    ("value", "bad"), [(7, True), (-1, True), (6, False), (2.5, True), (np.nan, True), (3.0, False)]
)
def test_an_action_outside_the_set_is_flagged_and_kept(load: Any, value: float, bad: bool) -> None:
    actions = keys()["actions"].astype(np.int64 if isinstance(value, int) else np.float64)
    actions[3, 1] = value
    _, r = load(actions=actions)
    assert only(r).get("bad_action", []) == ([3] if bad else [])
    np.testing.assert_array_equal(r.action[10], value)
    assert r.defect == [""] * 4


def test_a_file_without_rollouts_is_read_as_none(tmp_path: Path) -> None:
    content = {key: value[:0] for key, value in keys().items()}
    source = open_source(saved(tmp_path, content), SPEC)
    assert (source.n_rollouts, source.n_transitions, list(source.batches())) == (0, 0, [])


# -- the last row --------------------------------------------------------------------------------------------------


def test_zeros_in_every_last_reward_of_20_rollouts_mean_a_filler_action(tmp_path: Path) -> None:
    source = open_source(saved(tmp_path, many(20)), SPEC)
    assert source.last_action == "filler"
    assert source.n_transitions == 40
    (r,) = source.batches(extras=True)
    assert r.length.tolist() == [2] * 20
    assert r.has_final.all()
    np.testing.assert_array_equal(r.obs[:3], many(20)["observations"][0, :3])
    assert r.extra_rollout["filler_action"] == [1] * 20
    assert r.extra_rollout["filler_reward"] == [0] * 20


def test_19_rollouts_say_too_little(tmp_path: Path) -> None:
    source = open_source(saved(tmp_path, many(19)), SPEC)
    assert source.last_action == "executed"
    (r,) = source.batches()
    assert r.length.tolist() == [3] * 19
    assert not r.has_final.any()


def test_one_rewarded_last_row_means_executed_actions(tmp_path: Path) -> None:
    content = many(30)
    content["rewards"][17, 2] = 0.5
    assert open_source(saved(tmp_path, content), SPEC).last_action == "executed"
    content = many(30)
    content["rewards"][17, 3] = 0.5  # padding says nothing
    assert open_source(saved(tmp_path, content), SPEC).last_action == "filler"


def test_the_file_wins_over_the_guess_and_the_option_over_the_file(tmp_path: Path) -> None:
    path = saved(tmp_path, many(30, qualcheck_last_action="executed"))
    assert open_source(path, SPEC).last_action == "executed"
    assert open_source(path, SPEC, last_action="filler").last_action == "filler"
    path = saved(tmp_path, many(3, qualcheck_last_action="filler"))
    assert open_source(path, SPEC).last_action == "filler"
    assert open_source(path, SPEC, last_action="executed").last_action == "executed"


def test_a_lone_filler_row_is_an_empty_rollout_that_still_has_its_row(load: Any) -> None:
    _, r = load("filler", next_observations=None)
    assert r.length.tolist() == [4, 2, 0, 3]
    assert only(r) == {"empty": [2]}
    assert r.defect == [""] * 4
    np.testing.assert_array_equal(r.obs[r.row_offsets[2]], keys()["observations"][2, 0])


def test_an_unknown_last_action_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="last_action"):
        open_source(saved(tmp_path, keys()), SPEC, last_action="maybe")


# -- broken structure ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"observations": None}, "no 'observations'"),
        ({"actions": None}, "no 'actions'"),
        ({"observations": np.zeros((N, T, 5))}, "5 columns; expected 3 or 7 for grid"),
        ({"observations": np.zeros((N, T))}, "'observations' has shape"),
        ({"observations": [[1, 2]]}, "'observations' has a list"),
        ({"observations": np.full((N, T, 3), None)}, "dtype object"),
        ({"observations": np.zeros((N, T, 3), complex)}, "dtype complex"),
        ({"observations": np.full((N, T, 3), "x")}, "dtype <U1"),
        ({"observations": np.zeros((N, T + 2, 3))}, "'actions' has T = 5; expected T = 7"),
        ({"actions": np.zeros((N, T, 2))}, "'actions' has shape"),
        ({"next_observations": np.zeros((N, T + 1, 3))}, "'next_observations' has shape"),
        ({"rewards": np.zeros((N, T + 1))}, "'rewards' has shape"),
        ({"rewards": np.zeros(N)}, "'rewards' has shape"),
        ({"masks": np.zeros((N, T - 1))}, "'masks' has shape"),
        ({"masks": np.full((N, T), "1")}, "'masks' has dtype"),
        ({"instructions": 3}, "'instructions' has a int"),
        ({"instructions": np.zeros(4)}, "'instructions' has dtype float64"),
        ({"qualcheck_source_step": np.zeros(3)}, "'qualcheck_source_step' has"),
        ({"next_observations": None, "qualcheck_last_action": "?"}, "'qualcheck_last_action' has"),
    ],
)
def test_broken_structure_is_an_error_that_names_the_key(load: Any, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(DataError, match="some_file: ") as caught:
        load(**changes)
    assert message in str(caught.value)


# -- other kinds of file -------------------------------------------------------------------------------------------


def test_other_layouts_are_refused_by_what_they_are(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "a.npy", "w") as file:
        file["observations"] = np.zeros(3)
    np.savez(tmp_path / "b.npz", observations=np.zeros(3))
    (tmp_path / "c.npy").write_bytes(pickle.dumps(keys(), 4))
    (tmp_path / "d.npy").write_bytes(b"hello")
    (tmp_path / "e.npy").write_bytes(b"")
    pq.write_table(pa.table({"x": [1]}), tmp_path / "f.parquet")
    np.save(tmp_path / "g.npy", np.zeros(3))
    (tmp_path / "h.parquet").write_bytes(b"PAR1 and nothing more")
    (tmp_path / "i").mkdir()
    expected = {
        "a.npy": "an HDF5 file; this version reads",
        "b.npz": "a zip or .npz archive; this version reads",
        "c.npy": "a bare pickle; this version reads",
        "d.npy": "no layout that qualcheck knows",
        "e.npy": "an empty file",
        "f.parquet": "a Parquet file with the columns x",
        "g.npy": "an array of float64",
        "h.parquet": "not a whole Parquet file",
        "i": "a folder",
        "j": "does not exist",
    }
    for name, message in expected.items():
        with pytest.raises(DataError) as caught:
            open_source(tmp_path / name, SPEC)
        assert message in str(caught.value)
        assert name in str(caught.value)
