"""Every command of the README is run, and prints what the README shows."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", README, flags=re.M | re.S)


def console() -> list[tuple[str, list[str]]]:
    """(command, expected lines) in order."""
    steps: list[tuple[str, list[str]]] = []
    for line in "".join(blocks("console")).splitlines():
        if line.startswith("$ "):
            steps.append((line[2:], []))
        else:
            steps[-1][1].append(line)
    return steps


def plain(text: str) -> str:
    """Without what differs from run to run."""
    return re.sub(r"\d+\.\d+ s\b", "N s", text).rstrip()


def environment() -> dict[str, str]:
    return {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}", "COLUMNS": "100"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("readme")


def test_the_console_session_prints_what_the_readme_shows(folder: Path) -> None:
    place = folder
    for command, expected in console():
        if command.startswith("cd "):
            place = place / command[3:]
            continue
        done = subprocess.run(command, shell=True, cwd=place, env=environment(), capture_output=True, text=True)
        assert done.returncode == 0, (command, done.stderr)
        if expected and expected != ["..."]:
            assert plain(done.stdout) == plain("\n".join(expected)), command
        elif expected:
            assert done.stdout.strip(), command


def test_the_demo_prints_what_the_first_screen_shows(tmp_path: Path) -> None:
    done = subprocess.run(["qualcheck", "demo"], cwd=tmp_path, env=environment(), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    shown = plain(blocks("text")[0]).split("\n...\n")
    printed = plain(done.stdout)
    for part in shown:
        assert part in printed
        printed = printed[printed.index(part) + len(part) :]
    assert list(tmp_path.iterdir()) == []


def test_the_python_lines_run(folder: Path) -> None:
    code = "".join(blocks("python"))
    subprocess.run("qualcheck demo -o python", shell=True, cwd=folder, env=environment(), check=True)
    place = folder / "python"
    done = subprocess.run([sys.executable, "-c", code], cwd=place, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("env,level,generator,task")


def test_set_up_commands_are_those_that_ci_runs() -> None:
    install_and_demo, install_and_test = (line.strip() for block in blocks("bash") for line in block.splitlines())
    script = (ROOT / ".ci/run").read_text()
    for part in install_and_test.split(" && "):
        assert part in script
    assert install_and_demo == install_and_test.replace("-e '.[dev]'", ".").replace("pytest -n 2", "qualcheck demo")


def test_every_command_of_the_program_stands_in_the_readme() -> None:
    shown = subprocess.run(["qualcheck", "--help"], env=environment(), capture_output=True, text=True, check=True)
    commands = set(re.findall(r"^│ (\w+)", shown.stdout, flags=re.M))
    assert commands >= {"score", "filter", "report", "inspect", "envs", "demo"}
    mentioned = set(re.findall(r"qualcheck (\w+)", README)) & commands
    assert commands == mentioned
