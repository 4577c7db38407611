"""Environments whose rows and actions have the shapes of HalfCheetah's 17 numbers and 6 actions.

Source: Walker2d of gymnasium (MIT): 8 positions without x, then 9 velocities clipped to 10, 4 steps of 2 ms an action.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from importlib.resources import files

import numpy as np

from qualcheck.envs.halfcheetah.layout import STATE_SIZE
from qualcheck.types import AnyArray, FloatArray

MODELS = {"Walker2d-v4": "walker2d.xml", "Walker2d-v5": "walker2d_v5.xml"}
SUBSTEPS, VELOCITY_BOUND = 4, 10.0

Step = Callable[[AnyArray, AnyArray], FloatArray]


def lookalikes(obs_size: int) -> dict[str, Step]:
    """Name -> a function of rows (M, O) and actions (M, 6) that gives the end rows (M, O); none for other layouts."""
    return {name: partial(step_walker, model) for name, model in MODELS.items()} if obs_size == STATE_SIZE else {}


def step_walker(model_file: str, obs: AnyArray, action: AnyArray) -> FloatArray:
    """Apply each action to its row, (M, 17) and (M, 6) -> (M, 17) float64.

    NaN where MuJoCo gives up, and out of a row with a clipped velocity, which does not tell the state.
    """
    import mujoco  # see `qualcheck.envs.halfcheetah.dynamics`

    folder = files("gymnasium") / "envs" / "mujoco" / "assets"
    model = mujoco.MjModel.from_xml_path(str(folder / model_file))
    data = mujoco.MjData(model)
    end = np.full((len(obs), STATE_SIZE), np.nan)
    rows = obs.astype(np.float64)
    known = np.isfinite(rows).all(axis=1) & np.isfinite(action).all(axis=1)
    with np.errstate(invalid="ignore"):
        known &= (np.abs(rows[:, 8:]) < VELOCITY_BOUND).all(axis=1)
    for k in np.flatnonzero(known):
        mujoco.mj_resetData(model, data)
        data.qpos[1:], data.qvel[:] = rows[k, :8], rows[k, 8:]
        data.ctrl[:] = action[k]
        mujoco.mj_step(model, data, SUBSTEPS)
        if not any(warning.number for warning in data.warning):
            end[k] = np.concatenate([data.qpos[1:], np.clip(data.qvel, -VELOCITY_BOUND, VELOCITY_BOUND)])
    return end
