"""Meta-World of ImagineBench for qualcheck: rows hide the arm and all velocities, so a filter carries them.

The task of a rollout decides the scene that it is simulated in; a rollout whose task is not known is not replayed.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import Any

import numpy as np

from qualcheck.envs.metaworld import filter as sequential
from qualcheck.envs.metaworld import goals, layout, recognise, reward, rules, text
from qualcheck.envs.metaworld.filter import Filtered, faced, given
from qualcheck.envs.metaworld.goals import TILTED_TIP_UNKNOWN_M, TIP_UNKNOWN_M, TippedRows
from qualcheck.envs.metaworld.kernel import Episode, Kernel
from qualcheck.envs.metaworld.layout import GOAL, HAND, HIDDEN_UNKNOWN, NO_TASK, NON_FINITE, OBS_SIZE
from qualcheck.envs.metaworld.recognise import FAMILIES
from qualcheck.envs.metaworld.tasks import tasks_of
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

TIP_TOLD_M = 0.02  # a simulated hand so far from the recorded one says nothing of its tip


class MetaWorld:
    """Adapter of the Meta-World environment; see `qualcheck.adapter.EnvAdapter` for what each method promises."""

    rules = rules.RULES

    def __init__(self, family: str = next(iter(FAMILIES))) -> None:
        """Args:
            family: of `recognise.FAMILIES`, the simulator that the files were recorded with.

        Raises:
            UnknownName: no such family.
        """
        if family not in FAMILIES:
            raise unknown_name("simulator family of metaworld", family, list(FAMILIES))
        self._family = family
        self.spec = layout.make_spec(f"rules {rules.RULES_VERSION}")
        self._kernel: Kernel | None = None
        self._steps_elsewhere = 0  # by simulators of other families, and by referees
        self._latest: tuple[weakref.ref[Rollouts], Replay, Filtered] | None = None

    def layouts(self) -> tuple[EnvSpec, ...]:
        return (self.spec,)

    def with_layout(self, obs_size: int) -> MetaWorld:
        """This adapter, as there is one layout.

        Raises:
            UsageError: it is not that of the rows.
        """
        if obs_size != OBS_SIZE:
            raise UsageError(f"Meta-World rows of {obs_size} columns; expected {OBS_SIZE}: hand, goal, 12 entities.")
        return self

    @property
    def family(self) -> str:
        return self._family

    def families(self) -> tuple[str, ...]:
        return tuple(FAMILIES)

    def with_family(self, name: str) -> MetaWorld:
        """An adapter for one of the families; raises UnknownName."""
        return self if name == self._family else MetaWorld(name)

    def recognise(self, rollouts: Rollouts) -> tuple[str, str]:
        """The family by the settled hand that row 0 shows, else by the first transitions."""
        kernels = {name: self._simulator() if name == self._family else Kernel(FAMILIES[name]) for name in FAMILIES}
        found = recognise.recognise(rollouts, tasks_of(rollouts), kernels)
        for name, kernel in kernels.items():
            if name != self._family:
                self._steps_elsewhere += kernel.steps
                kernel.close()
        return found

    @property
    def findings(self) -> tuple[str, ...]:
        """What a user should know of this environment, one line each."""
        lines = (
            "rows hide the arm's joints, all velocities and the commanded hand: they are carried along from row 0",
            "the blocks of entities that a task does not have (distractors) are not simulated: rules judge them",
        )
        if self._family == "mujoco-3.3":
            return lines
        return (*lines, f"replayed as {recognise.NAMES[self._family]} simulates, emulated on the MuJoCo installed")

    @property
    def steps_executed(self) -> int:
        """Steps of 5 mj_step calls by this adapter so far, those of resets and open-loop replays included."""
        return self._steps_elsewhere + (0 if self._kernel is None else self._kernel.steps)

    def _simulator(self) -> Kernel:
        if self._kernel is None:
            self._kernel = Kernel(FAMILIES[self._family])
        return self._kernel

    def takeable(self, obs: AnyArray) -> IntArray:
        """See the contract; a quaternion is judged where the task is known, since it may be a distractor's."""
        return layout.without_task(layout.takeable(obs[:, :OBS_SIZE]))

    def replay(self, rollouts: Rollouts) -> Replay:
        """Candidates "carried" and "anchored"; the latter only where the hidden state is in doubt.

        Quaternions have the signs of the recorded end row, and the blocks that the task's simulator does not fill are
        those of that row. `simulator_steps` counts environment steps, 5 mj_step calls each.
        """
        return self._filtered(rollouts)[0]

    def _filtered(self, rollouts: Rollouts) -> tuple[Replay, Filtered]:
        if self._latest is not None and self._latest[0]() is rollouts:
            return self._latest[1:]
        before = self.steps_executed
        found = sequential.run(rollouts, tasks_of(rollouts), self._simulator())
        for each in (found.candidates, found.code, found.situation, found.hidden, found.tip_m, found.compared):
            each.setflags(write=False)
        replay = Replay(
            found.candidates,
            sequential.SEEDINGS,
            found.code,
            self.steps_executed - before,
            situation=found.situation,
            hidden=found.hidden,
            compared=found.compared,
        )
        self._latest = (weakref.ref(rollouts), replay, found)
        return replay, found

    def open_loop(self, rollouts: Rollouts) -> OpenLoop:
        """Rows after the first come from the simulator; a cut needs the hidden state it started with."""
        n, tasks = rollouts.n_rollouts, tasks_of(rollouts)
        offsets = rollouts.offsets + np.arange(n + 1)
        obs, ok = np.zeros((int(offsets[-1]), OBS_SIZE)), np.zeros(int(offsets[-1]), bool)
        tip = np.full((len(obs), 3), np.nan)
        code = np.full(n, NON_FINITE, np.int8)
        present = np.flatnonzero((rollouts.length + rollouts.has_final > 0) & (len(rollouts.obs) > 0))
        if len(present):
            first = rollouts.obs[rollouts.first_row[present], :OBS_SIZE].astype(np.float64)
            code[present] = self.takeable(first)
            obs[offsets[present]], ok[offsets[present]] = first, code[present] == 0
        code[(code == 0) & (tasks == "")] = NO_TASK
        known = given(rollouts, tasks)
        whole = sequential.episodes_of(rollouts, tasks, known)
        started = layout.from_reset(rollouts)
        runs: dict[int, Episode] = {}
        for i in np.flatnonzero((code == 0) & (rollouts.length > 0)).tolist():
            if i not in whole or (whole[i][1].hidden is None and not started[i]):
                code[i] = HIDDEN_UNKNOWN
            else:
                runs[i] = whole[i][1]
        played = self._simulator().play(list(runs.values()), filtered=False)
        for (i, episode), done in zip(runs.items(), played, strict=True):
            at = slice(offsets[i] + 1, offsets[i + 1])
            shown = np.asarray(episode.rows, np.float64)
            after = np.minimum(np.arange(1, len(done.obs)), len(shown) - 1)
            rows, _ = faced(done.obs[1:], shown[after], episode.task)
            good = done.code == 0
            obs[at], ok[at], tip[at] = np.where(good[:, None], rows, 0.0), good, done.tip_m[1:]
            code[i] = done.code[-1]
        return OpenLoop(self._tipped(obs, offsets, ok, tip, rollouts), code)

    def _tipped(
        self, obs: AnyArray, offsets: IntArray, ok: AnyArray, tip: FloatArray, rollouts: Rollouts
    ) -> TippedRows:
        """Rows with the tip of the gripper on each, and what is known of the start of each rollout."""
        started = layout.from_reset(rollouts)
        told = np.full((rollouts.n_rollouts, 3), np.nan)
        if len(rollouts.obs):
            known = started | (rollouts.reset_obs is not None)
            told[known] = rollouts.context_obs[known, GOAL]
        unknown_m = TILTED_TIP_UNKNOWN_M if self._family == "mujoco-3.0" else TIP_UNKNOWN_M
        return TippedRows(obs, offsets, ok, tip, started, told, unknown_m)

    def legality(self, rollouts: Rollouts, placements: Sequence[Placement], which: IntArray) -> Legality:
        rule, soft = rules.judge(rollouts, placements, which)
        return Legality(rule, rules.reset_rule(rollouts, placements, which), soft)

    def place(self, instruction: str | None, goal: AnyArray | None = None) -> Placement:
        return text.place(instruction, goal)

    def placement_of_task(self, name: str) -> Placement:
        """The placement of a task given by its id or a sentence; raises UnknownName."""
        return text.placement_of_task(name)

    def annotate(self, rows: Trajectory, rollouts: Rollouts) -> TippedRows:
        """Recorded rows with the tip of the gripper where the carried simulator tells it."""
        tip = np.full((len(rows.obs), 3), np.nan)
        at = rows.offsets[rollouts.rollout] + rollouts.step + 1
        shown = at < rows.offsets[rollouts.rollout + 1]
        tip[at[shown]] = self._tips(rollouts, np.flatnonzero(shown), rows.obs[at[shown]])
        ok, tasks = rows.ok.copy(), tasks_of(rollouts)
        owner = np.repeat(np.arange(rollouts.n_rollouts), np.diff(rows.offsets))
        for task in np.unique(tasks[tasks != ""]):
            mine = np.flatnonzero(tasks[owner] == task)
            ok[mine] &= layout.takeable_for(rows.obs[mine, :OBS_SIZE], str(task)) == 0
        return self._tipped(rows.obs, rows.offsets, ok, tip, rollouts)

    def _tips(self, rollouts: Rollouts, which: IntArray, end: AnyArray) -> FloatArray:
        """Tip of the gripper under the hand of rows, (m, 91), that end transitions, (m,): (m, 3) m; NaN: not known."""
        replay, found = self._filtered(rollouts)
        hand = end[:, HAND].astype(np.float64)
        with np.errstate(invalid="ignore", over="ignore"):
            off = np.abs(replay.candidates[0, which, HAND] - hand).max(axis=1)
            return np.where((off <= TIP_TOLD_M)[:, None], hand + found.tip_m[which], np.nan)

    def goals(self, rows: Trajectory, placements: Sequence[Placement], which: IntArray) -> GoalRows:
        return goals.evaluate(rows, placements, which)

    def reward(self, rollouts: Rollouts, placements: Sequence[Placement], which: IntArray) -> dict[str, FloatArray]:
        tip = self._tips(rollouts, np.arange(rollouts.n_transitions), rollouts.end_obs)
        return reward.recompute(rollouts, placements, which, tip)

    def referee(
        self,
        obs: AnyArray,
        action: AnyArray,
        seed: int = 0,  # noqa: ARG002  # nothing is drawn
        hidden: FloatArray | None = None,
    ) -> tuple[AnyArray, IntArray]:
        """Single steps of MuJoCo on the unshortened scene, or of metaworld itself; see `simulator.referee`."""
        from qualcheck.envs.metaworld import simulator  # not at the top: gymnasium is slow to import

        return simulator.referee(obs, action, hidden, self._simulator())

    def make_env(self, task: str, predicates: str = "intended", **options: Any) -> Any:
        from qualcheck.envs.metaworld import simulator  # see `referee`

        return simulator.MetaWorldTask(task, predicates, **{"family": self._family, **options})

    def tasks(self) -> dict[str, tuple[str, ...]]:
        return goals.TASKS

    def floor(self, task: str, policy: str, horizon: int) -> tuple[int, int] | None:
        from qualcheck.envs.metaworld import floors  # not at the top: it also runs by itself, as a module

        return floors.shipped(task, policy, horizon)

    def measure_floor(
        self, task: str, policy: str, horizon: int, episodes: int, rng: np.random.Generator
    ) -> tuple[int, int] | None:
        from qualcheck.envs.metaworld import floors  # see `floor`

        return floors.measure(task, policy, horizon, episodes, rng)

    def close(self) -> None:
        if self._kernel is not None:
            self._kernel.close()
        self._kernel, self._latest, self._steps_elsewhere = None, None, 0
