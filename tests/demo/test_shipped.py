"""The data set and the control inside the package, judged by the product itself."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from importlib.metadata import version
from importlib.resources import files
from pathlib import Path

import numpy as np
import pytest

from qualcheck.calibration import shipped
from qualcheck.demo import build, corrupt
from qualcheck.envs.babyai import BabyAI, goals
from qualcheck.io import open_source
from qualcheck.pipeline import score
from qualcheck.table import Run
from qualcheck.types import Rollouts

DATA = Path(str(files("qualcheck") / "data"))
STORED = Path(str(files("qualcheck") / "calibration" / "babyai.json"))
REAL, IMAGINED = DATA / "babyai_real.parquet", DATA / "babyai_imagined.parquet"
GOALS = {
    "gc_imagined": "goal_imagined",
    "gc_replayed": "goal_replayed",
    "gc_imagined_released": "goal_imagined_released",
    "gc_replayed_released": "goal_replayed_released",
}


def _load(path: Path) -> Rollouts:
    (rollouts,) = open_source(path, BabyAI.spec).batches(extras=True)
    return rollouts


@pytest.fixture(scope="module")
def scored(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Path], Run]:
    runs: dict[Path, Run] = {}

    def of(path: Path) -> Run:
        if path not in runs:
            runs[path] = score(path, "babyai", tmp_path_factory.mktemp("run") / path.stem)
        return runs[path]

    return of


def _column(run: Run, name: str) -> np.ndarray:
    return run.transitions([name])[name].to_numpy()


def _per_rollout(run: Run, name: str) -> np.ndarray:
    return run.rollouts([name])[name].to_numpy()


def test_shipped_files_hold_a_few_hundred_rollouts_of_every_task_in_less_than_a_megabyte() -> None:
    real, imagined = _load(REAL), _load(IMAGINED)
    assert 200 <= real.n_rollouts <= 250
    assert 300 <= imagined.n_rollouts <= 350
    assert set(zip(real.level or [], real.task or [], strict=True)) == {
        (level, task) for level, tasks in goals.TASKS.items() for task in tasks
    }
    assert set(imagined.generator or []) == {"small-model", "corrupted"}
    assert set(imagined.level or []) == {"rephrase", "easy", "hard"}
    assert sum(path.stat().st_size for path in (*DATA.iterdir(), STORED)) < 1_000_000


@pytest.mark.parametrize("path", [REAL, IMAGINED], ids=["real", "imagined"])
def test_score_equals_the_labels_transition_by_transition_and_goal_by_goal(
    path: Path, scored: Callable[[Path], Run]
) -> None:
    rollouts, run = _load(path), scored(path)
    label = rollouts.extra_step["correct"].astype(np.float32)
    np.testing.assert_array_equal(_column(run, "tc"), np.where(label < 0, np.nan, label))
    for verdict, name in GOALS.items():
        np.testing.assert_array_equal(_per_rollout(run, verdict), rollouts.extra_rollout[name], err_msg=verdict)
    assert run.rollouts(["task"])["task"].to_pylist() == rollouts.task


def test_real_rollouts_are_correct_and_legal_throughout(scored: Callable[[Path], Run]) -> None:
    run = scored(REAL)
    assert (_column(run, "tc") == 1).all()
    assert (_column(run, "dl") == 1).all()
    for name in ("dl_row0", "reward_consistency"):
        assert (_per_rollout(run, name) == 1).all(), name
    assert run.manifest["results"]["flags"] == {}


def test_real_rollouts_end_at_their_first_success_or_after_39_steps() -> None:
    rollouts = _load(REAL)
    ends = rollouts.offsets[1:] - 1
    assert rollouts.terminal is not None
    np.testing.assert_array_equal(rollouts.terminal[ends], np.array(rollouts.extra_rollout["goal_imagined"], bool))
    assert rollouts.terminal.sum() == rollouts.terminal[ends].sum()
    assert (rollouts.length[~rollouts.terminal[ends]] == 39).all()
    assert 0.05 < 1 - rollouts.terminal[ends].mean() < 0.4


def test_every_fault_is_found_at_its_step(scored: Callable[[Path], Run]) -> None:
    rollouts, run = _load(IMAGINED), scored(IMAGINED)
    fault, step = np.array(rollouts.extra_rollout["fault"]), np.array(rollouts.extra_rollout["fault_step"])
    found = _per_rollout(run, "first_fault_step")
    assert set(fault) - {""} == set(corrupt.FAULTS)
    assert len(corrupt.FAULTS) >= 10
    bent = (fault != "") & (fault != "goal_tail_cut")
    np.testing.assert_array_equal(found[bent], step[bent])
    cut = np.flatnonzero(fault == "goal_tail_cut")
    assert (found[cut] == -1).all()
    assert (_per_rollout(run, "gc_imagined")[cut] == 0).all()
    flags = run.rollouts(["flags"])["flags"].to_pylist()
    assert all("terminal_without_goal" in flags[at] for at in cut)


def test_small_model_is_worse_the_further_a_level_is_from_its_training(scored: Callable[[Path], Run]) -> None:
    rollouts, run = _load(IMAGINED), scored(IMAGINED)
    tc, owner = _column(run, "tc"), _column(run, "rollout")
    assert rollouts.level is not None
    assert rollouts.generator is not None
    level, dreamt = np.array(rollouts.level), np.array(rollouts.generator) == "small-model"
    rate = {name: np.nanmean(tc[((level == name) & dreamt)[owner]]) for name in ("rephrase", "easy", "hard")}
    assert 1 > rate["rephrase"] > rate["easy"] > rate["hard"] > 0.5
    claims, facts = (_per_rollout(run, name)[dreamt] for name in ("gc_imagined", "gc_replayed"))
    assert ((claims == 1) & (facts == 0)).any()


def test_control_holds_a_hundred_clean_rollouts_of_each_task() -> None:
    control = shipped(BabyAI.spec).control("exact")
    assert control is not None
    table = control["rollouts"]
    assert Counter(table["task"]) == dict.fromkeys(goals.TASK_IDS, 100)
    assert table["tc_pass"] == table["tc_n"] == table["dl_pass"] == table["dl_n"] == table["length"]
    assert table["gc_imagined"] == table["gc_replayed"]
    assert 0.6 < np.mean(table["gc_imagined"]) < 0.98
    assert STORED.stat().st_size < 150_000
    assert json.loads(STORED.read_text(encoding="utf-8"))["made_by"]["command"] == build.COMMAND


def test_control_shares_no_start_with_the_shipped_files(scored: Callable[[Path], Run]) -> None:
    control = shipped(BabyAI.spec).control("exact")
    assert control is not None
    held_out = set(control["rollouts"]["cluster"])
    for path in (REAL, IMAGINED):
        assert not held_out & set(_per_rollout(scored(path), "cluster").tolist())


def test_shipped_real_rollouts_come_out_of_the_command_again() -> None:
    made = json.loads(STORED.read_text(encoding="utf-8"))["made_by"]["versions"]
    for package in ("numpy", "minigrid"):
        if version(package) != made[package]:
            pytest.skip(f"made with {package} {made[package]}, whose random numbers or steps may differ")
    again, shipped = build.real_rollouts(build.Plan()), _load(REAL)
    np.testing.assert_array_equal(again.obs, shipped.obs)
    np.testing.assert_array_equal(again.action, shipped.action)
    np.testing.assert_array_equal(again.reward, shipped.reward)
    assert again.instruction == shipped.instruction
