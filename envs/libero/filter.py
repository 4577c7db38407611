"""The sequential filter of LIBERO: which hidden states to replay each transition from, and how far each is known.

One pass carries the simulator along each rollout. Where the hidden state carried to a transition is in doubt (after a
transition that the simulator does not confirm, after a row it cannot take on, in a piece whose start is not known) and
the carried simulation misses the row, two more are run: out of the velocities that the last two rows show
("difference") and out of rest. Not so where the row after the action is none that the simulator could be put into:
that transition is wrong whatever replay comes nearest.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from qualcheck.envs.libero import situation
from qualcheck.envs.libero.columns import BODY_FIRST, FINGERS, JOINTS, OBS_SIZE, faced, from_reset, position, quaternion
from qualcheck.envs.libero.controller import FINGER_CENTRE_M, FINGER_HALF_M
from qualcheck.envs.libero.kernel import Played, Simulator
from qualcheck.envs.libero.layout import (
    CARRIED,
    DIFFERENCE,
    FILTER_SIZE,
    GRIPPER,
    QVEL_SIZE,
    ROUNDING,
    SCENE_OBJECTS,
    SETTLED,
    SIGNS,
    START_LEFT,
    STEP_SECONDS,
    VELOCITY,
)
from qualcheck.envs.libero.takeable import BAD_ACTION, HIDDEN_UNKNOWN, SIMULATOR_WARNING, takeable, usable_actions
from qualcheck.types import AnyArray, BoolArray, FloatArray, IntArray, Rollouts

SEEDINGS = ("carried", "difference", "rest")
ROUNDINGS = 5.0  # of the last decimal: how far a replay out of rounded rows goes astray
DECIMALS = range(1, 7)


@dataclass(frozen=True)
class Filtered:
    """What the filter makes of every recorded transition."""

    candidates: FloatArray  # (3, M, 44) NaN where not tried or not replayed
    code: IntArray  # (M,) int8
    situation: IntArray  # (M,) int8
    hidden: FloatArray  # (M, 84) before each action, NaN where unknown


@dataclass(frozen=True)
class Beginning:
    """What is known of each rollout before its first action, (N, ...)."""

    known: BoolArray
    carried: FloatArray  # (N, 43), guessed where not known
    difference: FloatArray  # (N, 33) NaN where not known
    settled: BoolArray
    start_left: FloatArray  # steps that still count as start
    rounding: FloatArray  # last decimal of the rows, 0 where they are not rounded


def rounding_of(rollouts: Rollouts, usable: BoolArray) -> FloatArray:
    """The last decimal to which every row of each rollout is rounded, (N,); 0 where there is none of one to six.

    Args:
        rollouts: theirs.
        usable: (R,) rows that have a say.
    """
    owner = np.repeat(np.arange(rollouts.n_rollouts), np.diff(rollouts.row_offsets))[usable]  # (r,)
    shown, found = rollouts.obs[usable], np.zeros(rollouts.n_rollouts)
    for decimals in reversed(DECIMALS):  # what is rounded to fewer decimals is rounded to more
        with np.errstate(over="ignore", invalid="ignore"):
            rounded = np.round(shown.astype(np.float64), decimals)
            same = ((shown == rounded) | (shown == rounded.astype(np.float32))).all(axis=1)
        every = np.ones(rollouts.n_rollouts, bool)
        every[owner[~same]] = False
        owner, shown = owner[every[owner]], shown[every[owner]]
        found[owner] = 10.0**-decimals
    return found


def differences(before: AnyArray, after: AnyArray) -> FloatArray:
    """Velocities as MuJoCo orders them by the difference of two rows of one step, (M, 44) twice -> (M, 33).

    Turns are those of the body's own axes: q_before^-1 q_after as a rotation vector.
    """
    velocity = np.empty((len(before), QVEL_SIZE))
    with np.errstate(invalid="ignore", over="ignore", divide="ignore"):
        joints = [after[:, part].astype(np.float64) - before[:, part] for part in (JOINTS, FINGERS)]
        velocity[:, :9] = np.concatenate(joints, axis=1)
        for number, name in enumerate(SCENE_OBJECTS):
            first, at = BODY_FIRST[name], 9 + 6 * number
            velocity[:, at : at + 3] = position(after, first) - position(before, first)
            velocity[:, at + 3 : at + 6] = _turn(quaternion(before, first), quaternion(after, first))
    return velocity / STEP_SECONDS


def _turn(one: FloatArray, other: FloatArray) -> FloatArray:
    """Rotation vector in body axes that leads from one orientation to another, (M, 4) x, y, z, w twice -> (M, 3)."""
    axis = one[:, 3:] * other[:, :3] - other[:, 3:] * one[:, :3] - np.cross(one[:, :3], other[:, :3])
    cosine = (one * other).sum(axis=1)
    sine = np.linalg.norm(axis, axis=1)
    angle = 2 * np.arctan2(sine, np.abs(cosine)) * np.where(cosine < 0, -1.0, 1.0)  # the shorter way round
    turn: FloatArray = axis * np.where(sine > 0, angle / np.where(sine > 0, sine, 1.0), 0.0)[:, None]
    return turn


def guessed(rest: FloatArray, obs: AnyArray) -> FloatArray:
    """Carried hidden states at rows of which nothing is known: at rest, the gripper told to stay, (N, 43)."""
    carried = np.tile(rest, (len(obs), 1))
    with np.errstate(invalid="ignore", over="ignore"):
        opening = (obs[:, FINGERS.start].astype(np.float64) - obs[:, FINGERS.start + 1]) / 2
        command = np.clip((FINGER_CENTRE_M - opening) / FINGER_HALF_M, -1.0, 1.0)
    carried[:, GRIPPER] = np.nan_to_num(command)
    return carried


def begin(rollouts: Rollouts, row_code: IntArray, rest: FloatArray, first: IntArray) -> Beginning:
    """What is known before the first actions.

    Args:
        rollouts: N of them.
        row_code: (R,) of `takeable`.
        rest: (43,) hidden state of a reset.
        first: (N,) first transition of each whose row can be taken on, -1 where there is none.
    """
    n, reset = rollouts.n_rollouts, from_reset(rollouts)
    given = np.full((n, FILTER_SIZE), np.nan)
    if rollouts.hidden is not None and rollouts.hidden.shape == (n, FILTER_SIZE):
        given[:] = rollouts.hidden
    given[reset] = np.nan
    told: BoolArray = np.isfinite(given[:, CARRIED]).all(axis=1) & np.isfinite(given[:, SETTLED:]).all(axis=1)
    carried, moving = np.tile(rest, (n, 1)), np.zeros(n, bool)
    some = np.flatnonzero(first >= 0)
    rows = rollouts.obs[rollouts.row[first[some]]]
    moving[some] = situation.starts_in_motion(rows)
    carried[some] = np.where(reset[some, None], rest, guessed(rest, rows))
    carried[told] = given[told, CARRIED]
    return Beginning(
        known=reset | told,
        carried=carried,
        difference=given[:, DIFFERENCE],
        settled=reset | (told & (given[:, SETTLED] == 1)),
        start_left=np.where(told, given[:, START_LEFT], np.where(reset & moving, situation.START_STEPS, 0)),
        rounding=np.where(told, given[:, ROUNDING], rounding_of(rollouts, row_code == 0)),
    )


def first_shown(rollouts: Rollouts, shown: BoolArray) -> IntArray:
    """First transition of each rollout whose row can be taken on, -1 where there is none, (N,)."""
    first = np.full(rollouts.n_rollouts, -1, np.int64)
    at = np.flatnonzero(shown)
    first[rollouts.rollout[at][::-1]] = at[::-1]
    return first


def run(rollouts: Rollouts, simulator: Simulator) -> Filtered:
    """Replay every transition from each seeding; results of a rollout depend on nothing but it."""
    m, owner = rollouts.n_transitions, rollouts.rollout
    row_code = takeable(rollouts.obs)
    code = row_code[rollouts.row].astype(np.int8)
    shown = code == 0  # (M,) the row before the action can be taken on
    usable = usable_actions(rollouts.action)
    first = first_shown(rollouts, shown)
    start, end = rollouts.start_obs, rollouts.end_obs
    beginning = begin(rollouts, row_code, simulator.rest, first)
    played = simulator.play(start, _seven(rollouts.action), rollouts.offsets, shown, beginning.carried)

    code[shown & ~usable] = BAD_ACTION
    lost = first[(first >= 0) & ~beginning.known]
    code[lost[code[lost] == 0]] = HIDDEN_UNKNOWN
    code[(code == 0) & ~played.sound] = SIMULATOR_WARNING
    replayed = code == 0
    has_known = shown & (beginning.known[owner] | (np.arange(m) != first[owner]))
    candidates = np.full((len(SEEDINGS), m, OBS_SIZE), np.nan)
    rows, signs = faced(played.end, np.where(rollouts.has_end[:, None], end, start))
    candidates[0, replayed] = rows[replayed]

    left = np.maximum(beginning.start_left[owner] - rollouts.step, 0)
    kind = situation.classify(start, played.hidden, left > 0)
    slack = ROUNDINGS * beginning.rounding[owner]
    near = replayed & rollouts.has_end & situation.trusted(situation.block_errors(candidates[0], end), kind, slack)
    settled = _settled(rollouts, near, beginning) & has_known
    difference = _difference(rollouts, start, shown, beginning)
    doubt = np.flatnonzero(replayed & ~settled & ~near & rollouts.has_end & _end_takeable(rollouts, row_code))
    _try(candidates, doubt, rollouts, simulator, played, difference)

    hidden = np.full((m, FILTER_SIZE), np.nan)
    hidden[:, CARRIED], hidden[:, DIFFERENCE], hidden[:, SIGNS] = played.hidden, difference, signs
    hidden[:, SETTLED], hidden[:, START_LEFT], hidden[:, ROUNDING] = settled, left, beginning.rounding[owner]
    hidden[~has_known] = np.nan
    return Filtered(candidates, code, np.where(settled, kind, situation.UNSETTLED).astype(np.int8), hidden)


def _seven(action: AnyArray) -> AnyArray:
    """Actions as the simulator wants them; NaN where they have another number of columns."""
    return action if action.ndim == 2 and action.shape[1] == 7 else np.full((len(action), 7), np.nan)


def _end_takeable(rollouts: Rollouts, row_code: IntArray) -> BoolArray:
    """Whether the simulator could be put into the row after each action, (M,); of no meaning where there is none."""
    if not len(row_code):
        return np.zeros(rollouts.n_transitions, bool)
    fine: BoolArray = row_code[np.minimum(rollouts.row + 1, len(row_code) - 1)] == 0
    if rollouts.break_obs is not None and len(rollouts.break_at):
        fine[rollouts.break_at] = takeable(rollouts.break_obs) == 0
    return fine


def _settled(rollouts: Rollouts, near: BoolArray, beginning: Beginning) -> BoolArray:
    """Whether the hidden state before each action is known, (M,): the simulator has led to the row it starts from."""
    settled = np.zeros(len(near), bool)
    settled[1:] = near[:-1]
    settled[np.minimum(rollouts.break_at + 1, max(len(near) - 1, 0))] = False  # the row is not the one led to
    begins = rollouts.step == 0
    settled[begins] = beginning.settled[rollouts.rollout[begins]]
    return settled


def _difference(rollouts: Rollouts, start: AnyArray, shown: BoolArray, beginning: Beginning) -> FloatArray:
    """Velocities before each action that the row and the one before it show, (M, 33), NaN where one is missing."""
    found = np.full((len(start), QVEL_SIZE), np.nan)
    at = np.flatnonzero(shown[1:] & shown[:-1] & (rollouts.step[1:] > 0)) + 1
    at = at[~np.isin(at - 1, rollouts.break_at)]
    found[at] = differences(start[at - 1], start[at])
    begins = rollouts.step == 0
    found[begins] = beginning.difference[rollouts.rollout[begins]]
    return found


def _try(
    candidates: FloatArray,
    doubt: IntArray,
    rollouts: Rollouts,
    simulator: Simulator,
    played: Played,
    difference: FloatArray,
) -> None:
    """Fill in the seedings "difference" and "rest" of the transitions in doubt, each simulated by itself."""
    told = doubt[np.isfinite(difference[doubt]).all(axis=1)]
    at = np.concatenate([told, doubt])
    if not len(at):
        return
    hidden = played.hidden[at]  # the gripper's command and the goal of the turn are kept
    hidden[: len(told), VELOCITY], hidden[len(told) :, VELOCITY] = difference[told], 0
    tried = simulator.play(rollouts.start_obs[at], rollouts.action[at], np.arange(len(at) + 1), hidden=hidden)
    rows, _ = faced(tried.end, rollouts.end_of(at))
    candidates[1, told], candidates[2, doubt] = rows[: len(told)], rows[len(told) :]
