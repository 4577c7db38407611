"""What a filtering kept and dropped, in numbers that add up."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from qualcheck.filters.decide import Decision
from qualcheck.filters.reasons import LABELS
from qualcheck.types import UNDECIDED, FloatArray, IntArray


def summary(decision: Decision, gc_replayed: FloatArray | None) -> dict[str, Any]:
    """Counts of rollouts and transitions, kept and dropped by reason, and how the kept ones fare in replay.

    Args:
        decision: what was kept.
        gc_replayed: (P,) goal of each kept item when replayed; None: all sub-goals in the piece's own replay.
    """
    if gc_replayed is None:
        share = decision.scores["consistency_replayed"]
        gc_replayed = np.where(np.isnan(share), np.nan, share >= 1)
    low, high = UNDECIDED
    return {
        "rollouts": _counts(decision.rollout_reason),
        "transitions": _counts(decision.transition_reason),
        "pieces": len(decision.pieces),
        "kept_replay": {
            "reaches_goal": int((gc_replayed > high).sum()),
            "fails": int((gc_replayed < low).sum()),
            "undecided": int(((gc_replayed >= low) & (gc_replayed <= high)).sum()),
            "unverifiable": int(np.isnan(gc_replayed).sum()),
        },
    }


def _counts(reason: IntArray) -> dict[str, Any]:
    count = np.bincount(reason, minlength=len(LABELS)).tolist()
    dropped = {label: n for label, n in zip(LABELS[1:], count[1:], strict=True) if n}
    return {"all": len(reason), "kept": count[0], "dropped": dropped}


def summary_lines(report: Mapping[str, Any], decision: Decision) -> list[str]:
    """The same for people, one finding a line."""
    lines = []
    for what in ("rollouts", "transitions"):
        counts = report[what]
        dropped = ", ".join(f"{n} {reason}" for reason, n in counts["dropped"].items()) or "none"
        lines.append(f"kept {counts['kept']} of {counts['all']} {what}; dropped: {dropped}")
    replay = report["kept_replay"]
    others = [f"{replay[name]} {name}" for name in ("undecided", "unverifiable") if replay[name]]
    lines.append(
        ", ".join([f"of {report['pieces']} kept {_pieces(report)}, {replay['fails']} fail the goal in replay", *others])
    )
    if any(cutoff.column == "correctness" for cutoff in decision.cutoffs.values()):
        lines.append("the best share is ranked by correctness where there is no scaled error; ties are kept")
    return lines


def _pieces(report: Mapping[str, Any]) -> str:
    return "rollouts" if report["parameters"]["mode"] == "rollouts" else "pieces"
