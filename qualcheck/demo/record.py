"""Real rollouts: MiniGrid played by the scripted experts with some random actions, and by chance alone."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from qualcheck.demo.episode import MAX_STEPS, Episode, Start, placement
from qualcheck.demo.label import reached
from qualcheck.envs.babyai import experts, goals, reset, text
from qualcheck.envs.babyai.layout import ACTIONS, COLOURS, TYPES, fields
from qualcheck.envs.babyai.simulator import World
from qualcheck.types import AnyArray

GENERATOR = "simulator"
RANDOM_SHARE = (0.0, 0.0, 0.0, 0.1, 0.3, 1.0)
MOVABLE = TYPES[:3]


def _params(task: str, rng: np.random.Generator) -> tuple[str, ...]:
    colours = [COLOURS[number] for number in rng.integers(len(COLOURS), size=2)]
    if task == "open":
        return colours[0], "door"
    if task in ("goto", "pickup"):
        kinds = TYPES if task == "goto" else MOVABLE
        return colours[0], str(rng.choice(kinds))
    if task == "putnext":
        moved = str(rng.choice(MOVABLE))
        return colours[0], moved, colours[1], str(rng.choice([kind for kind in TYPES if kind != moved]))
    return ()


def draw_starts(task: str, level: str, n: int, rng: np.random.Generator) -> list[Start]:
    """n fresh resets of a task, each with parameters and a sentence of its own."""
    params = [_params(task, rng) for _ in range(n)]
    rows = reset.sample_rows(task, params, n, rng)
    return [
        Start(placement(task, named), level, text.say(task, named, level, rng), row)
        for named, row in zip(params, rows, strict=True)
    ]


def record(
    task: str, level: str, n: int, rng: np.random.Generator, shares: Sequence[float] = RANDOM_SHARE
) -> list[Episode]:
    """n rollouts of a task in MiniGrid, each until its goal or for 39 steps.

    Args:
        task: an id of `goals.TASKS[level]`.
        level: decides the sentences.
        rng: source of all randomness.
        shares: of random actions among the expert's, one drawn for each rollout.
    """
    starts = draw_starts(task, level, n, rng)
    share = rng.choice(shares, size=n)
    role = goals.role_columns([start.placement.params for start in starts])  # (4, N)
    worlds = [World() for _ in starts]
    for world, start in zip(worlds, starts, strict=True):
        world.restore(start.row.tolist())
    rows: list[list[AnyArray]] = [[start.row] for start in starts]
    actions: list[list[int]] = [[] for _ in starts]
    won = np.zeros(n, bool)
    for _ in range(MAX_STEPS):
        active = np.flatnonzero(~won)
        if not len(active):
            break
        value = fields(np.stack([rows[at][-1] for at in active])).value
        chosen = experts.actions(task, value, role[:, active])
        chance = rng.random(len(active)) < share[active]
        chosen = np.where(chance, rng.integers(len(ACTIONS), size=len(active)), chosen)
        for at, action in zip(active.tolist(), chosen.tolist(), strict=True):
            worlds[at].act(action)
            rows[at].append(np.array(worlds[at].row(), np.float32))
            actions[at].append(action)
            won[at] = reached(worlds[at], starts[at].placement)[0]
    return [
        Episode(
            start,
            np.stack(rows[at]),
            np.array(actions[at], np.int64),
            bool(won[at]),
            GENERATOR,
        )
        for at, start in enumerate(starts)
    ]
