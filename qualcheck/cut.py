"""Pieces of rollouts as rollouts of their own, with everything a verdict on their rows hangs on."""

from __future__ import annotations

from typing import Any

import numpy as np

from qualcheck.filters.pieces import ranges
from qualcheck.types import AnyArray, BoolArray, IntArray, Rollouts


def cut(rollouts: Rollouts, piece_rollout: IntArray, start: IntArray, stop: IntArray) -> Rollouts:
    """The transitions start..stop-1 of the named rollouts, one new rollout a piece.

    A piece that ends before its rollout does keeps the row after its last action as final row; where the file showed
    two readings of that row, the one the last transition is judged by. Such an end is truncated, never terminal. A
    piece that starts later carries row 0 of its episode in `reset_obs`, so that laws against row 0 stay what they
    were. Cutting a piece again gives what cutting once would have given.

    Args:
        rollouts: the batch to cut.
        piece_rollout: (P,) rollout of each piece, counted within the batch.
        start: (P,) its first transition.
        stop: (P,) one past its last; start <= stop <= length.
    """
    piece_rollout, start, stop = (np.asarray(part, np.int64) for part in (piece_rollout, start, stop))
    length = stop - start
    ends_early = stop < rollouts.length[piece_rollout]  # (P,)
    final = ends_early | rollouts.has_final[piece_rollout]
    moves = ranges(rollouts.offsets[piece_rollout] + start, length)  # (M',)
    rows = ranges(rollouts.row_offsets[piece_rollout] + start, length + final)  # (R',)
    offsets = np.concatenate([[0], np.cumsum(length)]).astype(np.int64)
    obs = rollouts.obs[rows]
    break_at, break_obs, broken = _breaks(rollouts, obs, moves, offsets, final, ends_early)
    flags = {name: flag[piece_rollout] for name, flag in rollouts.flags.items()}
    if "chain_break" in flags:
        flags["chain_break"] = broken
    is_reset = None if rollouts.is_reset is None else rollouts.is_reset[piece_rollout]
    hidden = None if rollouts.hidden is None else rollouts.hidden[piece_rollout]
    if hidden is not None:
        hidden[start > 0] = np.nan  # known at the first row of the rollout only
    reset_obs = rollouts.reset_obs
    if (start > 0).any():
        is_reset = (start == 0) if is_reset is None else is_reset & (start == 0)
        reset_obs = rollouts.context_obs
    cut_end = offsets[1:][ends_early & (length > 0)] - 1
    terminal, truncated = rollouts.terminal, rollouts.truncated
    if terminal is not None:
        terminal = terminal[moves]
        terminal[cut_end] = False
    if truncated is not None or len(cut_end):
        truncated = np.zeros(len(moves), bool) if truncated is None else truncated[moves]
        truncated[cut_end] = True
    return Rollouts(
        obs=obs,
        action=rollouts.action[moves],
        offsets=offsets,
        has_final=final,
        source=rollouts.source[piece_rollout],
        source_rollout=rollouts.source_rollout[piece_rollout],
        source_step=(rollouts.source_step[piece_rollout] + start).astype(np.int32),
        instruction=_take(rollouts.instruction, piece_rollout),
        reward=None if rollouts.reward is None else rollouts.reward[moves],
        terminal=terminal,
        truncated=truncated,
        goal=None if rollouts.goal is None else _take(rollouts.goal, piece_rollout),
        is_reset=is_reset,
        reset_obs=None if reset_obs is None else reset_obs[piece_rollout],
        hidden=hidden,
        break_at=break_at,
        break_obs=break_obs,
        origin=None if rollouts.origin is None else _take(rollouts.origin, piece_rollout),
        level=None if rollouts.level is None else _take(rollouts.level, piece_rollout),
        generator=None if rollouts.generator is None else _take(rollouts.generator, piece_rollout),
        task=None if rollouts.task is None else _take(rollouts.task, piece_rollout),
        flags=flags,
        defect=None if rollouts.defect is None else _take(rollouts.defect, piece_rollout),
        code=None if rollouts.code is None else rollouts.code[piece_rollout],
        extra_rollout={name: _take(values, piece_rollout) for name, values in rollouts.extra_rollout.items()},
        extra_step={name: values[moves] for name, values in rollouts.extra_step.items()},
    )


def _take(values: list[Any], index: IntArray) -> list[Any]:
    return [values[i] for i in index.tolist()]


def _breaks(
    rollouts: Rollouts, obs: AnyArray, moves: IntArray, offsets: IntArray, final: BoolArray, ends_early: BoolArray
) -> tuple[IntArray, AnyArray | None, BoolArray]:
    """Breaks inside the pieces, and which pieces (P,) have one; a break at a cut end becomes its final row in `obs`."""
    pieces = len(offsets) - 1
    if rollouts.break_obs is None or not len(rollouts.break_at):
        return np.zeros(0, np.int64), None, np.zeros(pieces, bool)
    order = np.argsort(rollouts.break_at, kind="stable")
    at = rollouts.break_at[order]
    place = np.minimum(np.searchsorted(at, moves), len(at) - 1)
    hit = np.flatnonzero(at[place] == moves)  # (B',) index into the transitions of the pieces
    found = rollouts.break_obs[order[place[hit]]]  # (B', O)
    piece = np.searchsorted(offsets, hit, side="right") - 1
    at_end = ends_early[piece] & (hit == offsets[piece + 1] - 1)
    final_row = np.cumsum(np.diff(offsets) + final) - 1  # (P,) index into `obs` of the last row of each piece
    obs[final_row[piece[at_end]]] = found[at_end]
    inside = ~at_end
    return hit[inside], found[inside], np.bincount(piece[inside], minlength=pieces).astype(bool)
