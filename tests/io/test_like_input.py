"""Filtered files in the layout of their input, read back by a reader that knows the layout and nothing of qualcheck."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from qualcheck.envs.babyai import BabyAI
from qualcheck.errors import UsageError
from qualcheck.filters.pieces import Pieces
from qualcheck.io import open_source
from qualcheck.io.like_input import write_like_input

SPEC = BabyAI().spec


def read_plain(path: Path) -> dict[str, Any]:
    """The arrays of a benchmark file, written from the description of the layouts alone."""
    if path.read_bytes()[:4] != b"PAR1":
        loaded = np.load(path, allow_pickle=True).item()
        assert isinstance(loaded, dict)
        return loaded
    rows = pq.read_table(path).to_pylist()
    assert sorted(row["row_index"] for row in rows) == list(range(len(rows)))
    rows.sort(key=lambda row: row["row_index"])
    out: dict[str, Any] = {}
    for name in rows[0]:
        if name.endswith("_data") and not name.startswith("list_"):
            key = name[: -len("_data")]
            shapes = [ast.literal_eval(row[f"{key}_shape"]) for row in rows]
            assert {shape[0] for shape in shapes} == {len(rows)}
            if isinstance(rows[0][name], bytes):
                kind = rows[0][f"{key}_dtype"]
                full = np.zeros(shapes[0], kind)
                for i, row in enumerate(rows):
                    full[i] = np.frombuffer(row[name], kind).reshape(shapes[0][1:])
                out[key] = full
            else:
                values = [row[name] for row in rows]
                out[key] = values if isinstance(values[0][0], str) else np.array([value[0] for value in values])
        elif name.startswith("list_"):
            if not name.endswith(("_shape", "_dtype")):
                out[name.removeprefix("list_").removesuffix("_data")] = [row[name] for row in rows]
        elif name not in ("row_index", "file_name") and not name.endswith(("_shape", "_dtype")):
            out[name] = rows[0][name]
    return out


def pieces(*parts: tuple[int, int, int]) -> Pieces:
    return Pieces(*(np.array(part, np.int64) for part in zip(*parts, strict=True)))


def lengths(source: Any) -> list[int]:
    return [int(n) for batch in source.batches() for n in batch.length]


def written(source: Any, kept: Pieces, path: Path) -> dict[str, Any]:
    write_like_input(source, kept, path, {})
    return read_plain(path)


def rows_under_mask(file: dict[str, Any], rollout: int) -> int:
    masks = file["masks"] if "masks" in file else file["action_masks"]
    return int(masks[rollout].sum())


def small(path: Path, **changes: Any) -> Path:
    """Three rollouts of 5, 3 and 4 valid rows in T = 5, with next_observations; None drops a key."""
    rng = np.random.default_rng(0)
    n, steps = 3, 5
    valid = np.array([5, 3, 4])
    mask = np.arange(steps) < valid[:, None]
    obs = rng.integers(1, 6, (n, steps, 17)).astype(np.float32)
    after = np.roll(obs, -1, axis=1)
    after[np.arange(n), valid - 1] = rng.integers(1, 6, (n, 17))
    keys: dict[str, Any] = {
        "observations": obs * mask[..., None],
        "next_observations": after * mask[..., None],
        "actions": rng.integers(1, 7, (n, steps)) * mask,
        "rewards": (rng.random((n, steps, 1)) * mask[..., None]).astype(np.float32),
        "masks": mask[..., None].astype(np.float32),
        "terminals": (np.arange(steps) == valid[:, None] - 1)[..., None],
        "timeouts": np.zeros((n, steps), bool),
        "instructions": [["open the red door", "please"], ["goto the center of the room"], ["open the red door"]],
        "temperature": np.array([0.5, 0.7, 0.9]),
        "observation_dim": 17,
    }
    keys = {name: value for name, value in {**keys, **changes}.items() if value is not None}
    np.save(path, np.array(keys, dtype=object), allow_pickle=True)
    return path


FILES = [
    "golden/babyai_hard.npy",
    "imagined/imag_babyai_easy.npy",
    "mutated/babyai_mutated.npy",
    "formats/babyai_easy.parquet",
    "formats/babyai_imaginary_hard.npy",
]


@pytest.mark.parametrize("name", FILES)
def test_whole_rollouts_are_bit_equal_to_the_source(shared_data: Path, tmp_path: Path, name: str) -> None:
    source = open_source(shared_data / name, SPEC)
    length = lengths(source)
    chosen = list(range(0, len(length), 2))
    got = written(source, pieces(*((i, 0, length[i]) for i in chosen)), tmp_path / "out")
    want = read_plain(shared_data / name)
    for key, value in want.items():
        if isinstance(value, np.ndarray):
            assert got[key].dtype == value.dtype
            assert got[key].tobytes() == value[chosen].tobytes(), key
        elif isinstance(value, list) and len(value) == len(length):
            assert got[key] == [value[i] for i in chosen], key
        else:
            assert got[key] == value, key
    own = {key for key in got if key.startswith("qualcheck_")}
    assert set(got) - own == set(want)
    assert got["qualcheck_source_rollout"].tolist() == chosen
    assert list(got["qualcheck_start"]) == ["reset"] * len(chosen)
    assert "qualcheck_reset_obs" not in own


def test_the_columns_of_the_current_parquet_stay_the_same(shared_data: Path, tmp_path: Path) -> None:
    path = shared_data / "formats/babyai_easy.parquet"
    source = open_source(path, SPEC)
    write_like_input(source, pieces((1, 0, lengths(source)[1])), tmp_path / "out", {})
    before, after = pq.read_table(path), pq.read_table(tmp_path / "out")
    assert after["row_index"].to_pylist() == [0]
    assert after["observations_shape"].to_pylist() == ["(1, 39, 17)"]
    for name in before.column_names:
        assert after.schema.field(name).type == before.schema.field(name).type
        if name != "row_index" and not (name.endswith("_shape") and not name.startswith("list_")):
            old = before.filter(pa.compute.equal(before["row_index"], 1))[name]
            assert after[name].to_pylist() == old.to_pylist()


def test_a_piece_moves_to_the_front_and_says_where_it_comes_from(tmp_path: Path) -> None:
    source = open_source(small(tmp_path / "in.npy"), SPEC)
    was = read_plain(tmp_path / "in.npy")
    got = written(source, pieces((0, 0, 5), (0, 1, 3), (2, 2, 4)), tmp_path / "out.npy")
    for key in ("observations", "next_observations", "actions", "rewards"):
        assert (got[key][0] == was[key][0]).all()
        assert (got[key][1, :2] == was[key][0, 1:3]).all()
        assert (got[key][2, :2] == was[key][2, 2:4]).all()
        assert not got[key][1:, 2:].any()
    assert [rows_under_mask(got, i) for i in range(3)] == [5, 2, 2]
    assert np.argwhere(got["terminals"][:, :, 0]).tolist() == [[0, 4], [2, 1]]
    assert np.argwhere(got["timeouts"]).tolist() == [[1, 1]]
    assert got["qualcheck_source_step"].tolist() == [0, 1, 2]
    assert list(got["qualcheck_start"]) == ["reset", "cut", "cut"]
    assert (got["qualcheck_reset_obs"] == was["observations"][[0, 0, 2], 0]).all()
    assert got["temperature"].tolist() == [0.5, 0.5, 0.9]
    assert got["instructions"][1] == ["open the red door", "please"]
    assert got["observation_dim"] == 17


def test_a_piece_of_a_piece_still_names_the_first_source(tmp_path: Path) -> None:
    source = open_source(small(tmp_path / "in.npy"), SPEC)
    write_like_input(source, pieces((2, 1, 4)), tmp_path / "once.npy", {})
    again = open_source(tmp_path / "once.npy", SPEC)
    got = written(again, pieces((0, 1, 3)), tmp_path / "twice.npy")
    direct = written(source, pieces((2, 2, 4)), tmp_path / "direct.npy")
    assert set(got) == set(direct)
    for key in got:
        assert np.array_equal(got[key], direct[key]), key


def test_nan_padding_is_continued(tmp_path: Path) -> None:
    small(tmp_path / "in.npy")
    obs = read_plain(tmp_path / "in.npy")["observations"]
    obs[1, 3:] = obs[2, 4:] = np.nan
    source = open_source(small(tmp_path / "in.npy", observations=obs), SPEC)
    got = written(source, pieces((1, 0, 2)), tmp_path / "out.npy")
    assert np.isnan(got["observations"][0, 2:]).all()
    assert not np.isnan(got["observations"][0, :2]).any()


def test_a_file_without_mask_gets_one_when_a_piece_is_shorter(tmp_path: Path) -> None:
    source = open_source(small(tmp_path / "in.npy", masks=None), SPEC)
    got = written(source, pieces((0, 0, 5), (1, 0, 2)), tmp_path / "out.npy")
    assert [rows_under_mask(got, i) for i in range(2)] == [5, 2]


def test_pieces_of_a_filler_file_end_with_a_final_row_and_a_filler(shared_data: Path, tmp_path: Path) -> None:
    path = shared_data / "imagined/imag_babyai_easy.npy"
    source = open_source(path, SPEC)
    assert source.last_action == "filler"
    length = lengths(source)
    i = next(i for i, n in enumerate(length) if n >= 6)
    got = written(source, pieces((i, 0, 2), (i, 3, 5), (i, 4, length[i])), tmp_path / "out.npy")
    was = read_plain(path)
    assert (got["observations"][0, :3] == was["observations"][i, :3]).all()
    assert (got["observations"][1, :3] == was["observations"][i, 3:6]).all()
    assert not got["observations"][:2, 3:].any()
    assert (got["actions"][1, :2] == was["actions"][i, 3:5]).all()
    assert got["actions"][:2, 2:].any() == np.False_
    assert got["rewards"][:2, 2:].any() == np.False_
    assert [rows_under_mask(got, k) for k in range(3)] == [3, 3, length[i] - 4 + 1]
    assert got["qualcheck_last_action"] == "filler"
    assert lengths(open_source(tmp_path / "out.npy", SPEC)) == [2, 2, length[i] - 4]


def test_a_file_of_executed_last_actions_becomes_filler_only_if_every_piece_ends_early(tmp_path: Path) -> None:
    source = open_source(small(tmp_path / "in.npy", next_observations=None), SPEC)
    assert source.last_action == "executed"
    got = written(source, pieces((0, 0, 5)), tmp_path / "whole.npy")
    assert got["qualcheck_last_action"] == "executed"
    got = written(source, pieces((0, 0, 3), (1, 1, 2)), tmp_path / "early.npy")
    assert got["qualcheck_last_action"] == "filler"
    assert [rows_under_mask(got, i) for i in range(2)] == [4, 2]
    assert got["actions"][0, 3] == 0
    assert lengths(open_source(tmp_path / "early.npy", SPEC)) == [3, 1]
    with pytest.raises(UsageError, match=r"1 of 2 kept pieces.*canonical"):
        write_like_input(source, pieces((0, 0, 3), (1, 0, 3)), tmp_path / "mixed.npy", {})


def test_a_piece_out_of_a_mask_with_a_hole_is_refused(tmp_path: Path) -> None:
    small(tmp_path / "in.npy")
    masks = read_plain(tmp_path / "in.npy")["masks"]
    masks[0, 2] = 0
    source = open_source(small(tmp_path / "in.npy", masks=masks), SPEC)
    with pytest.raises(UsageError, match=r"rollout 0 .*hole"):
        write_like_input(source, pieces((0, 0, 2)), tmp_path / "out.npy", {})


def test_pieces_of_the_current_parquet_read_back(shared_data: Path, tmp_path: Path) -> None:
    path = shared_data / "formats/babyai_easy.parquet"
    source = open_source(path, SPEC)
    length = lengths(source)
    got = written(source, pieces((0, 1, 3), (1, 0, length[1]), (2, 0, 1)), tmp_path / "out.parquet")
    was = read_plain(path)
    for key in ("observations", "next_observations", "actions", "rewards"):
        assert got[key].dtype == was[key].dtype
        assert (got[key][0, :2] == was[key][0, 1:3]).all()
        assert not got[key][0, 2:].any()
        assert (got[key][1] == was[key][1]).all()
    assert [rows_under_mask(got, i) for i in range(3)] == [2, length[1], 1]
    assert (got["qualcheck_reset_obs"] == was["observations"][:, 0]).all()
    assert got["instructions"] == was["instructions"]
    again = next(iter(open_source(tmp_path / "out.parquet", SPEC).batches()))
    assert again.length.tolist() == [2, length[1], 1]
    assert again.source_step.tolist() == [1, 0, 0]
    assert again.is_reset is not None
    assert again.is_reset.tolist() == [False, True, True]
    assert (again.context_obs == was["observations"][:, 0]).all()


@pytest.mark.parametrize("name", ["formats/babyai_easy.parquet", "formats/babyai_imaginary_hard.npy"])
def test_nothing_kept_is_a_file_of_no_rollouts(shared_data: Path, tmp_path: Path, name: str) -> None:
    source = open_source(shared_data / name, SPEC)
    none = np.zeros(0, np.int64)
    write_like_input(source, Pieces(none, none, none), tmp_path / "out", {})
    if name.endswith("parquet"):
        assert pq.read_table(tmp_path / "out").num_rows == 0
    else:
        assert read_plain(tmp_path / "out")["observations"].shape == (0, 39, 17)


def test_the_pickle_names_the_modules_that_numpy_1_knows(shared_data: Path, tmp_path: Path) -> None:
    source = open_source(shared_data / "formats/babyai_imaginary_hard.npy", SPEC)
    write_like_input(source, pieces((0, 0, 1)), tmp_path / "out.npy", {})
    assert b"numpy._core" not in (tmp_path / "out.npy").read_bytes()
