"""Own recordings."""

from __future__ import annotations

from itertools import islice

import numpy as np
import pytest

from qualcheck.envs.clevr import goals, record, reward, rules, text
from qualcheck.envs.clevr.dynamics import FAMILIES, XY, Dynamics, at_rest, state_of
from qualcheck.envs.clevr.goals import ActedRows
from qualcheck.envs.clevr.layout import OBS_SIZE, xy
from qualcheck.errors import UnknownName
from qualcheck.types import Rollouts


def replayed(rollouts: Rollouts, family: str) -> float:
    """Largest error of an open-loop replay of the first five steps, m."""
    dynamics, first = Dynamics(family=family), rollouts.obs[rollouts.first_row]
    state, worst = state_of(xy(first), at_rest(len(first))), 0.0
    for step in range(min(5, int(rollouts.length.min()))):
        state, _ = dynamics.step(state, rollouts.action[rollouts.offsets[:-1] + step])
        rows = rollouts.obs[rollouts.row_offsets[:-1] + step + 1]
        worst = max(worst, float(np.abs(state[:, XY].reshape(-1, OBS_SIZE) - rows).max()))
    dynamics.close()
    return worst


@pytest.mark.parametrize("task", goals.TASK_IDS)
def test_a_recording_says_its_task_in_words_and_as_an_array_and_ends_with_its_goal(task: str) -> None:
    n = 6
    rollouts = record.record(task, n, np.random.default_rng(8), ("greedy",), random_share=0.2)
    assert rollouts.goal is not None
    assert rollouts.terminal is not None
    assert rollouts.truncated is not None
    placements = [text.place(None, goal) for goal in rollouts.goal]
    assert placements == [text.place(words) for words in rollouts.instruction]
    assert {placement.task for placement in placements} == {task}
    led = np.full(len(rollouts.obs), -1)
    led[rollouts.row + 1] = rollouts.action
    rows = ActedRows(rollouts.obs, rollouts.row_offsets, np.ones(len(rollouts.obs), bool), led, np.ones(n, bool))
    holds = goals.evaluate(rows, placements, np.arange(n)).intended[rollouts.row + 1]
    last = rollouts.offsets[1:] - 1
    ended = np.isin(np.arange(rollouts.n_transitions), last)
    easy = task.startswith("push_")
    assert not holds[~ended].any()
    assert np.array_equal(rollouts.terminal, ended & holds)
    assert np.array_equal(rollouts.truncated, ended & ~rollouts.terminal)
    assert (rollouts.length[rollouts.truncated[last]] == (1 if easy else 50)).all()
    gain = reward.recompute(rollouts, placements, np.arange(n))["released"]
    np.testing.assert_allclose(rollouts.reward, gain)
    assert rollouts.obs.dtype == np.float32
    assert rollouts.action.dtype == np.int64
    assert not rules.reset_rule(rollouts).any()


def test_recordings_replay_in_their_own_family_only() -> None:
    for family, other in (FAMILIES, FAMILIES[::-1]):
        rollouts = record.record("tau_left", 8, np.random.default_rng(1), ("random",), family=family)
        assert replayed(rollouts, family) < 1e-4
        assert replayed(rollouts, other) > 1e-3


def test_recordings_depend_on_their_generator_only() -> None:
    one, same, other = (record.record("gather", 4, np.random.default_rng(s), ("greedy",)) for s in (1, 1, 2))
    assert np.array_equal(one.obs, same.obs)
    assert np.array_equal(one.action, same.action)
    assert one.instruction == same.instruction
    assert not np.array_equal(one.obs[0], other.obs[0])


def test_recordings_cover_every_task_of_every_level_and_purposes_share_nothing() -> None:
    fit, control = list(record.recordings("fit", 1)), list(islice(record.recordings("control", 1), 4))
    assert [(part.level, part.task) for part in fit] == [
        ([level], [task]) for level, tasks in goals.TASKS.items() for task in tasks
    ]
    starts = [{tuple(row) for part in parts for row in part.obs[part.first_row]} for parts in (fit, control)]
    assert [len(own) for own in starts] == [17, 4]
    assert not starts[0] & starts[1]


def test_unknown_names_are_refused() -> None:
    with pytest.raises(UnknownName, match="CLEVR-Robot task"):
        record.record("fly", 1, np.random.default_rng(0))
    with pytest.raises(UnknownName, match="policy"):
        record.record("order", 1, np.random.default_rng(0), ("expert",))
