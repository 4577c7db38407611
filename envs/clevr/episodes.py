"""Many CLEVR-Robot episodes in lockstep; `ClevrTask` is one of them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from gymnasium.utils import seeding

from qualcheck.envs.clevr import goals, policies, record, reset, reward, text
from qualcheck.envs.clevr.dynamics import FAMILIES, XY, Dynamics, at_rest, hidden_of, state_of
from qualcheck.envs.clevr.goals import ActedRows
from qualcheck.envs.clevr.layout import ACTIONS, HORIZON, OBS_SIZE, usable_actions, xy
from qualcheck.episodes import Begun, Stepped
from qualcheck.types import AnyArray, BoolArray, FloatArray, IntArray, Placement

SCENES = 100  # drawn for a given goal until one does not meet it


class Starts:
    """Draws the first rows and goals of a task: an id, an id with balls ("tau_left:red,blue"), or a sentence.

    Raises:
        UnknownName: no such task.
    """

    def __init__(self, task: str) -> None:
        self._drawn = task in goals.TASK_IDS
        self.placement = Placement(task, task) if self._drawn else text.placement_of_task(task)

    def scene(self, rng: np.random.Generator) -> FloatArray:
        """A first row, (1, 10), that does not meet the goal if that is fixed."""
        rows = reset.sample(1 if self._drawn else SCENES, rng)
        if self._drawn:
            return rows
        held, number = goals.counts(xy(rows), goals.roles([self.placement] * len(rows)))
        chosen = int(((number == 0) | (held < number)).argmax())
        return rows[chosen : chosen + 1]

    def goal(self, row: FloatArray, rng: np.random.Generator) -> tuple[Placement, str]:
        """The goal of an episode that starts in a row, (1, 10), and a sentence for it."""
        placement = reset.draw(self.placement.task, xy(row), rng)[0] if self._drawn else self.placement
        return placement, record.sentence(placement, rng)


class ClevrEpisodes:
    """Episodes of one task; see `qualcheck.episodes`."""

    batch = 256

    def __init__(
        self,
        task: str,
        predicates: str = "intended",
        family: str = FAMILIES[0],
        horizon: int = HORIZON,
        threads: int | None = None,
    ) -> None:
        """Args: see `ClevrTask`; threads: of the simulator, None takes the cores this process may use."""
        self.starts = Starts(task)
        self._intended, self._horizon = predicates == "intended", horizon
        self._dynamics = Dynamics(threads, family)
        self.begin(np.zeros((0, OBS_SIZE)), at_rest(0), [])

    def reset(self, seeds: Sequence[int]) -> Begun:
        rngs = [seeding.np_random(seed)[0] for seed in seeds]
        rows = [self.starts.scene(rng) for rng in rngs]
        drawn = [self.starts.goal(row, rng) for row, rng in zip(rows, rngs, strict=True)]
        obs = np.concatenate(rows)
        self.begin(obs, at_rest(len(obs)), [placement for placement, _ in drawn])
        return Begun(obs, [sentence for _, sentence in drawn], rngs)

    def begin(self, row: FloatArray, hidden: FloatArray, placements: Sequence[Placement]) -> None:
        """Start episodes in rows, (B, 10), with hidden numbers, (B, 35), and goals."""
        self._state = state_of(xy(row), hidden)  # (B, 69)
        self._placements, self._roles = list(placements), goals.roles(placements)
        self._steps, self._count = 0, np.zeros(len(row))

    def step(self, action: AnyArray) -> Stepped:
        """One push in each episode.

        Raises:
            ValueError: an action is not a whole number from 0 to 39.
            RuntimeError: the simulator gave up.
        """
        number = np.asarray(action).reshape(-1)
        if len(number) != len(self._state) or not usable_actions(number).all():
            raise ValueError(f"action {action!r}; expected a whole number from 0 to {ACTIONS - 1}")
        taken = number.astype(np.int64)  # (B,)
        before = self._state[:, XY]  # (B, 5, 2)
        end, sound = self._dynamics.step(self._state, taken)
        if not sound.all():
            lost = int(np.argmin(sound))
            raise RuntimeError(f"MuJoCo gave up in action {taken[lost]} from {before[lost].ravel().tolist()}")
        after = end[:, XY]
        self._state = state_of(after, hidden_of(end))
        self._steps += 1
        gain = reward.of_step(self._roles, before, after, taken, self._count)[reward.READINGS[0]]
        self._count = goals.counts(before, self._roles)[0].astype(np.float64)
        success = self._success(before, after, taken)
        single = policies.horizon_of(self._roles) == 1
        over = single | (self._steps >= self._horizon)
        done = success | single
        return Stepped(after.reshape(-1, OBS_SIZE), gain, success, done, over & ~done)

    def _success(self, before: FloatArray, after: FloatArray, action: IntArray) -> BoolArray:
        n = len(before)
        obs = np.stack([before, after], axis=1).reshape(2 * n, OBS_SIZE)
        led = np.stack([np.full(n, -1), action], axis=1).ravel()  # (2 B,)
        rows = ActedRows(obs, 2 * np.arange(n + 1), np.ones(2 * n, bool), led, np.full(n, self._steps == 1))
        found = goals.evaluate(rows, self._placements, np.arange(n))
        return (found.intended if self._intended else found.released)[1::2]

    def keep(self, which: IntArray) -> None:
        self._state, self._count, self._roles = self._state[which], self._count[which], self._roles.of(which)
        self._placements = [self._placements[at] for at in which.tolist()]

    def close(self) -> None:
        self._dynamics.close()
