"""One small file of each layout of the benchmark: the rows of the recordings it was cut from, in their order."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pyarrow.parquet as pq
import pytest

from qualcheck.io import looks_standardised, open_source, source_from_arrays
from qualcheck.io.layouts import specs
from qualcheck.types import Rollouts

CUT_FROM = {
    "babyai_easy.parquet": ("babyai", "babyai_easy"),
    "babyai_imaginary_hard.npy": ("babyai", "babyai_hard"),
    "ball_real.hdf5": ("clevr", "clevr_real"),
    "ball_real.npy": ("clevr", "clevr_real"),
    "libero_real.npy": ("libero", "libero_real"),
    "metaworld_real.h5": ("metaworld", "metaworld_real"),
    "metaworld_imaginary_easy.h5": ("metaworld", "metaworld_easy"),
    "mujoco_hard_qwen.parquet": ("halfcheetah", "mujoco_hard"),
}


def first_rows(path: Path) -> Any:
    """Row 0 of each rollout in the order that the file gives them, read without qualcheck."""
    if path.suffix == ".parquet":
        rows = sorted(pq.read_table(path).to_pylist(), key=lambda row: row["row_index"])
        kind = rows[0]["observations_dtype"]
        size = int(rows[0]["observations_shape"].strip("()").split(",")[2])
        return [np.frombuffer(row["observations_data"], kind)[:size] for row in rows]
    if path.name == "ball_real.npy":
        path = path.with_suffix(".hdf5")
    if path.suffix == ".npy":
        return np.load(path, allow_pickle=True).item()["observations"][:, 0]
    with h5py.File(path) as file:
        return file["observations"][:, 0]


def whole(path: Path, env: str, **options: Any) -> Rollouts:
    (r,) = open_source(path, specs(env), **options).batches(1 << 22, extras=True)
    return r


@pytest.mark.parametrize("name", list(CUT_FROM))
def test_each_layout_gives_the_rows_it_was_cut_from_in_its_order(name: str, shared_data: Path) -> None:
    env, golden = CUT_FROM[name]
    r = whole(shared_data / "formats" / name, env)
    full = whole(shared_data / "golden" / f"{golden}.npy", env)
    starts = full.obs[full.row_offsets[:-1]]
    for i, row in enumerate(first_rows(shared_data / "formats" / name)):
        row = row[: full.obs.shape[1]]
        np.testing.assert_array_equal(r.obs[r.row_offsets[i]], row)
        same = [
            j
            for j in np.flatnonzero((starts == row.astype(starts.dtype)).all(axis=1))
            if full.length[j] >= r.length[i]
            and (r.action[r.offsets[i] : r.offsets[i + 1]]
                 == full.action[full.offsets[j] : full.offsets[j] + r.length[i]]).all()
        ]  # fmt: skip
        assert same
        given = full.start_obs[full.offsets[same[0]] : full.offsets[same[0]] + r.length[i]]
        np.testing.assert_array_equal(r.start_obs[r.offsets[i] : r.offsets[i + 1]], given)
        assert r.instruction[i] in (full.instruction[same[0]], None)


@pytest.mark.parametrize("name", ["ball_real.hdf5", "ball_real.npy"])
def test_the_pair_is_found_by_its_stem_from_either_member(name: str, shared_data: Path) -> None:
    folder = shared_data / "formats"
    source = open_source(folder / name, specs("clevr"))
    assert {path.name for path in source.files} == {"ball_real.hdf5", "ball_real.npy"}
    assert any(line.startswith("instructions hold 3 rollouts, observations 4") for line in source.findings)
    (r,) = source.batches()
    told = np.load(folder / "ball_real.npy", allow_pickle=True).item()
    assert r.instruction == [*told["instructions"][:, 0], None]
    np.testing.assert_array_equal(r.goal[:3], told["goals"])
    assert r.goal[3] is None
    assert r.flags["count_mismatch"].tolist() == [False, False, False, True]
    assert r.code.shape == (4, 768)
    assert r.defect == [""] * 4


def test_a_lone_member_of_a_pair_is_read_or_refused(shared_data: Path, tmp_path: Path) -> None:
    (tmp_path / "ball.h5").write_bytes((shared_data / "formats" / "ball_real.hdf5").read_bytes())
    r = whole(tmp_path / "ball.h5", "clevr")
    assert r.instruction == [None] * 4
    assert r.goal is None
    (tmp_path / "ball.npy").write_bytes((shared_data / "formats" / "ball_real.npy").read_bytes())
    assert whole(tmp_path / "ball.h5", "clevr").goal is not None
    (tmp_path / "ball.npy").write_bytes(b"hello")
    with pytest.raises(Exception, match=r"ball\.npy: this is no layout that qualcheck knows"):
        whole(tmp_path / "ball.h5", "clevr")


@pytest.mark.parametrize(
    ("name", "task"), [("metaworld_imaginary_easy", "reach-wall-v2-goal-observable"), ("metaworld_real", None)]
)
def test_a_task_is_named_by_its_code_or_not_at_all(name: str, task: str | None, shared_data: Path) -> None:
    codes = shared_data / "real" / "imaginebench_meta_instructions_encoding.npy"
    source = open_source(shared_data / "formats" / f"{name}.h5", specs("metaworld"), encodings=codes)
    (r,) = source.batches()
    assert r.instruction == [task] * 3
    assert r.flags["no_reference_code"].tolist() == [task is None] * 3
    assert ("3 rollouts: no reference code within 0.05" in source.findings) == (task is None)


def test_the_generator_is_the_one_that_the_file_names(shared_data: Path) -> None:
    assert whole(shared_data / "formats" / "mujoco_hard_qwen.parquet", "halfcheetah").generator == ["qwen3"] * 3
    assert whole(shared_data / "formats" / "babyai_easy.parquet", "babyai").generator is None


def test_expert_episodes_of_17_columns_are_a_layout_of_halfcheetah(shared_data: Path) -> None:
    path = shared_data / "real" / "cs285_expert_HalfCheetah-v4.pkl"
    source = open_source(path, specs("halfcheetah"))
    assert (source.format, source.spec.obs_size, source.n_rollouts, source.n_transitions) == ("records", 17, 2, 2000)
    (r,) = source.batches()
    assert r.obs.dtype == np.float64
    assert not len(r.break_at)
    assert np.flatnonzero(r.terminal).tolist() == [999, 1999]
    assert not looks_standardised(r.obs)


def test_shuffled_standardised_branches_come_back_in_their_units(shared_data: Path, tmp_path: Path) -> None:
    (r,) = open_source(shared_data / "real" / "cs285_expert_HalfCheetah-v4.pkl", specs("halfcheetah")).batches()
    mean, std = r.obs.mean(axis=0), r.obs.std(axis=0)
    order = np.random.default_rng(3).permutation(r.n_transitions)
    # a branch of 5 steps keeps its order in time, whatever lies between them
    branch = np.arange(r.n_transitions)[order] // 5
    order = order[np.lexsort((order, branch))][np.argsort(np.argsort(branch, kind="stable"), kind="stable")]
    obs, following = (r.start_obs - mean) / std, (r.end_obs - mean) / std
    assert looks_standardised(obs)
    ids = order // 5
    source = source_from_arrays(obs[order], r.action[order], following[order], rollout=ids, spec=specs("halfcheetah"))
    assert (source.n_rollouts, source.longest) == (400, 5)
    np.savez(tmp_path / "a.npz", obs=obs[order], actions=r.action[order], next_obs=following[order], rollout=ids)
    opened = open_source(tmp_path / "a.npz", specs("halfcheetah"), obs_mean=mean, obs_std=std)
    (back,) = opened.batches()
    (plain,) = source.batches()
    assert not plain.flags["chain_break"].any()
    np.testing.assert_array_equal(back.action, plain.action)
    np.testing.assert_allclose(back.obs, plain.obs * std + mean, atol=1e-12)
    _, first = np.unique(ids, return_index=True)
    steps = np.concatenate([np.arange(5) + 5 * one for one in ids[np.sort(first)]])
    np.testing.assert_allclose(back.start_obs, r.start_obs[steps], atol=1e-12)


@pytest.mark.parametrize("folder", ["golden", "imagined", "mutated"])
def test_no_recording_looks_standardised(folder: str, shared_data: Path) -> None:
    for path in sorted((shared_data / folder).glob("*.npy")):
        kind = path.stem.removeprefix("imag_").split("_")[0]
        env = {"mujoco": "halfcheetah"}.get(kind, kind)
        rows = np.concatenate([part.obs for part in open_source(path, specs(env)).batches()])
        assert not looks_standardised(rows), path.name
        finite = rows[np.isfinite(rows).all(axis=1) & (np.abs(rows) < 1e6).all(axis=1)]
        sample = finite[np.linspace(0, len(finite) - 1, min(len(finite), 5000)).astype(int)].astype(np.float64)
        std = sample.std(axis=0)
        assert looks_standardised((sample - sample.mean(axis=0)) / np.where(std > 0, std, 1)), path.name
