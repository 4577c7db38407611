"""Many HalfCheetah episodes at once by `mujoco.rollout`, each the one that `HalfCheetahTask` has with the same seed."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from gymnasium.utils import seeding

from qualcheck.envs.halfcheetah import goals, reward
from qualcheck.envs.halfcheetah.dynamics import Dynamics
from qualcheck.envs.halfcheetah.layout import ACTION_SIZE, BENCHMARK_SIZE, HORIZON
from qualcheck.envs.halfcheetah.reset import start
from qualcheck.episodes import Begun, Stepped
from qualcheck.types import AnyArray, FloatArray, IntArray


class HalfCheetahEpisodes:
    """Episodes of one task in lockstep; see `qualcheck.episodes`."""

    batch = 256

    def __init__(
        self,
        task: str,
        predicates: str = "intended",
        obs_size: int = BENCHMARK_SIZE,
        horizon: int = HORIZON,
    ) -> None:
        """Args: see `HalfCheetahTask`."""
        self.task, self.predicates, self._horizon = task, predicates, horizon
        self._first = BENCHMARK_SIZE - obs_size  # columns of the benchmark's row that are left out
        self._dynamics = Dynamics()
        self._state: FloatArray = np.zeros((0, BENCHMARK_SIZE))
        self._place: FloatArray = np.zeros(0)
        self._moved: list[FloatArray] = []

    def reset(self, seeds: Sequence[int]) -> Begun:
        rngs = [seeding.np_random(seed)[0] for seed in seeds]
        begun = [start(self.task, rng) for rng in rngs]
        self._state = np.stack([row for row, _ in begun])
        self._place = np.zeros(len(seeds))
        self._moved = [self._place]
        return Begun(self._state[:, self._first :].copy(), [text for _, text in begun], rngs)

    def step(self, action: AnyArray) -> Stepped:
        wanted = np.asarray(action, np.float64)
        if wanted.shape != (len(self._state), ACTION_SIZE) or not np.isfinite(wanted).all():
            raise ValueError(f"actions of shape {wanted.shape}; expected {ACTION_SIZE} finite numbers for each episode")
        end, _ = self._dynamics.advance(self._state, wanted)
        moved = end[:, 0] - self._state[:, 0]
        self._state, self._place = end, self._place + moved
        self._moved.append(moved)
        success = goals.reached_now(self.task, self._moved, self._place, self.predicates)
        obs = np.concatenate([moved[:, None], end[:, 1:]], axis=1)[:, self._first :]
        over = np.full(len(end), len(self._moved) > self._horizon)
        return Stepped(obs, reward.of_step(self.task, moved, wanted), success, success, over & ~success)

    def keep(self, which: IntArray) -> None:
        self._state, self._place = self._state[which], self._place[which]
        self._moved = [moved[which] for moved in self._moved]

    def close(self) -> None:
        self._dynamics.close()
