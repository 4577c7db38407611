"""What a LIBERO transition is like, as far as the error of a true replay depends on it.

A hand in the air is followed to a millimetre; an object that is squeezed, slips or tumbles is not, since its velocity
and the contact's history are hidden. So each situation has tolerances of its own. The situation is decided from the row
before the action and the hidden state carried to it, never from an error.
"""

from __future__ import annotations

import numpy as np

from qualcheck.envs.libero.columns import BODY_FIRST, HAND, OBJECTS, position
from qualcheck.envs.libero.layout import ARM, GRIPPER, GROUPS, SCENE_OBJECTS
from qualcheck.types import AnyArray, BoolArray, FloatArray, IntArray

SITUATIONS = ("free", "grasp", "near", "contact", "start", "unsettled")
FREE, GRASP, NEAR, CONTACT, START, UNSETTLED = range(len(SITUATIONS))

NEAR_M = 0.105  # of the hand to the centre of an object: nearer, a step may bring them in touch
HELD_M = {"alphabet_soup": 0.028, "cream_cheese": 0.028, "salad_dressing": 0.06}  # the bottle is held at its neck
HELD_COMMAND = 0.75  # of the gripper: -1 open to 1 closed
HELD_FINGER_M_S = 3e-3  # fingers that have found hold
HELD_SPIN_RAD_S = 1.0  # an object that turns faster than this is about to slip
STILL_M_S, STILL_RAD_S = 1e-3, 0.1
OTHERS_M_S = 5e-3  # while one object is carried nothing else moves
START_NEAR_M = 0.2  # released starts with the hand at an object are taken out of a motion whose velocity is lost
START_STEPS = 8  # transitions until the arm has forgotten that

# Largest errors, by situation (free to start) and group (rad, m, 1), after which the carried hidden state is still
# trusted: 1.5 to 3 times the 0.999 quantile over the even-numbered golden rollouts, so that every golden transition
# keeps its trust. Not so in contact, where a slip of a few mm is common and the velocities carried on from it are
# wrong: there 90 % of the even and 94 % of the odd rollouts' transitions do, which leaves 2 % of all unsettled.
TRUST = np.array(
    [[0.005, 0.0012, 0.0013], [0.003, 0.0015, 0.012], [0.005, 0.003, 0.018], [0.005, 0.004, 0.03], [0.045, 0.008, 0.06]]
)


def _velocities(hidden: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Speed in m/s and rad/s of the bodies in row order, from carried hidden states (M, 43): (M, 4) each."""
    parts = hidden[:, ARM + 2 : ARM + 2 + 6 * len(SCENE_OBJECTS)].reshape(-1, len(SCENE_OBJECTS), 2, 3)
    speed = np.linalg.norm(parts, axis=3)  # (M, 4, 2)
    order = [SCENE_OBJECTS.index(body) for body in BODY_FIRST]
    return speed[:, order, 0], speed[:, order, 1]


def hand_distances(obs: AnyArray) -> FloatArray:
    """Distance of the hand to the centres of the three objects, (R, 44) -> (R, 3) m."""
    hand = position(obs, HAND)
    return np.stack([np.linalg.norm(position(obs, BODY_FIRST[name]) - hand, axis=1) for name in OBJECTS], axis=1)


def starts_in_motion(obs: AnyArray) -> BoolArray:
    """Whether a row 0 shows a hand that was moving when its episode was cut out of another, (N, 44) -> (N,)."""
    with np.errstate(invalid="ignore", over="ignore"):
        close: BoolArray = hand_distances(obs).min(axis=1) < START_NEAR_M
    return close


def classify(obs: AnyArray, hidden: FloatArray, starting: BoolArray) -> IntArray:
    """Situation of each transition whose hidden state is known, (M,) int8.

    Args:
        obs: (M, 44) row before the action.
        hidden: (M, 43) carried hidden state.
        starting: (M,) the first steps after a start in motion.
    """
    each = np.arange(len(obs))
    with np.errstate(invalid="ignore", over="ignore"):
        away = hand_distances(obs)  # (M, 3)
        reach = away / np.array([HELD_M[name] for name in OBJECTS])
        held = reach.argmin(axis=1)
        speed, spin = _velocities(hidden)
        firm = (reach.min(axis=1) < 1) & (hidden[:, GRIPPER] >= HELD_COMMAND) & (spin[each, held] < HELD_SPIN_RAD_S)
        firm &= np.abs(hidden[:, ARM : ARM + 2]).max(axis=1) < HELD_FINGER_M_S
        others = speed.copy()
        others[each, held] = 0
        firm &= others.max(axis=1) < OTHERS_M_S
        still = (speed.max(axis=1) < STILL_M_S) & (spin.max(axis=1) < STILL_RAD_S)
        apart = away.min(axis=1) > NEAR_M
    return np.select(
        [starting, firm, still & apart, still], [START, GRASP, FREE, NEAR], CONTACT
    ).astype(np.int8)  # fmt: skip


def block_errors(end: FloatArray, shown: AnyArray) -> FloatArray:
    """Largest error of each of `layout.GROUPS`, (M, 44) twice -> (M, 3) in the group's unit."""
    with np.errstate(invalid="ignore", over="ignore"):
        gap = np.abs(end - shown.astype(np.float64))
    return np.stack([gap[:, columns].max(axis=1) for columns in GROUPS.values()], axis=1)


def trusted(error: FloatArray, kind: IntArray, slack: FloatArray) -> BoolArray:
    """Whether a carried simulation that ends this far from the row vouches for its hidden state.

    Args:
        error: (M, 3) of `block_errors`; NaN vouches for nothing.
        kind: (M,) situation other than "unsettled".
        slack: (M,) what the rounding of the rows costs.
    """
    with np.errstate(invalid="ignore"):
        near: BoolArray = (error <= np.maximum(TRUST[kind], slack[:, None])).all(axis=1)
    return near
