"""Laws a CLEVR-Robot recording must keep, without simulating it.

Limits are the largest real values with a margin (`learn.py` makes them again). Out of a row that breaks a row law, step
laws are not tested; the first row of an episode may lie in the walls, as a reset draws it. The soft rules only count.
"""

from __future__ import annotations

import numpy as np

from qualcheck.envs.clevr import measures, reset
from qualcheck.envs.clevr.layout import HORIZON, OBS_SIZE, PAIRS, actions_of, from_reset, usable_actions, xy
from qualcheck.spec import Rule
from qualcheck.types import AnyArray, BoolArray, FloatArray, Rollouts

RULES_VERSION = "1"
ROUNDING_M = 1e-3  # of a stored row against the sharp edge of what a reset draws

# name of the measure -> limit, and the largest (smallest) real value behind it: 100,000 transitions of `learn.py` in
# both simulator families, even-numbered rollouts of the golden files, KALM's CLEVR-Robot data
LIMITS: dict[str, tuple[float, float]] = {
    "depth": (0.010, 0.0059),
    "nearest": (0.001, 0.011),  # a ball balances on another: only the very same place is impossible
    "unheld": (0.150, 0.115),
    "pushed": (0.500, 0.454),
    "other": (0.380, 0.327),
    "other_walled": (0.480, 0.428),
    "back": (0.060, 0.034),
    "climb": (0.225, 0.218),
    "passing": (0.170, 0.206),
    "alone": (0.220, 0.164),
    "turn": (60.0, 41.0),
    "follow": (0.004, 0.012),
}
SMALLEST = ("nearest", "passing", "follow")  # measures that must not be below their limit
SOFT_LIMITS = {"nearest": 0.25, "pushed": 0.33, "alone": 0.06, "turn": 30.0}  # random play beyond them is rare

FINITE = Rule("row.finite", "range", "1", "finite", "every number of the row is finite")
_OF_MEASURE = {
    "depth": ("row.outside_walls", "range", "a ball is in a wall, or beyond"),
    "nearest": ("row.overlap", "contact", "two balls are in the same place"),
    "unheld": ("row.unheld", "contact", "a ball lies on another where neither a third ball nor a wall holds it"),
    "pushed": ("step.pushed_too_far", "kinematics", "the pushed ball moves further than a push can move it"),
    "other": ("step.too_fast", "kinematics", "a ball moves further than a hit can move it"),
    "other_walled": ("step.thrown_too_far", "kinematics", "a ball moves further than a wall can throw it"),
    "back": ("step.pushed_backwards", "causality", "the pushed ball moves against its push"),
    "climb": ("step.climbed", "contact", "two balls overlap more than one could have climbed in the step"),
    "passing": ("step.passed_through", "contact", "two balls change places through each other"),
    "alone": ("step.moved_without_cause", "causality", "a ball that nothing touches moves further than it can coast"),
    "turn": ("step.wrong_direction", "causality", "the pushed ball moves aside with its way free"),
    "follow": ("step.pushed_stays", "causality", "the pushed ball stays where it is with its way free"),
}  # fmt: skip
ROW_MEASURES = ("depth", "nearest", "unheld")
STEP_MEASURES = tuple(name for name in _OF_MEASURE if name not in ROW_MEASURES)


def _law(name: str) -> Rule:
    rule_id, law, text = _OF_MEASURE[name]
    unit = "deg" if name == "turn" else "m"
    return Rule(rule_id, law, unit, f"{LIMITS[name][0]:g}", text)  # type: ignore[arg-type]  # words of the table


ROW_LAWS = (FINITE, *map(_law, ROW_MEASURES))
STEP_LAWS = tuple(map(_law, STEP_MEASURES))
SOFT = (
    Rule("row.tight", "contact", "m", f"{SOFT_LIMITS['nearest']:g}", "a ball has climbed another", False),
    Rule("step.pushed_far", "kinematics", "m", f"{SOFT_LIMITS['pushed']:g}", "the pushed ball moves far", False),
    Rule("step.moved_alone", "causality", "m", f"{SOFT_LIMITS['alone']:g}", "a ball nothing touches moves", False),
    Rule("step.turned", "causality", "deg", f"{SOFT_LIMITS['turn']:g}", "the pushed ball turns off its push", False),
    Rule("step.bad_action", "range", "1", "0 to 39", "the action is a whole number in its range", False),
    Rule("step.over_horizon", "range", "steps", f"{HORIZON}", "no more steps than an episode has", False),
    Rule("step.chain_break", "conservation", "1", "0", "the next observation is the next row", False),
)
RESET_LAWS = (
    Rule("row0.box", "reset", "m", "x -0.5 to 0.5, y -0.3 to 0.5", "a ball lies where no reset puts one"),
    Rule("row0.spacing", "reset", "m", f"{reset.SPACING_M:g}", "two balls lie nearer than a reset puts them"),
    Rule("row0.aligned", "reset", "m", f"{reset.ALIGNED_M:g}", "two balls are nearly in line along an axis"),
)
RULES: tuple[Rule, ...] = (*ROW_LAWS, *STEP_LAWS, *SOFT, *RESET_LAWS)
FIRST_STEP = len(ROW_LAWS)
FIRST_RESET = len(RULES) - len(RESET_LAWS)


def breaks(name: str, value: FloatArray, limit: float | None = None) -> BoolArray:
    """Whether values of a measure are beyond its limit; NaN never is."""
    bound = np.full(value.shape, LIMITS[name][0] if limit is None else limit)
    beyond: BoolArray = np.less(value, bound) if name in SMALLEST else np.greater(value, bound)
    return beyond


def _first(broken: list[BoolArray], offset: int) -> AnyArray:
    """1 + offset + the first that holds, 0 where none does."""
    found = np.zeros(len(broken[0]), np.int16)
    for number in reversed(range(len(broken))):
        found[broken[number]] = 1 + offset + number
    return found


def _finite(obs: AnyArray) -> BoolArray:
    finite: BoolArray = np.logical_and.reduce(np.isfinite(obs.astype(np.float64)), axis=1)
    return finite


def _centres(obs: AnyArray) -> tuple[FloatArray, BoolArray]:
    """Centres, (R, 5, 2), with balls far from each other where a row is not finite, and which rows are."""
    finite = _finite(obs)
    with np.errstate(over="ignore"):
        centre = np.where(finite[:, None, None], xy(obs), np.arange(OBS_SIZE).reshape(1, -1, 2))
    return np.clip(centre, -1e6, 1e6), finite


def row_rule(obs: AnyArray) -> tuple[AnyArray, BoolArray]:
    """Number of the first row law each row breaks, 0 if none, (R,) int16; and whether balls are tight, (R,)."""
    centre, finite = _centres(obs)
    values = measures.of_rows(centre)
    rule = _first([~finite, *(breaks(name, values[name]) for name in ROW_MEASURES)], 0)
    return rule, finite & breaks("nearest", values["nearest"], SOFT_LIMITS["nearest"])


def step_rule(start: AnyArray, end: AnyArray, action: AnyArray) -> tuple[AnyArray, dict[str, BoolArray]]:
    """Number of the first step law each transition breaks, 0 if none, (M,) int16; soft rules by id, (M,) each."""
    before, _ = _centres(start)
    after, _ = _centres(end)
    values = measures.of_steps(before, after, actions_of(action))
    soft = {
        "step.pushed_far": breaks("pushed", values["pushed"], SOFT_LIMITS["pushed"]),
        "step.moved_alone": breaks("alone", values["alone"], SOFT_LIMITS["alone"]),
        "step.turned": breaks("turn", values["turn"], SOFT_LIMITS["turn"]),
    }
    return _first([breaks(name, values[name]) for name in STEP_MEASURES], FIRST_STEP), soft


def reset_rule(rollouts: Rollouts) -> AnyArray:
    """Number of the first row-0 law each rollout breaks, 0 if none, -1 where it starts at no reset, (N,) int16."""
    applies = from_reset(rollouts) & (rollouts.length + rollouts.has_final > 0)
    found = np.full(rollouts.n_rollouts, -1, np.int16)
    if not len(rollouts.obs):
        return found
    centre, finite = _centres(rollouts.obs[rollouts.first_row])
    inside = (centre >= reset.LOW_M - ROUNDING_M) & (centre <= reset.HIGH_M + ROUNDING_M)
    apart = np.abs(centre[:, PAIRS[0]] - centre[:, PAIRS[1]])  # (N, 10, 2)
    close: BoolArray = measures.pair_distance(centre) < reset.SPACING_M - ROUNDING_M
    aligned = (apart > ROUNDING_M) & (apart < reset.ALIGNED_M - ROUNDING_M)
    outside: BoolArray = ~finite | ~np.logical_and.reduce(inside, axis=(1, 2))
    broken = [outside, np.logical_or.reduce(close, axis=1), np.logical_or.reduce(aligned, axis=(1, 2))]
    found[applies] = _first(broken, FIRST_RESET)[applies]
    return found


def judge(rollouts: Rollouts) -> tuple[AnyArray, dict[str, BoolArray]]:
    """Number of the first hard rule each transition breaks, -1 without an end row, (M,) int16; soft rules, (M,)."""
    of_row, tight = row_rule(rollouts.obs)  # (R,)
    after = np.minimum(rollouts.row + 1, max(len(rollouts.obs) - 1, 0))
    rule, packed = of_row[after], tight[after]
    if rollouts.break_obs is not None and len(rollouts.break_at):
        rule[rollouts.break_at], packed[rollouts.break_at] = row_rule(rollouts.break_obs)
    start, shown = rollouts.start_obs, rollouts.has_end
    of_step, soft = step_rule(start, rollouts.end_obs, rollouts.action)
    sound = of_row[rollouts.row] == 0
    first = (rollouts.step == 0) & from_reset(rollouts)[rollouts.rollout]
    sound[first] = _lies_in_box(start[first])
    rule = np.where((rule == 0) & sound, of_step, rule).astype(np.int16)
    applies = shown & sound & (_finite(rollouts.end_obs))
    rule[~shown] = -1
    return rule, {
        "row.tight": packed & shown,
        **{name: flag & applies for name, flag in soft.items()},
        "step.bad_action": ~usable_actions(rollouts.action),
        "step.over_horizon": rollouts.step + rollouts.source_step[rollouts.rollout] >= HORIZON,
        "step.chain_break": np.isin(np.arange(rollouts.n_transitions), rollouts.break_at),
    }


def _lies_in_box(obs: AnyArray) -> BoolArray:
    """Rows that a reset, or the walls, allow and in which no two balls are in the same place, (R, 10) -> (R,)."""
    centre, finite = _centres(obs)
    values = measures.of_rows(centre)
    low = np.minimum(reset.LOW_M - ROUNDING_M, measures.LOW_M - LIMITS["depth"][0])
    high = np.maximum(reset.HIGH_M + ROUNDING_M, measures.HIGH_M + LIMITS["depth"][0])
    inside = ((centre >= low) & (centre <= high)).all(axis=(1, 2))
    return finite & inside & ~breaks("nearest", values["nearest"]) & ~breaks("unheld", values["unheld"])
