"""The benchmark's tasks as environments, on the real physics with its full state."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from qualcheck.envs.clevr import record
from qualcheck.envs.clevr.dynamics import FAMILIES, at_rest
from qualcheck.envs.clevr.episodes import ClevrEpisodes
from qualcheck.envs.clevr.layout import (
    ACTIONS,
    BALLS_HIDDEN,
    CARRIED,
    CODE_SIZE,
    HIDDEN_SIZE,
    HORIZON,
    OBS_SIZE,
    takeable,
)
from qualcheck.errors import UsageError, unknown_name
from qualcheck.types import AnyArray, FloatArray

PREDICATES = ("intended", "released")


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
        horizon: int = HORIZON,
    ) -> None:
        """Args:
            task: an id of `goals.TASKS`, whose balls each reset draws, an id with balls ("tau_left:red,blue"), or a
                sentence.
            predicates: "intended" (the goal by meaning) or "released" (the benchmark's own test).
            instruction_code: (768,) appended to every observation.
            family: simulator family.
            horizon: steps of an episode; those of easy tasks have one.

        Raises:
            UnknownName: no such task, predicate set or family.
            UsageError: the code does not fit.
        """
        if predicates not in PREDICATES:
            raise unknown_name("predicate set", predicates, list(PREDICATES))
        if instruction_code is not None and np.shape(instruction_code) != (CODE_SIZE,):
            found = np.shape(instruction_code)
            raise UsageError(f"CLEVR-Robot instruction code: shape {found}; expected ({CODE_SIZE},), one code.")
        self._episodes = ClevrEpisodes(task, predicates, family, horizon, threads=1)
        self.placement = self._episodes.starts.placement
        self.task, self.predicates = self.placement.task, predicates
        self._code = np.asarray([] if instruction_code is None else instruction_code, np.float64)
        self._instruction = ""
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
        starts = self._episodes.starts
        row = starts.scene(self.np_random) if given.get("row") is None else self._checked(given["row"])
        hidden = at_rest(1) if given.get("hidden") is None else _carried(given["hidden"])
        self.placement, self._instruction = starts.goal(row, self.np_random)
        self._episodes.begin(row, hidden, [self.placement])
        return self._obs(row[0]), self._info(False)

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
        obs, gain, success, terminated, truncated = self._episodes.step(np.asarray(action))
        told = self._info(bool(success[0]))
        return self._obs(obs[0]), float(gain[0]), bool(terminated[0]), bool(truncated[0]), told

    def _obs(self, row: AnyArray) -> AnyArray:
        return np.concatenate([row, self._code])

    def _info(self, success: bool) -> dict[str, Any]:
        return {"is_success": success, "instruction": self._instruction, "goal": record.goal_array(self.placement)}

    def close(self) -> None:
        self._episodes.close()


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
