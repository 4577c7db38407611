"""Whether the last action of each rollout was executed or fills a place, decided once per file."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from qualcheck.errors import DataError
from qualcheck.types import AnyArray

LAST_ACTION_KEY = "qualcheck_last_action"
FEWEST_FOR_FILLER = 20  # rollouts; with fewer, zeros in the last reward say too little

LastAction = Literal["executed", "filler", "none"]


def settle(
    path: Path, option: str, metadata: Mapping[str, Any], n_rollouts: int, last_rewards: AnyArray | None
) -> LastAction:
    """What the last action of a file is that does not show the row after it.

    Args:
        option: the user's "executed" or "filler", or "auto".
        metadata: what the file says, stronger than a guess.
        last_rewards: reward of the last valid row of each rollout that has one; None where there are no rewards.

    Raises:
        DataError: the file says something else than executed or filler.
    """
    if option != "auto":
        return "filler" if option == "filler" else "executed"
    said = metadata.get(LAST_ACTION_KEY)
    if said is not None:
        if not isinstance(said, str) or said not in ("executed", "filler"):
            raise DataError(
                f"{path}: {LAST_ACTION_KEY!r} has an unknown value; expected 'executed' or 'filler'. Filter again"
            )
        return "filler" if said == "filler" else "executed"
    if last_rewards is None or n_rollouts < FEWEST_FOR_FILLER:
        return "executed"
    return "filler" if len(last_rewards) and not last_rewards.any() else "executed"


def finding(last_action: LastAction, option: str, metadata: Mapping[str, Any]) -> list[str]:
    """One line for the user where the file does not show every end row."""
    if last_action == "filler":
        given = option == "filler" or LAST_ACTION_KEY in metadata
        why = "by option or by the file" if given else "its reward is 0 in every rollout"
        return [f"no next_observations; the last row of each rollout is a final state, its action a filler ({why})"]
    if last_action == "executed":
        return ["no next_observations; the last action of each rollout counts as executed, its end row is not shown"]
    return []
