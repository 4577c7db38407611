"""Laws a LIBERO recording must keep, without simulating it.

Limits come from real data with a margin (`limits.json`). Out of a row that breaks a row law, step laws are not tested.
Where the hand is and how it is turned follows from the joints, within what rounding to two decimals moves it; q and -q
are one orientation everywhere. The soft rules only count.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from qualcheck.envs.libero import measures
from qualcheck.envs.libero.columns import ACTION_SIZE, HORIZON, finite_rows, from_reset
from qualcheck.envs.libero.reset import RESET_LAWS, broken_start
from qualcheck.spec import Rule
from qualcheck.types import AnyArray, BoolArray, IntArray, Placement, Rollouts

RULES_VERSION = "1"

_LAWS = {
    "joint_overshoot": ("row.joint_range", "range", "a joint is beyond its limits"),
    "finger_overshoot": ("row.finger_range", "range", "a finger is beyond its travel"),
    "quaternion_length": ("row.unit_quaternion", "range", "a quaternion is not of length 1"),
    "hand_position": ("row.hand_position", "kinematics", "the hand is not where the joints put it"),
    "hand_turn": ("row.hand_turn", "kinematics", "the hand is not turned as the joints turn it"),
    "hand_low": ("row.hand_in_floor", "contact", "the hand is below the floor"),
    "object_far": ("row.object_far", "range", "an object is further from the robot than anything could bring it"),
    "floor_depth": ("row.floor_penetration", "contact", "an object is in the floor"),
    "overlap": ("row.object_penetration", "contact", "two objects are in each other"),
    "joint_change": ("step.joint_change", "kinematics", "a joint turns further than it can"),
    "hand_change": ("step.hand_change", "kinematics", "the hand moves further than it can"),
    "hand_turn_change": ("step.hand_turn", "kinematics", "the hand turns further than it can"),
    "finger_change": ("step.finger_change", "kinematics", "a finger moves further than it can"),
    "object_change": ("step.object_change", "kinematics", "an object moves further, not counting its fall, than a hand "
                      "can move it"),
    "object_fall": ("step.object_fall", "kinematics", "an object falls faster than from the highest hand"),
    "object_turn": ("step.object_turn", "kinematics", "an object turns further than it can"),
    "untouched_change": ("step.moved_untouched", "causality", "an object at rest moves with nothing near it"),
    "untouched_turn": ("step.turned_untouched", "causality", "an object at rest turns with nothing near it"),
    "hanging": ("step.hanging", "causality", "an object hangs in the air with nothing near it"),
}  # fmt: skip


def _learnt(name: str, unit: str) -> Rule:
    rule_id, law, text = _LAWS[name]
    return Rule(rule_id, law, unit, f"{measures.limits()[name]:g}", text)  # type: ignore[arg-type]  # words of the table


FINITE = Rule("row.finite", "range", "1", "finite", "every number of the row is finite")
ROW_LAWS = (FINITE, *(_learnt(name, unit) for name, unit in measures.ROW_UNITS.items()))
STEP_LAWS = tuple(_learnt(name, unit) for name, unit in measures.STEP_UNITS.items())
SOFT = (
    Rule("row.beyond_recorded", "range", "1", "largest real value", "a number of the row is beyond real data", False),
    Rule("step.beyond_recorded", "kinematics", "1", "largest real value", "a change is beyond real data", False),
    Rule("step.action_range", "range", "1", "-1 to 1", "the action needed no clipping", False),
    Rule("step.over_horizon", "range", "steps", f"{HORIZON}", "no more steps than an episode has", False),
    Rule("step.chain_break", "conservation", "1", "0", "the next observation is the next row", False),
)
RULES: tuple[Rule, ...] = (*ROW_LAWS, *STEP_LAWS, *SOFT, *RESET_LAWS)
FIRST_STEP = len(ROW_LAWS)
FIRST_RESET = len(RULES) - len(RESET_LAWS)


def _first(broken: list[BoolArray], offset: int) -> AnyArray:
    """1 + offset + the first that holds, 0 where none does."""
    found = np.zeros(len(broken[0]), np.int16)
    for number in reversed(range(len(broken))):
        found[broken[number]] = 1 + offset + number
    return found


def broken_rows(obs: AnyArray) -> tuple[list[BoolArray], BoolArray]:
    """Whether each row breaks each row law, (R,) a law; and whether a number of it is beyond real data, (R,)."""
    finite = finite_rows(obs)
    limit, recorded = measures.limits(), measures.limits("recorded")
    broken, beyond = [~finite], np.zeros(len(obs), bool)
    with np.errstate(invalid="ignore", over="ignore"):
        values = measures.of_rows(np.where(finite[:, None], obs, 0))
        for name in measures.ROW_UNITS:
            broken.append(finite & (values[name] > limit[name]))
            beyond |= finite & (values[name] > recorded[name])
    return broken, beyond


def row_rule(obs: AnyArray) -> tuple[AnyArray, BoolArray]:
    """Number of the first row law each row breaks, 0 if none, (R,) int16; and whether it is beyond real data, (R,)."""
    broken, beyond = broken_rows(obs)
    return _first(broken, 0), beyond


def step_rule(start: AnyArray, end: AnyArray, before: AnyArray) -> tuple[AnyArray, BoolArray]:
    """Number of the first step law each transition breaks, 0 if none, (M,) int16; whether beyond real data, (M,).

    Args:
        start, end: (M, 44) finite rows.
        before: (M, 44) row before the start row, NaN where there is none.
    """
    limit, recorded = measures.limits(), measures.limits("recorded")
    beyond, broken = np.zeros(len(start), bool), []
    with np.errstate(invalid="ignore", over="ignore"):
        values = measures.of_steps(start, end, before)
        for name in measures.STEP_UNITS:
            broken.append(values[name] > limit[name])
            beyond |= values[name] > recorded[name]
    return _first(broken, FIRST_STEP), beyond


def reset_rule(rollouts: Rollouts, placements: Sequence[Placement], which: IntArray) -> AnyArray:
    """Number of the first row-0 law each rollout breaks, 0 if none, -1 where it starts at no reset, (N,) int16."""
    applies = from_reset(rollouts) & (rollouts.length + rollouts.has_final > 0)
    found = np.full(rollouts.n_rollouts, -1, np.int16)
    if not len(rollouts.obs):
        return found
    tasks = np.array([placement.task_released for placement in placements] or [""])[which]
    rule = _first(broken_start(rollouts.obs[rollouts.first_row], tasks), FIRST_RESET)
    found[applies] = rule[applies]
    return found


def judge(rollouts: Rollouts) -> tuple[AnyArray, dict[str, BoolArray]]:
    """Number of the first hard rule each transition breaks, -1 without an end row, (M,) int16; soft rules, (M,)."""
    of_row, odd_row = row_rule(rollouts.obs)  # (R,)
    last = max(len(rollouts.obs) - 1, 0)
    after = np.minimum(rollouts.row + 1, last)
    rule, odd = of_row[after], odd_row[after]
    if rollouts.break_obs is not None and len(rollouts.break_at):
        rule[rollouts.break_at], odd[rollouts.break_at] = row_rule(rollouts.break_obs)
    odd_step = np.zeros(rollouts.n_transitions, bool)
    applies = np.flatnonzero((rule == 0) & (of_row[rollouts.row] == 0) & rollouts.has_end)
    earlier = np.maximum(rollouts.row[applies] - 1, 0)
    told = (rollouts.step[applies] > 0) & (of_row[earlier] == 0)
    told &= ~np.isin(applies - 1, rollouts.break_at)  # the start row did not follow from the row before it
    before = np.where(told[:, None], rollouts.obs[earlier].astype(np.float64), np.nan)
    rule[applies], odd_step[applies] = step_rule(rollouts.start_obs[applies], rollouts.end_of(applies), before)
    rule[~rollouts.has_end] = -1
    with np.errstate(invalid="ignore"):
        clipped = np.logical_or.reduce(np.abs(rollouts.action[:, :ACTION_SIZE]) > 1, axis=1)
    soft = {
        "row.beyond_recorded": odd & rollouts.has_end,
        "step.beyond_recorded": odd_step,
        "step.action_range": clipped,
        "step.over_horizon": rollouts.step + rollouts.source_step[rollouts.rollout] >= HORIZON,
        "step.chain_break": np.isin(np.arange(rollouts.n_transitions), rollouts.break_at),
    }
    return rule, soft
