"""How often acting at random reaches a goal: the shipped table and how it was made.

There is no action that leaves all balls alone, so that a floor of doing nothing does not exist. `python -m
qualcheck.envs.clevr.floors -o envs/clevr/floors.json` makes the table again.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from qualcheck.envs.clevr import goals, policies, reset
from qualcheck.envs.clevr.dynamics import FAMILIES, Dynamics
from qualcheck.envs.clevr.layout import HORIZON, xy
from qualcheck.errors import unknown_name
from qualcheck.floor_tables import by_horizon, sealed, shipped_table
from qualcheck.types import IntArray

POLICIES = ("random",)
EPISODES = 1_000
SEED = 2025


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


def table(episodes: int = EPISODES, seed: int = SEED) -> dict[str, Any]:
    """First successes of every task, which give the floor of every horizon at once."""
    entries = []
    for place, task in enumerate(goals.TASK_IDS):
        step = first_successes(task, HORIZON, episodes, np.random.default_rng([seed, place]))
        numbers, count = np.unique(step[step > 0], return_counts=True)
        first = {str(number): int(times) for number, times in zip(numbers, count, strict=True)}
        entries.append({"task": task, "policy": POLICIES[0], "predicates": "intended", "first_success": first})
    made = {
        "what": "episodes by the step after which the goal first held, out of `episodes` fresh starts; the floor of a "
        "horizon is the sum up to that step",
        "command": "python -m qualcheck.envs.clevr.floors -o FILE",
        "episodes": episodes,
        "seed": seed,
        "longest_horizon": HORIZON,
        "family": FAMILIES[0],
        "made_with": {name: version(name) for name in ("qualcheck", "mujoco", "numpy")},
        "floors": entries,
    }
    return sealed(made, by_horizon(entries, (HORIZON,)))


@cache
def _shipped() -> tuple[dict[tuple[str, str], dict[str, int]], int]:
    kept = shipped_table("clevr")
    return {(row["task"], row["policy"]): row["first_success"] for row in kept["floors"]}, int(kept["episodes"])


def shipped(task: str, policy: str, horizon: int) -> tuple[int, int] | None:
    """(successes, episodes) within a horizon from the table of the package; None where it has no such entry."""
    rows, episodes = _shipped()
    first = rows.get((task, policy))
    if first is None or not 0 < horizon <= HORIZON:
        return None
    return sum(count for step, count in first.items() if int(step) <= horizon), episodes


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure all floors and write them to a file."""
    parser = argparse.ArgumentParser(prog="python -m qualcheck.envs.clevr.floors", description=main.__doc__)
    parser.add_argument("-o", "--output", type=Path, required=True, metavar="FILE", help="JSON file to write")
    parser.add_argument("--episodes", type=int, default=EPISODES, help="fresh starts of each task")
    parser.add_argument("--seed", type=int, default=SEED)
    given = parser.parse_args(arguments)
    given.output.write_text(json.dumps(table(given.episodes, given.seed), indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
