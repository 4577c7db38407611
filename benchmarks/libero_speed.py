"""LIBERO's replay and the whole of `qualcheck score` against robosuite, in one run. Needs the extra `libero`.

    python benchmarks/libero_speed.py REAL.npy [REAL.npy ...] [--seconds 20] [--noise-mm 0] [--noise-mrad 0]

REAL are recorded rollouts. Product: `qualcheck score`, and the replay of the same rows alone. Rival: robosuite's own
`env.step`, as the benchmark calls it, on the same rollouts one after another for so many seconds, on one core, as it
knows no other way. Rates are transitions a second; the product uses the cores it may use. With noise, every row after
the first is moved by so many millimetres and its joints by so many thousandths of a radian, so that bodies stand in one
another, as imagined ones do. Wall clocks mean little on a machine that has other work to do; the last line compares
seconds of processor time, one core against one.
"""

from __future__ import annotations

import argparse
import os
import resource
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import numpy as np

import qualcheck
from qualcheck.cores import cores
from qualcheck.envs.libero import Libero, simulator
from qualcheck.envs.libero.layout import CARRIED, GROUPS, HIDDEN_SIZE
from qualcheck.io import CanonicalWriter, open_source
from qualcheck.types import Rollouts


def read(paths: list[Path], adapter: Libero, noise_m: float, noise_rad: float = 0) -> list[Rollouts]:
    rng = np.random.default_rng(0)
    found = []
    for path in paths:
        for part in open_source(path, adapter.layouts()).batches():
            obs = part.obs.copy()
            later = np.ones(len(obs), bool)
            later[part.first_row] = False
            moved = rng.normal(0, noise_m, (int(later.sum()), len(GROUPS["positions"])))
            obs[np.ix_(later, np.array(GROUPS["positions"]))] += moved.astype(obs.dtype)
            turned = rng.normal(0, noise_rad, (int(later.sum()), len(GROUPS["joints"])))
            obs[np.ix_(later, np.array(GROUPS["joints"]))] += turned.astype(obs.dtype)
            found.append(replace(part, obs=obs, break_at=np.zeros(0, np.int64), break_obs=None))
    return found


def robosuite_rate(adapter: Libero, parts: list[Rollouts], seconds: float) -> tuple[float, float]:
    """Steps of robosuite a second, by the wall clock and of processor time, out of the rows it can be put into.

    Neither the time to build the scene counts nor the product's own step, to which `adapter.referee` compares it.
    """
    done, spent, busy = 0, 0.0, 0.0
    for part in parts:
        replay = adapter.replay(part)
        hidden = np.zeros((0, HIDDEN_SIZE)) if replay.hidden is None else replay.hidden[:, CARRIED]
        good = np.flatnonzero((replay.code == 0) & np.isfinite(hidden).all(axis=1))
        if not done:
            simulator.robosuite_steps(part.start_obs[:1], part.action[:1], hidden[:1], whole=True)
        for at in range(0, len(good), 50):
            some = good[at : at + 50]
            began, used = time.perf_counter(), time.process_time()
            simulator.robosuite_steps(part.start_obs[some], part.action[some], hidden[some], whole=True)
            spent, busy = spent + time.perf_counter() - began, busy + time.process_time() - used
            done += len(some)
            if spent > seconds:
                return done / spent, done / busy
    return done / spent, done / busy


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("real", nargs="+", type=Path)
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--noise-mm", type=float, default=0)
    parser.add_argument("--noise-mrad", type=float, default=0)
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    adapter = Libero()
    parts = read(options.real, adapter, options.noise_mm / 1000, options.noise_mrad / 1000)
    total = sum(part.n_transitions for part in parts)
    adapter.replay(parts[0])  # compiles
    replay, whole, rival, core, rival_core = [], [], [], [], []
    mine = 0.0  # peak memory before the rival is there, MB
    with tempfile.TemporaryDirectory() as folder:
        with CanonicalWriter(Path(folder) / "rows.parquet", adapter.spec, {}) as writer:
            for part in parts:
                writer.append(part)
        for repeat in range(options.repeats):
            other = Libero()
            began, used = time.perf_counter(), time.process_time()
            for part in parts:
                other.replay(replace(part))
            replay.append(total / (time.perf_counter() - began))
            core.append(total / (time.process_time() - used))
            each = other.steps_executed / 25 / total  # simulated actions a transition
            other.close()
            began = time.perf_counter()
            run = qualcheck.score(Path(folder) / "rows.parquet", "libero", Path(folder) / f"run{repeat}", recheck=0)
            whole.append(total / (time.perf_counter() - began))
            mine = max(mine, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024) if not rival else mine
            wall, alone = robosuite_rate(adapter, parts, options.seconds / options.repeats)
            rival.append(wall)
            rival_core.append(alone)
    steps = run.manifest["run"]["simulator_steps"] / 25
    fast, all_of_it, slow = (float(np.median(rates)) for rates in (replay, whole, rival))
    noise = f"{options.noise_mm:g} mm and {options.noise_mrad:g} mrad noise"
    print(f"{total:,} transitions, {noise}, {cores()} cores, load {os.getloadavg()[0]:.1f}")
    print(f"  replay {fast:,.0f}/s, score {all_of_it:,.0f}/s ({steps / total:.2f} simulated actions a transition)")
    print(f"  robosuite {slow:,.0f}/s: replay {fast / slow:.1f} x, score's simulated actions "
          f"{all_of_it * steps / total / slow:.1f} x; own peak memory {mine:,.0f} MB")  # fmt: skip
    own, its = float(np.median(core)), float(np.median(rival_core))
    print(f"  one core against one, processor time: replay {own:,.0f}/s at {each:.2f} simulated actions, robosuite "
          f"{its:,.0f}/s: {own / its:.1f} x a transition, {own * each / its:.1f} x a simulated action")  # fmt: skip
    adapter.close()


if __name__ == "__main__":
    main()
