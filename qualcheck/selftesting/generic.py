"""Faults that any environment can have, planted over its named blocks."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from qualcheck.grade import parse_grade
from qualcheck.selftesting.plant import Fault, Plant, with_rows
from qualcheck.selftesting.real import Real
from qualcheck.spec import Block
from qualcheck.types import AnyArray, BoolArray, Rollouts, Trajectory

SIZES = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0)  # tolerances
TRIES = 30  # draws until a fault fits


def faults(real: Real) -> list[Fault]:
    """The declared taxonomy of an environment: what has rows, actions, rewards and goals can go wrong in these ways."""
    spec = real.adapter.spec
    sizes = () if spec.exact else SIZES
    found = [_displaced(block, sizes) for block in spec.blocks]
    found += [_frozen(block) for block in spec.blocks]
    found += [
        Fault("action swapped", "step", _swapped),
        Fault("actions shifted", "step", _shifted),
        Fault("duplicated step", "step", _duplicated),
        Fault("non-finite number", "step", _non_finite),
        Fault("goal swapped", "goal", _goal_swapped),
        Fault("tail cut", "goal", _tail_cut),
    ]
    if real.rollouts[0].reward is not None:
        found.append(Fault("reward one step late", "flag:reward_shift", _late_reward))
    return found


def limit_of(real: Real) -> float:
    """S of the judging grade, 0 where it is exact."""
    return parse_grade(None, real.adapter.spec).limit or 0.0


def _step(one: Rollouts, rng: np.random.Generator, last: int = 1) -> int:
    """A transition after the first and before the last ones."""
    return int(rng.integers(1, max(2, one.n_transitions - last)))


def _displaced(block: Block, sizes: tuple[float, ...]) -> Fault:
    """The block stands elsewhere on one row."""

    def plant(real: Real, at: int, size: float, rng: np.random.Generator) -> Plant | None:
        one = real.rollouts[at]
        mine = [column for column in block.columns if real.compared[at][column]]
        for _ in range(TRIES if mine else 0):
            step, column = _step(one, rng), int(rng.choice(mine))
            rows = one.obs.copy()
            if real.adapter.spec.exact:
                other = _other_value(real, column, rows[step + 1, column], rng)
                if other is None:
                    continue
                rows[step + 1, column] = other
                return Plant(f"displaced {block.name}", "", "step", with_rows(one, rows), step, at, np.inf)
            tolerance = real.tolerance(at, step, column, limit_of(real))
            if not np.isfinite(tolerance) or tolerance <= 0:
                continue
            rows = rows.astype(np.float64)
            rows[step + 1, column] += rng.choice([-1, 1]) * size * tolerance
            label = f"{size:g}"
            return Plant(f"displaced {block.name}", label, "step", with_rows(one, rows), step, at, size)
        return None

    return Fault(f"displaced {block.name}", "step", plant, sizes)


def _other_value(real: Real, column: int, value: float, rng: np.random.Generator) -> float | None:
    """A value that the column has on real rows and that is not this one."""
    others = np.unique(np.concatenate([one.obs[:, column] for one in real.rollouts]))
    others = others[others != value]
    return float(rng.choice(others)) if len(others) else None


def _frozen(block: Block) -> Fault:
    """The block stays where it was for a step in which it really moves."""
    columns = list(block.columns)

    def plant(real: Real, at: int, _size: float, rng: np.random.Generator) -> Plant | None:
        one = real.rollouts[at]
        if not real.compared[at][columns].all():
            return None
        moved = np.abs(np.diff(one.obs[:, columns].astype(np.float64), axis=0))  # (T, C)
        steps = np.flatnonzero((moved > 0).any(axis=1))
        steps = steps[(steps >= 1) & (steps < one.n_transitions - 1)]
        if not len(steps):
            return None
        step = int(rng.choice(steps))
        rows = one.obs.copy()
        rows[step + 1, columns] = rows[step, columns]
        effect = np.inf
        if not real.adapter.spec.exact:
            limit = limit_of(real)
            over = [
                gap / real.tolerance(at, step, column, limit)
                for gap, column in zip(moved[step], columns, strict=True)
                if gap > 0
            ]
            effect = max(over, default=0.0)
        return Plant(f"frozen {block.name}", "", "step", with_rows(one, rows), step, at, effect)

    return Fault(f"frozen {block.name}", "step", plant)


def _swapped(real: Real, at: int, _size: float, rng: np.random.Generator) -> Plant | None:
    """The action of one step is another real one."""
    one = real.rollouts[at]
    step = _step(one, rng)
    donor = real.rollouts[int(rng.integers(len(real.rollouts)))]
    action = one.action.copy()
    action[step] = donor.action[int(rng.integers(donor.n_transitions))]
    if np.array_equal(action[step], one.action[step]):
        return None
    return Plant("action swapped", "", "step", replace(one, action=action), step, at)


def _shifted(real: Real, at: int, _size: float, rng: np.random.Generator) -> Plant | None:
    """From one step on every action stands one step late."""
    one = real.rollouts[at]
    step = _step(one, rng)
    action = one.action.copy()
    action[step:] = one.action[step - 1 : -1]
    if np.array_equal(action[step], one.action[step]):
        return None
    rest = one.n_transitions
    return Plant("actions shifted", "", "step", replace(one, action=action), step, at, honest_after=rest)


def _duplicated(real: Real, at: int, _size: float, rng: np.random.Generator) -> Plant | None:
    """A row and its action stand there twice, so that one step moves nothing."""
    one = real.rollouts[at]
    step = _step(one, rng)
    if np.array_equal(one.obs[step], one.obs[step + 1]):
        return None
    twice = np.insert(np.arange(one.n_transitions), step, step)
    rows = np.insert(np.arange(len(one.obs)), step, step)

    def per_step(values: AnyArray | None) -> AnyArray | None:
        return None if values is None else values[twice]

    longer = replace(
        one,
        obs=one.obs[rows],
        action=one.action[twice],
        offsets=np.array([0, len(twice)], np.int64),
        reward=per_step(one.reward),
        terminal=per_step(one.terminal),
        truncated=per_step(one.truncated),
    )
    return Plant("duplicated step", "", "step", longer, step, at)


def _non_finite(real: Real, at: int, _size: float, rng: np.random.Generator) -> Plant | None:
    one = real.rollouts[at]
    if one.obs.dtype.kind != "f":
        return None
    step = _step(one, rng)
    rows = one.obs.copy()
    rows[step + 1, int(rng.integers(rows.shape[1]))] = rng.choice([np.nan, np.inf, -np.inf])
    return Plant("non-finite number", "", "step", with_rows(one, rows), step, at, np.inf)


def _goal_swapped(real: Real, at: int, _size: float, rng: np.random.Generator) -> Plant | None:
    """The instruction is that of another task, which the rows do not happen to fulfil as well."""
    one = real.rollouts[at]
    others = [k for k, task in enumerate(real.task) if task != real.task[at]]
    if not others or not _reached(real, one):
        return None
    donor = real.rollouts[int(rng.choice(others))]
    changed = replace(one, instruction=donor.instruction, goal=donor.goal if one.goal is not None else None)
    if _reached(real, changed):
        return None
    return Plant("goal swapped", "", "goal", changed, one.n_transitions - 1, at)


def _tail_cut(real: Real, at: int, _size: float, _rng: np.random.Generator) -> Plant | None:
    """The steps that reach the goal are missing."""
    one = real.rollouts[at]
    first = _first_success(real, one)
    if first is None or first < 2:
        return None
    kept = first  # transitions 0 .. first-1; the goal holds on row first+1

    def per_step(values: AnyArray | None) -> AnyArray | None:
        return None if values is None else values[:kept]

    shorter = replace(
        one,
        obs=one.obs[: kept + 1],
        action=one.action[:kept],
        offsets=np.array([0, kept], np.int64),
        reward=per_step(one.reward),
        terminal=None if one.terminal is None else np.zeros(kept, bool),
        truncated=per_step(one.truncated),
    )
    return Plant("tail cut", "", "goal", shorter, kept - 1, at)


def _late_reward(real: Real, at: int, _size: float, _rng: np.random.Generator) -> Plant | None:
    one = real.rollouts[at]
    if one.reward is None or len(np.unique(one.reward)) < 2 or real.task[at] in real.adapter.spec.unrewarded:
        return None
    late = np.concatenate([[0.0], one.reward[:-1]])
    if np.array_equal(late, one.reward):
        return None
    return Plant("reward one step late", "", "flag:reward_shift", replace(one, reward=late), 0, at)


def _reached(real: Real, one: Rollouts) -> bool:
    return bool(_success(real, one)[1:].any())


def _first_success(real: Real, one: Rollouts) -> int | None:
    """The first transition whose end row reaches the goal, if its first row does not."""
    hit = np.flatnonzero(_success(real, one))
    return int(hit[0]) - 1 if len(hit) and hit[0] > 0 else None


def _success(real: Real, one: Rollouts) -> BoolArray:
    """The goal on every row, (T+1,)."""
    adapter = real.adapter
    placements = [adapter.place(one.instruction[0], None if one.goal is None else one.goal[0])]
    rows = Trajectory(one.obs, one.row_offsets, adapter.takeable(one.obs) == 0)
    return adapter.goals(adapter.annotate(rows, one), placements, np.zeros(1, np.int64)).intended
