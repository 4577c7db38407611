"""Real rollouts of the experts in the benchmark's layout, stepped in MiniGrid."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from qualcheck.envs.babyai import experts, goals, kernel, reward
from qualcheck.envs.babyai.layout import ACTIONS, HORIZON, OBS_SIZE, fields
from qualcheck.envs.babyai.simulator import World
from qualcheck.envs.babyai.start import ANY, Start, Starts
from qualcheck.errors import SimulatorDisagreement
from qualcheck.types import AnyArray, BoolArray, Placement, Rollouts


def record(
    task: str,
    n: int,
    rng: np.random.Generator,
    level: str | None = None,
    noise: float = 0.0,
    random_share: float = 0.0,
    horizon: int = HORIZON,
) -> Rollouts:
    """n real rollouts of a task from fresh resets, rows float32; objects and sentences are drawn for each.

    A rollout ends with the first row on which its intended goal holds, terminal, or truncated at the horizon.

    Args:
        task: an id of `goals.TASKS`.
        n: how many.
        rng: draws everything.
        level: whose sentences are said; None: of the first level that has the task.
        noise: share of the expert's actions that are replaced by random ones.
        random_share: share of the rollouts that act at random throughout.
        horizon: at most so many steps.

    Raises:
        UnknownName: no such task or level.
        SimulatorDisagreement: MiniGrid and the kernel differ.
    """
    starts = Starts(task, ANY, level)
    drawn = [starts.draw(rng) for _ in range(n)]
    share = np.where(rng.random(n) < random_share, 1.0, noise)
    role = goals.role_columns([start.params for start in drawn])  # (4, N)
    worlds = [World() for _ in drawn]
    for world, start in zip(worlds, drawn, strict=True):
        world.restore(start.row.tolist())
    rows = np.zeros((n, horizon + 1, OBS_SIZE), np.float32)
    action = np.zeros((n, horizon), np.int64)
    rows[:, 0] = np.array([start.row for start in drawn], np.float32).reshape(n, OBS_SIZE)
    length, won = np.zeros(n, np.int64), np.zeros(n, bool)
    for step in range(horizon):
        active = np.flatnonzero(~won)
        if not len(active):
            break
        value = fields(rows[active, step]).value
        chosen = experts.actions(task, value, role[:, active])
        chance = rng.random(len(active)) < share[active]
        chosen = np.where(chance, rng.integers(len(ACTIONS), size=len(active)), chosen)
        for at, number in zip(active.tolist(), chosen.tolist(), strict=True):
            worlds[at].act(number)
            rows[at, step + 1] = worlds[at].row()
        after = fields(rows[active, step + 1]).value
        if not np.array_equal(after, kernel.step(value, chosen)):
            raise SimulatorDisagreement(f"BabyAI {task}: MiniGrid and the kernel end in different rows")
        action[active, step], length[active] = chosen, step + 1
        won[active] = goals.holds(task, after, role[:, active])[0]
    return _rollouts(task, drawn, rows, action, length, won)


def _rollouts(
    task: str, drawn: list[Start], rows: AnyArray, action: AnyArray, length: AnyArray, won: BoolArray
) -> Rollouts:
    n, step = len(drawn), np.arange(rows.shape[1])
    taken, shown = step[:-1] < length[:, None], step <= length[:, None]
    last = (step[:-1] == length[:, None] - 1)[taken]
    terminal = last & np.repeat(won, length)
    rollouts = Rollouts(
        obs=rows[shown],
        action=action[taken],
        offsets=np.concatenate([[0], np.cumsum(length)]).astype(np.int64),
        has_final=np.ones(n, bool),
        source=np.zeros(n, np.int32),
        source_rollout=np.arange(n, dtype=np.int32),
        source_step=np.zeros(n, np.int32),
        instruction=[start.instruction for start in drawn],
        terminal=terminal,
        truncated=last & ~terminal,
        is_reset=np.ones(n, bool),
        task=[task] * n,
        extra_rollout={"success": won.tolist()},
    )
    placements = [Placement(task, task, start.params) for start in drawn]
    return replace(rollouts, reward=reward.recompute(rollouts, placements, np.arange(n))["intended"])
