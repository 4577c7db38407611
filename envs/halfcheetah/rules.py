"""Laws a HalfCheetah recording must keep, without simulating it.

Limits come from real data with a margin (`limits.json`), except what a reset draws. Out of a row that breaks a row
law, step laws are not tested. The soft rules only count.
"""

from __future__ import annotations

import numpy as np

from qualcheck.envs.halfcheetah import measures
from qualcheck.envs.halfcheetah.layout import (
    BENCHMARK_SIZE,
    HORIZON,
    PITCH,
    PITCH_BOUND_RAD,
    POSITIONS,
    STATE_SIZE,
    VELOCITIES,
    from_reset,
)
from qualcheck.envs.halfcheetah.reset import POSITION_NOISE, VELOCITY_NOISE
from qualcheck.spec import Rule
from qualcheck.types import AnyArray, BoolArray, FloatArray, Rollouts

RULES_VERSION = "1"
ROUNDING = 1e-3  # of a stored row against the sharp edge of what a reset draws
RESET_SIGMAS = 6  # one reset in fifty million draws a velocity beyond

_LAWS = {
    "height_low": ("row.height_low", "range", "the torso is below the ground"),
    "height_high": ("row.height_high", "range", "the torso is higher than it can jump"),
    "joint_overshoot": ("row.joint_range", "range", "a joint is bent far beyond its limits, which give way a little"),
    "x_speed": ("row.x_speed", "range", "the body runs faster than it can"),
    "z_speed": ("row.z_speed", "range", "the body rises or falls faster than it can"),
    "pitch_rate": ("row.pitch_rate", "range", "the body tumbles faster than it can"),
    "joint_rate": ("row.joint_rate", "range", "a joint turns faster than it can"),
    "displacement": ("row.displacement", "range", "the body moves further in a step than it can"),
    "height_residual": ("step.height_kinematics", "kinematics", "the height does not follow from the velocities"),
    "pitch_residual": ("step.pitch_kinematics", "kinematics", "the pitch does not follow from the velocities"),
    "joint_residual": ("step.joint_kinematics", "kinematics", "a joint angle does not follow from its velocities"),
    "displacement_residual": ("step.displacement_kinematics", "kinematics",
                              "the displacement does not follow from the velocities"),
    "x_speed_change": ("step.x_speed_change", "kinematics", "the forward velocity changes faster than forces allow"),
    "z_speed_change": ("step.z_speed_change", "kinematics", "the vertical velocity changes faster than forces allow"),
    "pitch_rate_change": ("step.pitch_rate_change", "kinematics", "the pitch rate changes faster than forces allow"),
    "joint_rate_change": ("step.joint_rate_change", "kinematics", "a joint rate changes faster than forces allow"),
}  # fmt: skip


def _learnt(name: str, unit: str) -> Rule:
    rule_id, law, text = _LAWS[name]
    return Rule(rule_id, law, unit, f"{measures.limits()[name]:g}", text)  # type: ignore[arg-type]  # words of the table


FINITE = Rule("row.finite", "range", "1", "finite", "every number of the row is finite")
PITCH_BOUND = Rule("row.pitch", "range", "rad", f"{PITCH_BOUND_RAD:g}", "the pitch is not wound up endlessly")
ROW_LAWS = (FINITE, PITCH_BOUND, *(_learnt(name, unit) for name, unit in measures.ROW_UNITS.items()))
STEP_LAWS = tuple(_learnt(name, unit) for name, unit in measures.STEP_UNITS.items())
SOFT = (
    Rule("row.beyond_recorded", "range", "1", "largest real value", "a number of the row is beyond real data", False),
    Rule("step.beyond_recorded", "kinematics", "1", "largest real value", "a change is beyond real data", False),
    Rule("step.action_range", "range", "1", "-1 to 1", "the action needed no clipping", False),
    Rule("step.over_horizon", "range", "steps", f"{HORIZON}", "no more steps than an episode has", False),
    Rule("step.chain_break", "conservation", "1", "0", "the next observation is the next row", False),
)
RESET_LAWS = (
    Rule("row0.position", "reset", "m, rad", f"{POSITION_NOISE:g}", "a position is off the rest pose by more"),
    Rule(
        "row0.velocity", "reset", "m/s, rad/s", f"{RESET_SIGMAS * VELOCITY_NOISE:g}", "a velocity is beyond a reset's"
    ),
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


def _split(obs: AnyArray) -> tuple[FloatArray, FloatArray | None]:
    """State and displacement of rows, (R, 17) and (R,) float64; no displacement where rows do not show one."""
    wide = obs.astype(np.float64, copy=False)
    return wide[:, wide.shape[1] - STATE_SIZE :], wide[:, 0] if wide.shape[1] == BENCHMARK_SIZE else None


def row_rule(obs: AnyArray) -> tuple[AnyArray, BoolArray]:
    """Number of the first row law each row breaks, 0 if none, (R,) int16; and whether it is beyond real data, (R,).

    Absolute x in the row of a reset is taken for a displacement here, which it is too small to break.
    """
    state, moved = _split(obs)
    limit, recorded = measures.limits(), measures.limits("recorded")
    beyond = np.zeros(len(obs), bool)
    with np.errstate(invalid="ignore", over="ignore"):
        values = measures.of_rows(state, moved)
        finite: BoolArray = np.logical_and.reduce(np.isfinite(obs), axis=1)
        broken: list[BoolArray] = [~finite, np.abs(state[:, PITCH]) > PITCH_BOUND_RAD]
        for name in measures.ROW_UNITS:
            if name in values:
                beyond |= values[name] > recorded[name]
                broken.append(values[name] > limit[name])
    return _first(broken, 0), beyond


def step_rule(start: AnyArray, end: AnyArray) -> tuple[AnyArray, BoolArray]:
    """Number of the first step law each transition breaks, 0 if none, (M,) int16; whether beyond real data, (M,)."""
    before, _ = _split(start)
    after, moved = _split(end)
    limit, recorded = measures.limits(), measures.limits("recorded")
    beyond = np.zeros(len(start), bool)
    nothing = np.zeros(len(start), bool)
    broken = []
    with np.errstate(invalid="ignore", over="ignore"):
        values = measures.of_steps(before, after, moved)
        for name in measures.STEP_UNITS:
            broken.append(values[name] > limit[name] if name in values else nothing)
            beyond |= values[name] > recorded[name] if name in values else nothing
    return _first(broken, FIRST_STEP), beyond


def reset_rule(rollouts: Rollouts) -> AnyArray:
    """Number of the first row-0 law each rollout breaks, 0 if none, -1 where it starts at no reset, (N,) int16."""
    applies = from_reset(rollouts) & (rollouts.length + rollouts.has_final > 0)
    found = np.full(rollouts.n_rollouts, -1, np.int16)
    if not len(rollouts.obs):
        return found
    first = rollouts.obs[rollouts.first_row].astype(np.float64)
    state = first[:, first.shape[1] - STATE_SIZE :]
    near: BoolArray = np.logical_and.reduce(np.abs(state[:, POSITIONS]) <= POSITION_NOISE + ROUNDING, axis=1)
    if first.shape[1] == BENCHMARK_SIZE:
        near &= np.abs(first[:, 0]) <= POSITION_NOISE + ROUNDING
    limit = RESET_SIGMAS * VELOCITY_NOISE + ROUNDING
    slow: BoolArray = np.logical_and.reduce(np.abs(state[:, VELOCITIES]) <= limit, axis=1)
    rule = _first([~near, ~slow], FIRST_RESET)
    found[applies] = rule[applies]
    return found


def judge(rollouts: Rollouts) -> tuple[AnyArray, dict[str, BoolArray]]:
    """Number of the first hard rule each transition breaks, -1 without an end row, (M,) int16; soft rules, (M,)."""
    of_row, odd_row = row_rule(rollouts.obs)  # (R,)
    after = np.minimum(rollouts.row + 1, max(len(rollouts.obs) - 1, 0))
    rule, odd = of_row[after], odd_row[after]
    if rollouts.break_obs is not None and len(rollouts.break_at):
        rule[rollouts.break_at], odd[rollouts.break_at] = row_rule(rollouts.break_obs)
    of_step, odd_step = step_rule(rollouts.start_obs, rollouts.end_obs)
    applies = (rule == 0) & (of_row[rollouts.row] == 0)
    rule[applies] = of_step[applies]
    rule[~rollouts.has_end] = -1
    with np.errstate(invalid="ignore"):
        clipped = np.logical_or.reduce(np.abs(rollouts.action) > 1, axis=1)
    soft = {
        "row.beyond_recorded": odd & rollouts.has_end,
        "step.beyond_recorded": odd_step & rollouts.has_end,
        "step.action_range": clipped,
        "step.over_horizon": rollouts.step + rollouts.source_step[rollouts.rollout] >= HORIZON,
        "step.chain_break": np.isin(np.arange(rollouts.n_transitions), rollouts.break_at),
    }
    return rule, soft
