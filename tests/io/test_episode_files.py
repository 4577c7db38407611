"""D4RL, Minari, robomimic and LeRobot files: what goes in comes out, ends keep their meaning, the rest is refused.

The Minari files here are written by the layout that its documentation gives, except where the library is installed:
then by its own writer. LeRobot's and robomimic's are written by their documented layouts; their programs are not run.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qualcheck.converting import convert
from qualcheck.errors import DataError, UsageError
from qualcheck.io import open_source
from qualcheck.registry import load

SPEC = load("toy").spec
PER_STEP = ("action", "reward", "terminal", "truncated")


def episodes(lengths: list[int], kind: str, rng: np.random.Generator) -> list[dict[str, Any]]:
    """Episodes that end by a terminal, a time-out, both or neither in turn."""
    found = []
    for i, n in enumerate(lengths):
        last = np.arange(n) == n - 1
        found.append(
            {
                "observations": rng.random((n + 1, 3)).astype(kind),
                "actions": rng.random((n, 2)).astype(kind),
                "rewards": rng.random(n),
                "terminations": last & (i % 4 in (0, 2)),
                "truncations": last & (i % 4 in (1, 2)),
            }
        )
    return found


def write_minari(path: Path, rollouts: list[dict[str, Any]]) -> Path:
    with h5py.File(path, "w") as file:
        for i, one in enumerate(rollouts):
            group = file.create_group(f"episode_{i}")
            group.attrs["id"], group.attrs["total_steps"] = i, len(one["actions"])
            for name, values in one.items():
                group[name] = values
    return path


def read(path: Path) -> dict[str, Any]:
    batches = list(open_source(path, SPEC).batches())
    assert len(batches) == 1
    (one,) = batches
    found = {name: getattr(one, name) for name in (*PER_STEP, "offsets", "start_obs", "end_obs", "has_end")}
    return {**found, "instruction": np.array([text or "" for text in one.instruction])}


def assert_same(one: dict[str, Any], other: dict[str, Any]) -> None:
    for name, values in one.items():
        assert np.array_equal(values, other[name]), name
        assert values.dtype.kind == "U" or values.dtype == other[name].dtype, name


@settings(max_examples=3, deadline=None)
@given(
    lengths=st.lists(st.integers(1, 5), min_size=11, max_size=14),
    kind=st.sampled_from(["float32", "float64"]),
    seed=st.integers(0, 99),
)
def test_every_pair_of_layouts_keeps_values_flags_and_ids(lengths: list[int], kind: str, seed: int) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        first = write_minari(folder / "in.hdf5", episodes(lengths, kind, np.random.default_rng(seed)))
        expected = read(first)
        assert np.array_equal(np.diff(expected["offsets"]), lengths)
        for to in ("canonical", "d4rl", "minari"):
            convert(first, folder / f"{to}.out", "toy", to=to)
            assert_same(expected, read(folder / f"{to}.out"))
            for again in ("canonical", "d4rl", "minari"):
                out = folder / f"{to}.{again}"
                convert(folder / f"{to}.out", out, "toy", to=again)
                assert_same(expected, read(out))


def test_a_terminal_and_a_time_out_are_told_apart(tmp_path: Path) -> None:
    found = read(write_minari(tmp_path / "m.hdf5", episodes([2, 2, 2, 2], "float32", np.random.default_rng(0))))
    assert found["terminal"].tolist() == [False, True, False, False, False, True, False, False]
    assert found["truncated"].tolist() == [False, False, False, True, False, True, False, False]


def test_what_a_layout_cannot_hold_is_refused(tmp_path: Path) -> None:
    one = episodes([3, 2], "float32", np.random.default_rng(0))
    path = write_minari(tmp_path / "m.hdf5", one)
    with h5py.File(path, "a") as file:
        file["episode_0"].attrs["instruction"] = "push it to the left wall"
    convert(path, tmp_path / "same.hdf5", "toy", to="minari")
    assert read(tmp_path / "same.hdf5")["instruction"].tolist() == ["push it to the left wall", ""]
    with pytest.raises(UsageError, match="cannot hold the instruction"):
        convert(path, tmp_path / "d.hdf5", "toy", to="d4rl")
    assert not (tmp_path / "d.hdf5").exists()


def test_robomimic_demos_are_read_in_the_order_of_their_numbers(tmp_path: Path) -> None:
    path, rng = tmp_path / "r.hdf5", np.random.default_rng(0)
    rows = {i: rng.random((3, 3)) for i in (10, 2)}
    with h5py.File(path, "w") as file:
        for i, obs in rows.items():
            demo = file.create_group(f"data/demo_{i}")
            demo["obs/flat"], demo["next_obs/flat"] = obs, obs + 1
            demo["actions"], demo["rewards"], demo["dones"] = rng.random((3, 2)), np.ones(3), np.array([0, 0, 1])
    found = read(path)
    assert np.array_equal(found["start_obs"], np.concatenate([rows[2], rows[10]]))
    assert np.array_equal(found["end_obs"], found["start_obs"] + 1)


def test_robosuite_states_without_observations_are_refused(shared_data: Path) -> None:
    with pytest.raises(DataError, match="simulator states and no observations"):
        open_source(shared_data / "real" / "robosuite_wipe_panda_demo.hdf5", SPEC)


def test_a_linked_episode_is_refused(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "l.hdf5", "w") as file:
        file["episode_0"] = h5py.ExternalLink("other.hdf5", "/")
    with pytest.raises(DataError, match="link"):
        open_source(tmp_path / "l.hdf5", SPEC)


@pytest.mark.parametrize("fixed", [True, False])
def test_lerobot_steps_are_split_by_episode(tmp_path: Path, fixed: bool) -> None:
    """By the documented columns: fixed-size lists as v3.0 has them, plain lists as v2.1."""
    obs, action = np.random.default_rng(0).random((5, 3)), np.random.default_rng(1).random((5, 2))
    table = {
        "observation.state": pa.array(obs.tolist(), pa.list_(pa.float64(), 3) if fixed else pa.list_(pa.float64())),
        "action": pa.array(action.tolist(), pa.list_(pa.float64(), 2) if fixed else pa.list_(pa.float64())),
        "episode_index": pa.array([7, 7, 9, 9, 9], pa.int64()),
        "frame_index": pa.array([0, 1, 0, 1, 2], pa.int64()),
        "next.done": pa.array([False, True, False, False, True]),
    }
    pq.write_table(pa.table(table), tmp_path / "l.parquet")
    found = open_source(tmp_path / "l.parquet", SPEC, last_action="executed")
    (batch,) = found.batches()
    assert batch.length.tolist() == [2, 3]
    assert np.array_equal(batch.start_obs, obs)
    table["frame_index"] = pa.array([1, 0, 0, 1, 2], pa.int64())
    pq.write_table(pa.table(table), tmp_path / "wrong.parquet")
    with pytest.raises(DataError, match="frame_index"):
        open_source(tmp_path / "wrong.parquet", SPEC)


@pytest.mark.parametrize("data_format", ["hdf5", "arrow", "parquet"])
def test_files_of_minaris_own_writer_are_read(
    tmp_path: Path, data_format: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    minari = pytest.importorskip("minari")
    import gymnasium
    from minari.data_collector.episode_buffer import EpisodeBuffer

    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    given = episodes([3], "float32", np.random.default_rng(0))[0]
    buffer = EpisodeBuffer(id=0, **{name: list(values) for name, values in given.items()})
    minari.create_dataset_from_buffers(
        dataset_id="written-v0",
        buffer=[buffer],
        observation_space=gymnasium.spaces.Box(-1, 1, (3,), np.float32),
        action_space=gymnasium.spaces.Box(-1, 1, (2,), np.float32),
        data_format=data_format,
    )
    (path,) = [each for each in tmp_path.rglob("*") if each.suffix in (".hdf5", ".arrow", ".parquet")]
    assert_same(read(write_minari(tmp_path / "expected", [given])), read(path))
