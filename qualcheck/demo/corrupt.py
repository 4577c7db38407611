"""Real rollouts with one labelled fault each.

A fault bends one transition. Where MiniGrid can be put into the bent row, the remaining actions are executed from
there, so that every later transition is right again; where it cannot, the recorded rows follow.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from qualcheck.demo.episode import MAX_STEPS, Episode
from qualcheck.demo.tape import (
    FLOOR,
    PLACES,
    Bent,
    Cell,
    Tape,
    agent_cell,
    apart,
    carried,
    changed,
    free_cells,
    holding,
    object_cells,
)
from qualcheck.envs.babyai.layout import (
    ACTIONS,
    AGENT_COL,
    AGENT_ROW,
    CARRIED_COLOUR,
    CARRIED_ID,
    CARRIED_TYPE,
    CLOSED,
    COLOURS,
    DOOR_COLUMN,
    DOOR_ROW,
    DOOR_STATE,
    DOWN,
    DROP,
    LEFT,
    LOCKED,
    OPEN,
    PICKUP,
    RIGHT,
    TOGGLE,
    TYPES,
    UP,
)

GENERATOR = "corrupted"
MOVES = {UP: (-1, 0), DOWN: (1, 0), LEFT: (0, -1), RIGHT: (0, 1)}
BACK = {UP: DOWN, DOWN: UP, LEFT: RIGHT, RIGHT: LEFT}


def agent_teleport(tape: Tape) -> Bent | None:
    step = tape.pick(range(len(tape.actions)))
    if step is None:
        return None
    true = tape.rows[step + 1]
    cell = tape.pick([cell for cell in FLOOR if apart(cell, agent_cell(true)) >= 2])
    if cell is None:
        return None
    bent = changed(true, {AGENT_ROW: cell[0], AGENT_COL: cell[1]})
    return tape.go_on(step, tape.actions[step], bent, tape.actions[step + 1 :])


def wall_walk(tape: Tape) -> Bent | None:
    """The agent steps into a wall or the door, and back."""
    places = [
        (step, move, (row[AGENT_ROW] + down, row[AGENT_COL] + right))
        for step, row in enumerate(tape.rows[:-1])
        for move, (down, right) in MOVES.items()
        if (row[AGENT_ROW] + down, row[AGENT_COL] + right) not in FLOOR
    ]
    chosen = tape.pick(places)
    if chosen is None or len(tape.actions) + 2 > MAX_STEPS:
        return None
    step, move, cell = chosen
    bent = changed(tape.rows[step], {AGENT_ROW: cell[0], AGENT_COL: cell[1]})
    rows = [*tape.rows[: step + 1], bent, *tape.rows[step:]]
    actions = [*tape.actions[:step], move, BACK[move], *tape.actions[step:]]
    return Bent(rows, actions, step, tape.terminal)


def object_teleport(tape: Tape) -> Bent | None:
    step = tape.pick(range(len(tape.actions)))
    if step is None:
        return None
    true = tape.rows[step + 1]
    number, cell = tape.pick([n for n in range(3) if true[PLACES[n]]]), tape.pick(free_cells(true))
    if number is None or cell is None:
        return None
    bent = changed(true, {PLACES[number]: cell[0], PLACES[number] + 1: cell[1]})
    return tape.go_on(step, tape.actions[step], bent, tape.actions[step + 1 :])


def pickup_from_afar(tape: Tape) -> Bent | None:
    """An object is taken from another cell; the one the task names, where it names one."""
    empty = tape.steps(lambda row, _action, _after: carried(row) is None and agent_cell(row) not in object_cells(row))
    step = tape.pick(empty)
    if step is None:
        return None
    named = [TYPES.index(word) for word in tape.placement.params[1:2] if word != "door"]
    number = tape.pick(named or range(3))
    if number is None:
        return None
    bent = changed(tape.rows[step], holding(tape.rows[step], number))
    return tape.go_on(step, PICKUP, bent, tape.actions[step:])


def drop_on_object(tape: Tape) -> Bent | None:
    """What is carried is put where another object lies; the rollout ends there."""
    step = tape.pick(range(len(tape.actions)))
    if step is None:
        return None
    row = tape.rows[step]
    held = carried(row)
    first, other = tape.rng.permutation([n for n in range(3) if n != held])[:2].tolist()
    number = first if held is None else held
    parts: list[tuple[Cell, int | None]] = [(object_cells(row)[first], PICKUP)] if held is None else []
    target = object_cells(row)[other]
    walked = tape.walk(step, [*parts, (target, None)])
    if walked is None or carried(walked[0][-1]) != number:
        return None
    rows, actions = walked
    put = {PLACES[number]: target[0], PLACES[number] + 1: target[1], CARRIED_TYPE: 0, CARRIED_COLOUR: 0}
    return Bent([*rows, changed(rows[-1], put)], [*actions, DROP], len(actions), False)


def door_toggle_afar(tape: Tape) -> Bent | None:
    afar = tape.steps(
        lambda row, _action, _after: row[DOOR_STATE] != LOCKED and agent_cell(row) != (row[DOOR_ROW], DOOR_COLUMN - 1)
    )
    step = tape.pick(afar)
    if step is None:
        return None
    row = tape.rows[step]
    bent = changed(row, {DOOR_STATE: CLOSED if row[DOOR_STATE] == OPEN else OPEN})
    return tape.go_on(step, TOGGLE, bent, tape.actions[step:])


def unlock_without_key(tape: Tape) -> Bent | None:
    """A locked door opens to a hand that does not hold its key."""
    locked = tape.steps(lambda row, _action, _after: row[DOOR_STATE] == LOCKED and carried(row) != TYPES.index("key"))
    step = tape.pick(locked)
    if step is None:
        return None
    walked = tape.walk(step, [((tape.rows[step][DOOR_ROW], DOOR_COLUMN - 1), None)])
    if walked is None:
        return None
    rows, actions = walked
    return Bent([*rows, changed(rows[-1], {DOOR_STATE: OPEN})], [*actions, TOGGLE], len(actions), True)


def colour_change(tape: Tape) -> Bent | None:
    step = tape.pick(range(len(tape.actions)))
    if step is None:
        return None
    true = tape.rows[step + 1]
    column = tape.pick([at - 1 for at in (*PLACES, DOOR_ROW) if true[at]])
    if column is None:
        return None
    colour = tape.pick([colour for colour in range(len(COLOURS)) if colour != true[column]])
    assert colour is not None
    return tape.go_on(step, tape.actions[step], changed(true, {column: colour}), tape.actions[step + 1 :])


def carry_inconsistent(tape: Tape) -> Bent | None:
    """The carried slot alone contradicts the rest of the row."""
    step = tape.pick(range(len(tape.actions) - 1))
    if step is None:
        return None
    true = tape.rows[step + 1]
    kind = tape.pick([kind for kind in (0, *CARRIED_ID.values()) if kind != true[CARRIED_TYPE]])
    assert kind is not None
    colour = 0 if kind == 0 else int(tape.rng.integers(len(COLOURS)))
    return tape.write_over(step, changed(true, {CARRIED_TYPE: kind, CARRIED_COLOUR: colour}))


def two_carried(tape: Tape) -> Bent | None:
    step = tape.pick(range(len(tape.actions) - 1))
    if step is None:
        return None
    true = tape.rows[step + 1]
    held = carried(true)
    numbers = tape.rng.permutation([n for n in range(3) if n != held]).tolist()[: 2 if held is None else 1]
    bent = true
    for number in numbers:
        bent = changed(bent, holding(bent, number))
    return tape.write_over(step, bent)


def overlap(tape: Tape) -> Bent | None:
    step = tape.pick(range(len(tape.actions) - 1))
    if step is None:
        return None
    true = tape.rows[step + 1]
    lying = tape.rng.permutation([n for n in range(3) if true[PLACES[n]]]).tolist()
    onto = object_cells(true)[lying[1]]
    return tape.write_over(step, changed(true, {PLACES[lying[0]]: onto[0], PLACES[lying[0]] + 1: onto[1]}))


def action_swap(tape: Tape) -> Bent | None:
    """The rows stay, one action becomes another with another outcome."""
    step = tape.pick(range(len(tape.actions)))
    if step is None:
        return None
    others = []
    for action in range(len(ACTIONS)):
        tape.world.restore(tape.rows[step])
        tape.world.act(action)
        if tape.world.row() != tape.rows[step + 1]:
            others.append(action)
    chosen = tape.pick(others)
    if chosen is None:
        return None
    actions = [*tape.actions[:step], chosen, *tape.actions[step + 1 :]]
    return Bent(tape.rows, actions, step, tape.terminal)


def frozen_agent(tape: Tape) -> Bent | None:
    step = tape.pick(tape.steps(lambda row, action, after: action in MOVES and row != after))
    if step is None:
        return None
    return tape.go_on(step, tape.actions[step], tape.rows[step], tape.actions[step + 1 :])


def carried_lost(tape: Tape) -> Bent | None:
    """On a move, what was carried lies somewhere."""
    step = tape.pick(tape.steps(lambda row, action, _after: action in MOVES and carried(row) is not None))
    if step is None:
        return None
    true = tape.rows[step + 1]
    number, cell = carried(true), tape.pick(free_cells(true))
    if number is None or cell is None:
        return None
    lost = {PLACES[number]: cell[0], PLACES[number] + 1: cell[1], CARRIED_TYPE: 0, CARRIED_COLOUR: 0}
    return tape.go_on(step, tape.actions[step], changed(true, lost), tape.actions[step + 1 :])


def door_locks(tape: Tape) -> Bent | None:
    step = tape.pick(tape.steps(lambda _row, _action, after: after[DOOR_STATE] != LOCKED))
    if step is None:
        return None
    bent = changed(tape.rows[step + 1], {DOOR_STATE: LOCKED})
    return tape.go_on(step, tape.actions[step], bent, tape.actions[step + 1 :])


def goal_tail_cut(tape: Tape) -> Bent | None:
    """The end of a success is missing, its claim is not: no transition is wrong, the goal is never reached."""
    if not tape.terminal or len(tape.actions) < 2:
        return None
    kept = len(tape.actions) - int(tape.rng.integers(1, min(3, len(tape.actions) - 1) + 1))
    return Bent(tape.rows[: kept + 1], tape.actions[:kept], kept - 1, True)


FAULTS: dict[str, Callable[[Tape], Bent | None]] = {
    fault.__name__: fault
    for fault in (
        agent_teleport, wall_walk, object_teleport, pickup_from_afar, drop_on_object, door_toggle_afar,
        unlock_without_key, colour_change, carry_inconsistent, two_carried, overlap, action_swap, frozen_agent,
        carried_lost, door_locks, goal_tail_cut,
    )
}  # fmt: skip


def corrupt(episodes: Sequence[Episode], per_fault: int, rng: np.random.Generator) -> list[Episode]:
    """`per_fault` rollouts of each fault, each from another recording.

    Args:
        episodes: real rollouts to draw from.
        per_fault: how many of each kind.
        rng: source of all randomness.

    Raises:
        ValueError: the recordings do not offer enough places for a fault.
    """
    bent: list[Episode] = []
    order = rng.permutation(len(episodes)).tolist()
    for name, fault in FAULTS.items():
        found = 0
        for at in list(order):
            if found == per_fault:
                break
            result = fault(Tape(episodes[at], rng))
            if result is not None:
                order.remove(at)
                bent.append(_episode(episodes[at], name, result))
                found += 1
        if found < per_fault:
            raise ValueError(f"{name}: {found} of {per_fault} rollouts made from {len(episodes)} recordings; give more")
    return bent


def _episode(source: Episode, fault: str, bent: Bent) -> Episode:
    return replace(
        source,
        rows=np.array(bent.rows, np.float32),
        action=np.array(bent.actions, np.int64),
        terminal=bent.terminal,
        generator=GENERATOR,
        fault=fault,
        fault_step=bent.step,
    )
