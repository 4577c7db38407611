"""A base for adapters of environments whose rows show the whole state: give it a spec, bounds, and how to step.

A subclass sets `spec`, `low`, `high` and, where there are goals, `TASKS`; it defines `simulator()` and either
`restore(env, row)` (steps are then taken one by one in that environment) or `begin` and `advance` (many at once).
`docs/new_environment.py` walks through one.
"""

from __future__ import annotations

import string
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Self

import gymnasium
import numpy as np

from qualcheck.errors import unknown_name
from qualcheck.spec import EnvSpec, Rule
from qualcheck.types import (
    AnyArray,
    BoolArray,
    FloatArray,
    GoalRows,
    IntArray,
    Legality,
    OpenLoop,
    Placement,
    Replay,
    Rollouts,
    Trajectory,
)

CODES = ("", "non_finite", "out_of_range", "bad_action", "simulator_warning", "clipped_velocity")
NON_FINITE, OUT_OF_RANGE, BAD_ACTION, SIMULATOR_WARNING, CLIPPED = range(1, len(CODES))
RULES = (
    # the first two stand in the order of the codes that `takeable` returns for the same faults
    Rule("row.finite", "range", "1", "finite", "every number of the row is finite"),
    Rule("row.range", "range", "1", "low to high", "every number of the row is within the bounds of the environment"),
    Rule("step.action_range", "range", "1", "low to high", "the action needed no clipping", hard=False),
)
PREDICATES = ("intended", "released")
RowTest = Callable[[AnyArray], BoolArray]  # (R, O) -> (R,)


def fold(text: str) -> str:
    """The text in lower case without punctuation and with single spaces."""
    return " ".join(text.lower().translate(str.maketrans(string.punctuation, " " * len(string.punctuation))).split())


class TaskEnv(gymnasium.Wrapper[AnyArray, AnyArray, AnyArray, AnyArray]):
    """The simulator with one task: an episode ends with the goal, as the simulator says, or at the horizon."""

    def __init__(self, env: Any, goal: RowTest, horizon: int, text: str) -> None:
        super().__init__(env)
        self._goal, self._horizon, self._text, self._steps = goal, horizon, text, 0

    def reset(self, **options: Any) -> tuple[AnyArray, dict[str, Any]]:
        self._steps = 0
        obs, info = self.env.reset(**options)
        return obs, {**info, "is_success": False, "instruction": self._text}

    def step(self, action: AnyArray) -> tuple[AnyArray, float, bool, bool, dict[str, Any]]:
        obs, reward, terminated, truncated, info = self.env.step(action)
        self._steps += 1
        done = bool(self._goal(np.asarray(obs)[None])[0])
        told = {**info, "is_success": done, "instruction": self._text}
        return obs, float(reward), terminated or done, truncated or self._steps >= self._horizon, told


class Plain:
    """See the module; `qualcheck.adapter.EnvAdapter` says what each method promises."""

    spec: EnvSpec
    low: AnyArray  # (O,) bounds of a row, which a simulator can take on within
    high: AnyArray
    rules: tuple[Rule, ...] = RULES
    findings: tuple[str, ...] = ()
    family = ""
    # task -> level, sentences, and whether its goal holds on rows
    TASKS: ClassVar[Mapping[str, tuple[str, tuple[str, ...], RowTest]]] = {}

    def __init__(self) -> None:
        self.steps_executed = 0
        self._env: Any = None

    # -- what a subclass says ------------------------------------------------------------------------------------

    def simulator(self) -> Any:
        """A new gymnasium.Env of the environment without a task."""
        raise NotImplementedError(f"{type(self).__name__} gives no simulator()")

    def restore(self, env: Any, row: FloatArray) -> None:
        """Put an environment made by `simulator` into the state that a row (O,) shows."""
        raise NotImplementedError(f"{type(self).__name__} gives neither restore() nor advance()")

    def begin(self, obs: FloatArray) -> tuple[FloatArray, IntArray]:
        """States that takeable rows show, (R, O) -> (R, S), and a code where a row does not tell its state, (R,)."""
        return obs, np.zeros(len(obs), np.int8)

    def advance(self, state: FloatArray, action: FloatArray) -> tuple[FloatArray, FloatArray, BoolArray]:
        """One clipped action: (R, S), (R, A) -> states (R, S), rows (R, O), and whether all is sound, (R,)."""
        if self._env is None:
            self._env = self.simulator()
            self._env.reset(seed=0)
        end = np.full(state.shape, np.nan)
        for i in range(len(state)):
            self.restore(self._env, state[i])
            end[i] = self._env.unwrapped.step(action[i])[0]
        sound: BoolArray = np.isfinite(end).all(axis=1)
        return end, end, sound

    def reward_of(self, start: FloatArray, action: FloatArray, end: FloatArray) -> FloatArray:  # noqa: ARG002
        """The reward of transitions, (M, O), (M, A), (M, O) -> (M,); NaN where it is not known."""
        return np.full(len(start), np.nan)

    # -- the contract --------------------------------------------------------------------------------------------

    def layouts(self) -> tuple[EnvSpec, ...]:
        return (self.spec,)

    def with_layout(self, obs_size: int) -> Self:  # noqa: ARG002  there is one
        return self

    def families(self) -> tuple[str, ...]:
        return ()

    def with_family(self, name: str) -> Self:  # noqa: ARG002  there is one simulator
        return self

    def recognise(self, rollouts: Rollouts) -> tuple[str, str]:  # noqa: ARG002
        return "", ""

    def takeable(self, obs: AnyArray) -> IntArray:
        wide = obs.astype(np.float64, copy=False)
        inside = ((wide >= self.low) & (wide <= self.high)).all(axis=1)
        finite = np.isfinite(wide).all(axis=1)
        return np.where(inside, 0, np.where(finite, OUT_OF_RANGE, NON_FINITE)).astype(np.int8)

    def _clipped(self, action: AnyArray) -> FloatArray:
        return np.clip(action.astype(np.float64), self.spec.action.low, self.spec.action.high)

    def _stepped(self, obs: AnyArray, action: AnyArray) -> tuple[FloatArray, IntArray]:
        end, code = np.full(obs.shape, np.nan), self.takeable(obs).astype(np.int8)
        code[(code == 0) & ~np.isfinite(action).all(axis=1)] = BAD_ACTION
        at = np.flatnonzero(code == 0)
        state, code[at] = self.begin(obs[at].astype(np.float64))
        told = code[at] == 0
        at, state = at[told], state[told]
        if len(at):
            _, end[at], sound = self.advance(state, self._clipped(action[at]))
            self.steps_executed += len(at)
            code[at[~sound]] = SIMULATOR_WARNING
        end[code != 0] = np.nan
        return end, code

    def replay(self, rollouts: Rollouts) -> Replay:
        before = self.steps_executed
        end, code = self._stepped(rollouts.start_obs, rollouts.action)
        return Replay(end[None], ("exact",), code, self.steps_executed - before)

    def open_loop(self, rollouts: Rollouts) -> OpenLoop:
        offsets = rollouts.offsets + np.arange(rollouts.n_rollouts + 1)
        obs = np.full((int(offsets[-1]), self.spec.obs_size), np.nan)
        ok, code = np.zeros(len(obs), bool), np.full(rollouts.n_rollouts, NON_FINITE, np.int8)
        present = np.flatnonzero(rollouts.length + rollouts.has_final > 0)
        obs[offsets[present]] = rollouts.obs[rollouts.first_row[present]]
        code[present] = self.takeable(obs[offsets[present]])
        who = np.flatnonzero(code == 0)
        ok[offsets[who]] = True
        state, code[who] = self.begin(obs[offsets[who]])
        state, who = state[code[who] == 0], who[code[who] == 0]
        for step in range(int(rollouts.length.max(initial=0))):
            going = rollouts.length[who] > step
            state, who = state[going], who[going]
            action = rollouts.action[rollouts.offsets[who] + step]
            good = np.isfinite(action).all(axis=1)
            code[who[~good]] = BAD_ACTION
            state, who, action = state[good], who[good], action[good]
            if not len(who):
                break
            state, rows, sound = self.advance(state, self._clipped(action))
            self.steps_executed += len(who)
            code[who[~sound]] = SIMULATOR_WARNING
            state, who, rows = state[sound], who[sound], rows[sound]
            at = offsets[who] + step + 1
            obs[at], ok[at] = rows, True
        return OpenLoop(Trajectory(obs, offsets, ok), code)

    def legality(
        self,
        rollouts: Rollouts,
        placements: Sequence[Placement],  # noqa: ARG002  no law depends on the task
        which: IntArray,  # noqa: ARG002
    ) -> Legality:
        rule = self.takeable(rollouts.end_obs).astype(np.int16)
        rule[~rollouts.has_end] = -1
        with np.errstate(invalid="ignore"):
            action = rollouts.action.astype(np.float64)
            outside = (action < self.spec.action.low) | (action > self.spec.action.high)
            clipped: BoolArray = np.logical_or.reduce(outside, axis=1)
        soft = {"step.action_range": clipped, **self.soft(rollouts)}
        return Legality(rule, np.full(rollouts.n_rollouts, -1, np.int16), soft)

    def soft(self, rollouts: Rollouts) -> dict[str, BoolArray]:  # noqa: ARG002  for subclasses
        """Further soft rules, by id: transitions that break them, (M,)."""
        return {}

    def place(self, instruction: str | None, goal: AnyArray | None = None) -> Placement:  # noqa: ARG002
        if not self.TASKS:
            return Placement("", "", code="no_goal")
        if instruction is None or not fold(instruction):
            return Placement("", "", code="no_instruction")
        for name, (_, texts, _) in self.TASKS.items():
            if fold(instruction) in {fold(text) for text in texts}:
                return Placement(name, name)
        return Placement("", "", code="ambiguous_instruction")

    def placement_of_task(self, name: str) -> Placement:
        """A task by its id or sentence; raises UnknownName."""
        found = Placement(name, name) if name in self.TASKS else self.place(name)
        if not found.task:
            raise unknown_name("task or sentence", name, list(self.TASKS))
        return found

    def annotate(self, rows: Trajectory, rollouts: Rollouts) -> Trajectory:  # noqa: ARG002  rows show everything
        return rows

    def goals(self, rows: Trajectory, placements: Sequence[Placement], which: IntArray) -> GoalRows:
        met, share = np.zeros(len(rows.obs), bool), np.zeros(len(rows.obs))
        owner = np.repeat(np.asarray(which, np.int64), np.diff(rows.offsets))  # (M+N,) index into placements
        for k, placement in enumerate(placements):
            if not placement.task:
                share[owner == k] = np.nan
                continue
            at = np.flatnonzero((owner == k) & rows.ok)
            met[at] = self.TASKS[placement.task][2](rows.obs[at])
        share[met] = 1.0
        return GoalRows(met, met.copy(), share)

    def reward(self, rollouts: Rollouts, placements: Sequence[Placement], which: IntArray) -> dict[str, FloatArray]:
        placed = np.array([placements[k].task != "" for k in which], bool)[rollouts.rollout]
        start, end = rollouts.start_obs.astype(np.float64), rollouts.end_obs.astype(np.float64)
        usable = placed & rollouts.has_end & (self.takeable(end) == 0) & np.isfinite(rollouts.action).all(axis=1)
        gain = np.full(rollouts.n_transitions, np.nan)
        at = np.flatnonzero(usable)
        gain[at] = self.reward_of(start[at], self._clipped(rollouts.action[at]), end[at])
        return {"intended": gain}

    def referee(
        self,
        obs: AnyArray,
        action: AnyArray,
        seed: int = 0,  # noqa: ARG002  nothing is drawn
        hidden: FloatArray | None = None,  # noqa: ARG002  rows show the whole state
    ) -> tuple[AnyArray, IntArray]:
        return self._stepped(obs, action)

    def make_env(self, task: str, predicates: str = "intended", **options: Any) -> TaskEnv:
        """The simulator of one task; an unknown task or predicate set raises UnknownName."""
        if predicates not in PREDICATES:
            raise unknown_name("predicate set", predicates, list(PREDICATES))
        if task not in self.TASKS:
            raise unknown_name(f"{self.spec.id} task", task, list(self.TASKS))
        _, texts, goal = self.TASKS[task]
        return TaskEnv(self.simulator(), goal, options.get("horizon", self.spec.horizon), texts[0])

    def tasks(self) -> dict[str, tuple[str, ...]]:
        levels = dict.fromkeys(level for level, _, _ in self.TASKS.values())
        return {level: tuple(name for name, task in self.TASKS.items() if task[0] == level) for level in levels}

    def floor(self, task: str, policy: str, horizon: int) -> tuple[int, int] | None:  # noqa: ARG002  none ships
        return None

    def measure_floor(
        self, task: str, policy: str, horizon: int, episodes: int, rng: np.random.Generator
    ) -> tuple[int, int] | None:
        """Episodes that meet the goal on a row after the first, out of fresh resets, with no or random actions."""
        env, spec, successes = self.make_env(task, horizon=horizon), self.spec.action, 0
        for _ in range(episodes):
            env.reset(seed=int(rng.integers(2**31)))
            drawn = rng.uniform(spec.low, spec.high, (horizon, spec.size)) * (policy == "random")
            for action in drawn.astype(np.float32):
                *_, ended, over, info = env.step(action)
                if ended or over:
                    successes += int(info["is_success"])
                    break
        env.close()
        return successes, episodes

    def close(self) -> None:
        if self._env is not None:
            self._env.close()
        self._env = None
