"""HalfCheetah of ImagineBench for qualcheck: one batched MuJoCo step out of every row."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from qualcheck.cores import cores
from qualcheck.envs.halfcheetah import goals, layout, lookalikes, reward, rules, text
from qualcheck.envs.halfcheetah.dynamics import Dynamics
from qualcheck.envs.halfcheetah.layout import (
    BAD_ACTION,
    BENCHMARK_SIZE,
    ILLEGAL_START,
    SIMULATOR_WARNING,
    STATE_SIZE,
    SUBSTEPS,
    TravelledRows,
    from_reset,
    state_of,
    usable_actions,
)
from qualcheck.envs.halfcheetah.lookalikes import Step
from qualcheck.episodes import Episodes
from qualcheck.errors import UsageError
from qualcheck.spec import EnvSpec
from qualcheck.types import (
    AnyArray,
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


@dataclass(frozen=True)
class Stepped:
    """Every recorded action applied to its row."""

    end: FloatArray  # (M, 17) NaN where there is a code
    moved: FloatArray  # (M,) m
    code: IntArray  # (M,)


class HalfCheetah:
    """Adapter of the HalfCheetah environment; see `qualcheck.adapter.EnvAdapter` for what each method promises."""

    rules = rules.RULES

    def __init__(self, obs_size: int = BENCHMARK_SIZE) -> None:
        """Args:
            obs_size: 18 for the benchmark's rows, which begin with the displacement of the last step; 17 without it.

        Raises:
            UsageError: it is neither.
        """
        if obs_size not in (STATE_SIZE, BENCHMARK_SIZE):
            raise UsageError(f"HalfCheetah rows of {obs_size} columns; expected {STATE_SIZE} or {BENCHMARK_SIZE}.")
        self.spec = layout.make_spec(obs_size, f"rules {rules.RULES_VERSION}")
        self._dynamics: Dynamics | None = None
        self._latest: tuple[weakref.ref[Rollouts], Stepped] | None = None

    def layouts(self) -> tuple[EnvSpec, ...]:
        return tuple(layout.make_spec(size, self.spec.version) for size in (BENCHMARK_SIZE, STATE_SIZE))

    def with_layout(self, obs_size: int) -> HalfCheetah:
        return self if obs_size == self.spec.obs_size else HalfCheetah(obs_size)

    @property
    def findings(self) -> tuple[str, ...]:
        """What a user should know of goals and rewards in this layout, one line each."""
        if self.spec.obs_size == BENCHMARK_SIZE:
            return ()
        return ("rows show no displacement: goals and rewards use the simulated displacement of each transition",)

    @property
    def steps_executed(self) -> int:
        """mj_step calls of this adapter so far, five an action, open-loop replays and their padding included."""
        return self._dynamics.steps if self._dynamics is not None else 0

    def _simulator(self) -> Dynamics:
        if self._dynamics is None:
            self._dynamics = Dynamics(max(1, cores() // self.spec.batches_at_once))
        return self._dynamics

    def _stepped(self, rollouts: Rollouts) -> Stepped:
        if self._latest is not None and self._latest[0]() is rollouts:
            return self._latest[1]
        start = state_of(rollouts.obs)[rollouts.row]  # (M, 17)
        code = np.where(self.takeable(rollouts.obs)[rollouts.row] != 0, np.int8(ILLEGAL_START), np.int8(0))
        code[(code == 0) & ~usable_actions(rollouts.action)] = BAD_ACTION
        end, moved = np.full(start.shape, np.nan), np.full(len(start), np.nan)
        good = np.flatnonzero(code == 0)
        if len(good):
            end[good], moved[good], sound = self._simulator().step(start[good], rollouts.action[good])
            code[good[~sound]] = SIMULATOR_WARNING
        stepped = Stepped(end, moved, code)
        self._latest = (weakref.ref(rollouts), stepped)
        return stepped

    @property
    def family(self) -> str:
        return ""

    def families(self) -> tuple[str, ...]:
        return ()

    def with_family(self, name: str) -> HalfCheetah:  # noqa: ARG002  there is one simulator
        return self

    def recognise(self, rollouts: Rollouts) -> tuple[str, str]:  # noqa: ARG002
        return "", ""

    def lookalikes(self) -> dict[str, Step]:
        """Simulators of other environments whose rows have this shape, by name; see `qualcheck.explaining.worlds`."""
        return lookalikes.lookalikes(self.spec.obs_size)

    def takeable(self, obs: AnyArray) -> IntArray:
        return layout.takeable(obs)

    def replay(self, rollouts: Rollouts) -> Replay:
        """One candidate, as a row holds the whole state; `simulator_steps` counts mj_step calls, five a transition."""
        stepped = self._stepped(rollouts)
        steps = SUBSTEPS * int(np.isin(stepped.code, (0, SIMULATOR_WARNING)).sum())
        return Replay(self._row(stepped.moved, stepped.end)[np.newaxis], ("exact",), stepped.code.copy(), steps)

    def _row(self, moved: FloatArray, state: FloatArray) -> FloatArray:
        """Rows in the layout of the spec, (R,), (R, 17) -> (R, O), never the array given."""
        return np.concatenate([moved[:, None], state], axis=1)[:, BENCHMARK_SIZE - self.spec.obs_size :]

    def open_loop(self, rollouts: Rollouts) -> OpenLoop:
        """Rows after the first come from the simulator; the first one is the recorded one, and may be perturbed."""
        n = rollouts.n_rollouts
        offsets = rollouts.offsets + np.arange(n + 1)
        obs = np.zeros((int(offsets[-1]), self.spec.obs_size))
        ok, travel = np.zeros(len(obs), bool), np.zeros(len(obs))
        code = np.full(n, ILLEGAL_START, np.int8)
        present = np.flatnonzero((rollouts.length + rollouts.has_final > 0) & (len(rollouts.obs) > 0))
        if len(present):
            first = rollouts.obs[rollouts.first_row[present]].astype(np.float64)
            good = self.takeable(first) == 0
            obs[offsets[present]], ok[offsets[present]] = first, good
            code[present[good]] = 0
        played = TravelledRows(obs, offsets, ok, travel, from_reset(rollouts))
        runs = np.flatnonzero(code == 0)
        if len(runs):
            self._play(rollouts, runs, played, code)
        return OpenLoop(played, code)

    def _play(self, rollouts: Rollouts, runs: IntArray, played: TravelledRows, code: IntArray) -> None:
        """Fill in the simulated rows and the codes of the rollouts in `runs`."""
        usable = usable_actions(rollouts.action)  # (M,)
        action = np.where(usable[:, None], rollouts.action, 0)
        inside = np.flatnonzero(np.isin(rollouts.rollout, runs))  # (m,) transitions simulated
        offsets = np.concatenate([[0], np.cumsum(rollouts.length[runs])])
        start = state_of(played.obs[played.offsets[runs]])
        bad = np.cumsum(~usable)  # (M,) refused actions up to and with each
        before = np.concatenate([[0], bad])[rollouts.offsets[:-1]]
        for at, state, moved, sound in self._simulator().play(start, action[inside], offsets):
            taken = inside[at]  # (m,) transitions of the batch
            rollout = rollouts.rollout[taken]
            row = taken + rollout + 1  # rollouts before this one have one row more than transitions
            acted = bad[taken] == before[rollout]
            played.ok[row] = sound & acted
            played.travel[row] = np.where(sound & acted, moved, 0)
            played.obs[row] = np.where((sound & acted)[:, None], self._row(moved, state), 0)
            code[rollout[~sound]] = SIMULATOR_WARNING
            code[rollout[~acted]] = BAD_ACTION

    def annotate(self, rows: Trajectory, rollouts: Rollouts) -> TravelledRows:
        """Recorded rows 0..T with what a goal needs beside them: which rollouts start at a reset, and displacements.

        Rows of 18 numbers show their displacements; to rows of 17 the simulated displacement of each transition is
        given, and they are not ok after a transition that could not be simulated.
        """
        if self.spec.obs_size == BENCHMARK_SIZE:
            return TravelledRows(rows.obs, rows.offsets, rows.ok, goals.travel(rows), from_reset(rollouts))
        stepped = self._stepped(rollouts)
        after = np.arange(rollouts.n_transitions) + rollouts.rollout + 1
        travel, ok = np.zeros(len(rows.obs)), rows.ok.copy()
        shown = after < rows.offsets[1:][rollouts.rollout]
        travel[after[shown]] = np.nan_to_num(stepped.moved[shown])
        ok[after[shown & (stepped.code != 0)]] = False
        return TravelledRows(rows.obs, rows.offsets, ok, travel, from_reset(rollouts))

    def legality(
        self,
        rollouts: Rollouts,
        placements: Sequence[Placement],  # noqa: ARG002  # no law depends on the task
        which: IntArray,  # noqa: ARG002
    ) -> Legality:
        rule, soft = rules.judge(rollouts)
        return Legality(rule, rules.reset_rule(rollouts), soft)

    def place(self, instruction: str | None, goal: AnyArray | None = None) -> Placement:  # noqa: ARG002  # no goal arrays
        return text.place(instruction)

    def placement_of_task(self, name: str) -> Placement:
        """The placement of a task given by its id; raises UnknownName."""
        return text.placement_of_task(name)

    def goals(self, rows: Trajectory, placements: Sequence[Placement], which: IntArray) -> GoalRows:
        found = goals.evaluate(rows, placements, which)
        return replace(found, margin=goals.margin(rows, placements, which))

    def reward(self, rollouts: Rollouts, placements: Sequence[Placement], which: IntArray) -> dict[str, FloatArray]:
        if self.spec.obs_size == BENCHMARK_SIZE:
            return reward.recompute(rollouts, rollouts.end_obs[:, 0].astype(np.float64), placements, which)
        return reward.recompute(rollouts, self._stepped(rollouts).moved, placements, which)

    def referee(
        self,
        obs: AnyArray,
        action: AnyArray,
        seed: int = 0,  # noqa: ARG002  # exact
        hidden: FloatArray | None = None,  # noqa: ARG002  # rows show the whole state
    ) -> tuple[AnyArray, IntArray]:
        from qualcheck.envs.halfcheetah import simulator  # not at the top: gymnasium's environment is slow to import

        return simulator.referee(obs, action)

    def make_env(self, task: str, predicates: str = "intended", **options: Any) -> Any:
        from qualcheck.envs.halfcheetah import simulator  # see `referee`

        return simulator.HalfCheetahTask(task, predicates, **{"obs_size": self.spec.obs_size, **options})

    def make_episodes(self, task: str, predicates: str = "intended", **options: Any) -> Episodes:
        """Many episodes at once; see `qualcheck.episodes`."""
        from qualcheck.envs.halfcheetah import episodes  # see `referee`

        return episodes.HalfCheetahEpisodes(task, predicates, **{"obs_size": self.spec.obs_size, **options})

    def tasks(self) -> dict[str, tuple[str, ...]]:
        return goals.TASKS

    def floor(self, task: str, policy: str, horizon: int) -> tuple[int, int] | None:
        from qualcheck.envs.halfcheetah import floors  # not at the top: it also runs by itself, as a module

        return floors.shipped(task, policy, horizon)

    def measure_floor(
        self, task: str, policy: str, horizon: int, episodes: int, rng: np.random.Generator
    ) -> tuple[int, int]:
        from qualcheck.envs.halfcheetah import floors  # see `floor`

        return floors.measure(task, policy, horizon, episodes, rng)

    def close(self) -> None:
        if self._dynamics is not None:
            self._dynamics.close()
        self._dynamics, self._latest = None, None
