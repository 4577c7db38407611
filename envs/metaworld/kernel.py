"""Replays of whole episodes in metaworld's scenes: open loop, or as a filter that takes on every recorded row.

A rollout runs in one thread from beginning to end; MuJoCo releases the interpreter's lock, so that two threads keep two
cores busy. In the filter each action starts from a zero solver warm start: the outcome depends on the state, the
commanded hand and the action alone. A replay from row 0 is one run of `mujoco.rollout`, without Python between its
steps; its warm start is zero before the first action.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from threading import local

import mujoco
import numpy as np
from mujoco import rollout

from qualcheck.cores import cores
from qualcheck.envs.metaworld.arm import (
    FULL_OPENING_M,
    STEPS_ONCE_MORE,
    UPRIGHT_MOCAP,
    Start,
    Starts,
    object_positions,
    reach,
    swing,
    take,
)
from qualcheck.envs.metaworld.layout import (
    BAD_ACTION,
    GOAL,
    HAND,
    HAND_HIGH,
    HAND_LOW,
    ILLEGAL_START,
    KERNEL_HIDDEN,
    LOCK_TASKS,
    MOCAP_HIGH,
    OBS_SIZE,
    OPENING,
    SCALAR_LAST,
    SIMULATOR_WARNING,
    STEP_SECONDS,
    SUBSTEPS,
    TASKS,
    block,
    commanded_hand,
    position,
    quaternion,
    takeable_for,
    usable_actions,
)
from qualcheck.envs.metaworld.scene import FAMILIES, Family, Scene, build, has_modified_door, rotate, scene_key
from qualcheck.envs.running_mujoco import quiet
from qualcheck.timing import RESTORE, SIMULATE, WAIT, phase
from qualcheck.types import AnyArray, BoolArray, FloatArray, IntArray

MOST_QPOS, MOST_QVEL = 17, 16
LAST_OF_HINGED = 10  # of qpos: only the lock's scene with a door on a hinge has so many
STAGE_GOAL_M = 1e-3  # a goal so near to that of the second stage is it
PHYSICS = mujoco.mjtState.mjSTATE_FULLPHYSICS
COMMAND = mujoco.mjtState.mjSTATE_CTRL | mujoco.mjtState.mjSTATE_MOCAP_POS | mujoco.mjtState.mjSTATE_MOCAP_QUAT
QPOS, QVEL, COMMANDED = slice(0, MOST_QPOS), slice(MOST_QPOS, MOST_QPOS + MOST_QVEL), slice(-3, None)

FASTEST_M = 0.0142  # a step and axis in free space
LAG_STEPS = 3.5  # of the hand behind the commanded one in steady motion, by the free-space hand model
FOREIGN_START_M = 6e-3  # row 0 is believed rather than the reset, which rows of two decimals show 5 mm off
FINGERPRINT_M = 6e-4  # families are at least 7e-4 m apart
STAGE_MUG_M, STAGE_LOCK_M = 0.07, 0.02  # where the two-stage tasks turn to their second goal
DOOR_OPEN_GOAL_M = np.array([0.0, 0.64, 0.21])
UNLOCK_GOAL_LOW_M, UNLOCK_GOAL_HIGH_M = np.array([0.0, 0.64, 0.21]), np.array([0.2, 0.7, 0.2111])


@dataclass(frozen=True)
class Episode:
    """A recorded rollout, or a piece of one."""

    task: str  # a key of `layout.TASKS`
    rows: AnyArray  # (T, 91) or (T+1, 91)
    action: AnyArray  # (T, 4)
    context: AnyArray | None = None  # (91,) row 0 of the episode where that is not the first row
    hidden: FloatArray | None = None  # (36,) before the first action, as `Played.hidden` has it; cuts
    from_reset: bool = True
    layout_m: FloatArray | None = None  # (3,) place of the furniture, where it is known without row 0


@dataclass(frozen=True)
class Played:
    """What the simulator made of an episode. Rows are float64; those whose code is not 0 are NaN."""

    obs: FloatArray  # (T+1, 91), the first as recorded; other entities' blocks copied from the recorded row
    tip_m: FloatArray  # (T+1, 3) midpoint of the finger tips
    hidden: FloatArray  # (T, 36) state before each action, NaN beyond what the scene has
    code: IntArray  # (T,) int8, index into `layout.CODES`
    touching: BoolArray  # (T,) the gripper was in contact at the end of the step
    guessed: bool  # part of the state was a guess: a cut without its hidden state, or MuJoCo gave up on the way
    after: FloatArray  # (36,) state after the last action
    layout_m: FloatArray  # (3,) place of the furniture, NaN in scenes without
    speed: FloatArray  # (T,) largest velocity before each action of what the row's blocks show, m/s or rad/s


class Kernel:
    """Scenes of one family, one set a thread. Not for two callers at a time; results do not depend on the threads.

    `steps` counts the steps of 5 mj_step calls that were executed, those of resets included.
    """

    def __init__(self, family: str = "2.3", threads: int | None = None) -> None:
        self.family: Family = FAMILIES[family]
        self._played = 0
        self._threads = threads or cores()
        self._starts = Starts()
        self._mine = local()
        self._pool = ThreadPoolExecutor(self._threads)

    @property
    def steps(self) -> int:
        return self._played + self._starts.steps

    def close(self) -> None:
        self._pool.shutdown()

    def play(
        self, episodes: Sequence[Episode], filtered: bool, seed_arm: bool = True, anchored: bool = False
    ) -> list[Played]:
        """Replay each episode; `filtered` takes on every recorded row before its action, else only the first.

        Args:
            seed_arm: False leaves the arm as it was carried when a row is taken on.
            anchored: the commanded hand is not the sum of the actions, but guessed from each row and the one before,
                coarse but ignorant of earlier faults.
        """
        longest = sorted(range(len(episodes)), key=lambda i: -len(episodes[i].action))
        with quiet(), phase(WAIT):
            played = self._pool.map(lambda i: self._timed(episodes[i], filtered, seed_arm, anchored), longest)
            out = dict(zip(longest, played, strict=True))
        self._played += sum(len(episode.action) for episode in episodes)
        return [out[i] for i in range(len(episodes))]

    def scene(self, task: str, modified_door: bool) -> Scene:
        """The scene of a task that belongs to this thread."""
        models = self._mine.__dict__.setdefault("models", {})
        scenes = self._mine.__dict__.setdefault("scenes", {})
        key = scene_key(task, modified_door)
        if key not in models:
            model = build(task, self.family, modified_door)
            models[key] = model, model.body_pos.copy()
        if (task, key) not in scenes:
            model, places = models[key]
            model.body_pos[:] = places  # another task of this model may have moved the furniture
            scenes[task, key] = Scene(task, TASKS[task].entities, self.family, model)
        found: Scene = scenes[task, key]
        return found

    def start_hand(self, task: str) -> FloatArray:
        """Where the hand is at row 0 of a task in this family with nothing in its way, (3,) m."""
        return self._starts.at(self.scene(task, False), np.full(3, np.nan)).hand_after(task)

    def first_row(self, task: str, place_m: FloatArray, goal_m: FloatArray, hinged: bool) -> FloatArray:
        """Row 0 of an episode whose reset has drawn these places, (91,), with nothing in the hand's way.

        Args:
            place_m: (3,) of the task's first entity.
            goal_m: (3,).
            hinged: the lock's door turns on a hinge; the benchmark's door-unlock then starts with it open.
        """
        scene = self.scene(task, hinged)
        model, data = scene.model, scene.data
        start = self._starts.at(scene, np.full(3, np.nan))
        scene.reset_layout()
        mujoco.mj_resetData(model, data)
        data.qpos[:] = start.qpos
        row = np.zeros(OBS_SIZE)
        for _ in range(2):  # the first time for the turn that an object lies in, the second for furniture on its joint
            mujoco.mj_kinematics(model, data)
            pose = np.stack([data.xpos[scene.bodies]] * 2), np.stack([data.xquat[scene.bodies]] * 2)
            row = shown_rows(scene, *pose, row[None], 1)[1]
            row[HAND], row[GOAL], row[position(scene.entities[0])] = start.hand_after(task), goal_m, place_m
            if scene.modified_door and task != "door-lock":
                row[quaternion("lock")] = [np.sqrt(0.5), 0.0, 0.0, np.sqrt(0.5)]
            with quiet():
                self._begin(scene, Episode(task, row[None], np.zeros((0, 4)), row), row, row[None], False)
        mujoco.mj_kinematics(model, data)
        pose = np.stack([data.xpos[scene.bodies]] * 2), np.stack([data.xquat[scene.bodies]] * 2)
        row = shown_rows(scene, *pose, row[None], 1)[1]
        row[GOAL] = goal_m
        return np.asarray(row)

    def _timed(self, episode: Episode, filtered: bool, seed_arm: bool, anchored: bool) -> Played:
        with phase(RESTORE):
            return self._run(episode, filtered, seed_arm, anchored)

    def _run(self, episode: Episode, filtered: bool, seed_arm: bool, anchored: bool) -> Played:
        task, steps = episode.task, len(episode.action)
        rows = np.asarray(episode.rows, np.float64)
        context = rows[0] if episode.context is None else np.asarray(episode.context, np.float64)
        wanted = np.where(np.isfinite(episode.action), episode.action, 0.0).astype(np.float64)  # (T, 4)
        row_code = takeable_for(rows, task)
        known = episode.hidden is not None and bool(np.isfinite(episode.hidden[COMMANDED]).all())
        code = np.zeros(steps, np.int8)
        code[~usable_actions(episode.action)] = BAD_ACTION
        own = np.array_equal(context, rows[0])  # mostly: telling is cheaper than judging it again
        bad_context = row_code[0] if own else takeable_for(context[None], task)[0]
        if bad_context or (row_code[0] and not known):
            code[:] = ILLEGAL_START
            blank, unknown = np.full((steps + 1, OBS_SIZE), np.nan), np.full((steps + 1, len(KERNEL_HIDDEN)), np.nan)
            still = np.zeros(steps, bool)
            return Played(
                blank, blank[:, :3], unknown[:steps], code, still, False, unknown[-1], blank[0, :3], np.zeros(steps)
            )
        if filtered:
            code[row_code[:steps] != 0] = ILLEGAL_START
        else:
            code = np.where(np.maximum.accumulate(code != 0), np.maximum.accumulate(code), 0).astype(np.int8)
        hinged = has_modified_door(task, context, rows)
        if known and task in LOCK_TASKS:
            assert episode.hidden is not None
            hinged = is_hinged(task, episode.hidden)
        scene = self.scene(task, hinged)
        model, data = scene.model, scene.data
        start = self._starts.at(scene, np.full(3, np.nan))  # before the scene's state is set: it may have to settle it
        shift = self._begin(scene, episode, context, rows, known)
        with np.errstate(invalid="ignore", over="ignore"):  # rows that are not taken on may hold any number
            objects = object_positions(scene, rows, shift)  # (R, Q)
        home = start.qpos[scene.arm_q : scene.arm_q + 7]  # (7,)
        path = commanded_hand(data.mocap_pos[0].copy(), wanted, task)
        hidden = np.full((steps + 1, len(KERNEL_HIDDEN)), np.nan)
        xpos, xquat = np.empty((steps + 1, len(scene.bodies), 3)), np.empty((steps + 1, len(scene.bodies), 4))
        lost = False
        mujoco.mj_kinematics(model, data)
        xpos[0], xquat[0] = data.xpos[scene.bodies], data.xquat[scene.bodies]
        data.mocap_quat[0] = UPRIGHT_MOCAP
        push = np.stack([wanted[:, 3], -wanted[:, 3]], axis=1)  # (T, 2)
        touched: list[AnyArray] = []  # (C, 2) geoms in contact at the end of each step
        # Views made once: each look-up of an attribute of MuJoCo's costs as much as what is done with it here.
        qpos, qvel, place, turn = data.qpos, data.qvel, data.xpos, data.xquat
        warm, mocap, ctrl, contact, bodies = (
            data.qacc_warmstart,
            data.mocap_pos[0],
            data.ctrl,
            data.contact,
            scene.bodies,
        )
        hidden_q, hidden_v = hidden[:, : model.nq], hidden[:, MOST_QPOS : MOST_QPOS + model.nv]
        if not filtered and steps > 1:
            failed = self._unroll(scene, path, push, hidden, xpos, xquat)
            if failed < steps:  # as if MuJoCo had given up in a single step
                code[failed:] = SIMULATOR_WARNING
                lost = True
        for t in range(steps if filtered or steps == 1 else 0):
            if filtered and t > 0 and not row_code[t]:
                take(scene, rows[t], objects[t], home, seed_arm)
                if anchored:
                    before = rows[t - 1] if not row_code[t - 1] else rows[t]
                    path[t] = commanded_by(task, start, rows[t], rows[t, HAND] - before[HAND])
                    path[t + 1] = commanded_hand(path[t], wanted[t : t + 1], task)[1]
            hidden_q[t], hidden_v[t] = qpos, qvel
            data.time = 0.0
            warm.fill(0.0)
            mocap[:], ctrl[:] = path[t + 1], push[t]
            with phase(SIMULATE):
                mujoco.mj_step(model, data, SUBSTEPS)
                mujoco.mj_kinematics(model, data)
            place.take(bodies, axis=0, out=xpos[t + 1], mode="clip")
            turn.take(bodies, axis=0, out=xquat[t + 1], mode="clip")
            touched.append(contact.geom.copy())
            if not data.time > 0.9 * STEP_SECONDS:  # MuJoCo gave up and restarted its clock
                code[t : t + 1 if filtered else steps] = SIMULATOR_WARNING
                lost = True
                mujoco.mj_resetData(model, data)
                data.qpos[:], data.mocap_quat[0] = start.qpos, UPRIGHT_MOCAP
        if filtered or steps <= 1:
            hidden_q[steps], hidden_v[steps] = qpos, qvel
        touching = any_of(scene.gripper, touched) if touched else np.zeros(steps, bool)
        hidden[:, COMMANDED] = path
        obs = shown_rows(scene, xpos, xquat, rows, steps)
        obs[1:, GOAL] = goals_after(task, rows, obs, context, filtered)
        obs[1:][code != 0] = np.nan
        tip = tips(scene, xpos, xquat)
        tip[1:][code != 0] = np.nan
        guessed = not (known or episode.from_reset) or lost
        speed = np.abs(np.nan_to_num(hidden[:steps, QVEL][:, scene.shown_v])).max(axis=1)
        return Played(obs, tip, hidden[:steps], code, touching, guessed, hidden[steps], scene.layout_m, speed)

    @staticmethod
    def _unroll(
        scene: Scene, path: FloatArray, push: FloatArray, hidden: FloatArray, xpos: FloatArray, xquat: FloatArray
    ) -> int:
        """Execute all actions one after the other and fill the states and poses; the step in which MuJoCo gave up.

        Args:
            scene: before the first action.
            path: (T+1, 3) commanded hand.
            push: (T, 2) of the fingers.
            hidden: (T+1, 36) states, filled but for the commanded hand.
            xpos: (T+1, B, 3) of the scene's bodies, filled after each action.
            xquat: (T+1, B, 4) likewise.
        """
        model, data, steps = scene.model, scene.data, len(push)
        data.time = 0.0
        start = np.empty(mujoco.mj_stateSize(model, PHYSICS))
        mujoco.mj_getState(model, data, start, PHYSICS)
        control = np.empty((steps, mujoco.mj_stateSize(model, COMMAND)))  # in the order of the bits of `COMMAND`
        control[:, :2], control[:, 2:5], control[:, 5:] = push, path[1:], UPRIGHT_MOCAP
        with phase(SIMULATE):
            states, _ = rollout.rollout(
                model, data, start, np.repeat(control, SUBSTEPS, axis=0), control_spec=int(COMMAND)
            )
        after = states[0, SUBSTEPS - 1 :: SUBSTEPS]  # (T, 1 + Q + V)
        in_time = after[:, 0] > (np.arange(steps) + 0.98) * STEP_SECONDS  # it restarts its clock when it gives up
        failed = steps if in_time.all() else int(np.argmin(in_time))
        nq, nv = model.nq, model.nv
        whole = np.concatenate([start[None], after])
        hidden[:, :nq], hidden[:, MOST_QPOS : MOST_QPOS + nv] = whole[:, 1 : 1 + nq], whole[:, 1 + nq : 1 + nq + nv]
        qpos, place, turn, bodies = data.qpos, data.xpos, data.xquat, scene.bodies
        for t in range(failed):
            qpos[:] = after[t, 1 : 1 + nq]
            mujoco.mj_kinematics(model, data)
            place.take(bodies, axis=0, out=xpos[t + 1], mode="clip")
            turn.take(bodies, axis=0, out=xquat[t + 1], mode="clip")
        xpos[failed + 1 :], xquat[failed + 1 :] = xpos[failed], xquat[failed]
        return failed

    def _begin(self, scene: Scene, episode: Episode, context: FloatArray, rows: FloatArray, known: bool) -> FloatArray:
        """Put the scene before the first action of an episode; the shift of its furniture, (3,)."""
        model, data = scene.model, scene.data
        if known:
            assert episode.hidden is not None
            shift = scene.set_layout(context) if episode.layout_m is None else scene.place_layout(episode.layout_m)
            mujoco.mj_resetData(model, data)
            data.qpos[:], data.qvel[:] = episode.hidden[QPOS][: model.nq], episode.hidden[QVEL][: model.nv]
            data.mocap_pos[0], data.mocap_quat[0] = episode.hidden[COMMANDED], UPRIGHT_MOCAP
            return shift
        start = self._starts.at(scene, context[HAND])
        shift = scene.set_layout(context)
        mujoco.mj_resetData(model, data)
        data.mocap_pos[0], data.mocap_quat[0] = TASKS[scene.task].hand_start_m, UPRIGHT_MOCAP
        data.qpos[:], data.qvel[:], data.ctrl[:] = start.qpos, start.qvel, [-1.0, 1.0]
        if scene.task in STEPS_ONCE_MORE:
            mujoco.mj_step(model, data, SUBSTEPS)
        else:
            self._release(scene)
        row, following = rows[0], rows[min(1, len(rows) - 1)]
        objects = object_positions(scene, row[None], shift)[0]
        if scene.task == "coffee-button":  # its mug stands under the machine, where no block shows it
            data.qpos[:3] = context[position("coffee-button")] - [0.0, 0.0, 0.3]
        if episode.from_reset and scene.task == "make-coffee":  # its row 0 shows the button of the episode before
            objects[-1] = 0.0
        seen = np.isfinite(objects)
        data.qpos[scene.task_q[seen]] = objects[seen]
        if not episode.from_reset:  # the first step is then half judged by itself, which `guessed` says
            take(scene, row, objects, start.qpos[scene.arm_q : scene.arm_q + 7], shown=False)
            shown = not takeable_for(following[None], scene.task)[0]
            moved = following[HAND] - row[HAND] if shown else np.zeros(3)
            swing(scene, moved / STEP_SECONDS)
            data.mocap_pos[0] = commanded_by(scene.task, start, row, moved)
        elif np.abs(start.hand_after(scene.task) - row[HAND]).max() > FOREIGN_START_M:
            reach(scene, row[HAND])
        return shift

    @staticmethod
    def _release(scene: Scene) -> None:
        """A reset puts an object to rest by degrees of freedom 9 to 14, which in the coffee scene are the arm's."""
        if scene.task.startswith(("window", "faucet")):
            return
        free = any(joint.free for joint in scene.joints)
        scene.data.qvel[9 : 15 if free else 10] = 0


def any_of(chosen: BoolArray, touched: Sequence[AnyArray]) -> BoolArray:
    """Whether one of the chosen geoms, (G,), is among those in contact, T times (C, 2): (T,)."""
    if not len(touched):
        return np.zeros(0, bool)
    step = np.repeat(np.arange(len(touched)), [len(pairs) for pairs in touched])
    hit = chosen[np.concatenate(touched)].any(axis=1)
    return np.bincount(step[hit], minlength=len(touched)) > 0


def is_hinged(task: str, hidden: FloatArray) -> bool:
    """Whether a hidden state, (36,), is one of the lock's scene whose door turns on a hinge."""
    return task == "locked-door-open" or (task in LOCK_TASKS and bool(np.isfinite(hidden[LAST_OF_HINGED])))


def commanded_by(task: str, start: Start, row: FloatArray, moved_m: FloatArray) -> FloatArray:
    """Where the commanded hand must be for the hand to be on a row and to move so much a step, (3,) m."""
    rest = np.array(TASKS[task].hand_start_m) - start.hand_m
    ahead = rest + LAG_STEPS * np.clip(moved_m, -FASTEST_M, FASTEST_M)
    return np.asarray(np.clip(row[HAND] + ahead, TASKS[task].mocap_low_m, MOCAP_HIGH))


def by_first_rows(first_rows: AnyArray, tasks: Sequence[str], kernels: dict[str, Kernel]) -> tuple[str, str]:
    """The family whose settled hand is nearest to most rows of resets, and the evidence; ("", "") where none is near.

    Args:
        first_rows: (N, 91) rows of resets.
        tasks: (N,) keys of `layout.TASKS`; "" and the lock tasks, whose hand a door may have pushed, do not vote.
        kernels: family -> kernel.
    """
    votes, nearest = dict.fromkeys(kernels, 0), dict.fromkeys(kernels, np.inf)
    known: dict[tuple[str, tuple[float, float, float]], FloatArray] = {}
    for row, task in zip(np.asarray(first_rows, np.float64), tasks, strict=True):
        if task not in TASKS or task in LOCK_TASKS:
            continue
        start = TASKS[task].hand_start_m
        off = {}
        for name, kernel in kernels.items():
            if (name, start) not in known:
                known[name, start] = kernel.start_hand(task)
            off[name] = float(np.abs(known[name, start] - row[HAND]).max())
        best = min(off, key=lambda name: off[name])
        if off[best] < FINGERPRINT_M:
            votes[best] += 1
            nearest[best] = min(nearest[best], off[best])
    winner = max(votes, key=lambda name: votes[name])
    if votes[winner] * 2 <= sum(votes.values()):
        return "", ""
    text = f"row 0 shows the hand where family {winner} leaves it in {votes[winner]} of {sum(votes.values())} rollouts"
    return winner, f"{text}, at best {nearest[winner]:.0e} m off"


def shown_rows(scene: Scene, xpos: FloatArray, xquat: FloatArray, rows: FloatArray, steps: int) -> FloatArray:
    """Rows that the simulator shows, (T+1, 91); the first one and blocks of other entities are as recorded."""
    copied = rows[np.minimum(np.arange(steps + 1), len(rows) - 1)]  # (T+1, 91)
    obs = copied.copy()
    apart = np.linalg.norm(xpos[:, 1] - xpos[:, 2], axis=1) / FULL_OPENING_M
    obs[:, HAND] = np.clip(xpos[:, 0], HAND_LOW, HAND_HIGH)
    obs[:, OPENING] = np.clip(apart, 0, 1)
    place, turn = scene.entity_positions(xpos, xquat), scene.entity_quaternions(xquat)
    for k, entity in enumerate(scene.entities):
        quat = np.roll(largest_positive(turn[:, k]), -1, axis=1) if entity in SCALAR_LAST else turn[:, k]
        obs[:, block(entity)] = np.concatenate([place[:, k], quat], axis=1)
    obs[0] = copied[0]
    return obs


def largest_positive(quat: FloatArray) -> FloatArray:
    """Of the two quaternions of a turn the one that SciPy makes of its matrix: the largest component is positive."""
    largest = np.take_along_axis(quat, np.abs(quat).argmax(axis=1)[:, None], axis=1)
    return np.asarray(np.where(largest < 0, -quat, quat))


def tips(scene: Scene, xpos: FloatArray, xquat: FloatArray) -> FloatArray:
    """Midpoint of the two finger tips, (R, B, 3), (R, B, 4) -> (R, 3) m."""
    ends = [xpos[:, 1 + k] + rotate(xquat[:, 1 + k], scene.tip_offset[k]) for k in range(2)]
    return np.asarray((ends[0] + ends[1]) / 2)


def goals_after(task: str, rows: FloatArray, obs: FloatArray, context: FloatArray, filtered: bool) -> FloatArray:
    """The goal on each simulated row, (T, 3): that of the row before, or of row 0, clipped or of the second stage."""
    steps = len(obs) - 1
    before = rows[:steps] if filtered else np.concatenate([rows[:1], obs[1:steps]])  # (T, 91)
    goal = before[:, GOAL].copy() if filtered else np.broadcast_to(rows[0, GOAL], (steps, 3)).copy()
    first = context[GOAL]
    if task in ("door-unlock", "locked-door-open"):
        goal = np.clip(goal, UNLOCK_GOAL_LOW_M, UNLOCK_GOAL_HIGH_M)
    if task == "make-coffee":
        near = np.linalg.norm(before[:, position("coffee")] - first, axis=1) <= STAGE_MUG_M
        second = np.array([first[0], min(first[1] + 0.03, 0.75), 0.001])
    elif task == "locked-door-open":
        near = np.abs(before[:, position("lock").start] - first[0]) <= STAGE_LOCK_M
        second = DOOR_OPEN_GOAL_M
    else:
        return goal
    if filtered:  # a row shows by its goal that the second stage has been reached
        near |= np.abs(before[:, GOAL] - second).max(axis=1) <= STAGE_GOAL_M
    goal[near if filtered else np.maximum.accumulate(near)] = second
    return goal
