"""What a row of 91 numbers shows, and which rows a simulator can be put into."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from qualcheck.envs.metaworld import layout
from qualcheck.envs.metaworld.layout import BAD_QUATERNION, MISSING_ENTITY, NON_FINITE, OUT_OF_RANGE


def push_row() -> np.ndarray[Any, np.dtype[np.float64]]:
    """Row 0 of a push episode, typed by hand: the puck at (-0.05, 0.66, 0.02), unturned, and nothing else."""
    row = np.zeros(91)
    row[:7] = [0.006, 0.600, 0.194, 1.0, 0.07, 0.80, 0.02]
    row[7:14] = [-0.05, 0.66, 0.02, 0, 0, 0, 1]
    return row


def test_every_column_has_its_own_name_and_the_blocks_follow_each_other() -> None:
    assert len(set(layout.COLUMNS)) == layout.OBS_SIZE
    assert layout.COLUMNS[layout.block("soccer")][0] == "soccer_x_m"
    assert layout.block("wall") == slice(49, 56)
    assert layout.block("soccer").stop == 91
    assert layout.COLUMNS[13] == "target_object_qw"
    assert layout.COLUMNS[17] == "button_qw"


def test_there_are_ten_real_eight_easy_and_four_hard_tasks() -> None:
    levels = [task.level for task in layout.TASKS.values()]
    assert [levels.count(level) for level in ("real", "easy", "hard")] == [10, 8, 4]


@pytest.mark.parametrize(
    ("name", "task"),
    [
        ("push-v2-goal-observable", "push"),
        ("rep-door-open-v2-goal-observable", "door-open"),
        ("soccer", "soccer"),
        ("shelf-place-v2", ""),
    ],
)
def test_an_environment_name_of_the_benchmark_gives_its_task(name: str, task: str) -> None:
    assert layout.base_task(name) == task


def test_a_good_row_is_takeable() -> None:
    assert layout.takeable_for(push_row()[None], "push").tolist() == [0]


@pytest.mark.parametrize(
    ("column", "value", "code"),
    [
        (0, np.nan, NON_FINITE),
        (8, np.inf, NON_FINITE),
        (2, 0.95, OUT_OF_RANGE),
        (3, 1.2, OUT_OF_RANGE),
        (7, 40.0, OUT_OF_RANGE),
        (13, 1.3, BAD_QUATERNION),
        (13, 0.0, BAD_QUATERNION),
    ],
)
def test_a_spoilt_row_is_not_takeable_and_says_why(column: int, value: float, code: int) -> None:
    row = push_row()
    row[column] = value
    assert layout.takeable(row[None]).tolist() == [code]


def test_a_row_without_the_entity_of_its_task_is_not_takeable_for_it() -> None:
    assert layout.takeable_for(push_row()[None], "soccer").tolist() == [MISSING_ENTITY]
    assert layout.takeable(push_row()[None]).tolist() == [0]


def test_a_spoilt_distractor_does_not_stop_a_task() -> None:
    row = push_row()
    row[layout.block("hammer")] = np.nan
    assert layout.takeable_for(row[None], "push").tolist() == [0]
    assert layout.takeable(row[None]).tolist() == [NON_FINITE]


def test_a_window_has_no_quaternion() -> None:
    row = push_row()
    row[7:14] = 0
    row[layout.position("window")] = [0.1, 0.7, 0.16]
    assert layout.takeable_for(row[None], "window-open").tolist() == [0]
    row[layout.quaternion("window")] = [1, 0, 0, 0]
    assert layout.takeable_for(row[None], "window-open").tolist() == [BAD_QUATERNION]


def test_a_distractor_is_found_and_two_are_counted() -> None:
    rows = np.stack([push_row()] * 3)
    rows[1:, layout.position("hammer")] = 0.1
    rows[2, layout.position("soccer")] = 0.1
    first, count = layout.distractors(rows, "push")
    assert first.tolist() == [-1, layout.ENTITIES.index("hammer"), layout.ENTITIES.index("hammer")]
    assert count.tolist() == [0, 1, 2]


def test_only_the_blocks_of_a_task_are_simulated() -> None:
    mine = layout.simulated_columns("hammer")
    assert mine.sum() == 7 + 14
    assert mine[layout.block("nail")].all()
    assert not mine[layout.block("soccer")].any()


def test_the_commanded_hand_adds_up_clipped_actions_inside_its_box() -> None:
    action = np.array([[1, -1, 0.5, 0], [3, -1, 0, 0], [0, 0, -1, 0]] + [[0, 0, -1, 0]] * 30, np.float32)
    path = layout.commanded_hand(np.array([0.0, 0.42, 0.2]), action, "push")
    np.testing.assert_allclose(path[:3], [[0, 0.42, 0.2], [0.01, 0.41, 0.205], [0.02, 0.40, 0.205]], atol=1e-12)
    assert path[-1, 2] == 0.05
    low = layout.commanded_hand(np.array([0.0, 0.42, 0.2]), action, "faucet-open")
    assert low[-1, 2] == pytest.approx(0.205 - 0.31)


def test_quaternions_come_with_the_scalar_first() -> None:
    assert layout.wxyz("soccer", np.array([1, 2, 3, 4])).tolist() == [4, 1, 2, 3]
    assert layout.wxyz("lock", np.array([1, 2, 3, 4])).tolist() == [1, 2, 3, 4]


def test_actions_that_are_not_numbers_are_unusable() -> None:
    assert layout.usable_actions(np.array([[0, 0, 0, 1], [0, np.nan, 0, 0]])).tolist() == [True, False]
