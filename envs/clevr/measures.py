"""What the laws of CLEVR-Robot are about: numbers of rows and of steps, all in metres.

Balls of 0.26 m that are pushed against a wall, or into a pile, climb: seen from above, the centres of two balls then
come as near as 0.01 m. So an overlap alone is no fault; one that comes about in a single step, or that nothing holds
up, is.
"""

from __future__ import annotations

import numpy as np

from qualcheck.envs.clevr.layout import BALLS, DIRECTIONS, PAIRS, RADIUS_M
from qualcheck.types import BoolArray, FloatArray, IntArray

DIAMETER_M = 2 * RADIUS_M
LOW_M, HIGH_M = np.array([-0.47, -0.17]), np.array([0.47, 0.57])  # where centres touch the walls
WALLED_M = 0.006  # a centre deeper in a wall than any push brings it: only a reset puts it there
TOUCHING_WALL_M = 0.002  # a ball this near to a wall may be pushed by it
NEIGHBOUR_M = 0.32  # centres this near at the start or the end of a step may have touched in it
DEEP_M = 0.18  # nearer than this a ball lies on another, which needs a third ball or a wall
APART_M = 0.22  # no nearer, balls lie side by side
FREE_M = 0.25  # clear way ahead of a ball, on which a push must move it
UNTIGHT_M = 0.25  # centres of balls that all lie on the table are no nearer

UNITS = DIRECTIONS / np.linalg.norm(DIRECTIONS, axis=1, keepdims=True)  # (8, 2)
_FIRST, _SECOND = PAIRS
_OTHERS = np.array([[k for k in range(len(BALLS)) if k not in pair] for pair in zip(*PAIRS, strict=True)])  # (10, 3)


def pair_distance(centre: FloatArray) -> FloatArray:
    """Distances of the ten pairs of centres, (R, 5, 2) -> (R, 10)."""
    distance: FloatArray = np.linalg.norm(centre[:, _FIRST] - centre[:, _SECOND], axis=2)
    return distance


def wall_gap(centre: FloatArray) -> FloatArray:
    """Free way to the nearest wall, negative inside of one, (R, 5, 2) -> (R, 5)."""
    gap: FloatArray = np.minimum(centre - LOW_M, HIGH_M - centre).min(axis=2)
    return gap


def _table(pairs: FloatArray) -> FloatArray:
    """Distances of pairs as a table with infinity on the diagonal, (R, 10) -> (R, 5, 5)."""
    table = np.full((len(pairs), len(BALLS), len(BALLS)), np.inf)
    table[:, _FIRST, _SECOND] = table[:, _SECOND, _FIRST] = pairs
    return table


def of_rows(centre: FloatArray) -> dict[str, FloatArray]:
    """Numbers of rows, (R,) each.

    depth: deepest a ball is in a wall; nearest: smallest distance of two centres; unheld: largest gap, over pairs
    nearer than 0.18 m, from the two to what might hold the upper one, a wall or a third ball (-inf without such pairs).
    """
    pairs, gap = pair_distance(centre), wall_gap(centre)
    deep = np.flatnonzero(~(pairs.min(axis=1) >= DEEP_M))
    unheld = np.full(len(centre), -np.inf)
    if len(deep):
        table, near = _table(pairs[deep]), gap[deep]
        third = np.minimum(
            table[:, _FIRST[:, None], _OTHERS].min(axis=2), table[:, _SECOND[:, None], _OTHERS].min(axis=2)
        )
        holder = np.minimum(np.minimum(near[:, _FIRST], near[:, _SECOND]), third - DIAMETER_M)  # (r, 10)
        unheld[deep] = np.where(pairs[deep] < DEEP_M, holder, -np.inf).max(axis=1)
    return {"depth": -gap.min(axis=1), "nearest": pairs.min(axis=1), "unheld": unheld}


def _climb(pairs: FloatArray) -> FloatArray:
    """Difference in height that spheres at a horizontal distance must at least have, m."""
    height: FloatArray = np.sqrt(np.maximum(DIAMETER_M**2 - pairs**2, 0))
    return height


def _passing(before: FloatArray, after: FloatArray, pairs: tuple[FloatArray, FloatArray]) -> FloatArray:
    """Nearest that balls side by side before and after come on straight ways, (M,); infinite without such balls."""
    start, end = before[:, _FIRST] - before[:, _SECOND], after[:, _FIRST] - after[:, _SECOND]  # (M, 10, 2)
    way = end - start
    part = np.clip(-(start * way).sum(axis=2) / np.maximum((way**2).sum(axis=2), 1e-12), 0, 1)
    nearest = np.linalg.norm(start + part[..., None] * way, axis=2)
    beside = (pairs[0] >= APART_M) & (pairs[1] >= APART_M)
    passing: FloatArray = np.where(beside, nearest, np.inf).min(axis=1)
    return passing


def clearance(before: FloatArray, after: FloatArray, ball: IntArray, unit: FloatArray) -> FloatArray:
    """Way a ball can go in a direction before it meets another ball, where that was or where it ends, or a wall, (M,).

    Args:
        before: (M, 5, 2) centres at the start of a step, m.
        after: (M, 5, 2) at its end.
        ball: (M,) which one.
        unit: (M, 2) direction of length 1.
    """
    each = np.arange(len(before))
    place = before[each, ball]  # (M, 2)
    free: FloatArray = np.full(len(before), np.inf)
    for centre in (before, after):
        beside = centre - place[:, None]
        along = (beside * unit[:, None]).sum(axis=2)  # (M, 5)
        aside = (beside**2).sum(axis=2) - along**2
        meets = (aside < DIAMETER_M**2) & (along > 0)
        way = np.where(meets, along - np.sqrt(np.maximum(DIAMETER_M**2 - aside, 0)), np.inf)
        way[each, ball] = np.inf
        free = np.minimum(free, way.min(axis=1))
    with np.errstate(divide="ignore", invalid="ignore"):
        wall = np.where(unit > 1e-6, (HIGH_M - place) / unit, np.where(unit < -1e-6, (LOW_M - place) / unit, np.inf))
    nearest: FloatArray = np.minimum(free, wall.min(axis=1))
    return nearest


def of_steps(before: FloatArray, after: FloatArray, action: IntArray) -> dict[str, FloatArray]:
    """Numbers of steps, (M,) each; infinite, with the sign of what is harmless, where a number does not apply.

    pushed, other: way of the pushed ball and longest of the others; of scenes thrown out of a wall `other_walled`
    instead. back: way of the pushed ball against its push. climb: growth of the height two balls must differ by.
    passing: nearest that two balls pass each other. alone: way of a ball not pushed, with none near and no wall.
    follow: way along the push of a ball with 0.25 m before it. turn: angle in degrees from the push of a ball with
    0.25 m before it that moves. Without a usable action (-1) every ball may be the pushed one.
    """
    each, known = np.arange(len(before)), action >= 0
    ball, unit = np.maximum(action, 0) // len(UNITS), UNITS[action % len(UNITS)]
    moved = after - before  # (M, 5, 2)
    way = np.linalg.norm(moved, axis=2)  # (M, 5)
    pairs = pair_distance(before), pair_distance(after)
    gap = wall_gap(before)  # (M, 5)
    walled: BoolArray = gap.min(axis=1) < -WALLED_M
    pushed = np.where(known, way[each, ball], way.max(axis=1))
    rest = way.copy()
    rest[each, ball] = 0
    rest[~known] = 0
    other = rest.max(axis=1)
    near = np.minimum(_table(pairs[0]).min(axis=2), _table(pairs[1]).min(axis=2))  # (M, 5)
    alone = np.where((near > NEIGHBOUR_M) & (gap > TOUCHING_WALL_M), rest, 0).max(axis=1)
    along = (moved[each, ball] * unit).sum(axis=1)
    free = clearance(before, after, ball, unit)
    must = known & ~walled & (free > FREE_M) & (pairs[0].min(axis=1) > UNTIGHT_M)
    turn = np.degrees(np.arccos(np.clip(along / np.maximum(way[each, ball], 1e-9), -1, 1)))
    return {
        "pushed": pushed,
        "other": np.where(walled, -np.inf, other),
        "other_walled": np.where(walled, other, -np.inf),
        "back": np.where(known & ~walled, -along, -np.inf),
        "climb": (_climb(pairs[1]) - _climb(pairs[0])).max(axis=1),
        "passing": _passing(before, after, pairs),
        "alone": alone,
        "follow": np.where(must, along, np.inf),
        "turn": np.where(must & (way[each, ball] > 0.05), turn, -np.inf),
    }
