"""What a row says about the simulator's state: poses of the objects, the fingers, and an arm that puts the hand there.

A row shows the hand's place but not the seven joints behind it. The arm of the step before, moved along the hand's
Jacobian with the gripper's orientation kept, is the guess; velocities stay as they were carried.
"""

from __future__ import annotations

from dataclasses import dataclass
from threading import Lock

import mujoco
import numpy as np
from scipy.interpolate import RegularGridInterpolator

from qualcheck.envs.metaworld.layout import HAND, LOCK_TASKS, OPENING, SUBSTEPS, TASKS, position, quaternion, wxyz
from qualcheck.envs.metaworld.scene import Joint, Scene, multiply, rotate, scene_key
from qualcheck.types import AnyArray, FloatArray

JUMP_M = 0.03  # the hand never moves so far in a step, contact or not
FULL_OPENING_M = 0.1  # distance of the claws at opening 1, beyond which rows are clipped
_DAMPED = 1e-8 * np.eye(6)  # keeps the least squares of a stretched arm solvable
NEAR_ENOUGH_M = 1e-7  # the rounding of float32 rows
SOFT_LIMIT_RAD = 0.1  # joints really pass their soft limits, the second one by 6 mrad in most episodes
RESET_STEPS = 50
STEPS_ONCE_MORE = ("door-lock",)  # tasks whose reset takes one more step after it has put the furniture
UPRIGHT_MOCAP = (1.0, 0.0, 1.0, 0.0)
CLOSE_START_M = 2e-5
DOOR_X_M, DOOR_Y_M = np.linspace(-0.1, 0.1, 9), np.linspace(0.8, 0.85, 5)  # where a reset puts the lock's door
FAR_DOOR_M = np.array([0.0, 1.5])  # out of the hand's way
_FINE = np.stack(np.meshgrid(np.linspace(-0.1, 0.1, 81), np.linspace(0.8, 0.85, 41), indexing="ij"), -1).reshape(-1, 2)
TURNS = 12  # of Newton's method, enough from anywhere in the workspace
ORIENTATION_WEIGHT = 0.3  # metres a radian: keeping the gripper upright counts as much as a hand 0.3 mm off a mrad


def object_positions(scene: Scene, rows: AnyArray, shift_m: FloatArray) -> FloatArray:
    """The task's own part of qpos that the rows show, NaN where they do not.

    Args:
        rows: (R, 91) with finite blocks of the task.
        shift_m: (3,) of the furniture, from `Scene.set_layout`.

    Returns:
        (R, Q) in the order of `scene.task_q`.
    """
    wide = np.asarray(rows, np.float64)
    out = np.full((len(wide), len(scene.task_q)), np.nan)
    column = {int(q): k for k, q in enumerate(scene.task_q)}
    door = next((joint for joint in scene.joints if scene.modified_door and joint.qpos == scene.task_q[0]), None)
    angle = np.zeros(len(wide))
    if door is not None:
        quat = wxyz("lock", wide[:, quaternion("lock")])
        angle = 2 * np.arctan2(quat[:, 3], quat[:, 0])
        out[:, 0] = angle
    for joint in scene.joints:
        if not joint.entity or joint is door:
            continue
        first = column[joint.qpos]
        if joint.free:
            out[:, first : first + 3] = wide[:, position(joint.entity)]
            out[:, first + 3 : first + 7] = _body_turn(scene, joint, wide)
        else:
            place = wide[:, position(joint.entity)] - shift_m
            if door is not None:
                place = door.pivot + rotate(_about(door.axis, -angle), place - door.pivot)
            out[:, first] = _angle(joint, place) if joint.hinge else (place - joint.marker_at_zero) @ joint.axis
    return out


def _body_turn(scene: Scene, joint: Joint, rows: FloatArray) -> FloatArray:
    k = scene.entities.index(joint.entity)
    turn = scene.turn_of(joint.entity, scene.points[k][2]) * [1.0, -1.0, -1.0, -1.0]
    quat = multiply(wxyz(joint.entity, rows[:, quaternion(joint.entity)]), turn)
    length = np.linalg.norm(quat, axis=1, keepdims=True)
    return np.asarray(quat / np.where(length > 0, length, 1.0))


def _angle(joint: Joint, place: FloatArray) -> FloatArray:
    """The turn about a hinge that brings its marker to where it was seen, (R, 3) -> (R,) rad."""
    zero, now = joint.marker_at_zero - joint.pivot, place - joint.pivot
    across = np.cross(joint.axis, zero)
    return np.asarray(np.arctan2(now @ across, now @ (zero - (zero @ joint.axis) * joint.axis)))


def _about(axis: FloatArray, angle: FloatArray) -> FloatArray:
    half = angle[:, None] / 2
    return np.concatenate([np.cos(half), np.sin(half) * axis], axis=1)


def set_fingers(scene: Scene, opening: float) -> None:
    """Move both fingers alike to the opening of a row; one that is clipped at 1 says only that they are far apart."""
    qpos, right, left = scene.data.qpos, scene.arm_q + 7, scene.arm_q + 8
    fingers = qpos[right : left + 1].tolist()  # numbers of Python: arrays of two take ten times as long
    apart = FULL_OPENING_M - (fingers[0] - fingers[1])  # m
    wanted = FULL_OPENING_M * opening
    if opening >= 1 and apart >= FULL_OPENING_M:
        return
    qpos[right], qpos[left] = fingers[0] + 0.5 * (apart - wanted), fingers[1] - 0.5 * (apart - wanted)


def reach(scene: Scene, hand_m: FloatArray, shown: bool = False) -> float:
    """Turn the seven joints until the hand is at a place, (3,), in the orientation it has; what is left in metres.

    Args:
        shown: the simulator's poses are those of its joints already.
    """
    model, data = scene.model, scene.data
    if not shown:
        mujoco.mj_kinematics(model, data)
    hand, quat = data.xpos[scene.hand], data.xquat[scene.hand]
    error, joints, upright = np.zeros(6), data.qpos[scene.arm_q : scene.arm_q + 7], quat.copy()
    low, high = scene.arm_low - SOFT_LIMIT_RAD, scene.arm_high + SOFT_LIMIT_RAD
    dofs = slice(scene.arm_v, scene.arm_v + 7)
    jacobian, both, pull, back = scene.jacobian, scene.arm_jacobian, np.empty(6), np.empty(4)
    for turn in range(TURNS):
        np.subtract(hand_m, hand, out=error[:3])
        left: float = max(map(abs, error[:3].tolist()))
        if left < NEAR_ENOUGH_M:
            return left
        if turn:  # before the first one the orientation is right
            mujoco.mju_negQuat(back, quat)
            mujoco.mju_mulQuat(back, upright, back.copy())
            mujoco.mju_quat2Vel(error[3:], back, 1.0)
            error[3:] *= ORIENTATION_WEIGHT
        mujoco.mj_comPos(model, data)
        mujoco.mj_jacBody(model, data, jacobian[:3], jacobian[3:], scene.hand)
        both[:3], both[3:] = jacobian[:3, dofs], ORIENTATION_WEIGHT * jacobian[3:, dofs]
        square = both @ both.T
        square += _DAMPED
        mujoco.mju_cholFactor(square, 0.0)
        mujoco.mju_cholSolve(pull, square, error)
        turned = both.T @ pull
        turned += joints
        np.minimum(np.maximum(turned, low, out=turned), high, out=joints)
        mujoco.mj_kinematics(model, data)
    return float(np.abs(hand_m - hand).max())


def take(
    scene: Scene, row: FloatArray, objects: FloatArray, home: FloatArray, seed_arm: bool = True, shown: bool = True
) -> None:
    """Overwrite what a row shows in the simulator's state and keep the rest, velocities included.

    A hand that has jumped says nothing of the arm that was carried: that one is then put at rest, from `home`.

    Args:
        row: (91,).
        objects: (Q,) its line of `object_positions`; NaN: kept.
        home: (7,) joints of the arm at a reset.
        seed_arm: False leaves the arm where it was carried.
        shown: as `reach` has it.
    """
    known = np.isfinite(objects)
    scene.data.qpos[scene.task_q[known]] = objects[known]
    set_fingers(scene, float(row[OPENING]))
    if not seed_arm:
        return
    hand_m = row[HAND]
    jumped = max(map(abs, (hand_m - scene.data.xpos[scene.hand]).tolist())) > JUMP_M
    if jumped:
        scene.data.qpos[scene.arm_q : scene.arm_q + 7] = home
        scene.data.qvel[scene.arm_v : scene.arm_v + 7] = 0
    reach(scene, hand_m, shown and not jumped)


def swing(scene: Scene, velocity_m_s: FloatArray) -> None:
    """Give the arm, and nothing else, the velocity with which the hand moves, (3,), without turning it."""
    model, data = scene.model, scene.data
    jacobian = np.zeros((6, model.nv))
    mujoco.mj_kinematics(model, data)
    mujoco.mj_comPos(model, data)
    mujoco.mj_jacBody(model, data, jacobian[:3], jacobian[3:], scene.hand)
    both = jacobian[:, scene.arm_v : scene.arm_v + 7]  # (6, 7)
    wanted = np.concatenate([velocity_m_s, np.zeros(3)])
    data.qvel[:] = 0
    data.qvel[scene.arm_v : scene.arm_v + 7] = both.T @ np.linalg.solve(both @ both.T + _DAMPED, wanted)


@dataclass(frozen=True)
class Start:
    """The simulator at row 0 of an episode, before the objects are put where the row has them."""

    qpos: FloatArray  # (nq,)
    qvel: FloatArray  # (nv,)
    hand_m: FloatArray  # (3,)
    later_hand_m: FloatArray  # (3,) one step later, which is when door-lock takes its row 0

    @property
    def numbers(self) -> FloatArray:
        """Both places of the hand, then the state, (6 + nq + nv,)."""
        return np.concatenate([self.hand_m, self.later_hand_m, self.qpos, self.qvel])

    def hand_after(self, task: str) -> FloatArray:
        return self.later_hand_m if task in STEPS_ONCE_MORE else self.hand_m


def settle(scene: Scene) -> Start:
    """A reset's 50 steps with the open hand held at its start, the furniture where `scene.model` has it now."""
    model, data = scene.model, scene.data
    mujoco.mj_resetData(model, data)
    data.mocap_pos[0], data.mocap_quat[0] = TASKS[scene.task].hand_start_m, UPRIGHT_MOCAP
    data.ctrl[:] = [-1.0, 1.0]
    mujoco.mj_step(model, data, RESET_STEPS * SUBSTEPS)
    mujoco.mj_kinematics(model, data)
    qpos, qvel, hand = data.qpos.copy(), data.qvel.copy(), data.xpos[scene.hand].copy()
    mujoco.mj_step(model, data, SUBSTEPS)  # leaves the poses of its last substep's beginning, as that row 0 shows them
    return Start(qpos, qvel, hand, data.xpos[scene.hand].copy())


class Starts:
    """Settled starts of one family, one a scene, and a table of those behind a door that an earlier episode had left.

    While a reset brings the hand to its start, the lock's door still stands where the episode before had it, and may be
    in the way; its place is found from the hand that row 0 shows. Between the places of the table the start is
    interpolated, which misses the hand by no more than settling it there does: a push is smooth only in parts. `steps`
    counts the steps of 5 mj_step calls taken.
    """

    def __init__(self) -> None:
        self.steps = 0
        self._lock = Lock()
        self._usual: dict[tuple[str, str], Start] = {}
        self._doors: dict[tuple[str, str], FloatArray] = {}

    def at(self, scene: Scene, hand_m: FloatArray) -> Start:
        """The start of an episode whose row 0 shows the hand at a place, (3,); NaN: with nothing in its way."""
        from qualcheck.envs.metaworld import doors  # not at the top: it also runs by itself, as a module

        key = (scene_key(scene.task, scene.modified_door), str(TASKS[scene.task].hand_start_m))
        with self._lock:
            if key not in self._usual:
                if scene.task in LOCK_TASKS:
                    scene.move_layout(FAR_DOOR_M)
                else:
                    scene.reset_layout()
                self._usual[key] = self._settle(scene)
            usual = self._usual[key]
            off = np.abs(usual.hand_after(scene.task) - hand_m).max()
            if scene.task not in LOCK_TASKS or not off >= CLOSE_START_M:
                return usual
            if key not in self._doors:
                table = doors.shipped(scene.family.name, key[0])
                table = self.behind_doors(scene) if table is None else table
                self._doors[key] = RegularGridInterpolator((DOOR_X_M, DOOR_Y_M), table)(_FINE)  # (F, 6 + nq + nv)
            known = self._doors[key]
        hand = known[:, 3:6] if scene.task in STEPS_ONCE_MORE else known[:, :3]
        best = known[int(np.abs(hand - hand_m).max(axis=1).argmin())]
        velocities = 6 + scene.model.nq
        return Start(best[6:velocities], best[velocities:], best[:3], best[3:6])

    def behind_doors(self, scene: Scene) -> FloatArray:
        """The numbers of the start with the door at each place of the table, (9, 5, 6 + nq + nv)."""
        found = []
        for x in DOOR_X_M:
            for y in DOOR_Y_M:
                scene.move_layout(np.array([x, y]))
                found.append(self._settle(scene).numbers)
        return np.reshape(found, (len(DOOR_X_M), len(DOOR_Y_M), -1))

    def _settle(self, scene: Scene) -> Start:
        self.steps += RESET_STEPS + 1
        return settle(scene)
