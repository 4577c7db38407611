"""Rows back in physical units, and codes back to their names."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from qualcheck.errors import DataError, UsageError
from qualcheck.io import looks_standardised, open_source, read_statistics

MEAN, STD = np.array([1.0, -2.0, 0.5]), np.array([0.1, 3.0, 1.0])


def test_standardised_rows_come_back_in_their_units(saved: Any, keys: Any, grid: Any, load: Any) -> None:
    _, plain = load(qualcheck_start=["reset", "cut", "cut", "reset"], qualcheck_reset_obs=np.ones((4, 3), np.float32))
    base = keys(qualcheck_start=["reset", "cut", "cut", "reset"], qualcheck_reset_obs=(np.ones((4, 3)) - MEAN) / STD)
    following = base["next_observations"].astype(np.float64)
    following[0, 1] = 5
    base["observations"] = (base["observations"] - MEAN) / STD
    base["next_observations"] = (following - MEAN) / STD
    source = open_source(saved(base), grid, obs_mean=MEAN, obs_std=STD)
    assert source.format == "npy, standardised"
    assert any("multiplied by the given deviations" in line for line in source.findings)
    (r,) = source.batches()
    assert r.obs.dtype == np.float64
    np.testing.assert_allclose(r.obs, plain.obs, atol=1e-12)
    np.testing.assert_allclose(r.break_obs, [[5, 5, 5]], atol=1e-12)
    np.testing.assert_allclose(r.reset_obs, np.ones((4, 3)), atol=1e-12)


@pytest.mark.parametrize(
    ("mean", "std", "message"),
    [
        (MEAN[:2], STD, "--obs-mean: 2 numbers"),
        (MEAN, np.zeros(3), "--obs-std: column 0 has 0.0"),
        (MEAN * np.nan, STD, "3 of them not finite"),
    ],
)
def test_statistics_that_do_not_fit_are_a_usage_error(
    saved: Any, keys: Any, grid: Any, mean: Any, std: Any, message: str
) -> None:
    with pytest.raises(UsageError) as caught:
        open_source(saved(keys()), grid, obs_mean=mean, obs_std=std)
    assert message in str(caught.value)


def test_statistics_are_read_from_npy_and_from_text(tmp_path: Path) -> None:
    np.save(tmp_path / "a", MEAN[None])
    (tmp_path / "a.txt").write_text("1\n -2.0\n\n5e-1\n")
    for name in ("a.npy", "a.txt"):
        np.testing.assert_array_equal(read_statistics(tmp_path / name), MEAN)
    (tmp_path / "b.txt").write_text("1, 2\n")
    np.save(tmp_path / "c", np.array([{"x": 1}]), allow_pickle=True)
    for name, message in (("b.txt", "not one number a line"), ("c.npy", "holds no numbers"), ("d", "cannot be read")):
        with pytest.raises(DataError, match=message):
            read_statistics(tmp_path / name)


def test_only_rows_of_mean_0_and_deviation_1_look_standardised() -> None:
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(500, 6)) * [1, 2, 0.1, 5, 9, 1] + [0, 3, 0, 0, 1, 0]
    assert not looks_standardised(rows)
    standard = (rows - rows.mean(0)) / rows.std(0)
    assert looks_standardised(standard)
    assert looks_standardised(standard[:300].astype(np.float32))
    assert looks_standardised(np.concatenate([standard, np.full((500, 2), 7.0)], axis=1))  # columns that stand still
    assert not looks_standardised(standard[:10])
    assert not looks_standardised(np.full((500, 6), np.nan))


# -- codes ---------------------------------------------------------------------------------------------------------

CODES = {"pick": np.eye(4, dtype=np.float32)[None, :2], "go left": np.eye(4, dtype=np.float32)[2]}


@pytest.fixture
def encodings(tmp_path: Path) -> Path:
    np.save(tmp_path / "codes", np.array(CODES, object), allow_pickle=True)
    return tmp_path / "codes.npy"


def coded(keys: Any, codes: Any, **changes: Any) -> dict[str, Any]:
    base = keys(**changes)
    wide = np.repeat(np.asarray(codes, np.float32)[:, None], 5, axis=1)
    return {**base, "observations": np.concatenate([base["observations"], wide], axis=2)}


def test_a_code_gets_the_name_of_its_nearest_reference_code(saved: Any, keys: Any, grid: Any, encodings: Path) -> None:
    near = np.eye(4)[2] + [0, 0.04, 0, 0]
    far = np.eye(4)[2] + [0, 0.04, 0.04, 0]
    path = saved(coded(keys, [np.eye(4)[1], near, far, np.full(4, np.nan)], instructions=None))
    source = open_source(path, grid, encodings=encodings)
    parts = list(source.batches(1))
    assert [text for r in parts for text in r.instruction] == ["pick", "go left", None, None]
    assert [text for r in parts for text in r.task] == ["pick", "go left", "", ""]
    assert [bool(flag) for r in parts for flag in r.flags["no_reference_code"]] == [False, False, True, True]
    assert source.findings[-2:] == [
        "2 of 4 instruction codes named by codes.npy",
        "2 rollouts: no reference code within 0.05",
    ]


def test_a_text_of_the_file_is_never_replaced(saved: Any, keys: Any, grid: Any, encodings: Path) -> None:
    path = saved(coded(keys, np.eye(4), instructions=["a", "b"]))
    (r,) = open_source(path, grid, encodings=encodings).batches()
    assert r.instruction == ["a", "b", "go left", None]


def test_files_of_codes_that_are_none_are_refused(tmp_path: Path, saved: Any, keys: Any, grid: Any) -> None:
    path = saved(keys())
    wrong = {"a": np.zeros(3), "b": np.array({"x": "y"}, object), "c": np.array({"x": np.zeros(5)}, object)}
    for name, value in wrong.items():
        np.save(tmp_path / name, value, allow_pickle=True)
    (tmp_path / "d.npy").write_text("hello")
    for name, message in (
        ("a", "no such dict"),
        ("b", "entry 'x'"),
        ("c", "codes of 5 numbers; grid has 4"),
        ("d", "no such"),
    ):
        with pytest.raises(DataError, match=message):
            open_source(path, grid, encodings=tmp_path / f"{name}.npy")
    with pytest.raises(DataError, match="no such file"):
        open_source(path, grid, encodings=tmp_path / "missing.npy")


def test_a_code_that_changes_inside_a_rollout_is_flagged(saved: Any, keys: Any, grid: Any, only: Any) -> None:
    content = coded(keys, np.eye(4))
    content["observations"][0, 2, 4] = 7
    content["observations"][1, 4, 4] = 7  # padding
    content["observations"][2, :, 5] = np.nan
    (r,) = open_source(saved(content), grid).batches()
    assert only(r) == {"code_varies": [0]}
