"""`convert`: every layout to the canonical one and on, with every value kept."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from qualcheck.converting import convert
from qualcheck.errors import DataError, UsageError
from qualcheck.io import open_source
from qualcheck.io.layouts import specs
from qualcheck.types import Rollouts

FILES = {
    "formats/babyai_easy.parquet": ("babyai", "benchmark_parquet"),
    "formats/babyai_imaginary_hard.npy": ("babyai", "npy"),
    "formats/ball_real.hdf5": ("clevr", "hdf5, pair"),
    "formats/libero_real.npy": ("libero", "npy"),
    "formats/metaworld_imaginary_easy.h5": ("metaworld", "hdf5"),
    "formats/metaworld_real.h5": ("metaworld", "hdf5"),
    "formats/mujoco_hard_qwen.parquet": ("halfcheetah", "benchmark_parquet"),
    "golden/metaworld_easy.npy": ("metaworld", "npy"),
    "golden/clevr_hard.npy": ("clevr", "npy"),
    "imagined/imag_babyai_easy.npy": ("babyai", "npy"),
    "mutated/mujoco_mutated.npy": ("halfcheetah", "npy"),
    "real/kalm_clevr_robot.npy": ("clevr", "npy"),
    "real/cs285_expert_HalfCheetah-v4.pkl": ("halfcheetah", "records"),
    "real/kalm_clevr_rephrase_prompt.npy": ("clevr", "records"),
}
ARRAYS = ("obs", "action", "offsets", "has_final", "break_at", "break_obs", "code", "reward", "terminal", "truncated")


def whole(path: Path, env: str, **options: Any) -> Rollouts:
    (r,) = open_source(path, specs(env), **options).batches(1 << 22, extras=True)
    return r


def assert_same(found: Rollouts, given: Rollouts) -> None:
    for name in ARRAYS:
        left, right = getattr(found, name), getattr(given, name)
        assert (left is None) == (right is None), name
        if right is not None:
            assert left.dtype == right.dtype, name
            np.testing.assert_array_equal(left, right, err_msg=name)
    assert found.instruction == given.instruction
    assert found.defect == given.defect
    np.testing.assert_equal(found.goal, given.goal)
    for name, flag in given.flags.items():
        np.testing.assert_array_equal(found.flags.get(name, np.zeros(given.n_rollouts, bool)), flag, err_msg=name)
    assert set(given.extra_step) <= set(found.extra_step)
    for name, values in given.extra_step.items():
        np.testing.assert_array_equal(found.extra_step[name], values)


@pytest.mark.parametrize("name", list(FILES))
def test_every_layout_goes_to_the_canonical_one_and_back(name: str, shared_data: Path, tmp_path: Path) -> None:
    path = shared_data / name
    env, format = FILES[name]
    done = convert(path, tmp_path / "a.parquet")
    assert (done.env, done.format) == (env, format)
    given = whole(path, env)
    assert (done.n_rollouts, done.n_transitions) == (given.n_rollouts, given.n_transitions)
    canonical = whole(tmp_path / "a.parquet", env)
    assert_same(canonical, given)
    for key, values in given.extra_rollout.items():
        np.testing.assert_equal([_listed(v) for v in canonical.extra_rollout[key]], [_listed(v) for v in values])
    if name == "real/kalm_clevr_rephrase_prompt.npy":  # some rollouts show their last row and others do not
        with pytest.raises(UsageError, match="18 of 80 rollouts lack the row after their last action"):
            convert(tmp_path / "a.parquet", tmp_path / "b.npy", to="npy")
        return
    convert(tmp_path / "a.parquet", tmp_path / "b.npy", to="npy")
    assert_same(whole(tmp_path / "b.npy", env), given)
    if format == "hdf5, pair":
        with pytest.raises(UsageError, match="'instructions' holds 3 entries for 4 rollouts"):
            convert(tmp_path / "a.parquet", tmp_path / "c.parquet", to="benchmark_parquet")
        return
    convert(tmp_path / "b.npy", tmp_path / "c.parquet", env, to="benchmark_parquet")
    assert open_source(tmp_path / "c.parquet", specs(env)).format == "benchmark_parquet"
    assert_same(whole(tmp_path / "c.parquet", env), given)


def _listed(value: Any) -> Any:
    return value.tolist() if isinstance(value, np.ndarray | np.generic) else value


@pytest.mark.parametrize("name", ["golden/clevr_hard.npy", "mutated/mujoco_mutated.npy", "golden/libero_real.npy"])
def test_the_keys_of_a_file_come_back_as_they_were(name: str, shared_data: Path, tmp_path: Path) -> None:
    raw = np.load(shared_data / name, allow_pickle=True).item()
    convert(shared_data / name, tmp_path / "a.parquet")
    convert(tmp_path / "a.parquet", tmp_path / "b.npy", to="npy")
    back = np.load(tmp_path / "b.npy", allow_pickle=True).item()
    assert set(back) - {"qualcheck_source", "qualcheck_source_rollout"} == set(raw)
    mask = raw["masks"][..., 0] == 1
    for key, value in raw.items():
        assert type(back[key]) is type(value), key
        if isinstance(value, np.ndarray):
            assert (back[key].dtype, back[key].shape) == (value.dtype, value.shape), key
            per_step = value.shape[1:2] == mask.shape[1:]
            np.testing.assert_array_equal(
                back[key][mask] if per_step else back[key], value[mask] if per_step else value
            )
        else:
            assert back[key] == value, key


def npy(path: Path, **changes: Any) -> Path:
    rng = np.random.default_rng(1)
    base = {
        "observations": rng.normal(size=(3, 4, 91)).astype(np.float32),
        "actions": rng.normal(size=(3, 4, 4)),
        "rewards": np.ones((3, 4)),
        "masks": np.ones((3, 4)),
        "note": {"by": "hand", "at": np.arange(3)},
    }
    np.save(path, np.array({**base, **changes}, object), allow_pickle=True)
    return path


def test_a_mask_with_a_hole_stays_a_defect(tmp_path: Path) -> None:
    masks = np.ones((3, 4))
    masks[1] = [1, 0, 1, 1]
    masks[2] = [1, 1, 0.5, 0]
    path = npy(tmp_path / "a.npy", masks=masks)
    convert(path, tmp_path / "b.parquet")
    convert(tmp_path / "b.parquet", tmp_path / "c.npy", to="npy")
    back = np.load(tmp_path / "c.npy", allow_pickle=True).item()
    np.testing.assert_array_equal(back["masks"], masks)
    assert whole(tmp_path / "c.npy", "metaworld").defect == ["", "mask_hole", "mask_value"]
    assert_same(whole(tmp_path / "c.npy", "metaworld"), whole(path, "metaworld"))
    assert str(back["note"]) == str({"by": "hand", "at": np.arange(3)})


@pytest.mark.parametrize("to", ["npy", "benchmark_parquet"])
def test_a_hole_and_missing_masks_stay_defects_on_the_direct_way(to: str, tmp_path: Path) -> None:
    masks = np.ones((3, 4))
    masks[1] = [1, 0, 1, 1]
    path, out = npy(tmp_path / "a.npy", masks=masks[:2]), tmp_path / ("b.npy" if to == "npy" else "b.parquet")
    convert(path, out, to=to)
    found = whole(out, "metaworld")
    assert found.defect == ["", "mask_hole", "count_mismatch"]
    assert_same(found, whole(path, "metaworld"))


@pytest.mark.parametrize("to", ["npy", "benchmark_parquet"])
def test_level_and_origin_survive_the_way_to_padded_arrays(to: str, tmp_path: Path) -> None:
    starts = {"qualcheck_start": ["reset", "cut", "cut"], "qualcheck_reset_obs": np.zeros((3, 91), np.float32)}
    own = {"qualcheck_source": ["x", "x", "y"], "qualcheck_source_rollout": np.array([7, 8, 0])}
    path = npy(tmp_path / "a.npy", level=["easy", "hard", "easy"], **starts, **own)
    convert(path, tmp_path / "b.parquet")
    convert(tmp_path / "b.parquet", tmp_path / "c", to=to)
    for name in ("a.npy", "b.parquet", "c"):
        r = whole(tmp_path / name, "metaworld")
        assert r.level == ["easy", "hard", "easy"], name
        assert r.origin == ["x", "x", "y"], name
        assert r.source_rollout.tolist() == [7, 8, 0], name
        assert r.is_reset is not None
        assert r.is_reset.tolist() == [True, False, False], name


@pytest.mark.parametrize("to", ["npy", "canonical"])
def test_every_code_of_a_rollout_whose_code_changes_is_kept(to: str, tmp_path: Path) -> None:
    rows = np.random.default_rng(0).normal(size=(3, 4, 91 + 768)).astype(np.float32)
    rows[1:, :, 91:] = rows[1:, :1, 91:]
    path = npy(tmp_path / "a.npy", observations=rows)
    convert(path, tmp_path / ("b.npy" if to == "npy" else "b.parquet"), to=to)
    if to == "canonical":
        convert(tmp_path / "b.parquet", tmp_path / "b.npy", to="npy")
    np.testing.assert_array_equal(np.load(tmp_path / "b.npy", allow_pickle=True).item()["observations"], rows)
    assert whole(tmp_path / "b.npy", "metaworld").flags["code_varies"].tolist() == [True, False, False]


def test_instructions_of_several_kinds_stay_the_texts_they_are(tmp_path: Path) -> None:
    path = npy(tmp_path / "a.npy", instructions=["go", b"go", 3])
    convert(path, tmp_path / "b.parquet", to="benchmark_parquet")
    assert whole(tmp_path / "b.parquet", "metaworld").instruction == ["go", "go", None]


def test_values_of_the_whole_file_travel_whatever_they_are(tmp_path: Path) -> None:
    note = {(1, 2): 1 + 2j, "set": {1, 2}, "bytes": b"\xff", 3: np.float32(0.1), "deep": [{(): np.arange(2)}]}
    convert(npy(tmp_path / "a.npy", note=note), tmp_path / "b.parquet")
    kept = open_source(tmp_path / "b.parquet", specs("metaworld")).metadata["note"]
    assert kept.pop("deep")[0]["()"].tolist() == [0, 1]
    assert kept == {"(1, 2)": "(1+2j)", "set": {1, 2}, "bytes": b"\xff", "3": np.float32(0.1)}


def test_texts_beyond_the_rollouts_are_kept(tmp_path: Path) -> None:
    path = npy(tmp_path / "a.npy", instructions=[["a"], ["b"], ["c"], ["d"], ["e"]], goals=np.arange(8).reshape(4, 2))
    convert(path, tmp_path / "b.parquet")
    convert(tmp_path / "b.parquet", tmp_path / "c.npy", to="npy")
    back = np.load(tmp_path / "c.npy", allow_pickle=True).item()
    assert back["instructions"] == [["a"], ["b"], ["c"], ["d"], ["e"]]
    np.testing.assert_array_equal(back["goals"], np.arange(8).reshape(4, 2))


def test_the_row_after_the_last_action_stays_behind_the_others(tmp_path: Path) -> None:
    rows = np.random.default_rng(2).normal(size=(3, 5, 91))
    masks = np.array([[1, 1, 1, 1], [1, 1, 0, 0], [1, 0, 0, 0]])
    path = npy(tmp_path / "a.npy", observations=rows, masks=masks)
    convert(path, tmp_path / "b.parquet")
    convert(tmp_path / "b.parquet", tmp_path / "c.npy", to="npy")
    back = np.load(tmp_path / "c.npy", allow_pickle=True).item()
    shown = np.arange(5) <= masks.sum(axis=1)[:, None]
    np.testing.assert_array_equal(back["observations"][shown], rows[shown])
    assert not back["observations"][~shown].any()


def test_codes_are_named_and_units_restored_on_the_way(shared_data: Path, tmp_path: Path) -> None:
    codes = shared_data / "real" / "imaginebench_meta_instructions_encoding.npy"
    path = shared_data / "formats" / "metaworld_imaginary_easy.h5"
    done = convert(path, tmp_path / "a.parquet", encodings=codes, obs_mean=np.ones(91), obs_std=np.full(91, 2.0))
    assert "3 of 3 instruction codes named by imaginebench_meta_instructions_encoding.npy" in done.findings
    r = whole(tmp_path / "a.parquet", "metaworld")
    assert r.instruction == r.task == ["reach-wall-v2-goal-observable"] * 3
    np.testing.assert_array_equal(r.obs, whole(path, "metaworld").obs.astype(np.float64) * 2 + 1)


# -- what is refused -----------------------------------------------------------------------------------------------


def test_an_environment_that_nothing_tells_is_asked_for(tmp_path: Path) -> None:
    path = npy(tmp_path / "a.npy", observations=np.zeros((3, 4, 33)))
    with pytest.raises(DataError, match="33 columns"):
        convert(path, tmp_path / "b.parquet")
    with pytest.raises(UsageError, match="no environment 'walker'"):
        convert(path, tmp_path / "b.parquet", "walker")
    done = convert(npy(path), tmp_path / "b.parquet")
    assert done.findings[0].startswith("taken for metaworld")
    again = convert(tmp_path / "b.parquet", tmp_path / "c.npy", to="npy")
    assert (again.env, again.format) == ("metaworld", "canonical")
    assert not any(line.startswith("taken for") for line in again.findings)


def test_nothing_of_the_users_is_overwritten(tmp_path: Path) -> None:
    path = npy(tmp_path / "a.npy")
    before = path.read_bytes()
    (tmp_path / "taken").write_text("mine")
    for out, to in (("a.npy", "npy"), ("taken", "canonical")):
        with pytest.raises(UsageError, match="overwrit"):
            convert(path, tmp_path / out, to=to)
    for out, to in (("b.npy", "canonical"), ("b.parquet", "npy")):
        with pytest.raises(UsageError, match="the name says"):
            convert(path, tmp_path / out, to=to)
    with pytest.raises(UsageError, match="--to"):
        convert(path, tmp_path / "b", to="csv")
    assert path.read_bytes() == before
    assert (tmp_path / "taken").read_text() == "mine"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.npy", "taken"]


def test_the_command_prints_what_it_did(tmp_path: Path) -> None:
    import typer
    from typer.testing import CliRunner

    from qualcheck.cli.convert import convert as command

    app = typer.Typer()
    app.command()(command)
    path = npy(tmp_path / "a.npy")
    done = CliRunner().invoke(app, [str(path), "-o", str(tmp_path / "b.parquet"), "--env", "metaworld"])
    assert done.exit_code == 0, done.output
    assert "3 rollouts, 12 transitions of metaworld, read as npy, written as canonical" in done.stdout
    assert whole(tmp_path / "b.parquet", "metaworld").n_transitions == 12


def test_a_file_that_numpy_1_reads_names_no_module_of_numpy_2(tmp_path: Path) -> None:
    score = np.array([np.float64(1), None, np.str_("x")], object)
    path = npy(tmp_path / "a.npy", gain=np.float32(2), score=score, deep=[{"k": (np.int64(3),)}, 1, 2])
    convert(path, tmp_path / "b.npy", to="npy")
    assert b"numpy._core" not in (tmp_path / "b.npy").read_bytes()
    back = np.load(tmp_path / "b.npy", allow_pickle=True).item()
    assert (back["gain"], back["deep"]) == (2, [{"k": (3,)}, 1, 2])
    assert list(back["score"]) == [1, None, "x"]
