"""Many episodes of one task that advance together: what an environment offers to vectorised evaluation.

An adapter whose simulator steps many states at once has a method `make_episodes(task, predicates, **options)` that
gives an `Episodes`; for the others `OneByOne` steps single environments in threads. Either way episode i of
`reset(seeds)` is the one that the single environment has after `reset(seed=seeds[i])`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple, Protocol

import numpy as np

from qualcheck.cores import cores
from qualcheck.types import AnyArray, BoolArray, FloatArray, IntArray


class Begun(NamedTuple):
    """First rows of B episodes."""

    obs: AnyArray  # (B, O)
    instruction: list[str]  # (B,)
    rngs: list[np.random.Generator]  # (B,) the generator of each episode, as its reset has left it


class Stepped(NamedTuple):
    """What one action in each of B episodes led to."""

    obs: AnyArray  # (B, O)
    reward: FloatArray  # (B,)
    success: BoolArray  # (B,)
    terminated: BoolArray  # (B,)
    truncated: BoolArray  # (B,)


class Episodes(Protocol):
    """Episodes of one task; rows have no instruction codes."""

    batch: int  # episodes that are worth advancing together

    def reset(self, seeds: Sequence[int]) -> Begun:
        """Begin an episode for each seed; those before are forgotten."""
        ...

    def step(self, action: AnyArray) -> Stepped:
        """One action in each episode, (B,) or (B, A).

        Raises:
            ValueError: an action is none of the environment's.
        """
        ...

    def keep(self, which: IntArray) -> None:
        """Go on with some of the episodes only, (b,) indices."""
        ...

    def close(self) -> None: ...


class OneByOne:
    """Single environments, stepped in threads; worth it where a step leaves Python's lock."""

    batch = 16

    def __init__(self, make: Callable[[], Any], after: Callable[[], None] | None = None) -> None:
        """Args:
        make: makes one environment of the task, with `instruction` and `is_success` in its info.
        after: called when all of them are closed.
        """
        self._make, self._after = make, after
        self._made: list[Any] = []
        self._live: list[Any] = []
        self._pool = ThreadPoolExecutor(cores())

    def reset(self, seeds: Sequence[int]) -> Begun:
        while len(self._made) < len(seeds):
            self._made.append(self._make())
        self._live = self._made[: len(seeds)]
        begun = list(self._pool.map(lambda env, seed: env.reset(seed=seed), self._live, seeds))
        texts = [info.get("instruction", "") for _, info in begun]
        return Begun(np.stack([obs for obs, _ in begun]), texts, [env.np_random for env in self._live])

    def step(self, action: AnyArray) -> Stepped:
        done = list(self._pool.map(lambda env, chosen: env.step(chosen), self._live, action))
        obs, reward, terminated, truncated, info = zip(*done, strict=True)
        success = np.array([bool(each["is_success"]) for each in info])
        return Stepped(np.stack(obs), np.array(reward), success, np.array(terminated, bool), np.array(truncated, bool))

    def keep(self, which: IntArray) -> None:
        self._live = [self._live[at] for at in which.tolist()]

    def close(self) -> None:
        self._pool.shutdown()
        for env in self._made:
            env.close()
        if self._after is not None:
            self._after()
