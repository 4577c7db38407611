"""One rollout with what its maker knows of it, and many of them as `Rollouts`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from qualcheck.envs.babyai import goals, reward
from qualcheck.types import AnyArray, FloatArray, Placement, Rollouts

MAX_STEPS = 39  # where the benchmark's BabyAI recordings are cut


@dataclass(frozen=True)
class Start:
    """A fresh reset, and the sentence to follow from there; `placement` was known before the sentence was chosen."""

    placement: Placement
    level: str
    instruction: str
    row: AnyArray  # (17,) float32


@dataclass(frozen=True)
class Episode:
    """T actions and the T+1 rows around them."""

    start: Start
    rows: AnyArray  # (T+1, 17) float32
    action: AnyArray  # (T,) int64
    terminal: bool  # the last step is claimed to reach the goal; else the rollout was cut there
    generator: str
    fault: str = ""
    fault_step: int = -1

    @property
    def length(self) -> int:
        return len(self.action)


def pack(episodes: Sequence[Episode]) -> Rollouts:
    """The episodes as one batch, with the benchmark's reward on their rows (0 where a row has none)."""
    length = np.array([episode.length for episode in episodes], np.int64)  # (N,)
    n = len(episodes)
    offsets = np.concatenate([[0], np.cumsum(length)]).astype(np.int64)
    ends = offsets[1:] - 1
    claimed = np.array([episode.terminal for episode in episodes], bool)
    terminal, truncated = (np.zeros(int(offsets[-1]), bool) for _ in range(2))
    terminal[ends], truncated[ends] = claimed, ~claimed
    rollouts = Rollouts(
        obs=np.concatenate([episode.rows for episode in episodes]).astype(np.float32),
        action=np.concatenate([episode.action for episode in episodes]).astype(np.int64),
        offsets=offsets,
        has_final=np.ones(n, bool),
        source=np.zeros(n, np.int32),
        source_rollout=np.arange(n, dtype=np.int32),
        source_step=np.zeros(n, np.int32),
        instruction=[episode.start.instruction for episode in episodes],
        terminal=terminal,
        truncated=truncated,
        is_reset=np.ones(n, bool),
        level=[episode.start.level for episode in episodes],
        generator=[episode.generator for episode in episodes],
        task=[episode.start.placement.task for episode in episodes],
    )
    return replace(rollouts, reward=_reward(rollouts, [episode.start.placement for episode in episodes]))


def _reward(rollouts: Rollouts, placements: Sequence[Placement]) -> FloatArray:
    which = np.arange(rollouts.n_rollouts)
    return np.nan_to_num(reward.recompute(rollouts, placements, which)["intended"])


def placement(task: str, params: Sequence[str]) -> Placement:
    """The task with its parameters.

    Raises:
        ValueError: no such task, or a parameter is no colour or type.
    """
    if task not in goals.TASK_IDS:
        raise ValueError(f"no BabyAI task {task!r}; known: {', '.join(goals.TASK_IDS)}")
    goals.roles(params)
    return Placement(task, task, tuple(params))
