"""The toy environment's adapter: the smallest one that needs the sequential filter, and the example to copy.

Its rows hide the velocity of the puck of `toy_simulator`, so a row alone cannot be replayed: the simulator is carried
along each rollout from its reset, and what a row shows is written over it before each action.
"""

from __future__ import annotations

import string
from collections.abc import Sequence
from typing import Any

import numpy as np

from qualcheck.envs.toy_simulator import (
    FORCE,
    FORCE_COST,
    GRIP_RATE,
    GRIPPER,
    HORIZON,
    MASS,
    MASS_KG,
    POSITION,
    SPEED_LIMIT_M_S,
    START_M,
    STEP_SECONDS,
    TASKS,
    ToyEnv,
    advance,
    goal_rows,
    record,
)
from qualcheck.errors import unknown_name
from qualcheck.spec import ActionSpec, Block, EnvSpec, Rule
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

__all__ = ["Toy", "record"]

ROUNDING = 1e-5  # rows are stored as float32 or to five decimals

SPEC = EnvSpec(
    id="toy",
    version="1",
    blocks=(Block("puck", (POSITION,), "m"), Block("gripper", (GRIPPER,), "1"), Block("mass", (MASS,), "kg")),
    obs_size=3,
    code_size=0,
    action=ActionSpec("box", 2, -1.0, 1.0),
    step_seconds=STEP_SECONDS,
    horizon=HORIZON,
    judging_grade="scaled:0.5",
    restores="filtered",
    codes=(
        "",
        "non_finite_row",
        "position_out_of_range",
        "gripper_out_of_range",
        "mass_out_of_range",
        "non_finite_action",
        "hidden_velocity_unknown",
    ),
    columns=("position_m", "gripper", "mass_kg"),
    hidden=("velocity_m_s", "velocity_of_rows_m_s", "settled"),
    situations=("settled", "unsettled"),
)
BAD_ACTION, UNKNOWN_VELOCITY = SPEC.codes.index("non_finite_action"), SPEC.codes.index("hidden_velocity_unknown")

RULES = (
    # the row rules stand in the order of the codes that `takeable` returns for the same faults
    Rule("row.finite", "range", "1", "finite", "every number of the row is finite"),
    Rule("row.position_range", "range", "m", "0 to 1", "the puck is between the walls"),
    Rule("row.gripper_range", "range", "1", "0 to 1", "the gripper opening is between closed and open"),
    Rule("row.mass_range", "range", "kg", "0.5 to 2", "the mass is one that a reset can draw"),
    Rule("context.mass_constant", "conservation", "kg", "1e-5", "the mass is that of row 0"),
    Rule("step.speed_limit", "kinematics", "m", "0.2", "the puck moves no further than its top speed allows"),
    Rule("step.gripper_rate", "kinematics", "1", "0.25", "the gripper moves no further than a step allows"),
    Rule("step.held_puck_moves", "contact", "m", "1e-5", "a puck held by the closed gripper stays where it is"),
    Rule("step.action_range", "range", "1", "-1 to 1", "the action needed no clipping", hard=False),
    Rule("row0.start_position", "reset", "m", "0.4 to 0.6", "an episode starts near the middle"),
    Rule("row0.gripper_open", "reset", "1", "1", "an episode starts with the gripper open"),
)
RULE_IDS = tuple(rule.id for rule in RULES)


# Task -> successes of the no-op and of the random policy in measure_floor(200 episodes, a generator of seed 0)
FLOOR_EPISODES = 200
FLOORS = {
    "reach_left": (0, 43),
    "reach_right": (0, 46),
    "hold_middle": (0, 49),
    "left_then_right": (0, 3),
    "right_then_left": (0, 0),
}
POLICIES = ("noop", "random")


def known(kind: str, name: str, names: Sequence[str]) -> str:
    """The name itself.

    Raises:
        UnknownName: it is none of the names.
    """
    if name not in names:
        raise unknown_name(kind, name, list(names))
    return name


def fold(text: str) -> str:
    """The text in lower case without punctuation and with single spaces."""
    return " ".join(text.lower().translate(str.maketrans(string.punctuation, " " * len(string.punctuation))).split())


TASK_OF_TEXT = {fold(text): name for name, task in TASKS.items() for text in task.texts}


def blank(rollouts: Rollouts) -> tuple[Trajectory, IntArray]:
    """A trajectory that shows only row 0 of each rollout, and where the row after each transition goes, (M,)."""
    offsets = rollouts.offsets + np.arange(rollouts.n_rollouts + 1)
    obs = np.full((offsets[-1], SPEC.obs_size), np.nan)
    present = rollouts.length + rollouts.has_final > 0
    obs[offsets[:-1][present]] = rollouts.obs[rollouts.first_row[present]]
    after = np.arange(rollouts.n_transitions) + rollouts.rollout + 1
    return Trajectory(obs, offsets, np.logical_and.reduce(np.isfinite(obs), axis=1)), after


def from_reset(rollouts: Rollouts) -> BoolArray:
    """Whether each rollout starts at a reset, (N,); where the file does not say, those that were never cut do."""
    return rollouts.source_step == 0 if rollouts.is_reset is None else rollouts.is_reset


class Toy:
    """The adapter of the puck."""

    spec: EnvSpec = SPEC
    rules: tuple[Rule, ...] = RULES
    findings: tuple[str, ...] = ()

    def __init__(self) -> None:
        self.steps_executed = 0

    def layouts(self) -> tuple[EnvSpec, ...]:
        return (SPEC,)

    def with_layout(self, obs_size: int) -> Toy:  # noqa: ARG002  there is one
        return self

    @property
    def family(self) -> str:
        return ""

    def families(self) -> tuple[str, ...]:
        return ()

    def with_family(self, name: str) -> Toy:  # noqa: ARG002  there is one simulator
        return self

    def recognise(self, rollouts: Rollouts) -> tuple[str, str]:  # noqa: ARG002
        return "", ""

    def takeable(self, obs: AnyArray) -> IntArray:
        position, gripper, mass = obs[:, POSITION], obs[:, GRIPPER], obs[:, MASS]
        faults = [
            ~np.isfinite(obs).all(axis=1),
            ~((position >= -ROUNDING) & (position <= 1 + ROUNDING)),
            ~((gripper >= -ROUNDING) & (gripper <= 1 + ROUNDING)),
            ~((mass >= MASS_KG[0] - ROUNDING) & (mass <= MASS_KG[1] + ROUNDING)),
        ]
        return np.select(faults, np.arange(1, 5), 0).astype(np.int64)

    def replay(self, rollouts: Rollouts) -> Replay:
        """Three candidates: the velocity carried from row 0, that between the last two rows, and rest.

        A velocity is known at a reset and wherever the closed gripper holds the puck. A cut has none at its first
        transition; from its second on, the difference of the rows stands in. Rows that no simulator can take are
        bridged with the simulator's own state, so the transitions after them keep their carried velocity.
        """
        start = rollouts.start_obs.astype(np.float64)  # (M, O)
        action = rollouts.action.astype(np.float64)  # (M, A)
        code = self.takeable(rollouts.start_obs)
        shown, actable = code == 0, np.isfinite(action).all(axis=1)
        previous, settled = self._previous(rollouts, start, shown), from_reset(rollouts)
        if rollouts.hidden is not None:
            told, first = ~np.isnan(rollouts.hidden[:, 0]) & (rollouts.length > 0), rollouts.offsets[:-1]
            previous[first[told]], settled = (
                rollouts.hidden[told, 1],
                np.where(told, rollouts.hidden[:, 2] > 0, settled),
            )
        carried = self._carry(rollouts, start, shown, action, previous)
        previous = np.where(np.isnan(previous), carried, previous)
        code[shown & ~actable] = BAD_ACTION
        code[(code == 0) & np.isnan(carried)] = UNKNOWN_VELOCITY
        velocity = np.stack([carried, previous, np.zeros_like(carried)])  # (K, M)
        candidates = np.full((3, *start.shape), np.nan)
        good = code == 0
        candidates[:, good] = advance(start[good][None], velocity[:, good], action[good][None])[0]
        steps = rollouts.n_transitions + 3 * int(good.sum())
        self.steps_executed += steps
        known = settled[rollouts.rollout]  # (M,)
        hidden = np.stack([carried, previous, known], axis=1)
        return Replay(candidates, ("carried", "previous", "rest"), code, steps, None, np.where(known, 0, 1), hidden)

    def _previous(self, rollouts: Rollouts, start: FloatArray, shown: BoolArray) -> FloatArray:
        """Velocity that each row itself tells, NaN where none: (M,) m/s."""
        velocity = np.full(len(start), np.nan)
        velocity[(rollouts.step == 0) & from_reset(rollouts)[rollouts.rollout]] = 0.0
        later = np.flatnonzero(rollouts.step > 0)
        later = later[shown[later] & shown[later - 1]]
        velocity[later] = (start[later, POSITION] - start[later - 1, POSITION]) / STEP_SECONDS
        velocity[shown & (start[:, GRIPPER] <= 0)] = 0.0
        return velocity

    def _carry(
        self, rollouts: Rollouts, start: FloatArray, shown: BoolArray, action: FloatArray, previous: FloatArray
    ) -> FloatArray:
        """The sequential filter, all rollouts in lockstep: the hidden velocity before each action, (M,) m/s."""
        carried = np.full(len(start), np.nan)
        order = np.argsort(-rollouts.length, kind="stable")  # the rollouts still running are always a prefix
        running = np.searchsorted(-rollouts.length[order], -np.arange(rollouts.length.max(initial=0)), side="left")
        state = np.full((rollouts.n_rollouts, SPEC.obs_size), np.nan)  # (N, O)
        velocity = np.full(rollouts.n_rollouts, np.nan)  # (N,)
        for step, n_running in enumerate(running):
            now = rollouts.offsets[:-1][order[:n_running]] + step
            rows = np.where(shown[now, None], start[now], state[:n_running])
            if step == 0 and rollouts.hidden is not None:
                velocity[:n_running] = rollouts.hidden[order[:n_running], 0]
            before = np.where(np.isnan(velocity[:n_running]), previous[now], velocity[:n_running])
            before[shown[now] & (start[now, GRIPPER] <= 0)] = 0.0
            carried[now] = before
            state[:n_running], velocity[:n_running] = advance(rows, before, action[now])
        return carried

    def open_loop(self, rollouts: Rollouts) -> OpenLoop:
        played, _ = blank(rollouts)
        first = played.offsets[:-1]
        state, velocity = played.obs[first], np.zeros(rollouts.n_rollouts)  # (N, O), (N,)
        code, known = self.takeable(state), from_reset(rollouts) | (state[:, GRIPPER] <= 0)
        if rollouts.hidden is not None:
            told = ~np.isnan(rollouts.hidden[:, 0]) & (state[:, GRIPPER] > 0)
            velocity[told], known = rollouts.hidden[told, 0], known | told
        code[(code == 0) & ~known] = UNKNOWN_VELOCITY
        played.ok[first] = code == 0
        action = rollouts.action.astype(np.float64)
        for step in range(rollouts.length.max(initial=0)):
            who = np.flatnonzero((code == 0) & (rollouts.length > step))
            now = rollouts.offsets[:-1][who] + step
            refused = ~np.isfinite(action[now]).all(axis=1)
            code[who[refused]] = BAD_ACTION
            who, now = who[~refused], now[~refused]
            state[who], velocity[who] = advance(state[who], velocity[who], action[now])
            played.obs[first[who] + step + 1], played.ok[first[who] + step + 1] = state[who], True
        return OpenLoop(played, code)

    def legality(
        self,
        rollouts: Rollouts,
        placements: Sequence[Placement],  # noqa: ARG002  no rule of the puck depends on the task
        which: IntArray,  # noqa: ARG002
    ) -> Legality:
        """Out of an illegal row only the row rules of the end are tested."""
        start, end = rollouts.start_obs.astype(np.float64), rollouts.end_obs.astype(np.float64)
        context = rollouts.context_obs.astype(np.float64)[rollouts.rollout]  # (M, O)
        rule = self.takeable(rollouts.end_obs)  # (M,) the row rules share the order of the codes
        with np.errstate(invalid="ignore", over="ignore"):
            moved, opened = np.abs(end[:, POSITION] - start[:, POSITION]), np.abs(end[:, GRIPPER] - start[:, GRIPPER])
            heavier = np.abs(end[:, MASS] - context[:, MASS])
        broken = {  # (M,) each
            "context.mass_constant": heavier > ROUNDING,
            "step.speed_limit": moved > SPEED_LIMIT_M_S * STEP_SECONDS + ROUNDING,
            "step.gripper_rate": opened > GRIP_RATE + ROUNDING,
            "step.held_puck_moves": (end[:, GRIPPER] <= 0) & (moved > ROUNDING),
        }
        applies = self.takeable(rollouts.start_obs) == 0
        for name, fault in broken.items():
            rule[(rule == 0) & applies & fault] = 1 + RULE_IDS.index(name)
        rule[~rollouts.has_end] = -1
        clipped = np.logical_or.reduce(np.abs(rollouts.action.astype(np.float64)) > 1, axis=1)
        return Legality(rule.astype(np.int16), self._row0(rollouts), {"step.action_range": clipped})

    def _row0(self, rollouts: Rollouts) -> IntArray:
        """The row-0 rules, (N,) int16; -1 for cuts and where there is no row 0."""
        rows, _ = blank(rollouts)
        position, gripper = rows.obs[rows.offsets[:-1], POSITION], rows.obs[rows.offsets[:-1], GRIPPER]
        away = ~((position >= START_M[0] - ROUNDING) & (position <= START_M[1] + ROUNDING))
        names = [1 + RULE_IDS.index("row0.start_position"), 1 + RULE_IDS.index("row0.gripper_open")]
        rule = np.select([away, ~(np.abs(gripper - 1) <= ROUNDING)], names, 0)
        return np.where(from_reset(rollouts) & (rollouts.length + rollouts.has_final > 0), rule, -1).astype(np.int16)

    def place(self, instruction: str | None, goal: AnyArray | None = None) -> Placement:  # noqa: ARG002  no goal arrays
        """The task whose sentence this is, case and punctuation aside; files of the puck have no goal arrays."""
        if instruction is None or not fold(instruction):
            return Placement("", "", code="no_instruction")
        task = TASK_OF_TEXT.get(fold(instruction), "")
        return Placement(task, task, TASKS[task].parts) if task else Placement("", "", code="ambiguous_instruction")

    def placement_of_task(self, name: str) -> Placement:
        """A task by its id or sentence; raises UnknownName."""
        if name in TASKS:
            return Placement(name, name, TASKS[name].parts)
        found = self.place(name)
        if not found.task:
            raise unknown_name("task or sentence", name, list(TASKS))
        return found

    def annotate(self, rows: Trajectory, rollouts: Rollouts) -> Trajectory:  # noqa: ARG002  rows show everything
        return rows

    def goals(self, rows: Trajectory, placements: Sequence[Placement], which: IntArray) -> GoalRows:
        return goal_rows(rows, [placements[i].task for i in which])

    def reward(self, rollouts: Rollouts, placements: Sequence[Placement], which: IntArray) -> dict[str, FloatArray]:
        """1 for success on the end row, minus 0.01 times the squared clipped force, under both success tests.

        NaN without a task, an end row, a finite action, or, for the tasks in two stages, a start at a reset.
        """
        rows, after = blank(rollouts)
        first = rows.offsets[:-1]
        rows.ok[first] = self.takeable(rows.obs[first]) == 0
        rows.obs[after], rows.ok[after] = rollouts.end_obs, rollouts.has_end & (self.takeable(rollouts.end_obs) == 0)
        goal = self.goals(rows, placements, which)
        names = [placements[i].task for i in which]
        placed = np.array([name != "" for name in names], bool)
        alone = np.array([name != "" and TASKS[name].join == "together" for name in names], bool)
        usable = rows.ok[after] & (alone | (placed & from_reset(rollouts)))[rollouts.rollout]
        usable &= np.isfinite(rollouts.action).all(axis=1)
        cost = FORCE_COST * np.clip(rollouts.action[:, FORCE].astype(np.float64), -1, 1) ** 2
        return {
            "intended": np.where(usable, goal.intended[after] - cost, np.nan),
            "released": np.where(usable, goal.released[after] - cost, np.nan),
        }

    def referee(
        self,
        obs: AnyArray,
        action: AnyArray,
        seed: int = 0,  # noqa: ARG002  nothing is drawn
        hidden: FloatArray | None = None,
    ) -> tuple[AnyArray, IntArray]:
        """Single steps of `ToyEnv`; without a hidden velocity out of rest, as a lone row cannot tell one."""
        code, end = self.takeable(obs), np.full(obs.shape, np.nan)
        code[(code == 0) & ~np.isfinite(action).all(axis=1)] = BAD_ACTION
        env = ToyEnv("reach_left")
        for i in np.flatnonzero(code == 0):
            env.restore(obs[i], 0.0 if hidden is None else float(hidden[i, 0]))
            env.step(action[i])
            end[i] = env.state
        return end, code

    def make_env(self, task: str, predicates: str = "intended", **options: Any) -> ToyEnv:
        """The simulator of one task; an unknown task or predicate set raises UnknownName."""
        known("predicate set", predicates, ["intended", "released"])
        return ToyEnv(known("toy task", task, list(TASKS)), predicates, **options)

    def tasks(self) -> dict[str, tuple[str, ...]]:
        levels = dict.fromkeys(task.level for task in TASKS.values())
        return {level: tuple(name for name, task in TASKS.items() if task.level == level) for level in levels}

    def floor(self, task: str, policy: str, horizon: int) -> tuple[int, int] | None:
        if horizon != HORIZON or task not in FLOORS or policy not in POLICIES:
            return None
        return FLOORS[task][POLICIES.index(policy)], FLOOR_EPISODES

    def measure_floor(
        self, task: str, policy: str, horizon: int, episodes: int, rng: np.random.Generator
    ) -> tuple[int, int]:
        """Episodes that meet the intended goal on any row, out of fresh resets, without or with random actions."""
        known("toy task", task, list(TASKS))
        known("policy", policy, POLICIES)
        start = np.stack([rng.uniform(*START_M, episodes), np.ones(episodes), rng.uniform(*MASS_KG, episodes)], axis=1)
        drawn = rng.uniform(-1, 1, (episodes, horizon, 2))
        rows: list[FloatArray] = [start]
        velocity: FloatArray = np.zeros(episodes)
        for step in range(horizon):
            after, velocity = advance(rows[-1], velocity, drawn[:, step] * (policy == "random"))
            rows.append(after)
        obs = np.stack(rows, axis=1).reshape(-1, SPEC.obs_size)  # (episodes * (horizon + 1), O)
        played = Trajectory(obs, np.arange(episodes + 1) * (horizon + 1), np.ones(len(obs), bool))
        reached = goal_rows(played, [task] * episodes).intended.reshape(episodes, horizon + 1).any(axis=1)
        return int(reached.sum()), episodes

    def close(self) -> None:
        """Nothing is held open."""
