"""Real rollouts in the benchmark's layout, for calibration and tests."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from qualcheck.envs.clevr import goals, policies, reset, reward, text
from qualcheck.envs.clevr.dynamics import FAMILIES, Dynamics
from qualcheck.envs.clevr.layout import BALLS, HORIZON, xy
from qualcheck.types import AnyArray, IntArray, Placement, Rollouts

MIX = ("greedy", "look")  # policies of those that do not act at random, in equal shares
PURPOSES = {"fit": 11, "control": 12}  # -> seed; what is fitted on and what is tested are never the same rollouts
REASONS = {
    "push_still": "in the other scenes each of the 40 actions moves some ball: one drawn into a wall is thrown out",
    "order": "five balls in line just fit the table, and 50 pushes are few",
}  # why experts of `collect` do not reach more
COLLECTED_WITH = {"mix": ("look",)}  # of `collect`
RANDOM_SHARE = 0.5  # of the rollouts of `recordings`
GOAL_SIZE, HARD_GOAL_SIZE = 6, 24
KINDS = ("tau_2", "tau_3", "order", "gather")  # sixth number of a hard goal

REPHRASED = (  # moved ball, reference ball, side
    "arrange the {0} ball {2} the {1} ball",
    "nudge the {0} ball gently {2} the {1} ball",
    "i want the {0} ball {2} the {1} ball",
    "would you kindly put the {0} sphere {2} the {1} sphere",
    "get the {0} colored ball {2} the {1} colored ball, please",
    "bring the {0} orb {2} the {1} orb",
    "could you slide the {0} ball {2} the {1} ball slowly",
    "{2} the {1} ball, place the {0} ball",
)


def goal_array(placement: Placement) -> IntArray:
    """The benchmark's goal array of a task, (6,), or (24,) for a hard one with -1 where it is unused."""
    task, params = placement.task, placement.params
    if task in KINDS:
        goal = np.full(HARD_GOAL_SIZE, -1, np.int64)
        goal[:GOAL_SIZE] = [0] * len(BALLS) + [KINDS.index(task)]
        for place in range(len(params) // 3):
            way, moved, other = params[3 * place : 3 * place + 3]
            goal[GOAL_SIZE * (place + 1) : GOAL_SIZE * (place + 2)] = _six((moved, other), way)
        return goal
    return _six(params, task.split("_")[1])


def _six(balls: Sequence[str], way: str) -> IntArray:
    six = np.zeros(GOAL_SIZE, np.int64)
    for mark, ball in enumerate(balls, start=1):
        six[BALLS.index(ball)] = mark
    six[-1] = (*goals.WAYS, "still").index(way)
    return six


def sentence(placement: Placement, rng: np.random.Generator, level: str = "") -> str:
    """One of the sentences that mean a task; those of the level "rephrase" are this project's own."""
    task, params = placement.task, placement.params
    if task in ("order", "gather"):
        return next(words for words, meant in text.WHOLE.items() if meant == task).capitalize()
    if task in KINDS:
        parts = [params[at : at + 3] for at in range(0, len(params), 3)]
        clauses = (f"push the {a} ball {text.SIDES[way][0]} the {b} ball" for way, a, b in parts)
        return " and ".join(clauses).capitalize()
    way = task.split("_")[1]
    if way == "still":
        return f"Keep the {params[0]} ball still"
    if task.startswith("push_"):
        spelt = text.PUSH_WAYS[way]
        return f"Push the {params[0]} ball {spelt[int(rng.integers(len(spelt)))]}"
    if level == "rephrase":
        return REPHRASED[int(rng.integers(len(REPHRASED)))].format(*params, text.SIDES[way][0]).capitalize()
    side = text.SIDES[way][int(rng.integers(len(text.SIDES[way])))]
    start = text.REQUESTS[int(rng.integers(len(text.REQUESTS)))]
    return f"{start} {params[0]} ball {side} the {params[1]} ball".capitalize()


def record(
    task: str,
    n: int,
    rng: np.random.Generator,
    mix: Sequence[str] = MIX,
    random_share: float = 0.0,
    family: str = FAMILIES[0],
    dynamics: Dynamics | None = None,
    level: str = "real",
    noise: float = 0.0,
    horizon: int = HORIZON,
) -> Rollouts:
    """n real rollouts of a task from fresh resets; rows float32, a goal of its own for each.

    A rollout ends with the first row on which its goal holds, terminal, or truncated at the horizon; an easy one after
    its only step.

    Args:
        task: an id of `goals.TASKS`.
        n: how many.
        rng: draws starts, goals, actions and sentences.
        mix: policies, in equal shares, of `policies.POLICIES`.
        random_share: share of the rollouts that act uniformly at random instead.
        family: simulator family.
        dynamics: a simulator to use, whose family then counts; None starts one.
        level: "rephrase" has sentences of its own.
        noise: share of the policies' actions that are replaced by random ones.
        horizon: at most so many steps.

    Raises:
        UnknownName: no such task, policy or family.
    """
    numbers = np.array([policies.number_of(name) for name in mix])
    start = reset.sample(n, rng)
    placements = reset.draw(task, xy(start), rng)
    policy = numbers[rng.integers(len(numbers), size=n)]
    policy[rng.random(n) < random_share] = policies.number_of("random")
    simulator = Dynamics(family=family) if dynamics is None else dynamics
    played = policies.play(start, goals.roles(placements), policy, simulator, rng, horizon, noise)
    if dynamics is None:
        simulator.close()
    return _rollouts(task, placements, played, [sentence(placement, rng, level) for placement in placements])


def _rollouts(
    task: str, placements: Sequence[Placement], played: policies.Played, instruction: list[str | None]
) -> Rollouts:
    n, longest = played.action.shape
    step = np.arange(longest + 1)
    shown, taken = step <= played.length[:, None], step[:-1] < played.length[:, None]
    last = step[:-1] == played.length[:, None] - 1
    terminal = (last & played.won[:, None])[taken]
    goal: list[AnyArray | None] = [goal_array(placement) for placement in placements]
    rollouts = Rollouts(
        obs=played.obs[shown],
        action=played.action[taken],
        offsets=np.concatenate([[0], np.cumsum(played.length)]).astype(np.int64),
        has_final=np.ones(n, bool),
        source=np.zeros(n, np.int32),
        source_rollout=np.arange(n, dtype=np.int32),
        source_step=np.zeros(n, np.int32),
        instruction=instruction,
        terminal=terminal,
        truncated=last[taken] & ~terminal,
        goal=goal,
        is_reset=np.ones(n, bool),
        task=[task] * n,
        extra_rollout={"success": played.won.tolist()},
    )
    gain = reward.recompute(rollouts, placements, np.arange(n))[reward.READINGS[0]]
    return replace(rollouts, reward=gain)


def recordings(purpose: str, each: int, family: str = FAMILIES[0]) -> Iterator[Rollouts]:
    """`each` rollouts of every task of every level, one task after the other, half of them at random.

    Args:
        purpose: "fit" or "control", which share no random numbers.
        each: rollouts of a task.
        family: simulator family.
    """
    dynamics = Dynamics(family=family)
    for level, (name, tasks) in enumerate(goals.TASKS.items()):
        for place, task in enumerate(tasks):
            rng = np.random.default_rng([PURPOSES[purpose], FAMILIES.index(family), level, place])
            rollouts = record(task, each, rng, random_share=RANDOM_SHARE, dynamics=dynamics)
            yield replace(rollouts, level=[name] * each)
    dynamics.close()
