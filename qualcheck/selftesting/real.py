"""The real rollouts that faults are planted into, with what the planting must know of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from qualcheck.adapter import EnvAdapter
from qualcheck.contract_subject import pieces
from qualcheck.errors import DataError
from qualcheck.inputs import open_inputs
from qualcheck.options import ScoreOptions
from qualcheck.registry import load
from qualcheck.scoring import Placer
from qualcheck.tolerance import Scale
from qualcheck.types import BoolArray, FloatArray, IntArray, Rollouts

LEAST_STEPS = 4
LEVELS = ("real", "rephrase", "easy", "hard")


@dataclass(frozen=True)
class Real:
    """Real rollouts, one each, and the tolerances they are held against."""

    adapter: EnvAdapter
    scale: Scale | None  # None: an exact environment, or one without calibration
    storage: str
    rollouts: list[Rollouts]
    task: list[str]  # of each
    situation: list[IntArray]  # (T,) of each step of each
    compared: list[BoolArray]  # (O,) of each: numbers that the simulator says something about throughout
    source: str

    def tolerance(self, rollout: int, step: int, column: int, limit: float) -> float:
        """The error of one number that the judging grade lets pass at a step, in its unit; 0 in an exact environment.

        It is the larger of S standard deviations of the real change and what is common in real data of the situation.

        Args:
            rollout: place in `rollouts`.
            step: of it.
            column: of the row.
            limit: S of the judging grade.
        """
        spec, scale = self.adapter.spec, self.scale
        if spec.exact or scale is None:
            return 0.0
        number = next(at for at, block in enumerate(spec.blocks) if column in block.columns)
        one: FloatArray = np.zeros((1, 1, len(spec.blocks)))
        one[..., number] = 1.0
        names, at = [block.name for block in spec.blocks], int(self.situation[rollout][step])
        held = scale.settled.get(spec.situations[at], scale.noise) if at else scale.noise
        over = float(held.over_common(one, names).ravel()[0])
        common = 1.0 / over if over > 0 else np.inf
        return max(limit * float(scale.std_change[column]), common)


def real_rollouts(
    env: str, files: Sequence[Path], folder: Path, count: int, seed: int, trust_pickle: bool = False
) -> Real:
    """Up to so many real rollouts in equal parts of their tasks, from files or from the environment's own experts.

    Args:
        env: id of the environment.
        files: real rollouts; none: they are collected now.
        folder: where collected ones may be written.
        count: rollouts wanted.
        seed: of what is drawn or collected.
        trust_pickle: load pickles with numpy's own loader.

    Raises:
        DataError: the files cannot be used, or hold no rollout that starts at a reset and is long enough.
    """
    source = ", ".join(str(path) for path in files)
    if not files:
        files, source = _collected(env, folder, count, seed), "collected now by the environment's own experts"
    options = ScoreOptions(trust_pickle=trust_pickle)
    inputs = open_inputs(load(env), list(files), options)
    adapter, found, tasks = inputs.adapter, [], []
    placer = Placer(adapter)
    for each in inputs.sources:
        for batch in each.batches():
            placements, which = placer.place(batch)
            whole = np.ones(batch.n_rollouts, bool) if batch.is_reset is None else batch.is_reset
            fine = whole & (batch.length >= LEAST_STEPS) & batch.has_final
            if batch.defect is not None:
                fine &= np.array([not code for code in batch.defect])
            for at in np.flatnonzero(fine).tolist():
                if placements[which[at]].task:
                    found.append(pieces(batch, [at]))
                    tasks.append(placements[which[at]].task)
    if not found:
        raise DataError(
            f"{source}: no rollout starts at a reset, shows its last row, names a task and has {LEAST_STEPS} steps."
        )
    chosen = _spread(tasks, count, np.random.default_rng(seed))
    rollouts = [_plain(found[at]) for at in chosen]
    scale = inputs.labels[0].scale
    return Real(
        adapter,
        scale,
        inputs.labels[0].restarts.storage,
        rollouts,
        [tasks[at] for at in chosen],
        *_replayed(adapter, rollouts),
        source,
    )


def _collected(env: str, folder: Path, count: int, seed: int) -> list[Path]:
    from qualcheck.collecting import collect

    tasks = load(env).tasks()
    levels = [level for level in LEVELS if level in tasks]
    total = sum(len(tasks[level]) for level in levels)
    files = []
    for number, level in enumerate(levels):
        path = folder / f"real_{level}.parquet"
        collect(env, level, max(1, -(-count // total)), path, seed=seed + number)
        files.append(path)
    return files


def _spread(tasks: Sequence[str], count: int, rng: np.random.Generator) -> list[int]:
    """Places of at most so many rollouts, the tasks taken in turn."""
    queues = [rng.permutation([at for at, name in enumerate(tasks) if name == task]) for task in sorted(set(tasks))]
    longest = max(map(len, queues))
    turns = [int(queue[turn]) for turn in range(longest) for queue in queues if turn < len(queue)]
    return sorted(turns[:count])


def _plain(one: Rollouts) -> Rollouts:
    """A whole rollout with nothing of its file's but what verdicts need."""
    from dataclasses import replace

    nowhere = np.zeros(1, np.int32)
    return replace(
        one,
        source=nowhere,
        source_rollout=nowhere,
        source_step=nowhere,
        is_reset=np.ones(1, bool),
        reset_obs=None,
        hidden=None,
        break_at=np.zeros(0, np.int64),
        break_obs=None,
        origin=None,
        level=None,
        generator=None,
        flags={},
        defect=None,
        code=None,
        extra_rollout={},
        extra_step={},
    )


def _replayed(adapter: EnvAdapter, rollouts: Sequence[Rollouts]) -> tuple[list[IntArray], list[BoolArray]]:
    """The situation of each step, and which numbers of the rows are simulated, of each rollout."""
    situation: list[IntArray] = []
    compared: list[BoolArray] = []
    for one in rollouts:
        replay = adapter.replay(one)
        situation.append(np.zeros(one.n_transitions, np.int64) if replay.situation is None else replay.situation)
        every = np.ones((1, one.obs.shape[1]), bool) if replay.compared is None else replay.compared
        compared.append(np.logical_and.reduce(every, axis=0))
    return situation, compared
