"""A real rollout made to break each rule of dynamics legality first, found by changing numbers at random.

The rules of an environment are its own; which number breaks which of them is not asked. Rows of real rollouts are
changed in one or two numbers, or get a block of another row, for one row or from there on, at the first row or later,
until every rule has been the first one broken somewhere. What no change of numbers reaches, the environment plants
itself (`CRAFTED` of its module `faults`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from qualcheck.selftesting.plant import Plant, joined, with_rows
from qualcheck.selftesting.real import Real
from qualcheck.spec import Rule
from qualcheck.types import AnyArray, Rollouts

ROUNDS = 60
PER_ROUND = 300  # rollouts tried at once
NEAR = 3  # transitions from the one into the first changed row on, any of which may break a rule
FAR = (1e-3, 1e-2, 0.05, 0.1, 0.3, 1.0, 3.0, 10.0, 100.0)  # of the spread of a column

Crafted = Callable[[Real, np.random.Generator], tuple[Rollouts, int] | None]


def rule_plants(
    real: Real, crafted: dict[str, Crafted], rng: np.random.Generator, rounds: int = ROUNDS
) -> tuple[list[Plant], list[str]]:
    """One plant for each hard rule that is broken first in it, and the ids of rules that nothing broke.

    Args:
        real: rollouts to change.
        crafted: rule id -> function that gives a rollout breaking it and the step, for rules that chance does not find.
        rng: draws the changes.
        rounds: of changes, at most.
    """
    missing = {rule.id: rule for rule in real.adapter.rules if rule.hard}
    found: list[Plant] = []
    for name, make in crafted.items():
        made = make(real, rng) if name in missing else None
        if made is not None:
            _harvest(real, [made[0]], [made[1]], [0], missing, found)
    for number in range(rounds):
        if not missing:
            break
        trial = [_changed(real, rng, number) for _ in range(PER_ROUND)]
        _harvest(real, [t[0] for t in trial], [t[1] for t in trial], [t[2] for t in trial], missing, found)
    return found, sorted(missing)


def _harvest(
    real: Real,
    trial: Sequence[Rollouts],
    steps: Sequence[int],
    origins: Sequence[int],
    missing: dict[str, Rule],
    found: list[Plant],
) -> None:
    """Move every rule that one of the rollouts breaks first, where it was meant to, from `missing` to `found`."""
    every = joined(trial)
    adapter = real.adapter
    placed = [
        adapter.place(text, None if every.goal is None else every.goal[k]) for k, text in enumerate(every.instruction)
    ]
    law = adapter.legality(every, placed, np.arange(len(placed)))
    for k, (first, origin) in enumerate(zip(steps, origins, strict=True)):
        for step in range(first, min(first + NEAR, trial[k].n_transitions)):
            at_row0 = step < 0
            broken = int(law.row0_rule[k]) if at_row0 else int(law.rule[int(every.offsets[k]) + step])
            rule = adapter.rules[broken - 1] if broken > 0 else None
            if rule is not None and rule.id in missing:
                del missing[rule.id]
                kind = "row0" if at_row0 else "rule"
                found.append(Plant(f"rule {rule.id}", "", kind, trial[k], step, origin, np.inf))


def _changed(real: Real, rng: np.random.Generator, number: int) -> tuple[Rollouts, int, int]:
    """A rollout with a change, the transition into the first changed row (-1: row 0 itself), and its origin."""
    at = int(rng.integers(len(real.rollouts)))
    one = real.rollouts[at]
    row = int(rng.integers(0, len(one.obs))) if number % 4 else 0
    rows = one.obs.astype(np.float64)
    until = len(rows) if rng.random() < 0.4 else row + 1
    spec = real.adapter.spec
    kind = rng.random()
    if kind < 0.08:  # a whole row of somewhere else
        donor = real.rollouts[int(rng.integers(len(real.rollouts)))].obs
        rows[row:until] = donor[int(rng.integers(len(donor)))]
    elif kind < 0.16:  # the same rollout some steps later
        rows[row:until] = rows[min(row + int(rng.integers(1, 12)), len(rows) - 1)]
    elif kind < 0.2 and row:  # nothing happens
        rows[row] = rows[row - 1]
    elif kind < 0.28 and row:  # from one end of what is real to the other
        column = int(rng.integers(rows.shape[1]))
        every = np.concatenate([other.obs[:, column] for other in real.rollouts[:40]]).astype(np.float64)
        margin = rng.choice([0.0, 0.02, 0.1, 0.3, 0.6, 1.0, 2.0]) * np.ptp(every)
        ends = every.min() - margin, every.max() + margin
        rows[row - 1, column], rows[row:until, column] = ends if rng.random() < 0.5 else ends[::-1]
    elif kind < 0.4:  # a block of another row
        block = spec.blocks[int(rng.integers(len(spec.blocks)))]
        donor = real.rollouts[int(rng.integers(len(real.rollouts)))].obs
        rows[row:until, list(block.columns)] = donor[int(rng.integers(len(donor))), list(block.columns)]
    elif kind < 0.48 and len(spec.blocks) > 1:  # a block where another one is
        first, second = rng.choice(len(spec.blocks), 2, replace=False)
        here, there = list(spec.blocks[first].columns), list(spec.blocks[second].columns)
        size = min(len(here), len(there))
        rows[row:until, here[:size]] = rows[row, there[:size]]
        if rng.random() < 0.5:
            rows[row:until, here[:1]] += rng.choice(FAR[:5]) * rng.choice([-1, 1])
    else:
        for _ in range(int(rng.integers(1, 4))):
            column = int(rng.integers(rows.shape[1]))
            rows[row:until, column] = _value(real, rows[row, column], column, rng)
    if row and rng.random() < 0.4:
        one = replace(one, action=_other_action(real, one, row - 1, rng))
        if rng.random() < 0.5:  # the action alone
            rows = one.obs.astype(np.float64)
    return with_rows(one, rows), row - 1, at


def _value(real: Real, value: float, column: int, rng: np.random.Generator) -> float:
    every = np.concatenate([one.obs[:, column] for one in real.rollouts[:40]]).astype(np.float64)
    kind = rng.random()
    if kind < 0.03:
        return float(rng.choice([np.nan, np.inf, -np.inf, 1e30]))
    if kind < 0.35:
        return float(rng.choice(every))
    if real.adapter.spec.exact and kind < 0.9:
        return float(rng.integers(-1, 10))
    spread = float(np.ptp(every)) or 1.0
    if kind < 0.7:
        return value + float(rng.choice([-1, 1])) * float(rng.choice(FAR)) * spread
    edge = every.max() if rng.random() < 0.5 else every.min()
    return float(edge) + float(rng.choice([-1, 1])) * float(rng.choice(FAR)) * spread


def _other_action(real: Real, one: Rollouts, step: int, rng: np.random.Generator) -> AnyArray:
    """The actions with another one at a step: any of a discrete space, a real or a far too large one of a box."""
    action, spec = one.action.copy(), real.adapter.spec.action
    if spec.kind == "discrete":
        action[step] = rng.integers(spec.size)
    else:
        donor = real.rollouts[int(rng.integers(len(real.rollouts)))].action
        action[step] = donor[int(rng.integers(len(donor)))] * rng.choice([1.0, 1.0, 3.0, 30.0, -1.0])
    return action
