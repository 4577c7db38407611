"""The contract between qualcheck and an environment. `qualcheck.contract` tests an adapter against it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from qualcheck.spec import EnvSpec, Rule
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


class EnvAdapter(Protocol):
    """One environment. Whole rollouts go in; results of a rollout never depend on its neighbours.

    Bad data never raises: it comes back as a code of `spec.codes`.
    """

    spec: EnvSpec
    rules: tuple[Rule, ...]

    def layouts(self) -> tuple[EnvSpec, ...]:
        """The row layouts that files of this environment come in; the first is the usual one."""
        ...

    def with_layout(self, obs_size: int) -> EnvAdapter:
        """An adapter for one of these layouts, by its number of columns."""
        ...

    @property
    def family(self) -> str:
        """The simulator family that this adapter replays with, "" where the environment has only one."""
        ...

    def families(self) -> tuple[str, ...]:
        """Every simulator family that files of this environment come from; the first is the usual one."""
        ...

    def with_family(self, name: str) -> EnvAdapter:
        """An adapter of the same layout for one of the families."""
        ...

    def recognise(self, rollouts: Rollouts) -> tuple[str, str]:
        """The family that made the rollouts, "" where they do not tell, and the evidence in words."""
        ...

    @property
    def findings(self) -> tuple[str, ...]:
        """What a user should know of this layout, one line each."""
        ...

    @property
    def steps_executed(self) -> int:
        """Simulator steps executed by this adapter so far, in the unit of `Replay.simulator_steps`."""
        ...

    def takeable(self, obs: AnyArray) -> IntArray:
        """0 where the simulator can be put into the row, else an index into `spec.codes`. (R, O) -> (R,)."""
        ...

    def replay(self, rollouts: Rollouts) -> Replay:
        """Put the simulator into every row under each seeding and apply the recorded action."""
        ...

    def open_loop(self, rollouts: Rollouts) -> OpenLoop:
        """Execute the recorded actions from row 0."""
        ...

    def legality(self, rollouts: Rollouts, placements: Sequence[Placement], which: IntArray) -> Legality:
        """Test every rule on every transition; `which` (N,) indexes `placements`."""
        ...

    def place(self, instruction: str | None, goal: AnyArray | None = None) -> Placement:
        """Find the task an instruction (or a goal array) names, or the reason why not."""
        ...

    def placement_of_task(self, name: str) -> Placement:
        """The placement that a task id or a sentence names.

        Raises:
            UnknownName: neither.
        """
        ...

    def annotate(self, rows: Trajectory, rollouts: Rollouts) -> Trajectory:
        """Recorded rows with what a goal needs beside them, such as displacements that the rows do not show."""
        ...

    def goals(self, rows: Trajectory, placements: Sequence[Placement], which: IntArray) -> GoalRows:
        """Evaluate the goal of each rollout on each of its rows."""
        ...

    def reward(self, rollouts: Rollouts, placements: Sequence[Placement], which: IntArray) -> dict[str, FloatArray]:
        """Recompute the reward under each reading: name -> (M,) float64, NaN where it cannot be."""
        ...

    def referee(
        self, obs: AnyArray, action: AnyArray, seed: int = 0, hidden: FloatArray | None = None
    ) -> tuple[AnyArray, IntArray]:
        """Single steps in the real simulator: (R, O), (R,) and (R, H) -> end rows (R, O) and codes (R,).

        They are those of the first seeding. `hidden` is that of `Replay.hidden`; None: as after a reset.
        """
        ...

    def make_env(self, task: str, predicates: str = "intended", **options: Any) -> Any:
        """A gymnasium.Env of one task with the benchmark's observation, action, horizon and success."""
        ...

    def tasks(self) -> dict[str, tuple[str, ...]]:
        """Level -> ids of its tasks."""
        ...

    def floor(self, task: str, policy: str, horizon: int) -> tuple[int, int] | None:
        """(successes, episodes) of the "noop" or "random" policy from the shipped table; None where not measured."""
        ...

    def measure_floor(
        self, task: str, policy: str, horizon: int, episodes: int, rng: np.random.Generator
    ) -> tuple[int, int] | None:
        """(successes, episodes) measured now; None where no action does nothing, so that there is no "noop"."""
        ...

    def close(self) -> None: ...
