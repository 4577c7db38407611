"""Goal consistency: is the goal reached in the imagined rows, and when the actions are really executed?"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from qualcheck.checks.batch import Batch, Codes, first_step
from qualcheck.checks.residual import over
from qualcheck.checks.restarts import Played, Restarts, play_again
from qualcheck.grade import Grade
from qualcheck.thresholds import MULTIPLES, UNJUDGED, packed, stretched
from qualcheck.tolerance import Scale
from qualcheck.types import AnyArray, BoolArray, FloatArray, GoalRows, IntArray, Trajectory


@dataclass(frozen=True)
class GoalScores:
    """Truth per rollout, (N,) float32 1 / 0 / NaN unless said, and per end row, (M,)."""

    imagined: FloatArray
    imagined_released: FloatArray
    replayed: FloatArray
    replayed_released: FloatArray
    code: Codes  # (N,) why one of them is NaN
    consistency: FloatArray
    consistency_replayed: FloatArray
    trivial: BoolArray  # (N,)
    trivial_released: BoolArray  # (N,)
    share: FloatArray  # (M,) share of sub-goals on each end row as imagined
    share_replayed: FloatArray  # (M,)
    end_intended: BoolArray  # (M,) goal true on the end row as imagined
    end_released: BoolArray  # (M,)
    simulated_final: BoolArray  # (N,) the last row was not in the file and was simulated
    judges_action: BoolArray  # (N,) the goal is met by an action itself, which no replay can refute
    divergence: IntArray  # (N,) first step at which the open-loop replay leaves the imagined rows, -1 if none
    sweep: tuple[IntArray, IntArray]  # (N,) each: goal imagined and replayed by multiple of the thresholds, as bits
    open_error: FloatArray  # (M,) float32 distance of the open-loop end row: wrong fields, or as `tc_scaled`


def measure(batch: Batch, grade: Grade, scale: Scale | None, restarts: Restarts) -> GoalScores:
    """Evaluate the goal on rows 1..T of the imagined and of the replayed trajectory.

    A goal counts only on a row that the simulator can take on. Where a file does not show the row after the last
    action, that row is simulated and serves goals only. In a chaotic environment the replayed goal of a rollout that
    ends near a threshold is the share of restarts that reach it.
    """
    rollouts, spec = batch.rollouts, batch.adapter.spec
    recorded, simulated, unknown = _imagined(batch)
    imagined = batch.adapter.annotate(recorded, rollouts)
    replayed = batch.open_loop.trajectory
    claims = batch.adapter.goals(imagined, batch.placements, batch.which)
    facts = _facts(batch, claims)
    claims = _with_breaks(batch, imagined, claims)

    code = Codes(rollouts.n_rollouts)
    for name in set(rollouts.defect or ()) - {""}:
        code.set(np.array([d == name for d in rollouts.defect or ()], bool), name)
    code.set(rollouts.length == 0, "empty")
    for number, placement in enumerate(batch.placements):
        if not placement.task:
            code.set(batch.which == number, placement.code)
    shown = np.diff(imagined.offsets) > 0
    untold = np.zeros(rollouts.n_rollouts, bool)
    untold[shown] = np.isnan(claims.share[imagined.offsets[:-1][shown]])
    code.set(untold, "history_unknown")
    closed = code.index > 0  # no goal can be judged at all

    later = _later(imagined)
    any_intended, any_released = (_any(imagined, rows & later) for rows in (claims.intended, claims.released))
    done_intended, done_released = (
        _any(replayed, rows & _later(replayed)) for rows in (facts.intended, facts.released)
    )
    stopped = batch.open_loop.code > 0
    open_end = unknown & ~(any_intended & any_released)
    code.set_from(stopped & ~closed, batch.open_loop.code, spec.codes)
    code.set(open_end & ~closed, "final_row_unknown")
    share, share_replayed = _end_share(batch, imagined, claims, closed), _end_share(batch, replayed, facts, closed)
    done = Played(
        _verdict(done_intended, closed | (stopped & ~done_intended)),
        _verdict(done_released, closed | (stopped & ~done_released)),
        _best(batch, share_replayed, closed | (stopped & ~done_intended)),
    )
    done = play_again(batch, done, facts.margin, restarts)
    sweep = _sweep(batch, imagined, closed | (unknown & ~any_intended), closed | (stopped & ~done_intended))
    divergence, open_error = _divergence(batch, recorded, grade, scale)
    return GoalScores(
        imagined=_verdict(any_intended, closed | (unknown & ~any_intended)),
        imagined_released=_verdict(any_released, closed | (unknown & ~any_released)),
        replayed=done.intended,
        replayed_released=done.released,
        code=code,
        consistency=_best(batch, share, closed | (unknown & ~any_intended)),
        consistency_replayed=done.share,
        trivial=_first(batch, imagined, claims.intended) & ~closed,
        trivial_released=_first(batch, imagined, claims.released) & ~closed,
        share=share,
        share_replayed=share_replayed,
        end_intended=_ends(batch, imagined, claims.intended),
        end_released=_ends(batch, imagined, claims.released),
        simulated_final=simulated,
        judges_action=(np.zeros(len(closed), bool) if claims.judges_action is None else claims.judges_action) & ~closed,
        sweep=sweep,
        divergence=divergence,
        open_error=open_error,
    )


def _imagined(batch: Batch) -> tuple[Trajectory, BoolArray, BoolArray]:
    """Rows 0..T as the file has them; which last rows were simulated (N,); which stay unknown (N,)."""
    rollouts, replay = batch.rollouts, batch.replay
    none = np.zeros(rollouts.n_rollouts, bool)
    if rollouts.has_final.all():
        return Trajectory(rollouts.obs, rollouts.row_offsets, batch.row_code == 0), none, none
    offsets = rollouts.offsets + np.arange(rollouts.n_rollouts + 1)  # (N+1,)
    obs = np.zeros((offsets[-1], rollouts.obs.shape[1]), rollouts.obs.dtype)
    ok = np.zeros(offsets[-1], bool)
    shift = offsets[:-1] - rollouts.row_offsets[:-1]
    here = np.arange(len(rollouts.obs)) + np.repeat(shift, np.diff(rollouts.row_offsets))
    obs[here] = rollouts.obs
    ok[here] = batch.row_code == 0
    open_end = ~rollouts.has_final & (rollouts.length > 0)
    last = rollouts.offsets[1:] - 1
    known = open_end.copy()
    known[open_end] = replay.code[last[open_end]] == 0
    place = offsets[1:][known] - 1
    obs[place] = replay.candidates[0][last[known]].astype(obs.dtype)
    ok[place] = True
    return Trajectory(obs, offsets, ok), known, open_end & ~known


def _with_breaks(batch: Batch, imagined: Trajectory, claims: GoalRows) -> GoalRows:
    """The goal on the row that follows or on the file's other reading of it, where the two disagree."""
    rollouts = batch.rollouts
    if rollouts.break_obs is None or not len(rollouts.break_at):
        return claims
    obs, ok = imagined.obs.astype(np.result_type(imagined.obs, rollouts.break_obs)), imagined.ok.copy()
    owner = rollouts.rollout[rollouts.break_at]
    after = imagined.offsets[:-1][owner] + rollouts.step[rollouts.break_at] + 1
    obs[after], ok[after] = rollouts.break_obs, batch.end_code[rollouts.break_at] == 0
    told = batch.adapter.annotate(Trajectory(obs, imagined.offsets, ok), rollouts)
    other = batch.adapter.goals(told, batch.placements, batch.which)
    return replace(
        claims,
        intended=claims.intended | other.intended,
        released=claims.released | other.released,
        share=np.fmax(claims.share, other.share),
    )


def _later(rows: Trajectory) -> BoolArray:
    """Every row but the first of each rollout."""
    later = np.ones(len(rows.obs), bool)
    first = rows.offsets[:-1][np.diff(rows.offsets) > 0]
    later[first] = False
    return later


def _any(rows: Trajectory, hit: BoolArray) -> BoolArray:
    total = np.concatenate([[0], np.cumsum(hit)])
    reached: BoolArray = total[rows.offsets[1:]] > total[rows.offsets[:-1]]
    return reached


def _first(batch: Batch, rows: Trajectory, hit: BoolArray) -> BoolArray:
    first = np.zeros(batch.rollouts.n_rollouts, bool)
    some = np.diff(rows.offsets) > 0
    first[some] = hit[rows.offsets[:-1][some]]
    return first


def _ends(batch: Batch, rows: Trajectory, values: AnyArray) -> AnyArray:
    """Values on rows 1..T, one a transition: (M+N,) -> (M,)."""
    at = np.arange(batch.rollouts.n_transitions) + np.repeat(
        rows.offsets[:-1] - batch.rollouts.offsets[:-1] + 1, batch.rollouts.length
    )
    return values[at]


def _end_share(batch: Batch, rows: Trajectory, goal: GoalRows, closed: BoolArray) -> FloatArray:
    share = _ends(batch, rows, np.where(rows.ok, goal.share, np.nan)).astype(np.float32)
    share[batch.per_transition(closed)] = np.nan
    return share


def _best(batch: Batch, share: FloatArray, missing: BoolArray) -> FloatArray:
    """Largest share over the end rows of each rollout, 0 where no row could be judged, (M,) -> (N,) float32."""
    best = np.zeros(batch.rollouts.n_rollouts, np.float32)
    some = batch.rollouts.length > 0
    if some.any():
        best[some] = np.maximum.reduceat(np.nan_to_num(share), batch.rollouts.offsets[:-1][some])
    best[missing] = np.nan
    return best


def _verdict(hit: BoolArray, missing: BoolArray) -> FloatArray:
    return np.where(missing, np.nan, hit).astype(np.float32)


def _facts(batch: Batch, claims: GoalRows) -> GoalRows:
    """The goal on the replayed rows. Rollouts that replay as recorded keep theirs; only the others are evaluated."""
    replayed, differ = batch.open_loop.trajectory, _differing(batch)
    if len(differ) == batch.rollouts.n_rollouts:
        return batch.adapter.goals(replayed, batch.placements, batch.which)
    if not len(differ):
        return claims
    part, rows = _select(replayed, differ)
    found = batch.adapter.goals(part, batch.placements, batch.which[differ])
    facts = GoalRows(claims.intended.copy(), claims.released.copy(), claims.share.copy())
    facts.intended[rows], facts.released[rows], facts.share[rows] = found.intended, found.released, found.share
    return facts


def _divergence(batch: Batch, imagined: Trajectory, grade: Grade, scale: Scale | None) -> tuple[IntArray, FloatArray]:
    """How far the replayed end rows are from the imagined ones.

    Returns:
        First step beyond the judging grade, (N,), -1 if none; and the distance at every step, (M,) float32: wrong
        fields where the environment is exact, else the largest column error over the standard deviation of the real
        one-step change; NaN where either row is not known.
    """
    rollouts, replayed, differ = batch.rollouts, batch.open_loop.trajectory, _differing(batch)
    known = _ends(batch, replayed, replayed.ok & imagined.ok) & rollouts.has_end & ~batch.unscorable
    exact = batch.adapter.spec.exact
    error = np.zeros(len(replayed.obs), np.float32)
    none = np.full(rollouts.n_rollouts, -1, np.int32)
    if not exact and scale is None:
        return none, np.full(rollouts.n_transitions, np.nan, np.float32)
    apart: BoolArray = np.zeros(len(replayed.obs), bool)
    if exact and batch.open_loop.apart is not None:
        apart = batch.open_loop.apart & replayed.ok
        places = np.flatnonzero(apart)
        error[places] = (imagined.obs[places] != replayed.obs[places]).sum(axis=1)
    elif len(differ):
        part, rows = _select(replayed, differ)
        if exact or scale is None:
            error[rows] = (imagined.obs[rows] != part.obs).sum(axis=1)
            beyond: BoolArray = error[rows] > 0
        else:
            off = np.abs(imagined.obs[rows].astype(np.float64) - part.obs)
            limit = _column_limits(batch, scale) if grade.limit is None else scale.std_change * grade.limit
            beyond = np.logical_or.reduce(off > limit, axis=1)
            error[rows] = over(off, scale.std_change).max(axis=1)
        apart[rows] = beyond & part.ok
    distance = np.where(known, _ends(batch, replayed, error), np.nan).astype(np.float32)
    return first_step(batch, _ends(batch, replayed, apart) & rollouts.has_end & ~batch.unscorable), distance


def _sweep(batch: Batch, imagined: Trajectory, unjudged: BoolArray, unreplayed: BoolArray) -> tuple[IntArray, IntArray]:
    """The intended goal at each multiple of the success thresholds, imagined and in the nominal replay, as bits."""
    n = batch.rollouts.n_rollouts
    if not batch.adapter.spec.thresholds:
        nothing = np.full(n, UNJUDGED, np.int32)
        return nothing, nothing
    reached = np.zeros((2, len(MULTIPLES), n), bool)
    for number, multiple in enumerate(MULTIPLES):
        with stretched(multiple):
            for side, rows in enumerate((imagined, batch.open_loop.trajectory)):
                goal = batch.adapter.goals(rows, batch.placements, batch.which).intended
                reached[side, number] = _any(rows, goal & _later(rows))
    return packed(reached[0], ~unjudged), packed(reached[1], ~unreplayed)


def _differing(batch: Batch) -> IntArray:
    """Rollouts whose replay may leave the recorded rows; all of them where picking them out would not pay."""
    known = batch.open_loop.as_recorded
    if known is None or known.mean() < 0.5:
        return np.arange(batch.rollouts.n_rollouts)
    return np.flatnonzero(~known)


def _column_limits(batch: Batch, scale: Scale) -> FloatArray:
    """Strict tolerance of each column in its unit, (O,)."""
    limit = np.full(batch.adapter.spec.obs_size, np.inf)
    for block in batch.adapter.spec.blocks:
        limit[list(block.columns)] = scale.noise.limit(block.name)
    return limit


def _select(rows: Trajectory, which: IntArray) -> tuple[Trajectory, IntArray]:
    """Some rollouts of a trajectory, and the index of their rows."""
    if len(which) == len(rows.offsets) - 1:
        return rows, np.arange(len(rows.obs))
    size = np.diff(rows.offsets)[which]
    offsets = np.concatenate([[0], np.cumsum(size)]).astype(np.int64)
    at = np.arange(offsets[-1]) + np.repeat(rows.offsets[:-1][which] - offsets[:-1], size)
    return Trajectory(rows.obs[at], offsets, rows.ok[at]), at
