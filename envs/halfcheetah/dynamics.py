"""MuJoCo, many rollouts at once: `mujoco.rollout` on gymnasium's own model file.

Every simulation starts at x = 0 with a zero warm start, so that a result depends on its row and actions alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib.resources import files

import mujoco
import mujoco.rollout
import numpy as np

from qualcheck.cores import cores
from qualcheck.envs.halfcheetah.layout import ACTION_SIZE, STATE_SIZE, SUBSTEPS
from qualcheck.envs.running_mujoco import quiet
from qualcheck.timing import SIMULATE, phase
from qualcheck.types import AnyArray, BoolArray, FloatArray, IntArray

TIME, X, STATE = 0, 1, slice(2, 19)  # columns of MuJoCo's state: time, then qpos (9) and qvel (9)
FULL_SIZE = 19
SUBSTEP_SECONDS = 0.01
CHUNK_ROWS = 10_000  # single steps handed over at once: 5,000 to 20,000 are equally fast, more are slower
CHUNK_ROLLOUTS = 32  # whole rollouts of similar length handed over at once


def model_path() -> str:
    """The model file inside the installed gymnasium package."""
    return str(files("gymnasium") / "envs" / "mujoco" / "assets" / "half_cheetah.xml")


class Dynamics:
    """The simulator with its threads. Not for two callers at a time; results do not depend on the number of threads.

    `steps` counts the mj_step calls asked for since the beginning.
    """

    def __init__(self, threads: int | None = None) -> None:
        """Start `threads` threads; None takes the cores this process may use."""
        self.threads = threads or cores()
        self.steps = 0
        self.model = mujoco.MjModel.from_xml_path(model_path())
        self._data = [mujoco.MjData(self.model) for _ in range(self.threads)]
        self._pool = mujoco.rollout.Rollout(nthread=self.threads if self.threads > 1 else 0)

    def close(self) -> None:
        self._pool.close()

    def _run(self, start: FloatArray, control: FloatArray, nstep: int) -> FloatArray:
        """MuJoCo states after each substep. (B, 17), (B, 1 or nstep, 6) -> (B, nstep, 19)."""
        initial = np.zeros((len(start), FULL_SIZE))
        initial[:, STATE] = start
        self.steps += len(start) * nstep
        with quiet(), phase(SIMULATE, self.threads):
            state, _ = self._pool.rollout(self.model, self._data, initial, control, nstep=nstep)
        return np.asarray(state)

    def step(self, state: FloatArray, action: AnyArray) -> tuple[FloatArray, FloatArray, BoolArray]:
        """One action from each state: end states, displacements, and whether the simulator stayed sound.

        Args:
            state: (B, 17) takeable states.
            action: (B, 6) finite.

        Returns:
            (B, 17) and (B,) float64, (B,); where the last is False MuJoCo gave up and the numbers are NaN.
        """
        end = np.empty((len(state), STATE_SIZE))
        moved = np.empty(len(state))
        sound = np.empty(len(state), bool)
        for at in range(0, len(state), CHUNK_ROWS):
            part = slice(at, at + CHUNK_ROWS)
            last = self._run(state[part], control_of(action[part])[:, None], SUBSTEPS)[:, -1]  # (B, 19)
            sound[part] = (
                last[:, TIME] > (SUBSTEPS - 0.5) * SUBSTEP_SECONDS
            )  # a MuJoCo that gives up restarts its clock
            end[part], moved[part] = last[:, STATE], last[:, X]
        sound &= np.logical_and.reduce(np.isfinite(end), axis=1)
        end[~sound] = moved[~sound] = np.nan
        return end, moved, sound

    def advance(self, state: FloatArray, action: AnyArray) -> tuple[FloatArray, BoolArray]:
        """One action from each state with absolute x, (B, 18) and (B, 6): end states (B, 18), and whether sound (B,).

        The same numbers as gymnasium's step gives from these states without a warm start.
        """
        initial = np.zeros((len(state), FULL_SIZE))
        initial[:, X:] = state
        self.steps += len(state) * SUBSTEPS
        control = control_of(action)[:, None]
        with quiet(), phase(SIMULATE, self.threads):
            full, _ = self._pool.rollout(self.model, self._data, initial, control, nstep=SUBSTEPS)
        last = np.asarray(full)[:, -1]  # (B, 19)
        sound = (last[:, TIME] > (SUBSTEPS - 0.5) * SUBSTEP_SECONDS) & np.isfinite(last).all(axis=1)
        return last[:, X:], sound

    def play(
        self, state: FloatArray, action: AnyArray, offsets: IntArray
    ) -> Iterator[tuple[IntArray, FloatArray, FloatArray, BoolArray]]:
        """Whole rollouts from their first states, open loop, longest first and several at a time.

        Args:
            state: (N, 17) takeable first states.
            action: (M, 6) finite.
            offsets: (N+1,) first action of each rollout.

        Yields:
            Numbers of the transitions (m,), end states (m, 17), displacements (m,) and whether the simulator stayed
            sound up to there (m,).
        """
        length = np.diff(offsets)
        order = np.argsort(-length, kind="stable")
        order = order[length[order] > 0]
        for at in range(0, len(order), CHUNK_ROLLOUTS):
            part = order[at : at + CHUNK_ROLLOUTS]
            longest = int(length[part[0]])
            inside = np.arange(longest) < length[part, None]  # (B, T)
            taken = offsets[part, None] + np.arange(longest)
            control = np.zeros((len(part), longest, ACTION_SIZE))
            control[inside] = control_of(action[taken[inside]])
            full = self._run(state[part], np.repeat(control, SUBSTEPS, axis=1), SUBSTEPS * longest)
            full = full[:, SUBSTEPS - 1 :: SUBSTEPS]  # (B, T, 19)
            clock = (np.arange(longest) + 1) * SUBSTEPS * SUBSTEP_SECONDS
            sound = full[:, :, TIME] > clock - 0.5 * SUBSTEP_SECONDS
            sound &= np.logical_and.reduce(np.isfinite(full), axis=2)
            sound = np.logical_and.accumulate(sound, axis=1)
            moved = np.diff(full[:, :, X], axis=1, prepend=0.0)
            yield taken[inside], full[:, :, STATE][inside], moved[inside], sound[inside]


def control_of(action: AnyArray) -> FloatArray:
    """The torques' controls of finite actions: the model clips them to [-1, 1] too, but balks at enormous ones."""
    return np.clip(action.astype(np.float64), -1.0, 1.0)
