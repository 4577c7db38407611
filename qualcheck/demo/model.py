"""A small world model and policy, fitted to real rollouts of the recorded tasks and to nothing else."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from qualcheck.demo.episode import Episode
from qualcheck.demo.network import Network
from qualcheck.envs.babyai.layout import (
    ACTIONS,
    AGENT_COL,
    AGENT_ROW,
    BALL_ROW,
    BOX_ROW,
    CARRIED_TYPE,
    DOOR_ROW,
    DOOR_STATE,
    KEY_ROW,
    OBS_SIZE,
    TYPES,
)
from qualcheck.types import AnyArray, FloatArray, IntArray

VALUES = 8  # classes of every number of a row, 0 to 7
OFFSETS = 15  # classes of a difference of two of them
PLACES = (BALL_ROW, BOX_ROW, KEY_ROW, DOOR_ROW)  # in the order of TYPES
NO_TYPE = len(TYPES)
COPY = 4.0  # starting logit for "a number stays what it was"


def one_hot(values: IntArray, classes: int) -> FloatArray:
    """(M, C) -> (M, C * classes) float32, all zero where a value is negative."""
    hot: FloatArray = (values[:, :, None] == np.arange(classes)).reshape(len(values), -1).astype(np.float32)
    return hot


def world_input(obs: AnyArray, action: AnyArray, bag: FloatArray, named: IntArray) -> FloatArray:
    """What the world model sees: the row number by number, the action, where each object lies from the agent, the
    colour of the object underfoot, and the sentence."""
    row = obs.astype(np.int64)
    gaps = np.stack([row[:, [place, place + 1]] - row[:, [AGENT_ROW, AGENT_COL]] for place in PLACES], axis=1)
    here = (gaps == 0).all(axis=2)  # (M, types)
    underfoot = np.where(here, row[:, [place - 1 for place in PLACES]], -1).max(axis=1, keepdims=True)
    parts = [one_hot(row, VALUES), one_hot(action[:, None], len(ACTIONS)), one_hot(underfoot, VALUES)]
    parts += [one_hot(gaps.reshape(len(row), -1) + VALUES - 1, OFFSETS), bag, one_hot(named, NO_TYPE + 1)]
    return np.concatenate(parts, axis=1)


@dataclass(frozen=True)
class Reader:
    """Sees of a sentence the words known from training and the first two objects it names, in order."""

    vocabulary: tuple[str, ...]

    @classmethod
    def learn(cls, sentences: Sequence[str]) -> Reader:
        return cls(tuple(sorted({word for sentence in sentences for word in _words(sentence)})))

    def read(self, sentences: Sequence[str]) -> tuple[FloatArray, IntArray]:
        """Which words occur (N, V) and which types are named first and second (N, 2), `NO_TYPE` where none."""
        number = {word: index for index, word in enumerate(self.vocabulary)}
        bag = np.zeros((len(sentences), len(self.vocabulary)), np.float32)
        named = np.full((len(sentences), 2), NO_TYPE)
        for at, sentence in enumerate(sentences):
            found = _words(sentence)
            bag[at, [number[word] for word in found if word in number]] = 1
            types = [TYPES.index(word) for word in found if word in TYPES][:2]
            named[at, : len(types)] = types
        return bag, named


def _words(sentence: str) -> list[str]:
    return re.findall(r"[a-z]+", sentence.lower())


def policy_input(obs: AnyArray, bag: FloatArray, named: IntArray) -> FloatArray:
    """What the policy sees: the words, the agent, the door, the hands, and where the named objects lie."""
    row = obs.astype(np.int64)
    agent = row[:, [AGENT_ROW, AGENT_COL]]
    parts = [bag, one_hot(agent, VALUES), one_hot(row[:, [DOOR_STATE]], VALUES), one_hot(named, NO_TYPE + 1)]
    parts.append((row[:, [CARRIED_TYPE]] > 0).astype(np.float32))
    each = np.arange(len(row))
    place = np.array([*PLACES, 0])
    for types in named.T:
        start = place[types]
        there = np.stack([row[each, start], row[each, start + 1]], axis=1)  # (M, 2)
        gap = there - agent + VALUES - 1
        gap[types == NO_TYPE] = -1
        parts += [one_hot(gap, OFFSETS), ((there == 0).all(axis=1) & (types != NO_TYPE))[:, None].astype(np.float32)]
    return np.concatenate(parts, axis=1)


@dataclass(frozen=True)
class Model:
    """`world`: 17 numbers of the next row given row and action. `policy`: action, and whether the task is done."""

    world: Network
    policy: Network
    reader: Reader
    losses: dict[str, list[float]]  # mean cross-entropy of each epoch, in nats


def fit(episodes: Sequence[Episode], rng: np.random.Generator, epochs: int = 12, hidden: int = 160) -> Model:
    """A model of the world from all episodes, and a policy from those that reach their goal.

    Raises:
        ValueError: an episode is of another level than "real".
    """
    foreign = {episode.start.level for episode in episodes} - {"real"}
    if foreign:
        raise ValueError(f"the model is fitted to real rollouts of level real only, not of {sorted(foreign)}")
    start = np.concatenate([episode.rows[:-1] for episode in episodes])
    end = np.concatenate([episode.rows[1:] for episode in episodes])
    action = np.concatenate([episode.action for episode in episodes])
    reader = Reader.learn([episode.start.instruction for episode in episodes])
    bag, named = reader.read([episode.start.instruction for episode in episodes])
    owner = np.repeat(np.arange(len(episodes)), [episode.length for episode in episodes])
    x = world_input(start, action, bag[owner], named[owner])
    world = Network(x.shape[1], hidden, (VALUES,) * OBS_SIZE, rng)
    np.fill_diagonal(world.skip, COPY)  # the first inputs are the row itself, number by number
    losses = {"world": world.fit(x, end.astype(np.int64), rng, epochs, rate=4e-3)}

    good = [episode for episode in episodes if episode.terminal]
    bag, named = reader.read([episode.start.instruction for episode in good])
    owner = np.repeat(np.arange(len(good)), [len(episode.rows) for episode in good])
    x = policy_input(np.concatenate([episode.rows for episode in good]), bag[owner], named[owner])
    policy = Network(x.shape[1], hidden, (len(ACTIONS), 2), rng)
    chosen = np.concatenate([np.append(episode.action, -1) for episode in good])
    done = np.concatenate([np.arange(len(episode.rows)) == episode.length for episode in good])
    target = np.stack([chosen, done.astype(np.int64)], axis=1)
    losses["policy"] = policy.fit(x, target, rng, epochs, rate=4e-3)
    return Model(world, policy, reader, losses)
