"""Faults of the grid world for the self-test: what a language model gets wrong, and rows that chance does not find."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from qualcheck.envs.babyai.layout import (
    AGENT_COL,
    AGENT_ROW,
    BALL_COLOUR,
    CARRIED_COLOUR,
    CARRIED_ID,
    CARRIED_TYPE,
    CLOSED,
    COLOURS,
    COLUMNS,
    DROP,
    FIRST,
    LAST,
    LOCKED,
    OPEN,
    PICKUP,
    TOGGLE,
)
from qualcheck.selftesting.plant import of_row, short
from qualcheck.selftesting.real import Real
from qualcheck.selftesting.rules import Crafted
from qualcheck.types import AnyArray, Rollouts

OBJECTS = {"ball": 0, "box": 3, "key": 6}  # first column: colour, row, column


def _wall_crossing(rows: AnyArray, at: int, _real: Real, rng: np.random.Generator) -> AnyArray:
    """The agent steps into a wall."""
    row: AnyArray = rows[at].copy()
    row[AGENT_ROW if rng.random() < 0.5 else AGENT_COL] = rng.choice([FIRST - 1, LAST + 1])
    return row


def _wrong_carry(rows: AnyArray, at: int, _real: Real, rng: np.random.Generator) -> AnyArray:
    """Something is in hand that nobody took, and still lies where it was."""
    row: AnyArray = rows[at].copy()
    name = str(rng.choice(list(OBJECTS)))
    row[CARRIED_TYPE], row[CARRIED_COLOUR] = CARRIED_ID[name], row[OBJECTS[name]]
    return row


def _two_carried(rows: AnyArray, at: int, _real: Real, rng: np.random.Generator) -> AnyArray | None:
    """Two objects are gone from the floor, and one is in hand."""
    row: AnyArray = rows[at].copy()
    first, second = rng.choice(list(OBJECTS), 2, replace=False)
    for name in (first, second):
        row[OBJECTS[str(name)] + 1 : OBJECTS[str(name)] + 3] = 0
    row[CARRIED_TYPE], row[CARRIED_COLOUR] = CARRIED_ID[str(first)], row[OBJECTS[str(first)]]
    return row


def _colour_change(rows: AnyArray, at: int, _real: Real, rng: np.random.Generator) -> AnyArray:
    row: AnyArray = rows[at].copy()
    column = BALL_COLOUR + 3 * int(rng.integers(4))
    row[column] = rng.choice([colour for colour in range(len(COLOURS)) if colour != row[column]])
    return row


def _plausible_object(rows: AnyArray, at: int, _real: Real, rng: np.random.Generator) -> AnyArray | None:
    """An object lies in the next cell, which is free: legal to look at, and wrong."""
    row: AnyArray = rows[at].copy()
    lying = [first for first in OBJECTS.values() if row[first + 1] > 0]
    first = int(rng.choice(lying)) if lying else None
    if first is None:
        return None
    taken = {tuple(row[other + 1 : other + 3]) for other in OBJECTS.values()}
    for dr, dc in rng.permutation([[0, 1], [1, 0], [0, -1], [-1, 0]]):
        place = row[first + 1] + dr, row[first + 2] + dc
        if FIRST <= place[0] <= LAST and FIRST <= place[1] <= LAST and place not in taken:
            row[first + 1 : first + 3] = place
            return row
    return None


FAULTS = [
    of_row("wall crossing", _wall_crossing),
    of_row("wrong carry", _wrong_carry),
    of_row("two carried", _two_carried),
    of_row("colour change", _colour_change),
    of_row("plausible object", _plausible_object),
]

# a room with a blue key and a blue door, the agent in the middle
_BASE = dict(zip(COLUMNS, (0, 2, 2, 1, 3, 5, 2, 5, 1, 2, 4, 7, CLOSED, 4, 4, 0, 0), strict=True))
_KEY = {"key_row": 0, "key_col": 0, "carried_type": CARRIED_ID["key"], "carried_colour": 2}
_BALL = {"ball_row": 0, "ball_col": 0, "carried_type": CARRIED_ID["ball"], "carried_colour": 0}
_EMPTY = {"carried_type": 0, "carried_colour": 0}
_AT_DOOR = {"agent_row": 4, "agent_col": 6}
_LOCKED = {"door_state": LOCKED}


def _three(zero: Mapping[str, int], start: Mapping[str, int], action: int, end: Mapping[str, int]) -> Crafted:
    """Row 0, the row before the step and the row after it, each told by what differs from the one before."""

    def make(real: Real, _rng: np.random.Generator) -> tuple[Rollouts, int]:
        rows = [{**_BASE, **zero}]
        for change in (start, end):
            rows.append({**rows[-1], **change})
        return short(real, np.array([[row[name] for name in COLUMNS] for row in rows]), np.array([TOGGLE, action])), 1

    return make


CRAFTED: dict[str, Crafted] = {
    "step.pickup_while_carrying": _three(
        {}, {"agent_row": 2, "agent_col": 2, **_KEY}, PICKUP, {**_BALL, "key_row": 5, "key_col": 1}
    ),
    "step.pickup_from_afar": _three({}, {}, PICKUP, _BALL),
    "step.drop_on_object": _three(
        {}, {"agent_row": 2, "agent_col": 2, **_KEY}, DROP, {"key_row": 2, "key_col": 3, **_EMPTY}
    ),
    "step.toggle_from_afar": _three({}, {}, TOGGLE, {"door_state": OPEN}),
    "step.unlocked_without_key": _three(_LOCKED, {**_AT_DOOR, **_BALL}, TOGGLE, {"door_state": OPEN}),
    "step.unlocked_but_closed": _three(_LOCKED, {**_AT_DOOR, **_KEY}, TOGGLE, {"door_state": CLOSED}),
    "step.door_became_locked": _three(_LOCKED, {**_AT_DOOR, "door_state": OPEN}, TOGGLE, _LOCKED),
}
