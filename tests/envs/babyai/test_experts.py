"""Scripted experts reach the intended goal, as the benchmark's own scripts do."""

from __future__ import annotations

import numpy as np
import pytest

from qualcheck.envs.babyai import experts, goals, kernel, reset
from qualcheck.envs.babyai.layout import DOWN, DROP, LEFT, PICKUP, RIGHT, TOGGLE, UP, fields
from qualcheck.types import AnyArray

MOST_STEPS = {"goto": 10, "open": 11, "pickup": 11, "putnext": 22}  # the scripts' own bounds


def play(task: str, value: AnyArray, role: AnyArray, steps: int = 39) -> tuple[AnyArray, AnyArray]:
    """(reached, steps needed) of each row when the expert acts."""
    reached = np.zeros(value.shape[1], bool)
    needed = np.zeros(value.shape[1], int)
    for step in range(1, steps + 1):
        value = kernel.step(value, experts.actions(task, value, role))
        now = goals.holds(task, value, role)[0]
        needed[now & ~reached] = step
        reached |= now
    return reached, needed


@pytest.mark.parametrize("task", goals.TASK_IDS)
def test_expert_reaches_the_intended_goal_within_39_steps(task: str) -> None:
    n, rng = 2_000, np.random.default_rng(0)
    params = reset.sample_params(task, n, rng)
    reached, needed = play(task, fields(reset.sample_rows(task, params, n, rng)).value, goals.role_columns(params))
    assert reached.mean() >= 0.99
    assert needed.max() <= MOST_STEPS.get(task, 39)


@pytest.mark.parametrize("task", goals.TASK_IDS)
def test_expert_recovers_from_states_in_the_middle_of_random_play(task: str) -> None:
    n, rng = 500, np.random.default_rng(1)
    params = reset.sample_params(task, n, rng)
    value = fields(reset.sample_rows(task, params, n, rng)).value
    for _ in range(60):
        value = kernel.step(value, rng.integers(0, 7, size=n, dtype=np.int8))
    reached, _ = play(task, value, goals.role_columns(params))
    assert reached.mean() >= 0.95


def test_an_action_depends_on_its_own_row_only() -> None:
    n, rng = 40, np.random.default_rng(2)
    for task in goals.TASK_IDS:
        params = reset.sample_params(task, n, rng)
        rows = reset.sample_rows(task, params, n, rng)
        together = experts.actions(task, fields(rows).value, goals.role_columns(params))
        assert together.tolist() == [experts.act(task, p, row) for p, row in zip(params, rows, strict=True)]


def row(agent: tuple[int, int], ball: tuple[int, int] = (2, 2), door: int = 5, state: int = 1) -> AnyArray:
    held = (6, 0) if ball == (0, 0) else (0, 0)
    return np.array([0, *ball, 1, 4, 4, 2, 5, 1, 3, door, 7, state, *agent, *held])


@pytest.mark.parametrize(
    ("task", "params", "where", "action"),
    [
        ("goto", ("red", "ball"), row((4, 5)), UP),
        ("goto", ("red", "ball"), row((1, 5)), DOWN),
        ("goto", ("red", "ball"), row((2, 5)), LEFT),
        ("goto", ("purple", "door"), row((5, 5)), RIGHT),
        ("pickup", ("red", "ball"), row((2, 2)), PICKUP),
        ("open", ("purple", "door"), row((5, 6)), TOGGLE),
        ("putnext", ("red", "ball", "green", "box"), row((5, 4), ball=(0, 0)), DROP),  # first free cell: below the box
        ("putnext", ("red", "ball", "green", "box"), row((3, 4), ball=(0, 0)), DOWN),
        ("open_lock", (), row((5, 1), state=2), PICKUP),
        ("go_wall", (), row((3, 3)), UP),
        ("go_center", (), row((6, 6)), UP),
        ("open_pick", (), row((2, 2), state=0), PICKUP),
    ],
)
def test_expert_action_by_hand(task: str, params: tuple[str, ...], where: AnyArray, action: int) -> None:
    assert experts.act(task, params, where) == action


def test_put_line_expert_takes_the_shortest_way_with_one_object() -> None:
    value = fields(np.array([[0, 3, 2, 0, 5, 1, 0, 5, 6, 0, 1, 7, 1, 3, 2, 0, 0]])).value  # box and key share row 5
    reached, needed = play("put_line", value, goals.role_columns([()]))
    assert reached.all()
    assert needed.tolist() == [4]  # pick up here, two down, drop
