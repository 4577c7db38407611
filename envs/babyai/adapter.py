"""BabyAI of ImagineBench for qualcheck: exact replay by the kernel, refereed by MiniGrid."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from qualcheck.envs.babyai import goals, kernel, reward, rules, text
from qualcheck.envs.babyai.layout import (
    ACTIONS,
    AGENT_COL,
    AGENT_ROW,
    BALL_COLOUR,
    BOX_COLOUR,
    CARRIED_COLOUR,
    CARRIED_TYPE,
    CODE_SIZE,
    COLUMNS,
    DOOR_COL,
    DOOR_COLOUR,
    DOOR_ROW,
    DOOR_STATE,
    HORIZON,
    KEY_COLOUR,
    LOCKED,
    OBS_SIZE,
    Fields,
    decoded,
    fields,
    remember,
)
from qualcheck.envs.babyai.reset_rules import RESET_LAWS, first_broken_at_reset
from qualcheck.episodes import Episodes
from qualcheck.errors import unknown_name
from qualcheck.spec import ActionSpec, Block, EnvSpec
from qualcheck.timing import SIMULATE, phase
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

UNIT = "wrong fields"
SPEC = EnvSpec(
    id="babyai",
    version=f"rules {rules.RULES_VERSION}",
    blocks=(
        Block("ball", (BALL_COLOUR, BALL_COLOUR + 1, BALL_COLOUR + 2), UNIT),
        Block("box", (BOX_COLOUR, BOX_COLOUR + 1, BOX_COLOUR + 2), UNIT),
        Block("key", (KEY_COLOUR, KEY_COLOUR + 1, KEY_COLOUR + 2), UNIT),
        Block("door", (DOOR_COLOUR, DOOR_ROW, DOOR_COL, DOOR_STATE), UNIT),
        Block("agent", (AGENT_ROW, AGENT_COL), UNIT),
        Block("carried", (CARRIED_TYPE, CARRIED_COLOUR), UNIT),
    ),
    obs_size=OBS_SIZE,
    code_size=CODE_SIZE,
    action=ActionSpec("discrete", len(ACTIONS)),
    step_seconds=None,
    horizon=HORIZON,
    judging_grade="exact",
    restores="exact",
    codes=kernel.CODES,
    columns=COLUMNS,
    batch_transitions=32_768,  # four times as many took less processor time, but 140 MiB more memory
    floor_horizons=(39, HORIZON),  # the benchmark's recordings, and its episodes
    batches_at_once=2,  # numpy on bytes leaves the interpreter to the other thread for most of its time
)


class Stepped:
    """The recorded rows of a batch decoded once, and the true row after each action."""

    def __init__(self, rollouts: Rollouts) -> None:
        self.rows = decoded(rollouts.obs)
        self.code = kernel.takeable(self.rows)  # (R,) int8
        self.action = kernel.actions(rollouts.action)  # (M,) int8
        by_row = np.full(len(rollouts.obs), -1, np.int8)
        by_row[rollouts.row] = self.action
        self.by_row = by_row  # (R,) action taken in each row, -1 where none

    @cached_property
    def after(self) -> AnyArray:
        with phase(SIMULATE):
            return kernel.step(self.rows.value, self.by_row)  # (17, R)

    @cached_property
    def wrong(self) -> BoolArray:
        """Rows whose action does not lead to the next row of the array, whoever's that is, (R,)."""
        wrong = np.ones(self.after.shape[1], bool)
        wrong[:-1] = np.logical_or.reduce(self.after[:, :-1] != self.rows.value[:, 1:], axis=0)
        return wrong

    @cached_property
    def legal(self) -> BoolArray:
        """Rows a real state can have, (R,)."""
        return np.asarray((self.code == 0) & rules.carried_agrees(self.rows.value))


@dataclass
class _Latest:
    of: weakref.ref[Rollouts]
    stepped: Stepped


class BabyAI:
    """Adapter of the BabyAI environment; see `qualcheck.adapter.EnvAdapter` for what each method promises."""

    spec = SPEC
    rules = rules.RULES

    findings: tuple[str, ...] = ()

    def __init__(self) -> None:
        self._latest: _Latest | None = None
        self.steps_executed = 0

    def layouts(self) -> tuple[EnvSpec, ...]:
        return (SPEC,)

    def with_layout(self, obs_size: int) -> BabyAI:  # noqa: ARG002  # there is one
        return self

    def _stepped(self, rollouts: Rollouts) -> Stepped:
        if self._latest is None or self._latest.of() is not rollouts:
            self._latest = _Latest(weakref.ref(rollouts), Stepped(rollouts))
        return self._latest.stepped

    @property
    def family(self) -> str:
        return ""

    def families(self) -> tuple[str, ...]:
        return ()

    def with_family(self, name: str) -> BabyAI:  # noqa: ARG002  there is one simulator
        return self

    def recognise(self, rollouts: Rollouts) -> tuple[str, str]:  # noqa: ARG002
        return "", ""

    def takeable(self, obs: AnyArray) -> IntArray:
        return kernel.takeable(decoded(obs))

    def replay(self, rollouts: Rollouts) -> Replay:
        stepped = self._stepped(rollouts)
        code = np.where(stepped.action < 0, np.int8(kernel.BAD_ACTION), np.int8(0))
        code[stepped.code[rollouts.row] != 0] = kernel.ILLEGAL_START
        every = len(rollouts.row) == stepped.after.shape[1]  # each row starts a transition
        end = stepped.after.T if every else np.ascontiguousarray(stepped.after.T)[rollouts.row]  # (M, 17)
        right = ~stepped.wrong[rollouts.row] & rollouts.has_end
        right[rollouts.break_at] = False  # these end elsewhere than in the next row
        self.steps_executed += len(code)
        return Replay(end[np.newaxis], ("exact",), code, int((code == 0).sum()), right)

    def open_loop(self, rollouts: Rollouts) -> OpenLoop:
        """Rollouts without a fault replay as they stand; only the others are executed again from row 0."""
        n, stepped = rollouts.n_rollouts, self._stepped(rollouts)
        offsets = rollouts.offsets + np.arange(n + 1)
        if not n or not len(rollouts.obs):
            nothing = Trajectory(np.zeros((int(offsets[-1]), OBS_SIZE), np.int8), offsets, np.zeros(offsets[-1], bool))
            return OpenLoop(nothing, np.full(n, kernel.ILLEGAL_START, np.int8))
        out = np.zeros((OBS_SIZE, int(offsets[-1])), np.int8)  # (17, M+N)
        ok = np.zeros(out.shape[1], bool)
        plain = self._faultless(rollouts)
        _copy_recorded(rollouts, stepped, offsets, out)
        ok[np.repeat(plain, rollouts.length + 1)] = True
        code = np.zeros(n, np.int8)
        self.steps_executed += int(rollouts.length[~plain].sum())
        if plain.all():
            apart = np.zeros(out.shape[1], bool)
        else:
            recorded = out.copy()
            code[~plain] = _execute(rollouts, stepped, np.flatnonzero(~plain), offsets, out, ok)
            apart = np.logical_or.reduce(recorded != out, axis=0)
        obs = out.T
        remember(obs, Fields(out, np.ones(len(ok), bool), np.ones(len(ok), bool)))
        return OpenLoop(Trajectory(obs, offsets, ok), code, plain, apart)

    def _faultless(self, rollouts: Rollouts) -> BoolArray:
        """Rollouts from a real state whose every recorded row is the true next one, (N,)."""
        stepped = self._stepped(rollouts)
        first = rollouts.first_row
        good = stepped.legal[first] & (np.diff(rollouts.row_offsets) > 0)
        followed = rollouts.row + 1 < rollouts.row_offsets[1:][rollouts.rollout]  # its next row is its own
        bad = (stepped.wrong[rollouts.row] & followed) | (stepped.action < 0)
        total = np.concatenate([[0], np.cumsum(bad)])
        faultless: BoolArray = good & (total[rollouts.offsets[1:]] == total[rollouts.offsets[:-1]])
        return faultless

    def legality(self, rollouts: Rollouts, placements: Sequence[Placement], which: IntArray) -> Legality:
        stepped = self._stepped(rollouts)
        value, row = stepped.rows.value, rollouts.row
        context = decoded(rollouts.context_obs)
        comparable = kernel.takeable(context) == 0  # (N,)
        suspect = _suspects(rollouts, stepped, context)  # (S,) transitions that may break a rule
        rule = np.zeros(rollouts.n_transitions, np.int16)
        if len(suspect):
            rollout, start = rollouts.rollout[suspect], row[suspect]
            end = _end_fields(rollouts, stepped, suspect)
            case = rules.Case(value[:, start], end, context.value[:, rollout], stepped.action[suspect])
            known = stepped.action[suspect] >= 0
            found = rules.first_broken(case, comparable[rollout], stepped.legal[start] & known)
            found[(found == 0) & ~known] = -1
            rule[suspect] = found
        rule[~rollouts.has_end] = -1
        broken = np.zeros(rollouts.n_transitions, bool)
        broken[rollouts.break_at] = True
        soft = {
            "step.over_horizon": rollouts.step + rollouts.source_step[rollouts.rollout] >= HORIZON,
            "step.chain_break": broken,
        }
        return Legality(rule, self._reset_rules(rollouts, placements, which), soft)

    def _reset_rules(self, rollouts: Rollouts, placements: Sequence[Placement], which: IntArray) -> AnyArray:
        if not len(rollouts.obs):
            return np.full(rollouts.n_rollouts, -1, np.int16)
        stepped, row = self._stepped(rollouts), rollouts.first_row
        found = first_broken_at_reset(stepped.rows.value[:, row], stepped.legal[row], placements, which)
        found[found > 0] += len(rules.RULES) - len(RESET_LAWS)  # they stand last
        found[(rollouts.length + rollouts.has_final == 0) | (rollouts.source_step > 0)] = -1
        if rollouts.is_reset is not None:
            found[~rollouts.is_reset] = -1
        return found

    def place(self, instruction: str | None, goal: AnyArray | None = None) -> Placement:  # noqa: ARG002  # no goal arrays
        return text.place(instruction)

    def placement_of_task(self, name: str) -> Placement:
        """A task without parameters by its id, any task by a sentence; raises UnknownName."""
        if name in goals.TASK_IDS and name not in text.PARAMETRISED:
            return Placement(name, name)
        found = text.place(name)
        if not found.task:
            raise unknown_name("task or sentence", name, list(goals.TASK_IDS))
        return found

    def annotate(self, rows: Trajectory, rollouts: Rollouts) -> Trajectory:  # noqa: ARG002  # rows show everything
        return rows

    def goals(self, rows: Trajectory, placements: Sequence[Placement], which: IntArray) -> GoalRows:
        return goals.evaluate(rows, placements, which)

    def reward(self, rollouts: Rollouts, placements: Sequence[Placement], which: IntArray) -> dict[str, FloatArray]:
        return reward.recompute(rollouts, placements, which)

    def referee(
        self,
        obs: AnyArray,
        action: AnyArray,
        seed: int = 0,  # noqa: ARG002  # exact
        hidden: FloatArray | None = None,  # noqa: ARG002  # rows show the whole state
    ) -> tuple[AnyArray, IntArray]:
        from qualcheck.envs.babyai import simulator

        return simulator.referee(obs, action)

    def make_env(self, task: str, predicates: str = "intended", **options: Any) -> Any:
        from qualcheck.envs.babyai import simulator

        return simulator.BabyAIEnv(task, predicates, **options)

    def make_episodes(self, task: str, predicates: str = "intended", **options: Any) -> Episodes:
        """Many episodes at once; see `qualcheck.episodes`."""
        from qualcheck.envs.babyai import episodes  # not at the top: gymnasium is slow to import

        return episodes.BabyAIEpisodes(task, predicates, **options)

    def tasks(self) -> dict[str, tuple[str, ...]]:
        return goals.TASKS

    def every_placement(self) -> tuple[Placement, ...]:
        """What an instruction can mean where a task's id alone does not tell; see `qualcheck.explaining.labels`."""
        return text.every_placement()

    def floor(self, task: str, policy: str, horizon: int) -> tuple[int, int] | None:
        from qualcheck.envs.babyai import floors  # not at the top: it also runs by itself, as a module

        return floors.shipped(task, policy, horizon)

    def measure_floor(
        self, task: str, policy: str, horizon: int, episodes: int, rng: np.random.Generator
    ) -> tuple[int, int]:
        from qualcheck.envs.babyai import floors  # not at the top: it also runs by itself, as a module

        return floors.measure(task, policy, horizon, episodes, rng)

    def close(self) -> None:
        self._latest = None


def _end_fields(rollouts: Rollouts, stepped: Stepped, which: IntArray) -> Fields:
    """The end rows of some transitions as integers; they are decoded already unless the chain breaks there."""
    if len(rollouts.break_at):
        return fields(rollouts.end_obs[which])
    rows, after = stepped.rows, rollouts.row[which] + 1
    return Fields(rows.value[:, after], rows.finite[after], rows.integral[after])


def _suspects(rollouts: Rollouts, stepped: Stepped, context: Fields) -> IntArray:
    """Transitions that can break a hard rule: all others show the true row after a known action, in context.

    Looks at neighbouring rows without gathering them, since nearly all transitions of real data end here.
    """
    value, row = stepped.rows.value, rollouts.row
    odd = np.zeros(len(rollouts.obs), bool)  # (R,) by start row
    here, after = value[:, 1:], stepped.after[:, :-1]
    for column in range(OBS_SIZE):
        odd[:-1] |= here[column] != after[column]
    odd[:-1] |= ~stepped.legal[1:]
    rows_each = np.diff(rollouts.row_offsets)
    for column in (BALL_COLOUR, BOX_COLOUR, KEY_COLOUR, DOOR_COLOUR, DOOR_ROW, DOOR_COL):
        odd[:-1] |= here[column] != np.repeat(context.value[column], rows_each)[1:]
    locked = np.repeat(context.value[DOOR_STATE] == LOCKED, rows_each)[1:]
    odd[:-1] |= (here[DOOR_STATE] == LOCKED) & ~locked
    suspect = odd[row] | (stepped.action < 0)
    suspect[rollouts.break_at] = True
    suspect &= rollouts.has_end
    found: IntArray = np.flatnonzero(suspect)
    return found


def _copy_recorded(rollouts: Rollouts, stepped: Stepped, offsets: IntArray, out: AnyArray) -> None:
    """Write the recorded rows, and the simulated last row where none is recorded, into `out` (17, M+N)."""
    value = stepped.rows.value
    if rollouts.has_final.all():
        out[:] = value
        return
    shift = offsets[:-1] - rollouts.row_offsets[:-1]
    place = np.arange(value.shape[1]) + np.repeat(shift, np.diff(rollouts.row_offsets))
    out[:, place] = value
    lone = np.flatnonzero(~rollouts.has_final & (rollouts.length > 0))
    out[:, offsets[1:][lone] - 1] = stepped.after[:, rollouts.row_offsets[1:][lone] - 1]


def _execute(
    rollouts: Rollouts, stepped: Stepped, which: IntArray, offsets: IntArray, out: AnyArray, ok: BoolArray
) -> AnyArray:
    """Execute some rollouts (S,) in lockstep from row 0 into `out` (17, M+N) and `ok` (M+N,); codes (S,) int8."""
    order = which[np.argsort(-rollouts.length[which], kind="stable")]
    length, first = rollouts.length[order], rollouts.first_row[order]
    good = (stepped.code[first] == 0) & (length + rollouts.has_final[order] > 0)
    code = np.where(good, np.int8(0), np.int8(kernel.ILLEGAL_START))
    state = stepped.rows.value[:, first]
    state[CARRIED_TYPE], state[CARRIED_COLOUR] = rules.carried(state)
    row, taken = offsets[:-1][order], rollouts.offsets[:-1][order]
    out[:, row], ok[row] = state, good
    for t in range(int(length.max(initial=0))):
        active = int(np.searchsorted(-length, -t, side="left"))  # rollouts longer than t stand first
        chosen = stepped.action[taken[:active] + t]
        code[:active][(chosen < 0) & (code[:active] == 0)] = kernel.BAD_ACTION
        with phase(SIMULATE):
            state = kernel.step(state[:, :active], chosen)
        out[:, row[:active] + t + 1] = state
        ok[row[:active] + t + 1] = code[:active] == 0
    in_order = np.empty_like(code)
    in_order[np.searchsorted(which, order)] = code
    return in_order
