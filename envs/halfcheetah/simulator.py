"""Gymnasium's own HalfCheetah: the referee of single steps, and the benchmark's tasks as environments."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.envs.mujoco.half_cheetah_v5 import HalfCheetahEnv

from qualcheck.envs.halfcheetah import goals, reward
from qualcheck.envs.halfcheetah.dynamics import control_of
from qualcheck.envs.halfcheetah.layout import (
    ACTION_SIZE,
    BAD_ACTION,
    BENCHMARK_SIZE,
    CODE_SIZE,
    HORIZON,
    ILLEGAL_START,
    STATE_SIZE,
    state_of,
    takeable,
    usable_actions,
)
from qualcheck.envs.halfcheetah.reset import start
from qualcheck.envs.running_mujoco import quiet
from qualcheck.errors import UsageError, unknown_name
from qualcheck.types import AnyArray, IntArray

PREDICATES = ("intended", "released")


def referee(obs: AnyArray, action: AnyArray) -> tuple[AnyArray, IntArray]:
    """Single steps by `set_state` and `step`: (R, 17 or 18), (R, 6) -> end rows float64, codes (R,) int8.

    A code is an index into `layout.CODES`: 0, illegal_start or bad_action; the end row is NaN where it is not 0.
    """
    end = np.full(obs.shape, np.nan)
    code = np.where(takeable(obs) != 0, np.int8(ILLEGAL_START), np.int8(0))
    code[(code == 0) & ~usable_actions(action)] = BAD_ACTION
    state = state_of(obs)
    env: Any = HalfCheetahEnv()  # gymnasium's environments are not typed
    env.reset(seed=0)
    with quiet():
        for i in np.flatnonzero(code == 0):
            env.set_state(np.concatenate([[0.0], state[i, :8]]), state[i, 8:])
            row, *_ = env.step(control_of(action[i]))
            end[i] = np.concatenate([env.data.qpos[:1], row]) if obs.shape[1] == BENCHMARK_SIZE else row
    env.close()
    return end, code


class HalfCheetahTask(gymnasium.Env[AnyArray, AnyArray]):
    """One task of the benchmark: displacement of the last step, 17 numbers, and 768 of the instruction if given.

    An episode ends with the goal, or after 200 steps. The first row shows absolute x instead of a displacement, as in
    the benchmark; unlike there all randomness comes from the seed of `reset`.
    """

    metadata: dict[str, Any] = {"render_modes": []}  # noqa: RUF012  # gymnasium reads it off the class

    def __init__(
        self,
        task: str,
        predicates: str = "intended",
        instruction_code: AnyArray | None = None,
        obs_size: int = BENCHMARK_SIZE,
        horizon: int = HORIZON,
    ) -> None:
        """Args:
            task: an id of `goals.TASKS`.
            predicates: "intended" (the goal by meaning) or "released" (the benchmark's own test).
            instruction_code: (768,) appended to every observation.
            obs_size: 18, or 17 for rows without the displacement.
            horizon: steps of an episode.

        Raises:
            UnknownName: no such task or predicate set.
            UsageError: the code does not fit.
        """
        if task not in goals.TASK_IDS:
            raise unknown_name("HalfCheetah task", task, list(goals.TASK_IDS))
        if predicates not in PREDICATES:
            raise unknown_name("predicate set", predicates, list(PREDICATES))
        if instruction_code is not None and np.shape(instruction_code) != (CODE_SIZE,):
            found = np.shape(instruction_code)
            raise UsageError(f"HalfCheetah instruction code: shape {found}; expected ({CODE_SIZE},), one code.")
        self.task, self.predicates, self.horizon = task, predicates, horizon
        self._code = np.asarray([] if instruction_code is None else instruction_code, np.float64)
        self._first = BENCHMARK_SIZE - obs_size  # columns of the benchmark's row that are left out
        self._env: Any = HalfCheetahEnv()  # not typed
        self._moved: list[float] = []
        self._instruction = ""
        self.observation_space = spaces.Box(-np.inf, np.inf, (obs_size + len(self._code),), np.float64)
        self.action_space: Any = spaces.Box(-1.0, 1.0, (ACTION_SIZE,), np.float32)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[AnyArray, dict[str, Any]]:
        """Start an episode; `options={"row": row}` starts it in that row of 18 numbers (x first) or 17 (x = 0).

        Raises:
            UsageError: the simulator cannot be put into the given row.
        """
        super().reset(seed=seed)
        drawn, self._instruction = start(self.task, self.np_random)
        row = (options or {}).get("row")
        given = drawn if row is None else np.asarray(row, np.float64)
        if given.shape not in ((STATE_SIZE,), (BENCHMARK_SIZE,)) or takeable(given[None])[0]:
            raise UsageError(f"HalfCheetah reset: row {given.tolist()} is no state; expected 17 or 18 numbers.")
        x = given[0] if len(given) == BENCHMARK_SIZE else 0.0
        state = given[len(given) - STATE_SIZE :]
        self._env.reset(seed=0)  # draws a state that is overwritten
        self._env.set_state(np.concatenate([[x], state[:8]]), state[8:])
        self._moved = [0.0]
        return self._obs(float(x), state), self._info(False)

    def step(self, action: AnyArray) -> tuple[AnyArray, float, bool, bool, dict[str, Any]]:
        """Apply one action and judge the row after it.

        Raises:
            ValueError: the action is not six finite numbers.
        """
        wanted = np.asarray(action, np.float64)
        if wanted.shape != (ACTION_SIZE,) or not np.isfinite(wanted).all():
            raise ValueError(f"action {action!r}; expected {ACTION_SIZE} finite numbers")
        before = float(self._env.data.qpos[0])
        self._env.data.qacc_warmstart[:] = 0  # so that the row alone decides what follows, as in every replay
        state, *_ = self._env.step(control_of(wanted))
        self._moved.append(float(self._env.data.qpos[0]) - before)
        gain = reward.of_step(self.task, np.array(self._moved[-1:]), wanted[None])
        done = bool(goals.excess(self.task, np.array([self._moved]), self.predicates)[0, -1] > 0)
        truncated = len(self._moved) > self.horizon
        return self._obs(self._moved[-1], state), float(gain[0]), done, truncated, self._info(done)

    def _info(self, success: bool) -> dict[str, Any]:
        return {"is_success": success, "instruction": self._instruction}

    def _obs(self, first: float, state: AnyArray) -> AnyArray:
        return np.concatenate([np.concatenate([[first], state])[self._first :], self._code])

    def close(self) -> None:
        self._env.close()
