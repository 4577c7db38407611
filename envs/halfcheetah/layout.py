"""Where things stand in a HalfCheetah row, in both layouts, and which rows a simulator can be put into.

The benchmark's row has 18 numbers: the displacement of the last step (in the row of a reset: absolute x), then the 17
of gymnasium's HalfCheetah, which are the plain layout. Those 17 are the state up to absolute x, on which nothing in
the dynamics depends. Source: the ImagineBench HalfCheetah class (arXiv 2505.10010, released code of May 2025).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from qualcheck.spec import ActionSpec, Block, EnvSpec
from qualcheck.types import AnyArray, BoolArray, FloatArray, IntArray, Rollouts, Trajectory

STATE_SIZE = 17
BENCHMARK_SIZE = 18
CODE_SIZE = 768
ACTION_SIZE = 6
HORIZON = 200
FLOOR_HORIZONS = (100, HORIZON)  # of the benchmark's shorter recordings, and of its episodes
SUBSTEPS = 5  # mj_step calls an action
STEP_SECONDS = 0.05
BATCH = 8_192  # transitions
RESTART_MARGIN_M = 4.0  # replays of one start, rounded differently, end up to so far apart after 200 steps

# columns of the 17 numbers of the state
HEIGHT, PITCH, JOINTS = 0, 1, slice(2, 8)
POSITIONS = slice(0, 8)
X_SPEED, Z_SPEED, PITCH_RATE, JOINT_RATES = 8, 9, 10, slice(11, 17)
VELOCITIES = slice(8, 17)

JOINT_NAMES = ("bthigh", "bshin", "bfoot", "fthigh", "fshin", "ffoot")
JOINT_LOW = np.array([-0.52, -0.785, -0.4, -1.0, -1.2, -0.5])  # rad, where the model's soft limits begin to push back
JOINT_HIGH = np.array([1.05, 0.785, 0.785, 0.7, 0.87, 0.5])

STATE_COLUMNS = (
    "height_m",
    "pitch_rad",
    *(f"{name}_rad" for name in JOINT_NAMES),
    "x_velocity_m_s",
    "z_velocity_m_s",
    "pitch_rate_rad_s",
    *(f"{name}_rate_rad_s" for name in JOINT_NAMES),
)

# Beyond these no body of 1 m and 14 kg driven by 120 Nm can be, ten times and more what experts reach: a number out of
# them says nothing, and inside them MuJoCo seldom gives up and resets itself.
HEIGHT_BOUNDS_M = (-1.5, 10.0)
PITCH_BOUND_RAD = 1_000.0  # the pitch winds up with every somersault
JOINT_BOUND_RAD = np.pi
SPEED_BOUND_M_S = 50.0
RATE_BOUND_RAD_S = 250.0
DISPLACEMENT_BOUND_M = 5.0

LOWEST = np.array([HEIGHT_BOUNDS_M[0], -PITCH_BOUND_RAD, *[-JOINT_BOUND_RAD] * 6, *[-SPEED_BOUND_M_S] * 2,
                   *[-RATE_BOUND_RAD_S] * 7])  # fmt: skip
HIGHEST = np.array([HEIGHT_BOUNDS_M[1], PITCH_BOUND_RAD, *[JOINT_BOUND_RAD] * 6, *[SPEED_BOUND_M_S] * 2,
                    *[RATE_BOUND_RAD_S] * 7])  # fmt: skip

CODES = ("", "non_finite", "out_of_range", "illegal_start", "bad_action", "simulator_warning")
NON_FINITE, OUT_OF_RANGE, ILLEGAL_START, BAD_ACTION, SIMULATOR_WARNING = range(1, len(CODES))


def make_spec(obs_size: int, version: str) -> EnvSpec:
    """What the environment declares about itself with rows of 17 or 18 numbers."""
    first = obs_size - STATE_SIZE
    blocks = (
        Block("height", (first + HEIGHT,), "m"),
        Block("pitch", (first + PITCH,), "rad"),
        Block("joints", tuple(range(first + 2, first + 8)), "rad"),
        Block("velocity", (first + X_SPEED, first + Z_SPEED), "m/s"),
        Block("pitch_rate", (first + PITCH_RATE,), "rad/s"),
        Block("joint_rates", tuple(range(first + 11, first + 17)), "rad/s"),
    )
    has_displacement = obs_size == BENCHMARK_SIZE
    return EnvSpec(
        id="halfcheetah",
        version=version,
        blocks=(Block("displacement", (0,), "m"), *blocks) if has_displacement else blocks,
        obs_size=obs_size,
        code_size=CODE_SIZE,
        action=ActionSpec("box", ACTION_SIZE, -1.0, 1.0),
        step_seconds=STEP_SECONDS,
        horizon=HORIZON,
        judging_grade="scaled:0.5",
        restores="exact",
        codes=CODES,
        columns=("displacement_m", *STATE_COLUMNS) if has_displacement else STATE_COLUMNS,
        floor_horizons=FLOOR_HORIZONS,
        restart_margin=RESTART_MARGIN_M,
        thresholds=("displacement, m",),
        batch_transitions=BATCH,
        batches_at_once=2,  # while one is simulated, the other is checked
    )


def state_of(obs: AnyArray) -> FloatArray:
    """The 17 numbers of the state, (R, 17 or 18) -> (R, 17) float64."""
    return obs[:, obs.shape[1] - STATE_SIZE :].astype(np.float64)


def takeable(obs: AnyArray) -> IntArray:
    """0 where the simulator can take on the row, else `NON_FINITE` or `OUT_OF_RANGE`. (R, 17 or 18) -> (R,) int8."""
    wide = obs.astype(np.float64, copy=False)
    state = wide[:, wide.shape[1] - STATE_SIZE :]
    inside = np.logical_and.reduce((state >= LOWEST) & (state <= HIGHEST), axis=1)
    if wide.shape[1] == BENCHMARK_SIZE:
        inside &= np.abs(wide[:, 0]) <= DISPLACEMENT_BOUND_M
    code = np.zeros(len(wide), np.int8)
    outside = np.flatnonzero(~inside)
    finite = np.logical_and.reduce(np.isfinite(wide[outside]), axis=1)
    code[outside] = np.where(finite, OUT_OF_RANGE, NON_FINITE)
    return code


def usable_actions(action: AnyArray) -> BoolArray:
    """Actions whose numbers are all finite, (M, 6) -> (M,)."""
    finite: BoolArray = np.logical_and.reduce(np.isfinite(action), axis=1)
    return finite


def from_reset(rollouts: Rollouts) -> BoolArray:
    """Whether each rollout starts at a reset, (N,); where the file does not say, those that were never cut do."""
    never_cut: BoolArray = rollouts.source_step == 0
    return never_cut if rollouts.is_reset is None else never_cut & rollouts.is_reset


@dataclass(frozen=True)
class TravelledRows(Trajectory):
    """Rows with what they do not show and a goal of HalfCheetah needs."""

    travel: FloatArray  # (M+N,) displacement over the step that led to each row, m; row 0 of a rollout is not read
    from_reset: BoolArray  # (N,) False: earlier displacements are missing, so that no goal can be judged
