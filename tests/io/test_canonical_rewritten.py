"""qualcheck's own files after other tools rewrote them: accepted where they say the same, else refused by column."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from qualcheck.errors import DataError
from qualcheck.io import CanonicalWriter, open_source


@pytest.fixture
def table(load: Any, tmp_path: Path) -> pa.Table:
    source, r = load()
    with CanonicalWriter(tmp_path / "c.parquet", source.spec, {}) as writer:
        writer.append(r)
    return pq.read_table(tmp_path / "c.parquet")


def put(table: pa.Table, name: str, column: Any) -> pa.Table:
    return table.set_column(table.schema.get_field_index(name), name, column)


def filled(name: str, value: Any) -> Callable[[pa.Table], pa.Table]:
    return lambda t: put(t, name, pa.array([value] * len(t)))


SAME: dict[str, Callable[[pa.Table], pa.Table]] = {
    "lists": lambda t: put(t, "obs", t["obs"].cast(pa.list_(pa.float32()))),
    "lists with gaps": lambda t: put(t, "next_obs", t["next_obs"].cast(pa.list_(pa.float32()))),
    "whole floats": lambda t: put(t, "rollout", t["rollout"].cast(pa.float64())),
    "float steps": lambda t: put(t, "step", t["step"].cast(pa.float64())),
    "categories": lambda t: put(t, "rollout", t["rollout"].dictionary_encode()),
    "plain text": lambda t: put(t, "instruction", t["instruction"].cast(pa.string())),
    "int8 terminal": lambda t: put(t, "terminal", t["terminal"].cast(pa.int8())),
    "columns of nothing": lambda t: put(put(t, "task", pa.nulls(len(t))), "code", pa.nulls(len(t))),
    "another order": lambda t: t.select(t.column_names[::-1]),
    "no marks": lambda t: t.replace_schema_metadata({}),
    "fewer columns": lambda t: t.drop_columns(["task", "level", "flags", "defect", "source_rollout", "code"]),
    "pandas": lambda t: pa.Table.from_pandas(t.to_pandas()),
}


@pytest.mark.parametrize("name", list(SAME))
def test_a_rewritten_file_that_says_the_same_is_read(name: str, table: pa.Table, tmp_path: Path, load: Any) -> None:
    source, given = load()
    pq.write_table(SAME[name](table), tmp_path / "d.parquet")
    (r,) = open_source(tmp_path / "d.parquet", source.spec).batches()
    for field in ("obs", "action", "offsets", "has_final", "reward", "terminal"):
        np.testing.assert_array_equal(getattr(r, field), getattr(given, field), err_msg=field)
    assert r.instruction == given.instruction
    assert r.terminal is not None
    assert r.terminal.dtype == bool


OTHER: dict[str, Callable[[pa.Table], pa.Table]] = {
    "instruction": filled("instruction", 1),
    "level": filled("level", 1),
    "defect": filled("defect", 1),
    "source": filled("source", 1.5),
    "generator": filled("generator", b"x"),
    "rollout": lambda t: put(t, "rollout", t["rollout"].cast(pa.string())),
    "terminal": filled("terminal", "x"),
    "step": lambda t: t.append_column("step", t["step"]),
    "source_rollout": filled("source_rollout", 2**40),
    "source_step": filled("source_step", 0.5),
    "obs": lambda t: put(t, "obs", pa.array([[1.0] * (2 + i % 2) for i in range(len(t))])),
}


@pytest.mark.parametrize("name", list(OTHER))
def test_a_column_of_another_kind_is_refused_by_its_name(name: str, table: pa.Table, tmp_path: Path, grid: Any) -> None:
    pq.write_table(OTHER[name](table), tmp_path / "d.parquet")
    with pytest.raises(DataError, match=f"'{name}'") as caught:
        list(open_source(tmp_path / "d.parquet", grid).batches())
    assert "--env" not in str(caught.value)
