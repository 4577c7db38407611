"""How often doing nothing and acting at random reach a goal: the shipped table and how it was made.

`python -m qualcheck.envs.metaworld.floors -o envs/metaworld/floors.json` makes the table again.
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

from qualcheck.envs.metaworld import goals, reset
from qualcheck.envs.metaworld.goals import PREDICATES, TippedRows
from qualcheck.envs.metaworld.kernel import Episode, Kernel
from qualcheck.envs.metaworld.layout import ACTION_SIZE, HORIZON, OBS_SIZE, TASKS
from qualcheck.errors import unknown_name
from qualcheck.floor_tables import by_horizon, sealed, shipped_table
from qualcheck.types import FloatArray, IntArray, Placement

POLICIES: dict[str, Callable[[tuple[int, ...], np.random.Generator], FloatArray]] = {
    "noop": lambda shape, _rng: np.zeros(shape),
    "random": lambda shape, rng: rng.uniform(-1, 1, shape),
}
EPISODES = 200
SEED = 2025


def played(
    task: str, policy: str, horizon: int, episodes: int, rng: np.random.Generator, kernel: Kernel | None = None
) -> TippedRows:
    """Rows of fresh episodes of `horizon` actions each; the scenes are the benchmark's.

    Args:
        task: a key of `layout.TASKS`.
        policy: of `POLICIES`.
        horizon: actions of each.
        episodes: how many.
        rng: draws resets and actions.
        kernel: simulates; None starts one of the usual family.

    Raises:
        UnknownName: no such task or policy.
    """
    if task not in TASKS:
        raise unknown_name("Meta-World task", task, list(TASKS))
    if policy not in POLICIES:
        raise unknown_name("floor policy of metaworld", policy, list(POLICIES))
    simulator = kernel or Kernel()
    first = reset.sample(task, episodes, rng, simulator)
    action = POLICIES[policy]((episodes, horizon, ACTION_SIZE), rng)
    found = simulator.play(
        [Episode(task, row[None], moves, row) for row, moves in zip(first, action, strict=True)], filtered=False
    )
    if kernel is None:
        simulator.close()
    none = np.zeros((0, OBS_SIZE))
    obs, tip = np.concatenate([none, *(each.obs for each in found)]), [each.tip_m for each in found]
    return TippedRows(
        obs,
        np.arange(episodes + 1) * (horizon + 1),
        np.isfinite(obs).all(axis=1),
        np.concatenate([none[:, :3], *tip]),
        np.ones(episodes, bool),
    )


def first_success(task: str, rows: TippedRows, predicates: str = "intended") -> IntArray:
    """Step after which each episode first holds its goal, -1 if it never does, (episodes,).

    Raises:
        UnknownName: no such predicate set.
    """
    if predicates not in PREDICATES:
        raise unknown_name("predicate set", predicates, list(PREDICATES))
    n = len(rows.offsets) - 1
    found = goals.evaluate(rows, [Placement(task, task)], np.zeros(n, np.int64))
    holds = (found.intended if predicates == "intended" else found.released).reshape(n, -1)[:, 1:]
    return np.where(holds.any(axis=1), holds.argmax(axis=1) + 1, -1)


def measure(
    task: str, policy: str, horizon: int, episodes: int, rng: np.random.Generator, predicates: str = "intended"
) -> tuple[int, int]:
    """(successes, episodes) of fresh starts whose goal holds after one of the first `horizon` actions.

    Raises:
        UnknownName: no such task, policy or predicate set.
    """
    rows = played(task, policy, horizon, episodes, rng)
    return int((first_success(task, rows, predicates) > 0).sum()), episodes


def table(episodes: int = EPISODES, seed: int = SEED) -> dict[str, Any]:
    """First successes of every task and policy, which give the floor of every horizon at once."""
    entries, kernel = [], Kernel()
    for place, task in enumerate(TASKS):
        for number, policy in enumerate(POLICIES):
            rows = played(task, policy, HORIZON, episodes, np.random.default_rng([seed, place, number]), kernel)
            for predicates in PREDICATES:
                step, count = np.unique(first_success(task, rows, predicates), return_counts=True)
                first = {str(s): int(n) for s, n in zip(step, count, strict=True) if s > 0}
                entries.append({"task": task, "policy": policy, "predicates": predicates, "first_success": first})
    kernel.close()
    made = {
        "what": "episodes by the step after which the goal first held, out of `episodes` fresh starts; the floor of a "
        "horizon is the sum up to that step",
        "command": "python -m qualcheck.envs.metaworld.floors -o FILE",
        "family": "mujoco-2.3",
        "episodes": episodes,
        "seed": seed,
        "horizon": HORIZON,
        "made_with": {name: version(name) for name in ("qualcheck", "mujoco", "metaworld", "numpy")},
        "floors": entries,
    }
    return sealed(made, by_horizon(entries, [HORIZON]))


@cache
def _shipped() -> tuple[dict[tuple[str, str, str], dict[str, int]], int]:
    kept = shipped_table("metaworld")
    rows = {(row["task"], row["policy"], row["predicates"]): row["first_success"] for row in kept["floors"]}
    return rows, int(kept["episodes"])


def shipped(task: str, policy: str, horizon: int, predicates: str = "intended") -> tuple[int, int] | None:
    """(successes, episodes) within a horizon from the table of the package; None where it has no such entry."""
    rows, episodes = _shipped()
    first = rows.get((task, policy, predicates))
    if first is None or not 0 < horizon <= HORIZON:
        return None
    return sum(count for step, count in first.items() if int(step) <= horizon), episodes


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure all floors and write them to a file."""
    parser = argparse.ArgumentParser(prog="python -m qualcheck.envs.metaworld.floors", description=main.__doc__)
    parser.add_argument("-o", "--output", type=Path, required=True, metavar="FILE", help="JSON file to write")
    parser.add_argument("--episodes", type=int, default=EPISODES, help="fresh starts of each task and policy")
    parser.add_argument("--seed", type=int, default=SEED)
    given = parser.parse_args(arguments)
    given.output.write_text(json.dumps(table(given.episodes, given.seed), indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
