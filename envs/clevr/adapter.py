"""CLEVR-Robot of ImagineBench for qualcheck: rows hide heights, velocities and spins, so a filter carries them."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import Any

import numpy as np

from qualcheck.envs.clevr import filter as sequential
from qualcheck.envs.clevr import goals, layout, reward, rules, text
from qualcheck.envs.clevr.dynamics import FAMILIES, XY, Dynamics, at_rest, hidden_of, state_of
from qualcheck.envs.clevr.goals import ActedRows
from qualcheck.envs.clevr.layout import (
    BAD_ACTION,
    CARRIED,
    HIDDEN_SIZE,
    HIDDEN_UNKNOWN,
    NON_FINITE,
    OBS_SIZE,
    SIMULATOR_WARNING,
    actions_of,
    from_reset,
    xy,
)
from qualcheck.episodes import Episodes
from qualcheck.errors import UsageError, unknown_name
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

WITNESSES = 1_000  # first transitions that `recognise` simulates
FEWEST_WITNESSES = 3
AGREES_M = 1e-3  # or one unit of the last decimal that rows are rounded to; the families differ by 2e-2 at first
TELLING = 2  # times that: a transition whose two simulations are no further apart tells nothing
CLEAR_SHARE, CLEAR_LEAD = 0.5, 0.2


class Clevr:
    """Adapter of the CLEVR-Robot environment; see `qualcheck.adapter.EnvAdapter` for what each method promises."""

    rules = rules.RULES

    def __init__(self, family: str = FAMILIES[0]) -> None:
        """Args:
            family: of `dynamics.FAMILIES`, the MuJoCo that the files were recorded with.

        Raises:
            UnknownName: no such family.
        """
        if family not in FAMILIES:
            raise unknown_name("simulator family of clevr", family, list(FAMILIES))
        self._family = family
        self.spec = layout.make_spec(f"rules {rules.RULES_VERSION}")
        self._dynamics: Dynamics | None = None
        self._steps_elsewhere = 0  # by simulators of other families
        self._latest: tuple[weakref.ref[Rollouts], Replay] | None = None

    def layouts(self) -> tuple[EnvSpec, ...]:
        return (self.spec,)

    def with_layout(self, obs_size: int) -> Clevr:
        """This adapter, as there is one layout.

        Raises:
            UsageError: it is not that of the rows.
        """
        if obs_size != OBS_SIZE:
            raise UsageError(f"CLEVR-Robot rows of {obs_size} columns; expected {OBS_SIZE}, x and y of five balls.")
        return self

    @property
    def family(self) -> str:
        return self._family

    def families(self) -> tuple[str, ...]:
        return FAMILIES

    def with_family(self, name: str) -> Clevr:
        """An adapter for one of the families; raises UnknownName."""
        return self if name == self._family else Clevr(name)

    def recognise(self, rollouts: Rollouts) -> tuple[str, str]:
        """The family by the first transitions out of resets, whose start is known exactly."""
        first = np.flatnonzero((rollouts.step == 0) & from_reset(rollouts)[rollouts.rollout] & rollouts.has_end)
        code = self.takeable(rollouts.obs)
        first = first[code[rollouts.row[first]] == 0]
        action = actions_of(rollouts.action)
        first = first[action[first] >= 0][:WITNESSES]
        if len(first) < FEWEST_WITNESSES:
            return "", f"only {len(first)} first transitions out of resets can be replayed"
        state = state_of(xy(rollouts.obs[rollouts.row[first]]), at_rest(len(first)))
        ends = np.stack([self._end(name, state, action[first]) for name in FAMILIES])  # (2, F, 5, 2)
        allowed = np.maximum(
            AGREES_M, sequential.trust_of(rollouts, code)[rollouts.rollout[first]] / sequential.ROUNDINGS
        )
        with np.errstate(invalid="ignore"):
            telling = np.abs(ends[0] - ends[1]).max(axis=(1, 2)) > TELLING * allowed
            error = np.abs(ends - xy(rollouts.end_of(first))).max(axis=(2, 3))[:, telling]  # (2, f)
        if error.shape[1] < FEWEST_WITNESSES:
            return "", f"the families agree on all but {error.shape[1]} of {len(first)} first transitions"
        error[np.isnan(error)] = np.inf
        share, median = (error <= allowed[telling]).mean(axis=1), np.median(error, axis=1)
        best = int(np.argmax(share))
        found = "; ".join(
            f"{name}: {share[k]:.1%} within {allowed.max():g} m, median error {median[k]:.1e} m"
            for k, name in enumerate(FAMILIES)
        )
        clear = share[best] >= CLEAR_SHARE and share[best] - share[1 - best] >= CLEAR_LEAD
        return FAMILIES[best] if clear else "", f"{error.shape[1]} telling first transitions: {found}"

    def _end(self, family: str, state: FloatArray, action: IntArray) -> FloatArray:
        """Centres after one push in the simulator of a family, (B, 5, 2)."""
        if family == self._family:
            return self._simulator().step(state, action)[0][:, XY]
        other = Dynamics(family=family)
        end, _ = other.step(state, action)
        self._steps_elsewhere += other.steps
        other.close()
        return end[:, XY]

    @property
    def findings(self) -> tuple[str, ...]:
        """What a user should know of this environment, one line each."""
        shared = "rows hide heights, velocities and spins: they are carried from the reset of each rollout"
        if self._family == FAMILIES[0]:
            return (shared,)
        return (shared, "replayed as MuJoCo 2.3.2 and older simulate, emulated on the MuJoCo installed")

    @property
    def steps_executed(self) -> int:
        """mj_step calls of this adapter so far, 40 a simulated push, open-loop replays included."""
        return self._steps_elsewhere + (self._dynamics.steps if self._dynamics is not None else 0)

    def _simulator(self) -> Dynamics:
        if self._dynamics is None:
            self._dynamics = Dynamics(family=self._family)
        return self._dynamics

    def takeable(self, obs: AnyArray) -> IntArray:
        return layout.takeable(obs)

    def replay(self, rollouts: Rollouts) -> Replay:
        """Candidates "carried", "previous" and "rest"; the last two only where the hidden state is in doubt.

        A transition is settled where the hidden state before it is known: at a reset, and after a transition that was
        replayed to within the trust of its rollout. `simulator_steps` counts mj_step calls, 40 a simulated push.
        """
        if self._latest is not None and self._latest[0]() is rollouts:
            return self._latest[1]
        before = self.steps_executed
        found = sequential.run(rollouts, self._simulator())
        for each in (found.candidates, found.code, found.situation, found.hidden):
            each.setflags(write=False)
        steps = self.steps_executed - before
        replay = Replay(
            found.candidates, sequential.SEEDINGS, found.code, steps, situation=found.situation, hidden=found.hidden
        )
        self._latest = (weakref.ref(rollouts), replay)
        return replay

    def open_loop(self, rollouts: Rollouts) -> OpenLoop:
        """Rows after the first come from the simulator, in lockstep; a cut needs the hidden state it started with."""
        n = rollouts.n_rollouts
        offsets = rollouts.offsets + np.arange(n + 1)
        obs, ok = np.zeros((int(offsets[-1]), OBS_SIZE)), np.zeros(int(offsets[-1]), bool)
        code = np.full(n, NON_FINITE, np.int8)
        action = actions_of(rollouts.action)
        present = np.flatnonzero((rollouts.length + rollouts.has_final > 0) & (len(rollouts.obs) > 0))
        if len(present):
            first = rollouts.obs[rollouts.first_row[present]].astype(np.float64)
            code[present] = self.takeable(first)
            obs[offsets[present]], ok[offsets[present]] = first, code[present] == 0
        first_action = from_reset(rollouts) | (rollouts.source_step == 0)
        played = ActedRows(obs, offsets, ok, _led_to(action, rollouts, offsets), first_action)
        hidden = np.where(from_reset(rollouts)[:, None], at_rest(n), _given(rollouts.hidden, n)[:, CARRIED])
        code[(code == 0) & ~np.isfinite(hidden).all(axis=1)] = HIDDEN_UNKNOWN
        for step in range(int(rollouts.length.max(initial=0))):
            who = np.flatnonzero((code == 0) & (rollouts.length > step))
            now = rollouts.offsets[who] + step
            code[who[action[now] < 0]] = BAD_ACTION
            who, now = who[action[now] >= 0], now[action[now] >= 0]
            if not len(who):
                continue
            end, sound = self._simulator().step(state_of(xy(obs[offsets[who] + step]), hidden[who]), action[now])
            code[who[~sound]] = SIMULATOR_WARNING
            who, end = who[sound], end[sound]
            hidden[who] = hidden_of(end)
            obs[offsets[who] + step + 1], ok[offsets[who] + step + 1] = end[:, XY].reshape(-1, OBS_SIZE), True
        return OpenLoop(played, code)

    def legality(
        self,
        rollouts: Rollouts,
        placements: Sequence[Placement],  # noqa: ARG002  # no law depends on the task
        which: IntArray,  # noqa: ARG002
    ) -> Legality:
        rule, soft = rules.judge(rollouts)
        return Legality(rule, rules.reset_rule(rollouts), soft)

    def place(self, instruction: str | None, goal: AnyArray | None = None) -> Placement:
        return text.place(instruction, goal)

    def placement_of_task(self, name: str) -> Placement:
        """The placement of a task given by its id or a sentence; raises UnknownName."""
        return text.placement_of_task(name)

    def annotate(self, rows: Trajectory, rollouts: Rollouts) -> ActedRows:
        """Recorded rows with the action that led to each, which the easy goals judge."""
        action = _led_to(actions_of(rollouts.action), rollouts, rows.offsets)
        first = from_reset(rollouts) | (rollouts.source_step == 0)  # of its file, though not known to be a reset
        return ActedRows(rows.obs, rows.offsets, rows.ok, action, first)

    def goals(self, rows: Trajectory, placements: Sequence[Placement], which: IntArray) -> GoalRows:
        return goals.evaluate(rows, placements, which)

    def reward(self, rollouts: Rollouts, placements: Sequence[Placement], which: IntArray) -> dict[str, FloatArray]:
        return reward.recompute(rollouts, placements, which)

    def referee(
        self,
        obs: AnyArray,
        action: AnyArray,
        seed: int = 0,  # noqa: ARG002  # nothing is drawn
        hidden: FloatArray | None = None,
    ) -> tuple[AnyArray, IntArray]:
        """Single pushes by a plain `mj_step` loop: the candidate "carried", that of a reset without `hidden`."""
        code, number = self.takeable(obs), actions_of(action)
        code[(code == 0) & (number < 0)] = BAD_ACTION
        seeds = at_rest(len(obs)) if hidden is None else _given(hidden, len(obs))[:, CARRIED]
        code[(code == 0) & ~np.isfinite(seeds).all(axis=1)] = HIDDEN_UNKNOWN
        end, good = np.full((len(obs), OBS_SIZE), np.nan), np.flatnonzero(code == 0)
        after, sound = self._simulator().step_plain(state_of(xy(obs[good]), seeds[good]), number[good])
        end[good], code[good[~sound]] = after[:, XY].reshape(-1, OBS_SIZE), SIMULATOR_WARNING
        return end, code

    def make_env(self, task: str, predicates: str = "intended", **options: Any) -> Any:
        from qualcheck.envs.clevr import simulator  # not at the top: gymnasium is slow to import

        return simulator.ClevrTask(task, predicates, **{"family": self._family, **options})

    def make_episodes(self, task: str, predicates: str = "intended", **options: Any) -> Episodes:
        """Many episodes at once; see `qualcheck.episodes`."""
        from qualcheck.envs.clevr import episodes  # see `make_env`

        return episodes.ClevrEpisodes(task, predicates, **{"family": self._family, **options})

    def tasks(self) -> dict[str, tuple[str, ...]]:
        return goals.TASKS

    def every_placement(self) -> tuple[Placement, ...]:
        """What an instruction can mean where a task's id alone does not tell; see `qualcheck.explaining.labels`."""
        return text.every_placement()

    def floor(self, task: str, policy: str, horizon: int) -> tuple[int, int] | None:
        from qualcheck.envs.clevr import floors  # not at the top: it also runs by itself, as a module

        return floors.shipped(task, policy, horizon)

    def measure_floor(
        self, task: str, policy: str, horizon: int, episodes: int, rng: np.random.Generator
    ) -> tuple[int, int] | None:
        from qualcheck.envs.clevr import floors  # see `floor`

        if policy == "noop":
            return None  # each of the 40 actions pushes a ball
        return floors.measure(task, policy, horizon, episodes, rng)

    def close(self) -> None:
        if self._dynamics is not None:
            self._dynamics.close()
        self._dynamics, self._latest, self._steps_elsewhere = None, None, 0


def _given(hidden: FloatArray | None, n: int) -> FloatArray:
    """Hidden numbers of cuts, NaN where there are none, (n, 82)."""
    if hidden is None or hidden.shape != (n, HIDDEN_SIZE):
        return np.full((n, HIDDEN_SIZE), np.nan)
    return hidden.astype(np.float64)


def _led_to(action: IntArray, rollouts: Rollouts, offsets: IntArray) -> IntArray:
    """The action that led to each row of a trajectory with these offsets, -1 on row 0 and where it is none."""
    led = np.full(int(offsets[-1]), -1, np.int64)
    after = offsets[rollouts.rollout] + rollouts.step + 1
    shown = after < offsets[1:][rollouts.rollout]
    led[after[shown]] = action[shown]
    return led
