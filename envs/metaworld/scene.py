"""One MuJoCo model per scene, from the assets of the installed metaworld, and how a row's layout is put into it.

The benchmark's data come from older simulators. Three families are known: "2.3" (MuJoCo 2.3.x), "3.0" (the benchmark's
classes under MuJoCo 3.0.1) and "3.x" (metaworld 3.1.1 as it is). They differ in the weld that drags the hand after the
mocap body, whose rotational part changed between MuJoCo 2.3.7 and 3.0.0, and in the convex collision library: the older
ones are followed to about 1e-6 m a step in contact only with MuJoCo's native one switched off.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from threading import Lock

import mujoco
import numpy as np

from qualcheck.envs.metaworld.layout import GOAL, LOCK_TASKS, NO_QUATERNION, position, quaternion, wxyz
from qualcheck.types import AnyArray, FloatArray


@dataclass(frozen=True)
class Family:
    """What tells one simulator from another on the MuJoCo installed."""

    name: str
    torque_scale: float  # of the weld
    native_ccd: bool
    mug_turn_rad: float  # about z, from the mug's body to the frame of its mesh, which its quaternion is that of


FAMILIES = {
    "2.3": Family("2.3", 6.84, False, np.pi / 2),
    "3.0": Family("3.0", 1.0, False, 0.0),
    "3.x": Family("3.x", 5.0, True, 0.0),
}

_FILE = {
    "reach": "reach_v3", "push": "push_v3", "pick-place": "pick_place_v3", "reach-wall": "reach_wall_v3",
    "push-wall": "push_wall_v3", "pick-place-wall": "pick_place_wall_v3", "button-press": "button_press",
    "button-press-wall": "button_press_wall", "door-unlock": "door_lock", "door-lock": "door_lock",
    "locked-door-open": "door_lock", "door-open": "door_pull", "door-close": "door_pull",
    "window-open": "window_horizontal", "window-close": "window_horizontal", "faucet-open": "faucet",
    "faucet-close": "faucet", "coffee-push": "coffee", "coffee-button": "coffee", "make-coffee": "coffee",
    "hammer": "hammer", "soccer": "soccer",
}  # fmt: skip

Vector = tuple[float, float, float]


@dataclass(frozen=True)
class Marker:
    """Where an entity's position is read: a point fixed to a body, then a shift along the world's axes."""

    kind: str  # "body", "site" or "geom"
    name: str
    turned_by: str = ""  # body whose quaternion the block shows; "": the marker's own, "-": constant
    shift_m: Vector = (0.0, 0.0, 0.0)


_MARKERS = {
    "target_object": Marker("body", "obj"),
    "button": Marker("body", "button", shift_m=(0.0, -0.193, 0.0)),
    "handle": Marker("geom", "handle"),
    "wall": Marker("body", "wall", "-"),
    "coffee": Marker("body", "obj"),
    "coffee-button": Marker("site", "buttonStart", "-"),
    "hammer": Marker("body", "hammer"),
    "nail": Marker("body", "nail_link"),
    "soccer": Marker("body", "soccer_ball"),
}
_SIDED = {  # entities that one task reads at another point than the other
    "door-lock": Marker("site", "lockStartLock", "door_link"),
    "door-unlock": Marker("site", "lockStartUnlock", "door_link"),
    "locked-door-open": Marker("site", "lockStartUnlock", "door_link"),
    "window-open": Marker("site", "handleOpenStart", "-"),
    "window-close": Marker("site", "handleCloseStart", "-"),
    "faucet-open": Marker("site", "handleStartOpen", "faucetBase", (0.0, 0.0, -0.01)),
    "faucet-close": Marker("site", "handleStartClose", "faucetBase", (0.0, 0.0, -0.01)),
}

SIN_HALF_TURNED = 0.35  # half of sin 45 degrees
_GRIPPER = ("right_hand", "hand", "rightclaw", "rightpad", "leftclaw", "leftpad")
_MACHINE_BEHIND_MUG = np.array([0.0, 0.22, 0.0])
_LOCK_LINK = np.array([0.185, -0.018, 0.061])  # in the frame of the door, which hangs at _DOOR_LINK of its frame
_DOOR_LINK = np.array([-0.185, -0.1, 0.0])
_GOAL_FROM_LOCK = {"door-lock": np.array([0.0, -0.04, -0.1])}
_GOAL_FROM_UNLOCK = np.array([0.1, -0.04, 0.0])


def marker(task: str, entity: str) -> Marker:
    return _MARKERS[entity] if entity in _MARKERS else _SIDED[task]


def xml_path(task: str) -> str:
    """The scene's file inside the installed metaworld; the two tasks it lacks share the scene of one that it has."""
    return str(files("metaworld") / "assets" / "sawyer_xyz" / f"sawyer_{_FILE[task]}.xml")


def scene_key(task: str, modified_door: bool) -> str:
    """Tasks of one key share a model."""
    return _FILE[task] + ("+door" if modified_door and task in LOCK_TASKS else "")


def has_modified_door(task: str, context: AnyArray, rows: AnyArray) -> bool:
    """Whether the lock's door turns on a hinge, as the benchmark's does, or is rigid, as metaworld's is.

    The benchmark's door-unlock starts with the door at 90 degrees, a rigid one at none. Its door-lock hardly moves the
    door; but only a rigid door shows the quaternion (1, 0, 0, 0) on every row.

    Args:
        context: (91,) row 0 of the episode.
        rows: (R, 91).
    """
    if task not in LOCK_TASKS:
        return False
    if task == "door-unlock":
        return bool(abs(context[quaternion("lock")][3]) > SIN_HALF_TURNED)
    return task == "locked-door-open" or bool((rows[:, quaternion("lock")][:, 3] != 0).any())


def build(task: str, family: Family, modified_door: bool) -> mujoco.MjModel:
    """A model of a task's scene of its own, without what only a camera sees; compiled once a process."""
    with _COMPILING:
        key = scene_key(task, modified_door)
        if key not in _COMPILED:
            _COMPILED[key] = _compile(task, modified_door)
        model = copy.copy(_COMPILED[key])
    weld = np.zeros(mujoco.mjNEQDATA)
    weld[6], weld[10] = 1.0, family.torque_scale  # no offset, no turn
    model.eq_data[model.eq_type == mujoco.mjtEq.mjEQ_WELD] = weld
    if not family.native_ccd:
        model.opt.disableflags |= int(mujoco.mjtDisableBit.mjDSBL_NATIVECCD)
    return model


_COMPILING = Lock()
_COMPILED: dict[str, mujoco.MjModel] = {}  # scene -> its model as the file has it: 3 MB, and 40 ms to compile


def _compile(task: str, modified_door: bool) -> mujoco.MjModel:
    spec = mujoco.MjSpec.from_file(xml_path(task))
    if modified_door and task in LOCK_TASKS:
        _hang_door(spec)
    _strip(spec)
    return spec.compile()


def _hang_door(spec: mujoco.MjSpec) -> None:
    """The benchmark's door of the lock scene: a hinge like that of the scene with the handle, and a named handle."""
    door = spec.body("door_link")
    door.add_joint(spec.find_default("dl_base"), name="doorjoint", type=mujoco.mjtJoint.mjJNT_HINGE,
                   axis=[0, 0, 1], range=[-2, 0])  # fmt: skip
    next(geom for geom in door.geoms if geom.meshname == "door_handle").name = "handle"


def _strip(spec: mujoco.MjSpec) -> None:
    used, masks = set(), [(geom.contype, geom.conaffinity) for geom in spec.geoms]
    for geom in list(spec.geoms):
        meets = any(geom.contype & other[1] or geom.conaffinity & other[0] for other in masks)
        seen_only = not meets and geom.group not in (4, 5)
        if seen_only and geom.name not in ("handle", "mug"):  # those two carry a frame that rows show
            geom.delete()
        else:
            used.add(geom.meshname)
            geom.material = ""
    for site in spec.sites:
        site.material = ""
    for seen in (*spec.cameras, *spec.lights, *spec.materials, *spec.textures):
        seen.delete()
    for mesh in list(spec.meshes):
        if mesh.name not in used:
            mesh.delete()


@dataclass(frozen=True)
class Joint:
    """A joint with one degree of freedom, or the free joint of an object, and the entity that shows it."""

    entity: str  # "" where no block of the task shows it
    free: bool
    hinge: bool
    qpos: int  # first place in qpos
    dof: int
    axis: FloatArray  # (3,) world, with every joint at zero
    pivot: FloatArray  # (3,) world, of a hinge
    marker_at_zero: FloatArray  # (3,) world, where the entity is read with every joint at zero


class Scene:
    """A task's model with the places of everything a row shows. One thread at a time."""

    def __init__(self, task: str, entities: Sequence[str], family: Family, model: mujoco.MjModel) -> None:
        self.task, self.entities, self.family = task, tuple(entities), family
        self.model, self.data = model, mujoco.MjData(model)
        self.modified_door = task in LOCK_TASKS and _joint(model, "doorjoint") >= 0
        self.hand = model.body("hand").id
        arm = model.joint("right_j0")
        self.arm_q, self.arm_v = int(arm.qposadr[0]), int(arm.dofadr[0])  # seven joints, then right and left finger
        first = int(model.joint("right_j0").id)
        self.arm_low, self.arm_high = model.jnt_range[first : first + 7].T.copy()  # (7,) rad each
        held_by = [model.body(name).id for name in _GRIPPER]
        self.gripper = np.isin(model.geom_bodyid, held_by)  # (G,) geoms
        self.jacobian, self.arm_jacobian = np.zeros((6, model.nv)), np.empty((6, 7))  # room for `arm.reach`
        self.task_q = np.setdiff1d(np.arange(model.nq), np.arange(self.arm_q, self.arm_q + 9))
        claws = [model.body(name).id for name in ("rightclaw", "leftclaw")]
        tips = [model.site(name) for name in ("rightEndEffector", "leftEndEffector")]
        self.tip_offset = np.array([tip.pos for tip in tips])  # (2, 3) in the frames of the claws
        self.points = [_point(model, marker(task, entity)) for entity in self.entities]
        turned = [_turning_body(model, marker(task, entity)) for entity in self.entities]
        self.bodies = np.array([self.hand, *claws, *(body for body, *_ in self.points), *turned])
        self.layout_body = model.body(_LAYOUT[_FILE[task]]).id if _FILE[task] in _LAYOUT else -1
        self._default_layout = model.body_pos[self.layout_body].copy()
        mujoco.mj_resetData(model, self.data)
        self.data.qpos[self.task_q] = 0
        for joint in range(model.njnt):
            if model.jnt_type[joint] == mujoco.mjtJoint.mjJNT_FREE:
                self.data.qpos[model.jnt_qposadr[joint] + 3] = 1
        mujoco.mj_kinematics(model, self.data)
        seen = self.entity_positions(self.data.xpos[self.bodies][None], self.data.xquat[self.bodies][None])[0]
        self.joints = [self._joint_of(joint, seen) for joint in range(model.njnt) if self._is_task_joint(joint)]
        shown = [joint for joint in self.joints if joint.entity]  # not the mug that stands under a coffee-button
        self.shown_v = np.array([joint.dof + k for joint in shown for k in range(6 if joint.free else 1)])

    def _is_task_joint(self, joint: int) -> bool:
        return not self.arm_q <= self.model.jnt_qposadr[joint] < self.arm_q + 9

    def _joint_of(self, joint: int, seen: FloatArray) -> Joint:
        model, data = self.model, self.data
        moved = _subtree(model, int(model.jnt_bodyid[joint]))
        shows = [k for k, (body, *_) in enumerate(self.points) if body in moved]
        hinge = bool(model.jnt_type[joint] == mujoco.mjtJoint.mjJNT_HINGE)
        return Joint(
            entity=self.entities[shows[0]] if shows else "",
            free=bool(model.jnt_type[joint] == mujoco.mjtJoint.mjJNT_FREE),
            hinge=hinge,
            qpos=int(model.jnt_qposadr[joint]),
            dof=int(model.jnt_dofadr[joint]),
            axis=data.xaxis[joint].copy(),
            pivot=data.xanchor[joint].copy(),
            marker_at_zero=seen[shows[0]] if shows else np.zeros(3),
        )

    def entity_positions(self, xpos: FloatArray, xquat: FloatArray) -> FloatArray:
        """Positions that the blocks show, from poses of `bodies`. (R, B, 3), (R, B, 4) -> (R, E, 3)."""
        place = np.empty((len(xpos), len(self.entities), 3))
        for k, (_, offset, _, shift) in enumerate(self.points):
            place[:, k] = xpos[:, 3 + k] + rotate(xquat[:, 3 + k], offset) + shift
        return place

    def entity_quaternions(self, xquat: FloatArray) -> FloatArray:
        """Quaternions that the blocks show, scalar first; zeros for a window. (R, B, 4) -> (R, E, 4)."""
        quat = np.zeros((len(xquat), len(self.entities), 4))
        for k, entity in enumerate(self.entities):
            if entity == NO_QUATERNION:
                continue
            own, (_, _, turn, _) = marker(self.task, entity).turned_by == "", self.points[k]
            if marker(self.task, entity).turned_by == "-":
                quat[:, k, 0] = 1
                continue
            read = xquat[:, 3 + len(self.entities) + k]
            quat[:, k] = multiply(read, self.turn_of(entity, turn)) if own else read
        return quat

    def turn_of(self, entity: str, turn: FloatArray) -> FloatArray:
        """The turn from an entity's body to the frame that its quaternion is that of, (4,)."""
        half = self.family.mug_turn_rad / 2
        return np.array([np.cos(half), 0.0, 0.0, np.sin(half)]) if entity == "coffee" else turn

    def set_layout(self, context: FloatArray) -> FloatArray:
        """Put the furniture where row 0 of the episode has it, (91,); its shift from the scene's file, (3,)."""
        return np.zeros(3) if self.layout_body < 0 else self.place_layout(self._layout_of(context))

    def place_layout(self, place_m: FloatArray) -> FloatArray:
        """Put the furniture at a place, (3,); its shift from the scene's file, (3,)."""
        if self.layout_body < 0:
            return np.zeros(3)
        self.model.body_pos[self.layout_body] = place_m
        return np.asarray(self.model.body_pos[self.layout_body] - self._default_layout)

    @property
    def layout_m(self) -> FloatArray:
        """Where the furniture stands, (3,); NaN in scenes without."""
        if self.layout_body < 0:
            return np.full(3, np.nan)
        return np.asarray(self.model.body_pos[self.layout_body].copy())

    def reset_layout(self) -> None:
        """Put the furniture where the scene's file has it."""
        if self.layout_body >= 0:
            self.model.body_pos[self.layout_body] = self._default_layout

    def move_layout(self, xy_m: FloatArray) -> None:
        """Shift the door of the lock scene elsewhere, (2,): where an earlier episode had left it."""
        self.model.body_pos[self.layout_body] = [*xy_m, 0.15]

    def _layout_of(self, context: FloatArray) -> FloatArray:
        goal, task = context[GOAL], self.task
        if task in LOCK_TASKS:
            turn = wxyz("lock", context[quaternion("lock")])
            turn = np.array([turn[0], 0.0, 0.0, turn[3]]) / max(float(np.hypot(turn[0], turn[3])), 1e-9)
            return np.asarray(
                goal - _GOAL_FROM_LOCK.get(task, _GOAL_FROM_UNLOCK) - rotate(turn, _LOCK_LINK) - _DOOR_LINK
            )
        if task in ("coffee-push", "make-coffee"):
            return np.asarray(goal + _MACHINE_BEHIND_MUG)
        if task in ("hammer", "soccer"):
            return self._default_layout if task == "hammer" else np.asarray(goal)
        joint = next(joint for joint in self.joints if joint.entity and not joint.free)
        start = row0_joint(task)
        moved = _turned(joint, start) if joint.hinge else joint.marker_at_zero + start * joint.axis
        return np.asarray(context[position(joint.entity)] - moved + self._default_layout)


_LAYOUT = {"button_press": "box", "button_press_wall": "box", "door_lock": "door", "door_pull": "door",
           "window_horizontal": "window", "faucet": "faucetBase", "coffee": "coffee_machine", "hammer": "box",
           "soccer": "goal_whole"}  # fmt: skip


def row0_joint(task: str) -> float:
    """Where a reset leaves the joint that the task's entity shows, rad or m."""
    return {"door-close": -1.5708, "window-close": 0.2}.get(task, 0.0)


def _turned(joint: Joint, angle: float) -> FloatArray:
    half = angle / 2
    turn = np.array([np.cos(half), *(np.sin(half) * joint.axis)])
    return joint.pivot + rotate(turn, joint.marker_at_zero - joint.pivot)


def _joint(model: mujoco.MjModel, name: str) -> int:
    return int(mujoco.mj_name2id(model, mujoco.mjtObj.mjOBJ_JOINT, name))


def _subtree(model: mujoco.MjModel, body: int) -> set[int]:
    inside = {body}
    for child in range(body + 1, model.nbody):
        if int(model.body_parentid[child]) in inside:
            inside.add(child)
    return inside


def _point(model: mujoco.MjModel, mark: Marker) -> tuple[int, FloatArray, FloatArray, FloatArray]:
    """(body, place in its frame, turn in its frame, shift along the world's axes) of a marker."""
    shift = np.array(mark.shift_m)
    if mark.kind == "body":
        return model.body(mark.name).id, np.zeros(3), np.array([1.0, 0, 0, 0]), shift
    item = model.site(mark.name) if mark.kind == "site" else model.geom(mark.name)
    return int(item.bodyid[0]), item.pos.copy(), item.quat.copy(), shift


def _turning_body(model: mujoco.MjModel, mark: Marker) -> int:
    if mark.turned_by in ("", "-"):
        return _point(model, mark)[0]
    return int(model.body(mark.turned_by).id)


def _cross(a: FloatArray, b: FloatArray) -> FloatArray:
    """np.cross of (..., 3) arrays at a fifth of its cost."""
    a0, a1, a2, b0, b1, b2 = a[..., 0], a[..., 1], a[..., 2], b[..., 0], b[..., 1], b[..., 2]
    return np.stack([a1 * b2 - a2 * b1, a2 * b0 - a0 * b2, a0 * b1 - a1 * b0], axis=-1)


def rotate(quat: FloatArray, vector: FloatArray) -> FloatArray:
    """Vectors turned by quaternions, scalar first. (..., 4), (..., 3) -> (..., 3)."""
    scalar, axis = quat[..., :1], quat[..., 1:]
    twice = 2 * _cross(axis, vector)
    return np.asarray(vector + scalar * twice + _cross(axis, twice))


def multiply(first: FloatArray, second: FloatArray) -> FloatArray:
    """Products of quaternions, scalar first. (..., 4), (..., 4) -> (..., 4)."""
    a, u, b, v = first[..., :1], first[..., 1:], second[..., :1], second[..., 1:]
    scalar = a * b - (u * v).sum(axis=-1, keepdims=True)
    return np.concatenate([scalar, a * v + b * u + _cross(u, v)], axis=-1)
