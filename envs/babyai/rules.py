"""The laws of the BabyAI world as named rules, and their evaluation on many transitions at once.

`row.` rules look at the end row alone and are broken exactly when no real state has that row; `context.` rules hold
the end row against row 0 of the episode; `step.` rules name what happened between the two rows that the action does
not explain, or what it should have caused and did not; the `row0.` rules stand in `reset_rules.py`. Every rule is a
necessary condition: no true step breaks one. Source: the ImagineBench BabyAI class (arXiv 2505.10010).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from qualcheck.envs.babyai.kernel import OBJECT_ROWS, step
from qualcheck.envs.babyai.layout import (
    AGENT_COL,
    AGENT_ROW,
    BALL_COLOUR,
    BOX_COLOUR,
    CARRIED_COLOUR,
    CARRIED_ID,
    CARRIED_TYPE,
    CLOSED,
    COLOURS,
    DOOR_COL,
    DOOR_COLOUR,
    DOOR_COLUMN,
    DOOR_ROW,
    DOOR_STATE,
    DROP,
    FIRST,
    HORIZON,
    KEY_COLOUR,
    KEY_ROW,
    LAST,
    LOCKED,
    PICKUP,
    TOGGLE,
    TYPES,
    Fields,
)
from qualcheck.envs.babyai.reset_rules import RESET_LAWS, positions, rule
from qualcheck.spec import Rule
from qualcheck.types import AnyArray, BoolArray

RULES_VERSION = "1"
COLOUR_COLUMNS = (BALL_COLOUR, BOX_COLOUR, KEY_COLOUR, DOOR_COLOUR)


def carried(value: AnyArray) -> tuple[AnyArray, AnyArray]:
    """What columns 15 and 16 must say by the positions, (R,) each; meaningful if at most one object is carried."""
    kind, colour = np.zeros((2, value.shape[1]), np.int8)
    for row, name in zip(OBJECT_ROWS, TYPES, strict=False):
        held = ((value[row] == 0) & (value[row + 1] == 0)).view(np.int8)
        kind += held * np.int8(CARRIED_ID[name])
        colour += held * value[row - 1]
    return kind, colour


def carried_agrees(value: AnyArray) -> BoolArray:
    """Whether columns 15 and 16 say what the positions say, (R,)."""
    kind, colour = carried(value)
    agrees: BoolArray = (kind == value[CARRIED_TYPE]) & (colour == value[CARRIED_COLOUR])
    return agrees


@dataclass(frozen=True)
class Case:
    """Transitions to be judged, with what several rules need."""

    start: AnyArray  # (17, M) int8
    end_rows: Fields
    context: AnyArray  # (17, M) int8, row 0 of the episode
    action: AnyArray  # (M,) int8

    @property
    def end(self) -> AnyArray:
        return self.end_rows.value

    @cached_property
    def agent(self) -> tuple[AnyArray, AnyArray]:
        return self.start[AGENT_ROW], self.start[AGENT_COL]

    @cached_property
    def start_cells(self) -> tuple[AnyArray, AnyArray]:
        return positions(self.start)

    @cached_property
    def end_cells(self) -> tuple[AnyArray, AnyArray]:
        return positions(self.end)

    @cached_property
    def held(self) -> BoolArray:
        return np.asarray(self.start_cells[0] == 0)  # (3, M) carried before

    @cached_property
    def held_after(self) -> BoolArray:
        return np.asarray(self.end_cells[0] == 0)  # (3, M)

    @cached_property
    def picked(self) -> BoolArray:
        return ~self.held & self.held_after  # (3, M)

    @cached_property
    def released(self) -> BoolArray:
        return self.held & ~self.held_after  # (3, M)

    @cached_property
    def underfoot(self) -> BoolArray:
        rows, cols = self.start_cells
        return np.asarray((rows == self.agent[0]) & (cols == self.agent[1]))  # (3, M)

    @cached_property
    def shifted(self) -> BoolArray:
        """On the grid before and after, but on another cell, (3, M)."""
        elsewhere = (self.start_cells[0] != self.end_cells[0]) | (self.start_cells[1] != self.end_cells[1])
        return np.asarray(elsewhere & ~self.held & ~self.held_after)

    @cached_property
    def agent_distance(self) -> AnyArray:
        """Cells walked, (M,)."""
        down, right = self.end[AGENT_ROW] - self.agent[0], self.end[AGENT_COL] - self.agent[1]
        return np.asarray(np.abs(down) + np.abs(right))

    @cached_property
    def truth(self) -> AnyArray:
        return step(self.start, self.action)  # (17, M)

    @cached_property
    def handles(self) -> BoolArray:
        """The action is none of the four moves, (M,)."""
        return np.asarray((self.action >= PICKUP) & (self.action <= TOGGLE))

    @cached_property
    def door_changed(self) -> BoolArray:
        return np.asarray(self.start[DOOR_STATE] != self.end[DOOR_STATE])

    @cached_property
    def at_door(self) -> BoolArray:
        return np.asarray((self.agent[0] == self.start[DOOR_ROW]) & (self.agent[1] == LAST))

    @cached_property
    def has_key(self) -> BoolArray:
        """The matching key is carried, (M,)."""
        return np.asarray((self.start[KEY_ROW] == 0) & (self.start[KEY_COLOUR] == self.start[DOOR_COLOUR]))

    def missing(self, action: int, columns: Sequence[int]) -> BoolArray:
        """The action should have changed these columns and the end row leaves one as it was, (M,)."""
        rows = list(columns)
        due = self.truth[rows] != self.start[rows]
        return np.asarray((self.action == action) & _any(due & (self.end[rows] == self.start[rows])))


def _outside(column: AnyArray, low: int, high: int) -> BoolArray:
    return np.asarray((column < low) | (column > high))


def _any(parts: AnyArray) -> BoolArray:
    """(K, M) -> (M,)."""
    return np.asarray(np.logical_or.reduce(parts, axis=0))


def _colour_range(case: Case) -> BoolArray:
    return _any(_outside(case.end[list(COLOUR_COLUMNS)], 0, len(COLOURS) - 1))


def _object_outside(case: Case) -> BoolArray:
    rows, cols = case.end_cells
    return _any(_outside(rows, 0, LAST) | _outside(cols, 0, LAST))


def _half_carried(case: Case) -> BoolArray:
    rows, cols = case.end_cells
    return _any((rows == 0) != (cols == 0))


def _two_carried(case: Case) -> BoolArray:
    rows, cols = case.end_cells
    return np.asarray(((rows == 0) & (cols == 0)).sum(axis=0) > 1)


def _overlap(case: Case) -> BoolArray:
    rows, cols = case.end_cells
    same = (rows == np.roll(rows, 1, axis=0)) & (cols == np.roll(cols, 1, axis=0)) & (rows != 0)
    return _any(same)


def _door_place(case: Case) -> BoolArray:
    return np.asarray(_outside(case.end[DOOR_ROW], FIRST, LAST) | np.asarray(case.end[DOOR_COL] != DOOR_COLUMN))


def _agent_in_wall(case: Case) -> BoolArray:
    return _outside(case.end[AGENT_ROW], FIRST, LAST) | _outside(case.end[AGENT_COL], FIRST, LAST)


def _changed(column: int) -> Callable[[Case], BoolArray]:
    return lambda case: np.asarray(case.end[column] != case.context[column])


def _door_elsewhere(case: Case, before: AnyArray) -> BoolArray:
    return np.asarray((case.end[DOOR_ROW] != before[DOOR_ROW]) | (case.end[DOOR_COL] != before[DOOR_COL]))


def _colour_changed(case: Case) -> BoolArray:
    columns = list(COLOUR_COLUMNS)
    return _any(case.end[columns] != case.start[columns])


def _drop_elsewhere(case: Case) -> BoolArray:
    rows, cols = case.end_cells
    away = (rows != case.agent[0]) | (cols != case.agent[1])
    return np.asarray((case.action == DROP) & _any(case.released & away))


def _unlocked_without_key(case: Case) -> BoolArray:
    opened = case.door_changed & (case.start[DOOR_STATE] == LOCKED)
    return np.asarray((case.action == TOGGLE) & opened & ~case.has_key)


def _unlocked_but_closed(case: Case) -> BoolArray:
    return np.asarray((case.start[DOOR_STATE] == LOCKED) & (case.end[DOOR_STATE] == CLOSED))


def _became_locked(case: Case) -> BoolArray:
    return np.asarray(case.door_changed & (case.end[DOOR_STATE] == LOCKED))


def _agent_wrong_way(case: Case) -> BoolArray:
    astray = (case.end[AGENT_ROW] != case.truth[AGENT_ROW]) | (case.end[AGENT_COL] != case.truth[AGENT_COL])
    return np.asarray((case.agent_distance == 1) & astray & ~case.handles)


def _agent_stayed(case: Case) -> BoolArray:
    due = (case.truth[AGENT_ROW] != case.agent[0]) | (case.truth[AGENT_COL] != case.agent[1])
    return np.asarray(due & (case.agent_distance == 0))


RowTest = Callable[[Case], BoolArray]

ROW_LAWS: tuple[tuple[Rule, RowTest], ...] = (
    (rule("row.non_finite", "range", "none", "a number is NaN or infinite", "fields"), lambda c: ~c.end_rows.finite),
    (rule("row.not_integer", "range", "none", "a number is a fraction", "fields"), lambda c: ~c.end_rows.integral),
    (rule("row.colour_range", "range", "0..5", "a colour that does not exist", "index"), _colour_range),
    (rule("row.door_state", "range", "0..2", "a door neither open, closed nor locked", "index"),
     lambda c: _outside(c.end[DOOR_STATE], 0, LOCKED)),
    (rule("row.door_place", "range", "row 1..6, col 7", "the door is not in the shared wall"), _door_place),
    (rule("row.agent_in_wall", "range", "1..6", "the agent is in a wall, the door or outside"), _agent_in_wall),
    (rule("row.object_in_wall", "range", "1..6 or carried", "an object is in a wall or outside"), _object_outside),
    (rule("row.half_carried", "range", "(0, 0)", "one coordinate of an object is 0 and the other is not"),
     _half_carried),
    (rule("row.two_carried", "conservation", "1", "more than one object is carried", "objects"), _two_carried),
    (rule("row.overlap", "contact", "0", "two objects share a cell", "objects"), _overlap),
    (rule("row.carried_slot", "conservation", "0", "the carried slot contradicts the positions", "fields"),
     lambda c: ~carried_agrees(c.end)),
)  # fmt: skip

CONTEXT_LAWS: tuple[tuple[Rule, RowTest], ...] = (
    *((rule(f"context.{name}_colour", "conservation", "0", f"the {name} has another colour than in row 0", "index"),
       _changed(column)) for name, column in zip(TYPES, COLOUR_COLUMNS, strict=True)),
    (rule("context.door_moved", "conservation", "0", "the door is elsewhere than in row 0"),
     lambda c: _door_elsewhere(c, c.context)),
    (rule("context.door_locked", "causality", "0", "the door is locked although it was not in row 0", "state"),
     lambda c: np.asarray((c.end[DOOR_STATE] == LOCKED) & (c.context[DOOR_STATE] != LOCKED))),
)  # fmt: skip

STEP_LAWS: tuple[tuple[Rule, RowTest], ...] = (
    (rule("step.colour_changed", "conservation", "0", "a colour changed", "index"), _colour_changed),
    (rule("step.door_moved", "conservation", "0", "the door moved"), lambda c: _door_elsewhere(c, c.start)),
    (rule("step.picked_without_pickup", "causality", "0", "an object was taken without a pickup", "objects"),
     lambda c: (c.action != PICKUP) & _any(c.picked)),
    (rule("step.pickup_while_carrying", "causality", "0", "an object was taken with another in hand", "objects"),
     lambda c: (c.action == PICKUP) & _any(c.picked) & _any(c.held)),
    (rule("step.pickup_from_afar", "contact", "0", "the object taken was not under the agent"),
     lambda c: (c.action == PICKUP) & _any(c.picked & ~c.underfoot)),
    (rule("step.released_without_drop", "causality", "0", "the carried object is back without a drop", "objects"),
     lambda c: (c.action != DROP) & _any(c.released)),
    (rule("step.drop_on_object", "contact", "0", "a drop although an object lay under the agent", "objects"),
     lambda c: (c.action == DROP) & _any(c.released) & _any(c.underfoot)),
    (rule("step.drop_elsewhere", "contact", "0", "the dropped object is not under the agent"), _drop_elsewhere),
    (rule("step.object_moved", "causality", "0", "an object moved without being carried"),
     lambda c: _any(c.shifted)),
    (rule("step.door_without_toggle", "causality", "0", "the door changed without a toggle", "state"),
     lambda c: (c.action != TOGGLE) & c.door_changed),
    (rule("step.toggle_from_afar", "contact", "1", "the door was toggled from a cell not beside it"),
     lambda c: (c.action == TOGGLE) & c.door_changed & ~c.at_door),
    (rule("step.unlocked_without_key", "causality", "0", "the door was unlocked without its key", "state"),
     _unlocked_without_key),
    (rule("step.unlocked_but_closed", "causality", "0", "an unlocked door stayed closed", "state"),
     _unlocked_but_closed),
    (rule("step.door_became_locked", "causality", "0", "the door locked itself", "state"), _became_locked),
    (rule("step.agent_teleported", "kinematics", "1", "the agent moved by more than one cell"),
     lambda c: c.agent_distance > 1),
    (rule("step.agent_moved_without_move", "causality", "0", "the agent moved on a pickup, drop or toggle"),
     lambda c: c.handles & (c.agent_distance == 1)),
    (rule("step.agent_wrong_way", "kinematics", "0", "the agent moved another way than commanded"),
     _agent_wrong_way),
    (rule("step.agent_stayed", "causality", "1", "the agent stayed although its way was free"), _agent_stayed),
    (rule("step.pickup_missing", "causality", "1", "the object under the agent was not taken", "objects"),
     lambda c: c.missing(PICKUP, OBJECT_ROWS)),
    (rule("step.drop_missing", "causality", "1", "the carried object was not dropped", "objects"),
     lambda c: c.missing(DROP, OBJECT_ROWS)),
    (rule("step.toggle_missing", "causality", "1", "the door did not react to its toggle", "state"),
     lambda c: c.missing(TOGGLE, [DOOR_STATE])),
)  # fmt: skip

SOFT = (
    rule("step.over_horizon", "range", f"{HORIZON}", "more steps than an episode has", "steps", hard=False),
    rule("step.chain_break", "conservation", "0", "the next observation is not the next row", "fields", hard=False),
)

LAWS = (*ROW_LAWS, *CONTEXT_LAWS, *STEP_LAWS)
RULES: tuple[Rule, ...] = (*(law for law, _ in LAWS), *SOFT, *(law for law, _ in RESET_LAWS))


def first_broken(case: Case, use_context: BoolArray, use_step: BoolArray) -> AnyArray:
    """1 + the index in `RULES` of the first hard rule each transition breaks, 0 if none, (M,) int16.

    Args:
        use_context: (M,) row 0 can be compared with.
        use_step: (M,) the start row is legal and the action known.
    """
    found = np.zeros(len(case.action), np.int16)
    always = np.ones(len(case.action), bool)
    number = 0
    for laws, scope in ((ROW_LAWS, always), (CONTEXT_LAWS, use_context), (STEP_LAWS, use_step)):
        for _, test in laws:
            number += 1
            found[(found == 0) & scope & test(case)] = number
    return found
