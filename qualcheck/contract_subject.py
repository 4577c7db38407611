"""What an adapter says about real rollouts, in the form in which the laws of `contract` compare it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from qualcheck.adapter import EnvAdapter
from qualcheck.cut import cut
from qualcheck.types import AnyArray, FloatArray, IntArray, Placement, Rollouts, Trajectory

PerRollout = list[dict[str, AnyArray]]


@dataclass
class Subject:
    """An adapter under test with its real rollouts."""

    adapter: EnvAdapter
    rollouts: Rollouts
    rng: np.random.Generator
    given: Mapping[str, float] | None = None

    @cached_property
    def base(self) -> PerRollout:
        return results(self.adapter, self.rollouts)

    @cached_property
    def tolerance(self) -> FloatArray:
        """Tolerance of each column, (O,): that of its block, by default a hundredth of the real one-step spread."""
        spec, rollouts = self.adapter.spec, self.rollouts
        limit = np.zeros(spec.obs_size)
        moved = (rollouts.end_obs.astype(np.float64) - rollouts.start_obs)[rollouts.has_end]
        for block in spec.blocks:
            columns = list(block.columns)
            if self.given is not None and block.name in self.given:
                limit[columns] = self.given[block.name]
            elif not spec.exact:
                rounding = 1e-6 * np.abs(rollouts.obs[:, columns]).max()
                limit[columns] = max(0.01 * moved[:, columns].std(axis=0).max(), rounding)
        return limit

    def excess(self, simulated: AnyArray, shown: AnyArray) -> FloatArray:
        """Largest column error in tolerances, infinite where a zero tolerance is missed: (..., O) -> (...)."""
        error = np.abs(simulated.astype(np.float64) - shown)
        with np.errstate(divide="ignore", invalid="ignore"):
            scaled = np.where(error > 0, error / self.tolerance, np.where(error == 0, 0.0, np.inf))
        worst: FloatArray = scaled.max(axis=-1)
        return worst

    def best_excess(self, candidates: AnyArray, shown: AnyArray) -> FloatArray:
        """The excess of the seeding that fits best, (K, M, O), (M, O) -> (M,); NaN where none was tried."""
        with np.errstate(invalid="ignore"):
            tried = np.isfinite(candidates).all(axis=2)
            excess = np.where(tried, self.excess(np.nan_to_num(candidates), shown), np.nan)
        best: FloatArray = np.fmin.reduce(excess, axis=0)
        return best

    def other_actions(self, column: int | None) -> AnyArray:
        """The actions, each replaced by another one; of a box only the given column."""
        action, spec = self.rollouts.action, self.adapter.spec.action
        if spec.kind == "discrete":
            return (action + self.rng.integers(1, spec.size, action.shape)).astype(action.dtype) % spec.size
        changed = action.copy()
        middle = (spec.low + spec.high) / 2
        changed[:, column] = np.where(action[:, column] < middle, spec.high, spec.low)
        return changed


def pieces(rollouts: Rollouts, which: Sequence[int] | IntArray) -> Rollouts:
    """The named rollouts, whole, in that order."""
    index = np.asarray(which, np.int64)
    return cut(rollouts, index, np.zeros(len(index), np.int64), rollouts.length[index])


def placed(adapter: EnvAdapter, rollouts: Rollouts) -> tuple[list[Placement], IntArray]:
    """The different tasks of the rollouts, and which of them each rollout has, (N,)."""
    goals = rollouts.goal or [None] * rollouts.n_rollouts
    found = [adapter.place(text, goal) for text, goal in zip(rollouts.instruction, goals, strict=True)]
    placements = list(dict.fromkeys(found))
    return placements, np.array([placements.index(one) for one in found], np.int64)


def imagined(adapter: EnvAdapter, rollouts: Rollouts) -> Trajectory:
    """Rows 0..T as the rollouts show them; rows that they do not show are not ok."""
    offsets = rollouts.offsets + np.arange(rollouts.n_rollouts + 1)
    at = np.arange(len(rollouts.obs))
    at += np.repeat(offsets[:-1] - rollouts.row_offsets[:-1], np.diff(rollouts.row_offsets))
    obs, ok = np.zeros((int(offsets[-1]), rollouts.obs.shape[1]), rollouts.obs.dtype), np.zeros(int(offsets[-1]), bool)
    obs[at], ok[at] = rollouts.obs, adapter.takeable(rollouts.obs) == 0
    return adapter.annotate(Trajectory(obs, offsets, ok), rollouts)


def results(adapter: EnvAdapter, rollouts: Rollouts) -> PerRollout:
    """Everything the adapter says about each rollout, by name; values that a code voids are zeroed."""
    placements, which = placed(adapter, rollouts)
    rows = imagined(adapter, rollouts)
    replay, played = adapter.replay(rollouts), adapter.open_loop(rollouts)
    legality = adapter.legality(rollouts, placements, which)
    claimed, reached = (adapter.goals(each, placements, which) for each in (rows, played.trajectory))
    candidates = np.where((replay.code == 0)[None, :, None], replay.candidates, 0)
    transition = {f"candidate {name}": candidates[k] for k, name in enumerate(replay.seedings)}
    transition |= {"replay code": replay.code, "legality rule": legality.rule, **legality.soft}
    named = ("situation", replay.situation), ("hidden state", replay.hidden), ("columns compared", replay.compared)
    for name, part in named:
        if part is not None:
            transition[name] = part
    reward = adapter.reward(rollouts, placements, which)
    transition |= {f"reward {name}": values for name, values in reward.items()}
    row = {"open-loop rows": np.where(played.trajectory.ok[:, None], played.trajectory.obs, 0)}
    row |= {"open-loop ok": played.trajectory.ok, "imagined ok": rows.ok}
    whole: dict[str, AnyArray] = {"row-0 rule": legality.row0_rule, "open-loop code": played.code}
    for name, goal in (("imagined", claimed), ("replayed", reached)):
        row |= {f"{name} {part}": getattr(goal, part) for part in ("intended", "released", "share")}
        if goal.margin is not None:
            whole[f"{name} margin"] = goal.margin
    places = [(transition, rollouts.offsets), (row, rows.offsets), (whole, np.arange(rollouts.n_rollouts + 1))]
    return [
        {name: values[at[i] : at[i + 1]] for part, at in places for name, values in part.items()}
        for i in range(rollouts.n_rollouts)
    ]


def differences(found: PerRollout, expected: PerRollout, why: str) -> Iterator[str]:
    """At most one line: the first result that is not the expected one."""
    for i, (one, other) in enumerate(zip(found, expected, strict=True)):
        for name in one.keys() | other.keys():
            if name not in one or name not in other or not same(one[name], other[name]):
                yield f"{name} of rollout {i} changes {why}"
                return


def same(one: AnyArray, other: AnyArray) -> bool:
    return np.array_equal(one, other, equal_nan=one.dtype.kind == "f" and other.dtype.kind == "f")


def _shape(name: str, array: Any, shape: tuple[int, ...], kinds: str) -> Iterator[str]:
    if not isinstance(array, np.ndarray) or array.shape != shape or array.dtype.kind not in kinds:
        found = f"{array.dtype} {array.shape}" if isinstance(array, np.ndarray) else type(array).__name__
        yield f"{name} is {found}, expected shape {shape} of kind {kinds}"


def shapes(adapter: EnvAdapter, rollouts: Rollouts) -> Iterator[str]:
    n, m, spec = rollouts.n_rollouts, rollouts.n_transitions, adapter.spec
    placements, which = placed(adapter, rollouts)
    replay, played = adapter.replay(rollouts), adapter.open_loop(rollouts)
    legality, rows = adapter.legality(rollouts, placements, which), imagined(adapter, rollouts)
    goal = adapter.goals(rows, placements, which)
    yield from _shape("takeable", adapter.takeable(rollouts.obs), (len(rollouts.obs),), "iu")
    yield from _shape("Replay.candidates", replay.candidates, (len(replay.seedings), m, spec.obs_size), "fiu")
    if not spec.exact and replay.candidates.dtype != np.float64:
        yield f"Replay.candidates are {replay.candidates.dtype}, expected float64 where the environment is not exact"
    yield from _shape("Replay.code", replay.code, (m,), "iu")
    if np.any((replay.code < 0) | (replay.code >= len(spec.codes))):
        yield "Replay.code leaves the list spec.codes"
    if replay.situation is not None:
        yield from _shape("Replay.situation", replay.situation, (m,), "iu")
        if np.any((replay.situation < 0) | (replay.situation >= len(spec.situations))):
            yield "Replay.situation leaves the list spec.situations"
    if replay.compared is not None:
        yield from _shape("Replay.compared", replay.compared, (m, spec.obs_size), "b")
    if (replay.hidden is None) != (not spec.hidden):
        yield "Replay.hidden and spec.hidden do not both say whether rows hide something"
    if replay.hidden is not None:
        yield from _shape("Replay.hidden", replay.hidden, (m, len(spec.hidden)), "f")
    yield from _shape("OpenLoop.trajectory.obs", played.trajectory.obs, (m + n, spec.obs_size), "fiu")
    yield from _shape("OpenLoop.trajectory.ok", played.trajectory.ok, (m + n,), "b")
    if not np.array_equal(played.trajectory.offsets, rows.offsets):
        yield "OpenLoop.trajectory.offsets are not those of rows 0..T of each rollout"
    yield from _shape("OpenLoop.code", played.code, (n,), "iu")
    yield from _shape("Legality.rule", legality.rule, (m,), "i")
    yield from _shape("Legality.row0_rule", legality.row0_rule, (n,), "i")
    for name, broken in legality.soft.items():
        yield from _shape(f"Legality.soft[{name!r}]", broken, (m,), "b")
    yield from _shape("GoalRows.intended", goal.intended, (m + n,), "b")
    yield from _shape("GoalRows.released", goal.released, (m + n,), "b")
    yield from _shape("GoalRows.share", goal.share, (m + n,), "f")
    for name, values in adapter.reward(rollouts, placements, which).items():
        yield from _shape(f"reward {name!r}", values, (m,), "f")
    hidden = None if replay.hidden is None else replay.hidden[:4]
    end, code = adapter.referee(rollouts.start_obs[:4], rollouts.action[:4], hidden=hidden)
    yield from _shape("referee rows", end, (min(m, 4), spec.obs_size), "fiu")
    yield from _shape("referee codes", code, (min(m, 4),), "iu")


def play(adapter: EnvAdapter, instructions: Mapping[str, str], n: int, rng: np.random.Generator) -> Rollouts:
    """Rollouts of random actions in the environments that the adapter makes, stored as the environments show them.

    Args:
        adapter: makes the environments.
        instructions: task -> a sentence for it; the tasks are played in turn.
        n: how many rollouts; each ends with its episode.
        rng: draws resets and actions.
    """
    spec, tasks = adapter.spec, list(instructions)
    obs: list[AnyArray] = []
    action: list[AnyArray] = []
    reward: list[float] = []
    ends: list[tuple[bool, bool]] = []
    offsets = np.zeros(n + 1, np.int64)
    for i in range(n):
        env = adapter.make_env(tasks[i % len(tasks)])
        env.action_space.seed(int(rng.integers(2**31)))
        row, _ = env.reset(seed=int(rng.integers(2**31)))
        obs.append(row[: spec.obs_size])
        while offsets[i] == len(action) or not any(ends[-1]):
            action.append(env.action_space.sample())
            row, gained, terminated, truncated, _ = env.step(action[-1])
            obs.append(row[: spec.obs_size])
            reward.append(float(gained))
            ends.append((bool(terminated), bool(truncated)))
        offsets[i + 1] = len(action)
        env.close()
    return Rollouts(
        obs=np.array(obs).reshape(-1, spec.obs_size),
        action=np.array(action),
        offsets=offsets,
        has_final=np.ones(n, bool),
        source=np.zeros(n, np.int32),
        source_rollout=np.arange(n, dtype=np.int32),
        source_step=np.zeros(n, np.int32),
        instruction=[instructions[tasks[i % len(tasks)]] for i in range(n)],
        reward=np.array(reward),
        terminal=np.array([end[0] for end in ends], bool),
        truncated=np.array([end[1] for end in ends], bool),
        is_reset=np.ones(n, bool),
    )
