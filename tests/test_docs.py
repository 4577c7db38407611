"""The scripts and commands of docs/ do what their text says."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import qualcheck

DOCS = Path(__file__).resolve().parents[1] / "docs"
SHIPPED = Path(qualcheck.__file__).parent / "data/babyai_imagined.parquet"


def _environment(**more: str) -> dict[str, str]:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return {**os.environ, "PATH": path, "PYTHONPATH": os.pathsep.join(sys.path), **more}


def test_the_slurm_script_and_merge_make_the_run_of_one_machine(tmp_path: Path) -> None:
    for task in (1, 2, 3, 2):  # one of them is submitted again
        told = {"SLURM_ARRAY_TASK_ID": str(task), "SLURM_ARRAY_TASK_COUNT": "3", "SLURM_CPUS_PER_TASK": "2"}
        command = [str(DOCS / "slurm.sh"), str(SHIPPED), "babyai"]
        subprocess.run(command, cwd=tmp_path, env=_environment(**told), check=True, capture_output=True)
    merged = "qualcheck merge shards/* -o run"
    assert merged in (DOCS / "scale.md").read_text(encoding="utf-8")
    subprocess.run(merged, shell=True, cwd=tmp_path, env=_environment(), check=True, capture_output=True)
    want = qualcheck.score(SHIPPED, env="babyai", out=tmp_path / "want").path
    for name in ("transitions.parquet", "rollouts.parquet"):
        assert (tmp_path / "run" / name).read_bytes() == (want / name).read_bytes()


def test_every_option_that_the_docs_show_exists() -> None:
    text = "".join(path.read_text(encoding="utf-8") for path in DOCS.glob("*.md")) + (DOCS / "slurm.sh").read_text()
    shown = set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", text)) - {"--head", "--address", "--array", "--job-name"}
    shown -= {"--cpus-per-task", "--mem", "--time"}  # of other programs
    helped = subprocess.run(
        ["qualcheck", "score", "--help"], env=_environment(COLUMNS="200"), capture_output=True, text=True, check=True
    ).stdout
    assert shown
    assert not [option for option in shown if option not in helped]


def test_links_inside_the_docs_lead_somewhere() -> None:
    for page in DOCS.glob("*.md"):
        for link in re.findall(r"\]\(([^)#]+)\)", page.read_text(encoding="utf-8")):
            assert (page.parent / link).exists(), f"{page.name}: {link}"
