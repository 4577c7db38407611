"""How an episode begins: the row, the objects that its task names, and the sentence that says so."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from qualcheck.envs.babyai import goals, reset, text
from qualcheck.envs.babyai.layout import COLOURS, TYPES
from qualcheck.errors import UsageError, unknown_name
from qualcheck.types import AnyArray

ANY = "any"
DEFAULT_PARAMS: dict[str, tuple[str, ...]] = {
    "goto": ("blue", "ball"),
    "open": ("blue", "door"),
    "pickup": ("blue", "ball"),
    "putnext": ("blue", "ball", "green", "box"),
}  # what the benchmark evaluates; the other tasks name nothing


class Start(NamedTuple):
    """The beginning of one episode."""

    row: AnyArray  # (17,) float32
    params: tuple[str, ...]
    instruction: str


class Starts:
    """Draws the starts of a task.

    Args:
        task: an id of `goals.TASKS`.
        params: colour and type of each object the task names; None takes the benchmark's own, "any" draws them anew
            for each start.
        level: whose sentences are said; None takes the first level that has the task.

    Raises:
        UnknownName: no such task, or none of that level.
        UsageError: the parameters do not fit the task.
    """

    def __init__(self, task: str, params: Sequence[str] | str | None = None, level: str | None = None) -> None:
        if task not in goals.TASK_IDS:
            raise unknown_name("BabyAI task", task, list(goals.TASK_IDS))
        levels = [name for name, tasks in goals.TASKS.items() if task in tasks]
        if level is not None and level not in levels:
            raise unknown_name(f"level of BabyAI {task}", level, levels)
        default = DEFAULT_PARAMS.get(task, ())
        chosen = default if params is None or params == ANY else tuple(params)
        fits = len(chosen) == len(default) and all(
            word in (TYPES if place % 2 else COLOURS) for place, word in enumerate(chosen)
        )
        if not fits:
            raise UsageError(f"BabyAI {task}: parameters {chosen!r}; expected colours and types like {default!r}.")
        self.task, self.level = task, level or levels[0]
        self._params = None if params == ANY else chosen

    def draw(self, rng: np.random.Generator) -> Start:
        """One start."""
        params = reset.sample_params(self.task, 1, rng)[0] if self._params is None else self._params
        row = reset.sample_row(self.task, params, rng)
        return Start(row, params, text.say(self.task, params, self.level, rng))
