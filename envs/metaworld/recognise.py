"""Which simulator made a file: by the settled hand of its resets, and by their first transitions."""

from __future__ import annotations

import numpy as np

from qualcheck.envs.metaworld.filter import episodes_of, given
from qualcheck.envs.metaworld.kernel import Episode, Kernel, by_first_rows
from qualcheck.envs.metaworld.layout import HAND, OBS_SIZE, from_reset
from qualcheck.types import AnyArray, FloatArray, Rollouts

FAMILIES = {"mujoco-2.3": "2.3", "mujoco-3.0": "3.0", "mujoco-3.3": "3.x"}  # name -> the kernel's; the usual one first
NAMES = {
    "mujoco-2.3": "the benchmark's classes under MuJoCo 2.3",
    "mujoco-3.0": "the benchmark's classes under MuJoCo 3.0.1",
    "mujoco-3.3": "metaworld 3.1.1 under MuJoCo 3.3.0",
}
WITNESSES, STEPS = 12, 8  # rollouts that are replayed, and their first steps
CLEARLY = 2.0  # the best family's error is so many times smaller than the next one's
AGREES_M = 3e-3  # above every median error of the true family, rows of two decimals aside


def recognise(rollouts: Rollouts, tasks: AnyArray, kernels: dict[str, Kernel]) -> tuple[str, str]:
    """The family of `FAMILIES`, "" where the rollouts do not tell, and the evidence.

    Args:
        rollouts: N of them.
        tasks: (N,) of `tasks.tasks_of`.
        kernels: family -> its kernel.
    """
    usable = np.flatnonzero(from_reset(rollouts) & (tasks != "") & (rollouts.length > 0))
    if not len(usable):
        return "", "no rollout starts at a reset of a known task"
    first = rollouts.obs[rollouts.first_row[usable], :OBS_SIZE].astype(np.float64)
    name, evidence = by_first_rows(first, [str(task) for task in tasks[usable]], kernels)
    return (name, evidence) if name else _by_steps(rollouts, tasks, usable, kernels)


def _by_steps(rollouts: Rollouts, tasks: AnyArray, usable: AnyArray, kernels: dict[str, Kernel]) -> tuple[str, str]:
    """The family whose replay of the first steps keeps the hand nearest to the recorded one, if one is clearly best."""
    known = np.full_like(given(rollouts, tasks), np.nan)
    whole = episodes_of(rollouts, tasks, known)
    chosen = [whole[int(i)][1] for i in usable if int(i) in whole][:WITNESSES]
    short = [_start_of(episode) for episode in chosen]
    error: dict[str, FloatArray] = {}
    for name, kernel in kernels.items():
        found = []
        for episode, done in zip(short, kernel.play(short, filtered=False), strict=True):
            after = np.asarray(episode.rows, np.float64)[1:, HAND]
            moved = (done.obs[1 : len(after) + 1, HAND] - done.obs[0, HAND]) - (after - episode.rows[0, HAND])
            found.append(np.abs(moved).max(initial=0))
        error[name] = np.array(found)
    median = {name: float(np.nanmedian(values)) if np.isfinite(values).any() else np.inf
              for name, values in error.items()}  # fmt: skip
    best, other = sorted(median, key=lambda name: median[name])[:2]
    text = "; ".join(f"{name}: hand {value:.1e} m off" for name, value in median.items())
    clear = median[best] * CLEARLY < median[other] and median[best] <= AGREES_M
    return best if clear else "", f"row 0 tells no family; first {STEPS} steps of {len(short)} rollouts: {text}"


def _start_of(episode: Episode) -> Episode:
    return Episode(episode.task, episode.rows[: STEPS + 1], episode.action[:STEPS], episode.context)
