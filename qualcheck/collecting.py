"""`collect`: real rollouts of scripted experts, in qualcheck's own layout.

An environment's experts stand behind `record(task, n, rng, ...)` in its module `record`, as keyword arguments whatever
of `level`, `noise`, `random_share`, `horizon`, `inits` and `dtype` they know. What it returns may hold `success` as an
extra column, whether the intended goal was reached; else that is judged here. The module may also hold
`COLLECTED_WITH`, options that are given when the user does not, `REASONS`, task -> why its experts often fail, and
`STORAGES`, dtypes that rows can be recorded in where it is not float32 alone.
"""

from __future__ import annotations

import importlib
import inspect
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np

from qualcheck import __version__
from qualcheck.adapter import EnvAdapter
from qualcheck.errors import UsageError, unknown_name
from qualcheck.inputs import FAMILY_KEY
from qualcheck.io.canonical import CanonicalWriter
from qualcheck.output import staged_files
from qualcheck.registry import load
from qualcheck.stats import Interval, clopper_pearson
from qualcheck.types import BoolArray, Rollouts, Trajectory

GENERATOR = "expert"
MADE_BY = "qualcheck.made_by"
SIMULATORS = ("numpy", "gymnasium", "minigrid", "mujoco")
LOW = 0.8  # a share of successes that wants a reason

Record = Callable[..., Rollouts]


@dataclass(frozen=True)
class TaskRate:
    """How often the rollouts of a task reached its goal."""

    task: str
    n: int
    won: int  # by the meaning of the text
    won_released: int  # by the benchmark's own test
    transitions: int
    reason: str = ""  # why the experts do not reach more, where they reach it too seldom

    @property
    def rate(self) -> float:
        return self.won / self.n

    @property
    def interval(self) -> Interval:
        """95 % interval of the rate."""
        return clopper_pearson(self.won, self.n)


@dataclass(frozen=True)
class Collected:
    """What was written."""

    out: Path
    env: str
    level: str
    tasks: list[TaskRate]
    starts: dict[str, int]  # where scenes come from, if the environment says so -> rollouts

    @property
    def n_rollouts(self) -> int:
        return sum(task.n for task in self.tasks)

    @property
    def n_transitions(self) -> int:
        return sum(task.transitions for task in self.tasks)


def collect(
    env: str,
    level: str,
    n: int,
    out: str | Path,
    *,
    task: str | None = None,
    noise: float | None = None,
    random_share: float | None = None,
    seed: int = 0,
    inits: str | Path | None = None,
    storage: str | None = None,
    horizon: int | None = None,
) -> Collected:
    """Record real rollouts of every task of a level.

    A rollout ends with the first row on which its goal holds by meaning (terminal), or is cut at the horizon
    (truncated). The column `x_success` says which. Equal arguments and versions give equal bytes.

    Args:
        env: id of the environment.
        level: real, rephrase, easy or hard.
        n: rollouts of each task.
        out: Parquet file to create.
        task: only this task of the level; its rollouts are the same as among the others.
        noise: on the experts' actions: a standard deviation, or with discrete actions the share that is random.
            None: as much as the environment's experts are made for.
        random_share: share of the rollouts that act at random throughout.
        seed: of all that is drawn.
        inits: folder with the benchmark's files of starts, for LIBERO; None: scenes of this project's own placement.
        storage: float32 or, in HalfCheetah, float64 rows; None: what the benchmark has.
        horizon: steps after which a rollout is cut; None: the benchmark's.

    Raises:
        UnknownName: no such environment, level or task.
        UsageError: an option that cannot be, or that the environment has not; `out` exists.
        DataError: a file of starts cannot be used.
        MissingExtra: the simulator is not installed.
    """
    path = Path(out)
    adapter = load(env)
    try:
        levels = adapter.tasks()
        if level not in levels:
            raise unknown_name(f"level of {env}", level, list(levels))
        names = levels[level] if task is None else (task,)
        if task is not None and task not in levels[level]:
            raise unknown_name(f"task of {env} at level {level}", task, list(levels[level]))
        asked = {
            "noise": noise,
            "random_share": random_share,
            "inits": None if inits is None else Path(inits),
            "dtype": storage,
            "horizon": horizon,
        }
        _refuse(adapter, n, seed, asked)
        if path.exists() or path.is_symlink():
            raise UsageError(f"-o {path} exists already; nothing is overwritten. Choose another name.")
        record, options, reasons = _record(adapter, {**asked, "level": level})
        shown = {"n": n, "task": task, "seed": seed, **_plain(options), "level": level}
        with staged_files(path) as stage:
            metadata = {MADE_BY: json.dumps(_made_by(adapter, shown), sort_keys=True), FAMILY_KEY: adapter.family}
            metadata = {key: value for key, value in metadata.items() if value}
            rates, starts = list[TaskRate](), dict[str, int]()
            with CanonicalWriter(stage / path.name, adapter.spec, metadata, ["simulator"]) as writer:
                for name in names:
                    rng = np.random.default_rng([seed, *level.encode(), levels[level].index(name)])
                    rollouts, rate = _labelled(adapter, name, record(name, n, rng, **options))
                    if rate.rate < LOW:
                        rate = replace(rate, reason=reasons.get(name, ""))
                    for place in rollouts.extra_rollout.get("start_from", ()):
                        kind = str(place).partition(" row ")[0]
                        starts[kind] = starts.get(kind, 0) + 1
                    number = np.arange(len(rates) * n, (len(rates) + 1) * n, dtype=np.int32)
                    whose = replace(rollouts, level=[level] * n, generator=[GENERATOR] * n, task=[name] * n)
                    writer.append(replace(whose, source_rollout=number))
                    rates.append(rate)
    finally:
        adapter.close()
    return Collected(path, env, level, rates, starts)


def _refuse(adapter: EnvAdapter, n: int, seed: int, asked: dict[str, Any]) -> None:
    """Raise UsageError for values that the environment cannot take."""
    if n < 1:
        raise UsageError(f"-n {n}: expected one rollout of each task or more.")
    if seed < 0:
        raise UsageError(f"--seed {seed}: expected 0 or more.")
    noise, share, horizon = (asked[name] for name in ("noise", "random_share", "horizon"))
    if noise is not None and not 0 <= noise < np.inf:
        raise UsageError(f"--noise {noise}: expected 0 or more.")
    if noise is not None and noise > 1 and adapter.spec.action.kind == "discrete":
        raise UsageError(f"--noise {noise}: with discrete actions the share that is random, from 0 to 1.")
    if share is not None and not 0 <= share <= 1:
        raise UsageError(f"--random-share {share}: expected a share from 0 to 1.")
    if horizon is not None and horizon < 1:
        raise UsageError(f"--horizon {horizon}: expected 1 or more.")


def _record(adapter: EnvAdapter, asked: dict[str, Any]) -> tuple[Record, dict[str, Any], dict[str, str]]:
    """The experts of an environment, the options of those asked for that they take, and reasons for low rates.

    Raises:
        UsageError: it has no experts, or none that take one of the options.
    """
    module = f"{type(adapter).__module__.rpartition('.')[0]}.record"
    try:
        found = importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name != module:
            raise
        raise UsageError(f"{adapter.spec.id} has no scripted experts to collect with.") from error
    record: Record = found.record
    known = inspect.signature(record).parameters
    storages = getattr(found, "STORAGES", ("float32",))
    if asked["dtype"] not in (None, *storages):
        listed = " or ".join(storages)
        raise UsageError(f"--storage {asked['dtype']}: rows of {adapter.spec.id} are recorded as {listed}.")
    if len(storages) == 1:
        asked = {**asked, "dtype": None}
    options = {name: value for name, value in asked.items() if value is not None and name in known}
    flags = {"dtype": "storage", "random_share": "random-share"}
    for name, value in asked.items():
        if value is not None and name not in known and name != "level":
            raise UsageError(f"--{flags.get(name, name)}: the experts of {adapter.spec.id} have no such option.")
    defaults: dict[str, Any] = getattr(found, "COLLECTED_WITH", {})
    return record, {**defaults, **options}, getattr(found, "REASONS", {})


def _plain(options: dict[str, Any]) -> dict[str, Any]:
    """Options as they are written down; of a folder only its name, since where it lies changes nothing."""
    return {name: value.name if isinstance(value, Path) else value for name, value in options.items()}


def _made_by(adapter: EnvAdapter, options: dict[str, Any]) -> dict[str, Any]:
    versions = {"qualcheck": __version__, adapter.spec.id: adapter.spec.version}
    for package in SIMULATORS:
        try:
            versions[package] = version(package)
        except PackageNotFoundError:
            continue
    return {"command": f"qualcheck collect {adapter.spec.id}", "options": options, "versions": versions}


def _labelled(adapter: EnvAdapter, task: str, rollouts: Rollouts) -> tuple[Rollouts, TaskRate]:
    """The rollouts with `success` beside them, and how often each test was passed."""
    intended, released = _judged(adapter, task, rollouts)
    told: Sequence[bool] = rollouts.extra_rollout.get("success", intended.tolist())
    extra = {**rollouts.extra_rollout, "success": [bool(won) for won in told]}
    rate = TaskRate(task, rollouts.n_rollouts, sum(extra["success"]), int(released.sum()), rollouts.n_transitions)
    return replace(rollouts, extra_rollout=extra), rate


def _judged(adapter: EnvAdapter, task: str, rollouts: Rollouts) -> tuple[BoolArray, BoolArray]:
    """Whether each rollout meets its goal on a row after row 0, by meaning and by the benchmark's test, (N,) each."""
    n = rollouts.n_rollouts
    goal = rollouts.goal or [None] * n
    placements = [
        replace(adapter.place(text, aim), task_released=task)
        for text, aim in zip(rollouts.instruction, goal, strict=True)
    ]
    rows = Trajectory(rollouts.obs, rollouts.row_offsets, adapter.takeable(rollouts.obs) == 0)
    found = adapter.goals(adapter.annotate(rows, rollouts), placements, np.arange(n))
    later = np.ones(len(rows.obs), bool)
    later[rows.offsets[:-1]] = False
    total = [np.concatenate([[0], np.cumsum(holds & later)]) for holds in (found.intended, found.released)]
    intended, released = (counted[rows.offsets[1:]] > counted[rows.offsets[:-1]] for counted in total)
    return intended, released
