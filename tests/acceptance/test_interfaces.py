"""Options, columns, types and keys are those of interfaces.md, and the other way round."""

from __future__ import annotations

import hashlib
import json
import os
import re
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

ROOT = Path(__file__).resolve().parents[2]
COMMANDS = ("score", "filter", "report", "inspect", "envs", "demo", "collect")
LATER = {  # options of interfaces.md that a later issue brings
    "score": {},
    "filter": {},
    "report": {"--html": 11},
    "inspect": {"--gif": 11},
    "envs": {},
    "calibrate": {},
    "convert": {},
    "collect": {},
    "demo": {"--full": 11},
}
TRANSITIONS = {
    "rollout": "int32",
    "step": "int32",
    "tc": "float",
    "tc_strict": "float",
    "tc_error": "float",
    "tc_scaled": "float",
    "tc_scaled_state": "float",
    "skill": "float",
    "tc_code": "string",
    "seeding": "string",
    "dl": "float",
    "dl_rule": "string",
    "reward_error": "float",
}
ROLLOUTS = {
    **dict.fromkeys(("rollout", "source_rollout", "length", "first_fault_step", "first_divergence_step"), "int32"),
    **dict.fromkeys(
        ("source", "env", "level", "generator", "instruction", "task", "task_released", "start", "gc_code"), "string"
    ),
    **dict.fromkeys(("gc_imagined", "gc_replayed", "gc_imagined_released", "gc_replayed_released"), "float"),
    **dict.fromkeys(("consistency", "consistency_replayed", "correctness", "legality", "dl_row0"), "float"),
    **dict.fromkeys(("coverage_tc", "coverage_dl", "scaled_error", "skill"), "float"),
    "trivial": "bool",
    "flags": "list<element: string>",
}
KEYS = (
    "env",
    "level",
    "generator",
    "task",
    "grade",
    "predicates",
    "n_rollouts",
    "n_transitions",
    "n_clusters",
    "goal_consistency",
    "goal_consistency_released",
    "goal_consistency_replayed",
    "fabrication",
    "fabrication_control",
    "fabrication_excess",
    "transition_correctness",
    "transition_correctness_rollout",
    "transition_correctness_strict",
    "ladder",
    "skill_median",
    "dynamics_legality",
    "dynamics_legality_rollout",
    "reward_consistency",
    "floor_noop",
    "floor_random",
    "control",
    "unverifiable",
    "flags",
)


def _promised(shared: Path) -> dict[str, set[str]]:
    """Options of each command in the synopsis of interfaces.md."""
    text = (shared / "design/interfaces.md").read_text(encoding="utf-8")
    block = text.split("```")[1]
    out: dict[str, set[str]] = {}
    for piece in re.split(r"\bqualcheck\b|\s{4,}(?=inspect )", block):
        words = piece.split()
        if words and words[0] in COMMANDS:
            out.setdefault(words[0], set()).update(re.findall(r"(?<![\w-])--?[a-z][a-z0-9-]*", piece))
    return out


def _offered(qualcheck: Any, command: str) -> set[str]:
    """Options of each command in its own help."""
    done = qualcheck(command, "--help", env={"COLUMNS": "200", "NO_COLOR": "1", "TERM": "dumb"})
    assert done.returncode == 0, done.stderr
    found = set()
    for line in done.stdout.splitlines():
        match = re.match(r"^[│|]\s+\*?\s*(--[a-z][a-z0-9-]*)((?:[\s,]+-{1,2}[a-z][a-z0-9-]*)*)", line)
        if match:
            found |= {match[1], *match[2].replace(",", " ").split()}
    assert "--help" in found
    return found - {"--help", "-h"}


def test_the_synopsis_is_understood(shared: Path) -> None:
    promised = _promised(shared)
    assert {"--env", "--grade", "--strict", "--last-action", "-o"} <= promised["score"]
    assert {"--mode", "--like-input", "--json", "-o"} <= promised["filter"]
    assert {"--format", "--html", "--fail-under"} <= promised["report"]
    assert {"--gif", "--json", "--starts"} <= promised["inspect"]


@pytest.mark.parametrize("command", COMMANDS)
def test_every_option_offered_is_documented(command: str, qualcheck: Any, shared: Path) -> None:
    changes = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    extra = set()
    for option in _offered(qualcheck, command) - _promised(shared).get(command, set()) - {"--out", "-o"}:
        lines = re.findall(r"[^.;]*`[^`]*" + re.escape(option) + r"(?![\w-])[^`]*`[^.;]*", changes, re.S)
        if not any(f"`{command}" in line or command in line for line in lines):
            extra.add(option)
    assert not extra, "neither in interfaces.md nor, with its command, in the CHANGELOG"


@pytest.mark.parametrize("command", COMMANDS)
def test_every_documented_option_is_offered_or_comes_with_a_later_issue(
    command: str, qualcheck: Any, shared: Path
) -> None:
    missing = _promised(shared).get(command, set()) - _offered(qualcheck, command)
    assert missing == set(LATER[command])


def test_both_tables_have_the_documented_columns_and_types(scored: Any) -> None:
    run, _ = scored("mutated/babyai_mutated.npy")
    for name, columns in (("transitions.parquet", TRANSITIONS), ("rollouts.parquet", ROLLOUTS)):
        schema = pq.read_schema(run.path / name)
        for column, kind in columns.items():
            assert str(schema.field(column).type) == kind, f"{name}: {column}"
    schema = pq.read_schema(run.path / "transitions.parquet")
    blocks = [column for column in schema.names if column.startswith("err_")]
    assert len(blocks) >= 5
    metadata = schema.metadata or {}
    for block in blocks:
        assert schema.field(block).type == pa.float32()
        assert any(block.encode() in key for key in metadata), f"no unit for {block}"


def test_columns_beyond_the_documented_ones_stand_in_the_changelog(scored: Any) -> None:
    run, _ = scored("mutated/babyai_mutated.npy")
    changes = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    for name, columns in (("transitions.parquet", TRANSITIONS), ("rollouts.parquet", ROLLOUTS)):
        names = pq.read_schema(run.path / name).names
        extra = {column for column in names if column not in columns and not column.startswith("err_")}
        assert all(f"`{column}`" in changes for column in extra), extra


def test_tc_error_is_the_sum_of_the_wrong_fields_of_the_blocks(scored: Any) -> None:
    run, _ = scored("mutated/babyai_mutated.npy")
    t = run.t
    blocks = np.stack([t[name] for name in t if name.startswith("err_")])
    known = ~np.isnan(t["tc"])
    finite = known & np.isfinite(blocks).all(0)
    assert finite.sum() > 16_000
    assert np.array_equal(blocks[:, finite].sum(0), t["tc_error"][finite])


def test_a_run_folder_holds_three_files_and_the_manifest_names_everything(scored: Any) -> None:
    run, _ = scored("mutated/babyai_mutated.npy")
    names = {path.name for path in run.path.iterdir()}
    assert names == {"manifest.json", "transitions.parquet", "rollouts.parquet"}
    manifest = run.manifest
    assert {"results", "run"} <= set(manifest)
    text = json.dumps(manifest)
    source = Path(run.r["source"][0])
    assert hashlib.sha256(source.read_bytes()).hexdigest() in text
    for word in ("minigrid", "numpy", "qualcheck", "seed", "last_action", "definitions"):
        assert word in text, word


def test_the_report_has_the_documented_keys(scored: Any, qualcheck: Any) -> None:
    run, _ = scored("mutated/babyai_mutated.npy")
    report = qualcheck.report(run.path)
    assert report["schema"] == 1
    assert report["definitions"] == 1
    assert len(report["cells"]) == 1
    cell = report["cells"][0]
    assert set(KEYS) <= set(cell)
    shares = [key for key in KEYS if isinstance(cell[key], dict) and "value" in cell[key]]
    assert {"goal_consistency", "transition_correctness", "dynamics_legality", "reward_consistency"} <= set(shares)
    for key in shares:
        assert {"value", "low", "high", "n", "coverage", "low_all", "high_all"} <= set(cell[key]), key
    for key in KEYS:
        if cell[key] is None and key != "task":
            assert cell[f"{key}_reason"], key
    assert cell["n_rollouts"] == 906
    assert cell["n_transitions"] == 16_816
    assert cell["n_clusters"] <= 906


def test_the_results_are_equal_bytes_in_two_runs(qualcheck: Any, shared_data: Path, tmp_path: Path) -> None:
    source = shared_data / "mutated/babyai_mutated.npy"
    runs = [qualcheck.score(tmp_path / name, source) for name in ("one", "two")]
    texts = [json.dumps(run.manifest["results"], sort_keys=True) for run in runs]
    assert texts[0] == texts[1]
    for name in ("transitions.parquet", "rollouts.parquet"):
        assert (runs[0].path / name).read_bytes() == (runs[1].path / name).read_bytes()
    raw = [(run.path / "manifest.json").read_text(encoding="utf-8") for run in runs]
    assert raw[0] != raw[1]


def test_another_seed_changes_no_verdict(scored: Any, qualcheck: Any, shared_data: Path, tmp_path: Path) -> None:
    run, _ = scored("mutated/babyai_mutated.npy")
    other = qualcheck.score(tmp_path / "run", shared_data / "mutated/babyai_mutated.npy", options=["--seed", 5])
    for name in ("tc", "dl", "reward_error"):
        assert np.array_equal(run.t[name], other.t[name], equal_nan=True)


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_shell_completion_is_printed(shell: str, qualcheck: Any) -> None:
    done = qualcheck(env={"_QUALCHECK_COMPLETE": f"source_{shell}"})
    assert done.returncode == 0, done.stderr
    assert "_QUALCHECK_COMPLETE" in done.stdout


def test_show_completion_prints_a_script(qualcheck: Any) -> None:
    done = qualcheck(
        "--show-completion", env={"SHELL": "/bin/bash", "_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"}
    )
    other = qualcheck("--show-completion", "bash", env={"_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"})
    assert any(one.returncode == 0 and "COMPLETE" in one.stdout for one in (done, other)), done.stderr + other.stderr


def test_completion_offers_the_commands(qualcheck: Any) -> None:
    done = qualcheck(
        env={"_QUALCHECK_COMPLETE": "complete_bash", "COMP_WORDS": "qualcheck ", "COMP_CWORD": "1"},
    )
    assert {"score", "filter", "report", "inspect", "envs", "demo"} <= set(done.stdout.split())


def _imports(code: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env={**os.environ}, cwd="/"
    )
    return done.stdout


def test_import_is_fast_and_needs_no_simulator() -> None:
    code = (
        "import time, sys; begin = time.perf_counter(); import qualcheck; "
        "print(time.perf_counter() - begin, *sorted({name.split('.')[0] for name in sys.modules}))"
    )
    answers = [_imports(code).split() for _ in range(5)]
    assert statistics.median(float(answer[0]) for answer in answers) < 0.3
    loaded = set(answers[0][1:])
    assert "qualcheck" in loaded
    assert not loaded & {"pandas", "minigrid", "gymnasium", "torch", "mujoco", "metaworld", "ray", "scipy"}


def test_scoring_loads_no_simulator_of_another_environment(shared_data: Path, tmp_path: Path) -> None:
    source, out = shared_data / "formats/babyai_easy.parquet", tmp_path / "run"
    code = (
        "import sys; sys.argv = ['qualcheck', 'score', " + repr(str(source)) + ", '--env', 'babyai', '--recheck', '0', "
        "'-o', " + repr(str(out)) + "]\n"
        "from qualcheck.cli import main\n"
        "try:\n main()\nexcept SystemExit as end:\n code = end.code\n"
        "print('LOADED', *sorted({name.split('.')[0] for name in sys.modules}))"
    )
    loaded = set(_imports(code).split("LOADED")[1].split())
    assert not loaded & {"torch", "mujoco", "metaworld", "ray"}


def test_the_package_works_as_a_module_and_says_its_version(qualcheck: Any) -> None:
    done = subprocess.run([sys.executable, "-m", "qualcheck", "--version"], capture_output=True, text=True)
    assert done.returncode == 0
    assert re.search(r"\d+\.\d+\.\d+", done.stdout)
    assert qualcheck("--version").stdout == done.stdout


def test_no_progress_bar_stands_in_a_pipe(qualcheck: Any, shared_data: Path, tmp_path: Path) -> None:
    source = shared_data / "golden/babyai_real.npy"
    run = qualcheck.score(tmp_path / "run", source)
    both = run.done.stdout + run.done.stderr
    assert "\r" not in both
    assert "\x1b" not in both
    assert run.done.stderr == ""


def test_envs_lists_the_environment_its_tasks_and_rules(qualcheck: Any) -> None:
    done = qualcheck("envs")
    assert done.returncode == 0
    assert "babyai" in done.stdout
    facts = json.loads(qualcheck("envs", "--json").stdout)["babyai"]
    tasks = {task for level in facts["tasks"].values() for task in level}
    wanted = {
        "goto",
        "open",
        "pickup",
        "putnext",
        "open_go",
        "open_pick",
        "go_wall",
        "go_center",
        "open_lock",
        "put_line",
        "put_pile",
    }
    assert wanted <= tasks
    assert facts["judging_grade"] == "exact"
    assert len(facts["rules"]) >= 20
    assert all(rule.split(".")[0] in ("row", "context", "step", "row0", "reset") for rule in facts["rules"])


def test_rules_that_fire_are_rules_that_are_listed(qualcheck: Any, scored: Any) -> None:
    facts = json.loads(qualcheck("envs", "--json").stdout)["babyai"]
    for name in ("mutated/babyai_mutated.npy", "imagined/imag_babyai_easy.npy"):
        run, _ = scored(name)
        assert {rule for rule in run.t["dl_rule"] if rule} <= set(facts["rules"])


def test_inspect_shows_the_verdicts_of_the_table(qualcheck: Any, scored: Any, shared_data: Path) -> None:
    run, content = scored("mutated/babyai_mutated.npy")
    labels = np.load(shared_data / "mutated/babyai_mutated_labels.npz")
    rollout = int(np.flatnonzero(labels["fault"] == "agent_teleport")[0])
    step = int(labels["fault_step"][rollout])
    done = qualcheck("inspect", run.path, f"{rollout}:{step}")
    assert done.returncode == 0, done.stderr
    assert "agent" in done.stdout
    whole = qualcheck("inspect", run.path, str(rollout))
    assert whole.returncode == 0, whole.stderr
    code = run.steps(rollout, "tc_code")[step]
    assert code in whole.stdout or run.steps(rollout, "dl_rule")[step] in whole.stdout
    facts = json.loads(qualcheck("inspect", run.path, f"{rollout}:{step}", "--json").stdout)
    columns = facts["columns"]
    assert [column["imagined"] for column in columns] == content["next_observations"][rollout, step].tolist()
    assert any(column["differs"] for column in columns)
    assert not qualcheck("inspect", run.path, str(rollout), "--json").stdout.count("NaN")


def test_the_demo_runs_from_another_folder(qualcheck: Any, tmp_path: Path) -> None:
    done = qualcheck("demo", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "babyai" in done.stdout
    assert list(tmp_path.iterdir()) == []
