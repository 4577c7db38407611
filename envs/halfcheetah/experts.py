"""Experts of all tasks: gaits that were found by random search, and when to switch between them.

A gait is a wave for each joint, a_j(t) = clip(bias_j + amplitude_j sin(2 pi f t + phase_j)), so actions depend on time
alone and whole episodes can be simulated at once. `gaits.json` holds the numbers, `search.py` found them.
"""

from __future__ import annotations

import json
from functools import cache
from importlib.resources import files
from typing import Any

import numpy as np

from qualcheck.envs.halfcheetah.layout import ACTION_SIZE, STEP_SECONDS
from qualcheck.errors import unknown_name
from qualcheck.types import FloatArray

# task -> gait and the steps it is kept for, in turn; the last one to the end
PLANS: dict[str, tuple[tuple[str, int], ...]] = {
    **dict.fromkeys(("jump-forward", "rep-jump-forward", "move-forward", "rep-move-forward"), (("forward", 200),)),
    **dict.fromkeys(("jump-backward", "rep-jump-backward", "move-backward", "rep-move-backward"), (("backward", 200),)),
    "move-forward-fast": (("forward", 200),),
    "move-backward-fast": (("backward", 200),),
    "move-forward-backward": (("forward", 90), ("backward", 110)),
    "move-backward-forward": (("backward", 90), ("forward", 110)),
    "jump-in-place": (("bounce", 200),),
}


@cache
def gaits() -> dict[str, FloatArray]:
    """Name -> its numbers, (3, 7): biases and frequency in Hz, amplitudes and 0, phases in rad and 0."""
    text = files("qualcheck.envs.halfcheetah").joinpath("gaits.json").read_text(encoding="utf-8")
    kept: dict[str, Any] = json.loads(text)
    return {name: pack(**gait) for name, gait in kept["gaits"].items()}


def pack(hertz: float, bias: list[float], amplitude: list[float], phase: list[float]) -> FloatArray:
    """A gait's numbers as one array, (3, 7)."""
    return np.array([[*bias, hertz], [*amplitude, 0.0], [*phase, 0.0]])


def wave(gait: FloatArray, steps: int) -> FloatArray:
    """Actions of gaits from their beginning on, (..., 3, 7) -> (..., steps, 6) within [-1, 1]."""
    time = STEP_SECONDS * np.arange(steps)
    hertz = gait[..., 0, ACTION_SIZE]
    angle = 2 * np.pi * hertz[..., None, None] * time[:, None] + gait[..., None, 2, :ACTION_SIZE]
    swing: FloatArray = gait[..., None, 0, :ACTION_SIZE] + gait[..., None, 1, :ACTION_SIZE] * np.sin(angle)
    return np.clip(swing, -1, 1)


def actions(task: str, steps: int) -> FloatArray:
    """The expert's actions from a reset on, (steps, 6).

    Raises:
        UnknownName: no such task.
    """
    if task not in PLANS:
        raise unknown_name("HalfCheetah task", task, list(PLANS))
    parts = [wave(gaits()[name], kept) for name, kept in PLANS[task]]
    short = max(steps - sum(kept for _, kept in PLANS[task]), 0)
    whole = np.concatenate(parts)
    return np.concatenate([whole, np.repeat(whole[-1:], short, axis=0)])[:steps]
