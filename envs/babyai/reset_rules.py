"""What every start of a BabyAI episode has in common, as named rules for row 0.

Source: reset of the ImagineBench BabyAI tasks (arXiv 2505.10010, released code of May 2025).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np

from qualcheck.envs.babyai import goals, reset
from qualcheck.envs.babyai.kernel import OBJECT_ROWS
from qualcheck.envs.babyai.layout import (
    AGENT_COL,
    AGENT_ROW,
    CARRIED_TYPE,
    CLOSED,
    DOOR_COLOUR,
    DOOR_ROW,
    DOOR_STATE,
    FIRST,
    KEY_COLOUR,
    LOCKED,
    OPEN,
)
from qualcheck.spec import Rule
from qualcheck.types import AnyArray, BoolArray, IntArray, Placement

Law = Literal["range", "conservation", "kinematics", "contact", "causality", "reset"]


def rule(id: str, law: Law, limit: str, text: str, unit: str = "cells", hard: bool = True) -> Rule:
    """A rule with the unit most rules of this environment have."""
    return Rule(id, law, unit, limit, text, hard)


def positions(value: AnyArray) -> tuple[AnyArray, AnyArray]:
    """(row, col) of ball, box and key, (3, R) each."""
    rows = list(OBJECT_ROWS)
    return value[rows], value[[row + 1 for row in rows]]


@dataclass(frozen=True)
class Start:
    """First rows of rollouts, with the task each belongs to."""

    value: AnyArray  # (17, N) int8
    legal: BoolArray  # (N,) no row rule is broken
    placements: Sequence[Placement]
    which: IntArray  # (N,) index into placements
    role: AnyArray  # (4, N) int8 colour and type of the named objects, -1 where none

    @cached_property
    def distance(self) -> AnyArray:
        """Moves between the agent and each object, (3, N)."""
        rows, cols = positions(self.value)
        return np.asarray(np.abs(rows - self.value[AGENT_ROW]) + np.abs(cols - self.value[AGENT_COL]))

    def of(self, *tasks: str) -> BoolArray:
        """Rollouts of these tasks, (N,); "" stands for those without one."""
        return np.array([placement.task in tasks for placement in self.placements], bool)[self.which]


def _near(start: Start) -> BoolArray:
    redrawn = start.of(*reset.AGENT_AGAIN, "")  # "": a task that places the agent again cannot be excluded
    return np.asarray((start.distance < reset.OBJECT_DISTANCE).any(axis=0) & ~redrawn)


def _agent_place(start: Start) -> BoolArray:
    agent = start.value[[AGENT_ROW, AGENT_COL]]  # (2, N)
    wrong = np.zeros(agent.shape[1], bool)
    for task, lines in reset.AGENT_AGAIN.items():
        wrong |= start.of(task) & ~np.isin(agent, lines).all(axis=0)
    return wrong


def _door_state(start: Start) -> BoolArray:
    state, lock = start.value[DOOR_STATE], start.of("open_lock")
    wrong = (state == OPEN) | (lock & (state != LOCKED)) | (~lock & ~start.of("") & (state != CLOSED))
    return np.asarray(wrong)


def _walled_in(start: Start) -> BoolArray:
    rows, cols = positions(start.value)
    at = np.flatnonzero(start.of("putnext") & start.legal & (rows != 0).all(axis=0) & (start.distance > 0).all(axis=0))
    wrong = np.zeros(len(start.legal), bool)
    if not len(at):
        return wrong
    items = (rows[:, at].astype(np.int64) - FIRST) * reset.SIDE + cols[:, at] - FIRST
    row, col = start.value[AGENT_ROW, at].astype(np.int64), start.value[AGENT_COL, at]
    wrong[at] = ~reset.reachable((row - FIRST) * reset.SIDE + col - FIRST, items, start.value[DOOR_ROW, at])
    return wrong


def _not_there(start: Start) -> BoolArray:
    wrong = np.zeros(len(start.legal), bool)
    for colour, kind in (start.role[:2], start.role[2:]):
        _, _, there = goals.find(start.value, colour, kind)
        wrong |= (kind >= 0) & ~there
    return wrong


Test = Callable[[Start], BoolArray]

RESET_LAWS: tuple[tuple[Rule, Test], ...] = (
    (rule("row0.illegal", "reset", "0", "row 0 breaks a row rule", "rules"), lambda s: ~s.legal),
    (rule("row0.carrying", "reset", "0", "something is carried at the reset", "objects"),
     lambda s: np.asarray(s.value[CARRIED_TYPE] != 0)),
    (rule("row0.agent_on_object", "reset", "1", "the agent starts on an object"),
     lambda s: np.asarray((s.distance == 0).any(axis=0))),
    (rule("row0.agent_place", "reset", "3..4 or 1,2,5,6", "the agent starts where its task never puts it"),
     _agent_place),
    (rule("row0.object_near_agent", "reset", "2", "an object lies next to the agent"), _near),
    (rule("row0.walled_in", "reset", "0", "an object or the door cannot be reached", "objects"), _walled_in),
    (rule("row0.door_state", "reset", "closed; locked for open_lock", "the door starts in a wrong state", "state"),
     _door_state),
    (rule("row0.lock_colour", "reset", "0", "the key does not fit the locked door", "index"),
     lambda s: np.asarray(s.of("open_lock") & (s.value[KEY_COLOUR] != s.value[DOOR_COLOUR]))),
    (rule("row0.named_object", "reset", "0", "the instruction names an object that is not there", "objects"),
     _not_there),
)  # fmt: skip


def first_broken_at_reset(
    value: AnyArray, legal: BoolArray, placements: Sequence[Placement], which: IntArray
) -> AnyArray:
    """1 + the index in `RESET_LAWS` of the first rule each row 0 breaks, 0 if none. (17, N), (N,) -> (N,) int16."""
    start = Start(value, legal, placements, which, goals.role_table(placements, which))
    found = np.zeros(len(which), np.int16)
    for number, (_, test) in enumerate(RESET_LAWS, 1):
        found[(found == 0) & test(start)] = number
    return found
