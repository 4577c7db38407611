"""A canonical file whose marks were changed is an error with its name, or is read as before."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from qualcheck.errors import DataError
from qualcheck.io import CanonicalWriter, open_source


@pytest.fixture
def written(tmp_path: Path, load: Any, grid: Any) -> Path:
    _, r = load(speed=np.ones((4, 5, 2)), score=np.arange(4.0), note=[{"a": 1}, None, 2, "x"])
    with CanonicalWriter(tmp_path / "r.parquet", grid, {"made": np.arange(3)}) as writer:
        writer.append(r)
    return tmp_path / "r.parquet"


WRONG = (b"", b"\xff", b"[", b"object", b"O8", b"<U999999999", b"(2,)f4", b"[9, 9]", b"[-1]", b'"x"', b"json", b"array")


def read(path: Path, grid: Any) -> str:
    """Read all of a file; what the error says, if it is one."""
    try:
        assert sum(batch.n_rollouts for batch in open_source(path, grid).batches(extras=True)) == 4
    except DataError as error:
        return str(error)
    return ""


@pytest.mark.parametrize("wrong", WRONG)
def test_a_changed_mark_of_a_column_is_no_traceback(written: Path, grid: Any, wrong: bytes) -> None:
    table = pq.read_table(written)
    marked = [(f.name, key) for f in table.schema for key in f.metadata or {} if key.startswith(b"qualcheck.")]
    assert len({key for _, key in marked}) >= 4
    errors = 0
    for name, key in marked:
        place = table.schema.get_field_index(name)
        field = table.schema.field(place)
        changed = table.schema.set(place, field.with_metadata({**field.metadata, key: wrong}))
        pq.write_table(table.cast(changed), written)
        message = read(written, grid)
        errors += bool(message)
        assert not message or ("r.parquet: " in message and "\n" not in message)
    assert errors


@pytest.mark.parametrize("key", ["metadata", "schema", "env", "empty", "codes", "rollouts"])
def test_a_changed_mark_of_the_file_is_no_traceback(written: Path, grid: Any, key: str) -> None:
    table = pq.read_table(written)
    for wrong in (*WRONG, b'{"a": {"qualcheck.array": [1], "dtype": "O", "shape": [1]}}', b"../r.parquet"):
        marks = {**table.schema.metadata, f"qualcheck.{key}".encode(): wrong}
        pq.write_table(table.replace_schema_metadata(marks), written)
        message = read(written, grid)
        assert not message or ("r.parquet: " in message and "\n" not in message)
