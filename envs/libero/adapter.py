"""LIBERO of ImagineBench for qualcheck: rows hide velocities and the controllers' memory, so a filter carries them.

Files are read, and rules, goals and rewards judged, without the extra `libero`; what needs its simulator says so.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import Any

import numpy as np

from qualcheck.envs.libero import filter as sequential
from qualcheck.envs.libero import goals, layout, reward, rules, situation, starts, text
from qualcheck.envs.libero import takeable as rows_of
from qualcheck.envs.libero.columns import OBS_SIZE, StartedRows, from_reset
from qualcheck.envs.libero.kernel import Simulator
from qualcheck.envs.libero.takeable import BAD_ACTION, HIDDEN_UNKNOWN, NON_FINITE, SIMULATOR_WARNING, usable_actions
from qualcheck.episodes import Episodes, OneByOne
from qualcheck.errors import UsageError, unknown_name
from qualcheck.spec import EnvSpec
from qualcheck.starting import Starts
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


class Libero:
    """Adapter of the LIBERO environment; see `qualcheck.adapter.EnvAdapter` for what each method promises."""

    rules = rules.RULES

    def __init__(self) -> None:
        self.spec = layout.make_spec(f"rules {rules.RULES_VERSION}", rows_of.CODES, situation.SITUATIONS)
        self._kernel: Simulator | None = None
        self._latest: tuple[weakref.ref[Rollouts], Replay] | None = None

    def layouts(self) -> tuple[EnvSpec, ...]:
        return (self.spec,)

    def with_layout(self, obs_size: int) -> Libero:
        """This adapter, as there is one layout.

        Raises:
            UsageError: it is not that of the rows.
        """
        if obs_size != OBS_SIZE:
            raise UsageError(
                f"LIBERO rows of {obs_size} columns; expected {OBS_SIZE}: arm, hand, fingers, four bodies."
            )
        return self

    @property
    def family(self) -> str:
        return ""

    def families(self) -> tuple[str, ...]:
        return ()

    def with_family(self, name: str) -> Libero:
        """This adapter, as there is one family, ""; raises UnknownName."""
        if name:
            raise unknown_name("simulator family of libero", name, [])
        return self

    def recognise(self, rollouts: Rollouts) -> tuple[str, str]:  # noqa: ARG002  # the contract passes rollouts
        return "", "there is one simulator family"

    @property
    def findings(self) -> tuple[str, ...]:
        """What a user should know of this environment, one line each."""
        return ("rows hide velocities, the gripper's command and the goal of the hand's turn: they are carried along",)

    @property
    def steps_executed(self) -> int:
        """mj_step calls of this adapter so far, 25 an action, open-loop replays included."""
        return 0 if self._kernel is None else layout.SUBSTEPS * self._kernel.steps

    def _simulator(self) -> Simulator:
        """The kernel; raises MissingExtra."""
        if self._kernel is None:
            self._kernel = Simulator()
        return self._kernel

    def takeable(self, obs: AnyArray) -> IntArray:
        return rows_of.takeable(obs)

    def replay(self, rollouts: Rollouts) -> Replay:
        """Candidates "carried", "difference" and "rest"; the last two only where the hidden state is in doubt.

        Quaternions have the signs of the recorded end row, so that q and -q are no error. `simulator_steps` counts
        mj_step calls, 25 an action.

        Raises:
            MissingExtra: the extra is not installed.
        """
        if self._latest is not None and self._latest[0]() is rollouts:
            return self._latest[1]
        before = self.steps_executed
        found = sequential.run(rollouts, self._simulator())
        for each in (found.candidates, found.code, found.situation, found.hidden):
            each.setflags(write=False)
        replay = Replay(
            found.candidates,
            sequential.SEEDINGS,
            found.code,
            self.steps_executed - before,
            situation=found.situation,
            hidden=found.hidden,
        )
        self._latest = (weakref.ref(rollouts), replay)
        return replay

    def open_loop(self, rollouts: Rollouts) -> OpenLoop:
        """Rows after the first come from the simulator; a cut needs the hidden state it started with.

        Raises:
            MissingExtra: the extra is not installed.
        """
        n, simulator = rollouts.n_rollouts, self._simulator()
        offsets = rollouts.offsets + np.arange(n + 1)
        obs, ok = np.zeros((int(offsets[-1]), OBS_SIZE)), np.zeros(int(offsets[-1]), bool)
        code = np.full(n, NON_FINITE, np.int8)
        present = np.flatnonzero((rollouts.length + rollouts.has_final > 0) & (len(rollouts.obs) > 0))
        if len(present):
            first = rollouts.obs[rollouts.first_row[present]].astype(np.float64)
            code[present] = self.takeable(first)
            obs[offsets[present]], ok[offsets[present]] = first, code[present] == 0
        started = StartedRows(obs, offsets, ok, from_reset(rollouts))
        begins = np.full(n, -1, np.int64)
        begins[rollouts.length > 0] = rollouts.offsets[:-1][rollouts.length > 0]
        known = sequential.begin(rollouts, self.takeable(rollouts.obs), simulator.rest, begins)
        code[(code == 0) & ~known.known] = HIDDEN_UNKNOWN
        runs = code == 0
        usable = usable_actions(rollouts.action)
        inside = np.flatnonzero(runs[rollouts.rollout])  # (m,) transitions simulated
        own = np.concatenate([[0], np.cumsum(rollouts.length[runs])])
        played = simulator.play(
            rollouts.start_obs[inside],
            np.where(usable[inside, None], rollouts.action[inside], np.nan),
            own,
            rollouts.step[inside] == 0,
            known.carried[runs],
        )
        whole = _so_far(played.sound, own)
        row = inside + rollouts.rollout[inside] + 1  # rollouts before this one have one row more than transitions
        obs[row[whole]], ok[row[whole]] = played.end[whole], True
        code[rollouts.rollout[inside[~played.sound]]] = SIMULATOR_WARNING
        code[rollouts.rollout[inside[~usable[inside]]]] = BAD_ACTION
        return OpenLoop(started, code)

    def legality(self, rollouts: Rollouts, placements: Sequence[Placement], which: IntArray) -> Legality:
        rule, soft = rules.judge(rollouts)
        return Legality(rule, rules.reset_rule(rollouts, placements, which), soft)

    def place(self, instruction: str | None, goal: AnyArray | None = None) -> Placement:
        return text.place(instruction, goal)

    def placement_of_task(self, name: str) -> Placement:
        """The placement of a task given by its id or a sentence; raises UnknownName."""
        return text.placement_of_task(name)

    def annotate(self, rows: Trajectory, rollouts: Rollouts) -> StartedRows:
        """Recorded rows with which of them start at a reset, as goals with a history need it."""
        return StartedRows(rows.obs, rows.offsets, rows.ok, from_reset(rollouts))

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
        """Single steps of robosuite's own environment out of the carried hidden state; see `simulator.referee`."""
        from qualcheck.envs.libero import simulator  # not at the top: gymnasium is slow to import

        return simulator.referee(obs, action, hidden, self._simulator())

    def make_env(self, task: str, predicates: str = "intended", **options: Any) -> Any:
        from qualcheck.envs.libero import simulator  # see `referee`

        return simulator.LiberoTask(task, predicates, **options)

    def make_episodes(self, task: str, predicates: str = "intended", **options: Any) -> Episodes:
        """Many episodes at once, in threads that share a model; see `qualcheck.episodes`."""
        from qualcheck.envs.libero import simulator  # see `referee`

        kernel = Simulator(threads=1)
        return OneByOne(lambda: simulator.LiberoTask(task, predicates, simulator=kernel, **options), kernel.close)

    def tasks(self) -> dict[str, tuple[str, ...]]:
        return goals.TASKS

    def floor(self, task: str, policy: str, horizon: int) -> tuple[int, int] | None:
        from qualcheck.envs.libero import floors  # not at the top: it also runs by itself, as a module

        return floors.shipped(task, policy, horizon)

    def measure_floor(
        self, task: str, policy: str, horizon: int, episodes: int, rng: np.random.Generator
    ) -> tuple[int, int] | None:
        from qualcheck.envs.libero import floors  # see `floor`

        return floors.measure(task, policy, horizon, episodes, rng)

    def judge_starts(self, obs: AnyArray, task: str = "") -> Starts:
        """What `inspect --starts` says of start rows; see `starts.judge_starts`."""
        return starts.judge_starts(obs, task)

    def close(self) -> None:
        if self._kernel is not None:
            self._kernel.close()
        self._kernel, self._latest = None, None


def _so_far(sound: BoolArray, offsets: IntArray) -> BoolArray:
    """Whether every step of each rollout has been sound up to and with this one, (M,)."""
    bad = np.concatenate([[0], np.cumsum(~sound)])  # (M+1,)
    whole: BoolArray = bad[1:] == np.repeat(bad[offsets[:-1]], np.diff(offsets))
    return whole
