"""How often acting at random reaches a goal: the shipped table and how it was made.

There is no action that leaves all balls alone, so that a floor of doing nothing does not exist. `python -m
qualcheck.envs.clevr.floors` measures the table again and prints it.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence

import numpy as np

from qualcheck.envs.clevr import goals, policies, reset
from qualcheck.envs.clevr.dynamics import Dynamics
from qualcheck.envs.clevr.layout import HORIZON, xy
from qualcheck.errors import unknown_name
from qualcheck.types import IntArray

POLICIES = ("random",)
EPISODES = 1_000
SEED = 2025

# task -> episodes whose goal first held after step 1, 2, ..., of 1,000 starts each: the floor of a horizon is the sum
# up to it. Made by the command above with mujoco 3.3.0, family "mujoco-3".
# fmt: off
FIRST_SUCCESS: dict[str, tuple[int, ...]] = {
    "tau_behind": (36, 11, 11, 13, 16, 4, 9, 15, 7, 9, 13, 7, 7, 6, 4, 4, 6, 9, 6, 12, 6, 3, 1, 2, 15, 7, 4, 6, 5,
        8, 11, 2, 4, 5, 1, 5, 6, 2, 5, 3, 8, 8, 4, 7, 4, 4, 7, 2, 4, 9),
    "tau_left": (38, 22, 14, 11, 10, 18, 5, 11, 9, 7, 14, 9, 7, 13, 4, 8, 3, 5, 4, 4, 12, 8, 3, 4, 6, 7, 8, 6, 3, 5,
        3, 7, 7, 4, 4, 2, 6, 2, 5, 7, 4, 7, 3, 5, 5, 3, 4, 7, 4, 2),
    "tau_front": (38, 12, 10, 15, 12, 3, 11, 9, 9, 5, 15, 6, 6, 6, 11, 6, 8, 11, 8, 4, 4, 10, 6, 6, 6, 9, 5, 7, 10,
        3, 11, 4, 9, 5, 9, 3, 6, 4, 7, 4, 7, 4, 5, 6, 2, 3, 5, 2, 0, 6),
    "tau_right": (42, 21, 10, 13, 19, 9, 12, 6, 7, 9, 5, 7, 7, 3, 8, 11, 10, 3, 6, 5, 9, 5, 7, 14, 3, 3, 3, 8, 9, 8,
        5, 4, 4, 7, 3, 7, 5, 6, 3, 4, 5, 8, 7, 8, 4, 7, 5, 3, 2, 6),
    "push_behind": (72,),
    "push_left": (92,),
    "push_front": (85,),
    "push_right": (75,),
    "push_still": (16,),
    "tau_2": (2, 0, 1, 1, 1, 1, 3, 1, 1, 0, 0, 1, 2, 2, 0, 2, 4, 0, 1, 3, 1, 2, 1, 1, 1, 0, 0, 0, 1, 3, 1, 0, 2, 0,
        0, 1, 2, 1, 2, 2, 1, 2, 0, 1, 1, 0, 0, 1, 1, 1),
    "tau_3": (0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1),
    "order": (),
    "gather": (0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 1, 1, 0, 0, 0, 0, 0,
        0, 0, 1, 0, 0, 2, 1, 0, 0, 2, 1, 0, 0, 1),
}
# fmt: on


def first_successes(task: str, horizon: int, episodes: int, rng: np.random.Generator) -> IntArray:
    """Step after which each random episode first holds its goal, -1 if it does not, (episodes,).

    Starts are fresh, with goals that they do not meet.

    Raises:
        UnknownName: no such task.
    """
    start = reset.sample(episodes, rng)
    roles = goals.roles(reset.draw(task, xy(start), rng))
    dynamics = Dynamics()
    everyone = np.full(episodes, policies.number_of("random"))
    played = policies.play(start, roles, everyone, dynamics, rng, horizon)
    dynamics.close()
    return np.where(played.won, played.length, -1)


def measure(task: str, policy: str, horizon: int, episodes: int, rng: np.random.Generator) -> tuple[int, int]:
    """(successes, episodes) of fresh starts whose intended goal holds after one of the first `horizon` actions.

    Raises:
        UnknownName: no such task or policy.
    """
    if policy not in POLICIES:
        raise unknown_name("floor policy of clevr", policy, list(POLICIES))
    return int((first_successes(task, horizon, episodes, rng) > 0).sum()), episodes


def table(episodes: int = EPISODES, seed: int = SEED) -> dict[str, list[int]]:
    """Task -> episodes whose goal first held after step 1, 2, ..., up to the last such."""
    found = {}
    for place, task in enumerate(goals.TASK_IDS):
        step = first_successes(task, HORIZON, episodes, np.random.default_rng([seed, place]))
        found[task] = np.bincount(step[step > 0])[1:].tolist()
    return found


def shipped(task: str, policy: str, horizon: int) -> tuple[int, int] | None:
    """(successes, episodes) within a horizon from the table of the package; None where it has no such entry."""
    if policy not in POLICIES or task not in FIRST_SUCCESS or not 0 < horizon <= HORIZON:
        return None
    return sum(FIRST_SUCCESS[task][:horizon]), EPISODES


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure all floors and print them."""
    parser = argparse.ArgumentParser(prog="python -m qualcheck.envs.clevr.floors", description=main.__doc__)
    parser.add_argument("--episodes", type=int, default=EPISODES, help="fresh starts of each task")
    parser.add_argument("--seed", type=int, default=SEED)
    given = parser.parse_args(arguments)
    sys.stdout.write(json.dumps(table(given.episodes, given.seed)) + "\n")


if __name__ == "__main__":
    main()
