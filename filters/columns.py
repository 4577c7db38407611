"""The columns of a run that filters judge, as plain arrays."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from qualcheck.errors import DataError
from qualcheck.table import Run
from qualcheck.types import AnyArray, BoolArray, IntArray

SCORES = (
    "correctness",
    "legality",
    "coverage_tc",
    "coverage_dl",
    "consistency",
    "consistency_replayed",
    "scaled_error",
)
SAID = ("start", "level", "generator")  # what the run says of a rollout, for the file that is written
STEPS = ("tc", "dl", "tc_scaled", "goal_share", "goal_share_replayed")


def score_columns(run: Run, mode: str) -> tuple[dict[str, AnyArray], dict[str, AnyArray], IntArray]:
    """Rollout columns, transition columns (none in mode "rollouts") and (N+1,) offsets, as `decide` takes them.

    Raises:
        DataError: the two tables of the run do not fit each other.
    """
    table = run.rollouts([*SCORES, "rollout", "task", "trivial", "flags", "gc_replayed", *SAID])
    rollouts: dict[str, AnyArray] = {name: table[name].to_numpy() for name in (*SCORES, "rollout", "gc_replayed")}
    for name in ("task", *SAID):
        rollouts[name] = np.asarray(table[name].to_pylist(), dtype=str)
    rollouts["trivial"] = pc.cast(table["trivial"], pa.float32()).to_numpy()
    rollouts["broken"] = _has_flag(table["flags"], "chain_break")
    offsets = run.offsets()
    if mode == "rollouts":
        return rollouts, {}, offsets
    steps = run.transitions([*STEPS, "tc_code"])
    if steps.num_rows != offsets[-1]:
        raise DataError(
            f"{run.path}: transitions.parquet has {steps.num_rows} rows, rollouts.parquet counts {offsets[-1]}. "
            "Score the input again."
        )
    columns = {name: steps[name].to_numpy() for name in STEPS}
    columns["open_end"] = pc.equal(steps["tc_code"], "no_next_observation").to_numpy().astype(bool)
    return rollouts, columns, offsets


def _has_flag(column: pa.ChunkedArray, name: str) -> BoolArray:
    lists = column.combine_chunks()
    hit = np.zeros(len(lists), bool)
    flat, parent = pc.list_flatten(lists), pc.list_parent_indices(lists).to_numpy()
    hit[parent[pc.equal(flat, name).to_numpy(zero_copy_only=False).astype(bool)]] = True
    return hit
