"""The arm's operational-space controller and the gripper's in plain numpy: the witness of the compiled kernel.

With J the 6 x 7 Jacobian of the hand, M the arm's 7 x 7 mass matrix, e the error of position and turn,

    F_i = (J_i M^-1 J_i')^-1 (kp e_i - kd J_i q')          i = position, turn (each for itself)
    a   = k0 (q_reset - q) - 2 sqrt(k0) q'                  the pull towards the reset pose
    tau = J' F + (M a - J' (J M^-1 J')^-1 J a) + bias       (Khatib 1987; the middle term is a's nullspace part)

Source: OSC_POSE of robosuite 1.4.0 with its default settings, fixed impedance, position and turn uncoupled.
"""

from __future__ import annotations

from typing import NamedTuple

import mujoco
import numpy as np

from qualcheck.envs.libero.layout import ARM, HAND_SITE, RESET_JOINTS
from qualcheck.types import AnyArray, FloatArray

STIFFNESS = 150.0  # 1/s^2
DAMPING = 2 * np.sqrt(STIFFNESS)  # 1/s, critical
RESET_STIFFNESS = 10.0  # 1/s^2
RESET_DAMPING = 2 * np.sqrt(RESET_STIFFNESS)  # 1/s
TORQUE_LIMIT_NM = np.array([80.0] * 5 + [12.0] * 2)
STEP_M, STEP_RAD = 0.05, 0.5  # what an action of 1 asks for
GRIPPER_STEP = 0.01  # change of the gripper's command in a substep
FINGER_CENTRE_M = FINGER_HALF_M = 0.02


class ArmState(NamedTuple):
    """What the controller reads off the simulator."""

    joints: FloatArray  # (7,) rad
    speed: FloatArray  # (7,) rad/s
    position: FloatArray  # (3,) m, of the hand
    turn: FloatArray  # (3, 3) of the hand
    jacobian: FloatArray  # (6, 7) position, then turn
    mass: FloatArray  # (7, 7) kg m^2
    bias: FloatArray  # (7,) Nm, gravity and Coriolis


def arm_state(model: mujoco.MjModel, data: mujoco.MjData) -> ArmState:
    """The arm as MuJoCo's own functions give it; `data` is fresh (after mj_step1 or mj_forward)."""
    site = model.site(HAND_SITE).id
    jacobian = np.zeros((6, model.nv))
    mujoco.mj_jacSite(model, data, jacobian[:3], jacobian[3:], site)
    mass = np.zeros((model.nv, model.nv))
    mujoco.mj_fullM(model, mass, data.qM)
    return ArmState(
        data.qpos[:ARM].copy(),
        data.qvel[:ARM].copy(),
        data.site_xpos[site].copy(),
        data.site_xmat[site].reshape(3, 3).copy(),
        jacobian[:, :ARM],
        mass[:ARM, :ARM],
        data.qfrc_bias[:ARM].copy(),
    )


def scaled(action: AnyArray) -> FloatArray:
    """Displacement and turn that an action asks for, (7,) -> (6,) m and rad; beyond 1 it counts as 1."""
    wanted: FloatArray = np.clip(action[:6].astype(np.float64), -1.0, 1.0)
    wanted *= np.repeat([STEP_M, STEP_RAD], 3)
    return wanted


def turned(by: FloatArray, turn: FloatArray) -> FloatArray:
    """A rotation matrix after a further turn about an axis, (3,) rad and (3, 3) -> (3, 3).

    robosuite keeps the quaternion of the turn in single precision, which the torque shows at 1e-6 Nm.
    """
    angle = np.sqrt(by @ by)
    quat = np.array([np.cos(angle / 2), *(by / angle * np.sin(angle / 2))]).astype(np.float32)
    quat = (quat * np.sqrt(2.0 / float(quat @ quat))).astype(np.float32)
    w, x, y, z = np.outer(quat, quat)  # (4, 4) float32
    rotation = np.array(
        [
            [1.0 - float(y[2]) - float(z[3]), x[2] - w[3], x[3] + w[2]],
            [x[2] + w[3], 1.0 - float(x[1]) - float(z[3]), y[3] - w[1]],
            [x[3] - w[2], y[3] + w[1], 1.0 - float(x[1]) - float(y[2])],
        ]
    )
    return rotation @ turn


def goals(action: AnyArray, state: ArmState, goal_turn: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Where the hand is to go, (3,) m, and how it is to be turned, (3, 3).

    An action whose three rotations are exactly 0 leaves the earlier goal of the turn as it is.
    """
    wanted = scaled(action)
    turns = turned(wanted[3:], state.turn) if wanted[3:].any() else goal_turn
    return state.position + wanted[:3], turns


def torque(state: ArmState, goal_position: FloatArray, goal_turn: FloatArray) -> FloatArray:
    """Torque of the seven joints, (7,) Nm, within the motors' limits."""
    jacobian, mass = state.jacobian, state.mass
    turn_error = np.cross(state.turn, goal_turn, axis=0).sum(axis=1) / 2  # (3,) column by column
    error = np.concatenate([goal_position - state.position, turn_error])
    wanted = STIFFNESS * error - DAMPING * (jacobian @ state.speed)  # (6,)
    mobility = jacobian @ np.linalg.solve(mass, jacobian.T)  # (6, 6)
    force = np.concatenate([np.linalg.solve(mobility[part, part], wanted[part]) for part in (slice(3), slice(3, 6))])
    pull = RESET_STIFFNESS * (RESET_JOINTS - state.joints) - RESET_DAMPING * state.speed  # (7,)
    force -= np.linalg.solve(mobility, jacobian @ pull)
    asked: FloatArray = jacobian.T @ force + mass @ pull + state.bias
    return np.clip(asked, -TORQUE_LIMIT_NM, TORQUE_LIMIT_NM, out=asked)


def gripper_after(command: float, action: float) -> float:
    """The gripper's command one substep later: it creeps towards closed (1) or open (-1), or stays."""
    return float(np.clip(command + GRIPPER_STEP * np.sign(action), -1.0, 1.0))


def finger_targets(command: float) -> FloatArray:
    """What the two finger motors are asked for, (2,) m."""
    return np.array([1.0, -1.0]) * (FINGER_CENTRE_M - FINGER_HALF_M * command)
