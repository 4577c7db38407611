"""Meta-World's replay against metaworld's own steps and against bare MuJoCo, task by task, in one run.

    python benchmarks/metaworld_speed.py [FILE...] [--rollouts 24] [--repeats 3]

FILE: rollouts of the benchmark's layout, whose tasks are told by their instructions; without one, each task is recorded
by this package. Per task as many rollouts as asked for, the files' own again and again.

Product: `replay`, the sequential filter that scores every transition, and `open_loop`, which replays from row 0 for the
goals. The adapter is new in every round, its models built, nothing settled: its resets are counted, and so is every
step that it simulates. Rivals, on one thread as they come:
- `env.step` of metaworld's own environment of the task with the same actions, its resets not counted; make-coffee and
  locked-door-open have none;
- bare `mj_step` on the adapter's model of the scene, five calls a transition from the states of the filter, in
  the scene and from the zero warm start that the filter has, nothing else done.
Rounds are interleaved; medians and ratios of medians are printed, of the wall clock and, since that needs idle cores,
of processor time: "a core" is how many times as many transitions a second of one core makes.
"""

from __future__ import annotations

import argparse
import itertools
import os
import time
from dataclasses import replace
from pathlib import Path

import mujoco
import numpy as np

from qualcheck.contract_subject import pieces
from qualcheck.cores import cores
from qualcheck.cut import cut
from qualcheck.envs.metaworld import MetaWorld
from qualcheck.envs.metaworld.arm import UPRIGHT_MOCAP
from qualcheck.envs.metaworld.kernel import COMMANDED, QPOS, QVEL, is_hinged
from qualcheck.envs.metaworld.layout import CARRIED, LAYOUT, SUBSTEPS, TASKS
from qualcheck.envs.metaworld.record import record
from qualcheck.envs.metaworld.stock import stock_env
from qualcheck.envs.metaworld.tasks import tasks_of
from qualcheck.envs.running_mujoco import quiet
from qualcheck.io import open_source
from qualcheck.types import Rollouts

Spent = tuple[float, float]  # seconds of the wall clock and of processor time
Rounds = dict[str, list[Spent]]


class Watch:
    """Time spent since it was made."""

    def __init__(self) -> None:
        self._began = time.perf_counter(), time.process_time()

    def read(self) -> Spent:
        return time.perf_counter() - self._began[0], time.process_time() - self._began[1]


def of_files(paths: list[Path]) -> dict[str, list[Rollouts]]:
    """Task -> its rollouts, one each, in the order of the files."""
    adapter, found = MetaWorld(), {}
    for path in paths:
        for batch in open_source(path, adapter.layouts()).batches():
            for i, task in enumerate(tasks_of(batch)):
                one = replace(cut(batch, np.array([i]), np.array([0]), batch.length[[i]]), is_reset=np.array([True]))
                found.setdefault(str(task), []).append(one)
    adapter.close()
    return found


def joined(parts: list[Rollouts]) -> Rollouts:
    """The rollouts one after the other."""
    length = np.concatenate([part.length for part in parts])
    n = len(length)
    return Rollouts(
        obs=np.concatenate([part.obs for part in parts]),
        action=np.concatenate([part.action for part in parts]),
        offsets=np.concatenate([[0], np.cumsum(length)]).astype(np.int64),
        has_final=np.concatenate([part.has_final for part in parts]),
        source=np.zeros(n, np.int32),
        source_rollout=np.arange(n, dtype=np.int32),
        source_step=np.zeros(n, np.int32),
        instruction=[text for part in parts for text in part.instruction],
        is_reset=np.ones(n, bool),
    )


def adapter_for(task: str, warm: Rollouts) -> MetaWorld:
    """A new adapter with this task's models in every thread, and no start settled but the usual one."""
    adapter = MetaWorld()
    several = joined([warm] * 4 * cores())
    adapter.replay(replace(several, task=[task] * several.n_rollouts))
    return adapter


def step_env(task: str, rollouts: Rollouts) -> Spent:
    """Time in `env.step` with the actions of all rollouts; the resets between them are not counted."""
    env, wall, cpu = stock_env(task), 0.0, 0.0
    for i in range(rollouts.n_rollouts):
        env.reset()
        moves = rollouts.action[rollouts.offsets[i] : rollouts.offsets[i + 1]]
        watch = Watch()
        for move in moves:
            env.step(move)
        spent = watch.read()
        wall, cpu = wall + spent[0], cpu + spent[1]
    return wall, cpu


def step_bare(adapter: MetaWorld, task: str, rollouts: Rollouts, hidden: np.ndarray, layout_m: np.ndarray) -> Spent:
    """Time for five mj_step calls a transition."""
    push = np.stack([rollouts.action[:, 3], -rollouts.action[:, 3]], axis=1).astype(np.float64)
    wall, cpu = 0.0, 0.0
    for first, stop in itertools.pairwise(rollouts.offsets):
        scene = adapter._simulator().scene(task, is_hinged(task, hidden[first]))  # a task may have both doors
        model, data = scene.model, scene.data
        scene.place_layout(layout_m[first])
        mujoco.mj_resetData(model, data)
        data.mocap_quat[0] = UPRIGHT_MOCAP
        watch = Watch()
        for state, grip in zip(hidden[first:stop], push[first:stop], strict=True):
            data.qpos[:], data.qvel[:] = state[QPOS][: model.nq], state[QVEL][: model.nv]
            data.qacc_warmstart.fill(0.0)
            data.mocap_pos[0], data.ctrl[:] = state[COMMANDED], grip
            mujoco.mj_step(model, data, SUBSTEPS)
        spent = watch.read()
        wall, cpu = wall + spent[0], cpu + spent[1]
    return wall, cpu


def rounds(task: str, rollouts: Rollouts, warm: Rollouts, repeats: int) -> tuple[Rounds, int]:
    """Time of every contender in every round, and the steps that `replay` executes."""
    found: Rounds = {name: [] for name in ("replay", "open loop", "env.step", "mj_step")}
    steps = 0
    for _ in range(repeats):
        adapter = adapter_for(task, warm)
        fresh, before = replace(rollouts), adapter.steps_executed
        watch = Watch()
        replayed = adapter.replay(fresh)
        found["replay"].append(watch.read())
        steps = adapter.steps_executed - before
        with quiet():
            found["env.step"].append(step_env(task, rollouts) if stock_env(task) is not None else (np.nan, np.nan))
            found["mj_step"].append(
                step_bare(adapter, task, rollouts, replayed.hidden[:, CARRIED], replayed.hidden[:, LAYOUT])
            )
        adapter.close()
        adapter = adapter_for(task, warm)
        watch = Watch()
        adapter.open_loop(fresh)
        found["open loop"].append(watch.read())
        adapter.close()
    return found, steps


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="*", type=Path)
    parser.add_argument("--rollouts", type=int, default=24)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--task", action="append", default=[])
    options = parser.parse_args()
    given = of_files(options.files)
    print(f"{cores()} threads, load {os.getloadavg()[0]:.1f}; ms a transition, and how many times as fast as env.step")
    print(f"{'env.step':>36}{'mj_step':>9}{'open loop':>18}{'a core':>8}{'replay':>18}{'a core':>8}{'of mj_step':>12}")
    ratios = []
    for task in options.task or TASKS:
        rng = np.random.default_rng(0)
        warm = record(task, 1, rng, horizon=2)
        own = given.get(task) or [
            pieces(record(task, options.rollouts, rng, 0.2), [i]) for i in range(options.rollouts)
        ]
        rollouts = joined([own[i % len(own)] for i in range(options.rollouts)])
        found, steps = rounds(task, rollouts, warm, options.repeats)
        n = rollouts.n_transitions
        each = {name: 1e3 * np.median(values, axis=0) / n for name, values in found.items()}  # (2,) wall, processor
        opened, replayed = each["env.step"] / each["open loop"], each["env.step"] / each["replay"]
        bare = each["mj_step"] * steps / n / each["replay"]
        ratios.append([*opened, *replayed, bare[0]])
        print(
            f"{task:20}{n:6}{each['env.step'][0]:10.3f}{each['mj_step'][0]:9.3f}{each['open loop'][0]:11.3f}"
            f"{opened[0]:6.1f}x{opened[1]:7.1f}x{each['replay'][0]:11.3f}{replayed[0]:6.1f}x{replayed[1]:7.1f}x"
            f"{bare[0]:11.2f}x",
            flush=True,
        )
    table = np.array(ratios)
    for name, how in (("mean", np.nanmean), ("worst", np.nanmin)):
        of = how(table, axis=0)
        print(
            f"{name}: open loop {of[0]:.1f} x env.step ({of[1]:.1f} x a core), replay {of[2]:.1f} x ({of[3]:.1f} x a "
            f"core); replay makes as many steps as bare mj_step on one thread in {1 / of[4]:.2f} x its time"
        )


if __name__ == "__main__":
    main()
