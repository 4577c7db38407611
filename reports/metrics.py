"""The rates of one group of rollouts, from counts per rollout. The same code serves a cell and its control row."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from qualcheck.checks.flags import GOAL_IS_ACTION
from qualcheck.reports import rates
from qualcheck.reports.pool import Pool
from qualcheck.types import AnyArray, IntArray

REWARD_TOLERANCE = 1e-5  # float32 storage of rewards of size 1 (the tables hold no reward to be relative to)
LADDER = (0.1, 0.25, 0.5, 1.0)  # standard deviations of the real one-step change
CONTROL_COLUMNS = (
    "length", "cluster", "gc_imagined", "gc_replayed", "gc_imagined_released", "gc_replayed_released",
    "tc_pass", "tc_n", "dl_pass", "dl_n",
)  # fmt: skip

Counts = dict[str, AnyArray]  # column -> (N,)
Metrics = dict[str, Any]


def per_rollout(pool: Pool) -> Counts:
    """Numbers of each rollout, its verified and its passing transitions counted per check, (N,) each."""
    score = pool.score
    known = {name: ~np.isnan(values) for name, values in score.items()}
    right, legal = score["tc"] == 1, score["dl"] == 1
    marks = {
        "tc_pass": right,
        "tc_n": known["tc"],
        "strict_pass": score["tc_strict"] == 1,
        "strict_n": known["tc_strict"],
        "dl_pass": legal,
        "dl_n": known["dl"],
        "both": right & legal,
        "right_dl_n": right & known["dl"],
        "legal_tc_n": legal & known["tc"],
        "reward_pass": np.abs(score["reward_error"]) <= REWARD_TOLERANCE,
        "reward_n": known["reward_error"],
    }
    # common noise is right on every rung, as in the verdict itself; where no joint error counts (exact environments,
    # and steps into a row that no simulator takes on, which are wrong however near) the strict verdict does
    noise, exact = score["tc_noise"], score["tc_strict"] == 1
    counted = ~np.isnan(noise)
    marks |= {
        f"ladder_{bar}": known["tc"] & np.where(counted, (noise <= 1) | (score["tc_scaled"] <= bar), exact)
        for bar in LADDER
    }
    counts = {name: np.bincount(pool.rollout[mark], minlength=pool.n_rollouts) for name, mark in marks.items()}
    acted = np.zeros(pool.n_rollouts, bool)
    if GOAL_IS_ACTION in pool.flag.names:
        acted[pool.flag_rollout[pool.flag.index == pool.flag.names.index(GOAL_IS_ACTION)]] = True
    return {**pool.number, **counts, "goal_is_action": acted}


def control_counts(rollouts: Mapping[str, list[Any]]) -> Counts:
    """The compact control table of a manifest as arrays; null becomes NaN."""
    counts: Counts = {name: np.array(rollouts[name], np.float64) for name in CONTROL_COLUMNS if name != "cluster"}
    acted = rollouts.get("goal_is_action", [False] * len(rollouts["length"]))
    counts["goal_is_action"] = np.array(acted, bool)
    # as integers: a hash of 64 bits does not survive float64
    return {**counts, "cluster": np.array(rollouts["cluster"], np.int64), "task": np.array(rollouts["task"], object)}


def pick(counts: Counts, rows: AnyArray) -> Counts:
    return {name: column[rows] for name, column in counts.items()}


def core(counts: Counts) -> Metrics:
    """What a cell and its control both have; None where nothing was verified."""
    imagined, replayed = counts["gc_imagined"], rates.decided(counts["gc_replayed"])
    applies = ~counts["goal_is_action"]
    claims = (imagined == 1) & applies
    length, cluster = counts["length"], counts["cluster"]
    return {
        "n_rollouts": len(length),
        "n_transitions": int(length.sum()),
        "n_clusters": len(np.unique(cluster)),
        "goal_consistency": rates.of_verdicts(imagined),
        "goal_consistency_released": rates.of_verdicts(counts["gc_imagined_released"]),
        "goal_consistency_replayed": rates.of_verdicts(replayed),
        "goal_matrix": goal_matrix(imagined[applies], replayed[applies]),
        "goal_is_action": int((~applies).sum()),
        "fabrication": rates.of_verdicts(1 - replayed[claims]),
        "transition_correctness": rates.of_clusters(counts["tc_pass"], counts["tc_n"], length, cluster),
        "transition_correctness_rollout": whole(counts["tc_pass"], counts["tc_n"], length),
        "dynamics_legality": rates.of_clusters(counts["dl_pass"], counts["dl_n"], length, cluster),
        "dynamics_legality_rollout": whole(counts["dl_pass"], counts["dl_n"], length),
    }


def whole(passes: IntArray, known: IntArray, length: IntArray) -> rates.Share | None:
    """Share of rollouts with every verified transition right; its lower limit asks that all were verified."""
    some = known > 0
    intact = passes == known
    return rates.of_counts(
        int((intact & some).sum()),
        int(some.sum()),
        len(length),
        k_low=int((intact & some & (known == length)).sum()),
        k_high=int(intact.sum()),
    )


def goal_matrix(imagined: AnyArray, replayed: AnyArray) -> dict[str, int]:
    """Rollouts by (imagined, replayed) goal; `unknown` where either has no verdict."""
    yes, no = imagined == 1, imagined == 0
    cells = {
        "genuine": int((yes & (replayed == 1)).sum()),
        "fabricated": int((yes & (replayed == 0)).sum()),
        "hidden": int((no & (replayed == 1)).sum()),
        "failure": int((no & (replayed == 0)).sum()),
    }
    return {**cells, "unknown": len(imagined) - sum(cells.values())}


def further(counts: Counts, exact: bool) -> Metrics:
    """What only a scored cell has."""
    length, cluster = counts["length"], counts["cluster"]
    ladder = {f"{bar:g}": rates.of_clusters(counts[f"ladder_{bar}"], counts["tc_n"], length, cluster) for bar in LADDER}
    return {
        "transition_correctness_strict": rates.of_clusters(counts["strict_pass"], counts["strict_n"], length, cluster),
        "ladder": None if exact or not counts["tc_n"].sum() else ladder,
        "consistency": rates.of_scores(counts["consistency"], cluster),
        "consistency_replayed": rates.of_scores(counts["consistency_replayed"], cluster),
        "row0_legality": rates.of_verdicts(counts["dl_row0"]),
        "reward_consistency": rates.of_clusters(counts["reward_pass"], counts["reward_n"], length, cluster),
        "nesting": {
            "correct_that_are_legal": rates.of_clusters(
                counts["both"], counts["right_dl_n"], counts["tc_pass"], cluster
            ),
            "legal_that_are_correct": rates.of_clusters(
                counts["both"], counts["legal_tc_n"], counts["dl_pass"], cluster
            ),
        },
        "predicates_differ": {
            "imagined": differ(counts["gc_imagined"], counts["gc_imagined_released"]),
            "replayed": differ(counts["gc_replayed"], counts["gc_replayed_released"]),
        },
    }


def differ(intended: AnyArray, released: AnyArray) -> int:
    """Rollouts with both verdicts, on which these disagree."""
    return int(((intended != released) & ~np.isnan(intended) & ~np.isnan(released)).sum())
