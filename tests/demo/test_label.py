"""Labels come from MiniGrid, whatever the product's own engine says."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from qualcheck.demo import label
from qualcheck.demo.episode import Episode, Start, pack, placement
from qualcheck.envs.babyai import BabyAI, goals, kernel, text
from qualcheck.envs.babyai.simulator import World
from qualcheck.io import open_source
from qualcheck.types import Rollouts

# red ball (2,2), blue box (4,4), green key (5,2), purple door in row 3, agent (2,3)
ROW = [0, 2, 2, 2, 4, 4, 1, 5, 2, 3, 3, 7, 1, 2, 3, 0, 0]
LEFT, PICKUP, DOWN = 0, 3, 6


def _with(**places: list[int]) -> list[int]:
    row = list(ROW)
    first = {"ball": 1, "box": 4, "key": 7, "agent": 13, "carried": 15, "door_state": 12}
    for name, values in places.items():
        row[first[name] : first[name] + len(values)] = values
    return row


HELD_BALL = {"ball": [0, 0], "carried": [6, 0]}


def _episode(rows: list[list[int]], actions: list[int], task: str, *params: str) -> Episode:
    start = Start(placement(task, params), "real", "", np.array(rows[0], np.float32))
    return Episode(start, np.array(rows, np.float32), np.array(actions), False, "typed")


PICKED: list[list[int]] = [ROW, _with(agent=[2, 2]), _with(agent=[2, 2], **HELD_BALL)]


def test_a_typed_pickup_is_right_step_by_step() -> None:
    found = label.labelled([_episode(PICKED, [LEFT, PICKUP], "pickup", "red", "ball")])
    assert found.extra_step["correct"].tolist() == [1, 1]
    assert found.extra_rollout["goal_imagined"] == [1]
    assert found.extra_rollout["goal_replayed"] == [1]
    assert found.terminal is not None
    assert not found.terminal.any()


def test_a_wrong_row_is_0_and_a_step_out_of_an_impossible_row_is_minus_1() -> None:
    in_wall = _with(agent=[0, 3])
    found = label.labelled([_episode([ROW, in_wall, ROW], [2, DOWN], "open", "purple", "door")])
    assert found.extra_step["correct"].tolist() == [0, -1]


def test_a_goal_of_the_imagination_alone_is_no_goal_of_the_replay() -> None:
    opened = _with(door_state=[0])
    found = label.labelled([_episode([ROW, opened], [5], "open", "purple", "door")])
    assert found.extra_rollout["goal_imagined"] == [1]
    assert found.extra_rollout["goal_replayed"] == [0]


TASKS: list[tuple[str, tuple[str, ...], list[int], list[int]]] = [
    ("goto", ("red", "ball"), _with(agent=[2, 2]), ROW),
    ("goto", ("blue", "ball"), _with(agent=[4, 4]), _with(agent=[2, 2])),
    ("goto", ("purple", "door"), _with(agent=[3, 6]), _with(agent=[3, 5])),
    ("open", ("purple", "door"), _with(door_state=[0]), _with(door_state=[2])),
    ("pickup", ("red", "ball"), _with(**HELD_BALL), _with(agent=[2, 2])),
    ("putnext", ("red", "ball", "blue", "box"), _with(ball=[4, 5]), _with(ball=[5, 5])),
    ("putnext", ("red", "ball", "purple", "door"), _with(ball=[3, 6]), _with(**HELD_BALL)),
    ("open_go", (), _with(door_state=[0], agent=[5, 2]), _with(agent=[5, 2])),
    ("open_pick", (), _with(door_state=[0], **HELD_BALL), _with(door_state=[0])),
    ("go_wall", (), _with(agent=[6, 3]), _with(agent=[5, 2])),
    ("go_center", (), _with(agent=[4, 3]), _with(agent=[4, 5])),
    ("open_lock", (), _with(door_state=[0]), ROW),
    ("put_line", (), _with(box=[4, 2]), ROW),
    ("put_line", (), _with(ball=[1, 2], box=[6, 2]), _with(box=[4, 2], **HELD_BALL)),
    ("put_pile", (), _with(ball=[4, 2], box=[4, 3]), _with(ball=[4, 2], box=[3, 2])),
]


@pytest.mark.parametrize(("task", "params", "yes", "no"), TASKS)
def test_goals_of_typed_rows(task: str, params: tuple[str, ...], yes: list[int], no: list[int]) -> None:
    world = World()
    if (task, params) == ("goto", ("blue", "ball")):
        yes = [2, 4, 4, 2, 2, 2, *yes[6:]]  # ball and box exchanged, the ball blue
    assert world.restore(yes) == 0
    assert label.reached(world, placement(task, params)) == (True, task != "open_pick")
    assert world.restore(no) == 0
    assert label.reached(world, placement(task, params)) == (False, False)


def test_every_task_has_a_typed_row() -> None:
    assert {task for task, *_ in TASKS} == set(goals.TASK_IDS)


def test_labels_need_neither_the_kernel_nor_the_goal_table(monkeypatch: pytest.MonkeyPatch) -> None:
    rollouts = pack([_episode(PICKED, [LEFT, PICKUP], "pickup", "red", "ball")])

    def refuse(*_: Any) -> Any:
        raise AssertionError("the labels asked the code they are to test")

    for module, names in ((kernel, ("step", "takeable")), (goals, ("holds", "evaluate", "find")), (text, ("place",))):
        for name in names:
            monkeypatch.setattr(module, name, refuse)
    assert label.correct(rollouts).tolist() == [1, 1]
    assert label.goals(rollouts, [placement("pickup", ("red", "ball"))]) == {
        "goal_imagined": [1],
        "goal_imagined_released": [1],
        "goal_replayed": [1],
        "goal_replayed_released": [1],
    }


def _first(rollouts: Rollouts, n: int) -> Rollouts:
    return replace(
        rollouts,
        obs=rollouts.obs[: rollouts.row_offsets[n]],
        action=rollouts.action[: rollouts.offsets[n]],
        offsets=rollouts.offsets[: n + 1],
        has_final=rollouts.has_final[:n],
        instruction=rollouts.instruction[:n],
    )


@pytest.mark.parametrize("level", ["rephrase", "easy"])
def test_labels_equal_the_benchmarks_own_oracle_on_what_another_model_imagined(level: str, shared_data: Path) -> None:
    n = 150
    source = open_source(shared_data / "imagined" / f"imag_babyai_{level}.npy", BabyAI.spec)
    rollouts = _first(next(source.batches()), n)
    oracle = np.load(shared_data / "imagined" / f"imag_babyai_{level}_labels.npz")
    expected = np.concatenate([oracle["correct"][i, : rollouts.length[i]] for i in range(n)])
    shown = rollouts.has_end
    np.testing.assert_array_equal(label.correct(rollouts)[shown], expected[shown])
    found = label.goals(rollouts, [text.place(sentence) for sentence in rollouts.instruction])
    np.testing.assert_array_equal(found["goal_imagined"], oracle["goal_imagined_intended"][:n])
    np.testing.assert_array_equal(found["goal_imagined_released"], oracle["goal_imagined"][:n])
    # where the file was cut, the oracle did not execute the last action
    whole = rollouts.has_final
    np.testing.assert_array_equal(np.array(found["goal_replayed"])[whole], oracle["goal_replayed_intended"][:n][whole])
    np.testing.assert_array_equal(np.array(found["goal_replayed_released"])[whole], oracle["goal_replayed"][:n][whole])
