"""The best share of each task. The cut-off it finds is recorded, and re-applied when the output is filtered again."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from qualcheck.filters.reasons import Reason
from qualcheck.types import AnyArray, BoolArray, FloatArray, IntArray


@dataclass(frozen=True)
class Cutoff:
    """The last value that still belongs to the best share; items equal to it are kept too."""

    column: str  # "scaled_error" (smaller is better) or "correctness" (larger is better)
    value: float | None  # None: the task had nothing to rank


def top_fraction(
    scores: Mapping[str, FloatArray],
    task: AnyArray,
    candidate: BoolArray,
    fraction: float,
    keep_unverifiable: bool = False,
    known: Mapping[str, Cutoff] | None = None,
) -> tuple[IntArray, dict[str, Cutoff]]:
    """Reason code of each item (0: kept), and the cut-off of each task.

    Ranks by `scaled_error` within a task, or by `correctness` where no candidate of the task has a scaled error, as
    in exact environments. Ties with the cut-off are kept, so more than the asked share can remain.

    Args:
        scores: scaled_error and correctness, (N,) each.
        task: (N,) task of each item.
        candidate: (N,) items that are still in; only these are ranked and judged.
        fraction: share of each task's verified candidates to keep, in (0, 1].
        keep_unverifiable: keep items without the score that ranks them.
        known: cut-offs of an earlier filtering with the same fraction; they replace the ones found here.
    """
    reason = np.zeros(len(task), np.int8)
    names, which = np.unique(task.astype(str), return_inverse=True)
    cutoffs: dict[str, Cutoff] = {}
    for i, name in enumerate(names.tolist()):
        inside = np.flatnonzero((which == i) & candidate)
        if not len(inside):
            continue
        cutoff = (known or {}).get(name) or _cutoff(scores, inside, fraction)
        cutoffs[name] = cutoff
        value = scores[cutoff.column][inside]
        unknown = np.isnan(value)
        if cutoff.value is not None:
            edge = value.dtype.type(cutoff.value)
            worse = value > edge if cutoff.column == "scaled_error" else value < edge
            reason[inside[worse]] = Reason.NOT_IN_TOP_FRACTION
        if not keep_unverifiable:
            reason[inside[unknown]] = Reason.UNVERIFIABLE_RANK
    return reason, cutoffs


def _cutoff(scores: Mapping[str, FloatArray], inside: IntArray, fraction: float) -> Cutoff:
    column = "correctness" if np.isnan(scores["scaled_error"][inside]).all() else "scaled_error"
    value = scores[column][inside]
    value = np.sort(value[~np.isnan(value)])
    if not len(value):
        return Cutoff(column, None)
    rank = max(1, math.ceil(fraction * len(value) - 1e-9))  # 0.1 of 30 is 3, whatever floating point says
    return Cutoff(column, float(value[rank - 1] if column == "scaled_error" else value[-rank]))
