"""Success by multiple of the benchmark's thresholds, and in which range of them the order of cells is the same."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from qualcheck.thresholds import MULTIPLES, UNJUDGED, unpacked
from qualcheck.types import IntArray

KINDS = {"imagined": "sweep_imagined", "replayed": "sweep_replayed"}


def sweep(columns: dict[str, IntArray]) -> dict[str, Any] | None:
    """Share of rollouts that reach their goal at each multiple, imagined and replayed; None without thresholds.

    Args:
        columns: `sweep_imagined` and `sweep_replayed` of the rollouts of a cell, (N,) each.
    """
    found: dict[str, Any] = {}
    for kind, name in KINDS.items():
        bits = np.nan_to_num(columns[name], nan=UNJUDGED).astype(np.int64)
        judged = bits != UNJUDGED
        rate = unpacked(bits[judged]).mean(axis=1) if judged.any() else None
        found[kind] = {
            "n": int(judged.sum()),
            "rates": None if rate is None else [float(value) for value in rate],
        }
    if all(part["rates"] is None for part in found.values()):
        return None
    return {"multiples": list(MULTIPLES), **found}


def steady(cells: Sequence[dict[str, Any]], kind: str) -> dict[str, Any] | None:
    """The widest range of multiples around 1 in which no two cells change places; None for fewer than two cells.

    Two cells change places where one is above the other at 1 and below it at the multiple.
    """
    rates = [cell["threshold_sweep"][kind]["rates"] for cell in cells if (cell.get("threshold_sweep") or {}).get(kind)]
    rates = [rate for rate in rates if rate is not None]
    if len(rates) < 2:
        return None
    table = np.array(rates)  # (C, K)
    middle = MULTIPLES.index(1.0)
    order = np.sign(table[:, None] - table[None])  # (C, C, K)
    same = ~(order * order[:, :, [middle]] < 0).any(axis=(0, 1))  # (K,)
    low = middle
    while low > 0 and same[low - 1]:
        low -= 1
    high = middle
    while high + 1 < len(MULTIPLES) and same[high + 1]:
        high += 1
    return {"from": MULTIPLES[low], "to": MULTIPLES[high], "cells": len(rates)}
