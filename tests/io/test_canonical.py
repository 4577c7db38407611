"""qualcheck's own rollout files: what is written comes back, whole or not at all."""

from __future__ import annotations

import tempfile
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from qualcheck.errors import DataError
from qualcheck.io import CanonicalWriter, open_source, read_codes
from qualcheck.spec import ActionSpec, EnvSpec
from qualcheck.types import Rollouts

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
TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\x00"), max_size=5)


@st.composite
def rollouts(draw: st.DrawFn, lengths: list[int] | None = None) -> Rollouts:
    """Any batch: empty rollouts, missing finals, broken chains, NaN rows, cuts, codes, unknown keys."""
    length = np.array(draw(st.lists(st.integers(0, 4), max_size=6)) if lengths is None else lengths, np.int64)
    n, m = len(length), int(length.sum())
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    has_final = np.array([draw(st.booleans()) for _ in range(n)], bool)
    dtype = draw(st.sampled_from([np.float32, np.float64, np.float16, np.uint8, np.int64]))
    rows = int(length.sum() + has_final.sum())
    obs = rng.integers(0, 9, (rows, 3)).astype(dtype)
    if rows and obs.dtype.kind == "f" and draw(st.booleans()):
        obs[draw(st.integers(0, rows - 1)), 1] = np.nan
    offsets = np.concatenate([[0], np.cumsum(length)]).astype(np.int64)
    inner = np.setdiff1d(np.arange(m), offsets[1:] - 1)
    broken = inner[rng.random(len(inner)) < 0.3]
    reset = rng.random(n) < 0.5 if draw(st.booleans()) else None
    some = draw(st.booleans())
    start = np.cumsum(np.concatenate([[0], length + has_final]))[:-1]
    context = rng.integers(0, 9, (n, 3)).astype(dtype)
    if reset is not None and rows:
        own = reset & (length + has_final > 0)
        context[own] = obs[start[own]]
    return Rollouts(
        obs=obs,
        action=rng.integers(0, 7, m).astype(draw(st.sampled_from([np.int64, np.int32, np.float32]))),
        offsets=offsets,
        has_final=has_final,
        source=np.full(n, 4, np.int32),
        source_rollout=rng.integers(0, 99, n).astype(np.int32),
        source_step=rng.integers(0, 99, n).astype(np.int32),
        instruction=[draw(st.none() | TEXT) for _ in range(n)],
        reward=np.where(rng.random(m) < 0.2, np.nan, rng.random(m)) if some else None,
        terminal=rng.random(m) < 0.5 if some else None,
        truncated=rng.random(m) < 0.5 if some else None,
        goal=[None if rng.random() < 0.3 else rng.random(2).astype(np.float32) for _ in range(n)] if some else None,
        is_reset=reset,
        reset_obs=context if reset is not None else None,
        break_at=broken,
        break_obs=rng.integers(0, 9, (len(broken), 3)).astype(dtype) if len(broken) else None,
        level=[draw(TEXT) for _ in range(n)] if some else None,
        task=[draw(TEXT) for _ in range(n)] if some else None,
        flags={"mask_hole": rng.random(n) < 0.3},
        defect=[draw(st.sampled_from(["", "mask_hole"])) for _ in range(n)],
        code=rng.integers(0, 2, (n, 4)).astype(np.float32) if some and n else None,
        extra_rollout={
            "name": [draw(TEXT) for _ in range(n)],
            "texts": [draw(st.lists(TEXT, max_size=2)) for _ in range(n)],
            "pair": list(rng.random((n, 2)) < 0.5),
            "number": list(rng.random(n).astype(np.float32)),
            "mixed": [draw(st.sampled_from([1, "x", [1, "y"], None, {"k": 2.5}])) for _ in range(n)],
        },
        extra_step={"speed": rng.random((m, 2)).astype(np.float32), "tag": np.array(["ab"] * m, "U2")},
    )


def assert_equal(found: Rollouts, given: Rollouts) -> None:
    """Every field equal, arrays to the bit and in dtype; flags that no rollout carries do not count."""
    for field in fields(Rollouts):
        left, right = getattr(found, field.name), getattr(given, field.name)
        if field.name == "origin":
            assert left is None or set(left) <= {"0", "1", "2", "3", "source 4"}
        elif field.name == "flags":
            for name in set(left) | set(right):
                if name in right:
                    np.testing.assert_array_equal(left.get(name, np.zeros(given.n_rollouts, bool)), right[name])
        elif isinstance(right, np.ndarray):
            assert left.dtype == right.dtype, field.name
            np.testing.assert_array_equal(left, right, err_msg=field.name)
        elif field.name == "extra_step":
            assert set(left) == set(right)
            for name, values in right.items():
                assert left[name].dtype == values.dtype
                np.testing.assert_array_equal(left[name], values)
        else:
            np.testing.assert_equal(left, right, err_msg=field.name)


def written(path: Path, *parts: Rollouts, **metadata: Any) -> Path:
    with CanonicalWriter(path, SPEC, metadata, ["0", "1", "2", "3", "source 4"]) as writer:
        for part in parts:
            writer.append(part)
    return path


def read(path: Path, most: int = 1 << 20) -> list[Rollouts]:
    return list(open_source(path, SPEC, index=4).batches(most, extras=True))


def without_source(r: Rollouts) -> Rollouts:
    return replace(r, extra_rollout={key: value for key, value in r.extra_rollout.items() if key != "source"})


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(rollouts())
def test_what_is_written_comes_back_equal(given: Rollouts) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = written(Path(folder) / "r.parquet", given)
        source = open_source(path, SPEC, index=4)
        assert source.format == "canonical"
        assert source.n_rollouts == given.n_rollouts
        assert source.n_transitions == given.n_transitions
        assert source.longest == given.length.max(initial=0)
        batches = read(path)
        if not given.n_rollouts:
            assert batches == []
            return
        (found,) = batches
        assert found.extra_rollout["source"] == ["source 4"] * given.n_rollouts
        assert_equal(without_source(found), given)


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(rollouts([3, 0, 2]), rollouts([0, 0]), rollouts([1, 4]))
def test_a_file_of_a_file_is_equal_too(one: Rollouts, two: Rollouts, three: Rollouts) -> None:
    parts = [
        replace(
            part,
            obs=part.obs.astype(np.float32),
            break_obs=None if part.break_obs is None else part.break_obs.astype(np.float32),
            action=part.action.astype(np.int64),
            is_reset=None,
            reset_obs=None,
        )
        for part in (one, two, three)
    ]
    with tempfile.TemporaryDirectory() as folder:
        first = written(Path(folder) / "a.parquet", *parts)
        second = written(Path(folder) / "b.parquet", *read(first))
        third = written(Path(folder) / "c.parquet", *read(second, most=1))
        left, right = read(first)[0], read(third)[0]
        assert_equal(left, right)
        assert left.n_rollouts == 7
        assert left.length.tolist() == [3, 0, 2, 0, 0, 1, 4]
        assert left.extra_rollout["source"] == ["source 4"] * 7


def simple(n: int, length: int, **changes: Any) -> Rollouts:
    m = n * length
    base: dict[str, Any] = {
        "obs": np.arange((m + n) * 3, dtype=np.float32).reshape(-1, 3),
        "action": np.ones(m, np.int64),
        "offsets": np.arange(n + 1, dtype=np.int64) * length,
        "has_final": np.ones(n, bool),
        "source": np.full(n, 4, np.int32),
        "source_rollout": np.arange(n, dtype=np.int32),
        "source_step": np.zeros(n, np.int32),
        "instruction": ["go"] * n,
        "defect": [""] * n,
    }
    return Rollouts(**{**base, **changes})


def test_the_columns_are_those_of_the_interface_and_chained_rows_are_stored_once(tmp_path: Path) -> None:
    table = pq.read_table(written(tmp_path / "r.parquet", simple(2, 3)))
    assert table.num_rows == 6
    assert table.schema.field("obs").type == pa.list_(pa.float32(), 3)
    assert table.schema.field("action").type == pa.int64()
    assert {"rollout", "step", "reward", "terminal", "truncated", "instruction", "task", "level", "generator"} <= set(
        table.column_names
    )
    assert {"source", "source_rollout", "source_step", "start"} <= set(table.column_names)
    assert [cell is None for cell in table["next_obs"].to_pylist()] == [True, True, False] * 2
    assert table["rollout"].to_pylist() == [0, 0, 0, 1, 1, 1]
    assert table["step"].to_pylist() == [0, 1, 2, 0, 1, 2]
    assert table.schema.metadata[b"qualcheck.env"] == b"grid"


def test_box_actions_are_vectors(tmp_path: Path) -> None:
    spec = replace(SPEC, action=ActionSpec("box", 2, -1, 1))
    given = simple(2, 3, action=np.arange(12, dtype=np.float32).reshape(6, 2))
    with CanonicalWriter(tmp_path / "r.parquet", spec, {}) as writer:
        writer.append(given)
    assert pq.read_table(tmp_path / "r.parquet").schema.field("action").type == pa.list_(pa.float32(), 2)
    (found,) = open_source(tmp_path / "r.parquet", spec).batches()
    np.testing.assert_array_equal(found.action, given.action)


def test_nothing_stands_under_the_name_before_close_or_after_an_error(tmp_path: Path) -> None:
    path = tmp_path / "r.parquet"
    writer = CanonicalWriter(path, SPEC, {})
    writer.append(simple(40, 2000))
    assert not path.exists()
    writer.abort()
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(DataError):
        written(path, simple(40, 2000, code=np.ones((40, 4), np.float32)), simple(1, 1, obs=np.zeros((2, 9))))
    assert list(tmp_path.iterdir()) == []
    written(path, simple(2, 3, code=np.ones((2, 4), np.float32)))
    assert sorted(p.name for p in tmp_path.iterdir()) == ["r.parquet", "r.parquet.codes.npy"]


def test_codes_are_stored_once_each(tmp_path: Path) -> None:
    codes = np.repeat(np.arange(8, dtype=np.float32).reshape(2, 4), 50, axis=0)
    path = written(tmp_path / "r.parquet", simple(100, 2, code=codes))
    stored = read_codes(path, SPEC)
    assert stored is not None
    assert stored.shape == (2, 4)
    np.testing.assert_array_equal(read(path)[0].code, codes)
    path.with_name("r.parquet.codes.npy").unlink()
    assert read(path)[0].code is None


def test_files_of_many_row_groups_and_rollouts_across_them_are_read_whole(tmp_path: Path) -> None:
    given = simple(900, 100)
    path = written(tmp_path / "r.parquet", *[_part(given, i) for i in range(9)])
    assert pq.ParquetFile(path).num_row_groups == 2
    table = pq.read_table(path)
    pq.write_table(table, tmp_path / "torn.parquet", row_group_size=777)
    for name in ("r.parquet", "torn.parquet"):
        batches = read(tmp_path / name, most=5000)
        assert all(batch.n_transitions <= 5000 for batch in batches)
        np.testing.assert_array_equal(np.concatenate([batch.obs for batch in batches]), given.obs)
        assert sum(batch.n_rollouts for batch in batches) == 900


def _part(r: Rollouts, i: int) -> Rollouts:
    part = simple(100, 100)
    return replace(part, obs=r.obs[i * 10_100 : (i + 1) * 10_100])


def test_inputs_with_different_keys_end_in_one_file(tmp_path: Path) -> None:
    one = simple(2, 2, extra_rollout={"name": ["a", "b"]}, extra_step={"speed": np.arange(4.0)})
    two = simple(1, 3, extra_rollout={"score": [np.float32(1.5)]})
    path = written(tmp_path / "r.parquet", one, two, one)
    (found,) = read(path)
    assert found.extra_rollout["name"] == ["a", "b", None, "a", "b"]
    assert found.extra_rollout["score"] == [None, None, 1.5, None, None]
    np.testing.assert_array_equal(found.extra_step["speed"], [0, 1, 2, 3, *[np.nan] * 3, 0, 1, 2, 3])
    assert [p.name for p in tmp_path.iterdir()] == ["r.parquet"]


def test_file_level_values_come_back(tmp_path: Path) -> None:
    path = written(tmp_path / "r.parquet", simple(1, 1), note="hi", sizes=np.arange(3), deep={"a": [1, None]})
    metadata = open_source(path, SPEC).metadata
    assert metadata["note"] == "hi"
    assert metadata["deep"] == {"a": [1, None]}
    np.testing.assert_array_equal(metadata["sizes"], np.arange(3))


def test_nothing_at_all_is_still_a_file(tmp_path: Path) -> None:
    path = written(tmp_path / "r.parquet")
    source = open_source(path, SPEC)
    assert (source.format, source.n_rollouts, source.n_transitions, list(source.batches())) == ("canonical", 0, 0, [])


def test_rows_of_another_width_are_refused(tmp_path: Path) -> None:
    path = written(tmp_path / "r.parquet", simple(1, 1))
    with pytest.raises(DataError, match=r"r\.parquet.*vectors of 5"):
        open_source(path, replace(SPEC, obs_size=5))
    with pytest.raises(DataError, match="rollouts of grid; expected other"):
        open_source(path, replace(SPEC, id="other"))
    with pytest.raises(DataError, match="rows of 3 columns"):
        CanonicalWriter(path, replace(SPEC, obs_size=5), {}).append(simple(1, 1))


def test_a_hole_or_another_order_of_rows_is_refused(tmp_path: Path) -> None:
    table = pq.read_table(written(tmp_path / "r.parquet", simple(3, 3)))
    for rows in ([0, 2], [1, 2], [3, 4, 5, 0, 1, 2], [0, 0, 1, 2]):
        pq.write_table(table.take(rows), tmp_path / "changed.parquet")
        with pytest.raises(DataError, match=r"changed\.parquet.*whole rollouts"):
            open_source(tmp_path / "changed.parquet", SPEC)


def test_a_cut_file_is_an_error(tmp_path: Path) -> None:
    whole = written(tmp_path / "r.parquet", simple(3, 3)).read_bytes()
    for size in range(4, len(whole), 97):
        (tmp_path / "cut.parquet").write_bytes(whole[:size])
        with pytest.raises(DataError, match=r"cut\.parquet"):
            open_source(tmp_path / "cut.parquet", SPEC)


def test_a_newer_schema_is_refused(tmp_path: Path) -> None:
    table = pq.read_table(written(tmp_path / "r.parquet", simple(1, 1)))
    metadata = {**table.schema.metadata, b"qualcheck.schema": b"99"}
    pq.write_table(table.replace_schema_metadata(metadata), tmp_path / "new.parquet")
    with pytest.raises(DataError, match="rollout schema 99"):
        open_source(tmp_path / "new.parquet", SPEC)


def test_one_key_of_different_kinds_in_two_inputs_keeps_both_values(tmp_path: Path) -> None:
    one = simple(2, 2, extra_rollout={"name": ["a", "b"], "size": [np.int64(3), np.int64(4)]})
    two = simple(2, 1, extra_rollout={"name": [1, [2, 3]], "size": [np.arange(2), np.arange(3)]})
    (found,) = read(written(tmp_path / "r.parquet", one, two))
    assert found.extra_rollout["name"] == ["a", "b", 1, [2, 3]]
    np.testing.assert_equal(found.extra_rollout["size"], [3, 4, np.arange(2), np.arange(3)])


def test_rows_of_different_precision_end_in_the_wider_one(tmp_path: Path) -> None:
    double = simple(2, 2, obs=np.random.default_rng(0).random((6, 3)), action=np.array([1.5, 2, 3, 4], np.float32))
    (found,) = read(written(tmp_path / "r.parquet", simple(2, 2), double))
    assert found.obs.dtype == np.float64
    np.testing.assert_array_equal(found.obs[6:], double.obs)
    np.testing.assert_array_equal(found.action[4:], double.action)


def test_steps_of_different_shapes_are_refused_with_the_key(tmp_path: Path) -> None:
    one = simple(1, 2, extra_step={"speed": np.zeros((2, 2))})
    two = simple(1, 2, extra_step={"speed": np.zeros((2, 3))})
    with pytest.raises(DataError, match="'speed' in forms that no column can share"):
        written(tmp_path / "r.parquet", one, two)
    assert list(tmp_path.iterdir()) == []
