"""The physics of CLEVR-Robot: one push from each of many states by `mujoco.rollout`, and the same by a plain loop.

A push sets the point mass down beside the centre of a ball, inside of it, and drives it for 0.4 s; the contact does
the rest. The point mass starts at rest, MuJoCo's clock at 0 and its warm start at zero, so that a result depends on
the balls and the action alone. Source: the ball environment of ImagineBench (arXiv 2505.10010), step by step.
"""

from __future__ import annotations

from importlib.resources import files

import mujoco
import mujoco.rollout
import numpy as np

from qualcheck.cores import cores
from qualcheck.envs.clevr.layout import BALL_HIDDEN, BALLS, BALLS_HIDDEN, DIRECTIONS, REST_HEIGHT_M
from qualcheck.envs.running_mujoco import quiet
from qualcheck.errors import unknown_name
from qualcheck.timing import SIMULATE, phase
from qualcheck.types import BoolArray, FloatArray, IntArray

FAMILIES = ("mujoco-3", "mujoco-2")
SUBSTEPS = 40  # mj_step calls an action
SUBSTEP_SECONDS = 0.01
PUSH_OFFSET = 0.15  # of a direction: how far before the centre the pusher is set down

POSITIONS, VELOCITIES = 37, 32
STATE_SIZE = POSITIONS + VELOCITIES
PUSHER = slice(35, 37)
PUSHER_VELOCITY = slice(POSITIONS + 30, POSITIONS + 32)
_BALL = np.arange(len(BALLS))
XY = 7 * _BALL[:, None] + np.arange(2)  # (5, 2) columns of a state
Z = 7 * _BALL + 2  # (5,)
QUATERNION = 7 * _BALL[:, None] + np.arange(3, 7)  # (5, 4) w x y z
VELOCITY = POSITIONS + 6 * _BALL[:, None] + np.arange(3)  # (5, 3) world axes
SPIN = POSITIONS + 6 * _BALL[:, None] + np.arange(3, 6)  # (5, 3) axes of the ball
_MOVING = np.concatenate([Z[:, None], VELOCITY, SPIN], axis=1)  # (5, 7) columns in the order of BALL_HIDDEN

CHUNK = 512  # states handed over at once, 40 frames of each are held: 11 MB


def make_model(family: str = FAMILIES[0]) -> mujoco.MjModel:
    """The model as MuJoCo 3.0 to 3.4 compiles it ("mujoco-3"), or with what differed before ("mujoco-2").

    MuJoCo up to 2.3.2 gives the pusher's contacts an inverse weight that counts its armature of 0.04 kg: found by
    replaying the recordings of KALM, which then are exact to float32.

    Raises:
        UnknownName: no such family.
    """
    if family not in FAMILIES:
        raise unknown_name("simulator family of clevr", family, list(FAMILIES))
    model = mujoco.MjModel.from_xml_string((files("qualcheck.envs.clevr") / "model.xml").read_text(encoding="utf-8"))
    if family == "mujoco-2":
        pusher = model.nbody - 1
        weight = 1 / (model.body_mass[pusher] + model.dof_armature[VELOCITIES - 1])
        model.body_invweight0[pusher] = [2 * weight / 3, 0]
        model.dof_invweight0[VELOCITIES - 2 :] = weight
    return model


def state_of(centre: FloatArray, hidden: FloatArray) -> FloatArray:
    """States of given centres and hidden numbers, every ball turned upright. (B, 5, 2), (B, 35) -> (B, 69)."""
    state = np.zeros((len(centre), STATE_SIZE))
    state[:, XY] = centre
    state[:, QUATERNION[:, 0]] = 1
    state[:, _MOVING] = hidden.reshape(-1, len(BALLS), len(BALL_HIDDEN))
    return state


def hidden_of(state: FloatArray) -> FloatArray:
    """Heights, velocities and spins in world axes, in the order of `layout.BALL_HIDDEN`. (B, 69) -> (B, 35).

    A turned sphere is the same sphere, so that a state and `state_of` these numbers have the same future.
    """
    hidden = state[:, _MOVING]  # (B, 5, 7)
    quaternion, spin = state[:, QUATERNION], state[:, SPIN]  # (B, 5, 4), (B, 5, 3)
    axis = quaternion[..., 1:]
    twice = 2 * np.cross(axis, spin)
    hidden[..., 4:] = spin + quaternion[..., :1] * twice + np.cross(axis, twice)
    return hidden.reshape(len(state), BALLS_HIDDEN)


def at_rest(n: int) -> FloatArray:
    """Hidden numbers of balls that lie still on the table, (n, 35)."""
    hidden = np.zeros((n, len(BALLS), len(BALL_HIDDEN)))
    hidden[..., 0] = REST_HEIGHT_M
    return hidden.reshape(n, BALLS_HIDDEN)


class Dynamics:
    """The simulator with its threads. Not for two callers at a time; results do not depend on the number of threads.

    `steps` counts the mj_step calls asked for since the beginning.
    """

    def __init__(self, threads: int | None = None, family: str = FAMILIES[0]) -> None:
        """Start `threads` threads; None takes the cores this process may use.

        Raises:
            UnknownName: no such family.
        """
        self.threads, self.family = threads or cores(), family
        self.steps = 0
        self.model = make_model(family)
        self._data = [mujoco.MjData(self.model) for _ in range(self.threads)]
        self._pool = mujoco.rollout.Rollout(nthread=self.threads if self.threads > 1 else 0)
        self._frames = np.empty((0, SUBSTEPS, 1 + STATE_SIZE))

    def close(self) -> None:
        self._pool.close()

    def step(self, state: FloatArray, action: IntArray) -> tuple[FloatArray, BoolArray]:
        """One push from each state: end states (B, 69) float64, and whether the simulator stayed sound (B,).

        Args:
            state: (B, 69) qpos and qvel, finite; the pusher's part is not read.
            action: (B,) 0 to 39.

        Where the second is False MuJoCo gave up and the numbers are NaN.
        """
        start, control = _pushing(state, action)
        full = np.zeros((len(state), 1 + STATE_SIZE))  # the clock first
        full[:, 1:] = start
        last = np.empty_like(full)
        if len(self._frames) < min(len(state), CHUNK):
            self._frames = np.empty((min(len(state), CHUNK), SUBSTEPS, 1 + STATE_SIZE))
        with quiet():
            for at in range(0, len(state), CHUNK):
                part = slice(at, min(at + CHUNK, len(state)))
                frames = self._frames[: part.stop - at]
                with phase(SIMULATE, self.threads):
                    self._pool.rollout(
                        self.model, self._data, full[part], control[part, None], nstep=SUBSTEPS, state=frames
                    )
                last[part] = frames[:, -1]
        self.steps += SUBSTEPS * len(state)
        return _sound(last[:, 1:], last[:, 0])

    def step_plain(self, state: FloatArray, action: IntArray) -> tuple[FloatArray, BoolArray]:
        """The same by one `MjData` and `mj_step`, state after state: the referee's own way."""
        start, control = _pushing(state, action)
        data = mujoco.MjData(self.model)
        end, clock = np.empty_like(start), np.empty(len(start))
        with quiet():
            for i in range(len(start)):
                mujoco.mj_resetData(self.model, data)
                data.qpos[:], data.qvel[:] = start[i, :POSITIONS], start[i, POSITIONS:]
                data.ctrl[:] = control[i]
                mujoco.mj_step(self.model, data, SUBSTEPS)
                end[i, :POSITIONS], end[i, POSITIONS:] = data.qpos, data.qvel
                # MuJoCo goes on after a warning, from its reference pose, where `mujoco.rollout` stops
                clock[i] = 0 if any(warning.number for warning in data.warning) else data.time
        self.steps += SUBSTEPS * len(state)
        return _sound(end, clock)


def _pushing(state: FloatArray, action: IntArray) -> tuple[FloatArray, FloatArray]:
    """States with the pusher set down, and its force in N: (B, 69), (B, 2)."""
    ball, control = action // len(DIRECTIONS), DIRECTIONS[action % len(DIRECTIONS)]
    start = state.astype(np.float64)
    start[:, PUSHER] = np.take_along_axis(start, XY[ball], axis=1) - PUSH_OFFSET * control
    start[:, PUSHER_VELOCITY] = 0
    return start, control


def _sound(end: FloatArray, clock: FloatArray) -> tuple[FloatArray, BoolArray]:
    """A MuJoCo that gives up restarts its clock, or stops it."""
    sound = (clock > (SUBSTEPS - 0.5) * SUBSTEP_SECONDS) & np.isfinite(end).all(axis=1)
    end[~sound] = np.nan
    return end, sound
