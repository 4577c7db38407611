"""Vectorised evaluation against a loop over the single environment, in one run.

    python benchmarks/evaluate_speed.py [--repeats 5]

Product: `qualcheck.evaluate`. Rival: the gymnasium environment of `qualcheck.make_env`, reset and stepped to the end of
each episode by the same policy, which is asked for one row at a time. Both play the same episodes from the same seeds,
their successes are compared, and starting up counts in both. Rounds are interleaved, so that a busy machine slows both;
how many cores were left for the product is printed.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from collections.abc import Callable

import numpy as np

import qualcheck

Policy = Callable[[np.ndarray], np.ndarray]


def wandering(obs: np.ndarray) -> np.ndarray:
    """An action of BabyAI that depends on the whole row."""
    return (np.abs(obs @ np.sin(1 + 12.9898 * np.arange(17))) * 1000 % 7).astype(int)


def swinging(obs: np.ndarray) -> np.ndarray:
    """Six torques that depend on pitch and a joint."""
    return np.sin(30 * obs[:, 2:3] + np.arange(6) * (1 + obs[:, 5:6]))


TASKS: tuple[tuple[str, str, int, Policy], ...] = (
    ("babyai", "goto", 256, wandering),
    ("babyai", "putnext", 256, wandering),
    ("babyai", "put_pile", 256, wandering),
    ("halfcheetah", "move-forward", 256, swinging),
    ("halfcheetah", "move-forward-backward", 256, swinging),
)


def loop(env: str, task: str, episodes: int, policy: Policy) -> tuple[list[bool], int]:
    """Success of each episode of the single environment, and its steps."""
    single, won, steps = qualcheck.make_env(env, task), [], 0
    for seed in range(episodes):
        row, info = single.reset(seed=seed)
        over = False
        while not over:
            row, _, terminated, truncated, info = single.step(policy(row[None])[0])
            steps, over = steps + 1, terminated or truncated
        won.append(info["success"])
    single.close()
    return won, steps


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--env", help="this environment only")
    options = parser.parse_args()
    for env, task, episodes, policy in (row for row in TASKS if options.env in (None, row[0])):
        together, alone, busy = [], [], []
        for _ in range(options.repeats):
            began, worked = time.perf_counter(), time.process_time()
            found = qualcheck.evaluate(policy, env, task, episodes)
            together.append(time.perf_counter() - began)
            busy.append((time.process_time() - worked) / together[-1])
            began = time.perf_counter()
            won, steps = loop(env, task, episodes, policy)
            alone.append(time.perf_counter() - began)
            assert found.success.tolist() == won
            assert int(found.length.sum()) == steps
        fast, slow = statistics.median(together), statistics.median(alone)
        ratios = [one / other for one, other in zip(alone, together, strict=True)]
        print(
            f"{env} {task}: {episodes} episodes, {steps:,} steps, load {os.getloadavg()[0]:.1f}; evaluate "
            f"{steps / fast:,.0f} /s on {statistics.median(busy):.1f} cores, loop {steps / slow:,.0f} /s: "
            f"{statistics.median(ratios):.1f} x (min {min(ratios):.1f}, max {max(ratios):.1f})"
        )


if __name__ == "__main__":
    main()
