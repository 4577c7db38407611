"""`evaluate`: how often a policy succeeds in a task, many episodes at once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from qualcheck.acting import usable
from qualcheck.adapter import EnvAdapter
from qualcheck.episodes import Episodes, OneByOne
from qualcheck.errors import UsageError
from qualcheck.instruction_codes import Codes
from qualcheck.making import CodeTable, inner_options, make_inner, read_codes
from qualcheck.registry import load
from qualcheck.spec import ActionSpec
from qualcheck.stats import Interval, clopper_pearson
from qualcheck.types import AnyArray, BoolArray, FloatArray, IntArray

Policy = Callable[[AnyArray], AnyArray]


@dataclass(frozen=True)
class Evaluation:
    """N episodes of a policy; episode i is that of the single environment after `reset(seed=seed + i)`."""

    env: str
    task: str
    seed: int
    success: BoolArray  # (N,)
    length: IntArray  # (N,) steps taken
    total_reward: FloatArray  # (N,)

    @property
    def rate(self) -> float:
        """Share of the episodes that succeed."""
        return float(self.success.mean())

    @property
    def interval(self) -> Interval:
        """Its 95 % interval."""
        return clopper_pearson(int(self.success.sum()), len(self.success))

    def __str__(self) -> str:
        low, high = (100 * limit for limit in self.interval)
        share = f"{100 * self.rate:.1f} % of {len(self.success):,} episodes"
        return f"{self.env} {self.task}: {share} succeed [{low:.1f}, {high:.1f}]"


def evaluate(
    policy: Policy,
    env: str,
    task: str,
    episodes: int = 100,
    seed: int = 0,
    *,
    success: str = "intended",
    codes: CodeTable = None,
    horizon: int | None = None,
    batch: int | None = None,
    **options: Any,
) -> Evaluation:
    """Play episodes with a policy, all in lockstep, each until its end.

    Args:
        policy: rows (B, O) of the episodes that are still going, in the order of their seeds -> actions (B,) or (B, A).
            It is asked once a step, and B falls as episodes end.
        env: id of the environment.
        task: id of the task.
        episodes: how many.
        seed: of the first episode; each next one has the next number.
        success: see `make_env`; so are codes, horizon and options.
        batch: episodes at once; None: as many as pay.

    Raises:
        UsageError: episodes or actions that cannot be.
        UnknownName: no such environment, task or success test.
        MissingExtra: the simulator is not installed.
    """
    if not callable(policy):
        raise UsageError(f"evaluate: policy {policy!r}; it is called with rows (B, O), and gives actions.")
    for name, number, least in (("episodes", episodes, 1), ("batch", batch, 1), ("seed", seed, 0)):
        if not ((isinstance(number, (int, np.integer)) and number >= least) or (name == "batch" and number is None)):
            raise UsageError(f"evaluate: {name} {number!r}; expected a whole number from {least}.")
    table = read_codes(codes)
    adapter = load(env)
    running = _episodes(adapter, task, success, inner_options(success, horizon, options))
    won = np.zeros(episodes, bool)
    length, total = np.zeros(episodes, np.int64), np.zeros(episodes)
    try:
        size = batch or running.batch
        for first in range(0, episodes, size):
            part = np.arange(first, min(first + size, episodes))
            _play(policy, adapter.spec.action, running, task, table, seed, part, (won, length, total))
    finally:
        running.close()
        adapter.close()
    return Evaluation(env, task, seed, won, length, total)


def _episodes(adapter: EnvAdapter, task: str, success: str, options: dict[str, Any]) -> Episodes:
    make_inner(adapter, task, success, options).close()  # refuses what is unknown, with words
    together: Any = getattr(adapter, "make_episodes", None)
    if together is not None:
        lockstep: Episodes = together(task, success, **options)
        return lockstep
    return OneByOne(lambda: adapter.make_env(task, success, **options))


def _play(
    policy: Policy,
    actions: ActionSpec,
    running: Episodes,
    task: str,
    table: Codes | None,
    seed: int,
    part: IntArray,
    kept: tuple[BoolArray, IntArray, FloatArray],
) -> None:
    """Play the episodes of these numbers to their ends and note how they went."""
    won, length, total = kept
    obs, instruction, rngs = running.reset([seed + int(number) for number in part])
    code: AnyArray = np.zeros((len(part), 0), obs.dtype)
    if table is not None:
        drawn = [table.draw(text, task, rng) for text, rng in zip(instruction, rngs, strict=True)]
        code = np.stack(drawn).astype(obs.dtype)
    while len(part):
        stepped = running.step(usable(policy(np.concatenate([obs, code], axis=1)), actions, len(part)))
        length[part] += 1
        total[part] += stepped.reward
        won[part] |= stepped.success
        ended = stepped.terminated | stepped.truncated
        obs = stepped.obs
        if ended.any():
            going = np.flatnonzero(~ended)
            running.keep(going)
            part, obs, code = part[going], obs[going], code[going]
