"""The vectorised step: rows typed by hand, and equality with MiniGrid on random rows."""

from __future__ import annotations

import numpy as np
import pytest

from qualcheck.envs.babyai import kernel
from qualcheck.envs.babyai.layout import COLUMNS, DOWN, DROP, LEFT, PICKUP, RIGHT, TOGGLE, UP, fields
from qualcheck.envs.babyai.simulator import World

BASE = [0, 2, 2, 1, 3, 5, 2, 5, 1, 2, 4, 7, 1, 4, 4, 0, 0]  # blue key and blue closed door, agent at (4, 4)


def row(**changes: float) -> list[float]:
    out: list[float] = list(BASE)
    for name, value in changes.items():
        out[COLUMNS.index(name)] = value
    return out


KEY_IN_HAND = {"key_row": 0, "key_col": 0, "carried_type": 5, "carried_colour": 2}
BALL_IN_HAND = {"ball_row": 0, "ball_col": 0, "carried_type": 6, "carried_colour": 0}
AT_DOOR = {"agent_row": 4, "agent_col": 6}
ON_BALL = {"agent_row": 2, "agent_col": 2}

STEPS: dict[str, tuple[dict[str, float], int, dict[str, float]]] = {
    "left": ({}, LEFT, {"agent_col": 3}),
    "right": ({}, RIGHT, {"agent_col": 5}),
    "up": ({}, UP, {"agent_row": 3}),
    "down": ({}, DOWN, {"agent_row": 5}),
    "left into the wall": ({"agent_col": 1}, LEFT, {}),
    "right into the wall": ({"agent_col": 6, "agent_row": 1}, RIGHT, {}),
    "up into the wall": ({"agent_row": 1}, UP, {}),
    "down into the wall": ({"agent_row": 6}, DOWN, {}),
    "through an open door": ({**AT_DOOR, "door_state": 0}, RIGHT, {}),
    "onto an object": ({"agent_row": 3}, RIGHT, {"agent_col": 5}),
    "pickup of the ball": (ON_BALL, PICKUP, BALL_IN_HAND),
    "pickup of the box": (
        {"agent_row": 3, "agent_col": 5}, PICKUP,
        {"box_row": 0, "box_col": 0, "carried_type": 7, "carried_colour": 1},
    ),
    "pickup of the key": ({"agent_row": 5, "agent_col": 1}, PICKUP, KEY_IN_HAND),
    "pickup of nothing": ({}, PICKUP, {}),
    "pickup beside an object": ({"agent_row": 2, "agent_col": 3}, PICKUP, {}),
    "pickup with full hands": ({**ON_BALL, **KEY_IN_HAND}, PICKUP, {}),
    "drop": (BALL_IN_HAND, DROP, {"ball_row": 4, "ball_col": 4, "carried_type": 0, "carried_colour": 0}),
    "drop of nothing": ({}, DROP, {}),
    "drop on an object": ({**ON_BALL, **KEY_IN_HAND}, DROP, {}),
    "toggle opens": (AT_DOOR, TOGGLE, {"door_state": 0}),
    "toggle closes": ({**AT_DOOR, "door_state": 0}, TOGGLE, {"door_state": 1}),
    "toggle from afar": ({"agent_row": 4, "agent_col": 5}, TOGGLE, {}),
    "toggle from the next row": ({"agent_row": 3, "agent_col": 6}, TOGGLE, {}),
    "toggle of a locked door": ({**AT_DOOR, "door_state": 2}, TOGGLE, {}),
    "toggle with the wrong object": ({**AT_DOOR, **BALL_IN_HAND, "ball_colour": 2, "carried_colour": 2,
                                      "door_state": 2}, TOGGLE, {}),
    "toggle with another key": ({**AT_DOOR, **KEY_IN_HAND, "key_colour": 3, "carried_colour": 3, "door_state": 2},
                                TOGGLE, {}),
    "toggle with the key": ({**AT_DOOR, **KEY_IN_HAND, "door_state": 2}, TOGGLE, {"door_state": 0}),
}  # fmt: skip


@pytest.mark.parametrize("name", STEPS)
def test_a_step_typed_by_hand_is_right_in_kernel_and_simulator(name: str) -> None:
    before, action, change = STEPS[name]
    start, expected = row(**before), row(**{**before, **change})
    value = fields(np.array([start], np.float32)).value
    assert kernel.step(value, np.array([action]))[:, 0].tolist() == expected
    world = World()
    assert world.restore(start) == 0
    world.act(action)
    assert world.row() == expected


def test_step_leaves_its_input_alone_and_rebuilds_the_carried_slot() -> None:
    value = fields(np.array([row(carried_type=7, carried_colour=3)], np.float32)).value
    kept = value.copy()
    after = kernel.step(value, np.array([UP]))
    assert (value == kept).all()
    assert after[15:, 0].tolist() == [0, 0]


def test_rows_of_a_large_batch_do_not_depend_on_their_place(crowded_rows) -> None:
    rng = np.random.default_rng(3)
    rows, action = crowded_rows(2 * kernel.CHUNK + 77, rng), rng.integers(0, 7, 2 * kernel.CHUNK + 77)
    value = fields(rows).value
    order = rng.permutation(len(rows))
    assert (kernel.step(value, action)[:, order] == kernel.step(value[:, order], action[order])).all()
    shuffled = kernel.takeable(fields(rows[order]))
    assert (kernel.takeable(fields(rows))[order] == shuffled).all()


def test_actions_that_are_none_of_the_seven_become_minus_one() -> None:
    given = np.array([0, 6, 7, -1, 2.5, np.nan, np.inf, 256, 262])
    assert kernel.actions(given).tolist() == [0, 6, -1, -1, -1, -1, -1, -1, -1]
    assert kernel.actions(np.array([[3], [300]], np.int64)).tolist() == [3, -1]


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({}, ""),
        ({"carried_type": 9, "carried_colour": 5}, ""),
        ({"ball_row": np.nan}, "non_finite"),
        ({"carried_colour": np.inf}, "non_finite"),
        ({"box_col": 2.5}, "not_integer"),
        ({"door_colour": 6}, "out_of_range"),
        ({"door_state": 3}, "out_of_range"),
        ({"door_col": 6}, "out_of_range"),
        ({"door_row": 0}, "out_of_range"),
        ({"agent_col": 7}, "out_of_range"),
        ({"agent_row": 0}, "out_of_range"),
        ({"key_row": 7}, "out_of_range"),
        ({"key_col": 300}, "out_of_range"),
        ({"key_row": -1}, "out_of_range"),
        ({"ball_row": 0}, "half_carried"),
        ({"ball_row": 0, "ball_col": 0, "key_row": 0, "key_col": 0}, "two_carried"),
        ({"ball_row": 3, "ball_col": 5}, "overlap"),
        ({"key_row": 2, "key_col": 2}, "overlap"),
        ({"key_row": 3, "key_col": 5}, "overlap"),
    ],
)
def test_a_row_that_cannot_be_taken_on_says_why(changes: dict[str, float], code: str) -> None:
    given = row(**changes)
    assert kernel.CODES[kernel.takeable(fields(np.array([given])))[0]] == code
    assert kernel.CODES[World().restore(given)] == code


def _agree(rows, rng: np.random.Generator) -> dict[str, int]:
    """Step every row in both; assert equality of codes and rows, and count what happened."""
    decoded = fields(rows)
    action = rng.choice(7, len(rows), p=[0.1, 0.1, 0.1, 0.2, 0.2, 0.2, 0.1])
    code = kernel.takeable(decoded)
    after = kernel.step(decoded.value, action)
    world = World()
    simulated = np.zeros_like(after)
    refused = np.zeros(len(rows), np.int8)
    for i, (given, chosen) in enumerate(zip(rows.tolist(), action.tolist(), strict=True)):
        refused[i] = world.restore(given)
        if not refused[i]:
            world.act(chosen)
            simulated[:, i] = world.row()
    assert (refused == code).all()
    fine = code == 0
    assert (simulated[:, fine] == after[:, fine]).all()
    before, after, action = decoded.value[:, fine], after[:, fine], action[fine]
    held, held_after = (before[[1, 4, 7]] == 0).any(axis=0), (after[[1, 4, 7]] == 0).any(axis=0)
    happened = {kernel.CODES[number]: int((code == number).sum()) for number in range(1, 7)}
    happened |= {
        f"moved {a}": int(((action == a) & (before[13:15] != after[13:15]).any(axis=0)).sum()) for a in range(7)
    }
    happened |= {
        f"blocked {a}": int(((action == a) & (before[13:15] == after[13:15]).all(axis=0)).sum()) for a in range(7)
    }
    happened |= {"picked up": int((~held & held_after).sum()), "dropped": int((held & ~held_after).sum())}
    happened |= {"refused drop": int((held & held_after & (action == DROP)).sum())}
    for old in range(3):
        for new in range(3):
            happened[f"door {old}{new}"] = int(((action == TOGGLE) & (before[12] == old) & (after[12] == new)).sum())
    return happened


EXPECTED = {
    *(f"moved {a}" for a in (LEFT, RIGHT, UP, DOWN)), *(f"blocked {a}" for a in range(7)),
    "picked up", "dropped", "refused drop", "door 01", "door 10", "door 20", "door 22", "door 00", "door 11",
    "non_finite", "not_integer", "out_of_range", "half_carried", "two_carried", "overlap",
}  # fmt: skip


def _agree_on(n: int, seed: int, *samplers) -> None:
    rng = np.random.default_rng(seed)
    total: dict[str, int] = {}
    chunk = 4_000
    for _ in range(-(-n // chunk)):
        share = chunk // len(samplers)
        rows = np.concatenate([sampler(share, rng) for sampler in samplers])
        for name, count in _agree(rows, rng).items():
            total[name] = total.get(name, 0) + count
    assert {name for name, count in total.items() if count} == EXPECTED
    assert min(total[name] for name in EXPECTED) >= 50
    refusals = sum(total[name] for name in kernel.CODES[1:7])
    assert n - refusals > n * 5 // 7


def test_kernel_equals_minigrid_on_random_steps(crowded_rows, walked_rows, broken_rows) -> None:
    _agree_on(140_000, 11, crowded_rows, walked_rows, walked_rows, broken_rows)


@pytest.mark.slow
def test_kernel_equals_minigrid_on_a_million_random_steps(crowded_rows, walked_rows, broken_rows) -> None:
    _agree_on(1_400_000, 12, crowded_rows, walked_rows, walked_rows, broken_rows)  # at least 10^6 can be stepped
