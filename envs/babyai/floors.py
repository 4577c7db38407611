"""How often doing nothing and acting at random reach a goal: the shipped table and how it was made.

`python -m qualcheck.envs.babyai.floors -o envs/babyai/floors.json` makes the table again.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from qualcheck.envs.babyai import goals, kernel, reset
from qualcheck.envs.babyai.layout import ACTIONS, DROP, HORIZON, fields
from qualcheck.errors import unknown_name
from qualcheck.floor_tables import Count, sealed, shipped_table
from qualcheck.types import AnyArray

POLICIES: dict[str, Callable[[int, np.random.Generator], AnyArray]] = {
    "noop": lambda n, _rng: np.full(n, DROP, np.int8),  # nothing is carried at a start, so nothing is ever dropped
    "random": lambda n, rng: rng.integers(len(ACTIONS), size=n, dtype=np.int8),
}
PREDICATES = ("intended", "released")
HORIZONS = (HORIZON, 39)  # of the benchmark's episodes, and of the rollouts in its files
EPISODES = 1_000
SEED = 2025


def _episodes(task: str, policy: str, horizon: int, episodes: int, rng: np.random.Generator) -> dict[str, int]:
    """Predicate set -> episodes in which the goal held after some action."""
    if task not in goals.TASK_IDS:
        raise unknown_name("BabyAI task", task, list(goals.TASK_IDS))
    if policy not in POLICIES:
        raise unknown_name("floor policy", policy, list(POLICIES))
    params = reset.sample_params(task, episodes, rng)
    role = goals.role_columns(params)
    value = fields(reset.sample_rows(task, params, episodes, rng)).value
    reached = {name: np.zeros(episodes, bool) for name in PREDICATES}
    for _ in range(horizon):
        value = kernel.step(value, POLICIES[policy](episodes, rng))
        intended, released, _ = goals.holds(task, value, role)
        reached["intended"] |= intended
        reached["released"] |= released
    return {name: int(hit.sum()) for name, hit in reached.items()}


def measure(
    task: str, policy: str, horizon: int, episodes: int, rng: np.random.Generator, predicates: str = "intended"
) -> tuple[int, int]:
    """(successes, episodes) of fresh starts whose goal holds after one of the first `horizon` actions.

    Instructions are uniform over what the task can name. A start on which the goal already holds counts as success
    if it still holds after the first action.

    Raises:
        UnknownName: no such task, policy or predicate set.
    """
    if predicates not in PREDICATES:
        raise unknown_name("predicate set", predicates, list(PREDICATES))
    return _episodes(task, policy, horizon, episodes, rng)[predicates], episodes


def table(episodes: int = EPISODES, seed: int = SEED) -> dict[str, Any]:
    """The floors of every task, policy and horizon, each from its own seed."""
    rows = []
    for number, task in enumerate(goals.TASK_IDS):
        for place, policy in enumerate(POLICIES):
            seeds = [seed, number, place]  # the same episodes for each horizon, so a longer one never has less success
            for horizon in HORIZONS:
                won = _episodes(task, policy, horizon, episodes, np.random.default_rng(seeds))
                rows.append({"task": task, "policy": policy, "horizon": horizon, "seed": seeds, **won})
    made_with = {name: version(name) for name in ("qualcheck", "numpy")}
    made = {
        "what": "episodes in which the goal held after some action, out of `episodes` fresh starts",
        "command": "python -m qualcheck.envs.babyai.floors -o FILE",
        "episodes": episodes,
        "made_with": made_with,
        "floors": rows,
    }
    return sealed(made, counts(rows))


def counts(rows: Sequence[dict[str, Any]]) -> Iterator[Count]:
    """What the rows of the table say, one count at a time."""
    for row in rows:
        for predicates in PREDICATES:
            yield Count(row["task"], row["policy"], predicates, row["horizon"], row[predicates])


@cache
def _shipped() -> tuple[dict[tuple[str, str, int], dict[str, int]], int]:
    kept = shipped_table("babyai")
    return {(row["task"], row["policy"], row["horizon"]): row for row in kept["floors"]}, int(kept["episodes"])


def shipped(task: str, policy: str, horizon: int, predicates: str = "intended") -> tuple[int, int] | None:
    """(successes, episodes) from the table that comes with the package; None where it has no such entry."""
    rows, episodes = _shipped()
    row = rows.get((task, policy, horizon), {})
    return (row[predicates], episodes) if predicates in PREDICATES and predicates in row else None


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure all floors and write them to a file."""
    parser = argparse.ArgumentParser(prog="python -m qualcheck.envs.babyai.floors", description=main.__doc__)
    parser.add_argument("-o", "--output", type=Path, required=True, metavar="FILE", help="JSON file to write")
    parser.add_argument("--episodes", type=int, default=EPISODES, help="fresh starts of each entry")
    parser.add_argument("--seed", type=int, default=SEED)
    given = parser.parse_args(arguments)
    lines = json.dumps(table(given.episodes, given.seed), indent=1)
    given.output.write_text(lines + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
