"""Real rollouts in the benchmark's layout, for calibration and tests.

Those of the older simulators are played by the kernel, which replays them to its last digits: what their emulation
costs shows on files of those simulators alone. metaworld's own are played in its environments (`stock`).

The calibrations that ship were made with, from the folder of the golden rollouts,
`python -m qualcheck.shipping metaworld metaworld_{real,rephrase,easy,hard,real_mj301}.npy --each 6 -o FOLDER`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from qualcheck.envs.metaworld import experts, goals, reset, reward, text
from qualcheck.envs.metaworld.experts import AtRandom, Player, Scripted
from qualcheck.envs.metaworld.goals import TippedRows
from qualcheck.envs.metaworld.kernel import Episode, Kernel
from qualcheck.envs.metaworld.layout import ACTION_SIZE, HORIZON, OBS_SIZE, TASKS
from qualcheck.envs.metaworld.recognise import FAMILIES
from qualcheck.errors import unknown_name
from qualcheck.types import AnyArray, BoolArray, FloatArray, Placement, Rollouts

PURPOSES = {"fit": 11, "control": 12}  # -> seed; what is fitted on and what is tested are never the same rollouts
EMULATED = ("mujoco-2.3", "mujoco-3.0")  # families whose recordings made here show less error than those made there
REASONS = {
    "door-unlock": "every second rollout has the benchmark's jammed door, which no script opens",
    "locked-door-open": "the benchmark's door is jammed, and there is no script beyond the lock",
    "soccer": "the ball rolls on: the script, which pushes once, also reaches less than half in the benchmark",
}  # why experts of `collect` do not reach more
COLLECTED_WITH = {"predicates": "intended", "noise": 0.0}  # of `collect`
RANDOM_SHARE = 0.2  # of the rollouts of `recordings`
RIGID = ("door-unlock",)  # tasks of which every second rollout has metaworld's door, with which alone they can be done


@dataclass
class Live:
    """One running episode."""

    player: Player
    rows: list[FloatArray]  # (91,) each
    tips: list[FloatArray]  # (3,) each
    action: list[AnyArray]  # (4,) each
    hidden: FloatArray | None = None  # (36,)
    layout_m: FloatArray | None = None  # (3,)


def sentence(task: str, rng: np.random.Generator) -> str:
    """One of the benchmark's sentences for a task."""
    known = [words for words, meant in text.sentences().items() if meant == task]
    return known[int(rng.integers(len(known)))]


def step(kernel: Kernel, task: str, live: list[Live], action: list[AnyArray]) -> BoolArray:
    """Advance running episodes of a task by one action each; False where MuJoCo gave up, (n,)."""
    episodes = [
        Episode(task, each.rows[-1 if each.action else 0][None], np.asarray(move)[None], each.rows[0], each.hidden,
                not each.action, each.layout_m)
        for each, move in zip(live, action, strict=True)
    ]  # fmt: skip
    played = kernel.play(episodes, filtered=False)
    for each, move, done in zip(live, action, played, strict=True):
        each.rows.append(done.obs[1])
        each.tips.append(done.tip_m[1])
        each.action.append(move)
        each.hidden, each.layout_m = done.after, done.layout_m
        if len(each.tips) == 2:
            each.tips[0] = done.tip_m[0]
    return np.array([not done.code[0] for done in played])


def reached(task: str, live: list[Live], predicates: str = "intended") -> BoolArray:
    """Whether the goal holds on the last row of each running episode, (n,)."""
    offsets = np.concatenate([[0], np.cumsum([len(each.rows) for each in live])]).astype(np.int64)
    obs = np.concatenate([np.stack(each.rows) for each in live])
    tips = np.concatenate([np.stack(each.tips) for each in live])
    rows = TippedRows(obs, offsets, np.isfinite(obs).all(axis=1), tips, np.ones(len(live), bool))
    found = goals.evaluate(rows, [Placement(task, task)], np.zeros(len(live), np.int64))
    holds: BoolArray = (found.intended if predicates == "intended" else found.released)[offsets[1:] - 1]
    return holds


def record(
    task: str,
    n: int,
    rng: np.random.Generator,
    random_share: float = 0.0,
    kernel: Kernel | None = None,
    horizon: int = HORIZON,
    predicates: str = "released",
    noise: float | None = None,
) -> Rollouts:
    """n real rollouts of a task from fresh resets; rows and actions float32.

    A rollout ends with the first row on which its goal holds, terminal, or truncated after `horizon` steps.

    Args:
        task: a key of `layout.TASKS`.
        n: how many.
        rng: draws everything.
        random_share: share of the rollouts that act at random instead of by script.
        kernel: simulates; None starts one of the usual family.
        horizon: at most so many steps.
        noise: standard deviation on the scripts' actions; None: drawn for each rollout from `experts.NOISES`.
        predicates: "released", by which the benchmark's rollouts end, or "intended".

    Raises:
        UnknownName: no such task.
    """
    if task not in TASKS:
        raise unknown_name("Meta-World task", task, list(TASKS))
    simulator = kernel or Kernel()
    live = []
    for i, own in enumerate(rng.spawn(n)):
        player: Player = AtRandom(own) if own.random() < random_share else Scripted(task, own, noise, predicates)
        first = reset.sample(task, 1, own, simulator, hinged=not (task in RIGID and i % 2))[0]
        live.append(Live(player, [first.astype(np.float32).astype(np.float64)], [np.full(3, np.nan)], []))
    running, won = list(range(n)), np.zeros(n, bool)
    for _ in range(horizon):
        if not running:
            break
        now = [live[i] for i in running]
        moves = [
            experts.rounded(each.player.act(each.rows[-1], each.rows[-2] if each.action else each.rows[-1]))
            for each in now
        ]
        sound = step(simulator, task, now, moves)
        for each in (one for one, good in zip(now, sound, strict=True) if not good):
            for kept in (each.rows, each.tips, each.action):
                kept.pop()
        done = np.zeros(len(now), bool)
        done[sound] = (
            reached(task, [one for one, good in zip(now, sound, strict=True) if good], predicates)
            if (sound.any())
            else False
        )
        won[[i for i, end in zip(running, done, strict=True) if end]] = True
        running = [i for i, end, good in zip(running, done, sound, strict=True) if good and not end]
    if kernel is None:
        simulator.close()
    return rollouts_of(task, live, won, [sentence(task, rng) for _ in range(n)])


def rollouts_of(
    task: str, live: list[Live], won: BoolArray, instruction: list[str | None], dtype: type = np.float32
) -> Rollouts:
    """Episodes that are over, as the rollouts of a file, rows of a `dtype`; those that `won`, (n,), end terminal."""
    n, length = len(live), np.array([len(each.action) for each in live], np.int64)
    offsets = np.concatenate([[0], np.cumsum(length)]).astype(np.int64)
    last = np.zeros(offsets[-1], bool)
    last[offsets[1:][length > 0] - 1] = True
    terminal = last & np.repeat(won, length)
    none = np.zeros((0, OBS_SIZE))
    rollouts = Rollouts(
        obs=np.concatenate([none, *(np.stack(each.rows) for each in live)]).astype(dtype),
        action=np.array([move for each in live for move in each.action], np.float32).reshape(-1, ACTION_SIZE),
        offsets=offsets,
        has_final=np.ones(n, bool),
        source=np.zeros(n, np.int32),
        source_rollout=np.arange(n, dtype=np.int32),
        source_step=np.zeros(n, np.int32),
        instruction=instruction,
        terminal=terminal,
        truncated=last & ~terminal,
        is_reset=np.ones(n, bool),
        task=[task] * n,
    )
    after = (
        np.zeros((0, 3))
        if not n
        else np.concatenate([np.zeros((0, 3)), *(each.tips[1:] for each in live if each.action)])
    )
    gain = reward.recompute(rollouts, [Placement(task, task)], np.zeros(n, np.int64), after)["released"]
    return replace(rollouts, reward=gain)


def recordings(purpose: str, each: int, family: str = next(iter(FAMILIES))) -> Iterator[Rollouts]:
    """`each` rollouts of every task of every level, one task after the other, a fifth of them at random.

    Those of the family that is metaworld as it is are played in its own environments, where it has the task.

    Args:
        purpose: "fit" or "control", which share no random numbers.
        each: rollouts of a task.
        family: of `recognise.FAMILIES`.

    Raises:
        UnknownName: no such family.
    """
    if family not in FAMILIES:
        raise unknown_name("simulator family of metaworld", family, list(FAMILIES))
    from qualcheck.envs.metaworld import stock  # not at the top: it records with what stands here

    kernel = Kernel(FAMILIES[family])
    for level, (name, tasks) in enumerate(goals.TASKS.items()):
        for place, task in enumerate(tasks):
            rng = np.random.default_rng([PURPOSES[purpose], list(FAMILIES).index(family), level, place])
            own = FAMILIES[family] == stock.STOCK and stock.stock_env(task) is not None
            made = stock.record(task, each, rng, RANDOM_SHARE) if own else record(task, each, rng, RANDOM_SHARE, kernel)
            yield replace(made, level=[name] * each)
    kernel.close()
