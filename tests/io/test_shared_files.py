"""The readers on the files that others recorded."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from qualcheck.envs.babyai import BabyAI
from qualcheck.io import open_source
from qualcheck.spec import ActionSpec

BABYAI = BabyAI().spec


@pytest.mark.parametrize("level", ["real", "rephrase", "easy", "hard"])
def test_golden_rollouts_are_the_rows_under_the_mask(shared_data: Path, level: str) -> None:
    path = shared_data / "golden" / f"babyai_{level}.npy"
    raw = np.load(path, allow_pickle=True).item()
    source = open_source(path, BABYAI)
    mask = raw["masks"][:, :, 0] == 1
    assert source.n_transitions == mask.sum()
    batches = list(source.batches(5000))
    np.testing.assert_array_equal(np.concatenate([b.start_obs for b in batches]), raw["observations"][mask])
    np.testing.assert_array_equal(np.concatenate([b.end_obs for b in batches]), raw["next_observations"][mask])
    np.testing.assert_array_equal(np.concatenate([b.action for b in batches]), raw["actions"][mask])
    np.testing.assert_array_equal(np.concatenate([b.reward for b in batches]), raw["rewards"][mask][:, 0])
    assert [text for b in batches for text in b.instruction] == [texts[0] for texts in raw["instructions"]]
    assert not any(flag.any() for b in batches for flag in b.flags.values())


def test_golden_counts_are_those_of_the_data_page(shared_data: Path) -> None:
    paths = [shared_data / "golden" / f"babyai_{level}.npy" for level in ("real", "rephrase", "easy", "hard")]
    sources = [open_source(path, BABYAI) for path in paths]
    assert [source.n_rollouts for source in sources] == [1200, 400, 400, 400]
    assert sum(source.n_transitions for source in sources) == 54_480


@pytest.mark.parametrize("level", ["rephrase", "easy"])
def test_imagined_files_end_in_a_filler_row(shared_data: Path, level: str) -> None:
    path = shared_data / "imagined" / f"imag_babyai_{level}.npy"
    raw = np.load(path, allow_pickle=True).item()
    source = open_source(path, BABYAI)
    rows = raw["masks"][:, :, 0].sum(axis=1).astype(int)
    assert source.last_action == "filler"
    assert source.n_transitions == (rows - 1).sum()
    (r,) = source.batches(1 << 20)
    np.testing.assert_array_equal(r.obs, raw["observations"][raw["masks"][:, :, 0] == 1])


def test_mutated_files_say_where_their_readings_part(shared_data: Path) -> None:
    path = shared_data / "mutated" / "babyai_mutated.npy"
    raw = np.load(path, allow_pickle=True).item()
    (r,) = open_source(path, BABYAI).batches(1 << 20)
    both = (raw["masks"][:, :-1, 0] == 1) & (raw["masks"][:, 1:, 0] == 1)
    parts = (raw["next_observations"][:, :-1] != raw["observations"][:, 1:]).any(axis=2) & both
    assert len(r.break_at) == parts.sum()
    np.testing.assert_array_equal(r.flags["chain_break"], parts.any(axis=1))


def test_the_benchmarks_parquet_is_read_in_the_order_of_row_index(shared_data: Path) -> None:
    path = shared_data / "formats" / "babyai_easy.parquet"
    rows = sorted(pq.read_table(path).to_pylist(), key=lambda row: row["row_index"])
    source = open_source(path, BABYAI)
    assert (source.format, source.n_rollouts, source.last_action) == ("benchmark_parquet", 3, "none")
    (r,) = source.batches(extras=True)
    for i, row in enumerate(rows):
        obs = np.frombuffer(row["observations_data"], row["observations_dtype"]).reshape(39, 17)
        begin, end = r.row_offsets[i : i + 2]
        np.testing.assert_array_equal(r.obs[begin : end - 1], obs[: r.length[i]])
        assert r.instruction[i] == row["list_instructions_data"][0]
        assert r.extra_rollout["task_str"][i] == row["list_task_str"]
    assert source.metadata["observation_dim"] == 17


def test_the_benchmarks_parquet_with_action_masks_and_box_actions_is_read(shared_data: Path) -> None:
    spec = replace(BABYAI, obs_size=18, action=ActionSpec("box", 6, -1, 1), columns=("x",) * 18)
    source = open_source(shared_data / "formats" / "mujoco_hard_qwen.parquet", spec)
    (r,) = source.batches()
    assert r.action.shape == (source.n_transitions, 6)
    assert r.instruction[0] == "Move forward and slow down. Move backward."


def test_an_older_file_of_three_rollouts_counts_its_last_action_as_executed(shared_data: Path) -> None:
    source = open_source(shared_data / "formats" / "babyai_imaginary_hard.npy", BABYAI)
    assert (source.n_rollouts, source.n_transitions, source.last_action) == (3, 117, "executed")
