"""Fresh CLEVR-Robot scenes and goals, many at once.

Source: scene sampling of the ball environment of ImagineBench (arXiv 2505.10010, released code of May 2025). The box it
draws from is larger than what the walls leave free: 19 of 20 scenes have a ball in a wall, which throws it out in the
first step.
"""

from __future__ import annotations

import numpy as np

from qualcheck.envs.clevr import goals
from qualcheck.envs.clevr.layout import BALLS, OBS_SIZE, RADIUS_M
from qualcheck.errors import unknown_name
from qualcheck.types import BoolArray, FloatArray, Placement

LOW_M, HIGH_M = np.array([-0.5, -0.3]), np.array([0.5, 0.5])
SPACING_M = 2 * RADIUS_M + 0.1  # between centres
ALIGNED_M = 0.01  # two balls never differ by less along an axis, unless by nothing
TRIES = 10  # for one ball; then the whole scene is drawn again
DRAWS = 100  # of a goal


def free(spot: FloatArray, placed: FloatArray) -> BoolArray:
    """Whether a ball may be put at each spot, (..., 2) beside balls (..., K, 2) -> (...)."""
    apart = spot[..., None, :] - placed  # (..., K, 2)
    far = (apart**2).sum(axis=-1) >= SPACING_M**2
    aligned = ((apart != 0) & (np.abs(apart) < ALIGNED_M)).any(axis=-1)
    allowed: BoolArray = (far & ~aligned).all(axis=-1)
    return allowed


def sample(n: int, rng: np.random.Generator) -> FloatArray:
    """n first rows, (n, 10) float64 m: balls put one after the other, each at the first of ten spots that is free."""
    rows = np.empty((n, len(BALLS), 2))
    missing = np.arange(n)
    while len(missing):
        scene = np.empty((len(missing), len(BALLS), 2))
        complete = np.ones(len(missing), bool)
        for ball in range(len(BALLS)):
            spots = rng.uniform(LOW_M, HIGH_M, (len(missing), TRIES, 2))
            allowed = free(spots, scene[:, None, :ball])  # (m, TRIES)
            scene[:, ball] = spots[np.arange(len(missing)), allowed.argmax(axis=1)]
            complete &= allowed.any(axis=1)
        rows[missing[complete]] = scene[complete]
        missing = missing[~complete]
    return rows.reshape(n, OBS_SIZE)


def draw(task: str, centre: FloatArray, rng: np.random.Generator) -> list[Placement]:
    """A goal of a task for each scene, of balls drawn at random, that its first row does not meet, (n, 5, 2) -> n.

    Of several sub-goals each moves another ball, and beside a ball that no later one moves. A task without balls of its
    own, or one that the first row meets in whatever way it is drawn, keeps the last draw.

    Raises:
        UnknownName: no such task.
    """
    if task not in goals.TASK_IDS:
        raise unknown_name("CLEVR-Robot task", task, list(goals.TASK_IDS))
    found = [Placement(task, task)] * len(centre)
    missing = np.arange(len(centre))
    for _ in range(DRAWS):
        for scene in missing:
            found[scene] = Placement(task, task, _balls(task, rng))
        held, number = goals.counts(centre[missing], goals.roles([found[scene] for scene in missing]))
        missing = missing[(number > 0) & (held == number)]
        if not len(missing):
            break
    return found


def _balls(task: str, rng: np.random.Generator) -> tuple[str, ...]:
    order = [BALLS[i] for i in rng.permutation(len(BALLS))]
    if task.startswith("push_"):
        return (order[0],)
    if task in ("tau_2", "tau_3"):
        parts: list[str] = []
        for place in range(int(task[-1])):
            reference = order[int(rng.integers(place + 1))]
            parts += [goals.WAYS[int(rng.integers(len(goals.WAYS)))], order[place + 1], reference]
        return tuple(parts)
    return (order[0], order[1]) if task.startswith("tau_") else ()
