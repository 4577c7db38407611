"""Rows, flags and texts keep the values that their file has, whatever dtypes stand side by side in it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from qualcheck.converting import convert
from qualcheck.errors import DataError, UsageError
from qualcheck.io import CanonicalWriter, open_source, source_from_arrays

SHIFTS = {"float32 and 0.4": (np.float32, 0.4), "int64 and 256": (np.int64, 256), "float64 and NaN": (float, np.nan)}


@pytest.mark.parametrize("shift", list(SHIFTS))
def test_next_rows_are_never_forced_into_the_dtype_of_the_rows(
    shift: str, keys: Any, load: Any, tmp_path: Path
) -> None:
    dtype, more = SHIFTS[shift]
    rows = keys()["observations"].astype(np.uint8)
    following = (keys()["next_observations"] + more).astype(dtype)
    source, r = load(observations=rows, next_observations=following)
    mask = keys()["masks"][..., 0] == 1
    np.testing.assert_array_equal(r.end_obs, following[mask])
    np.testing.assert_array_equal(r.start_obs, rows[mask])
    with CanonicalWriter(tmp_path / "c.parquet", source.spec, {}) as writer:
        writer.append(r)
    (back,) = open_source(tmp_path / "c.parquet", source.spec).batches()
    np.testing.assert_array_equal(back.end_obs, following[mask])
    assert back.obs.dtype == r.obs.dtype


def test_flat_next_rows_keep_their_values_too(grid: Any) -> None:
    rows, actions = np.arange(12, dtype=np.uint8).reshape(4, 3), np.zeros(4, int)
    for following in (rows + np.float32(0.4), rows.astype(int) + 256):
        (r,) = source_from_arrays(rows, actions, following, rollout=[0, 0, 1, 1], spec=grid).batches()
        np.testing.assert_array_equal(r.end_obs, following)


@pytest.mark.parametrize("value", [np.nan, -1.0])
def test_a_terminal_that_is_no_yes_ends_nothing(value: float, keys: Any, load: Any, only: Any) -> None:
    terminals = keys()["terminals"].astype(float)
    terminals[1, 1] = value
    _, r = load(terminals=terminals)
    assert not r.terminal[6]
    assert only(r) == ({"non_finite": [1]} if np.isnan(value) else {})


def test_a_lone_surrogate_is_replaced_and_stops_nothing(load: Any, tmp_path: Path) -> None:
    source, r = load(instructions=[["go \ud800"], ["b"], ["c"], ["d"]], level=["\ud800", "x", "", "y"])
    assert r.instruction == ["go ?", "b", "c", "d"]
    assert r.level == ["?", "x", "", "y"]
    with CanonicalWriter(tmp_path / "c.parquet", source.spec, {"note": "\ud800"}) as writer:
        writer.append(r)
    back = open_source(tmp_path / "c.parquet", source.spec)
    assert back.metadata["note"] == "\ud800"
    assert next(iter(back.batches())).instruction == r.instruction


@pytest.mark.parametrize("step", [2**40, np.nan, 0.5])
def test_a_source_step_that_is_no_int32_is_refused(step: float, load: Any) -> None:
    with pytest.raises(DataError, match="'qualcheck_source_step' holds"):
        load(qualcheck_source_step=np.array([0, 1, step, 2]))


@pytest.mark.parametrize("ids", [[0, None, 1, 1], [0, "a", 1, 1], [0.0, np.nan, 1, 1]])
def test_missing_ids_and_ids_of_several_kinds_are_a_usage_error(ids: list[Any], grid: Any) -> None:
    given = np.array(ids, object if None in ids or "a" in ids else float)
    with pytest.raises(UsageError, match="rollout: "):
        source_from_arrays(np.zeros((4, 3)), np.zeros(4, int), rollout=given, spec=grid)


def test_ids_of_objects_group_in_the_order_in_which_they_appear(grid: Any) -> None:
    ids = np.array(["b", "a", "b", "a"], object)
    (r,) = source_from_arrays(np.arange(12).reshape(4, 3), np.zeros(4, int), rollout=ids, spec=grid).batches()
    assert r.obs[:, 0].tolist() == [0, 6, 3, 9]


def test_an_instruction_that_is_a_number_is_a_usage_error(grid: Any) -> None:
    with pytest.raises(UsageError, match="instruction: a int"):
        source_from_arrays(np.zeros((4, 3)), np.zeros(4, int), instruction=5, spec=grid)


def test_names_of_any_bytes_are_read_and_pipes_refused(tmp_path: Path, saved: Any, keys: Any, grid: Any) -> None:
    odd = Path(os.fsdecode(os.fsencode(tmp_path) + b"/caf\xe9"))
    source = open_source(saved(keys()).rename(odd), grid)
    with CanonicalWriter(tmp_path / "c.parquet", grid, {}, [str(odd)]) as writer:
        for batch in source.batches():
            writer.append(batch)
    (r,) = open_source((tmp_path / "c.parquet").rename(odd), grid).batches()
    assert r.n_transitions == 13
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(DataError, match="a pipe"):
        open_source(tmp_path / "pipe", grid)


def test_an_empty_set_goes_to_every_layout(tmp_path: Path) -> None:
    nothing = {"observations": np.zeros((0, 4, 91), np.float32), "actions": np.zeros((0, 4, 4))}
    np.save(tmp_path / "a.npy", np.array(nothing, object), allow_pickle=True)
    convert(tmp_path / "a.npy", tmp_path / "b.parquet", to="benchmark_parquet")
    assert convert(tmp_path / "b.parquet", tmp_path / "c.parquet", "metaworld").n_rollouts == 0
