"""HalfCheetah end to end against the bare simulator, in one run.

    python benchmarks/halfcheetah_speed.py [--rows 1000000] [--repeats 3]

Product: `qualcheck score` of an .npy with next observations, strict and scaled grades, legality, goals, rewards,
open-loop replay and restarts, hashes, Parquet. Rivals:
- bare rollout: `mujoco.rollout` on as many threads, executing as many mj_step calls as the manifest of the run reports,
  five to a recorded row, nothing else done;
- set_state and step: gymnasium's HalfCheetah-v5, one row after another.
Rounds are interleaved; the medians and the ratios of medians are printed.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from pathlib import Path

import gymnasium
import mujoco
import mujoco.rollout
import numpy as np

import qualcheck
from qualcheck.cores import cores
from qualcheck.envs.halfcheetah.dynamics import model_path
from qualcheck.envs.halfcheetah.record import record

STEPS = 200


def make_file(path: Path, rows: int, noise: float, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Rollouts of 200 steps; with noise, every row after the first is off, as imagined ones are."""
    n = rows // STEPS
    part = record("move-forward-backward", n, rng, random_share=0.2, stop_at_success=False)
    states = part.obs.reshape(n, STEPS + 1, 18)
    if noise:
        states = (
            states + rng.normal(0, noise, states.shape) * states.std(axis=(0, 1)) * (np.arange(STEPS + 1) > 0)[:, None]
        )
    data = {
        "observations": states[:, :-1].astype(np.float32),
        "next_observations": states[:, 1:].astype(np.float32),
        "actions": part.action.reshape(n, STEPS, 6).astype(np.float32),
        "rewards": part.reward.reshape(n, STEPS, 1).astype(np.float32),
        "masks": np.ones((n, STEPS, 1), np.float32),
        "instructions": [[text] for text in part.instruction],
    }
    np.save(path, np.array(data, dtype=object), allow_pickle=True)
    return data["observations"].reshape(-1, 18).astype(np.float64), data["actions"].reshape(-1, 6).astype(np.float64)


def end_to_end(path: Path, folder: Path) -> tuple[float, int]:
    """Seconds, and mj_step calls by the manifest."""
    began = time.perf_counter()
    run = qualcheck.score(path, "halfcheetah", folder)
    return time.perf_counter() - began, run.manifest["run"]["simulator_steps"]


def bare_rollout(obs: np.ndarray, action: np.ndarray, steps: int) -> float:
    """Seconds for so many mj_step calls, five from each row."""
    model = mujoco.MjModel.from_xml_path(model_path())
    data = [mujoco.MjData(model) for _ in range(cores())]
    state = np.zeros((len(obs), 19))
    state[:, 2:] = obs[:, 1:]
    left = steps // 5
    with mujoco.rollout.Rollout(nthread=cores()) as pool:
        began = time.perf_counter()
        while left > 0:
            for at in range(0, min(left, len(obs)), 10_000):
                part = slice(at, min(at + 10_000, left, len(obs)))
                control = np.repeat(np.clip(action[part, None], -1, 1), 5, axis=1)
                pool.rollout(model, data, state[part], control)
            left -= len(obs)
        return time.perf_counter() - began


def set_state_and_step(obs: np.ndarray, action: np.ndarray, rows: int) -> float:
    """Rows a second."""
    env = gymnasium.make("HalfCheetah-v5").unwrapped
    env.reset(seed=0)
    began = time.perf_counter()
    for row in range(rows):
        env.set_state(np.concatenate([[0.0], obs[row, 1:9]]), obs[row, 9:18])
        env.step(action[row])
    return rows / (time.perf_counter() - began)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        for name, noise in (("clean", 0.0), ("imagined", 0.3)):
            path = Path(folder) / "rollouts.npy"
            obs, action = make_file(path, options.rows, noise, np.random.default_rng(0))
            product, bare, stepped, steps = [], [], [], 0
            for repeat in range(options.repeats):
                seconds, steps = end_to_end(path, Path(folder) / f"{name}-{repeat}")
                product.append(seconds)
                bare.append(bare_rollout(obs, action, steps))
                stepped.append(set_state_and_step(obs, action, 5_000))
            ours, theirs, slow = map(statistics.median, (product, bare, stepped))
            print(
                f"{name}: {len(obs):,} rows, {steps:,} mj_step calls, {cores()} threads, load {os.getloadavg()[0]:.1f}"
            )
            print(f"  score {ours:.2f} s ({len(obs) / ours:,.0f} rows/s, {steps / 5 / ours:,.0f} replayed steps/s)")
            print(
                f"  bare mujoco.rollout, as many steps: {theirs:.2f} s; score reaches {theirs / ours:.2f} x its speed"
            )
            ratio = steps / 5 / ours / slow
            print(f"  set_state + step: {slow:,.0f} rows/s; a replayed step of score is {ratio:.1f} x as fast")


if __name__ == "__main__":
    main()
