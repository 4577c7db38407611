"""One recorded rollout as plain rows, ready to be bent and continued in MiniGrid."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple, TypeVar

import numpy as np

from qualcheck.demo.episode import MAX_STEPS, Episode
from qualcheck.demo.label import reached
from qualcheck.envs.babyai.layout import (
    AGENT_COL,
    AGENT_ROW,
    BALL_ROW,
    BOX_ROW,
    CARRIED_COLOUR,
    CARRIED_ID,
    CARRIED_TYPE,
    DOWN,
    FIRST,
    KEY_ROW,
    LAST,
    LEFT,
    RIGHT,
    TYPES,
    UP,
)
from qualcheck.envs.babyai.simulator import World

PLACES = (BALL_ROW, BOX_ROW, KEY_ROW)  # in the order of TYPES; the column after is the col, the one before the colour
FLOOR = [(row, col) for row in range(FIRST, LAST + 1) for col in range(FIRST, LAST + 1)]

Option = TypeVar("Option")
Row = list[int]
Cell = tuple[int, int]


class Bent(NamedTuple):
    """A rollout after its fault: rows, actions, the bent transition, and whether the last step claims the goal."""

    rows: list[Row]
    actions: list[int]
    step: int
    terminal: bool


class Tape:
    """One recorded rollout as plain lists, and MiniGrid to try things in."""

    def __init__(self, episode: Episode, rng: np.random.Generator) -> None:
        self.placement = episode.start.placement
        self.rows: list[Row] = episode.rows.astype(int).tolist()
        self.actions: list[int] = episode.action.tolist()
        self.terminal = episode.terminal
        self.rng = rng
        self.world = World()

    def steps(self, fits: Callable[[Row, int, Row], bool]) -> list[int]:
        """Transitions of which row, action and next row fit."""
        triples = zip(self.rows, self.actions, self.rows[1:], strict=False)
        return [step for step, triple in enumerate(triples) if fits(*triple)]

    def pick(self, options: Sequence[Option]) -> Option | None:
        return options[int(self.rng.integers(len(options)))] if options else None

    def go_on(self, step: int, action: int, bent: Row, rest: Iterable[int]) -> Bent:
        """The tape up to row `step`, the action, the bent row, and the rest executed from there until the goal."""
        rows, actions = [*self.rows[: step + 1], bent], [*self.actions[:step], action]
        self.world.restore(bent)
        done = reached(self.world, self.placement)[0]
        for following in rest:
            if done or len(actions) == MAX_STEPS:
                break
            self.world.act(following)
            rows.append(self.world.row())
            actions.append(following)
            done = reached(self.world, self.placement)[0]
        return Bent(rows, actions, step, done)

    def write_over(self, step: int, bent: Row) -> Bent:
        """The tape with one row replaced."""
        rows = [*self.rows[: step + 1], bent, *self.rows[step + 2 :]]
        return Bent(rows, self.actions, step, self.terminal)

    def walk(self, step: int, parts: Sequence[tuple[Cell, int | None]]) -> tuple[list[Row], list[int]] | None:
        """Real steps from row `step` to one cell after another, with an action on each; None if that meets the goal."""
        rows, actions = self.rows[: step + 1], self.actions[:step]
        self.world.restore(rows[-1])
        for cell, then in parts:
            for action in [*way(agent_cell(rows[-1]), cell), *([] if then is None else [then])]:
                self.world.act(action)
                rows.append(self.world.row())
                actions.append(action)
                if reached(self.world, self.placement)[0] or len(actions) >= MAX_STEPS:
                    return None
        return rows, actions


def agent_cell(row: Row) -> Cell:
    return row[AGENT_ROW], row[AGENT_COL]


def object_cells(row: Row) -> list[Cell]:
    return [(row[at], row[at + 1]) for at in PLACES]


def carried(row: Row) -> int | None:
    """Which of ball, box and key is carried."""
    return next((number for number, at in enumerate(PLACES) if row[at] == 0), None)


def way(start: Cell, end: Cell) -> list[int]:
    down, right = end[0] - start[0], end[1] - start[1]
    return [DOWN if down > 0 else UP] * abs(down) + [RIGHT if right > 0 else LEFT] * abs(right)


def apart(one: Cell, other: Cell) -> int:
    return abs(one[0] - other[0]) + abs(one[1] - other[1])


def changed(row: Row, values: dict[int, int]) -> Row:
    return [values.get(column, value) for column, value in enumerate(row)]


def free_cells(row: Row) -> list[Cell]:
    """Cells with neither object nor agent."""
    taken = {*object_cells(row), agent_cell(row)}
    return [cell for cell in FLOOR if cell not in taken]


def holding(row: Row, number: int) -> dict[int, int]:
    return {
        PLACES[number]: 0,
        PLACES[number] + 1: 0,
        CARRIED_TYPE: CARRIED_ID[TYPES[number]],
        CARRIED_COLOUR: row[PLACES[number] - 1],
    }
