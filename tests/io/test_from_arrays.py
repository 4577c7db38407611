"""Arrays of a Python call as a source."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from qualcheck.errors import DataError, UsageError
from qualcheck.io import source_from_arrays
from qualcheck.spec import ActionSpec

OBS = np.arange(24.0).reshape(8, 3)
NEXT = OBS + 3
ACTIONS = np.arange(8) % 7


def test_without_ids_every_step_is_a_rollout_that_starts_anywhere(grid: Any) -> None:
    source = source_from_arrays(OBS, ACTIONS, NEXT, spec=grid)
    assert (source.format, source.n_rollouts, source.n_transitions, source.last_action) == ("arrays", 8, 8, "none")
    (r,) = source.batches()
    np.testing.assert_array_equal(r.start_obs, OBS)
    np.testing.assert_array_equal(r.end_obs, NEXT)
    assert not r.is_reset.any()
    assert r.source_rollout.tolist() == list(range(8))
    assert r.instruction == [None] * 8


def test_shuffled_branches_are_put_together_in_the_order_in_which_their_ids_appear(grid: Any) -> None:
    ids = np.array(["b", "a", "b", "c", "a", "b", "c", "a"])
    source = source_from_arrays(OBS, ACTIONS, NEXT, np.arange(8), ids == "x", ids, ["B", "A", "C"], spec=grid)
    places = [0, 2, 5, 1, 4, 7, 3, 6]
    (r,) = source.batches(100)
    assert r.length.tolist() == [3, 3, 2]
    np.testing.assert_array_equal(r.start_obs, OBS[places])
    np.testing.assert_array_equal(r.end_obs, NEXT[places])
    np.testing.assert_array_equal(r.reward, places)
    assert r.instruction == ["B", "A", "C"]
    assert r.source_rollout.tolist() == [0, 1, 2]
    assert r.is_reset is None
    parts = list(source.batches(3))
    np.testing.assert_array_equal(np.concatenate([part.start_obs for part in parts]), OBS[places])


def test_without_next_rows_the_rows_of_a_rollout_follow_one_another(grid: Any) -> None:
    source = source_from_arrays(OBS, ACTIONS, rollout=[0, 0, 0, 1, 1, 2, 2, 2], spec=grid, instruction="go")
    assert source.last_action == "executed"
    (r,) = source.batches()
    np.testing.assert_array_equal(r.obs, OBS)
    assert r.has_end.tolist() == [True, True, False, True, False, True, True, False]
    assert r.instruction == ["go"] * 3


def test_the_layout_is_the_one_whose_columns_and_actions_fit(grid: Any) -> None:
    box = replace(grid, id="box", action=ActionSpec("box", 2))
    wide = replace(grid, obs_size=4, columns=("x",) * 4)
    assert source_from_arrays(OBS, ACTIONS, spec=[box, wide, grid]).spec is grid
    assert source_from_arrays(OBS, np.zeros((8, 2)), spec=[grid, wide, box]).spec is box
    assert source_from_arrays(np.zeros((8, 4)), ACTIONS, spec=[grid, wide]).spec is wide
    with pytest.raises(DataError, match=r"5 columns; expected 3 or 4 or 7 or 8 for grid\."):
        source_from_arrays(np.zeros((8, 5)), ACTIONS, spec=[grid, wide])


def test_codes_are_split_off_and_watched(grid: Any) -> None:
    rows = np.concatenate([OBS, np.repeat(np.arange(8.0)[:, None] // 4, 4, axis=1)], axis=1)
    source = source_from_arrays(rows, ACTIONS, rollout=[0, 0, 0, 0, 1, 1, 1, 1], spec=grid)
    (r,) = source.batches()
    np.testing.assert_array_equal(r.obs, OBS)
    np.testing.assert_array_equal(r.code, [[0] * 4, [1] * 4])
    assert not r.flags["code_varies"].any()
    rows[6, 5] = 9
    (r,) = source_from_arrays(rows, ACTIONS, rollout=[0, 0, 0, 0, 1, 1, 1, 1], spec=grid).batches()
    assert r.flags["code_varies"].tolist() == [False, True]


def test_the_digest_is_that_of_values_dtypes_and_shapes(grid: Any) -> None:
    first = source_from_arrays(OBS, ACTIONS, NEXT, spec=grid).digest()
    assert len(first) == 64
    assert source_from_arrays(OBS.copy(order="F"), ACTIONS, NEXT, spec=grid).digest() == first
    others = [
        source_from_arrays(OBS + 1, ACTIONS, NEXT, spec=grid),
        source_from_arrays(OBS.astype(np.float32), ACTIONS, NEXT, spec=grid),
        source_from_arrays(OBS, ACTIONS, spec=grid),
        source_from_arrays(OBS, ACTIONS, NEXT, rollout=np.arange(8), spec=grid),
        source_from_arrays(OBS, ACTIONS, NEXT, instruction="go", spec=grid),
    ]
    assert len({first, *(source.digest() for source in others)}) == 6


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"obs": np.zeros((2, 4, 3))}, "obs: float64 of shape"),
        ({"obs": np.array([["a"]])}, "obs: <U1"),
        ({"actions": np.zeros(7)}, "actions: float64 of shape"),
        ({"next_obs": np.zeros((7, 3))}, "next_obs: "),
        ({"rewards": np.zeros((8, 2))}, "rewards: shape"),
        ({"rollout": np.zeros(7)}, "rollout: "),
        ({"instruction": ["a", "b"], "rollout": np.zeros(8)}, "instruction: 2 texts"),
    ],
)
def test_arrays_that_do_not_fit_each_other_are_a_usage_error(grid: Any, given: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError) as caught:
        source_from_arrays(**{"obs": OBS, "actions": ACTIONS, "spec": grid, **given})
    assert message in str(caught.value)
