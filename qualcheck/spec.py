"""What an environment declares about itself: the parts of a row, its actions, rules and grades."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Block:
    """A named part of the observation whose error is reported in one unit.

    Blocks of one group share the usual error that theirs are measured in: the poses of objects, most of which lie still
    at any time, have no usual error of their own worth the name.
    """

    name: str
    columns: tuple[int, ...]
    unit: str
    group: str = ""  # "": a group of its own


@dataclass(frozen=True)
class Rule:
    """A named law of the environment. Ids begin `row.`, `context.`, `step.` or `row0.`.

    A hard rule decides dynamics legality; a soft one is only counted.
    """

    id: str
    law: Literal["range", "conservation", "kinematics", "contact", "causality", "reset"]
    unit: str
    limit: str
    text: str
    hard: bool = True


@dataclass(frozen=True)
class Quaternion:
    """Four columns that are one unit quaternion, with the place of its scalar."""

    columns: tuple[int, int, int, int]
    scalar: Literal["first", "last"]


@dataclass(frozen=True)
class ActionSpec:
    kind: Literal["discrete", "box"]
    size: int  # number of actions, or action columns
    low: float = 0.0
    high: float = 0.0


@dataclass(frozen=True)
class EnvSpec:
    id: str
    version: str
    blocks: tuple[Block, ...]
    obs_size: int  # columns of a row
    code_size: int  # columns of the instruction code that may follow them
    action: ActionSpec
    step_seconds: float | None
    horizon: int
    judging_grade: str  # "exact" or "scaled:S"
    restores: Literal["exact", "filtered", "partial"]
    codes: tuple[str, ...]  # index 0 is ""; why a row or transition cannot be simulated
    columns: tuple[str, ...]  # a name for each of the obs_size columns
    floor_horizons: tuple[int, ...] = ()  # steps for which floors ship, ascending; none: the horizon alone
    restart_margin: float | None = None  # chaotic environments: replays that end nearer than this are restarted
    hidden: tuple[str, ...] = ()  # a name for each number of the hidden state that a cut carries
    # what real errors depend on, each with tolerances of its own; in those that are `unsettled` the hidden state before
    # the action is not known, and the verdict at the noise floor stays open between its tolerance and that of the first
    situations: tuple[str, ...] = ("settled",)
    unsettled: tuple[str, ...] = ("unsettled",)
    quaternions: tuple[Quaternion, ...] = ()
    thresholds: tuple[str, ...] = ()  # what the success thresholds measure, in words; none: goals have no threshold
    unrewarded: tuple[str, ...] = ()  # tasks whose reward is recomputed at some steps only: it reads what no row shows
    batch_transitions: int = 65_536  # handed to the adapter at once; small enough for a cache or a pool of threads
    batches_at_once: int = 1  # how many of them are worth checking in threads of their own

    @property
    def exact(self) -> bool:
        return self.judging_grade == "exact"
