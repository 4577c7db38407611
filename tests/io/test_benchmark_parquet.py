"""The benchmark's Parquet layout, written here from its description alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from qualcheck.errors import DataError
from qualcheck.io import open_source
from qualcheck.spec import ActionSpec, EnvSpec

SPEC = EnvSpec(
    id="grid",
    version="1",
    blocks=(),
    obs_size=3,
    code_size=4,
    action=ActionSpec("discrete", 7),
    step_seconds=None,
    horizon=20,
    judging_grade="exact",
    restores="exact",
    codes=("",),
    columns=("a", "b", "c"),
)
N, T = 4, 5
OBS = np.arange(N * T * 3, dtype=np.float32).reshape(N, T, 3)
MASKS = (np.arange(T) < np.array([5, 3, 1, 4])[:, None]).astype(np.float32)


def array_columns(key: str, array: np.ndarray[Any, Any], order: list[int]) -> dict[str, Any]:
    return {
        f"{key}_shape": [str(array.shape)] * len(order),
        f"{key}_dtype": [array.dtype.name] * len(order),
        f"{key}_data": [array[i].tobytes() for i in order],
    }


def columns(order: list[int]) -> dict[str, Any]:
    actions = np.tile(np.arange(T), (N, 1))
    return {
        "file_name": ["grid_easy.npy"] * N,
        "row_index": order,
        **array_columns("observations", OBS, order),
        **array_columns("actions", actions, order),
        **array_columns("rewards", np.ones((N, T, 1), np.float32), order),
        **array_columns("masks", MASKS, order),
        "instructions_shape": ["(4, 2)"] * N,
        "instructions_dtype": ["<U9"] * N,
        "instructions_data": [[f"go {i}", "other"] for i in order],
        "score_shape": ["(4,)"] * N,
        "score_dtype": ["float64"] * N,
        "score_data": [[i / 2] for i in order],
        "list_words_shape": ["(1,)"] * N,
        "list_words_dtype": ["<U9"] * N,
        "list_words_data": [["w"] * i for i in order],
        "list_task_str": [f"task {i}" for i in order],
        "observation_dim": [3] * N,
    }


def saved(folder: Path, drop: str | None = None, **changes: Any) -> Path:
    content = {key: value for key, value in {**columns([0, 1, 2, 3]), **changes}.items() if key != drop}
    pq.write_table(pa.table(content), folder / "some_file", row_group_size=3)
    return folder / "some_file"


@pytest.mark.parametrize("order", [[0, 1, 2, 3], [2, 0, 3, 1], [3, 2, 1, 0]])
@pytest.mark.parametrize("group", [1, 2, 4])
def test_rows_in_any_order_and_grouping_give_the_same_rollouts(tmp_path: Path, order: list[int], group: int) -> None:
    path = tmp_path / "some_file"
    pq.write_table(pa.table(columns(order)), path, row_group_size=group)
    source = open_source(path, SPEC)
    assert source.format == "benchmark_parquet"
    assert source.last_action == "executed"
    assert source.metadata == {"file_name": "grid_easy.npy", "observation_dim": 3}
    (r,) = source.batches(extras=True)
    np.testing.assert_array_equal(r.obs, OBS[MASKS == 1])
    np.testing.assert_array_equal(r.action, np.tile(np.arange(T), (N, 1))[MASKS == 1])
    assert r.instruction == ["go 0", "go 1", "go 2", "go 3"]
    assert r.extra_rollout["task_str"] == ["task 0", "task 1", "task 2", "task 3"]
    assert r.extra_rollout["words"] == [[], ["w"], ["w"] * 2, ["w"] * 3]
    assert r.extra_rollout["score"] == [0, 0.5, 1, 1.5]
    np.testing.assert_array_equal(source.keys()["observations"], OBS)


def test_a_filtered_file_whose_rows_were_not_renumbered_keeps_their_order(tmp_path: Path) -> None:
    source = open_source(saved(tmp_path, row_index=[7, 3, 40, 12]), SPEC)
    (r,) = source.batches()
    assert r.instruction == ["go 1", "go 0", "go 3", "go 2"]
    assert r.source_rollout.tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"row_index": [0, 1, 1, 3]}, "row_index holds a number twice"),
        ({"row_index": [0, 1, None, 3]}, "1 empty cells"),
        ({"row_index": ["0", "1", "2", "3"]}, "row_index is string"),
        ({"observations_shape": ["(4, 5, 2)"] * N}, "observations_data has a row of 60 bytes"),
        ({"observations_shape": ["[4]"] * N}, "observations_shape is not a shape"),
        ({"observations_dtype": ["object"] * N}, "observations_dtype is not a plain number type"),
        ({"observations_data": [OBS[0].tobytes(), b"", None, b""]}, "observations_data is empty on 1 rows"),
        ({"observations_data": [OBS[0].tobytes()] * 3 + [b"\0" * 8]}, "observations_data has a row of 8 bytes"),
        ({"observations_data": [1, 2, 3, 4]}, "observations_data is int64"),
        ({"score_data": [[1.0], [], [2.0, 3.0], [1.0]]}, "score_data holds lists of other lengths"),
        ({"drop": "observations_data"}, "no 'observations'"),
    ],
)
def test_columns_that_do_not_fit_are_an_error_that_names_them(
    tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(DataError, match="some_file: ") as caught:
        list(open_source(saved(tmp_path, **changes), SPEC).batches())
    assert message in str(caught.value)
