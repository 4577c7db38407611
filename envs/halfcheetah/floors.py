"""How often doing nothing and acting at random reach a goal: the shipped table and how it was made.

`python -m qualcheck.envs.halfcheetah.floors -o envs/halfcheetah/floors.json` makes the table again.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Sequence
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from qualcheck.envs.halfcheetah import goals
from qualcheck.envs.halfcheetah.dynamics import Dynamics
from qualcheck.envs.halfcheetah.layout import ACTION_SIZE, FLOOR_HORIZONS, HORIZON
from qualcheck.envs.halfcheetah.reset import sample_states
from qualcheck.errors import unknown_name
from qualcheck.floor_tables import by_horizon, sealed, shipped_table
from qualcheck.types import FloatArray, IntArray

POLICIES: dict[str, Callable[[tuple[int, ...], np.random.Generator], FloatArray]] = {
    "noop": lambda shape, _rng: np.zeros(shape),
    "random": lambda shape, rng: rng.uniform(-1, 1, shape),
}
EPISODES = 1_000
SEED = 2025


def displacements(policy: str, horizon: int, episodes: int, rng: np.random.Generator) -> FloatArray:
    """Displacement of each step of fresh episodes, (episodes, horizon + 1) m, 0 in the row of the reset.

    Raises:
        UnknownName: no such policy.
    """
    if policy not in POLICIES:
        raise unknown_name("floor policy", policy, list(POLICIES))
    start = sample_states(episodes, rng)[:, 1:]
    action = POLICIES[policy]((episodes * horizon, ACTION_SIZE), rng)
    moved = np.zeros((episodes, horizon + 1))
    dynamics = Dynamics()
    for at, _, travelled, _ in dynamics.play(start, action, np.arange(episodes + 1) * horizon):
        moved[at // horizon, at % horizon + 1] = travelled
    dynamics.close()
    return moved


def first_success(task: str, moved: FloatArray, predicates: str) -> IntArray:
    """Step after which each episode first holds its goal, -1 if it never does, (episodes,).

    Raises:
        UnknownName: no such task or predicate set.
    """
    if task not in goals.TASK_IDS:
        raise unknown_name("HalfCheetah task", task, list(goals.TASK_IDS))
    if predicates not in goals.PREDICATES:
        raise unknown_name("predicate set", predicates, list(goals.PREDICATES))
    holds = goals.excess(task, moved, predicates) > 0
    return np.where(holds.any(axis=1), holds.argmax(axis=1), -1)


def measure(
    task: str, policy: str, horizon: int, episodes: int, rng: np.random.Generator, predicates: str = "intended"
) -> tuple[int, int]:
    """(successes, episodes) of fresh starts whose goal holds after one of the first `horizon` actions.

    Raises:
        UnknownName: no such task, policy or predicate set.
    """
    first_success(task, np.zeros((1, 2)), predicates)  # names are refused before anything is simulated
    moved = displacements(policy, horizon, episodes, rng)
    return int((first_success(task, moved, predicates) > 0).sum()), episodes


def table(episodes: int = EPISODES, seed: int = SEED) -> dict[str, Any]:
    """First successes of every task and policy, on the same starts, which gives the floor of every horizon at once."""
    rows = []
    for place, policy in enumerate(POLICIES):
        moved = displacements(policy, HORIZON, episodes, np.random.default_rng([seed, place]))
        for task in goals.TASK_IDS:
            for predicates in goals.PREDICATES:
                step, count = np.unique(first_success(task, moved, predicates), return_counts=True)
                first = {str(s): int(n) for s, n in zip(step, count, strict=True) if s > 0}
                rows.append({"task": task, "policy": policy, "predicates": predicates, "first_success": first})
    made = {
        "what": "episodes by the step after which the goal first held, out of `episodes` fresh starts; the floor of a "
        "horizon is the sum up to that step",
        "command": "python -m qualcheck.envs.halfcheetah.floors -o FILE",
        "episodes": episodes,
        "seed": seed,
        "longest_horizon": HORIZON,
        "made_with": {name: version(name) for name in ("qualcheck", "mujoco", "numpy")},
        "floors": rows,
    }
    return sealed(made, by_horizon(rows, FLOOR_HORIZONS))


@cache
def _shipped() -> tuple[dict[tuple[str, str, str], dict[str, int]], int, int]:
    kept = shipped_table("halfcheetah")
    rows = {(row["task"], row["policy"], row["predicates"]): row["first_success"] for row in kept["floors"]}
    return rows, int(kept["episodes"]), int(kept["longest_horizon"])


def shipped(task: str, policy: str, horizon: int, predicates: str = "intended") -> tuple[int, int] | None:
    """(successes, episodes) within a horizon from the table of the package; None where it has no such entry."""
    rows, episodes, longest = _shipped()
    first = rows.get((task, policy, predicates))
    if first is None or not 0 < horizon <= longest:
        return None
    return sum(count for step, count in first.items() if int(step) <= horizon), episodes


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure all floors and write them to a file."""
    parser = argparse.ArgumentParser(prog="python -m qualcheck.envs.halfcheetah.floors", description=main.__doc__)
    parser.add_argument("-o", "--output", type=Path, required=True, metavar="FILE", help="JSON file to write")
    parser.add_argument("--episodes", type=int, default=EPISODES, help="fresh starts of each policy")
    parser.add_argument("--seed", type=int, default=SEED)
    given = parser.parse_args(arguments)
    given.output.write_text(json.dumps(table(given.episodes, given.seed), indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
