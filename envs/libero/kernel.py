"""Whole LIBERO rollouts at once: the sequential filter on the physics-only model, one thread a rollout.

The simulator is carried from row 0; before each action the positions that the row shows are written over it, and the
velocities, the gripper's command and the goal of the hand's turn are kept.
"""

from __future__ import annotations

import ctypes
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue
from typing import Any, NamedTuple

import mujoco
import numpy as np

from qualcheck.cores import cores
from qualcheck.envs.libero.columns import BODIES, OBS_SIZE
from qualcheck.envs.libero.controller import GRIPPER_STEP
from qualcheck.envs.libero.layout import (
    ARM,
    GOAL_TURN,
    GRIPPER,
    HAND_BODY,
    HAND_SITE,
    HIDDEN_SIZE,
    RESET_JOINTS,
    SUBSTEPS,
    qpos_of,
)
from qualcheck.envs.libero.model import load, missing
from qualcheck.envs.running_mujoco import quiet
from qualcheck.timing import SIMULATE, WAIT, phase
from qualcheck.types import AnyArray, BoolArray, FloatArray, IntArray


class Played(NamedTuple):
    """What the simulator made of rollouts."""

    end: FloatArray  # (M, 44) row after each action; joints and fingers of the last substep, poses one older
    hidden: FloatArray  # (M, 43) hidden state before each action
    sound: (
        BoolArray  # (M,) False: MuJoCo or the controller gave up, there or since the last followed row; the row is NaN
    )
    last: FloatArray  # (N, 43) hidden state after the last action


def library() -> ctypes.CDLL:
    """The MuJoCo library that the Python package has loaded."""
    folder = Path(mujoco.__file__).parent
    names = [path for path in sorted(folder.iterdir()) if "mujoco" in path.name and mujoco.__version__ in path.name]
    return ctypes.CDLL(str(names[0]))


def compiled_loop() -> Any:
    """The compiled inner loop, compiled or read from numba's cache at the first call.

    Raises:
        MissingExtra: numba is not installed.
    """
    try:
        from qualcheck.envs.libero import compiled
    except ModuleNotFoundError as error:
        raise missing() from error
    return compiled


class _Worker:
    """One MjData and the views on it that the compiled loop reads and writes."""

    def __init__(self, model: mujoco.MjModel) -> None:
        self.model, self.data = model, mujoco.MjData(model)
        data, site = self.data, model.site(HAND_SITE).id
        bodies = [model.body(name).id for name in (HAND_BODY, *(f"{body}_1_main" for body in BODIES))]
        self.address = (model._address, data._address)
        self.views = (
            *(data.qpos, data.qvel, data.ctrl, data.qacc_warmstart, data.site_xpos[site], data.site_xmat[site]),
            *(data.xaxis, data.xanchor, data.qM, data.qfrc_bias, data.userdata, data.xpos, data.xquat),
            *(model.dof_Madr[:ARM].astype(np.int64), np.array(bodies)),
        )


class Simulator:
    """The simulator with its threads. Results do not depend on their number or on neighbouring rollouts."""

    def __init__(self, model: mujoco.MjModel | None = None, threads: int | None = None) -> None:
        """Args:
            model: a model of the scene; None: `model.load()`.
            threads: None takes the cores this process may use.

        Raises:
            MissingExtra: the extra is not installed.
        """
        self._compiled = compiled_loop()
        self.model = model or load()
        self.threads = threads or cores()
        self.steps = 0  # actions simulated since the beginning
        shared = library()
        self._functions = tuple(
            int(ctypes.cast(function, ctypes.c_void_p).value or 0) for function in (shared.mj_step1, shared.mj_step2)
        )
        self._idle: SimpleQueue[_Worker] = SimpleQueue()
        for _ in range(self.threads):
            self._idle.put(_Worker(self.model))
        self._pool = ThreadPoolExecutor(self.threads)
        self.rest = self._at_rest()  # (43,) hidden state of a reset
        self.rest.flags.writeable = False

    def close(self) -> None:
        self._pool.shutdown()

    def _at_rest(self) -> FloatArray:
        """Nothing moves, the gripper's command is 0, the hand is to be turned as in the reset pose. (43,)."""
        data = mujoco.MjData(self.model)
        data.qpos[:ARM] = RESET_JOINTS
        mujoco.mj_kinematics(self.model, data)
        rest = np.zeros(HIDDEN_SIZE)
        rest[GOAL_TURN] = data.site_xmat[self.model.site(HAND_SITE).id]
        return rest

    def play(
        self,
        start: AnyArray,
        action: AnyArray,
        offsets: IntArray,
        follow: BoolArray | None = None,
        hidden: FloatArray | None = None,
        sample_after: int = SUBSTEPS,
    ) -> Played:
        """Rollouts under the sequential filter.

        Args:
            start: (M, 44) row before each action.
            action: (M, 7); where it is not finite the simulator goes on with 0 and the row after it is NaN.
            offsets: (N+1,) first action of each rollout.
            follow: (M,) rows whose positions the simulator takes on; None: all that are finite. On the others it goes
                on from where it is, so that following the first row alone is the open loop. Before the first followed
                row of a rollout there is nothing to simulate: the rows are NaN and not sound.
            hidden: (N, 43) hidden state before the first action, NaN where unknown; None: that of a reset.
            sample_after: substep whose row is given out. The benchmark shows rows of substep 24 at first, so that from
                one of them to the next it is 25 substeps, and 24 from a full state of MuJoCo.
        """
        m, n = len(action), len(offsets) - 1
        played = Played(
            np.full((m, OBS_SIZE), np.nan), np.empty((m, HIDDEN_SIZE)), np.zeros(m, bool), np.empty((n, HIDDEN_SIZE))
        )
        positions = qpos_of(start)  # (M, 37)
        shown: BoolArray = np.logical_and.reduce(np.isfinite(positions), axis=1)  # (M,)
        if follow is not None:
            shown &= follow
        usable = np.isfinite(action).all(axis=1)  # (M,)
        control = np.where(np.isfinite(action), action, 0.0).astype(np.float64)  # (M, 7)
        played.last[:] = self.rest if hidden is None else np.where(np.isnan(hidden), self.rest, hidden)

        def one(rollout: int) -> None:
            first, stop = int(offsets[rollout]), int(offsets[rollout + 1])
            state, known = played.last[rollout], shown[first:stop]
            begin = first + int(np.argmax(known)) if known.any() else stop
            for t in range(first, begin):
                played.hidden[t] = state
                state[GRIPPER] = np.clip(state[GRIPPER] + SUBSTEPS * GRIPPER_STEP * np.sign(control[t, 6]), -1.0, 1.0)
            part = slice(begin, stop)
            worker = self._idle.get()
            try:
                mujoco.mj_resetData(worker.model, worker.data)
                given = positions[part], shown[part], control[part]
                with phase(SIMULATE):
                    self._compiled.play(
                        *(*self._functions, *worker.address, *worker.views, *given),
                        *(sample_after, state, played.hidden[part], played.end[part], played.sound[part]),
                    )
            finally:
                self._idle.put(worker)

        with quiet(), phase(WAIT):
            list(self._pool.map(one, np.argsort(-np.diff(offsets), kind="stable").tolist()))
        self.steps += m
        played.sound[~usable | ~np.isfinite(played.end).all(axis=1)] = False
        played.end[~played.sound] = np.nan
        return played
