"""What is wrong with a whole file is said where a user looks: after `score`, in the manifest and in every report."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import numpy as np
import pytest

FILES = {"babyai": "babyai", "halfcheetah": "mujoco", "metaworld": "metaworld", "clevr": "clevr", "libero": "libero"}


@pytest.fixture(scope="module")
def plants() -> Any:
    path = Path(__file__).parents[1] / "explaining" / "plants.py"
    spec = importlib.util.spec_from_file_location("plants", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def late(plants: Any, qualcheck: Any, shared_data: Path, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A run on HalfCheetah rollouts whose actions stand one step late, and its input."""
    folder = tmp_path_factory.mktemp("late")
    content = plants.recorded(shared_data, "halfcheetah", "easy", np.random.default_rng(3), 20)
    for i, valid in enumerate(content["masks"][:, :, 0] > 0):
        n = int(valid.sum())
        content["actions"][i, 1:n] = content["actions"][i, : n - 1].copy()
    path = plants.write(content, folder / "late.npy")
    return qualcheck.score(folder / "run", path, env="halfcheetah", options=["--recheck", 100]), path


def test_actions_one_step_late_are_explained_after_the_score(late: Any) -> None:
    run, _ = late
    (line,) = [line for line in run.done.stdout.splitlines() if line.startswith("  explanation: ")]
    assert "the actions stand one step late; moving them one step earlier explains" in line
    assert "% of the error of" in line
    (entry,) = run.manifest["results"]["explanations"]
    assert entry["kind"] == "shift"
    assert entry["share"] > 0.9
    assert entry["error_after"] < 0.05 < entry["error_before"]


def test_an_explanation_changes_no_verdict(late: Any) -> None:
    run, _ = late
    assert (run.t["tc"] == 0).mean() > 0.5
    counts = run.manifest["results"]["counts"]
    assert counts["passed"]["transition_correctness"] == int((run.t["tc"] == 1).sum())


def test_every_report_tells_the_explanation(late: Any, qualcheck: Any) -> None:
    run, _ = late
    assert run.manifest["results"]["explanations"] == qualcheck.report(run.path)["explanations"]
    for format in ("table", "md"):
        text = " ".join(qualcheck("report", run.path, "--format", format).stdout.split())
        assert "Explanations" in text
        assert "moving them one step earlier explains" in text


def test_the_same_file_and_seed_give_the_same_explanation(late: Any, qualcheck: Any, tmp_path: Path) -> None:
    run, path = late
    again = qualcheck.score(tmp_path / "run", path, env="halfcheetah", options=["--recheck", 100])
    assert again.manifest["results"]["explanations"] == run.manifest["results"]["explanations"]


def test_a_late_metaworld_file_is_explained_though_its_verdicts_are_mild(
    plants: Any, qualcheck: Any, shared_data: Path, tmp_path: Path
) -> None:
    content = plants.recorded(shared_data, "metaworld", "real", np.random.default_rng(8), 12)
    for i, valid in enumerate(content["masks"][:, :, 0] > 0):
        n = int(valid.sum())
        content["actions"][i, 1:n] = content["actions"][i, : n - 1].copy()
    path = plants.write(content, tmp_path / "late.npy")
    run = qualcheck.score(tmp_path / "run", path, env="metaworld", options=["--recheck", 0])
    assert np.nanmean(run.t["tc"]) > 0.5
    assert [entry["kind"] for entry in run.manifest["results"]["explanations"]] == ["shift"]


def test_real_and_imagined_files_are_not_explained_away(qualcheck: Any, shared_data: Path, tmp_path: Path) -> None:
    for name, env in (("golden/babyai_easy", "babyai"), ("imagined/imag_mujoco_easy", "halfcheetah")):
        path = shared_data / f"{name}.npy"
        run = qualcheck.score(tmp_path / env, path, env=env, options=["--recheck", 0, "--restarts", 0])
        assert run.manifest["results"]["explanations"] == []
        assert "explanation" not in run.done.stdout


@pytest.mark.parametrize("env", list(FILES))
def test_a_file_of_another_environment_is_refused_by_its_name(
    env: str, qualcheck: Any, shared_data: Path, tmp_path: Path
) -> None:
    if env == "libero":
        pytest.importorskip("libero")
    names = list(FILES)
    other = names[names.index(env) - 1]
    done = qualcheck("score", shared_data / "golden" / f"{FILES[other]}_easy.npy", "--env", env, "-o", tmp_path / "run")
    assert done.returncode == 1
    if other != "libero" or importlib.util.find_spec("libero") is not None:
        assert f"It looks like {other}. Is --env right?" in " ".join(done.stderr.split())


def test_rows_with_their_instruction_code_are_told_apart_by_their_actions(
    plants: Any, qualcheck: Any, shared_data: Path, tmp_path: Path
) -> None:
    rng = np.random.default_rng(4)
    for env, other in (("babyai", "halfcheetah"), ("halfcheetah", "babyai")):
        content = plants.recorded(shared_data, env, "real", rng, 5)
        for name in ("observations", "next_observations"):
            if name in content:
                rows = content[name][:, :, -17:]
                code = rng.normal(size=(*rows.shape[:2], 768)).astype(np.float32)
                content[name] = np.concatenate([rows, code], axis=2)
        done = qualcheck(
            "score", plants.write(content, tmp_path / f"{env}.npy"), "--env", other, "-o", tmp_path / "run"
        )
        assert done.returncode == 1
        assert f"looks like {env}" in done.stderr


@pytest.mark.parametrize("env", [*list(FILES)[:-1], pytest.param("libero", marks=pytest.mark.slow)])
def test_storage_duplicates_and_family_are_found_in_every_environment(
    env: str, plants: Any, qualcheck: Any, shared_data: Path, tmp_path: Path
) -> None:
    if env == "libero":
        pytest.importorskip("libero")
    content = plants.recorded(shared_data, env, "real", np.random.default_rng(5), 4)
    twice = np.array([0, 1, 2, 3, 1, 1])
    for name in plants.STEPS:
        if name in content:
            content[name] = content[name][twice]
    content["instructions"] = [content["instructions"][i] for i in twice]
    if "goals" in content:
        content["goals"] = content["goals"][twice]
    for name in ("observations", "next_observations"):
        if name in content and env != "babyai":
            content[name] = np.round(content[name], 2)
    path = plants.write(content, tmp_path / "twice.npy")
    run = qualcheck.score(tmp_path / "run", path, env=env, options=["--recheck", 0, "--restarts", 0])
    notes = "\n".join(line for line in run.done.stdout.splitlines() if line.startswith("  note: "))
    assert "2 rollouts: duplicate" in notes
    if env != "babyai":
        assert "storage: 2 decimals" in notes
    if env in ("metaworld", "clevr"):
        assert "simulator family " in notes
