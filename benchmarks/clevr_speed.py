"""CLEVR-Robot end to end against the bare simulator, in one run.

    python benchmarks/clevr_speed.py [--rollouts 2000] [--repeats 3]

Product: `qualcheck score` of an .npy with next observations: the sequential filter, open-loop replay, goals, rules,
rewards, hidden states, hashes, Parquet. Rivals:
- bare rollout: `mujoco.rollout` on as many threads, executing as many mj_step calls as the manifest of the run reports,
  from the states that the filter found, 2,000 pushes a call, nothing else done;
- plain loop: `mj_step` in Python, one push after another, from the same states.
Rounds are interleaved; the medians and the ratios of medians are printed.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import mujoco
import mujoco.rollout
import numpy as np

import qualcheck
from qualcheck.cores import cores
from qualcheck.envs.clevr import Clevr
from qualcheck.envs.clevr.dynamics import make_model, state_of
from qualcheck.envs.clevr.layout import CARRIED, DIRECTIONS, xy
from qualcheck.envs.clevr.record import record
from qualcheck.types import Rollouts

SUBSTEPS = 40
CALL = 2_000  # pushes a call of the bare rollout
PLAIN = 2_000  # pushes of the plain loop


def make_file(path: Path, rollouts: Rollouts) -> None:
    """The rollouts as the benchmark stores them."""
    n, longest = rollouts.n_rollouts, int(rollouts.length.max())
    shape = (n, longest)
    place = rollouts.rollout, rollouts.step
    data = {
        "observations": np.zeros((*shape, 10), np.float32),
        "next_observations": np.zeros((*shape, 10), np.float32),
        "actions": np.zeros(shape, np.int64),
        "rewards": np.zeros((*shape, 1), np.float32),
        "masks": np.zeros((*shape, 1), np.float32),
        "instructions": [[text] for text in rollouts.instruction],
        "goals": np.stack(rollouts.goal),
    }
    data["observations"][place], data["next_observations"][place] = rollouts.start_obs, rollouts.end_obs
    data["actions"][place], data["masks"][place] = rollouts.action, 1
    data["rewards"][place] = rollouts.reward[:, None]
    np.save(path, np.array(data, dtype=object), allow_pickle=True)


def end_to_end(path: Path, folder: Path) -> tuple[float, int]:
    """Seconds, and mj_step calls by the manifest."""
    began = time.perf_counter()
    run = qualcheck.score(path, "clevr", folder)
    return time.perf_counter() - began, run.manifest["run"]["simulator_steps"]


def bare_rollout(state: np.ndarray, push: np.ndarray, steps: int) -> float:
    """Seconds for so many mj_step calls, 40 from each state."""
    model = make_model("mujoco-3")
    data = [mujoco.MjData(model) for _ in range(cores())]
    full = np.concatenate([np.zeros((len(state), 1)), state], axis=1)
    left = steps // SUBSTEPS
    with mujoco.rollout.Rollout(nthread=cores()) as pool:
        began = time.perf_counter()
        while left > 0:
            for at in range(0, min(left, len(full)), CALL):
                part = slice(at, min(at + CALL, left, len(full)))
                pool.rollout(model, data, full[part], push[part, None], nstep=SUBSTEPS)
            left -= len(full)
        return time.perf_counter() - began


def plain_loop(state: np.ndarray, push: np.ndarray) -> float:
    """Pushes a second."""
    model = make_model("mujoco-3")
    data, done = mujoco.MjData(model), min(PLAIN, len(state))
    began = time.perf_counter()
    for row in range(done):
        mujoco.mj_resetData(model, data)
        data.qpos[:], data.qvel[:] = state[row, :37], state[row, 37:]
        data.ctrl[:] = push[row]
        for _ in range(SUBSTEPS):
            mujoco.mj_step(model, data)
    return done / (time.perf_counter() - began)


def pushed(state: np.ndarray, action: np.ndarray) -> np.ndarray:
    """The states with the pusher set beside the ball it is to push."""
    state = state.copy()
    ball, way = np.divmod(action, 8)
    centre = state[np.arange(len(state))[:, None], 7 * ball[:, None] + np.arange(2)]
    state[:, 35:37] = centre - 0.15 * DIRECTIONS[way]
    return state


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rollouts", type=int, default=2_000)
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    rng = np.random.default_rng(0)
    clean = record("tau_left", options.rollouts, rng, mix=("random",))
    for name, noise in (("clean", 0.0), ("imagined", 0.02)):
        later = np.ones(len(clean.obs), bool)
        later[clean.row_offsets[:-1]] = False
        obs = clean.obs + (noise * later[:, None] * rng.normal(size=clean.obs.shape)).astype(np.float32)
        rollouts = replace(clean, obs=obs)
        adapter = Clevr()
        hidden = adapter.replay(rollouts).hidden[:, CARRIED]
        adapter.close()
        known = np.isfinite(hidden).all(axis=1)
        action = rollouts.action[known]
        state = pushed(state_of(xy(rollouts.start_obs[known]), hidden[known]), action)
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "rollouts.npy"
            make_file(path, rollouts)
            product, bare, plain, steps = [], [], [], 0
            for repeat in range(options.repeats):
                seconds, steps = end_to_end(path, Path(folder) / f"{name}-{repeat}")
                product.append(seconds)
                bare.append(bare_rollout(state, DIRECTIONS[action % 8], steps))
                plain.append(plain_loop(state, DIRECTIONS[action % 8]))
        ours, theirs, slow = map(statistics.median, (product, bare, plain))
        n, pushes = rollouts.n_transitions, steps / SUBSTEPS
        print(f"{name}: {n:,} rows, {steps:,} mj_step calls, {cores()} threads, load {os.getloadavg()[0]:.1f}")
        print(f"  score {ours:.2f} s ({n / ours:,.0f} rows/s, {pushes / ours:,.0f} pushes/s)")
        print(f"  bare mujoco.rollout, as many steps: {theirs:.2f} s; score reaches {theirs / ours:.2f} x its speed")
        print(f"  plain mj_step loop: {slow:,.0f} pushes/s; score is {pushes / ours / slow:.2f} x as fast")


if __name__ == "__main__":
    main()
