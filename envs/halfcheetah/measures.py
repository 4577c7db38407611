"""What the laws of HalfCheetah bound: numbers of a row, and of a step from one row to the next.

`limits.json` holds the bounds, `learn.py` made it from real data.
"""

from __future__ import annotations

import json
from functools import cache
from importlib.resources import files
from typing import Any

import numpy as np

from qualcheck.envs.halfcheetah.layout import (
    HEIGHT,
    JOINT_HIGH,
    JOINT_LOW,
    JOINT_RATES,
    JOINTS,
    PITCH,
    PITCH_RATE,
    POSITIONS,
    STEP_SECONDS,
    VELOCITIES,
    X_SPEED,
    Z_SPEED,
)
from qualcheck.types import FloatArray

# name -> unit; each is a number that is 0 at best and illegal above its limit, worst column first where it has several
ROW_UNITS = {
    "height_low": "m",
    "height_high": "m",
    "joint_overshoot": "rad",
    "x_speed": "m/s",
    "z_speed": "m/s",
    "pitch_rate": "rad/s",
    "joint_rate": "rad/s",
    "displacement": "m",
}
STEP_UNITS = {
    "height_residual": "m",
    "pitch_residual": "rad",
    "joint_residual": "rad",
    "displacement_residual": "m",
    "x_speed_change": "m/s",
    "z_speed_change": "m/s",
    "pitch_rate_change": "rad/s",
    "joint_rate_change": "rad/s",
}


def of_rows(state: FloatArray, displacement_m: FloatArray | None) -> dict[str, FloatArray]:
    """What bounds a row alone, name -> (R,). (R, 17), and (R,) where the rows show it.

    The displacement of the row of a reset is its absolute x, so it must not be passed on.
    """
    joints = state[:, JOINTS]
    overshoot = np.maximum(JOINT_LOW - joints, joints - JOINT_HIGH)
    found = {
        "height_low": -state[:, HEIGHT],
        "height_high": state[:, HEIGHT],
        "joint_overshoot": overshoot.max(axis=1),
        "x_speed": np.abs(state[:, X_SPEED]),
        "z_speed": np.abs(state[:, Z_SPEED]),
        "pitch_rate": np.abs(state[:, PITCH_RATE]),
        "joint_rate": np.abs(state[:, JOINT_RATES]).max(axis=1),
    }
    return found if displacement_m is None else {**found, "displacement": np.abs(displacement_m)}


def of_steps(start: FloatArray, end: FloatArray, displacement_m: FloatArray | None) -> dict[str, FloatArray]:
    """What bounds a step, name -> (M,). (M, 17) twice, and the displacement (M,) where the end rows show it.

    A residual is |q' - q - h (v + v') / 2| with h = 0.05 s: positions must follow from velocities. It is 0 only if the
    velocity changed evenly over the five substeps, hence a limit far above rounding.
    """
    mean = STEP_SECONDS * (start[:, VELOCITIES] + end[:, VELOCITIES]) / 2  # (M, 9) x first
    residual = np.abs(end[:, POSITIONS] - start[:, POSITIONS] - mean[:, 1:])
    change = np.abs(end[:, VELOCITIES] - start[:, VELOCITIES])
    found = {
        "height_residual": residual[:, HEIGHT],
        "pitch_residual": residual[:, PITCH],
        "joint_residual": residual[:, JOINTS].max(axis=1),
        "x_speed_change": change[:, 0],
        "z_speed_change": change[:, 1],
        "pitch_rate_change": change[:, 2],
        "joint_rate_change": change[:, 3:].max(axis=1),
    }
    return found if displacement_m is None else {**found, "displacement_residual": np.abs(displacement_m - mean[:, 0])}


@cache
def limits(kind: str = "limit") -> dict[str, float]:
    """Name -> largest legal value ("limit") or largest one in real data ("recorded"), from the shipped table."""
    text = files("qualcheck.envs.halfcheetah").joinpath("limits.json").read_text(encoding="utf-8")
    kept: dict[str, Any] = json.loads(text)
    return {name: float(entry[kind]) for name, entry in kept["limits"].items()}
