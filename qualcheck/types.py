"""The arrays every stage passes on.

Shape legend, used in every shape comment of the project:
N rollouts, M transitions, R rows, O observation columns, A action columns, K seedings, G sub-goals, H hidden
numbers.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

UNDECIDED = (0.1, 0.9)  # a share of restarts in between is no verdict (definitions, goal consistency)

BoolArray = NDArray[np.bool_]
IntArray = NDArray[np.integer[Any]]
FloatArray = NDArray[np.floating[Any]]
AnyArray = NDArray[Any]


@dataclass(frozen=True)
class Rollouts:
    """A batch of whole rollouts as flat arrays, never padded.

    Rollout i has `length[i]` transitions and `length[i] + has_final[i]` rows: row t is the observation
    before action t, and the last one, when the file has it, the observation after the last action.
    A file whose `next_observations[t]` differs from row t+1 keeps both: the row in `obs`, the other
    reading in `break_obs`.
    """

    obs: AnyArray  # (R, O) source dtype, without instruction codes
    action: AnyArray  # (M,) or (M, A) source dtype
    offsets: IntArray  # (N+1,) int64, first transition of each rollout
    has_final: BoolArray  # (N,)
    source: IntArray  # (N,) int32, index into the run's list of inputs
    source_rollout: IntArray  # (N,) int32, place in that input
    source_step: IntArray  # (N,) int32, step of the source rollout at which this piece starts
    instruction: list[str | None]  # (N,)
    reward: FloatArray | None = None  # (M,) float64
    terminal: BoolArray | None = None  # (M,)
    truncated: BoolArray | None = None  # (M,)
    goal: list[AnyArray | None] | None = None  # (N,) goal arrays of files that have them
    is_reset: BoolArray | None = None  # (N,) True where the piece starts at a reset; None: unknown
    reset_obs: AnyArray | None = None  # (N, O) row 0 of the episode; differs from the first row of a cut
    hidden: FloatArray | None = None  # (N, H) hidden state before the first action of a cut, NaN where unknown
    break_at: IntArray = field(default_factory=lambda: np.zeros(0, np.int64))  # (B,) transition index
    break_obs: AnyArray | None = None  # (B, O)
    origin: list[str] | None = None  # (N,) name of the file each rollout first came from, where this file says it
    level: list[str] | None = None  # (N,) where the file itself says it
    generator: list[str] | None = None  # (N,)
    task: list[str] | None = None  # (N,)
    flags: dict[str, BoolArray] = field(default_factory=dict)  # name -> (N,)
    defect: list[str] | None = None  # (N,) "" or the code why a whole rollout cannot be scored
    code: AnyArray | None = None  # (N, 768) instruction code of each rollout, split off the rows
    extra_rollout: dict[str, list[Any]] = field(default_factory=dict)  # unknown keys, (N,) each
    extra_step: dict[str, AnyArray] = field(default_factory=dict)  # unknown keys, (M, ...) each

    @property
    def n_rollouts(self) -> int:
        return len(self.offsets) - 1

    @property
    def n_transitions(self) -> int:
        return int(self.offsets[-1])

    @cached_property
    def length(self) -> IntArray:
        return np.diff(self.offsets)  # (N,)

    @cached_property
    def row_offsets(self) -> IntArray:
        rows = self.length + self.has_final
        return np.concatenate([[0], np.cumsum(rows)]).astype(np.int64)  # (N+1,)

    @cached_property
    def rollout(self) -> IntArray:
        """Rollout of each transition, (M,) int32, counted from 0 within this batch."""
        return np.repeat(np.arange(self.n_rollouts, dtype=np.int32), self.length)

    @cached_property
    def step(self) -> IntArray:
        """Position of each transition in its rollout, (M,) int32."""
        return (np.arange(self.n_transitions) - np.repeat(self.offsets[:-1], self.length)).astype(np.int32)

    @cached_property
    def row(self) -> IntArray:
        """Index into `obs` of the row each transition starts from, (M,) int64."""
        return np.arange(self.n_transitions) + np.repeat(self.row_offsets[:-1] - self.offsets[:-1], self.length)

    @cached_property
    def has_end(self) -> BoolArray:
        """Whether the file shows the row after each transition, (M,)."""
        shown = np.ones(self.n_transitions, bool)
        last = self.offsets[1:][(self.length > 0) & ~self.has_final] - 1
        shown[last] = False
        shown[self.break_at] = True
        return shown

    @cached_property
    def start_obs(self) -> AnyArray:
        """The row before each action, (M, O)."""
        return self.obs[self.row]

    @cached_property
    def end_obs(self) -> AnyArray:
        """The row after each action as the file has it, (M, O); where `has_end` is False, the start row again."""
        after = self.row + 1
        lone = ~self.has_end
        lone[self.break_at] = True  # filled from break_obs below; row + 1 may belong to the next rollout
        after[lone] = self.row[lone]
        end = self.obs[after]
        if self.break_obs is not None and len(self.break_at):
            end[self.break_at] = self.break_obs
        return end

    def end_of(self, which: IntArray) -> AnyArray:
        """`end_obs` of some transitions, (S,) -> (S, O)."""
        if len(self.break_at) or "end_obs" in self.__dict__:
            return self.end_obs[which]
        return self.obs[np.where(self.has_end[which], self.row[which] + 1, self.row[which])]

    @cached_property
    def first_row(self) -> IntArray:
        """Index into `obs` of row 0 of each rollout, (N,); meaningless where the rollout has no rows."""
        return np.minimum(self.row_offsets[:-1], max(len(self.obs) - 1, 0))

    @cached_property
    def context_obs(self) -> AnyArray:
        """Row 0 of the episode each rollout belongs to, (N, O): its own first row unless it is a cut."""
        if self.reset_obs is not None:
            return self.reset_obs
        if not len(self.obs):
            return np.zeros((self.n_rollouts, self.obs.shape[1]), self.obs.dtype)
        return self.obs[self.first_row]


@dataclass(frozen=True)
class Trajectory:
    """Rows 0..T of every rollout of a batch, imagined or replayed.

    `ok` is False on rows that no simulator can take on, or that are not known; goals are never true there.
    """

    obs: AnyArray  # (M+N, O)
    offsets: IntArray  # (N+1,) first row of each rollout; offsets[-1] is the number of rows
    ok: BoolArray  # (M+N,)


@dataclass(frozen=True)
class Replay:
    """What the simulator makes of every recorded row, one candidate per seeding of the hidden state."""

    candidates: AnyArray  # (K, M, O) simulated end rows; float64, or the exact dtype of an exact environment;
    # NaN where a seeding other than the first was not tried
    seedings: tuple[str, ...]  # (K,) names, e.g. "exact", "carried", "previous", "rest"
    code: IntArray  # (M,) 0 = replayed, else an index into EnvSpec.codes saying why not
    simulator_steps: int  # steps the simulator really executed
    as_recorded: BoolArray | None = None  # (M,) transitions known to end exactly as they are recorded
    situation: IntArray | None = None  # (M,) index into EnvSpec.situations; None: the first throughout
    hidden: FloatArray | None = None  # (M, H) hidden state before each action; put into Rollouts.hidden of a cut, it
    # makes the replay of the cut equal to this one
    compared: BoolArray | None = None  # (M, O) numbers that the simulator says something about; the candidates have the
    # others as they are recorded, so that those are never charged. None: all


@dataclass(frozen=True)
class Legality:
    """First hard rule broken by each transition, and how often each soft rule was."""

    rule: IntArray  # (M,) int16: 0 = legal, else 1 + index into the adapter's rules; -1 = not verifiable
    row0_rule: IntArray  # (N,) int16: the same for the row-0 rules
    soft: dict[str, BoolArray] = field(default_factory=dict)  # rule id -> (M,)


@dataclass(frozen=True)
class Placement:
    """A task found from an instruction or a goal array; `task` is "" where none was, with the reason."""

    task: str
    task_released: str
    params: tuple[str, ...] = ()
    code: str = ""  # "" or no_instruction, ambiguous_instruction


@dataclass(frozen=True)
class GoalRows:
    """Truth of the goal on each row of a Trajectory, (M+N,) each; False where the row is not `ok`."""

    intended: BoolArray
    released: BoolArray
    share: FloatArray  # share of the task's sub-goals that hold on the row (latched where the task latches);
    # NaN where the goal cannot be judged: no task, or a history that the rows do not show
    margin: FloatArray | None = None  # (N,) how far each rollout is from another verdict; chaotic environments
    judges_action: BoolArray | None = None  # (N,) goals met by an action itself, which no replay can refute


@dataclass(frozen=True)
class OpenLoop:
    """Actions executed from row 0, never looking at the later rows."""

    trajectory: Trajectory
    code: IntArray  # (N,) 0 = replayed, else an index into EnvSpec.codes
    as_recorded: BoolArray | None = None  # (N,) rollouts known to replay exactly as they are recorded
    apart: BoolArray | None = None  # (M+N,) rows that are not the recorded ones, where the adapter has compared them
