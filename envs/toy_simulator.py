"""The simulator of the toy environment: a puck on a line whose velocity no row shows.

The puck slides between walls at 0 m and 1 m, pushed by a force. A gripper rides on it: fully closed it holds the puck
still. One step of 0.1 s, with friction factor 0.95, speed limit 2 m/s and restitution 0.8 at a wall:

    gripper' = clip(gripper + 0.25 grip, 0, 1)
    velocity' = clip(0.95 velocity + 0.1 force / mass, -2, 2), 0 where gripper' = 0
    position' = position + 0.1 velocity', mirrored at a wall with position and velocity times 0.8

A row is (position_m, gripper, mass_kg); an action is (force_n, grip), both clipped to [-1, 1]. At a reset the puck
rests near the middle with the gripper open.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import gymnasium
import numpy as np

from qualcheck.types import AnyArray, BoolArray, FloatArray, GoalRows, IntArray, Rollouts, Trajectory

POSITION, GRIPPER, MASS = 0, 1, 2
FORCE, GRIP = 0, 1
STEP_SECONDS, HORIZON = 0.1, 60
FRICTION, SPEED_LIMIT_M_S, RESTITUTION, GRIP_RATE = 0.95, 2.0, 0.8, 0.25
START_M, MASS_KG = (0.4, 0.6), (0.5, 2.0)  # ranges of a reset
FORCE_COST = 0.01  # reward per squared newton
OBS_SIZE, ACTION_SIZE = 3, 2


@dataclass(frozen=True)
class Task:
    """A task: its sub-goals, and how the intended and the released success test join them."""

    level: str
    texts: tuple[str, ...]
    parts: tuple[str, ...]
    join: Literal["together", "in_order"]  # together: on one row; in_order: latched, one after the other
    released: Literal["same", "last", "any_order"] = "same"


# The released tests carry two faults of the kind real benchmarks have: a forgotten sub-goal and a forgotten order.
TASKS = {
    "reach_left": Task("real", ("move the puck to the left side", "push it to the left wall"), ("left",), "together"),
    "reach_right": Task(
        "real", ("move the puck to the right side", "push it to the right wall"), ("right",), "together"
    ),
    "hold_middle": Task("easy", ("hold the puck in the middle",), ("middle", "held"), "together", "last"),
    "left_then_right": Task(
        "hard", ("touch the left side, then the right side",), ("left", "right"), "in_order", "any_order"
    ),
    "right_then_left": Task(
        "hard", ("touch the right side, then the left side",), ("right", "left"), "in_order", "any_order"
    ),
}


def advance(rows: FloatArray, velocity: FloatArray, action: FloatArray) -> tuple[FloatArray, FloatArray]:
    """The rows and velocities one step later, by the equations at the head of this file.

    Args:
        rows: (..., 3) as in a row.
        velocity: (...) m/s.
        action: (..., 2); numbers outside [-1, 1] are clipped.
    """
    pushed = np.clip(action, -1.0, 1.0)
    gripper = np.clip(rows[..., GRIPPER] + GRIP_RATE * pushed[..., GRIP], 0.0, 1.0)
    speed = FRICTION * velocity + STEP_SECONDS * pushed[..., FORCE] / rows[..., MASS]
    speed = np.where(gripper <= 0, 0.0, np.clip(speed, -SPEED_LIMIT_M_S, SPEED_LIMIT_M_S))
    position = rows[..., POSITION] + STEP_SECONDS * speed
    low, high = position < 0, position > 1
    speed = np.where(low | high, -RESTITUTION * speed, speed)
    position = np.where(low, -RESTITUTION * position, np.where(high, 1 - RESTITUTION * (position - 1), position))
    shape = position.shape
    return np.stack([position, np.broadcast_to(gripper, shape), np.broadcast_to(rows[..., MASS], shape)], -1), speed


def latch(holds: BoolArray, first: IntArray) -> BoolArray:
    """Whether it has held on this row or an earlier one of the same rollout; `first` (R,) is its row 0."""
    last = np.maximum.accumulate(np.where(holds, np.arange(len(holds)), -1))
    reached: BoolArray = last >= first
    return reached


def goal_rows(rows: Trajectory, tasks: Sequence[str]) -> GoalRows:
    """Goals of rollouts whose tasks are given, "" where there is none: (N,) names -> GoalRows."""
    rollout = np.repeat(np.arange(len(tasks)), np.diff(rows.offsets))  # (M+N,)
    first = rows.offsets[rollout]  # (M+N,)
    ok = rows.ok
    position, gripper = rows.obs[:, POSITION], rows.obs[:, GRIPPER]
    part = {
        "left": ok & (position <= 0.1),
        "right": ok & (position >= 0.9),
        "middle": ok & (np.abs(position - 0.5) <= 0.1),
        "held": ok & (gripper <= 0),
    }
    goal = GoalRows(np.zeros(len(ok), bool), np.zeros(len(ok), bool), np.zeros(len(ok)))
    names = np.array(tasks, dtype=object)
    for name in {task for task in tasks if task}:
        task, mine = TASKS[name], (names == name)[rollout]
        reached: list[BoolArray] = []
        for each in task.parts:
            if task.join == "together":
                reached.append(part[each])
            else:
                reached.append(latch(part[each] & (reached[-1] if reached else True), first))
        intended = np.logical_and.reduce(reached)
        released = {
            "same": intended,
            "last": part[task.parts[-1]],
            "any_order": np.logical_and.reduce([latch(part[each], first) for each in task.parts]),
        }[task.released]
        goal.intended[mine] = (intended & ok)[mine]
        goal.released[mine] = (released & ok)[mine]
        goal.share[mine] = np.where(ok, np.mean(reached, axis=0), 0.0)[mine]
    return goal


class ToyEnv(gymnasium.Env[AnyArray, AnyArray]):
    """The simulator: one task, with success judged by the intended or the released test."""

    def __init__(self, task: str, predicates: str = "intended") -> None:
        self.task, self.predicates = task, predicates
        self.observation_space = gymnasium.spaces.Box(
            np.array([0, 0, MASS_KG[0]], np.float32), np.array([1, 1, MASS_KG[1]], np.float32)
        )
        self.action_space = gymnasium.spaces.Box(-1.0, 1.0, (2,), np.float32)
        self.restore(np.array([0.5, 1.0, 1.0]))

    def restore(self, row: AnyArray, velocity: float = 0.0) -> None:
        """Start an episode at a row, (3,), with a velocity in m/s."""
        self.state: FloatArray = np.asarray(row, np.float64)  # (3,)
        self.velocity: FloatArray = np.array(velocity)
        self.seen = [self.observation()]

    def observation(self) -> AnyArray:
        return self.state.astype(np.float32)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[AnyArray, dict[str, Any]]:
        super().reset(seed=seed, options=options)
        self.restore(np.array([self.np_random.uniform(*START_M), 1.0, self.np_random.uniform(*MASS_KG)]))
        return self.observation(), {"is_success": False}

    def step(self, action: AnyArray) -> tuple[AnyArray, float, bool, bool, dict[str, Any]]:
        pushed = np.asarray(action, np.float64)
        self.state, self.velocity = advance(self.state, self.velocity, pushed)
        self.seen.append(self.observation())
        rows = Trajectory(np.stack(self.seen), np.array([0, len(self.seen)]), np.ones(len(self.seen), bool))
        goal = goal_rows(rows, [self.task])
        success = bool((goal.released if self.predicates == "released" else goal.intended)[-1])
        reward = float(success - FORCE_COST * np.clip(pushed[FORCE], -1, 1) ** 2)
        return self.seen[-1], reward, success, len(self.seen) > HORIZON, {"is_success": success}


def record(n: int, rng: np.random.Generator) -> Rollouts:
    """n real episodes of all tasks in turn, stored as float32; two in five act at random, the others on purpose.

    An episode stops at the first intended success or at the horizon; its last row is kept.
    """
    obs: list[AnyArray] = []
    action: list[AnyArray] = []
    reward: list[float] = []
    length, names, terminal = np.zeros(n, np.int64), list(TASKS), []
    for i in range(n):
        env = ToyEnv(names[i % len(names)])
        row, _ = env.reset(seed=int(rng.integers(2**31)))
        obs.append(row)
        erratic, done = rng.random() < 0.4, False
        while not done:
            wanted = rng.uniform(-1, 1, 2) if erratic else purposeful(env, rng)
            action.append(np.clip(wanted, -1, 1).astype(np.float32))
            row, gained, success, timed_out, _ = env.step(action[-1])
            done = success or timed_out
            obs.append(row)
            reward.append(gained)
            terminal.append(success)
            length[i] += 1
    offsets = np.concatenate([[0], np.cumsum(length)])
    ended = np.zeros(int(offsets[-1]), bool)
    ended[offsets[1:] - 1] = True
    return Rollouts(
        obs=np.array(obs, np.float32).reshape(-1, OBS_SIZE),
        action=np.array(action, np.float32).reshape(-1, ACTION_SIZE),
        offsets=offsets,
        has_final=np.ones(n, bool),
        source=np.zeros(n, np.int32),
        source_rollout=np.arange(n, dtype=np.int32),
        source_step=np.zeros(n, np.int32),
        instruction=[TASKS[names[i % len(names)]].texts[0] for i in range(n)],
        reward=np.array(reward),
        terminal=np.array(terminal, bool),
        truncated=ended & ~np.array(terminal, bool),
        is_reset=np.ones(n, bool),
    )


def purposeful(env: ToyEnv, rng: np.random.Generator) -> FloatArray:
    """A noisy action towards the goal of the environment's task, (2,)."""
    if env.task == "hold_middle":
        return np.array([rng.normal(), -1.0 if len(env.seen) > 5 else rng.uniform(-0.2, 0.2)])
    parts = TASKS[env.task].parts
    latest = Trajectory(np.stack(env.seen), np.array([0, len(env.seen)]), np.ones(len(env.seen), bool))
    halfway = len(parts) > 1 and goal_rows(latest, [env.task]).share[-1] > 0
    heading = -1.0 if parts[int(halfway)] == "left" else 1.0
    return np.array([heading, 0.2]) + rng.normal(0, 0.2, 2)
