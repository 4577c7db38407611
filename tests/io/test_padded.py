"""The benchmark's padded files as whole rollouts: the spellings of their arrays, batches, and what travels along."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from qualcheck.errors import UsageError

VALID = np.array([5, 3, 1, 4])  # rows of each rollout
N, T = 4, 5
SPELLINGS: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
    "flat masks": lambda k: {"masks": k["masks"][:, :, 0]},
    "boolean masks": lambda k: {"masks": k["masks"].astype(bool)},
    "integer masks": lambda k: {"masks": k["masks"].astype(np.int8)},
    "action_masks": lambda k: {"masks": None, "action_masks": k["masks"][:, :, 0]},
    "actions with an axis more": lambda k: {"actions": k["actions"][..., None]},
    "float actions": lambda k: {"actions": k["actions"].astype(np.float32)},
    "uint8 actions": lambda k: {"actions": k["actions"].astype(np.uint8)},
    "flat rewards": lambda k: {"rewards": k["rewards"][:, :, 0]},
    "float16 rewards": lambda k: {"rewards": k["rewards"].astype(np.float16)},
    "big-endian rows": lambda k: {"observations": k["observations"].astype(">f4")},
    "Fortran rows": lambda k: {"observations": np.asfortranarray(k["observations"])},
    "strided rows": lambda k: {"observations": np.repeat(k["observations"], 2, axis=0)[::2]},
    "float64 rows": lambda k: {"observations": k["observations"].astype(np.float64)},
    "float16 rows": lambda k: {"observations": k["observations"].astype(np.float16)},
    "uint8 rows": lambda k: {"observations": k["observations"].astype(np.uint8)},
    "other next rows": lambda k: {"next_observations": np.asfortranarray(k["next_observations"].astype(">f8"))},
    "float terminals": lambda k: {"terminals": k["terminals"].astype(np.float32)},
}


def test_padding_never_enters_and_rows_keep_their_order(load: Any, only: Any) -> None:
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


@pytest.mark.parametrize("spelling", list(SPELLINGS))
def test_every_spelling_of_an_array_gives_the_same_rollouts(load: Any, spelling: str, keys: Any, only: Any) -> None:
    changes = SPELLINGS[spelling](keys())
    _, plain = load()
    _, r = load(**changes)
    for name in ("obs", "action", "reward", "terminal", "offsets", "has_final"):
        np.testing.assert_array_equal(getattr(r, name), getattr(plain, name), err_msg=name)
    given = {**keys(), **changes}
    assert r.obs.dtype == np.result_type(given["observations"], given["next_observations"])
    assert only(r) == {}


def test_missing_masks_mean_that_every_row_counts(load: Any) -> None:
    source, r = load(masks=None, next_observations=None)
    assert source.n_transitions == N * T
    assert r.length.tolist() == [T] * N
    assert f"no masks: all {T} rows of every rollout count" in source.findings


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


def test_instruction_codes_are_split_off(load: Any, keys: Any) -> None:
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


def test_unknown_keys_travel_with_their_steps_and_rollouts(load: Any, keys: Any) -> None:
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
