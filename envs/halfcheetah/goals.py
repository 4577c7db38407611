"""When a HalfCheetah task is reached: how far the body has come since its reset, counted in displacements.

k is the number of steps since the reset and S_k the sum of their displacements in m. Source: success tests of the
ImagineBench HalfCheetah tasks (arXiv 2505.10010, released code of May 2025).

The two combined tasks have one released test, on the gross way in each direction, which either order passes. The
intended test asks for the same amounts in the order of the text: the first direction's up to a turning point, which is
the row furthest in that direction so far, and the second direction's after it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from qualcheck.envs.halfcheetah.layout import BENCHMARK_SIZE, STATE_SIZE, STEP_SECONDS, X_SPEED, TravelledRows
from qualcheck.thresholds import scaled
from qualcheck.types import AnyArray, BoolArray, FloatArray, GoalRows, IntArray, Placement, Trajectory

TASKS: dict[str, tuple[str, ...]] = {
    "real": ("jump-forward", "jump-backward", "move-forward", "move-backward"),
    "rephrase": ("rep-jump-forward", "rep-jump-backward", "rep-move-forward", "rep-move-backward"),
    "easy": ("move-forward-fast", "move-backward-fast"),
    "hard": ("move-forward-backward", "move-backward-forward", "jump-in-place"),
}
TASK_IDS = tuple(task for tasks in TASKS.values() for task in tasks)

WAY_M, WAY_STEPS = 3.0, 30  # gross way in each direction of a combined task: more than 3 m in more than 30 steps
STEP_M = 0.05  # what a step missing in such a count is worth in metres, about 1 m/s


class Criterion(NamedTuple):
    """From step `steps` on: sign * S_k > least_m, or |S_k| < within_m, or the combined test, sign giving its order."""

    sign: int
    steps: int
    least_m: float = 0.0
    within_m: float | None = None
    combined: bool = False


CRITERIA: dict[str, Criterion] = {
    **{f"{prefix}jump-{word}": Criterion(sign, 5) for prefix in ("", "rep-") for word, sign in
       (("forward", 1), ("backward", -1))},
    **{f"{prefix}move-{word}": Criterion(sign, 99, 7.0) for prefix in ("", "rep-") for word, sign in
       (("forward", 1), ("backward", -1))},
    "move-forward-fast": Criterion(1, 99, 8.5),
    "move-backward-fast": Criterion(-1, 99, 8.5),
    "move-forward-backward": Criterion(1, 199, combined=True),
    "move-backward-forward": Criterion(-1, 199, combined=True),
    "jump-in-place": Criterion(1, 15, within_m=1.05),
}  # fmt: skip
PREDICATES = ("intended", "released")


class Way(NamedTuple):
    """Displacements of n rollouts as a rectangle, and which rows can be judged."""

    moved: FloatArray  # (n, T+1) m, 0 in row 0
    known: BoolArray  # (n, T+1) the row and all before it are ok


def _reached(total: FloatArray, count: IntArray) -> FloatArray:
    """Metres above both limits of a combined task's way in one direction, positive iff both are passed."""
    above: FloatArray = np.minimum(total - scaled(WAY_M), (count - WAY_STEPS) * STEP_M)
    return above


def stages(way: FloatArray, sign: int, predicates: str) -> tuple[FloatArray, FloatArray]:
    """Metres above the limits of the two sub-goals of a combined task by each row, (n, T+1) each; they never fall.

    Args:
        way: (n, T+1) displacements, m.
        sign: 1 where forward comes first, -1 where backward does.
        predicates: "released" sums over all rows; "intended" splits them at the turning point.
    """
    ahead = sign * way
    towards, away = np.maximum(ahead, 0).cumsum(axis=1), np.maximum(-ahead, 0).cumsum(axis=1)
    n_towards, n_away = (ahead > 0).cumsum(axis=1), (ahead < 0).cumsum(axis=1)
    if predicates == "released":
        return _reached(towards, n_towards), _reached(away, n_away)
    place = ahead.cumsum(axis=1)
    furthest = np.maximum.accumulate(place, axis=1)
    row = np.where(place >= furthest, np.arange(way.shape[1]), 0)
    turn = np.maximum.accumulate(row, axis=1)  # (n, T+1) last row so far that is furthest in the first direction
    out = _reached(np.take_along_axis(towards, turn, 1), np.take_along_axis(n_towards, turn, 1))
    back = _reached(away - np.take_along_axis(away, turn, 1), n_away - np.take_along_axis(n_away, turn, 1))
    return out, np.maximum.accumulate(np.minimum(out, back), axis=1)


def _passed(criterion: Criterion, place: FloatArray) -> FloatArray:
    """Metres by which places pass a test that reads them alone, of any shape."""
    if criterion.within_m is None:
        return criterion.sign * place - scaled(criterion.least_m)
    return scaled(criterion.within_m) - np.abs(place)


def reached_now(task: str, moved: Sequence[FloatArray], place: FloatArray, predicates: str) -> BoolArray:
    """Whether the goal holds after the last of the steps so far, (n,): `excess` there, without looking back if it can.

    Args:
        task: an id of `TASKS`.
        moved: 0 and the displacement of each step so far, (n,) m each.
        place: (n,) their sum, added up in this order.
        predicates: of `PREDICATES`.
    """
    criterion = CRITERIA[task]
    if len(moved) <= criterion.steps:
        return np.zeros(len(place), bool)
    if not criterion.combined:
        now: BoolArray = _passed(criterion, place) > 0
        return now
    last: BoolArray = excess(task, np.stack(moved, axis=1), predicates)[:, -1] > 0
    return last


def excess(task: str, way: FloatArray, predicates: str) -> FloatArray:
    """Metres by which each row passes the task's test, positive iff it holds; -inf before its first step. (n, T+1)."""
    criterion = CRITERIA[task]
    if criterion.combined:
        value: FloatArray = np.minimum(*stages(way, criterion.sign, predicates))
    else:
        place = way.cumsum(axis=1)
        value = _passed(criterion, place)
    value[:, : criterion.steps] = -np.inf
    return value


def share(task: str, way: FloatArray, holds: BoolArray) -> FloatArray:
    """Share of the sub-goals that hold on each row, (n, T+1): the two directions of a combined task, else the goal."""
    criterion = CRITERIA[task]
    if not criterion.combined:
        return holds.astype(np.float32)
    first, second = stages(way, criterion.sign, "intended")
    return ((first > 0).astype(np.float32) + (second > 0)) / np.float32(2)


def travel(rows: Trajectory) -> FloatArray:
    """Displacement over the step that led to each row, (M+N,) float64 m; that of row 0 means nothing.

    Rows of 17 numbers show none: unless they come with the simulator's own, the mean of the two velocities is taken.
    """
    if isinstance(rows, TravelledRows):
        return rows.travel
    if rows.obs.shape[1] == BENCHMARK_SIZE:
        return rows.obs[:, 0].astype(np.float64)
    speed = rows.obs[:, rows.obs.shape[1] - STATE_SIZE + X_SPEED].astype(np.float64)
    moved = np.zeros(len(speed))
    moved[1:] = STEP_SECONDS * (speed[:-1] + speed[1:]) / 2
    return moved


def _groups(names: AnyArray, count: IntArray) -> Iterator[tuple[str, IntArray]]:
    """Rollouts of one task and of similar length, so that a rectangle of them wastes less than half."""
    size = np.ceil(np.log2(np.maximum(count, 1)))
    for task in TASK_IDS:
        mine = names == task
        for each in np.unique(size[mine & (count > 0)]):
            yield task, np.flatnonzero(mine & (size == each) & (count > 0))


def _way(rows: Trajectory, moved: FloatArray, who: IntArray) -> tuple[Way, AnyArray, BoolArray]:
    """The rectangle of some rollouts, the row of each cell (n, T+1), and which cells are rows at all."""
    count = np.diff(rows.offsets)[who]
    column = np.arange(int(count.max()))
    inside = column < count[:, None]
    at = np.where(inside, rows.offsets[who, None] + column, rows.offsets[who, None])
    known = np.logical_and.accumulate(rows.ok[at] & inside, axis=1)
    if isinstance(rows, TravelledRows):
        known &= rows.from_reset[who, None]
    way = np.where(known & (column > 0), moved[at], 0.0)
    return Way(way, known), at, inside


def _names(placements: Sequence[Placement], which: IntArray, predicates: str) -> AnyArray:
    names = [placement.task if predicates == "intended" else placement.task_released for placement in placements]
    return np.array(names or [""])[which]


def evaluate(rows: Trajectory, placements: Sequence[Placement], which: IntArray) -> GoalRows:
    """The goal of each rollout on each of its rows, from the displacements of all rows up to it.

    Args:
        rows: rows of N rollouts from a reset, imagined or replayed; `TravelledRows` may say that some are not.
        placements: the tasks that occur.
        which: (N,) index into `placements`.

    Returns:
        Arrays of one entry a row; False and share 0 from the first row on that is not `ok`; False and share NaN where
        the rollout has no task, or does not start at a reset.
    """
    count, moved = np.diff(rows.offsets), travel(rows)
    hold = {name: np.zeros(len(rows.obs), bool) for name in PREDICATES}
    part = np.full(len(rows.obs), np.nan, np.float32)
    for predicates in PREDICATES:
        for task, who in _groups(_names(placements, which, predicates), count):
            way, at, inside = _way(rows, moved, who)
            holds = (excess(task, way.moved, predicates) > 0) & way.known
            hold[predicates][at[inside]] = holds[inside]
            if predicates == "intended":
                part[at[inside]] = np.where(way.known, share(task, way.moved, holds), 0)[inside]
    if isinstance(rows, TravelledRows):
        part[np.repeat(~rows.from_reset, count)] = np.nan
    return GoalRows(hold["intended"], hold["released"], part)


def margin(rows: Trajectory, placements: Sequence[Placement], which: IntArray) -> FloatArray:
    """How many metres each rollout's best row is from changing its released or intended verdict, (N,).

    Infinite where no displacement could change it, since the rollout is too short for its test; NaN without a task.
    A step more or less in the counts of a combined task is taken as 0.05 m.
    """
    count, moved = np.diff(rows.offsets), travel(rows)
    near = np.full(len(count), np.nan)
    for predicates in PREDICATES:
        for task, who in _groups(_names(placements, which, predicates), count):
            way, _, _ = _way(rows, moved, who)
            best = np.where(way.known, excess(task, way.moved, predicates), -np.inf).max(axis=1)
            near[who] = np.fmin(near[who], np.abs(best))
    return near
