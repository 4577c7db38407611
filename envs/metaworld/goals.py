"""When a Meta-World task is reached: how near an entity of the row is to where the task wants it.

Every sub-goal is a slack in m, the limit minus a distance, and holds where it is not negative. The goal position is
that of row 0 of the episode: the benchmark tests against it, while later rows show it clipped and, in two tasks, show
the next target instead. Source: success tests of the ImagineBench Meta-World classes (arXiv 2505.10010, released code
of May 2025).

Two hard tasks have two stages; the second is tested from the step after the one that reached the first. The intended
goals differ from the released ones there only: the released make-coffee ends on the mug where the text wants the
button pressed, and the released locked-door-open on the lock where it wants the door open. (The released class also
keeps its stage from one episode to the next, which no file shows.)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from qualcheck.envs.metaworld.layout import GOAL, HAND
from qualcheck.envs.metaworld.layout import TASKS as SHOWN
from qualcheck.envs.metaworld.layout import position as columns_of
from qualcheck.thresholds import scaled
from qualcheck.types import AnyArray, BoolArray, FloatArray, GoalRows, IntArray, Placement, Trajectory

PREDICATES = ("intended", "released")
_AT = {
    level: tuple(task for task, shown in SHOWN.items() if shown.level == level) for level in ("real", "easy", "hard")
}
TASKS: dict[str, tuple[str, ...]] = {
    "real": _AT["real"],
    "rephrase": _AT["real"],  # other sentences for the same goals
    "easy": _AT["easy"],
    "hard": _AT["hard"],
}
TASK_IDS = tuple(SHOWN)

REACH_M = 0.05
TIP_BELOW_HAND_M = np.array([0.0, 0.0, -0.045])  # of an upright hand
TIP_UNKNOWN_M = 0.006  # a real hand tilts: the tip is up to this far from there
TILTED_TIP_UNKNOWN_M = 0.065  # the same under the benchmark's own MuJoCo 3.0.1, which leaves the hand tilted
FAUCET_GRIP_M = np.array([-0.04, 0.0, 0.03])  # from the marker of an opening faucet to what its test reads
NAIL_START_Y_M, NAIL_DRIVEN_M = 0.64, 0.09
MUG_STAGE_M, BUTTON_DEPTH_M, BUTTON_M = 0.07, 0.03, 0.02
LOCK_STAGE_M, DOOR_FROM_GOAL_M, DOOR_WAY_M, DOOR_M = 0.02, 0.067, 0.3, 0.08
X, Y, Z = range(3)


@dataclass(frozen=True)
class TippedRows(Trajectory):
    """Rows with what they do not show and some goals need."""

    tip: FloatArray  # (M+N, 3) m, midpoint of the finger tips in the carried simulator; NaN where not known
    from_reset: BoolArray  # (N,) False: earlier rows are missing, so that no latched goal can be judged
    first_goal: FloatArray | None = None  # (N, 3) goal on row 0 of the episode a cut belongs to; NaN where not known
    tip_unknown_m: float = TIP_UNKNOWN_M  # how far the tip may be from below the hand where it is not known


@dataclass(frozen=True)
class Part:
    """Whole rollouts of one task as flat rows."""

    obs: FloatArray  # (R, 91)
    ok: BoolArray  # (R,)
    tip: FloatArray  # (R, 3) NaN where not known
    goal: FloatArray  # (R, 3) of row 0 of the episode
    offsets: IntArray  # (n+1,) first row of each rollout; every rollout has one
    rollout: IntArray  # (R,)
    step: IntArray  # (R,) 0 in row 0
    tip_unknown_m: float

    def place(self, entity: str) -> FloatArray:
        return self.obs[:, columns_of(entity)]  # (R, 3)

    def reached(self, slack: FloatArray) -> BoolArray:
        """Whether a slack was not negative on a usable row after row 0, this one or an earlier one, (R,)."""
        total = np.concatenate([[0], np.cumsum((slack >= 0) & self.ok & (self.step > 0))])
        seen: BoolArray = total[1:] > total[self.offsets[:-1]][self.rollout]
        return seen

    def before(self, seen: BoolArray) -> BoolArray:
        """The same up to the row before, (R,); False in row 0."""
        earlier: BoolArray = np.concatenate([[False], seen[:-1]]) & (self.step > 0)
        return earlier


Slack = Callable[[Part], FloatArray]


def _norm(way: FloatArray) -> FloatArray:
    length: FloatArray = np.sqrt((way**2).sum(axis=1))
    return length


def _near(entity: str, within_m: float, shift: FloatArray | float = 0.0) -> Slack:
    """The entity is within a distance of the goal in space."""
    return lambda part: scaled(within_m) - _norm(part.place(entity) + shift - part.goal)


def _along(entity: str, axis: int, within_m: float) -> Slack:
    """The entity is within a distance of the goal along one axis."""
    return lambda part: scaled(within_m) - np.abs(part.place(entity)[:, axis] - part.goal[:, axis])


def _tip(part: Part) -> FloatArray:
    """The tip of the gripper is at the goal; NaN where the row alone cannot tell."""
    told = scaled(REACH_M) - _norm(part.tip - part.goal)
    guessed = scaled(REACH_M) - _norm(part.obs[:, HAND] + TIP_BELOW_HAND_M - part.goal)
    guessed[np.abs(guessed) <= part.tip_unknown_m] = np.nan
    return np.where(np.isnan(told), guessed, told)


def _nail(part: Part) -> FloatArray:
    return part.place("nail")[:, Y] - NAIL_START_Y_M - scaled(NAIL_DRIVEN_M)


def _pressed_under_mug(entity: str) -> Slack:
    """The entity has come to where the machine's button is pressed."""
    return lambda part: scaled(BUTTON_M) - np.abs(part.place(entity)[:, Y] - part.goal[:, Y] - BUTTON_DEPTH_M)


def _swung(entity: str) -> Slack:
    """The entity has come to where an open door's handle is, in x."""
    door_way = DOOR_FROM_GOAL_M - DOOR_WAY_M
    return lambda part: scaled(DOOR_M) - np.abs(part.place(entity)[:, X] - part.goal[:, X] - door_way)


_SINGLE: dict[str, Slack] = {
    "reach": _tip,
    "push": _near("target_object", 0.05),
    "pick-place": _near("target_object", 0.07),
    "button-press": _along("button", Y, 0.02),
    "door-unlock": _along("lock", X, 0.02),
    "door-open": _along("handle", X, 0.08),
    "window-open": _along("window", X, 0.05),
    "faucet-open": _near("faucet", 0.07, FAUCET_GRIP_M),
    "coffee-push": _near("coffee", 0.07),
    "coffee-button": _along("coffee-button", Y, 0.02),
    "reach-wall": _tip,
    "push-wall": _near("target_object", 0.07),
    "pick-place-wall": _near("target_object", 0.07),
    "button-press-wall": _along("button", Y, 0.03),
    "door-lock": _along("lock", Z, 0.02),
    "door-close": _near("handle", 0.08),
    "window-close": _along("window", X, 0.05),
    "faucet-close": _near("faucet", 0.07),
    "hammer": _nail,
    "soccer": _near("soccer", 0.07),
}
_STAGED: dict[str, dict[str, tuple[Slack, Slack]]] = {
    "make-coffee": {
        "released": (_near("coffee", MUG_STAGE_M), _pressed_under_mug("coffee")),
        "intended": (_near("coffee", MUG_STAGE_M), _pressed_under_mug("coffee-button")),
    },
    "locked-door-open": {
        "released": (_along("lock", X, LOCK_STAGE_M), _swung("lock")),
        "intended": (_along("lock", X, LOCK_STAGE_M), _swung("handle")),
    },
}
NEED_FIRST_GOAL = ("door-unlock",)  # its goal is clipped from row 1 on


def slacks(part: Part, task: str, predicates: str) -> list[FloatArray]:
    """Slack of each sub-goal of a task on each row, m, (R,) each: one, or two where there are stages."""
    with np.errstate(invalid="ignore", over="ignore"):
        if task in _SINGLE:
            return [_SINGLE[task](part)]
        return [stage(part) for stage in _STAGED[task][predicates]]


def holds(part: Part, task: str, predicates: str) -> tuple[BoolArray, FloatArray]:
    """Whether a task's goal holds on each row, (R,), and the share of its sub-goals that have been reached, (R,)."""
    found = slacks(part, task, predicates)
    if len(found) == 1:
        now = part.ok & (found[0] >= 0)
        return now, np.where(part.ok & np.isnan(found[0]), np.nan, now)
    first = part.reached(found[0])
    second: BoolArray = part.ok & (found[1] >= 0) & part.before(first)
    return second, np.where(part.ok, (first + second.astype(np.float64)) / 2, 0.0)


def judged(task: str, from_reset: BoolArray, goal_told: BoolArray) -> BoolArray:
    """Rollouts whose rows show enough to judge a task, (N,)."""
    if task in _STAGED:
        return from_reset
    return from_reset | goal_told if task in NEED_FIRST_GOAL else np.ones(len(from_reset), bool)


def names_of(placements: Sequence[Placement], which: IntArray, predicates: str) -> AnyArray:
    """Task of each rollout under one set of predicates, (N,)."""
    names = [placement.task if predicates == "intended" else placement.task_released for placement in placements]
    return np.array(names or [""])[which]


def parts(
    rows: Trajectory, placements: Sequence[Placement], which: IntArray, predicates: str
) -> list[tuple[str, IntArray, Part, IntArray]]:
    """Task, rollouts (n,), their rows, and the index of each of these, (R,), for every task that can be judged."""
    count, names = np.diff(rows.offsets), names_of(placements, which, predicates)
    tipped = rows if isinstance(rows, TippedRows) else None
    from_reset = np.ones(len(count), bool) if tipped is None else tipped.from_reset
    told = np.full((len(count), 3), np.nan)
    if tipped is not None and tipped.first_goal is not None:
        told = tipped.first_goal
    goal_told = np.isfinite(told).all(axis=1)
    found: list[tuple[str, IntArray, Part, IntArray]] = []
    for task in np.unique(names[names != ""]) if len(names) else ():
        who = np.flatnonzero((names == task) & (count > 0) & judged(str(task), from_reset, goal_told))
        size = count[who]
        own = np.concatenate([[0], np.cumsum(size)]).astype(np.int64)
        rollout = np.repeat(np.arange(len(who)), size)
        step = np.arange(own[-1]) - own[:-1][rollout]
        at = rows.offsets[:-1][who][rollout] + step
        obs = rows.obs[at].astype(np.float64)  # (R, 91)
        goal = np.where(goal_told[who, None], told[who], obs[own[:-1], GOAL]) if len(who) else told[who]
        tip = np.full((len(at), 3), np.nan) if tipped is None else tipped.tip[at]
        unknown_m = TIP_UNKNOWN_M if tipped is None else tipped.tip_unknown_m
        part = Part(obs, rows.ok[at], tip, goal[rollout], own, rollout, step, unknown_m)
        found.append((str(task), who, part, at))
    return found


def evaluate(rows: Trajectory, placements: Sequence[Placement], which: IntArray) -> GoalRows:
    """The goal of each rollout on each of its rows.

    Args:
        rows: rows of N rollouts, imagined or replayed; `TippedRows` may tell where the tip of the gripper is, and that
            some rollouts do not start at a reset.
        placements: the tasks that occur.
        which: (N,) index into `placements`.

    Returns:
        Arrays of one entry a row; False and share 0 where the row is not `ok`. False and share NaN where the rollout
        has no task, where a reach ends so near its limit that only the unknown tip could tell, and in cuts of tasks
        with a history: the two-stage ones, and door-unlock, whose goal on row 0 must be told.
    """
    hold = {name: np.zeros(len(rows.obs), bool) for name in PREDICATES}
    share = np.full(len(rows.obs), np.nan, np.float32)
    for predicates in PREDICATES:
        for task, _, part, at in parts(rows, placements, which, predicates):
            now, done = holds(part, task, predicates)
            hold[predicates][at] = now
            if predicates == "intended":
                share[at] = done
    return GoalRows(hold["intended"], hold["released"], share)


def margin(rows: Trajectory, placements: Sequence[Placement], which: IntArray) -> FloatArray:
    """How many metres each rollout's best row is from changing its released or intended verdict, (N,); NaN untold."""
    near = np.full(len(rows.offsets) - 1, np.nan)
    for predicates in PREDICATES:
        for task, who, part, _ in parts(rows, placements, which, predicates):
            if not len(who):
                continue
            found = slacks(part, task, predicates)
            best = []
            for number, slack in enumerate(found):
                seen = part.ok & (part.step > 0)
                seen &= part.before(part.reached(found[0])) if number else True
                usable = np.where(seen & np.isfinite(slack), slack, -np.inf)
                best.append(np.maximum.reduceat(usable, part.offsets[:-1]))
            last = np.where(best[0] >= 0, best[-1], best[0])  # the second stage counts once the first is reached
            near[who] = np.fmin(near[who], np.abs(last))
    return near
