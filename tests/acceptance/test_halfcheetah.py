"""HalfCheetah: real data pass at the noise floor, imagined and mutated data get the verdicts of their labels."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

import qualcheck
from qualcheck.io import open_source
from qualcheck.io.npy import load_npy
from qualcheck.io.pickles import load_pickle
from qualcheck.registry import load

LEVELS = ("real", "rephrase", "easy", "hard")
Scored = tuple[Any, dict[str, np.ndarray], dict[str, np.ndarray]]


def arrays(path: Path) -> dict[str, np.ndarray]:
    table = pq.read_table(path)
    return {name: table[name].to_numpy(zero_copy_only=False) for name in table.column_names}


@pytest.fixture(scope="module")
def score(shared_data: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Scored]:
    """Score a shared file or another one, once; the run and its two tables."""
    folder = tmp_path_factory.mktemp("halfcheetah")

    @cache
    def get(name: str | Path, **options: Any) -> Scored:
        out = folder / str(len(list(folder.iterdir())))
        run = qualcheck.score(shared_data / name, "halfcheetah", out, recheck=100, **options)
        return run, arrays(out / "transitions.parquet"), arrays(out / "rollouts.parquet")

    return get


@pytest.fixture(scope="module")
def stripped(shared_data: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    def get(level: str) -> Path:
        content = load_npy(shared_data / f"golden/mujoco_{level}.npy")
        path = tmp_path_factory.mktemp("stripped") / "a.npy"
        kept = {key: value for key, value in content.items() if key != "next_observations"}
        np.save(path, np.array(kept, dtype=object), allow_pickle=True)
        return path

    return get


def test_held_out_real_rollouts_pass_at_the_noise_floor(score: Callable[..., Scored]) -> None:
    rejected, whole = [], []
    for level in LEVELS:
        _, steps, rollouts = score(f"golden/mujoco_{level}.npy", level=level)
        odd = steps["rollout"] % 2 == 1
        rejected.append(steps["tc_strict"][odd] == 0)
        whole.append(rollouts["correctness_strict"][1::2] == 1)
    assert np.concatenate(rejected).mean() <= 0.003
    assert np.concatenate(whole).mean() >= 0.96


@pytest.mark.parametrize("level", LEVELS)
def test_real_rollouts_keep_their_labels_and_rewards(
    score: Callable[..., Scored], shared_data: Path, level: str
) -> None:
    run, steps, rollouts = score(f"golden/mujoco_{level}.npy", level=level)
    success = np.asarray(load_npy(shared_data / f"golden/mujoco_{level}.npy")["success"])
    assert np.array_equal(rollouts["gc_imagined_released"] == 1, success)
    assert np.abs(steps["reward_error"]).max() <= 1e-4
    assert run.manifest["results"]["inputs"][0]["reward_reading"] == "released"
    assert (steps["dl"] == 1).all()
    assert (rollouts["dl_row0"] == 1).all()
    assert (steps["tc"] == 1).all()


@pytest.mark.parametrize("level", LEVELS)
def test_real_rollouts_without_next_observations_keep_their_labels(
    score: Callable[..., Scored], stripped: Callable[[str], Path], shared_data: Path, level: str
) -> None:
    _, _, rollouts = score(stripped(level), level=level)
    success = np.asarray(load_npy(shared_data / f"golden/mujoco_{level}.npy")["success"])
    assert np.array_equal(rollouts["gc_imagined_released"] == 1, success)


def test_by_text_only_the_swapped_rollouts_differ_and_the_report_says_so(score: Callable[..., Scored]) -> None:
    run, _, rollouts = score("golden/mujoco_real.npy", level="real")
    differ = rollouts["gc_imagined"] != rollouts["gc_imagined_released"]
    swapped = rollouts["task"] != rollouts["task_released"]
    assert differ.sum() > 30
    assert not (differ & ~swapped).any()
    assert "text" in qualcheck.report(run).split("Findings")[1]


@pytest.mark.parametrize("level", ["rephrase", "easy", "rephrase_round2"])
def test_imagined_rollouts_get_the_verdicts_of_their_labels(
    score: Callable[..., Scored], shared_data: Path, level: str
) -> None:
    name = f"imagined/imag_mujoco_{level}"
    run, steps, rollouts = score(f"{name}.npy")
    labels = np.load(shared_data / f"{name}_labels.npz")
    at = steps["rollout"], steps["step"]
    errors = np.stack([steps[block] for block in steps if block.startswith("err_")]).max(axis=0)
    assert np.allclose(errors, labels["err"][at], rtol=1e-6)
    for bar in (0.5, 1):
        assert (steps["tc_scaled_state"] < bar).mean() == pytest.approx(
            (labels["err_scaled"][at] < bar).mean(), abs=2e-3
        )
    assert np.array_equal(rollouts["gc_imagined"] == 1, labels["goal_imagined"])
    assert abs(rollouts["gc_replayed"].mean() - labels["goal_replayed"].mean()) <= 0.03
    _, _, nominal = score(f"{name}.npy", restarts=0)
    assert (nominal["gc_replayed"] != labels["goal_replayed"]).sum() <= 3
    assert (steps["tc_strict"] == 1).mean() < 0.8
    storage = run.manifest["results"]["inputs"][0]["storage"]
    assert storage == ("2 decimals" if level.endswith("round2") else "float32")


def test_planted_faults_are_found_at_their_step(score: Callable[..., Scored], shared_data: Path) -> None:
    _, steps, rollouts = score("mutated/mujoco_mutated.npy")
    content = load_npy(shared_data / "mutated/mujoco_mutated.npy")
    labels = np.load(shared_data / "mutated/mujoco_mutated_labels.npz")
    fault, at = np.asarray(content["fault"]), np.asarray(content["fault_step"])
    first = np.concatenate([[0], np.cumsum(rollouts["length"])])[:-1]
    bad = (steps["tc_strict"] == 0) | (steps["dl"] == 0)
    planted = fault != "none"
    assert bad[(first + at)[planted]].mean() >= 0.98
    owner = steps["rollout"]
    inside = (steps["step"] >= at[owner]) & (steps["step"] < (at + np.maximum(labels["fault_len"], 1))[owner])
    outside = ~(inside & planted[owner])
    assert bad[outside].mean() <= 0.003


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_expert_rollouts_of_others_pass_as_rows_of_17(shared_data: Path, dtype: type) -> None:
    with (shared_data / "real/cs285_expert_HalfCheetah-v4.pkl").open("rb") as stream:
        records = load_pickle(stream, "cs285")
    obs, next_obs = (
        np.concatenate([r[key] for r in records]).astype(dtype) for key in ("observation", "next_observation")
    )
    action, terminal = (np.concatenate([r[key] for r in records]) for key in ("action", "terminal"))
    run = qualcheck.score(
        obs, action, next_obs, env="halfcheetah", rollout=np.repeat([0, 1], 1000), terminals=terminal, recheck=50
    )
    steps, rollouts = run.transitions().to_pydict(), run.rollouts().to_pydict()
    assert np.mean(np.array(steps["tc_strict"]) == 1) >= 0.995
    assert all("timeout_as_terminal" in flags for flags in rollouts["flags"])


def test_shuffled_standardised_branches_pass_with_their_statistics(shared_data: Path, tmp_path: Path) -> None:
    with (shared_data / "real/cs285_expert_HalfCheetah-v4.pkl").open("rb") as stream:
        records = load_pickle(stream, "cs285")
    obs, action, next_obs = (
        np.concatenate([r[key] for r in records]) for key in ("observation", "action", "next_observation")
    )
    order = (np.random.default_rng(0).permutation(400)[:, None] * 5 + np.arange(5)).ravel()
    run = qualcheck.score(
        obs[order], action[order], next_obs[order], env="halfcheetah", rollout=order // 5, start="any"
    )
    strict = run.transitions(["tc_strict"])["tc_strict"].to_numpy()
    assert run.rollouts().num_rows == 400
    assert (strict == 1).mean() >= 0.995
    mean, std = obs.mean(axis=0), obs.std(axis=0)
    np.save(tmp_path / "mean.npy", mean)
    np.save(tmp_path / "std.npy", std)
    rows = {"observations": (obs[order] - mean) / std, "next_observations": (next_obs[order] - mean) / std}
    np.savez(tmp_path / "a.npz", actions=action[order], terminals=np.arange(2000) % 5 == 4, **rows)
    plain = qualcheck.score(tmp_path / "a.npz", "halfcheetah", start="any", recheck=0)
    assert any("standardised" in finding for finding in plain.manifest["results"]["findings"])
    statistics = {"obs_mean": str(tmp_path / "mean.npy"), "obs_std": str(tmp_path / "std.npy")}
    known = qualcheck.score(tmp_path / "a.npz", "halfcheetah", start="any", recheck=0, **statistics)
    assert (known.transitions(["tc_strict"])["tc_strict"].to_numpy() == 1).mean() >= 0.995
    assert not any("look standardised" in finding for finding in known.manifest["results"]["findings"])


@pytest.mark.parametrize("grade", ["scaled:0.5", "scaled:1"])
@pytest.mark.parametrize("mode", ["rollouts", "truncate", "segments"])
def test_every_filter_mode_keeps_a_part_of_the_imagined_file(
    score: Callable[..., Scored], tmp_path: Path, grade: str, mode: str
) -> None:
    run, _, _ = score("imagined/imag_mujoco_easy.npy", grade=grade, restarts=0)
    kept = qualcheck.filter(run.path, tmp_path / "kept.parquet", min_correctness=0.4, mode=mode)
    counts = kept.report["transitions"]
    assert 0 < counts["kept"] < counts["all"]
    if mode != "rollouts":
        again = qualcheck.score(tmp_path / "kept.parquet", "halfcheetah", grade=grade, recheck=0, restarts=0)
        assert (again.transitions(["tc"])["tc"].to_numpy() == 1).all()


def test_the_qwen_file_gives_the_verdicts_of_the_golden_rollouts(
    score: Callable[..., Scored], shared_data: Path
) -> None:
    _, steps, rollouts = score("formats/mujoco_hard_qwen.parquet")
    _, golden_steps, golden = score("golden/mujoco_hard.npy", level="hard")
    assert set(rollouts["generator"]) == {"qwen3"}
    spec = load("halfcheetah").layouts()
    ours, theirs = (
        next(iter(open_source(path, spec).batches(10**6)))
        for path in (shared_data / "formats/mujoco_hard_qwen.parquet", shared_data / "golden/mujoco_hard.npy")
    )
    starts = {row.tobytes(): i for i, row in enumerate(theirs.context_obs)}
    for i, row in enumerate(ours.context_obs):
        twin = starts[row.tobytes()]
        mine = steps["tc_strict"][steps["rollout"] == i]
        other = golden_steps["tc_strict"][golden_steps["rollout"] == twin][: len(mine)]
        known = ~np.isnan(mine)
        assert known.sum() >= len(mine) - 1
        assert np.array_equal(mine[known], other[known])
        assert rollouts["gc_imagined_released"][i] == golden["gc_imagined_released"][twin]
