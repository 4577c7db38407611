"""Real rollouts in the benchmark's layout, for calibration and tests.

Each task is played by the script of `experts`, with more or less noise, or at random. Every episode has random numbers
of its own, so that the result does not depend on the number of threads.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from queue import SimpleQueue

import numpy as np

from qualcheck.cores import cores
from qualcheck.envs.libero import experts, goals, reset, reward, text
from qualcheck.envs.libero.columns import ACTION_SIZE, HORIZON, OBS_SIZE, StartedRows
from qualcheck.envs.libero.kernel import Simulator
from qualcheck.envs.libero.starts import read_inits
from qualcheck.errors import unknown_name
from qualcheck.types import AnyArray, BoolArray, Placement, Rollouts

PURPOSES = {"fit": 11, "control": 12}  # -> seed; what is fitted on and what is tested are never the same rollouts
RANDOM_SHARE = 0.2  # of the rollouts of `recordings`
COLLECTED_WITH = {"noise": 0.05}  # `collect` has the careful hand
RANDOM_STEPS = 70  # of a rollout at random, which hardly ever reaches anything


def sentence(task: str, rng: np.random.Generator) -> str:
    """One of the benchmark's sentences for a task."""
    known = [words for words, meant in text.sentences().items() if meant == task]
    return known[int(rng.integers(len(known)))]


def record(
    task: str,
    n: int,
    rng: np.random.Generator,
    random_share: float = 0.0,
    simulator: Simulator | None = None,
    horizon: int = HORIZON,
    noise: float | None = None,
    inits: Path | None = None,
) -> Rollouts:
    """n real rollouts of a task, rows and actions float32.

    A rollout ends with the first row on which its intended goal holds, terminal, or truncated when its script is done
    or after `horizon` steps. The extra column `start_from` says where its scene comes from, `success` how it ended.

    Args:
        task: an id of `goals.TASKS`.
        n: how many.
        rng: draws everything.
        random_share: share of the rollouts that act uniformly at random instead.
        simulator: whose model is used; None starts one.
        horizon: at most so many steps.
        noise: standard deviation of what is added to the translations of a careful hand; None: see `experts.episode`.
        inits: folder with the benchmark's files of starts; None: scenes of this project's own placement.

    Raises:
        UnknownName: no such task.
        DataError: the folder has no such file.
        MissingExtra: the extra is not installed.
    """
    if task not in goals.TASK_OF:
        raise unknown_name("LIBERO task", task, list(goals.TASK_IDS))
    kernel = simulator or Simulator()
    start = reset.start_of(task)
    path, rows = (None, np.zeros((0, OBS_SIZE))) if inits is None else read_inits(inits, start)
    own = rng.spawn(n)
    which = [int(part.integers(len(rows))) for part in own] if len(rows) else []
    acts = rng.random(n) >= random_share
    idle: SimpleQueue[experts.Live] = SimpleQueue()
    threads = cores()
    for _ in range(threads):
        idle.put(experts.Live(kernel))

    def one(i: int) -> tuple[AnyArray, AnyArray, BoolArray]:
        live = idle.get()
        try:
            longest = horizon if acts[i] else min(horizon, RANDOM_STEPS)
            first = rows[which[i]] if which else None
            return experts.episode(live, task, start, bool(acts[i]), longest, own[i], noise, first)
        finally:
            idle.put(live)

    with ThreadPoolExecutor(threads) as pool:
        played = list(pool.map(one, range(n)))
    if simulator is None:
        kernel.close()
    told = [f"{path.name} row {row}" for row in which] if path else ["own placement"] * n
    rollouts = _rollouts(task, played, [sentence(task, part) for part in own])
    return replace(rollouts, extra_rollout={**rollouts.extra_rollout, "start_from": told})


def _rollouts(task: str, played: list[tuple[AnyArray, AnyArray, BoolArray]], instruction: list[str | None]) -> Rollouts:
    n = len(played)
    ends, won = np.zeros(n, np.int64), np.zeros(n, bool)
    placement = Placement(task, task)
    for i, (rows, action, sound) in enumerate(played):
        ends[i] = len(action) if sound.all() else int(np.argmin(sound))
        shown = rows[: ends[i] + 1].astype(np.float32)
        offsets, ok = np.array([0, len(shown)]), np.ones(len(shown), bool)
        found = goals.evaluate(
            StartedRows(shown, offsets, ok, np.ones(1, bool)), [placement], np.zeros(1, np.int64)
        ).intended[1:]
        if found.any():
            ends[i], won[i] = int(np.argmax(found)) + 1, True
    last = np.concatenate([np.arange(end) == end - 1 for end in ends]) if n else np.zeros(0, bool)
    terminal = last & np.repeat(won, ends)
    none_rows, none_actions = np.zeros((0, OBS_SIZE), np.float32), np.zeros((0, ACTION_SIZE), np.float32)
    rollouts = Rollouts(
        obs=np.concatenate([none_rows, *(rows[: end + 1] for (rows, _, _), end in zip(played, ends, strict=True))],
                           dtype=np.float32, casting="same_kind"),
        action=np.concatenate([none_actions, *(moves[:end] for (_, moves, _), end in zip(played, ends, strict=True))],
                              dtype=np.float32, casting="same_kind"),
        offsets=np.concatenate([[0], np.cumsum(ends)]).astype(np.int64),
        has_final=np.ones(n, bool),
        source=np.zeros(n, np.int32),
        source_rollout=np.arange(n, dtype=np.int32),
        source_step=np.zeros(n, np.int32),
        instruction=instruction,
        terminal=terminal,
        truncated=last & ~terminal,
        is_reset=np.ones(n, bool),
        task=[task] * n,
        extra_rollout={"success": won.tolist()},
    )  # fmt: skip
    gain = reward.recompute(rollouts, [placement], np.zeros(n, np.int64))["intended"]
    return replace(rollouts, reward=gain)


def recordings(purpose: str, each: int, family: str = "") -> Iterator[Rollouts]:
    """`each` rollouts of every task of every level, one task after the other, a fifth of them at random.

    Args:
        purpose: "fit" or "control", which share no random numbers.
        each: rollouts of a task.
        family: simulator family; there is only "".

    Raises:
        UnknownName: no such family.
        MissingExtra: the extra is not installed.
    """
    if family:
        raise unknown_name("simulator family of libero", family, [])
    simulator = Simulator()
    for level, (name, tasks) in enumerate(goals.TASKS.items()):
        for place, task in enumerate(tasks):
            rng = np.random.default_rng([PURPOSES[purpose], level, place])
            yield replace(record(task, each, rng, RANDOM_SHARE, simulator), level=[name] * each)
    simulator.close()
