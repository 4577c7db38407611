"""The same rollouts in another layout get the same verdicts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

VERDICTS = ("rollout", "step", "tc", "tc_error", "tc_code", "dl", "dl_rule", "reward_error")
GOALS = ("gc_imagined", "gc_replayed", "trivial", "length", "dl_row0", "task", "instruction")


@pytest.fixture(scope="module")
def base(qualcheck: Any, bench: Any, episode: Any, tour: Any, world: Any, tmp_path_factory: Any) -> Any:
    episodes = []
    for i in range(6):
        row0 = world.ROW0.copy()
        row0[3] = i
        one = episode(tour, row0, rewards=world.goto_reward(world.play(row0, tour)))
        if i == 2:
            one.rows[4, 13] = 6
        if i == 3:
            one.rows[4, [7, 8]] = one.rows[4, [1, 2]]
        episodes.append(one)
    content = bench.arrays(episodes)
    folder = tmp_path_factory.mktemp("layouts")
    run = qualcheck.score(folder / "run", bench.npy(folder / "base.npy", content))
    assert set(run.t["tc"][~np.isnan(run.t["tc"])]) == {0, 1}
    return run, content


def _same(run: Any, base: Any) -> None:
    for names, ours, theirs in ((VERDICTS, run.t, base.t), (GOALS, run.r, base.r)):
        for name in names:
            if ours[name].dtype.kind == "f":
                assert np.array_equal(ours[name], theirs[name], equal_nan=True), name
            else:
                assert np.array_equal(ours[name], theirs[name]), name


def _change(content: dict[str, Any], how: str) -> dict[str, Any]:
    out = dict(content)
    rng = np.random.default_rng(3)
    if how == "masks (N,T)":
        out["masks"] = content["masks"][..., 0]
    elif how == "boolean masks":
        out["masks"] = content["masks"].astype(bool)
    elif how == "no masks":
        del out["masks"]  # every rollout is as long as the arrays
    elif how == "action_masks":
        out["action_masks"] = out.pop("masks")
    elif how == "actions (N,T,1)":
        out["actions"] = content["actions"][..., None]
    elif how == "int32 actions":
        out["actions"] = content["actions"].astype(np.int32)
    elif how == "rewards (N,T)":
        out["rewards"] = content["rewards"][..., 0]
    elif how == "785 columns":
        code = np.repeat(rng.normal(size=(6, 1, 768)), content["observations"].shape[1], 1).astype(np.float32)
        for key in ("observations", "next_observations"):
            out[key] = np.concatenate([content[key], code], -1)
    elif how == "big-endian":
        for key, kind in (("observations", ">f4"), ("next_observations", ">f4"), ("actions", ">i8")):
            out[key] = content[key].astype(kind)
    elif how == "Fortran order":
        for key in ("observations", "next_observations", "actions", "masks"):
            out[key] = np.asfortranarray(content[key])
    elif how == "float64":
        for key in ("observations", "next_observations", "rewards"):
            out[key] = content[key].astype(np.float64)
        out["rewards"] = content["rewards"].astype(np.float64)
    elif how == "float16":
        for key in ("observations", "next_observations"):
            out[key] = content[key].astype(np.float16)
    elif how == "uint8":
        for key in ("observations", "next_observations"):
            out[key] = content[key].astype(np.uint8)
    elif how == "longer padding":
        for key in ("observations", "next_observations", "actions", "rewards", "masks", "terminals"):
            tail = np.zeros((6, 5, *content[key].shape[2:]), content[key].dtype)
            out[key] = np.concatenate([content[key], tail], 1)
        out["observations"][:, 10:] = np.nan
        out["actions"][:, 10:] = 99
    elif how == "unknown keys":
        out["note"], out["extra"] = "made by hand", np.arange(6)
    return out


@pytest.mark.parametrize(
    "how",
    [
        "masks (N,T)",
        "boolean masks",
        "no masks",
        "action_masks",
        "actions (N,T,1)",
        "int32 actions",
        "rewards (N,T)",
        "785 columns",
        "big-endian",
        "Fortran order",
        "float64",
        "float16",
        "uint8",
        "longer padding",
        "unknown keys",
    ],
)
def test_verdicts_do_not_depend_on_the_layout_of_the_dictionary(
    how: str, base: Any, qualcheck: Any, bench: Any, tmp_path: Path
) -> None:
    run, content = base
    path = bench.npy(tmp_path / "a.npy", _change(content, how))
    _same(qualcheck.score(tmp_path / "run", path), run)


@pytest.mark.parametrize("order", [(0, 1, 2, 3, 4, 5), (3, 0, 5, 1, 4, 2)])
@pytest.mark.parametrize("wide", [False, True])
def test_the_current_parquet_layout_is_read_in_row_index_order(
    order: tuple[int, ...], wide: bool, base: Any, qualcheck: Any, bench: Any, tmp_path: Path
) -> None:
    run, content = base
    content = _change(content, "785 columns") if wide else content
    path = bench.parquet(tmp_path / "babyai_easy.parquet", content, order)
    assert np.array_equal(bench.read_parquet(path)["observations"], content["observations"])
    _same(qualcheck.score(tmp_path / "run", path), run)


def test_the_format_is_found_by_content_and_not_by_name(base: Any, qualcheck: Any, bench: Any, tmp_path: Path) -> None:
    run, content = base
    _same(qualcheck.score(tmp_path / "one", bench.parquet(tmp_path / "a.npy", content)), run)
    _same(qualcheck.score(tmp_path / "two", bench.npy(tmp_path / "b.parquet", content)), run)
    _same(qualcheck.score(tmp_path / "three", bench.npy(tmp_path / "noname", content)), run)


def test_one_more_observation_than_actions_is_read_or_refused_in_one_line(
    base: Any, qualcheck: Any, bench: Any, tmp_path: Path
) -> None:
    run, content = base
    longer = {key: value for key, value in content.items() if key != "next_observations"}
    longer["observations"] = np.concatenate([content["observations"], content["next_observations"][:, -1:]], 1)
    path = bench.npy(tmp_path / "a.npy", longer)
    done = qualcheck("score", path, "--env", "babyai", "-o", tmp_path / "run")
    if done.returncode == 0:
        from dataclasses import replace

        _same(replace(run, path=tmp_path / "run", done=done), run)
    else:
        assert done.returncode == 1
        assert done.stderr.count("\n") == 1
        assert "fault of qualcheck" not in done.stderr
        assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("name", ["babyai_easy.parquet", "babyai_imaginary_hard.npy"])
def test_shared_samples_get_the_verdicts_of_the_recordings_they_were_cut_from(
    name: str, qualcheck: Any, shared_data: Path, scored: Any, tmp_path: Path
) -> None:
    from_file, content = scored(f"golden/babyai_{'easy' if 'easy' in name else 'hard'}.npy")
    run = qualcheck.score(tmp_path / "run", shared_data / "formats" / name)
    assert len(run.r["rollout"]) == 3
    assert not (run.t["tc"] == 0).any()
    assert not (run.t["dl"] == 0).any()
    import pyarrow.parquet as pq

    if name.endswith("npy"):
        first = np.load(shared_data / "formats" / name, allow_pickle=True).item()["observations"][:, 0]
    else:
        rows = {row["row_index"]: row for row in pq.read_table(shared_data / "formats" / name).to_pylist()}
        data = [np.frombuffer(rows[i]["observations_data"], np.float32).reshape(39, 17) for i in range(3)]
        first = np.stack(data)[:, 0]
    for i in range(3):
        match = np.flatnonzero((content["observations"][:, 0] == first[i]).all(1))
        assert run.r["gc_imagined_released"][i] in {float(from_file.r["gc_imagined_released"][k]) for k in match}
        assert run.r["instruction"][i] in {from_file.r["instruction"][k] for k in match}
