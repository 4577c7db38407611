"""Several runs as one set of columns, if they were measured under the same law."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from qualcheck.errors import DataError, UsageError
from qualcheck.manifest import DEFINITIONS
from qualcheck.table import Run
from qualcheck.types import AnyArray, FloatArray, IntArray

NUMBERS = (
    "length", "cluster", "gc_imagined", "gc_replayed", "gc_imagined_released", "gc_replayed_released",
    "consistency", "consistency_replayed", "trivial", "dl_row0", "first_divergence_step",
    "sweep_imagined", "sweep_replayed",
)  # fmt: skip
TEXTS = ("env", "level", "generator", "task", "task_released", "gc_code", "dl_row0_rule")
IDENTITY = ("source", "source_rollout", "source_step")
SCORES = ("tc", "tc_strict", "tc_error", "tc_noise", "tc_scaled", "skill", "dl", "reward_error", "open_loop_error")
STEP_TEXTS = ("tc_code", "dl_rule")


@dataclass(frozen=True)
class Law:
    """What two runs must share before their rows may be counted together."""

    definitions: int
    grade: str
    predicates: str
    calibration: str | None

    @classmethod
    def of(cls, run: Run) -> Law:
        results = run.manifest["results"]
        calibration = results.get("calibration")
        if isinstance(calibration, dict):
            calibration = calibration.get("sha256")
        return cls(
            results.get("definitions", DEFINITIONS),
            results.get("grade", "exact"),
            results.get("predicates", "intended"),
            calibration,
        )


@dataclass(frozen=True)
class Text:
    """A text column as integers into its distinct values."""

    names: list[str]
    index: IntArray


@dataclass(frozen=True)
class Pool:
    """Columns of every run behind one another: N rollouts, M transitions."""

    laws: list[Law]  # of each run
    run: IntArray  # (N,) index into the runs
    number: dict[str, AnyArray]  # (N,)
    text: dict[str, Text]  # (N,)
    flag: Text  # (F,) one entry a flag
    flag_rollout: IntArray  # (F,)
    rollout: IntArray  # (M,) row of the rollout in the pool
    step: IntArray  # (M,) position in the rollout
    score: dict[str, FloatArray]  # (M,)
    step_text: dict[str, Text]  # (M,)

    @property
    def n_rollouts(self) -> int:
        return len(self.run)


def pool(runs: Sequence[Run], mixed: bool = False) -> Pool:
    """Read what a report needs from all runs.

    Args:
        mixed: accept runs of different laws; the report then keeps them in separate cells.

    Raises:
        UsageError: no run; runs of different laws without `mixed`; one rollout in two runs of the same law.
        DataError: a run whose two tables do not belong together.
    """
    if not runs:
        raise UsageError("report: no run folder was given. Name at least one that `qualcheck score -o` wrote.")
    laws = [Law.of(run) for run in runs]
    if not mixed:
        _agree(runs, laws)
    tables = [run.rollouts([*NUMBERS, *TEXTS, *IDENTITY, "flags"]) for run in runs]
    _disjoint(runs, laws, tables)
    rows = pa.concat_tables(tables)
    base = np.concatenate([[0], np.cumsum([table.num_rows for table in tables])])
    steps, owners = [], []
    for number, run in enumerate(runs):
        part = run.transitions(["step", *SCORES, *STEP_TEXTS])
        offsets = run.offsets()
        if part.num_rows != offsets[-1]:
            raise DataError(
                f"{run.path}: transitions.parquet has {part.num_rows} rows; rollouts.parquet counts {offsets[-1]}. "
                "Score the input again."
            )
        steps.append(part)
        owners.append(base[number] + np.repeat(np.arange(len(offsets) - 1), np.diff(offsets)))
    step = pa.concat_tables(steps)
    flags = rows["flags"].combine_chunks()
    return Pool(
        laws=laws,
        run=np.repeat(np.arange(len(runs)), np.diff(base)),
        number={name: rows[name].to_numpy() for name in NUMBERS},
        text={name: _text(rows[name]) for name in TEXTS},
        flag=_text(pc.list_flatten(flags).cast(pa.string())),
        flag_rollout=pc.list_parent_indices(flags).to_numpy(zero_copy_only=False),
        rollout=np.concatenate(owners).astype(np.int64),
        step=step["step"].to_numpy(),
        score={name: step[name].to_numpy() for name in SCORES},
        step_text={name: _text(step[name]) for name in STEP_TEXTS},
    )


def _text(column: Any) -> Text:
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    if isinstance(column, pa.ChunkedArray):  # pyarrow keeps a chunked array where it had no chunk
        column = pa.array([], pa.string())
    coded = pc.fill_null(column, "").dictionary_encode()
    return Text(coded.dictionary.to_pylist(), coded.indices.to_numpy(zero_copy_only=False).astype(np.int64))


def _agree(runs: Sequence[Run], laws: Sequence[Law]) -> None:
    """Definitions are one for the whole report; grade, predicates and calibration belong to an environment."""
    first: dict[str, int] = {}
    for number, (run, law) in enumerate(zip(runs, laws, strict=True)):
        env = str(run.manifest["results"].get("env", ""))
        others = {0, first.setdefault(env, number)}
        for other in sorted(others):
            for name in [field.name for field in fields(Law)]:
                mine, theirs = getattr(law, name), getattr(laws[other], name)
                same_env = other == first[env]
                if mine != theirs and (same_env or name == "definitions"):
                    raise UsageError(
                        f"{run.path}: {name} {mine!r}, but {runs[other].path} has {theirs!r}. Such runs are never "
                        "pooled: score both the same way, or print them apart with --mixed."
                    )


def _disjoint(runs: Sequence[Run], laws: Sequence[Law], tables: Sequence[Any]) -> None:
    """Refuse a rollout that would be counted twice."""
    seen: dict[tuple[Law, str], list[tuple[int, IntArray]]] = {}
    for number, (run, table) in enumerate(zip(runs, tables, strict=True)):
        hashes = {item.get("path"): item.get("sha256") for item in run.manifest["results"].get("inputs", [])}
        source = _text(table["source"])
        place = table["source_rollout"].to_numpy().astype(np.int64) << 32 | table["source_step"].to_numpy()
        for index, name in enumerate(source.names):
            here = place[source.index == index]
            earlier = seen.setdefault((laws[number], hashes.get(name) or name), [])
            for other, taken in earlier:
                # inside one run the same file twice is the scorer's business: it flags duplicates
                twice = 0 if other == number else int(np.isin(here, taken).sum())
                if twice:
                    raise UsageError(
                        f"{run.path} and {runs[other].path} both hold {twice} rollouts of {name}, which would count "
                        "twice. Leave one of the two out."
                    )
            earlier.append((number, here))
