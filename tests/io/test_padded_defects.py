"""Defects of padded files: each is a flag of its rollout, unless the structure itself is broken."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from qualcheck.errors import DataError
from qualcheck.io import open_source

VALID = [5, 3, 1, 4]  # rows of each rollout
N, T = 4, 5


def test_a_mask_hole_keeps_its_rows_in_order_and_is_a_defect(load: Any, keys: Any, only: Any) -> None:
    masks = keys()["masks"].copy()
    masks[0, 2] = 0
    source, r = load(masks=masks)
    assert only(r)["mask_hole"] == [0]
    assert r.defect == ["mask_hole", "", "", ""]
    np.testing.assert_array_equal(r.obs[:4], keys()["observations"][0, [0, 1, 3, 4]])
    assert any("mask_hole" in line for line in source.findings)


@pytest.mark.parametrize("value", [np.nan, 0.5, -1.0, 2.0])
def test_a_mask_of_other_numbers_is_flagged(load: Any, value: float, keys: Any, only: Any) -> None:
    masks = keys()["masks"].copy()
    masks[1, 2] = value
    _, r = load(masks=masks)
    assert only(r)["mask_value"] == [1]
    assert r.defect == ["", "mask_value", "", ""]


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("key", ["observations", "next_observations", "rewards"])
def test_a_number_that_is_not_finite_flags_its_rollout_only(
    load: Any, key: str, value: float, keys: Any, only: Any
) -> None:
    array = keys()[key].copy()
    array[1, 2] = value
    _, r = load(**{key: array})
    assert only(r)["non_finite"] == [1]
    assert r.defect == [""] * 4


def test_a_nan_in_the_padding_is_nothing(load: Any, keys: Any, only: Any) -> None:
    arrays = {key: keys()[key].copy() for key in ("observations", "next_observations", "rewards")}
    for array in arrays.values():
        array[1, 3:] = np.nan
    _, r = load(**arrays)
    assert only(r) == {}


def test_huge_finite_numbers_are_not_called_infinite(load: Any, only: Any) -> None:
    _, r = load(observations=np.full((N, T, 3), 3e38, np.float32), next_observations=None)
    assert only(r) == {}


def test_a_broken_chain_keeps_both_readings(load: Any, keys: Any, only: Any) -> None:
    following = keys()["next_observations"].copy()
    following[1, 0] = [7, 8, 9]
    _, r = load(next_observations=following)
    assert only(r) == {"chain_break": [1]}
    assert r.break_at.tolist() == [5]
    np.testing.assert_array_equal(r.break_obs, [[7, 8, 9]])
    np.testing.assert_array_equal(r.end_obs[5], [7, 8, 9])
    np.testing.assert_array_equal(r.start_obs[6], keys()["observations"][1, 1])


def test_nan_on_both_sides_is_no_broken_chain(load: Any, keys: Any, only: Any) -> None:
    rows, following = keys()["observations"].copy(), keys()["next_observations"].copy()
    rows[0, 2, 1] = following[0, 1, 1] = np.nan
    _, r = load(observations=rows, next_observations=following)
    assert only(r) == {"non_finite": [0]}


def test_a_final_row_that_differs_from_the_padding_is_no_broken_chain(load: Any, keys: Any, only: Any) -> None:
    following = keys()["next_observations"].copy()
    following[1, 2] = 99
    _, r = load(next_observations=following)
    assert only(r) == {}
    assert (r.end_obs[7] == 99).all()


def test_rollouts_beyond_a_shorter_instruction_list_have_none(load: Any, only: Any) -> None:
    source, r = load(instructions=[["first"], ["second"]])
    assert r.instruction == ["first", "second", None, None]
    assert only(r) == {"count_mismatch": [2, 3]}
    assert r.defect == [""] * 4
    assert any("instructions hold 2 rollouts" in line for line in source.findings)


@pytest.mark.parametrize("key", ["actions", "rewards", "next_observations", "masks"])
def test_rollouts_beyond_a_shorter_array_cannot_be_scored(load: Any, key: str, keys: Any, only: Any) -> None:
    source, r = load(**{key: keys()[key][:2]})
    assert only(r)["count_mismatch"] == [2, 3]
    assert r.defect == ["", "", "count_mismatch", "count_mismatch"]
    assert r.length.tolist() == [5, 3, 0, 0]
    assert source.n_transitions == 8
    assert [part.n_rollouts for part in source.batches(1)] == [1, 1, 1, 1]


def test_longer_arrays_are_cut_to_the_rollouts(load: Any, keys: Any, only: Any) -> None:
    source, r = load(actions=np.concatenate([keys()["actions"]] * 2))
    assert only(r) == {}
    assert r.length.tolist() == VALID
    assert any("actions hold 8 rollouts, observations 4" in line for line in source.findings)


def test_a_rollout_without_a_valid_step_is_empty(load: Any, keys: Any, only: Any) -> None:
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
def test_an_action_outside_the_set_is_flagged_and_kept(
    load: Any, value: float, bad: bool, keys: Any, only: Any
) -> None:
    actions = keys()["actions"].astype(np.int64 if isinstance(value, int) else np.float64)
    actions[3, 1] = value
    _, r = load(actions=actions)
    assert only(r).get("bad_action", []) == ([3] if bad else [])
    np.testing.assert_array_equal(r.action[10], value)
    assert r.defect == [""] * 4


def test_a_file_without_rollouts_is_read_as_none(keys: Any, saved: Any, grid: Any) -> None:
    content = {key: value[:0] for key, value in keys().items()}
    source = open_source(saved(content), grid)
    assert (source.n_rollouts, source.n_transitions, list(source.batches())) == (0, 0, [])


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
