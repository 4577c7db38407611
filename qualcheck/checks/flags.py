"""Flags of a rollout: what is odd about its records, beside the verdicts."""

from __future__ import annotations

import numpy as np

from qualcheck.checks.batch import Batch
from qualcheck.checks.goals import GoalScores
from qualcheck.types import BoolArray

GOAL_IS_ACTION = "goal_is_the_action"  # imagined and replayed goal are one: the matrix does not apply
DEFECTS = (
    "mask_hole",
    "mask_value",
    "non_finite",
    "chain_break",
    "count_mismatch",
    "terminal_late",
    "goal_changes",
    "empty",
    "bad_action",
)


def measure(batch: Batch, goals: GoalScores, longest: int) -> dict[str, BoolArray]:
    """Flag name -> (N,), but for `reward_shift`, which depends on the reading of the rewards.

    `longest` is the length of the longest rollout of the input, where recordings were cut.
    """
    rollouts = batch.rollouts
    found = {name: values for name, values in rollouts.flags.items() if values.any()}
    judged = ~np.isnan(goals.imagined)
    last = rollouts.offsets[1:] - 1
    some = rollouts.length > 0
    if rollouts.terminal is not None:
        ends = np.zeros(rollouts.n_rollouts, bool)
        ends[some] = rollouts.terminal[last[some]]
        reached = np.zeros(rollouts.n_rollouts, bool)
        reached[some] = (goals.end_intended | goals.end_released)[last[some]]
        missing = ends & judged & ~reached
        steps, horizon = rollouts.source_step + rollouts.length, batch.adapter.spec.horizon
        timed_out = steps >= min(longest, horizon)
        # where no goal can be judged, only the full length of an episode tells a time-out
        found["timeout_as_terminal"] = (missing & timed_out) | (ends & ~judged & (steps >= horizon))
        found["terminal_without_goal"] = missing & ~timed_out
    inner = np.ones(rollouts.n_transitions, bool)
    inner[last[some]] = False
    found["rows_after_success"] = batch.per_rollout_sum(goals.end_intended & inner) > 0
    found["final_row_simulated"] = goals.simulated_final
    found[GOAL_IS_ACTION] = goals.judges_action
    for name in ("timeout_as_terminal", "terminal_without_goal", "rows_after_success"):
        if name in found:
            found[name] = found[name] & ~batch.defective
    found["final_row_simulated"] = found["final_row_simulated"] & ~batch.defective
    return {name: values for name, values in found.items() if values.any()}


def as_lists(flags: dict[str, BoolArray], size: int) -> list[list[str]]:
    """The names that hold for each rollout, sorted, (N,)."""
    lists: list[list[str]] = [[] for _ in range(size)]
    for name in sorted(flags):
        for rollout in np.flatnonzero(flags[name]):
            lists[rollout].append(name)
    return lists
