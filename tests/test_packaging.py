"""What the wheel must hold, and that it works where nothing else is installed."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
FOLDERS = {
    "qualcheck": "qualcheck",
    "envs": "qualcheck.envs",
    "filters": "qualcheck.filters",
    "reports": "qualcheck.reports",
}


def project() -> dict:
    return tomllib.loads((ROOT / "pyproject.toml").read_text())


def packages_on_disk() -> dict[str, Path]:
    found = {}
    for folder, package in FOLDERS.items():
        for place, folders, files in os.walk(ROOT / folder):  # follows no links
            folders[:] = [name for name in folders if name != "__pycache__"]
            if any(name.endswith(".py") for name in files):
                inner = Path(place).relative_to(ROOT / folder).parts
                found[".".join([package, *inner])] = Path(place)
    return found


def test_every_package_on_disk_is_listed_for_the_wheel():
    assert sorted(packages_on_disk()) == sorted(project()["tool"]["setuptools"]["packages"])


def test_every_data_file_is_listed_for_the_wheel():
    disk = packages_on_disk()
    listed = project()["tool"]["setuptools"]["package-data"]
    patterns = [str(disk[package] / pattern) for package, names in listed.items() for pattern in names]
    files = [path for place in disk.values() for path in place.rglob("*") if path.is_file() and path.suffix != ".py"]
    found = {path for path in files if "__pycache__" not in path.parts}  # where numba caches what it compiled, too
    assert found
    assert [path for path in sorted(found) if not any(path.match(pattern) for pattern in patterns)] == []


def test_the_links_point_to_the_folders_beside_the_package():
    for name in ("envs", "filters", "reports"):
        link = ROOT / "qualcheck" / name
        assert link.is_symlink()
        assert link.resolve() == ROOT / name


def test_import_is_fast_and_light():
    code = (
        "import sys, time; t = time.perf_counter(); import qualcheck; d = time.perf_counter() - t;"
        "print(d, [m for m in ('pandas', 'minigrid', 'torch', 'pyarrow', 'mujoco', 'scipy.stats') if m in sys.modules])"
    )
    runs = [subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True) for _ in range(5)]
    seconds = sorted(float(run.stdout.split()[0]) for run in runs)
    assert seconds[2] < 0.3
    assert all(run.stdout.strip().endswith("[]") for run in runs)


@pytest.mark.skipif("QUALCHECK_TEST_WHEEL" not in os.environ, reason="CI builds the wheel; it takes two minutes")
def test_the_wheel_works_alone_from_another_folder(tmp_path):
    run = {"check": True, "capture_output": True, "text": True}
    subprocess.run([sys.executable, "-m", "build", "--outdir", str(tmp_path / "dist"), str(ROOT)], **run)
    wheel = next((tmp_path / "dist").glob("*.whl"))
    names = zipfile.ZipFile(wheel).namelist()
    assert "qualcheck/py.typed" in names
    assert not [name for name in names if name.startswith(("envs/", "filters/", "reports/", "tests/"))]
    subprocess.run([sys.executable, "-m", "venv", str(tmp_path / "venv")], **run)
    subprocess.run([str(tmp_path / "venv/bin/pip"), "install", "-q", str(wheel)], **run)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    clean = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    shown = subprocess.run([str(tmp_path / "venv/bin/qualcheck"), "demo"], cwd=elsewhere, env=clean, **run)
    assert "transition correctness" in shown.stdout.lower()
    code = (
        "import numpy as np, qualcheck; o = np.random.default_rng(0).normal(0, 0.1, (20, 17))\n"
        "run = qualcheck.score(o, np.zeros((20, 6)), o, env='halfcheetah')\n"
        "assert run.manifest['results']['referee'] == {'checked': 20, 'agreed': 20, 'refused_by_both': 0}\n"
    )
    subprocess.run([str(tmp_path / "venv/bin/python"), "-c", code], cwd=elsewhere, env=clean, **run)
    assert list(elsewhere.iterdir()) == []


def test_every_verb_is_a_function_also_when_all_modules_are_imported():
    code = (
        "import pkgutil, importlib, qualcheck\n"
        "for found in pkgutil.iter_modules(qualcheck.__path__, 'qualcheck.'):\n"
        "    if found.name != 'qualcheck.__main__': importlib.import_module(found.name)\n"
        "assert all(callable(getattr(qualcheck, verb)) for verb in qualcheck.__all__ if verb != '__version__')\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
