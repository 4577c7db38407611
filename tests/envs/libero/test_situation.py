"""Which situation a transition is in, what is trusted, and what two rows tell of velocities."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from qualcheck.envs.libero import filter as sequential
from qualcheck.envs.libero import situation
from qualcheck.envs.libero.columns import BODY_FIRST, faced
from qualcheck.envs.libero.layout import GRIPPER, HIDDEN, HIDDEN_SIZE
from qualcheck.types import Rollouts

CREAM = [0.05, -0.1, 0.15]


def hidden(**values: float) -> Any:
    """A hidden state at rest with an open gripper but for the numbers named."""
    state = np.zeros(HIDDEN_SIZE)
    state[GRIPPER] = -1.0
    for name, value in values.items():
        state[HIDDEN.index(name)] = value
    return state


def kind(row: Any, state: Any, starting: bool = False) -> str:
    found = situation.classify(row[None], state[None], np.array([starting]))
    assert found.dtype == np.int8
    return situation.SITUATIONS[found[0]]


def test_each_situation_is_told_from_the_row_and_the_carried_state(row: Callable[..., Any]) -> None:
    held = row(hand=CREAM, cream_cheese=CREAM)
    assert kind(row(), hidden()) == "free"
    assert kind(row(), hidden(), starting=True) == "start"
    assert kind(row(hand=[-0.15, 0.06, 0.1]), hidden()) == "near"  # 9 cm above the cream cheese
    assert kind(row(), hidden(alphabet_soup_z_m_s=-0.5)) == "contact"  # something falls
    assert kind(row(), hidden(basket_x_rad_s=0.5)) == "contact"
    assert kind(held, hidden(gripper_command=1.0, cream_cheese_x_m_s=0.2)) == "grasp"


@pytest.mark.parametrize(
    "change",
    [
        {"gripper_command": 0.5},  # not closed yet
        {"finger1_m_s": 0.02},  # still closing
        {"cream_cheese_x_rad_s": 3.0},  # slipping
        {"alphabet_soup_x_m_s": 0.1},  # another object is knocked about
    ],
)
def test_a_hold_that_is_not_firm_is_no_grasp(change: dict[str, float], row: Callable[..., Any]) -> None:
    held = row(hand=CREAM, cream_cheese=CREAM)
    state = {"gripper_command": 1.0, "cream_cheese_x_m_s": 0.2}
    assert kind(held, hidden(**state)) == "grasp"
    assert kind(held, hidden(**(state | change))) == "contact"
    aside = row(hand=CREAM, cream_cheese=[0.05, -0.1, 0.19])  # 4 cm below the hand
    assert kind(aside, hidden(**state)) == "contact"


def test_a_bottle_is_held_at_its_neck(row: Callable[..., Any]) -> None:
    state = hidden(gripper_command=1.0, salad_dressing_z_m_s=0.2)
    assert kind(row(hand=[0.05, -0.1, 0.35], salad_dressing=[0.05, -0.1, 0.30]), state) == "grasp"
    assert kind(row(hand=[0.05, -0.1, 0.38], salad_dressing=[0.05, -0.1, 0.30]), state) == "contact"


def test_rows_that_are_no_rows_have_some_situation(row: Callable[..., Any]) -> None:
    bad = np.stack([row(), row(), row()])
    bad[0, 7], bad[1, 16], bad[2, 20] = np.nan, np.inf, 1e300
    found = situation.classify(bad, np.tile(hidden(), (3, 1)), np.zeros(3, bool))
    assert found.shape == (3,)
    assert ((found >= 0) & (found < situation.UNSETTLED)).all()
    assert situation.classify(bad[:0], np.zeros((0, HIDDEN_SIZE)), np.zeros(0, bool)).shape == (0,)


def test_starts_with_the_hand_at_an_object_begin_in_motion(row: Callable[..., Any]) -> None:
    rows = np.stack([row(), row(hand=[-0.15, 0.06, 0.02]), row(hand=[np.nan, 0, 0])])
    assert situation.starts_in_motion(rows).tolist() == [False, True, False]


def test_errors_are_taken_by_unit_and_trusted_by_situation(row: Callable[..., Any]) -> None:
    end, shown = np.tile(row(), (4, 1)), np.tile(row(), (4, 1))
    end[1, 3] += 0.002  # rad
    end[2, 25] -= 0.02  # m, cream cheese
    end[3, 41] += np.nan
    error = situation.block_errors(end, shown)
    np.testing.assert_allclose(error[:3], [[0, 0, 0], [0.002, 0, 0], [0, 0.02, 0]], atol=1e-12)
    free, no_slack = np.full(4, situation.FREE), np.zeros(4)
    assert situation.trusted(error, free, no_slack).tolist() == [True, True, False, False]
    assert situation.trusted(error, free, np.full(4, 0.05)).tolist() == [True, True, True, False]
    smaller = np.array([[0.0, 0.003, 0.0]])
    assert not situation.trusted(smaller, np.array([situation.FREE]), np.zeros(1))[0]
    assert situation.trusted(smaller, np.array([situation.CONTACT]), np.zeros(1))[0]


def test_two_rows_tell_velocities_whatever_the_signs_of_their_quaternions(row: Callable[..., Any]) -> None:
    half = 0.1 / 2  # rad about the body's own z axis, in 0.05 s
    turned = [np.sin(half), 0.0, np.cos(half), 0.0]  # of the cream cheese, whose turn is 0, 0, 1, 0 at first
    first = row()
    then = row(cream_cheese=[-0.149, 0.06, 0.0089, *turned])
    then[0] += 0.01
    then[15] -= 0.001
    expected = np.zeros(33)
    expected[0], expected[8] = 0.2, -0.02
    expected[HIDDEN.index("cream_cheese_x_m_s")] = 0.02
    found = sequential.differences(first[None], then[None])[0]
    spin = slice(HIDDEN.index("cream_cheese_x_rad_s"), HIDDEN.index("cream_cheese_x_rad_s") + 3)
    assert np.linalg.norm(found[spin]) == pytest.approx(2.0)
    assert np.abs(found[spin]).max() == pytest.approx(2.0)  # about one axis
    expected[spin] = found[spin]
    np.testing.assert_allclose(found, expected, atol=1e-9)
    then[26:30] *= -1
    np.testing.assert_allclose(sequential.differences(first[None], then[None])[0], expected, atol=1e-9)


def test_quaternions_are_faced_the_way_of_other_rows(row: Callable[..., Any]) -> None:
    rows, like = np.tile(row(), (2, 1)), np.tile(row(), (2, 1))
    soup = slice(BODY_FIRST["alphabet_soup"] + 3, BODY_FIRST["alphabet_soup"] + 7)
    like[0, soup] *= -1
    like[1, soup] = np.nan
    found, signs = faced(rows, like)
    assert signs.tolist() == [[1, -1, 1, 1, 1], [1, 1, 1, 1, 1]]
    np.testing.assert_array_equal(found[0, soup], like[0, soup])
    np.testing.assert_array_equal(found[1], rows[1])


def test_the_last_decimal_of_rounded_rows_is_found(maker: Callable[..., Rollouts], row: Callable[..., Any]) -> None:
    rng = np.random.default_rng(0)
    rows = row() + rng.uniform(0, 0.01, (4, 44))
    action = np.zeros((3, 7))
    rollouts = maker([(rows, action), (np.round(rows, 3), action), (np.round(rows, 2).astype(np.float32), action)])
    found = sequential.rounding_of(rollouts, np.ones(len(rollouts.obs), bool))
    np.testing.assert_allclose(found, [0.0, 1e-3, 1e-2])
