"""Rollouts that the small model dreams up: every row but the first is its own."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from qualcheck.demo.episode import MAX_STEPS, Episode, Start
from qualcheck.demo.model import Model, policy_input, world_input
from qualcheck.demo.network import softmax
from qualcheck.types import AnyArray, FloatArray

TEMPERATURE = 1.0  # lower ones hallucinate less
GENERATOR = "small-model"


def _draw(logits: FloatArray, rng: np.random.Generator) -> AnyArray:
    """One class of each row, (M, classes) -> (M,)."""
    cumulative = softmax(logits.astype(np.float64) / TEMPERATURE).cumsum(axis=1)
    ahead: AnyArray = (rng.random((len(logits), 1)) > cumulative[:, :-1]).sum(axis=1)
    return ahead


def imagine(model: Model, starts: Sequence[Start], rng: np.random.Generator) -> list[Episode]:
    """One rollout a start, all in lockstep: action, next row, and whether the model believes it is done."""
    n = len(starts)
    bag, named = model.reader.read([start.instruction for start in starts])
    obs = np.stack([start.row for start in starts]).astype(np.float32)
    rows, actions = [obs], []
    length = np.full(n, MAX_STEPS)
    claimed = np.zeros(n, bool)
    for step in range(MAX_STEPS):
        action = _draw(model.policy.logits(policy_input(obs, bag, named))[0], rng)
        fields = model.world.logits(world_input(obs, action, bag, named))
        obs = np.stack([_draw(field, rng) for field in fields], axis=1).astype(np.float32)
        done = _draw(model.policy.logits(policy_input(obs, bag, named))[1], rng) == 1
        length[done & ~claimed] = step + 1
        claimed |= done
        rows.append(obs)
        actions.append(action)
        if claimed.all():
            break
    every_row, every_action = np.stack(rows, axis=1), np.stack(actions, axis=1)  # (N, T+1, 17), (N, T)
    return [
        Episode(
            start,
            every_row[at, : length[at] + 1],
            every_action[at, : length[at]].astype(np.int64),
            bool(claimed[at]),
            GENERATOR,
        )
        for at, start in enumerate(starts)
    ]
