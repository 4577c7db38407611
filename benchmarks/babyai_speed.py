"""BabyAI end to end against stepping MiniGrid, in one run.

    python benchmarks/babyai_speed.py [--rows 4000000] [--repeats 5]

Product: `qualcheck score`, one older-layout .npy in, the run folder out: reading, replay, legality, goals, rewards,
the check of 1,000 transitions in MiniGrid, hashes, Parquet. Rivals, on the same rollouts:
- restore-and-step: as the benchmark's own class does it for every row: build the grid anew, place the objects, take
  one MiniGrid step with its observation, encode, compare;
- environment loop: one gymnasium environment stepped on and on, which gives row, reward and success; no restore, no
  picture, no comparison;
- bare actions: the world's actions alone, nothing read out. It answers no question; it bounds what stepping can reach.
Rounds are interleaved, so that a busy machine slows all; the medians and the ratios of medians are printed.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from pathlib import Path

import numpy as np
from minigrid.core.grid import Grid
from minigrid.minigrid_env import MiniGridEnv

import qualcheck
from qualcheck.envs.babyai import kernel
from qualcheck.envs.babyai.goals import TASKS
from qualcheck.envs.babyai.layout import fields
from qualcheck.envs.babyai.reset import sample_rows
from qualcheck.envs.babyai.simulator import BabyAIEnv, World

STEPS = 39  # length of the benchmark's recordings
SENTENCES = {
    "goto": "go to the blue ball",
    "open": "open the blue door",
    "pickup": "pick up the blue ball",
    "putnext": "put the blue ball next to the green box",
    "open_go": "open the door, then goto any object",
    "open_pick": "open the door, then pick up any object",
    "go_wall": "goto the side of the wall",
    "go_center": "goto the center of the room",
    "open_lock": "pick up the key, then open the door",
    "put_line": "put the three items in a line",
    "put_pile": "gather the three items into a pile",
}


def make_file(path: Path, rows: int, wrong: float, rng: np.random.Generator) -> dict[str, np.ndarray]:
    """Rollouts of all tasks with random actions, a share of transitions made wrong; the arrays come back."""
    tasks = sorted({task for level in TASKS.values() for task in level})
    each = max(rows // STEPS // len(tasks), 1)
    starts, texts = [], []
    for task in tasks:
        starts.append(sample_rows(task, None, each, rng))
        texts += [[SENTENCES[task]]] * each
    state = fields(np.concatenate(starts)).value
    n = state.shape[1]
    obs = np.zeros((n, STEPS, 17), np.float32)
    action = rng.integers(0, 7, (n, STEPS))
    for step in range(STEPS):
        obs[:, step] = state.T
        state = kernel.step(state, action[:, step])
    bad = rng.random((n, STEPS)) < wrong
    bad[:, 0] = False
    obs[bad, 13] = 7 - obs[bad, 13]
    order = rng.permutation(n)
    data = {
        "observations": obs[order],
        "actions": action[order],
        "rewards": rng.random((n, STEPS, 1)).astype(np.float32),
        "masks": np.ones((n, STEPS, 1), np.float32),
        "instructions": [texts[i] for i in order],
    }
    np.save(path, np.array(data, dtype=object), allow_pickle=True)
    return data


def restore_and_step(data: dict[str, np.ndarray], rows: int) -> float:
    """Rows a second of building the world for each row and stepping it once, with observation and comparison."""

    class Benchmark(World):
        gen_obs = MiniGridEnv.gen_obs

    world = Benchmark()
    obs = data["observations"].reshape(-1, 17)[:rows]
    action = data["actions"].reshape(-1)[:rows]
    wrong = 0
    began = time.perf_counter()
    for row in range(rows - 1):
        world.grid = Grid(world.width, world.height)
        world._gen_grid(world.width, world.height)
        world._taken, world._door_cell, world.carrying = [], None, None
        world.restore(obs[row].tolist())
        world.act(int(action[row]))
        wrong += not np.array_equal(np.array(world.row(), np.uint8), obs[row + 1])
    return rows / (time.perf_counter() - began)


def environment_loop(data: dict[str, np.ndarray], steps: int) -> float:
    """Steps a second of the environment of a task, horizon and success ignored."""
    env = BabyAIEnv("put_pile")
    env.reset(seed=0)
    action = data["actions"].reshape(-1)[:steps].tolist()
    began = time.perf_counter()
    for chosen in action:
        env.step(chosen)
    return steps / (time.perf_counter() - began)


def bare_actions(data: dict[str, np.ndarray], steps: int) -> float:
    """Steps a second of one world, nothing else done."""
    world = World()
    world.restore(data["observations"][0, 0].tolist())
    action = data["actions"].reshape(-1)[:steps].tolist()
    began = time.perf_counter()
    for chosen in action:
        world.act(chosen)
    return steps / (time.perf_counter() - began)


def end_to_end(path: Path, rows: int, folder: Path) -> float:
    began = time.perf_counter()
    qualcheck.score(path, "babyai", folder)
    return rows / (time.perf_counter() - began)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=4_000_000)
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        for name, wrong in (("clean", 0.0), ("30 % of rows wrong", 0.3)):
            path = Path(folder) / "rollouts.npy"
            data = make_file(path, options.rows, wrong, np.random.default_rng(0))
            rows = data["observations"].shape[0] * STEPS
            rivals = {
                "restore-and-step": lambda data=data: restore_and_step(data, 1_000),
                "environment loop": lambda data=data: environment_loop(data, 3_000),
                "bare actions": lambda data=data: bare_actions(data, 10_000),
            }
            figures: dict[str, list[float]] = {key: [] for key in ("score", *rivals)}
            for repeat in range(options.repeats):
                figures["score"].append(end_to_end(path, rows, Path(folder) / f"{wrong}-{repeat}"))
                for key, rival in rivals.items():
                    figures[key].append(rival())
            median = {key: statistics.median(values) for key, values in figures.items()}
            print(f"{name}: {rows:,} rows, load {os.getloadavg()[0]:.1f}, median of {options.repeats}")
            for key, values in figures.items():
                print(f"  {key:<17} {median[key]:>12,.0f} /s   (min {min(values):,.0f}, max {max(values):,.0f})")
            for key in rivals:
                print(f"  score / {key}: {median['score'] / median[key]:,.0f} x")


if __name__ == "__main__":
    main()
