"""Laws a Meta-World recording must keep, without simulating it.

Limits come from real data with a margin (`limits.json`). Out of a row that breaks a row law, step laws are not tested.
The blocks of entities that the task does not have are masked: the benchmark shows one of them as a distractor, drawn
anew at every row, which has laws of its own. A rollout without a task is only asked for finite numbers, a hand and an
opening in their ranges. The soft rules only count.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from qualcheck.envs.metaworld import measures
from qualcheck.envs.metaworld.layout import (
    CARRIED,
    FIRST_ENTITY,
    HAND,
    HAND_HIGH,
    HAND_LOW,
    HORIZON,
    OBS_SIZE,
    OPENING,
    TASKS,
    block,
    from_reset,
    simulated_columns,
)
from qualcheck.envs.metaworld.reset_rules import RESET_LAWS, broken_start
from qualcheck.spec import Rule
from qualcheck.types import AnyArray, BoolArray, FloatArray, IntArray, Placement, Rollouts

RULES_VERSION = "1"

_LAWS = {
    "hand_out": ("row.hand_range", "range", "the hand is out of the box that it is commanded in"),
    "opening_out": ("row.opening_range", "range", "the gripper is opened or closed further than it can be"),
    "quaternion_length": ("row.unit_quaternion", "range", "a quaternion is not of length 1, or a window's not zero"),
    "sunk": ("row.below_table", "contact", "an object is in the table, or below it"),
    "fixture": ("row.fixture", "conservation", "a wall or a nail is not where it is fixed"),
    "distractors": ("row.distractors", "conservation", "the row shows more than one entity beside those of the task"),
    "goal_moved": ("context.goal_moved", "conservation", "the goal is not that of row 0, nor the task's next one"),
    "off_track": ("context.off_track", "kinematics", "an entity is off the track that its joint keeps it on"),
    "past_stop": ("context.past_stop", "range", "an entity is beyond the stops of its joints"),
    "distractor_changed": ("context.distractor", "conservation", "the distractor is another entity than on row 0"),
    "hand_step": ("step.hand_move", "kinematics", "the hand moves further than it can"),
    "opening_step": ("step.opening_change", "kinematics", "the gripper opens or closes faster than it can"),
    "entity_step": ("step.entity_move", "kinematics", "an entity moves further than it can"),
    "untouched_step": ("step.moved_untouched", "causality", "an object at rest moves with nothing near it"),
    "hanging": ("step.hanging", "causality", "an object in the air, with nothing near it, does not fall"),
    "hand_follow": ("step.hand_follows", "kinematics", "the hand, free, does not go after the commanded one"),
}  # fmt: skip


def _learnt(name: str, unit: str) -> Rule:
    rule_id, law, text = _LAWS[name]
    return Rule(rule_id, law, unit, f"{measures.limits()[name]:g}", text)  # type: ignore[arg-type]  # words of the table


FINITE = Rule("row.finite", "range", "1", "finite", "every number of the row is finite")
MISSING = Rule("row.missing_entity", "conservation", "1", "not all 0", "the row does not show an entity of its task")
ROW_LAWS = (FINITE, MISSING, *(_learnt(name, unit) for name, unit in measures.ROW_UNITS.items()))
CONTEXT_LAWS = tuple(_learnt(name, unit) for name, unit in measures.CONTEXT_UNITS.items())
STEP_LAWS = tuple(_learnt(name, unit) for name, unit in measures.STEP_UNITS.items())
SOFT = (
    Rule("row.beyond_recorded", "range", "1", "largest real value", "a number of the row is beyond real data", False),
    Rule("step.beyond_recorded", "kinematics", "1", "largest real value", "a change is beyond real data", False),
    Rule("step.action_range", "range", "1", "-1 to 1", "the action needed no clipping", False),
    Rule("step.over_horizon", "range", "steps", f"{HORIZON}", "no more steps than an episode has", False),
    Rule("step.chain_break", "conservation", "1", "0", "the next observation is the next row", False),
)
RULES: tuple[Rule, ...] = (*ROW_LAWS, *CONTEXT_LAWS, *STEP_LAWS, *SOFT, *RESET_LAWS)
FIRST_CONTEXT = len(ROW_LAWS)
FIRST_STEP = FIRST_CONTEXT + len(CONTEXT_LAWS)
FIRST_RESET = len(RULES) - len(RESET_LAWS)


@dataclass(frozen=True)
class Told:
    """What is known of each rollout of a batch."""

    task: AnyArray  # (N,) "" where there is none
    from_reset: BoolArray  # (N,)
    context: AnyArray  # (N, 91) row 0 of the episode, or the first row that is known
    has_context: BoolArray  # (N,) it is row 0


def _told(rollouts: Rollouts, placements: Sequence[Placement], which: IntArray) -> Told:
    task = np.array([placement.task_released for placement in placements] or [""])[which]
    started = from_reset(rollouts)
    context = rollouts.context_obs[:, :OBS_SIZE].astype(np.float64)
    return Told(task, started, context, started | (rollouts.reset_obs is not None))


def _first(broken: list[BoolArray], offset: int) -> AnyArray:
    """1 + offset + the first that holds, 0 where none does."""
    found = np.zeros(len(broken[0]), np.int16)
    for number in reversed(range(len(broken))):
        found[broken[number]] = 1 + offset + number
    return found


def _over(values: dict[str, FloatArray], units: dict[str, str]) -> tuple[list[BoolArray], BoolArray]:
    """Whether each measure is above its limit, and whether any is above the largest real one. NaN never is."""
    limit, recorded = measures.limits(), measures.limits("recorded")
    with np.errstate(invalid="ignore"):
        beyond = np.logical_or.reduce([values[name] > recorded[name] for name in units])
        return [values[name] > limit[name] for name in units], beyond


def row_rule(obs: AnyArray, context: FloatArray, has_context: BoolArray, task: str) -> tuple[AnyArray, BoolArray]:
    """Number of the first row or context law each row of a task breaks, 0 if none, (R,) int16; beyond real data, (R,).

    Args:
        obs: (R, 91) rows.
        context: (R, 91) row 0 of the episode of each.
        has_context: (R,) it is row 0 itself, not the first row of a cut.
        task: a key of `layout.TASKS`, "" where there is none.
    """
    wide = obs[:, :OBS_SIZE].astype(np.float64)
    mine = simulated_columns(task) if task else np.arange(OBS_SIZE) < FIRST_ENTITY
    finite: BoolArray = np.logical_and.reduce(np.isfinite(wide[:, mine]), axis=1)
    if not task:
        rest = np.zeros(len(wide), bool)
        with np.errstate(invalid="ignore"):
            slack = measures.limits()
            hand, opening = wide[:, HAND], wide[:, OPENING]
            out = np.maximum(HAND_LOW - hand, hand - HAND_HIGH).max(axis=1) > slack["hand_out"]
            wrong = np.maximum(measures.OPENING_SHUT - opening, opening - 1) > slack["opening_out"]
        return _first([~finite, rest, out, wrong], 0), rest
    usable = np.where(finite[:, None], wide, 0)  # (R, 91)
    missing = np.zeros(len(usable), bool)
    for entity in TASKS[task].entities:
        missing |= ~np.logical_or.reduce(usable[:, block(entity)] != 0, axis=1)
    sound = finite & ~missing
    with np.errstate(invalid="ignore", over="ignore"):
        of_row, odd = _over(measures.of_rows(task, usable), measures.ROW_UNITS)
        whole: BoolArray = np.logical_and.reduce(np.isfinite(context[:, mine]), axis=1)
        base = np.where(whole[:, None], context, usable)
        found = measures.of_context(task, usable, base, has_context & whole)
        of_context, odd_context = _over(found, measures.CONTEXT_UNITS)
    return _first([~finite, missing, *of_row, *of_context], 0), sound & (odd | odd_context)


def _commands(rollouts: Rollouts, who: IntArray, told: Told, task: str) -> tuple[FloatArray, FloatArray]:
    """The commanded hand before and after each action of some rollouts, (m, 3) each; NaN where not known."""
    length = rollouts.length[who]
    offsets = np.concatenate([[0], np.cumsum(length)]).astype(np.int64)
    rows = offsets + np.arange(len(who) + 1)
    at = np.arange(offsets[-1]) + np.repeat(rollouts.offsets[:-1][who] - offsets[:-1], length)
    action = np.nan_to_num(rollouts.action[at].astype(np.float64), posinf=0, neginf=0)
    start = np.tile(np.array(TASKS[task].hand_start_m), (len(who), 1))
    start[~told.from_reset[who]] = np.nan
    if (
        rollouts.hidden is not None and rollouts.hidden.shape[1] >= CARRIED.stop
    ):  # a cut that carries its commanded hand
        carried = rollouts.hidden[who, CARRIED.stop - 3 : CARRIED.stop]
        start = np.where(np.isnan(start), carried, start)
    path = measures.commanded_hands(rows, offsets, start, action, task)
    here = np.arange(offsets[-1]) + np.repeat(np.arange(len(who)), length)
    return path[here], path[here + 1]


def _step_rule(
    rollouts: Rollouts, at: IntArray, sound: BoolArray, command: FloatArray, after: FloatArray, task: str
) -> tuple[AnyArray, BoolArray]:
    """Number of the first step law each of some transitions breaks, and whether it is beyond real data, (m,) each."""

    def back(steps: int) -> FloatArray:
        row = np.maximum(rollouts.row[at] - steps, 0)
        known = (rollouts.step[at] >= steps) & sound[row]
        for step in range(1, steps + 1):  # the row did not follow from the one before it
            known &= ~np.isin(at - step, rollouts.break_at)
        rows = rollouts.obs[row, :OBS_SIZE].astype(np.float64)
        rows[~known] = np.nan
        return rows

    start, end = (
        rows[:, :OBS_SIZE].astype(np.float64) for rows in (rollouts.obs[rollouts.row[at]], rollouts.end_of(at))
    )
    with np.errstate(invalid="ignore", over="ignore"):
        values = measures.of_steps(task, start, end, back(1), back(2), command, after)
    broken, odd = _over(values, measures.STEP_UNITS)
    return _first(broken, FIRST_STEP), odd


def judge(
    rollouts: Rollouts, placements: Sequence[Placement], which: IntArray
) -> tuple[AnyArray, dict[str, BoolArray]]:
    """Number of the first hard rule each transition breaks, -1 without an end row, (M,) int16; soft rules, (M,).

    Args:
        rollouts: the recording.
        placements: the tasks that occur, whose entities the rules read.
        which: (N,) index into `placements`.
    """
    told, count = _told(rollouts, placements, which), rollouts.n_transitions
    rule, odd, odd_step = np.zeros(count, np.int16), np.zeros(count, bool), np.zeros(count, bool)
    of_row = np.zeros(len(rollouts.obs), np.int16)
    owner = np.repeat(np.arange(rollouts.n_rollouts), np.diff(rollouts.row_offsets))
    for task in np.unique(told.task) if len(told.task) else ():
        mine = told.task == task
        rows = np.flatnonzero(mine[owner])
        of_row[rows], odd_row = row_rule(
            rollouts.obs[rows], told.context[owner[rows]], told.has_context[owner[rows]], str(task)
        )
        unusual = np.zeros(len(rollouts.obs) + 1, bool)
        unusual[rows] = odd_row
        at = np.flatnonzero(mine[rollouts.rollout])
        following = np.minimum(rollouts.row[at] + 1, max(len(rollouts.obs) - 1, 0))
        rule[at], odd[at] = of_row[following], unusual[following]
        other = np.flatnonzero(mine[rollouts.rollout[rollouts.break_at]])
        if rollouts.break_obs is not None and len(other):
            whose = rollouts.rollout[rollouts.break_at[other]]
            rule[rollouts.break_at[other]], odd[rollouts.break_at[other]] = row_rule(
                rollouts.break_obs[other], told.context[whose], told.has_context[whose], str(task)
            )
        applies = (rule[at] == 0) & (of_row[rollouts.row[at]] == 0) & rollouts.has_end[at]
        if task and applies.any():
            command, after = _commands(rollouts, np.flatnonzero(mine), told, str(task))
            tested = at[applies]
            rule[tested], odd_step[tested] = _step_rule(
                rollouts, tested, of_row == 0, command[applies], after[applies], str(task)
            )
    rule[~rollouts.has_end] = -1
    with np.errstate(invalid="ignore"):
        clipped: BoolArray = np.logical_or.reduce(np.abs(rollouts.action) > 1, axis=1)
    return rule, {
        "row.beyond_recorded": odd & rollouts.has_end,
        "step.beyond_recorded": odd_step,
        "step.action_range": clipped,
        "step.over_horizon": rollouts.step + rollouts.source_step[rollouts.rollout] >= HORIZON,
        "step.chain_break": np.isin(np.arange(count), rollouts.break_at),
    }


def reset_rule(rollouts: Rollouts, placements: Sequence[Placement], which: IntArray) -> AnyArray:
    """Number of the first row-0 law each rollout breaks, 0 if none, (N,) int16.

    -1 where it starts at no reset, and where no task says what an episode starts with.
    """
    told = _told(rollouts, placements, which)
    found = np.full(rollouts.n_rollouts, -1, np.int16)
    applies = told.from_reset & (rollouts.length + rollouts.has_final > 0) & (told.task != "")
    for task in np.unique(told.task[applies]):
        who = np.flatnonzero(applies & (told.task == task))
        first = rollouts.obs[rollouts.first_row[who], :OBS_SIZE].astype(np.float64)
        found[who] = _first(broken_start(str(task), first), FIRST_RESET)
    return found
