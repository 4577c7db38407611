"""A new environment in one small file: gymnasium's MountainCarContinuous, whose rows show the whole state.

A package tells qualcheck of it by an entry point: [project.entry-points."qualcheck.envs"] hill-car = "module:HillCar".
"""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np

from qualcheck.envs.plain import CODES, Plain
from qualcheck.spec import ActionSpec, Block, EnvSpec

FLAG_M = 0.45


class HillCar(Plain):
    """A car that must swing up a hill."""

    spec = EnvSpec(
        id="hill-car",
        version="1",
        blocks=(Block("position", (0,), "m"), Block("velocity", (1,), "m/step")),
        obs_size=2,
        code_size=0,
        action=ActionSpec("box", 1, -1.0, 1.0),
        step_seconds=None,
        horizon=999,
        judging_grade="scaled:0.5",
        restores="exact",
        codes=CODES,
        columns=("position_m", "velocity"),
    )
    low, high = np.array([-1.2001, -0.0701]), np.array([0.6001, 0.0701])
    TASKS = {"flag": ("real", ("drive up to the flag",), lambda obs: obs[:, 0] >= FLAG_M)}  # noqa: RUF012

    def simulator(self) -> Any:
        return gymnasium.make("MountainCarContinuous-v0", disable_env_checker=True).unwrapped

    def restore(self, env: Any, row: Any) -> None:
        env.unwrapped.state = np.array(row)

    def reward_of(self, start: Any, action: Any, end: Any) -> Any:  # noqa: ARG002
        return 100.0 * (end[:, 0] >= FLAG_M) - 0.1 * action[:, 0] ** 2
