"""Where things stand in a Meta-World row, which entities a task shows, and which rows a simulator can be put into.

A row has 91 numbers: hand, opening of the gripper, goal, and twelve blocks of seven (position and quaternion), of which
a task fills one or two; the others are zero but for at most one distractor. Source: the ImagineBench Meta-World classes
(arXiv 2505.10010, released code of May 2025).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from qualcheck.spec import ActionSpec, Block, EnvSpec, Quaternion
from qualcheck.types import AnyArray, BoolArray, FloatArray, IntArray, Rollouts

OBS_SIZE, CODE_SIZE, ACTION_SIZE = 91, 768, 4
HORIZON, SUBSTEPS, SUBSTEP_SECONDS = 100, 5, 0.0025
STEP_SECONDS = SUBSTEPS * SUBSTEP_SECONDS

HAND, OPENING, GOAL = slice(0, 3), 3, slice(4, 7)
ENTITIES = ("target_object", "button", "lock", "handle", "window", "faucet", "wall", "coffee", "coffee-button",
            "hammer", "nail", "soccer")  # fmt: skip
FIRST_ENTITY, ENTITY_SIZE = 7, 7
SCALAR_LAST = frozenset({"target_object", "handle", "coffee", "soccer"})  # quaternions (x, y, z, w), as SciPy has them
NO_QUATERNION = "window"  # four zeros

COLUMNS = (
    "hand_x_m", "hand_y_m", "hand_z_m", "opening", "goal_x_m", "goal_y_m", "goal_z_m",
    *(f"{name.replace('-', '_')}_{part}" for name in ENTITIES
      for part in (("x_m", "y_m", "z_m") + (("qx", "qy", "qz", "qw") if name in SCALAR_LAST else
                                            ("qw", "qx", "qy", "qz")))),
)  # fmt: skip

HAND_LOW, HAND_HIGH = np.array([-0.525, 0.348, -0.0525]), np.array([0.525, 1.025, 0.7])  # m, rows of a step are clipped
MOCAP_LOW, MOCAP_HIGH = np.array([-0.5, 0.4, 0.05]), np.array([0.5, 1.0, 0.5])  # m, box of the commanded hand
LOW_MOCAP_Z_M = -0.15  # its floor in the tasks that reach below the table's edge
ACTION_SCALE_M = 0.01

# Wider than anything that a table of 1.4 m x 0.8 m can show, so that out of them a number says nothing.
HAND_MARGIN_M, ENTITY_BOUND_M, QUATERNION_SLACK = 0.1, 5.0, 0.05

CODES = ("", "non_finite", "out_of_range", "bad_quaternion", "missing_entity", "illegal_start", "bad_action", "no_task",
         "simulator_warning", "hidden_unknown")  # fmt: skip
(NON_FINITE, OUT_OF_RANGE, BAD_QUATERNION, MISSING_ENTITY, ILLEGAL_START, BAD_ACTION, NO_TASK,
 SIMULATOR_WARNING, HIDDEN_UNKNOWN) = range(1, len(CODES))  # fmt: skip


@dataclass(frozen=True)
class Task:
    """What a task shows and where its episodes start."""

    level: str
    entities: tuple[str, ...]
    hand_start_m: tuple[float, float, float]  # commanded hand during the reset and at row 0
    low_mocap: bool = False

    @property
    def mocap_low_m(self) -> FloatArray:
        low = MOCAP_LOW.copy()
        low[2] = LOW_MOCAP_Z_M if self.low_mocap else low[2]
        return low  # (3,)


_MIDDLE, _NEAR, _LEFT = (0.0, 0.6, 0.2), (0.0, 0.4, 0.2), (-0.5, 0.6, 0.2)
TASKS = {
    "reach": Task("real", ("target_object",), _MIDDLE),
    "push": Task("real", ("target_object",), _MIDDLE),
    "pick-place": Task("real", ("target_object",), _MIDDLE),
    "button-press": Task("real", ("button",), _NEAR),
    "door-unlock": Task("real", ("lock",), _MIDDLE, low_mocap=True),
    "door-open": Task("real", ("handle",), _MIDDLE),
    "window-open": Task("real", ("window",), _NEAR),
    "faucet-open": Task("real", ("faucet",), _NEAR, low_mocap=True),
    "coffee-push": Task("real", ("coffee",), _NEAR),
    "coffee-button": Task("real", ("coffee-button",), _NEAR),
    "reach-wall": Task("easy", ("target_object", "wall"), _MIDDLE),
    "push-wall": Task("easy", ("target_object", "wall"), _MIDDLE),
    "pick-place-wall": Task("easy", ("target_object", "wall"), _MIDDLE),
    "button-press-wall": Task("easy", ("button", "wall"), _NEAR),
    "door-lock": Task("easy", ("lock",), _MIDDLE, low_mocap=True),
    "door-close": Task("easy", ("handle",), _LEFT),
    "window-close": Task("easy", ("window",), _NEAR),
    "faucet-close": Task("easy", ("faucet",), _NEAR, low_mocap=True),
    "make-coffee": Task("hard", ("coffee", "coffee-button"), _NEAR),
    "locked-door-open": Task("hard", ("lock", "handle"), _MIDDLE, low_mocap=True),
    "hammer": Task("hard", ("hammer", "nail"), _NEAR),
    "soccer": Task("hard", ("soccer",), _MIDDLE),
}
LOCK_TASKS = ("door-unlock", "door-lock", "locked-door-open")

TASK_IDS = tuple(TASKS)
REWARDED = ("door-open",)  # tasks whose raw reward follows from rows: hand, handle, door angle and action

# What the error of a true replay depends on. A lock's door that starts jammed, or behind which the hand has been, has
# errors of its own; an object that moves untouched is followed less well than one that lies still.
SITUATIONS = ("free", "moving", "contact", "lock", "unsettled")
FREE, MOVING, CONTACT, LOCK, UNSETTLED = range(len(SITUATIONS))

# The hidden numbers of a cut: the simulator as it was carried along and as it was anchored, of the kernel's names each,
# what a step needs beside a row, what stands in the blocks that no simulator fills, and what the filter thinks.
KERNEL_HIDDEN = (*(f"qpos_{k}" for k in range(17)), *(f"qvel_{k}" for k in range(16)),
                 "commanded_x_m", "commanded_y_m", "commanded_z_m")  # fmt: skip
CARRIED = slice(0, len(KERNEL_HIDDEN))
ANCHORED = slice(CARRIED.stop, CARRIED.stop + len(KERNEL_HIDDEN))
TASK = ANCHORED.stop
LAYOUT = slice(TASK + 1, TASK + 4)
FIRST_GOAL = slice(LAYOUT.stop, LAYOUT.stop + 3)
SIGNS = slice(FIRST_GOAL.stop, FIRST_GOAL.stop + len(ENTITIES))
OTHERS = slice(SIGNS.stop, SIGNS.stop + OBS_SIZE - FIRST_ENTITY)
SETTLED, ROUNDING, TOUCHED = range(OTHERS.stop, OTHERS.stop + 3)
HIDDEN_SIZE = TOUCHED + 1
GROUP = "row"  # of all blocks: objects lie still in most steps, so that apart from the hand they have no usual error
BATCH = 4_000  # transitions, some 60 rollouts: enough to keep every core busy to the end


def make_spec(version: str = "1") -> EnvSpec:
    """What the environment declares about itself."""
    parts = [Block("hand", tuple(range(3)), "m", GROUP), Block("gripper", (OPENING,), "1", GROUP),
             Block("goal", tuple(range(4, 7)), "m", GROUP)]  # fmt: skip
    for entity in ENTITIES:
        name, first = entity.replace("-", "_"), block(entity).start
        parts.append(Block(f"{name}_position", tuple(range(first, first + 3)), "m", GROUP))
        parts.append(Block(f"{name}_orientation", tuple(range(first + 3, first + 7)), "1", GROUP))
    return EnvSpec(
        id="metaworld",
        version=version,
        blocks=tuple(parts),
        obs_size=OBS_SIZE,
        code_size=CODE_SIZE,
        action=ActionSpec("box", ACTION_SIZE, -1.0, 1.0),
        step_seconds=STEP_SECONDS,
        horizon=HORIZON,
        judging_grade="scaled:0.5",
        restores="partial",
        codes=CODES,
        columns=COLUMNS,
        floor_horizons=tuple(range(1, HORIZON + 1)),  # the shipped table knows the step of each success
        hidden=(
            *(f"carried_{name}" for name in KERNEL_HIDDEN),
            *(f"anchored_{name}" for name in KERNEL_HIDDEN),
            "task",
            *(f"furniture_{axis}_m" for axis in "xyz"),
            *(f"first_goal_{axis}_m" for axis in "xyz"),
            *(f"sign_{entity.replace('-', '_')}" for entity in ENTITIES),
            *(f"shown_{name}" for name in COLUMNS[FIRST_ENTITY:]),
            "settled",
            "rounding_m",
            "steps_since_contact",
        ),
        situations=SITUATIONS,
        quaternions=tuple(
            Quaternion((at - 4, at - 3, at - 2, at - 1), "last" if entity in SCALAR_LAST else "first")
            for entity in ENTITIES
            if entity != NO_QUATERNION
            for at in (block(entity).stop,)
        ),
        unrewarded=tuple(task for task in TASKS if task not in REWARDED),
        thresholds=("distances to the goal, m",),
        batch_transitions=BATCH,
    )


def base_task(env_name: str) -> str:
    """The task of one of the benchmark's environment names, such as `rep-push-v2-goal-observable`; "" if unknown."""
    name = env_name.removesuffix("-v2-goal-observable").removeprefix("rep-")
    return name if name in TASKS else ""


def block(entity: str) -> slice:
    """The seven columns of an entity."""
    first = FIRST_ENTITY + ENTITY_SIZE * ENTITIES.index(entity)
    return slice(first, first + ENTITY_SIZE)


def position(entity: str) -> slice:
    first = block(entity).start
    return slice(first, first + 3)


def quaternion(entity: str) -> slice:
    last = block(entity).stop
    return slice(last - 4, last)


def wxyz(entity: str, quat: AnyArray) -> FloatArray:
    """Quaternions of an entity's block with the scalar first, as MuJoCo has them. (..., 4) -> (..., 4) float64."""
    wide = np.asarray(quat, np.float64)
    return np.roll(wide, 1, axis=-1) if entity in SCALAR_LAST else wide


def simulated_columns(task: str) -> BoolArray:
    """The columns that a simulator of the task says something about, (91,): all but the other entities' blocks."""
    mine = np.zeros(OBS_SIZE, bool)
    mine[:FIRST_ENTITY] = True
    for entity in TASKS[task].entities:
        mine[block(entity)] = True
    return mine


def distractors(obs: AnyArray, task: str) -> tuple[IntArray, IntArray]:
    """The first entity shown beside those of the task, -1 where none, and how many are. (R, 91) -> 2 x (R,)."""
    blocks = obs[:, FIRST_ENTITY:].reshape(len(obs), len(ENTITIES), ENTITY_SIZE)
    shown = (blocks != 0).any(axis=2)  # (R, 12)
    shown[:, [ENTITIES.index(entity) for entity in TASKS[task].entities]] = False
    return np.where(shown.any(axis=1), shown.argmax(axis=1), -1), shown.sum(axis=1)


def takeable(obs: AnyArray) -> IntArray:
    """0 where a simulator can take on the row whatever its task, else an index into `CODES`. (R, 91) -> (R,) int8."""
    wide = obs.astype(np.float64, copy=False)
    finite = np.isfinite(wide).all(axis=1)
    code = np.where(finite, 0, NON_FINITE).astype(np.int8)
    with np.errstate(invalid="ignore", over="ignore"):
        hand, opening = wide[:, HAND], wide[:, OPENING]
        outside = ((hand < HAND_LOW - HAND_MARGIN_M) | (hand > HAND_HIGH + HAND_MARGIN_M)).any(axis=1)
        outside |= (opening < -1) | (opening > 1) | (np.abs(wide[:, GOAL]) > ENTITY_BOUND_M).any(axis=1)
        blocks = wide[:, FIRST_ENTITY:].reshape(len(wide), len(ENTITIES), ENTITY_SIZE)
        outside |= (np.abs(blocks) > ENTITY_BOUND_M).any(axis=(1, 2))  # no quaternion has such numbers either
        norm = np.sqrt((blocks[:, :, 3:] ** 2).sum(axis=2))  # (R, 12)
        crooked = (np.abs(norm - 1) > QUATERNION_SLACK) & (blocks != 0).any(axis=2)
        crooked[:, ENTITIES.index(NO_QUATERNION)] = norm[:, ENTITIES.index(NO_QUATERNION)] > QUATERNION_SLACK
    code[(code == 0) & outside] = OUT_OF_RANGE
    code[(code == 0) & crooked.any(axis=1)] = BAD_QUATERNION
    return code


def without_task(code: IntArray) -> IntArray:
    """Codes of `takeable` for rows whose task is not known: a crooked quaternion may be that of a distractor. (R,)."""
    return np.where(code == BAD_QUATERNION, 0, code).astype(np.int8)


def takeable_for(obs: AnyArray, task: str) -> IntArray:
    """`takeable`, and `MISSING_ENTITY` where a block of the task is all zero; blocks of other entities are not read."""
    mine = np.where(simulated_columns(task), obs, 0)  # (R, 91)
    code = takeable(mine)
    for entity in TASKS[task].entities:
        code[(code == 0) & ~(mine[:, block(entity)] != 0).any(axis=1)] = MISSING_ENTITY
    return code


def usable_actions(action: AnyArray) -> BoolArray:
    """Actions whose numbers are all finite, (M, 4) -> (M,)."""
    finite: BoolArray = np.logical_and.reduce(np.isfinite(action), axis=1)
    return finite


def commanded_hand(start_m: FloatArray, action: AnyArray, task: str) -> FloatArray:
    """The mocap body before each action and after the last: m' = clip(m + 0.01 clip(a)). (3,), (T, 4) -> (T+1, 3)."""
    low, path = TASKS[task].mocap_low_m, np.empty((len(action) + 1, 3))
    path[0] = start_m
    path[1:] = ACTION_SCALE_M * np.clip(action[:, :3].astype(np.float64), -1, 1)
    free = np.cumsum(path, axis=0)
    if ((free[1:] >= low) & (free[1:] <= MOCAP_HIGH)).all():
        return free
    for t in range(len(action)):  # the clip makes each depend on the last
        path[t + 1] = np.minimum(np.maximum(path[t] + path[t + 1], low), MOCAP_HIGH)
    return path


def from_reset(rollouts: Rollouts) -> BoolArray:
    """Whether each rollout starts at a reset, (N,); where the file does not say, those that were never cut do."""
    never_cut: BoolArray = rollouts.source_step == 0
    return never_cut if rollouts.is_reset is None else never_cut & rollouts.is_reset
