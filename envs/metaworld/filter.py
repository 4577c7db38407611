"""The sequential filter of Meta-World: the simulator is carried along each rollout, rows are written over it.

A row hides the arm behind the hand, all velocities and the commanded hand. From a reset they are known; after that the
simulator's own are kept. A commanded hand is the sum of the actions, so that after a hand that jumped and stayed away
it is wrong for the rest of the rollout: where the carried simulation is in doubt and misses the row, a second one
counts, which is anchored to the rows instead (`Kernel.play`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from qualcheck.envs.metaworld.kernel import Episode, Kernel, Played
from qualcheck.envs.metaworld.layout import (
    ACTION_SIZE,
    ANCHORED,
    CARRIED,
    CONTACT,
    ENTITIES,
    FIRST_ENTITY,
    FIRST_GOAL,
    FREE,
    GOAL,
    HAND,
    HIDDEN_SIZE,
    HIDDEN_UNKNOWN,
    HORIZON,
    ILLEGAL_START,
    LAYOUT,
    LOCK,
    LOCK_TASKS,
    MOVING,
    NO_TASK,
    OBS_SIZE,
    OPENING,
    OTHERS,
    ROUNDING,
    SETTLED,
    SIGNS,
    TASK,
    TASK_IDS,
    TASKS,
    TOUCHED,
    UNSETTLED,
    from_reset,
    position,
    quaternion,
    simulated_columns,
    takeable,
    takeable_for,
    without_task,
)
from qualcheck.types import AnyArray, BoolArray, FloatArray, IntArray, Rollouts

SEEDINGS = ("carried", "anchored")
AFTER_CONTACT = 8  # steps for which what the gripper let go of still moves
NEVER_TOUCHED = 1_000.0
ROUNDINGS = 5.0  # of the last decimal: how far a replay out of rounded rows goes astray
DECIMALS = range(1, 7)
GROUPS = ("hand", "gripper", "position", "orientation")
STILL = 1e-2  # m/s and rad/s of whatever is not the arm
# Largest errors, by situation (free to lock) and group, after which the carried hidden state is still trusted: at least
# 1.5 times the largest of 12,000 golden transitions, which so keep their trust.
TRUST = np.array(
    [[1e-3, 5e-3, 2e-3, 5e-3], [1e-3, 5e-3, 2e-3, 0.012], [8e-3, 5e-3, 0.015, 0.04], [0.012, 5e-3, 0.01, 0.01]]
)


@dataclass(frozen=True)
class Filtered:
    """What the filter makes of every recorded transition."""

    candidates: FloatArray  # (2, M, 91) NaN where not tried or not replayed
    code: IntArray  # (M,) int8
    situation: IntArray  # (M,) int8
    hidden: FloatArray  # (M, H) before each action, NaN where unknown
    tip_m: FloatArray  # (M, 3) tip of the gripper under the simulated hand after each action, seen from the hand
    compared: BoolArray  # (M, 91) columns that the simulator of the task fills


def rounding_of(rollouts: Rollouts) -> FloatArray:
    """The last decimal to which all finite numbers of each rollout are rounded, (N,); 0: none of one to six."""
    owner = np.repeat(np.arange(rollouts.n_rollouts), np.diff(rollouts.row_offsets))
    shown, found = rollouts.obs, np.zeros(rollouts.n_rollouts)
    for decimals in reversed(DECIMALS):  # what is rounded to fewer decimals is rounded to more
        with np.errstate(over="ignore", invalid="ignore"):
            rounded = np.round(shown.astype(np.float64), decimals)
            same = ((shown == rounded) | (shown == rounded.astype(np.float32)) | ~np.isfinite(shown)).all(axis=1)
        every = np.ones(rollouts.n_rollouts, bool)
        every[owner[~same]] = False
        owner, shown = owner[every[owner]], shown[every[owner]]
        found[owner] = 10.0**-decimals
    return found


def group_errors(end: FloatArray, shown: AnyArray, tasks: AnyArray) -> FloatArray:
    """Largest error of each of `GROUPS` over what a task's simulator fills, (M, 91) twice and (M,) -> (M, 4)."""
    error = np.full((len(end), len(GROUPS)), np.nan)
    with np.errstate(invalid="ignore", over="ignore"):
        gap = np.abs(end - shown)
    error[:, 0], error[:, 1] = gap[:, HAND].max(axis=1), gap[:, OPENING]
    for task in np.unique(tasks[tasks != ""]):
        mine = tasks == task
        for number, columns in ((2, position), (3, quaternion)):
            found = [gap[mine, columns(entity)].max(axis=1) for entity in TASKS[str(task)].entities]
            error[mine, number] = np.maximum.reduce(found)
    return error


def faced(end: FloatArray, shown: AnyArray, task: str) -> tuple[FloatArray, FloatArray]:
    """Simulated rows with the quaternion signs of recorded ones, whose other blocks they take over.

    Args:
        end: (m, 91) simulated.
        shown: (m, 91) recorded; a number that is not finite counts as 0.
        task: of all of them.

    Returns:
        (m, 91), and the sign that each entity's quaternion was multiplied with, (m, 12).
    """
    rows, signs = end.copy(), np.ones((len(end), len(ENTITIES)))
    wide = np.where(np.isfinite(shown), shown, 0.0).astype(np.float64)
    others = ~simulated_columns(task)
    rows[:, others] = wide[:, others]
    with np.errstate(invalid="ignore", over="ignore"):
        for entity in TASKS[task].entities:
            part = quaternion(entity)
            sign = np.where((rows[:, part] * wide[:, part]).sum(axis=1) < 0, -1.0, 1.0)
            signs[:, ENTITIES.index(entity)] = sign
            rows[:, part] *= sign[:, None]
    return rows, signs


def given(rollouts: Rollouts, tasks: AnyArray) -> FloatArray:
    """The hidden numbers of cuts, NaN where there are none or where they are those of another task, (N, H)."""
    n = rollouts.n_rollouts
    found = np.full((n, HIDDEN_SIZE), np.nan)
    if rollouts.hidden is not None and rollouts.hidden.shape == (n, HIDDEN_SIZE):
        found[:] = rollouts.hidden
        found[~np.isfinite(found[:, [CARRIED.stop - 1, SETTLED, ROUNDING, TOUCHED]]).all(axis=1)] = np.nan
        found[found[:, TASK] != numbers_of(tasks)] = np.nan
    found[from_reset(rollouts)] = np.nan
    return found


def numbers_of(tasks: AnyArray) -> FloatArray:
    """The place of each task in `TASK_IDS`, NaN for "", (N,)."""
    return np.array([TASK_IDS.index(task) if task else np.nan for task in tasks], np.float64).reshape(len(tasks))


def actions_of(rollouts: Rollouts) -> AnyArray:
    """Actions of four numbers, NaN where they have another shape, (M, 4)."""
    action = rollouts.action
    fits = action.ndim == 2 and action.shape[1] == ACTION_SIZE
    return action if fits else np.full((len(action), ACTION_SIZE), np.nan)


def episodes_of(rollouts: Rollouts, tasks: AnyArray, known: FloatArray) -> dict[int, tuple[int, Episode]]:
    """Rollout -> (its first transition that can be simulated, the episode from there), where there is one.

    Args:
        rollouts: N of them.
        tasks: (N,).
        known: (N, H) of `given`.
    """
    action, context, started = actions_of(rollouts), rollouts.context_obs, from_reset(rollouts)
    found = {}
    for i in np.flatnonzero((tasks != "") & (rollouts.length > 0)):
        rows = rollouts.obs[rollouts.row_offsets[i] : rollouts.row_offsets[i + 1]]
        skipped = 0
        hidden = known[i, CARRIED] if np.isfinite(known[i, CARRIED.stop - 1]) else None
        if hidden is None and not started[i]:  # begun by guess, at the first row that can be taken on
            usable = takeable_for(rows[: rollouts.length[i]], tasks[i]) == 0
            if not usable.any():
                continue
            skipped = int(usable.argmax())
        moves = action[rollouts.offsets[i] + skipped : rollouts.offsets[i + 1]]
        start = context[i] if started[i] or rollouts.reset_obs is not None else rows[skipped]
        found[int(i)] = skipped, Episode(tasks[i], rows[skipped:], moves, start, hidden, bool(started[i]))
    return found


def run(rollouts: Rollouts, tasks: AnyArray, kernel: Kernel) -> Filtered:
    """Replay every transition from each seeding; results of a rollout depend on nothing but it."""
    return _Filter(rollouts, tasks, kernel).run()


class _Filter:
    def __init__(self, rollouts: Rollouts, tasks: AnyArray, kernel: Kernel) -> None:
        self.rollouts, self.tasks, self.kernel = rollouts, tasks, kernel
        m = rollouts.n_transitions
        self.known = given(rollouts, tasks)  # (N, H)
        self.end = rollouts.end_obs[:, :OBS_SIZE].astype(np.float64)  # (M, 91)
        code = without_task(takeable(rollouts.obs))[rollouts.row].astype(np.int8)
        code[(code == 0) & (tasks[rollouts.rollout] == "")] = NO_TASK
        self.code = code
        self.candidates = np.full((len(SEEDINGS), m, OBS_SIZE), np.nan)
        self.hidden = np.full((m, HIDDEN_SIZE), np.nan)
        self.tip_m = np.full((m, 3), np.nan)
        self.touching = np.zeros(m, bool)
        self.still = np.ones(m, bool)  # (M,) nothing but the arm moves before the action
        self.lost = np.zeros(m, bool)  # (M,) nothing is known of the hidden state before

    def run(self) -> Filtered:
        rollouts, code, hidden = self.rollouts, self.code, self.hidden
        episodes = episodes_of(rollouts, self.tasks, self.known)
        self._carry(episodes)
        each = self.tasks[rollouts.rollout] if rollouts.n_rollouts else np.zeros(0, np.str_)
        begins, started = rollouts.step == 0, from_reset(rollouts)
        rounding = np.where(np.isfinite(self.known[:, ROUNDING]), self.known[:, ROUNDING], rounding_of(rollouts))
        touched = self._steps_since_contact(np.where(started, NEVER_TOUCHED, np.nan_to_num(self.known[:, TOUCHED])))
        late = rollouts.step + rollouts.source_step[rollouts.rollout] > 0  # an object has yet to settle on row 0
        untouched = touched > HORIZON  # fingers that have gripped keep creeping: rows do not show each of the two
        kind = np.where(self.still & late & untouched, FREE, MOVING)
        kind[self.touching | (touched <= AFTER_CONTACT)] = CONTACT
        kind[np.isin(each, LOCK_TASKS)] = LOCK
        replayed = code == 0
        error = group_errors(self.candidates[0], self.end, each)
        limit = np.maximum(TRUST[kind], ROUNDINGS * rounding[rollouts.rollout, None])
        with np.errstate(invalid="ignore"):
            near = replayed & rollouts.has_end & (error <= limit).all(axis=1)
        settled = np.zeros(len(near), bool)
        settled[1:] = near[:-1]
        settled[np.minimum(rollouts.break_at + 1, max(len(near) - 1, 0))] = False  # the row is not the one led to
        settled[begins] = (started | (self.known[:, SETTLED] == 1))[rollouts.rollout[begins]]
        hidden[:, SETTLED], hidden[:, ROUNDING], hidden[:, TOUCHED] = settled, rounding[rollouts.rollout], touched
        hidden[:, TASK] = numbers_of(self.tasks)[rollouts.rollout]
        self._anchor(episodes, near, replayed & ~settled & ~near & rollouts.has_end)
        hidden[self.lost | ~np.isfinite(hidden[:, CARRIED.stop - 1])] = np.nan
        situation = np.where(settled, kind, UNSETTLED).astype(np.int8)
        compared = np.zeros((len(code), OBS_SIZE), bool)
        for task in np.unique(each[each != ""]):
            compared[each == task] = simulated_columns(str(task))
        return Filtered(self.candidates, code, situation, hidden, self.tip_m, compared)

    def _carry(self, episodes: dict[int, tuple[int, Episode]]) -> None:
        """The first seeding of all rollouts."""
        rollouts, code = self.rollouts, self.code
        for i in np.flatnonzero((self.tasks != "") & (rollouts.length > 0)).tolist():
            if i not in episodes:
                mine = slice(rollouts.offsets[i], rollouts.offsets[i + 1])
                code[mine] = np.where(code[mine] == 0, HIDDEN_UNKNOWN, code[mine])
        played = self.kernel.play([episode for _, episode in episodes.values()], filtered=True)
        for (i, (skipped, episode)), done in zip(episodes.items(), played, strict=True):
            first = rollouts.offsets[i] + skipped
            at = slice(first, rollouts.offsets[i + 1])
            refused = done.code == ILLEGAL_START
            why = np.where(refused, _own_codes(episode), done.code) if refused.any() else done.code
            code[at] = np.where(code[at] == 0, why, code[at])
            if episode.hidden is None and not episode.from_reset:
                before = slice(rollouts.offsets[i], first + 1)
                code[before] = np.where(code[before] == 0, HIDDEN_UNKNOWN, code[before])
                self.lost[before] = True
            rows, signs = faced(done.obs[1:], self.end[at], episode.task)
            self.candidates[0, at] = np.where((code[at] == 0)[:, None], rows, np.nan)
            self.tip_m[at] = done.tip_m[1:] - done.obs[1:, HAND]
            self.touching[at] = done.touching
            self.still[at] = done.speed <= STILL
            self._note(at, episode, done, signs)

    def _note(self, at: slice, episode: Episode, done: Played, signs: FloatArray) -> None:
        """What a cut before these transitions has to carry, and what a single step out of them needs."""
        hidden = self.hidden
        hidden[at, CARRIED], hidden[at, LAYOUT], hidden[at, SIGNS] = done.hidden, done.layout_m, signs
        assert episode.context is not None
        hidden[at, FIRST_GOAL] = episode.context[GOAL]
        others = np.where(simulated_columns(episode.task), np.nan, np.nan_to_num(self.end[at], posinf=0, neginf=0))
        hidden[at, OTHERS] = others[:, FIRST_ENTITY:]

    def _steps_since_contact(self, before: FloatArray) -> FloatArray:
        """Steps since the gripper last touched anything, (M,), from those before each rollout, (N,)."""
        rollouts, step = self.rollouts, self.rollouts.step
        last = np.where(self.touching, step, -1)  # (M,) step of the latest contact, this step included
        found = np.empty(len(step))
        for i in range(rollouts.n_rollouts):
            at = slice(rollouts.offsets[i], rollouts.offsets[i + 1])
            if at.start == at.stop:
                continue
            latest = np.concatenate([[-1], np.maximum.accumulate(last[at])[:-1]])
            found[at] = np.where(latest >= 0, step[at] - latest, before[i] + step[at])
        return np.minimum(found, NEVER_TOUCHED)

    def _anchor(self, episodes: dict[int, tuple[int, Episode]], near: BoolArray, doubt: BoolArray) -> None:
        """The second seeding of the transitions in doubt, carried on from the first that misses its row."""
        rollouts, hidden = self.rollouts, self.hidden
        chosen: list[tuple[int, bool]] = []
        again: list[Episode] = []
        for i, (skipped, episode) in episodes.items():
            first, stop = int(rollouts.offsets[i]) + skipped, int(rollouts.offsets[i + 1])
            told = bool(np.isfinite(self.known[i, ANCHORED.stop - 1]))
            if told:
                state, begin = self.known[i, ANCHORED], first
            elif doubt[first:stop].any():
                begin = first + int(near[first:stop].argmin())
                state = hidden[begin, CARRIED].copy()
            else:
                continue
            if not np.isfinite(state[-1]):
                continue
            shift = begin - first
            chosen.append((begin, told))
            again.append(replace(episode, rows=episode.rows[shift:], action=episode.action[shift:], hidden=state,
                                 from_reset=False))  # fmt: skip
        for (begin, told), episode, done in zip(
            chosen, again, self.kernel.play(again, filtered=True, anchored=True), strict=True
        ):
            at = np.arange(begin, begin + len(episode.action))
            late = slice(0 if told else 1, None)
            hidden[at[late], ANCHORED] = done.hidden[late]
            rows, _ = faced(done.obs[1:], self.end[at], episode.task)
            mine = doubt[at] & (done.code == 0) & (at >= at[late][0] if len(at[late]) else False)
            self.candidates[1, at[mine]] = rows[mine]


def _own_codes(episode: Episode) -> IntArray:
    """Why each row of an episode cannot be taken on; `ILLEGAL_START` where it is not the row itself, (T,)."""
    own = takeable_for(np.asarray(episode.rows, np.float64)[: len(episode.action)], episode.task)
    return np.where(own == 0, ILLEGAL_START, own)
