"""The controller by hand, and its compiled twin against it."""

from __future__ import annotations

import numpy as np
import pytest

from qualcheck.envs.libero import controller
from qualcheck.envs.libero.controller import ArmState, finger_targets, goals, gripper_after, scaled, torque, turned
from qualcheck.envs.libero.layout import HIDDEN, HIDDEN_SIZE, RESET_JOINTS, ROW_OF_QPOS, qpos_of

UNTURNED = np.eye(3)


def arm(rng: np.random.Generator, joints: np.ndarray = RESET_JOINTS, speed: float = 0.0) -> ArmState:
    """An arm with seven axes and anchors at random; mass matrix positive definite."""
    axes, anchors = rng.normal(size=(7, 3)), rng.normal(size=(7, 3))
    axes /= np.linalg.norm(axes, axis=1, keepdims=True)
    root = rng.normal(size=(7, 7))
    jacobian = np.concatenate([np.cross(axes, 0.0 - anchors).T, axes.T])
    return ArmState(
        joints, speed * rng.normal(size=7), np.zeros(3), UNTURNED, jacobian, root @ root.T + np.eye(7), np.zeros(7)
    )


def test_an_action_asks_for_5_cm_and_half_a_radian_and_no_more() -> None:
    action = np.array([1, -1, 0.5, 3, -7, 0.1, 1], np.float32)
    np.testing.assert_allclose(scaled(action), [0.05, -0.05, 0.025, 0.5, -0.5, 0.05], atol=1e-9)


def test_a_quarter_turn_about_z_takes_x_to_y() -> None:
    by = np.array([0.0, 0.0, np.pi / 2])
    np.testing.assert_allclose(turned(by, UNTURNED), [[0, -1, 0], [1, 0, 0], [0, 0, 1]], atol=3e-7)
    # in the world, not in the hand's own frame
    np.testing.assert_allclose(
        turned(by, turned(np.array([np.pi / 2, 0, 0]), UNTURNED)), [[0, 0, 1], [1, 0, 0], [0, 1, 0]], atol=3e-7
    )


def test_the_goal_of_the_turn_stays_only_where_no_rotation_is_asked_for() -> None:
    state, old = arm(np.random.default_rng(0)), np.diag([1.0, -1.0, -1.0])
    position, turn = goals(np.array([1.0, 0, 0, 0, 0, 0, -1]), state, old)
    np.testing.assert_allclose(position, [0.05, 0, 0])
    assert np.array_equal(turn, old)
    _, turn = goals(np.array([0, 0, 0, 0, 1e-9, 0, 0]), state, old)
    np.testing.assert_allclose(turn, UNTURNED, atol=1e-6)


def test_an_arm_at_its_goal_in_the_reset_pose_is_only_held_against_gravity() -> None:
    state = arm(np.random.default_rng(1))._replace(bias=np.arange(7.0))
    np.testing.assert_allclose(torque(state, np.zeros(3), UNTURNED), np.arange(7.0), atol=1e-12)


def test_the_torque_accelerates_the_hand_along_the_error_and_stops_at_the_motors_limits() -> None:
    state = arm(np.random.default_rng(2))
    goal = np.array([1e-4, 0.0, 0.0])
    # with the coupling to the turn taken out the hand is accelerated by kp times the error alone
    jacobian = state.jacobian.copy()
    jacobian[3:, :4] = jacobian[:3, 4:] = 0.0  # four joints shift, three turn
    apart = state._replace(jacobian=jacobian, mass=np.diag(np.arange(1.0, 8.0)))
    moved = jacobian @ np.linalg.solve(apart.mass, torque(apart, goal, UNTURNED))
    np.testing.assert_allclose(moved, [0.015, 0, 0, 0, 0, 0], atol=1e-12)
    hard = torque(state, np.full(3, 1e3), UNTURNED)
    np.testing.assert_allclose(np.abs(hard), controller.TORQUE_LIMIT_NM)


def test_the_gripper_takes_four_actions_from_the_centre_to_closed() -> None:
    command, seen = 0.0, []
    for _ in range(5 * 25):
        command = gripper_after(command, 0.2)
        seen.append(command)
    np.testing.assert_allclose(seen[24::25], [0.25, 0.5, 0.75, 1.0, 1.0])
    assert gripper_after(0.3, 0.0) == 0.3
    np.testing.assert_allclose(finger_targets(0.0), [0.02, -0.02])
    np.testing.assert_allclose(finger_targets(1.0), [0.0, 0.0])
    np.testing.assert_allclose(finger_targets(-1.0), [0.04, -0.04])


def test_the_layout_puts_the_quaternion_first_number_first_and_the_basket_second() -> None:
    row = np.arange(44.0)[None].astype(np.float32)
    positions = qpos_of(row)[0]
    assert positions.dtype == np.float64
    assert positions[:9].tolist() == [0, 1, 2, 3, 4, 5, 6, 14, 15]
    assert positions[9:16].tolist() == [16, 17, 18, 22, 19, 20, 21]  # soup
    assert positions[16:23].tolist() == [37, 38, 39, 43, 40, 41, 42]  # basket
    assert positions[30:37].tolist() == [23, 24, 25, 29, 26, 27, 28]  # cream cheese
    assert len(set(ROW_OF_QPOS.tolist())) == 37
    assert len(set(HIDDEN)) == HIDDEN_SIZE == 43


def test_the_compiled_torque_equals_its_twin_and_refuses_a_singular_arm() -> None:
    pytest.importorskip("numba")
    from qualcheck.envs.libero.compiled import arm_torque, turn_goal

    rng = np.random.default_rng(3)
    diagonal = np.cumsum([0, *range(1, 7)])  # a chain: row i has i + 1 numbers
    worst, free = 0.0, 0
    for _ in range(100):
        axes, anchors = rng.normal(size=(7, 3)), rng.normal(size=(7, 3))
        state = arm(rng, RESET_JOINTS + 0.01 * rng.normal(size=7), 0.001)
        position, old = rng.normal(size=3), turned(rng.normal(size=3), UNTURNED)
        jacobian = np.concatenate([np.cross(axes, position - anchors).T, axes.T])
        state = state._replace(
            position=position, turn=old, jacobian=jacobian, mass=0.1 * state.mass, bias=rng.normal(size=7)
        )
        action = rng.uniform(-0.02, 0.02, 7)
        goal, turn = goals(action, state, old)
        compiled_turn = np.empty(9)
        turn_goal(scaled(action)[3:], old.ravel(), compiled_turn)
        np.testing.assert_allclose(compiled_turn, turn.ravel(), atol=3e-7)
        inertia = np.concatenate([state.mass[i, i::-1] for i in range(7)])
        found = np.empty(7)
        read = (state.joints, state.speed, position, old.ravel(), axes, anchors, inertia, diagonal, state.bias, goal)
        assert arm_torque(*read, turn.ravel(), found)
        expected = torque(state, goal, turn)
        free += bool((np.abs(expected) < controller.TORQUE_LIMIT_NM).all())
        worst = max(worst, float(np.abs(found - expected).max()))
        assert arm_torque(*read, old.ravel(), found)
        assert np.abs(found - expected).max() > 1e-3  # another goal is another torque
    assert worst < 1e-9
    assert free > 50  # the limits hide nothing
    flat = np.zeros((7, 3))
    assert not arm_torque(*read[:4], flat, *read[5:], turn.ravel(), found)
    assert not found.any()
