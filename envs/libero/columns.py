"""Where things stand in the 44 numbers of a LIBERO row.

Positions are in m in the world, quaternions are ordered x, y, z, w, angles are in rad. Source: observation of the
ImagineBench LIBERO class (arXiv 2505.10010, released code of May 2025).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from qualcheck.types import AnyArray, BoolArray, FloatArray, Rollouts, Trajectory

OBS_SIZE, ACTION_SIZE, HORIZON = 44, 7, 500
JOINTS, HAND, FINGERS = slice(0, 7), 7, slice(14, 16)
OBJECTS = ("alphabet_soup", "cream_cheese", "salad_dressing")
BODIES = (*OBJECTS, "basket")
BODY_FIRST = {"alphabet_soup": 16, "cream_cheese": 23, "salad_dressing": 30, "basket": 37}
POSES = (HAND, *BODY_FIRST.values())  # first of the seven columns of each pose


def position(obs: AnyArray, first: int) -> FloatArray:
    """Position that begins at a column, (R, 44) -> (R, 3) float64 m."""
    return obs[:, first : first + 3].astype(np.float64)


def quaternion(obs: AnyArray, first: int) -> FloatArray:
    """Quaternion of the pose that begins at a column, (R, 44) -> (R, 4) float64 x, y, z, w, as stored."""
    return obs[:, first + 3 : first + 7].astype(np.float64)


def faced(obs: AnyArray, like: AnyArray) -> tuple[FloatArray, FloatArray]:
    """Rows whose quaternions have the signs of those of other rows, q and -q being one orientation.

    Args:
        obs: (R, 44).
        like: (R, 44); where it is not finite the sign stays.

    Returns:
        (R, 44) float64, and the sign each quaternion was multiplied with, (R, 5) 1 or -1.
    """
    rows, signs = obs.astype(np.float64), np.ones((len(obs), len(POSES)))
    with np.errstate(invalid="ignore", over="ignore"):
        for number, first in enumerate(POSES):
            away = np.einsum("ri,ri->r", quaternion(obs, first), quaternion(like, first)) < 0
            signs[away, number] = -1.0
            rows[:, first + 3 : first + 7] *= signs[:, number, None]
    return rows, signs


def finite_rows(obs: AnyArray) -> BoolArray:
    """Rows whose numbers are all finite, (R, 44) -> (R,)."""
    finite: BoolArray = np.logical_and.reduce(np.isfinite(obs), axis=1)
    return finite


def from_reset(rollouts: Rollouts) -> BoolArray:
    """Whether each rollout starts at a reset, (N,); where the file does not say, those that were never cut do."""
    never_cut: BoolArray = rollouts.source_step == 0
    return never_cut if rollouts.is_reset is None else never_cut & rollouts.is_reset


@dataclass(frozen=True)
class StartedRows(Trajectory):
    """Rows with what they do not show and the tasks with a history need."""

    from_reset: BoolArray  # (N,) False: earlier rows are missing, so that no latched goal can be judged
