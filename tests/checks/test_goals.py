"""Goals on the rows that a file shows twice, and on rows that nobody can be in."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from qualcheck.checks import goals
from qualcheck.checks.batch import Batch
from qualcheck.checks.restarts import Restarts
from qualcheck.envs.babyai import BabyAI
from qualcheck.grade import Grade
from qualcheck.types import Rollouts

# ball red at (1, 1), box green at (2, 2), key blue at (3, 3), door yellow at (4, 7) closed, agent at (6, 1)
ROW = np.array([0, 1, 1, 1, 2, 2, 2, 3, 3, 4, 4, 7, 1, 6, 1, 0, 0], np.float32)


def one(rows: list[np.ndarray], action: list[int], text: str | None = "go to the red ball") -> Rollouts:
    return Rollouts(
        obs=np.stack(rows),
        action=np.array(action),
        offsets=np.array([0, len(action)]),
        has_final=np.ones(1, bool),
        source=np.zeros(1, np.int32),
        source_rollout=np.zeros(1, np.int32),
        source_step=np.zeros(1, np.int32),
        instruction=[text],
    )


def at(row: int, col: int) -> np.ndarray:
    moved = ROW.copy()
    moved[13:15] = row, col
    return moved


def measure(rollouts: Rollouts) -> goals.GoalScores:
    adapter = BabyAI()
    batch = Batch(rollouts, adapter, [adapter.place(rollouts.instruction[0])], np.zeros(1, np.int64))
    return goals.measure(batch, Grade("exact"), None, Restarts(0, "exact", 0))


def test_the_goal_counts_on_either_reading_of_a_row() -> None:
    plain = one([at(6, 1), at(5, 1), at(4, 1)], [2, 2])
    assert measure(plain).imagined[0] == 0
    broken = replace(plain, break_at=np.array([0]), break_obs=at(1, 1)[None])
    found = measure(broken)
    assert found.imagined[0] == 1
    assert found.share.tolist() == [1, 0]
    assert found.replayed[0] == 0


def test_the_other_reading_of_a_row_does_not_count_where_nobody_can_be() -> None:
    overlap = at(1, 1)
    overlap[4:6] = 1, 1  # the box on the ball
    broken = replace(one([at(6, 1), at(5, 1)], [2]), break_at=np.array([0]), break_obs=overlap[None])
    assert measure(broken).imagined[0] == 0


def test_the_goal_at_row_0_is_trivial_and_no_success() -> None:
    found = measure(one([at(1, 1), at(2, 1)], [6]))
    assert found.trivial[0]
    assert found.imagined[0] == 0


def test_without_a_task_no_goal_is_judged() -> None:
    for text, code in ((None, "no_instruction"), ("dance", "ambiguous_instruction")):
        found = measure(one([at(6, 1), at(5, 1)], [2], text))
        assert np.isnan(found.imagined[0])
        assert found.code.names[found.code.index[0]] == code
