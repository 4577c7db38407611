"""The benchmark's tasks as environments, on the real physics with its full state."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from qualcheck.envs.clevr import goals, policies, record, reset, reward, text
from qualcheck.envs.clevr.dynamics import FAMILIES, XY, Dynamics, at_rest, hidden_of, state_of
from qualcheck.envs.clevr.goals import ActedRows
from qualcheck.envs.clevr.layout import (
    ACTIONS,
    BALLS_HIDDEN,
    CARRIED,
    CODE_SIZE,
    HIDDEN_SIZE,
    OBS_SIZE,
    takeable,
    usable_actions,
    xy,
)
from qualcheck.errors import UsageError, unknown_name
from qualcheck.types import AnyArray, BoolArray, FloatArray, Placement

PREDICATES = ("intended", "released")
SCENES = 100  # drawn for a given goal until one does not meet it


class ClevrTask(gymnasium.Env[AnyArray, np.int64]):
    """One task of the benchmark: five balls, 40 pushes, and 768 numbers of the instruction if given.

    An episode ends with its goal or after 50 steps; that of an easy task, after its only step. The first row never
    meets the goal, unless it was given. Unlike in the benchmark the first push goes to the ball where it is, and all
    randomness comes from the seed of `reset`.
    """

    metadata: dict[str, Any] = {"render_modes": []}  # noqa: RUF012  # gymnasium reads it off the class

    def __init__(
        self,
        task: str,
        predicates: str = "intended",
        instruction_code: AnyArray | None = None,
        family: str = FAMILIES[0],
    ) -> None:
        """Args:
            task: an id of `goals.TASKS`, whose balls each reset draws, an id with balls ("tau_left:red,blue"), or a
                sentence.
            predicates: "intended" (the goal by meaning) or "released" (the benchmark's own test).
            instruction_code: (768,) appended to every observation.
            family: simulator family.

        Raises:
            UnknownName: no such task, predicate set or family.
            UsageError: the code does not fit.
        """
        if predicates not in PREDICATES:
            raise unknown_name("predicate set", predicates, list(PREDICATES))
        if instruction_code is not None and np.shape(instruction_code) != (CODE_SIZE,):
            found = np.shape(instruction_code)
            raise UsageError(f"CLEVR-Robot instruction code: shape {found}; expected ({CODE_SIZE},), one code.")
        self._drawn = task in goals.TASK_IDS
        self.placement = Placement(task, task) if self._drawn else text.placement_of_task(task)
        self.task, self.predicates = self.placement.task, predicates
        self._code = np.asarray([] if instruction_code is None else instruction_code, np.float64)
        self._dynamics = Dynamics(threads=1, family=family)
        self._state = state_of(np.zeros((1, OBS_SIZE // 2, 2)), at_rest(1))  # (1, 69)
        self._roles = goals.roles([self.placement])
        self._steps, self._count, self._instruction = 0, np.zeros(1), ""
        self.observation_space = spaces.Box(-np.inf, np.inf, (OBS_SIZE + len(self._code),), np.float64)
        self.action_space: Any = spaces.Discrete(ACTIONS)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[AnyArray, dict[str, Any]]:
        """Start an episode.

        Args:
            seed: of all that is drawn.
            options: "row", (10,) the balls' places, else they are drawn; "hidden", (82,) as in `Replay.hidden` or (35,)
                its first part, else the balls lie still.

        Raises:
            UsageError: the simulator cannot be put into the given row, or the hidden numbers are none.
        """
        super().reset(seed=seed)
        given = options or {}
        row = self._scene() if given.get("row") is None else self._checked(given["row"])
        hidden = at_rest(1) if given.get("hidden") is None else _carried(given["hidden"])
        if self._drawn:
            self.placement = reset.draw(self.task, xy(row), self.np_random)[0]
        self._roles = goals.roles([self.placement])
        self._instruction = record.sentence(self.placement, self.np_random)
        self._state = state_of(xy(row), hidden)
        self._steps, self._count = 0, np.zeros(1)
        return self._obs(row[0]), self._info(False)

    def _scene(self) -> FloatArray:
        """A first row, (1, 10), that does not meet the goal if that is fixed."""
        rows = reset.sample(1 if self._drawn else SCENES, self.np_random)
        if self._drawn:
            return rows
        held, number = goals.counts(xy(rows), goals.roles([self.placement] * len(rows)))
        chosen = int(((number == 0) | (held < number)).argmax())
        return rows[chosen : chosen + 1]

    def _checked(self, row: Any) -> FloatArray:
        rows = np.asarray(row, np.float64)[np.newaxis]
        if rows.shape != (1, OBS_SIZE) or takeable(rows)[0]:
            raise UsageError(f"CLEVR-Robot reset: row {rows[0].tolist()} is no state; expected {OBS_SIZE} places in m.")
        return rows

    def step(self, action: np.int64 | int) -> tuple[AnyArray, float, bool, bool, dict[str, Any]]:
        """Push a ball and judge the row after it.

        Raises:
            ValueError: the action is not a whole number from 0 to 39.
            RuntimeError: the simulator gave up.
        """
        number = np.asarray(action).reshape(-1)
        if number.shape != (1,) or not usable_actions(number)[0]:
            raise ValueError(f"action {action!r}; expected a whole number from 0 to {ACTIONS - 1}")
        taken = number.astype(np.int64)  # (1,)
        before = self._state[:, XY]  # (1, 5, 2)
        end, sound = self._dynamics.step(self._state, taken)
        if not sound[0]:
            raise RuntimeError(f"MuJoCo gave up in action {action} from {before.ravel().tolist()}")
        after = end[:, XY]
        self._state = state_of(after, hidden_of(end))
        self._steps += 1
        gain = reward.of_step(self._roles, before, after, taken, self._count)[reward.READINGS[0]]
        self._count = goals.counts(before, self._roles)[0].astype(np.float64)
        success = self._success(before, after, taken)
        horizon = int(policies.horizon_of(self._roles)[0])
        over = self._steps >= horizon
        done = success or (over and horizon == 1)
        return self._obs(after.ravel()), float(gain[0]), done, over and not done, self._info(success)

    def _success(self, before: FloatArray, after: FloatArray, action: AnyArray) -> bool:
        obs = np.concatenate([before, after]).reshape(2, OBS_SIZE)
        ok: BoolArray = np.ones(2, bool)
        first = np.array([self._steps == 1])
        rows = ActedRows(obs, np.array([0, 2]), ok, np.array([-1, action[0]]), first)
        found = goals.evaluate(rows, [self.placement], np.zeros(1, np.int64))
        return bool((found.intended if self.predicates == "intended" else found.released)[1])

    def _obs(self, row: AnyArray) -> AnyArray:
        return np.concatenate([row, self._code])

    def _info(self, success: bool) -> dict[str, Any]:
        return {"is_success": success, "instruction": self._instruction, "goal": record.goal_array(self.placement)}

    def close(self) -> None:
        self._dynamics.close()


def _carried(hidden: Any) -> FloatArray:
    """The hidden numbers of the balls, (35,) or (82,) -> (1, 35)."""
    numbers = np.asarray(hidden, np.float64).ravel()
    carried = numbers[CARRIED] if len(numbers) == HIDDEN_SIZE else numbers
    if carried.shape != (BALLS_HIDDEN,) or not np.isfinite(carried).all():
        raise UsageError(
            f"CLEVR-Robot reset: {len(numbers)} hidden numbers, {int(np.isfinite(carried).sum())} of them known; "
            f"expected {HIDDEN_SIZE} or {BALLS_HIDDEN}, of which {BALLS_HIDDEN} are known."
        )
    return carried[np.newaxis]
