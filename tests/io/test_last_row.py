"""What the last action of a rollout is in a file that does not show the row after it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from qualcheck.errors import UsageError
from qualcheck.io import open_source


def test_zeros_in_every_last_reward_of_20_rollouts_mean_a_filler_action(saved: Any, many: Any, grid: Any) -> None:
    source = open_source(saved(many(20)), grid)
    assert source.last_action == "filler"
    assert source.n_transitions == 40
    (r,) = source.batches(extras=True)
    assert r.length.tolist() == [2] * 20
    assert r.has_final.all()
    np.testing.assert_array_equal(r.obs[:3], many(20)["observations"][0, :3])
    assert r.extra_rollout["filler_action"] == [1] * 20
    assert r.extra_rollout["filler_reward"] == [0] * 20


def test_19_rollouts_say_too_little(saved: Any, many: Any, grid: Any) -> None:
    source = open_source(saved(many(19)), grid)
    assert source.last_action == "executed"
    (r,) = source.batches()
    assert r.length.tolist() == [3] * 19
    assert not r.has_final.any()


def test_one_rewarded_last_row_means_executed_actions(saved: Any, many: Any, grid: Any) -> None:
    content = many(30)
    content["rewards"][17, 2] = 0.5
    assert open_source(saved(content), grid).last_action == "executed"
    content = many(30)
    content["rewards"][17, 3] = 0.5  # padding says nothing
    assert open_source(saved(content), grid).last_action == "filler"


def test_the_file_wins_over_the_guess_and_the_option_over_the_file(saved: Any, many: Any, grid: Any) -> None:
    path = saved(many(30, qualcheck_last_action="executed"))
    assert open_source(path, grid).last_action == "executed"
    assert open_source(path, grid, last_action="filler").last_action == "filler"
    path = saved(many(3, qualcheck_last_action="filler"))
    assert open_source(path, grid).last_action == "filler"
    assert open_source(path, grid, last_action="executed").last_action == "executed"


def test_a_lone_filler_row_is_an_empty_rollout_that_still_has_its_row(load: Any, keys: Any, only: Any) -> None:
    _, r = load("filler", next_observations=None)
    assert r.length.tolist() == [4, 2, 0, 3]
    assert only(r) == {"empty": [2]}
    assert r.defect == [""] * 4
    np.testing.assert_array_equal(r.obs[r.row_offsets[2]], keys()["observations"][2, 0])


def test_an_unknown_last_action_is_refused(keys: Any, saved: Any, grid: Any) -> None:
    with pytest.raises(UsageError, match="last_action"):
        open_source(saved(keys()), grid, last_action="maybe")
