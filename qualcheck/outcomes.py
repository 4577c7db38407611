"""A user's file of outcomes, and the rollouts or cells of a run that they belong to."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from qualcheck.errors import DataError
from qualcheck.table import Run

INDEXES = ("rollout", "source_rollout")
ROLLOUT_KEYS: tuple[tuple[str, ...], ...] = (("rollout",), ("source", "source_rollout"), ("source_rollout",))
_TRUTH = {True: 1.0, False: 0.0, "true": 1.0, "false": 0.0, "True": 1.0, "False": 0.0}
CELL_KEYS = ("env", "level", "generator", "task")


@dataclass(frozen=True)
class Outcomes:
    """Rollouts or cells with scores and outcomes side by side."""

    table: pd.DataFrame
    names: list[str]  # outcome columns
    unit: str  # "rollout" or "cell"
    keys: tuple[str, ...]
    unmatched: int  # lines of the file that belong to nothing in the run
    missing: int  # rollouts or cells of the run without an outcome


def read_outcomes(path: Path) -> pd.DataFrame:
    """The file as a table: CSV, Parquet, or JSON (a list of objects, or one object a line).

    Raises:
        DataError: it is none of these, or empty.
    """
    try:
        head = path.open("rb").read(4)
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror}). Check the path.") from error
    try:
        if head == b"PAR1":
            table = pd.read_parquet(path)
        elif head[:1] in (b"[", b"{"):
            text = path.read_text(encoding="utf-8")
            rows = json.loads(text) if head[:1] == b"[" else [json.loads(line) for line in text.splitlines() if line]
            table = pd.DataFrame(rows)
        else:
            table = pd.read_csv(path)
    except Exception as error:
        raise DataError(
            f"{path}: no CSV, Parquet or JSON table ({' '.join(str(error).split())[:120]}). Expected one line a "
            "rollout or cell."
        ) from error
    if not len(table):
        raise DataError(f"{path}: holds no lines. Expected one line a rollout or cell, with a column of outcomes.")
    table.columns = [str(name).strip() for name in table.columns]
    return table


def match(run: Run, path: Path, scores: tuple[str, ...]) -> Outcomes:
    """Scores of a run and outcomes of a file, joined.

    Rollouts are told by `rollout` (the run's index), by `source` and `source_rollout`, or by `source_rollout` where the
    run has one input; else lines are cells, told by any of env, level, generator and task, and scores are means over
    their rollouts.

    Raises:
        DataError: the file names no rollouts or cells, names one twice, or has no column of numbers.
    """
    given = read_outcomes(path)
    rollouts = run.rollouts(["rollout", "source", "source_rollout", "cluster", *CELL_KEYS, *scores]).to_pandas()
    unit, keys = _keys(given, rollouts, path)
    names = [
        name
        for name in given.columns
        if name not in {*CELL_KEYS, *keys, "rollout", "source", "source_rollout"} and _numbers(given[name]) is not None
    ]
    if not names:
        raise DataError(f"{path}: no column of numbers beside {', '.join(keys)}. Which column is the outcome?")
    given = given.assign(**{name: _numbers(given[name]) for name in names})[[*keys, *names]]
    for key in keys:
        try:
            told = given[key].astype("int64") if key in INDEXES else given[key].astype(str)
        except (TypeError, ValueError) as error:
            raise DataError(f"{path}: column {key} does not hold whole numbers ({error}).") from error
        if key in INDEXES and (told != given[key]).any():
            raise DataError(f"{path}: column {key} does not hold whole numbers.")
        given[key] = told
    twice = given[given.duplicated(list(keys))]
    if len(twice):
        named = ", ".join(f"{key} {twice[key].iloc[0]}" for key in keys)
        raise DataError(f"{path}: {named} stands there more than once. Give one line each, such as the mean.")
    if unit == "cell":
        means = rollouts.astype(dict.fromkeys(keys, str)).groupby(list(keys), sort=True)[list(scores)]
        rollouts = means.mean(numeric_only=True).reset_index()
        rollouts["cluster"] = np.arange(len(rollouts))
    joined = rollouts.merge(given, on=list(keys), how="outer", indicator=True, suffixes=("", " (outcome)"))
    side = joined["_merge"].astype(str)
    names = [name if name in joined.columns and name not in scores else f"{name} (outcome)" for name in names]
    found = Outcomes(
        joined[side == "both"].drop(columns="_merge").reset_index(drop=True),
        names,
        unit,
        keys,
        int((side == "right_only").sum()),
        int((side == "left_only").sum()),
    )
    sample = run.manifest["results"].get("sample")
    if sample and keys == ("rollout",) and (side == "right_only").any():
        raise DataError(
            f"{path}: has lines for rollouts that {run.path} has not; that is a sample of {sample['rollouts']} of "
            f"{sample['of']} rollouts, which numbers those it drew anew. Name rollouts by source_rollout, their place "
            "in the file."
        )
    if not len(found.table):
        raise DataError(
            f"{path}: none of its {len(given)} lines belongs to a {unit} of {run.path} by {', '.join(keys)}. Is it the "
            "outcome of these rollouts?"
        )
    return found


def _keys(given: pd.DataFrame, rollouts: pd.DataFrame, path: Path) -> tuple[str, tuple[str, ...]]:
    for keys in ROLLOUT_KEYS:
        if set(keys) <= set(given.columns):
            if keys == ("source_rollout",) and rollouts["source"].nunique() > 1:
                raise DataError(f"{path}: the run has several inputs; give `source` beside `source_rollout`.")
            return "rollout", keys
    cell = tuple(key for key in CELL_KEYS if key in given.columns)
    if not cell:
        raise DataError(
            f"{path}: the columns {', '.join(map(str, given.columns[:8]))} name neither rollouts (rollout, or source "
            "and source_rollout) nor cells (env, level, generator, task)."
        )
    return "cell", cell


def _numbers(column: pd.Series[Any]) -> pd.Series[Any] | None:
    """The column as float64, None where it holds anything but numbers, truth values and gaps."""
    if column.dtype == object:
        column = column.map({True: 1.0, False: 0.0, "true": 1.0, "false": 0.0, "True": 1.0, "False": 0.0}).fillna(
            column
        )
    numbers = pd.to_numeric(column, errors="coerce")
    if (numbers.isna() & column.notna()).any() or numbers.isna().all():
        return None
    return numbers.astype(np.float64)
