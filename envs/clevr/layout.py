"""Where things stand in a CLEVR-Robot row, what an action is, and which rows the simulator can be put into.

A row shows the centres of five balls, x to the right and y to the back. It hides their heights, velocities and spins.
Source: the ball environment of ImagineBench (arXiv 2505.10010, released code of May 2025).
"""

from __future__ import annotations

import numpy as np

from qualcheck.spec import ActionSpec, Block, EnvSpec
from qualcheck.types import AnyArray, BoolArray, FloatArray, IntArray, Rollouts

BALLS = ("red", "blue", "green", "purple", "cyan")
OBS_SIZE = 10
CODE_SIZE = 768
ACTIONS = 40  # 8 * ball + direction
HORIZON = 50
STEP_SECONDS = 0.4
BATCH = 2_500  # transitions: some 50 rollouts in lockstep keep the cost of a time step in MuJoCo

RADIUS_M = 0.13
REST_HEIGHT_M = -0.195  # of a centre, on the table
# right, behind, left, front, and the diagonals, which are longer than 1 in the benchmark too
DIRECTIONS = np.array([[1, 0], [0, 1], [-1, 0], [0, -1], [0.8, 0.8], [-0.8, 0.8], [0.8, -0.8], [-0.8, -0.8]])  # (8, 2)

CODES = ("", "non_finite_row", "outside_walls", "overlap", "bad_action", "hidden_unknown", "simulator_warning")
NON_FINITE, OUTSIDE, OVERLAP, BAD_ACTION, HIDDEN_UNKNOWN, SIMULATOR_WARNING = range(1, len(CODES))

# A reset draws x in [-0.5, 0.5] and y in [-0.3, 0.5], into the walls too, which push the balls out in the first step;
# later rows reach 0.576 at the back. 5 mm more are taken on.
LOWEST_M = np.array([-0.505, -0.305])
HIGHEST_M = np.array([0.505, 0.581])
CLOSEST_M = (
    0.10  # seen from above: a raised ball leans over others, in 11,000 real rows down to 0.130 (0.26 side by side)
)
PAIRS = np.triu_indices(len(BALLS), 1)  # (2, 10)

# The hidden numbers of a ball, in this order: those of the carried simulator, and those that the previous row tells
BALL_HIDDEN = ("z_m", "vx_m_s", "vy_m_s", "vz_m_s", "wx_rad_s", "wy_rad_s", "wz_rad_s")
BALLS_HIDDEN = len(BALLS) * len(BALL_HIDDEN)  # 35
CARRIED = slice(0, BALLS_HIDDEN)
PREVIOUS = slice(BALLS_HIDDEN, 2 * BALLS_HIDDEN)
BRIDGED = slice(2 * BALLS_HIDDEN, 2 * BALLS_HIDDEN + OBS_SIZE)  # the simulator's own x and y under a row it cannot take
SETTLED, TRUST = BRIDGED.stop, BRIDGED.stop + 1
HIDDEN_SIZE = BRIDGED.stop + 2  # 82
SITUATIONS = ("settled", "unsettled")


def make_spec(version: str = "1") -> EnvSpec:
    """What the environment declares about itself."""
    columns = tuple(f"{ball}_{axis}_m" for ball in BALLS for axis in "xy")
    parts = tuple(f"{ball}_{name}" for ball in BALLS for name in BALL_HIDDEN)
    return EnvSpec(
        id="clevr",
        version=version,
        blocks=tuple(Block(ball, (2 * i, 2 * i + 1), "m") for i, ball in enumerate(BALLS)),
        obs_size=OBS_SIZE,
        code_size=CODE_SIZE,
        action=ActionSpec("discrete", ACTIONS),
        step_seconds=STEP_SECONDS,
        horizon=HORIZON,
        judging_grade="scaled:0.5",
        restores="filtered",
        codes=CODES,
        columns=columns,
        hidden=(
            *(f"carried_{name}" for name in parts),
            *(f"previous_{name}" for name in parts),
            *(f"bridged_{name}" for name in columns),
            "settled",
            "trust_m",
        ),
        situations=SITUATIONS,
        floor_horizons=tuple(range(1, HORIZON + 1)),  # the shipped table knows the step of each success
        thresholds=("distances of balls, m", "angle of a line, rad"),
        batch_transitions=BATCH,
        batches_at_once=2,  # one fills the cores that the other leaves idle at the end of a time step
    )


SPEC = make_spec()


def xy(obs: AnyArray) -> FloatArray:
    """Centres of the balls, (R, 10) -> (R, 5, 2) float64, m."""
    return obs.astype(np.float64).reshape(len(obs), len(BALLS), 2)


def takeable(obs: AnyArray) -> IntArray:
    """0 where the simulator can take on the row, else `NON_FINITE`, `OUTSIDE` or `OVERLAP`. (R, 10) -> (R,) int8."""
    centre = xy(obs)
    with np.errstate(invalid="ignore", over="ignore"):
        inside = ((centre >= LOWEST_M) & (centre <= HIGHEST_M)).all(axis=(1, 2))
        apart = centre[:, PAIRS[0]] - centre[:, PAIRS[1]]  # (R, 10, 2)
        close = ((apart**2).sum(axis=2) < CLOSEST_M**2).any(axis=1)
    finite = np.isfinite(centre).all(axis=(1, 2))
    return np.select([~finite, ~inside, close], [NON_FINITE, OUTSIDE, OVERLAP], 0).astype(np.int8)


def _columns(action: AnyArray) -> AnyArray:
    return action.reshape(len(action), -1 if action.size else 1)


def usable_actions(action: AnyArray) -> BoolArray:
    """Actions that are whole numbers from 0 to 39, (M,) or (M, 1) -> (M,)."""
    number = _columns(action)
    if not np.issubdtype(number.dtype, np.number) and number.dtype != bool:
        return np.zeros(len(action), bool)
    with np.errstate(invalid="ignore"):
        whole = (number >= 0) & (number < ACTIONS) & (number == np.floor(number.astype(np.float64)))
    usable: BoolArray = whole.all(axis=1)
    return usable if number.shape[1] == 1 else np.zeros(len(action), bool)


def actions_of(action: AnyArray) -> IntArray:
    """Action numbers, -1 where it is none, (M,) or (M, 1) -> (M,) int64."""
    usable = usable_actions(action)
    number = np.full(len(action), -1, np.int64)
    number[usable] = _columns(action)[usable, 0].astype(np.int64)
    return number


def from_reset(rollouts: Rollouts) -> BoolArray:
    """Whether each rollout starts at a reset, (N,); where the file does not say, those that were never cut do."""
    never_cut: BoolArray = rollouts.source_step == 0
    return never_cut if rollouts.is_reset is None else rollouts.is_reset
