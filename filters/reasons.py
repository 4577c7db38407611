"""Why a filter drops a rollout, a piece or a transition. One code each, the first that applies."""

from __future__ import annotations

from enum import IntEnum


class Reason(IntEnum):
    """Codes as stored in memory; `label` is what files and people see."""

    KEPT = 0
    EMPTY = 1  # no transition at all
    UNVERIFIABLE_COVERAGE = 2
    LOW_COVERAGE = 3
    UNVERIFIABLE_CORRECTNESS = 4
    LOW_CORRECTNESS = 5
    UNVERIFIABLE_LEGALITY = 6
    LOW_LEGALITY = 7
    UNVERIFIABLE_CONSISTENCY = 8
    LOW_CONSISTENCY = 9
    UNVERIFIABLE_CONSISTENCY_REPLAYED = 10
    LOW_CONSISTENCY_REPLAYED = 11
    UNVERIFIABLE_SCALED_ERROR = 12
    HIGH_SCALED_ERROR = 13
    UNVERIFIABLE_TRIVIAL = 14
    TRIVIAL = 15
    UNVERIFIABLE_RANK = 16
    NOT_IN_TOP_FRACTION = 17
    INCORRECT_TRANSITION = 18
    ILLEGAL_TRANSITION = 19
    UNVERIFIABLE_TRANSITION = 20
    AFTER_FIRST_FAULT = 21  # passes, but the prefix ended before it
    OTHER_INPUT = 22  # belongs to an input that the caller did not select

    @property
    def label(self) -> str:
        """Text for files: "" where kept."""
        return "" if self is Reason.KEPT else self.name.lower()


LABELS: tuple[str, ...] = tuple(reason.label for reason in Reason)  # index = code
