"""Rollouts recorded in metaworld's own environments, which the newest family follows."""

from __future__ import annotations

import numpy as np
import pytest

from qualcheck.contract_subject import placed
from qualcheck.envs.metaworld import MetaWorld, stock
from qualcheck.envs.metaworld.record import recordings
from qualcheck.errors import UsageError


@pytest.mark.parametrize("task", ["reach", "coffee-push", "window-close", "hammer"])
def test_rollouts_of_metaworld_itself_are_replayed_and_legal(task: str) -> None:
    rollouts = stock.record(task, 2, np.random.default_rng(5), horizon=40)
    adapter = MetaWorld("mujoco-3.3")
    replay = adapter.replay(rollouts)
    error = np.abs(replay.candidates[0] - rollouts.end_obs)
    assert rollouts.obs.dtype == np.float64
    assert not replay.code.any()
    assert error[:, :4].max() < 1e-7
    assert error.max() < 2e-3
    legality = adapter.legality(rollouts, *placed(adapter, rollouts))
    assert not legality.rule.any()
    assert not legality.row0_rule.any()
    assert adapter.recognise(rollouts)[0] == "mujoco-3.3"
    adapter.close()


def test_the_same_generator_records_the_same_rollouts() -> None:
    first, second = (stock.record("push", 1, np.random.default_rng(2), 1.0, horizon=6) for _ in range(2))
    np.testing.assert_array_equal(first.obs, second.obs)
    np.testing.assert_array_equal(first.action, second.action)


def test_another_action_ends_elsewhere() -> None:
    rollouts = stock.record("reach", 1, np.random.default_rng(3), horizon=5)
    adapter = MetaWorld("mujoco-3.3")
    hidden = adapter.replay(rollouts).hidden
    assert hidden is not None
    row, here = rollouts.start_obs[3], hidden[3]
    ends = [
        stock.stock_end("reach", row, np.array([push, 0, 0, 0]), here[:36], here[73:76]) for push in (-1.0, 1.0, 9.0)
    ]
    assert ends[1][0] - ends[0][0] > 1e-3
    np.testing.assert_array_equal(ends[1], ends[2])  # the action is clipped
    adapter.close()


def test_tasks_that_metaworld_lacks_are_recorded_by_the_kernel() -> None:
    with pytest.raises(UsageError, match="make-coffee"):
        stock.record("make-coffee", 1, np.random.default_rng(0))
    last = list(recordings("fit", 1, "mujoco-3.3"))[-4:]  # the hard ones
    assert [part.task for part in last] == [["make-coffee"], ["locked-door-open"], ["hammer"], ["soccer"]]
    assert [str(part.obs.dtype) for part in last] == ["float32", "float32", "float64", "float64"]
