"""Many BabyAI episodes at once by the array kernel, each the one that `BabyAIEnv` has with the same seed."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from gymnasium.utils import seeding

from qualcheck.envs.babyai import goals, kernel, reward, start
from qualcheck.envs.babyai.layout import ACTIONS, HORIZON, fields
from qualcheck.episodes import Begun, Stepped
from qualcheck.types import AnyArray, IntArray


class BabyAIEpisodes:
    """Episodes of one task in lockstep; see `qualcheck.episodes`."""

    batch = 1_024

    def __init__(
        self,
        task: str,
        predicates: str = "intended",
        params: Sequence[str] | None = None,
        level: str | None = None,
        horizon: int = HORIZON,
    ) -> None:
        """Args: see `BabyAIEnv`."""
        self._starts = start.Starts(task, params, level)
        self.task, self._horizon = task, horizon
        self._intended = predicates == "intended"
        self.close()

    def reset(self, seeds: Sequence[int]) -> Begun:
        rngs = [seeding.np_random(seed)[0] for seed in seeds]
        drawn = [self._starts.draw(rng) for rng in rngs]
        obs = np.stack([each.row for each in drawn])
        self._value = fields(obs).value  # (17, B)
        self._role = goals.role_columns([each.params for each in drawn])  # (4, B)
        self._effort = self._first_effort = reward.effort(self.task, self._value, self._role)
        self._steps = 0
        return Begun(obs, [each.instruction for each in drawn], rngs)

    def step(self, action: AnyArray) -> Stepped:
        chosen = kernel.actions(np.asarray(action))
        if (chosen < 0).any():
            wrong = np.asarray(action)[chosen < 0][:3]
            raise ValueError(f"actions {wrong} are none of the seven: 0 to {len(ACTIONS) - 1}")
        self._value = kernel.step(self._value, chosen)
        self._steps += 1
        before, self._effort = self._effort, reward.effort(self.task, self._value, self._role)
        intended, released, _ = goals.holds(self.task, self._value, self._role)
        success = intended if self._intended else released
        gain = reward.combine(success, before, self._effort, self._first_effort, np.array([self._steps]))
        over = np.full(len(success), self._steps >= self._horizon)
        return Stepped(self._value.T.astype(np.float32), gain, success, success, over & ~success)

    def keep(self, which: IntArray) -> None:
        self._value, self._role = np.ascontiguousarray(self._value[:, which]), self._role[:, which]
        self._effort, self._first_effort = self._effort[which], self._first_effort[which]

    def close(self) -> None:
        """Forget the episodes."""
        self._value = np.zeros((0, 0), np.int8)
        self._role = np.zeros((4, 0), np.int8)
        self._effort = self._first_effort = np.zeros(0)
        self._steps = 0
