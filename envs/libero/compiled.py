"""The kernel's inner loop, compiled by numba and free of the interpreter lock. Imported only when a rollout is played.

MuJoCo's functions are called at their addresses in the library, through plain numbers: compiled code that holds
pointers cannot be cached. The torque is that of `controller`, by Cholesky factors of the small matrices.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numpy as np
from llvmlite import ir  # type: ignore[import-not-found, import-untyped, unused-ignore]  # of the extra
from numba import njit, types  # type: ignore[import-not-found, import-untyped, unused-ignore]
from numba.extending import intrinsic  # type: ignore[import-not-found, import-untyped, unused-ignore]

from qualcheck.envs.libero.controller import (
    DAMPING,
    FINGER_CENTRE_M,
    FINGER_HALF_M,
    GRIPPER_STEP,
    RESET_DAMPING,
    RESET_STIFFNESS,
    STEP_M,
    STEP_RAD,
    STIFFNESS,
    TORQUE_LIMIT_NM,
)
from qualcheck.envs.libero.layout import ARM, QVEL_SIZE, RESET_JOINTS, SUBSTEPS
from qualcheck.types import AnyArray, FloatArray

F = TypeVar("F", bound=Callable[..., Any])


def compiled(function: F) -> F:
    """The function compiled, kept on disk where a folder for that can be written."""
    try:
        return cast(F, njit(nogil=True, cache=True)(function))
    except RuntimeError:  # numba found no such folder
        return cast(F, njit(nogil=True)(function))


def _call_typed(_context: Any, address: Any, model: Any, data: Any) -> Any:  # noqa: ARG001  # numba reads the arity
    """`void f(model, data)` at an address, all three as whole numbers."""

    def generate(context: Any, builder: Any, _signature: Any, args: Any) -> Any:
        word = ir.IntType(64)
        place = builder.inttoptr(args[0], ir.FunctionType(ir.VoidType(), [word, word]).as_pointer())
        builder.call(place, [args[1], args[2]])
        return context.get_dummy_value()

    return types.void(types.uint64, types.uint64, types.uint64), generate


call = cast(Callable[[int, int, int], None], intrinsic(_call_typed))


@compiled
def factor(matrix: FloatArray, size: int) -> bool:
    """Lower Cholesky factor in place; False where the matrix is not positive definite."""
    for i in range(size):
        for j in range(i + 1):
            rest = matrix[i, j]
            for k in range(j):
                rest -= matrix[i, k] * matrix[j, k]
            if i > j:
                matrix[i, j] = rest / matrix[j, j]
            elif rest > 0.0:
                matrix[i, i] = np.sqrt(rest)
            else:
                return False
    return True


@compiled
def solve(lower: FloatArray, vector: FloatArray, size: int) -> None:
    """Solution of (L L') x = vector, in place."""
    for i in range(size):
        for k in range(i):
            vector[i] -= lower[i, k] * vector[k]
        vector[i] /= lower[i, i]
    for i in range(size - 1, -1, -1):
        for k in range(i + 1, size):
            vector[i] -= lower[k, i] * vector[k]
        vector[i] /= lower[i, i]


@compiled
def turn_goal(by: FloatArray, turn: AnyArray, goal: FloatArray) -> None:
    """`controller.turned` into `goal`, (3,) and (9,) -> (9,)."""
    angle = np.sqrt(by[0] * by[0] + by[1] * by[1] + by[2] * by[2])
    quat = np.empty(4, np.float32)
    quat[0] = np.cos(angle / 2.0)
    for i in range(3):
        quat[1 + i] = by[i] / angle * np.sin(angle / 2.0)
    length = 0.0
    for i in range(4):
        length += np.float64(quat[i] * quat[i])  # products single, sum double: what OpenBLAS makes of a short dot
    grown = np.sqrt(2.0 / np.float64(np.float32(length)))
    for i in range(4):
        quat[i] = np.float32(np.float64(quat[i]) * grown)
    w, x, y, z = quat[0], quat[1], quat[2], quat[3]
    rotation = np.empty((3, 3))
    rotation[0, 0] = 1.0 - np.float64(y * y) - np.float64(z * z)
    rotation[1, 1] = 1.0 - np.float64(x * x) - np.float64(z * z)
    rotation[2, 2] = 1.0 - np.float64(x * x) - np.float64(y * y)
    rotation[0, 1], rotation[1, 0] = np.float32(x * y - w * z), np.float32(x * y + w * z)
    rotation[0, 2], rotation[2, 0] = np.float32(x * z + w * y), np.float32(x * z - w * y)
    rotation[1, 2], rotation[2, 1] = np.float32(y * z - w * x), np.float32(y * z + w * x)
    for i in range(3):
        for j in range(3):
            goal[3 * i + j] = rotation[i, 0] * turn[j] + rotation[i, 1] * turn[3 + j] + rotation[i, 2] * turn[6 + j]


@compiled
def arm_torque(
    joints: AnyArray,  # (7,) rad
    speed: AnyArray,  # (7,) rad/s
    position: AnyArray,  # (3,) m, of the hand
    turn: AnyArray,  # (9,) of the hand
    axis: AnyArray,  # (7, 3) of the joints
    anchor: AnyArray,  # (7, 3) m, of the joints
    inertia: AnyArray,  # MuJoCo's sparse mass matrix
    diagonal: AnyArray,  # (7,) where its rows begin, which run from a joint towards the base
    bias: AnyArray,  # (7,) Nm
    goal_position: FloatArray,  # (3,) m
    goal_turn: FloatArray,  # (9,)
    out: FloatArray,  # (7,) Nm
) -> bool:
    """`controller.torque` into `out`; False (and zeros) where the arm is singular or not a number."""
    jacobian = np.empty((6, ARM))
    mass = np.empty((ARM, ARM))
    for i in range(ARM):
        x, y, z = position[0] - anchor[i, 0], position[1] - anchor[i, 1], position[2] - anchor[i, 2]
        jacobian[0, i] = axis[i, 1] * z - axis[i, 2] * y
        jacobian[1, i] = axis[i, 2] * x - axis[i, 0] * z
        jacobian[2, i] = axis[i, 0] * y - axis[i, 1] * x
        for k in range(3):
            jacobian[3 + k, i] = axis[i, k]
        for j in range(i + 1):
            mass[i, j] = mass[j, i] = inertia[diagonal[i] + i - j]
    lower = mass.copy()
    out[:] = 0.0
    if not factor(lower, ARM):
        return False
    eased = np.empty((6, ARM))  # rows of (M^-1 J')'
    mobility = np.empty((6, 6))
    for k in range(6):
        eased[k] = jacobian[k]
        solve(lower, eased[k], ARM)
    for i in range(6):
        for j in range(6):
            mobility[i, j] = 0.0
            for k in range(ARM):
                mobility[i, j] += jacobian[i, k] * eased[j, k]
    pull = np.empty(ARM)
    for i in range(ARM):
        pull[i] = RESET_STIFFNESS * (RESET_JOINTS[i] - joints[i]) - RESET_DAMPING * speed[i]
    wanted = np.empty(6)
    pulled = np.empty(6)
    for k in range(3):
        wanted[k] = STIFFNESS * (goal_position[k] - position[k])
    for k in range(3):
        one, two = (k + 1) % 3, (k + 2) % 3
        error = 0.0
        for column in range(3):
            error += turn[3 * one + column] * goal_turn[3 * two + column]
            error -= turn[3 * two + column] * goal_turn[3 * one + column]
        wanted[3 + k] = STIFFNESS * 0.5 * error
    for k in range(6):
        moving = 0.0
        pulled[k] = 0.0
        for i in range(ARM):
            moving += jacobian[k, i] * speed[i]
            pulled[k] += jacobian[k, i] * pull[i]
        wanted[k] -= DAMPING * moving
    shift, twist = mobility[:3, :3].copy(), mobility[3:, 3:].copy()
    if not (factor(shift, 3) and factor(twist, 3) and factor(mobility, 6)):
        return False
    solve(shift, wanted[:3], 3)
    solve(twist, wanted[3:], 3)
    solve(mobility, pulled, 6)
    for i in range(ARM):
        total = bias[i]
        for k in range(6):
            total += jacobian[k, i] * (wanted[k] - pulled[k])
        for j in range(ARM):
            total += mass[i, j] * pull[j]
        out[i] = min(max(total, -TORQUE_LIMIT_NM[i]), TORQUE_LIMIT_NM[i])
    return True


@compiled
def play(
    step1: int,  # address of mj_step1
    step2: int,  # address of mj_step2
    model: int,  # address
    data: int,  # address
    qpos: AnyArray,  # this and the following to `mark` are views on the data behind that address
    qvel: AnyArray,
    control: AnyArray,
    warm_start: AnyArray,
    position: AnyArray,  # (3,) of the hand
    turn: AnyArray,  # (9,) of the hand
    axis: AnyArray,
    anchor: AnyArray,
    inertia: AnyArray,
    bias: AnyArray,
    mark: AnyArray,  # (1,) wiped by MuJoCo when it resets itself
    body_position: AnyArray,  # (bodies, 3)
    body_turn: AnyArray,  # (bodies, 4)
    diagonal: AnyArray,  # (7,)
    bodies: AnyArray,  # (5,) hand, then the objects in row order
    rows: FloatArray,  # (T, 37) positions shown before each action
    follow: AnyArray,  # (T,) whether to take them on
    action: FloatArray,  # (T, 7) finite
    sample_after: int,  # substeps
    hidden: FloatArray,  # (43,) before the first action; afterwards that after the last
    before: FloatArray,  # (T, 43) out: hidden state before each action
    ends: FloatArray,  # (T, 44) out: rows after each action
    sound: AnyArray,  # (T,) out: whether MuJoCo and the controller could do it
) -> None:
    """One rollout, action by action; the arrays marked out are filled."""
    qvel[:] = hidden[:QVEL_SIZE]
    gripper = hidden[QVEL_SIZE]
    goal_turn = hidden[QVEL_SIZE + 1 :].copy()
    goal_position = np.empty(3)
    torque = np.empty(ARM)
    by = np.empty(3)
    known = False  # where things are: lost when MuJoCo gives up, until the next row is taken on
    for t in range(len(action)):
        before[t, :QVEL_SIZE] = qvel
        before[t, QVEL_SIZE] = gripper
        before[t, QVEL_SIZE + 1 :] = goal_turn
        if follow[t]:
            qpos[:] = rows[t]
            known = True
        warm_start[:] = 0.0  # so that an end row depends on the hidden state alone
        mark[0] = 1.0
        closing = np.sign(action[t, 6])
        for substep in range(SUBSTEPS):
            call(step1, model, data)
            if substep == 0:
                for k in range(3):
                    goal_position[k] = position[k] + STEP_M * min(max(action[t, k], -1.0), 1.0)
                    by[k] = STEP_RAD * min(max(action[t, 3 + k], -1.0), 1.0)
                if by[0] != 0.0 or by[1] != 0.0 or by[2] != 0.0:
                    turn_goal(by, turn, goal_turn)
            known &= arm_torque(
                qpos, qvel, position, turn, axis, anchor, inertia, diagonal, bias, goal_position, goal_turn, torque
            )
            gripper = min(max(gripper + GRIPPER_STEP * closing, -1.0), 1.0)
            control[:ARM] = torque
            control[ARM] = FINGER_CENTRE_M - FINGER_HALF_M * gripper
            control[ARM + 1] = FINGER_HALF_M * gripper - FINGER_CENTRE_M
            call(step2, model, data)
            if substep + 1 == sample_after:
                # poses are one substep older than the joints here, as they are in the benchmark's rows
                ends[t, :ARM] = qpos[:ARM]
                ends[t, 7:10] = position
                ends[t, 14:16] = qpos[ARM : ARM + 2]
                for b in range(len(bodies)):
                    first = 7 if b == 0 else 9 + 7 * b
                    if b > 0:
                        ends[t, first : first + 3] = body_position[bodies[b]]
                    ends[t, first + 3 : first + 6] = body_turn[bodies[b], 1:]
                    ends[t, first + 6] = body_turn[bodies[b], 0]
        known &= mark[0] == 1.0
        sound[t] = known
    hidden[:QVEL_SIZE] = qvel
    hidden[QVEL_SIZE] = gripper
    hidden[QVEL_SIZE + 1 :] = goal_turn
