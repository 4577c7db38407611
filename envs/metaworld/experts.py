"""Who plays the recorded rollouts: metaworld's own scripted policies, or at random.

metaworld has no script for the two tasks that it lacks: make-coffee is played by that of coffee-push, which reaches the
released goal; where the intended one is asked for the hand then leaves the mug and the script of coffee-button goes on.
locked-door-open is played by that of door-unlock.
"""

from __future__ import annotations

import importlib
import warnings
from typing import Any, Protocol

import numpy as np

from qualcheck.envs.metaworld.goals import MUG_STAGE_M
from qualcheck.envs.metaworld.layout import ACTION_SIZE, ENTITY_SIZE, GOAL, TASKS, block, position
from qualcheck.types import AnyArray, FloatArray

SCRIPT_OF = {"make-coffee": "coffee-push", "locked-door-open": "door-unlock"}
SECOND_SEEN = ("hammer",)  # tasks whose script expects the second entity where the benchmark's row has it
NOISES = (0.0, 0.0, 0.0, 0.2, 0.4, 0.7)  # standard deviation of a rollout's noise, drawn from these
HELD_STEPS = (4, 13)  # how long a random action is held
LIFT_STEPS, CLEAR_M = (
    12,
    0.3,
)  # the hand leaves the mug for so long, or up to this height, before it turns to the button
HALF = 18  # numbers of metaworld's observation that belong to one row


class Player(Protocol):
    """Whoever acts in one rollout."""

    def act(self, row: FloatArray, before: FloatArray) -> FloatArray:
        """The action on a row, (91,), after another, which is the same at the start. -> (4,) in [-1, 1]."""
        ...


def script_of(task: str) -> Any:
    """metaworld's policy for a task."""
    name = "".join(part.capitalize() for part in SCRIPT_OF.get(task, task).split("-"))
    return getattr(importlib.import_module("metaworld.policies"), f"Sawyer{name}V3Policy")()


def seen_by_script(task: str, row: FloatArray, before: FloatArray) -> FloatArray:
    """metaworld's observation of a row and the one before, (91,) each -> (39,)."""
    halves = []
    for each in (row, before):
        half = np.zeros(HALF)
        half[:4] = each[:4]
        for place, entity in enumerate(TASKS[task].entities):
            if place == 0 or task in SECOND_SEEN:
                half[4 + ENTITY_SIZE * place :][:ENTITY_SIZE] = each[block(entity)]
        halves.append(half)
    return np.concatenate([*halves, row[GOAL]])


class Scripted:
    """metaworld's script with noise of one size throughout the rollout, drawn from `NOISES` if it is not given."""

    def __init__(
        self, task: str, rng: np.random.Generator, noise: float | None = None, predicates: str = "released"
    ) -> None:
        self._task, self._rng, self._script = task, rng, script_of(task)
        drawn = float(rng.choice(NOISES))
        self._noise = drawn if noise is None else noise
        self._presses = task == "make-coffee" and predicates == "intended"
        self._button = script_of("coffee-button")
        self._placed = 0  # steps since the mug of make-coffee stood under the machine

    def act(self, row: FloatArray, before: FloatArray) -> FloatArray:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that it asks for more than the environment will do, as it always does
            wanted = np.asarray(self._wanted(row, before), np.float64)
        return np.clip(wanted + self._noise * self._rng.normal(size=ACTION_SIZE), -1, 1)

    def _wanted(self, row: FloatArray, before: FloatArray) -> FloatArray:
        """The script's action, (4,)."""
        if self._presses and not self._placed:
            self._placed = int(np.linalg.norm(row[position("coffee")] - row[GOAL]) <= MUG_STAGE_M)
        if not self._placed:
            pushes: FloatArray = self._script.get_action(seen_by_script(self._task, row, before))
            return pushes
        self._placed += 1
        if self._placed <= LIFT_STEPS and row[2] < CLEAR_M:
            return np.array([0.0, -1.0, 1.0, -1.0])  # back and up, the fingers open
        presses: FloatArray = self._button.get_action(seen_by_script("coffee-button", row, before))
        return presses


class AtRandom:
    """Uniform actions, held for several steps in every second rollout, so that the hand gets somewhere."""

    def __init__(self, rng: np.random.Generator) -> None:
        self._rng, self._holds = rng, bool(rng.random() < 0.5)
        self._left, self._action = 0, np.zeros(ACTION_SIZE)

    def act(self, row: FloatArray, before: FloatArray) -> FloatArray:  # noqa: ARG002  # it does not look
        if not self._left:
            self._action = self._rng.uniform(-1, 1, ACTION_SIZE)
            self._left = int(self._rng.integers(*HELD_STEPS)) if self._holds else 1
        self._left -= 1
        return self._action


def rounded(action: FloatArray) -> AnyArray:
    """The action as files store it, (4,) float32, so that what is executed is what is recorded."""
    return action.astype(np.float32)
