"""A bounded sample of whole rollouts of one source, as one batch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from qualcheck.cut import cut
from qualcheck.io import Source
from qualcheck.types import AnyArray, IntArray, Rollouts

MOST_ROLLOUTS = 64
MOST_TRANSITIONS, MOST_FILTERED = 2_000, 1_000  # the latter where a replay carries hidden states and is slow


def choose(
    length: IntArray, stratum: Sequence[str] | IntArray, rng: np.random.Generator, most: int = MOST_TRANSITIONS
) -> IntArray:
    """Rollouts in the order in which they are drawn, (S,): in turn from each stratum, at random within it.

    At most 64, and as many as hold `most` transitions, or the first one alone where it is longer.
    """
    names = np.asarray(stratum)
    queues = [rng.permutation(np.flatnonzero(names == name)) for name in np.unique(names)]
    turn = (queue[k] for k in range(max(map(len, queues), default=0)) for queue in queues if k < len(queue))
    chosen: list[int] = []
    total = 0
    for rollout in turn:
        if length[rollout] == 0 or (chosen and total + length[rollout] > most):
            continue
        chosen.append(int(rollout))
        total += int(length[rollout])
        if len(chosen) == MOST_ROLLOUTS:
            break
    return np.array(chosen, np.int64)


def lengths(source: Source) -> tuple[IntArray, list[str]]:
    """Transitions and instruction of each rollout, (N,) each; reads the whole source."""
    found: list[IntArray] = [np.zeros(0, np.int64)]
    texts: list[str] = []
    for part in source.batches():
        found.append(part.length)
        texts += [text or "" for text in part.instruction]
    return np.concatenate(found), texts


def gather(source: Source, chosen: IntArray) -> Rollouts | None:
    """The chosen rollouts in source order as one batch; None where there is none."""
    wanted, parts, first = np.sort(chosen), [], 0
    for part in source.batches():
        mine = wanted[(wanted >= first) & (wanted < first + part.n_rollouts)] - first
        first += part.n_rollouts
        if len(mine):
            parts.append(cut(part, mine, np.zeros(len(mine), np.int64), part.length[mine]))
        if not len(wanted) or first > wanted[-1]:
            break
    return joined(parts) if parts else None


def joined(parts: Sequence[Rollouts]) -> Rollouts:
    """Batches of one source as one, with what verdicts need; what is missing from any part is left out."""
    if len(parts) == 1:
        return parts[0]
    shift = np.concatenate([[0], np.cumsum([part.n_transitions for part in parts])])

    def rows(name: str) -> Any:
        values = [getattr(part, name) for part in parts]
        return None if any(value is None for value in values) else np.concatenate(values)

    def texts(name: str) -> Any:
        values = [getattr(part, name) for part in parts]
        return None if any(value is None for value in values) else [entry for value in values for entry in value]

    offsets = [part.offsets[1:] + first for part, first in zip(parts, shift[:-1], strict=True)]
    breaks: list[AnyArray] = [part.break_obs for part in parts if part.break_obs is not None and len(part.break_at)]
    return Rollouts(
        **{name: rows(name) for name in ROWS},
        **{name: texts(name) for name in TEXTS},
        offsets=np.concatenate([[0], *offsets]).astype(np.int64),
        break_at=np.concatenate([part.break_at + first for part, first in zip(parts, shift[:-1], strict=True)]),
        break_obs=np.concatenate(breaks) if breaks else None,
    )


ROWS = ("obs", "action", "has_final", "source", "source_rollout", "source_step", "reward", "terminal", "truncated",
        "is_reset", "reset_obs", "hidden")  # fmt: skip
TEXTS = ("instruction", "goal", "level", "generator", "task", "defect")
