"""`make_env`: any task of any environment as a gymnasium environment."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.error import ResetNeeded

from qualcheck.acting import usable
from qualcheck.adapter import EnvAdapter
from qualcheck.errors import UsageError, unknown_name
from qualcheck.instruction_codes import Codes
from qualcheck.registry import load
from qualcheck.spec import ActionSpec
from qualcheck.types import AnyArray

SUCCESS = ("intended", "released")
STARTS = {"row", "hidden"}  # reset options that there are
CodeTable = Codes | str | Path | Mapping[str, AnyArray] | None


class TaskEnv(gymnasium.Env[AnyArray, Any]):
    """One task of an environment, with the benchmark's rows, actions, horizon and success.

    An episode is terminated by its goal and truncated at its horizon, never both; `info` holds `success` and the
    `instruction`, which each reset draws from the sentences of the task. All randomness comes from the seed of `reset`.
    """

    metadata: dict[str, Any] = {"render_modes": []}  # noqa: RUF012  # gymnasium reads it off the class

    def __init__(self, inner: Any, task: str, codes: Codes | None, actions: ActionSpec) -> None:
        self.inner, self.task, self._codes, self._actions = inner, task, codes, actions
        self._code: AnyArray | None = None
        self._begun = False
        self.action_space = inner.action_space
        self.observation_space = inner.observation_space if codes is None else _wider(inner.observation_space, codes)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[AnyArray, dict[str, Any]]:
        """Start an episode; options are those of the environment, such as `{"row": row}` to start in a row.

        Raises:
            UsageError: an option that there is not, or a row that is none.
        """
        super().reset(seed=seed)
        self._begun = False
        _refuse_start(options or {}, self.inner.observation_space)
        row, info = self.inner.reset(seed=seed, options=options)
        if self._codes is not None:
            self._code = self._codes.draw(info["instruction"], self.task, self.inner.np_random)
        self._begun = True
        return self._with_code(row), _told(info)

    def step(self, action: Any) -> tuple[AnyArray, float, bool, bool, dict[str, Any]]:
        """Carry out one action and judge the row after it.

        Raises:
            UsageError: it is no action of the environment.
            ResetNeeded: there is no episode, before the first reset or after `close`.
        """
        if not self._begun:
            raise ResetNeeded("step: no episode has begun; call reset first.")
        chosen = usable([action], self._actions, 1)[0]
        row, reward, terminated, truncated, info = self.inner.step(chosen)
        return self._with_code(row), reward, terminated, truncated and not terminated, _told(info)

    def _with_code(self, row: AnyArray) -> AnyArray:
        return row if self._code is None else np.concatenate([row, self._code.astype(row.dtype)])

    def close(self) -> None:
        self._begun = False
        self.inner.close()


def _refuse_start(options: Mapping[str, Any], space: Any) -> None:
    """Raise UsageError for reset options that no environment has, and a row that is not numbers in a line."""
    unknown = sorted(map(str, set(options) - STARTS))
    if unknown:
        raise UsageError(f"reset: no option {', '.join(unknown)}; expected row, and hidden where rows hide a part.")
    row = options.get("row")
    if row is None:
        return
    try:
        fits = np.asarray(row, np.float64).ndim == 1
    except (TypeError, ValueError):
        fits = False
    if not fits:
        raise UsageError(f"reset: the row is no line of numbers; expected {space.shape[0]} of them.")


def _told(info: dict[str, Any]) -> dict[str, Any]:
    return {**info, "success": bool(info["is_success"])}


def _wider(space: Any, codes: Codes) -> spaces.Box:
    """The space of rows with an instruction code behind them."""
    endless = np.full(codes.size, np.inf, space.dtype)
    return spaces.Box(np.concatenate([space.low, -endless]), np.concatenate([space.high, endless]), dtype=space.dtype)


def read_codes(codes: CodeTable) -> Codes | None:
    """Instruction codes from what a user gives: a file, a dict of text -> code, or nothing."""
    return codes if codes is None or isinstance(codes, Codes) else Codes(codes)


def inner_options(success: str, horizon: int | None, options: Mapping[str, Any]) -> dict[str, Any]:
    """The options of `make_env` as those of an adapter.

    Raises:
        UsageError: a success test or horizon that there is not.
    """
    if success not in SUCCESS:
        raise unknown_name("success test", success, list(SUCCESS))
    if horizon is not None and (not isinstance(horizon, (int, np.integer)) or horizon < 1):
        raise UsageError(f"horizon {horizon}: an episode has a whole number of steps, from 1.")
    return {**options, **({} if horizon is None else {"horizon": int(horizon)})}


def make_inner(adapter: EnvAdapter, task: str, success: str, options: Mapping[str, Any]) -> Any:
    """The adapter's own environment of a task.

    Raises:
        UsageError: it takes no such options.
    """
    if not isinstance(task, str):
        raise UsageError(f"task {task!r}; it is the name of one, see `qualcheck envs`.")
    try:
        return adapter.make_env(task, success, **options)
    except TypeError as error:
        if "unexpected keyword" not in str(error):
            raise
        unknown = str(error).rpartition("argument ")[2]
        raise UsageError(f"make_env: {adapter.spec.id} has no option {unknown}.") from error


def make_env(
    env: str,
    task: str,
    *,
    success: str = "intended",
    codes: CodeTable = None,
    horizon: int | None = None,
    **options: Any,
) -> TaskEnv:
    """A gymnasium.Env of one task.

    Args:
        env: id of the environment.
        task: id of the task; see `qualcheck envs`.
        success: "intended" (the goal by its meaning) or "released" (the benchmark's own test, faults included).
        codes: appended to every row: a file of reference codes as for `--encodings`, or a dict of instruction -> code.
            Of several codes each reset draws one.
        horizon: steps of an episode; None: the benchmark's.
        options: of the environment: `params` and `level` in BabyAI, `obs_size` in HalfCheetah, `family` in CLEVR-Robot.

    Raises:
        UnknownName: no such environment, task or success test.
        UsageError: the environment has no such option.
        MissingExtra: its simulator is not installed.
    """
    table = read_codes(codes)
    adapter = load(env)
    inner = make_inner(adapter, task, success, inner_options(success, horizon, options))
    return TaskEnv(inner, task, table, adapter.spec.action)
