"""Confusion matrix over random plants in every environment, and excuses of honestly bad files."""

from __future__ import annotations

import sys
import zlib
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

ENVS = ("babyai", "halfcheetah", "metaworld", "clevr", "libero")
QUICK = ("babyai", "halfcheetah")
ROUNDS_OF_PLANTS, ROUNDS_OF_BAD = 7, 5


def _rng(seed: int, *names: str) -> np.random.Generator:
    return np.random.default_rng([seed, zlib.crc32("".join(names).encode())])


def _planted(plants: Any, data: Path, kind: str, env: str, seed: int, path: Path) -> tuple[Path, dict[str, Any]]:
    rng = _rng(seed, kind, env)
    content, options = (plants.walker(data, rng), {}) if kind == "environment" else plants.planted(data, kind, env, rng)
    return plants.write(content, path), options


def _kinds(plants: Any) -> list[tuple[str, str]]:
    cells = [(kind, env) for kind, (_, envs) in plants.PLANTS.items() for env in envs]
    return [*cells, ("environment", "halfcheetah")]


@pytest.mark.parametrize("seed", [100, 101])
def test_plants_of_quick_environments_are_told(
    plants: Any, kinds_of: Any, shared_data: Path, tmp_path: Path, seed: int
) -> None:
    cells = [(kind, env) for kind, env in _kinds(plants) if env in QUICK]
    told = Counter()
    for kind, env in cells:
        path, options = _planted(plants, shared_data, kind, env, seed, tmp_path / f"{kind}{env}.npy")
        told[(kinds_of(path, env, **options) or ["none"])[0] == kind] += 1
    assert told[True] >= len(cells) - 1


def test_honestly_bad_files_of_quick_environments_are_not_excused(
    plants: Any, kinds_of: Any, shared_data: Path, tmp_path: Path
) -> None:
    for env in QUICK:
        for kind in (*plants.BAD, "shared"):
            path = plants.write(plants.bad(shared_data, kind, env, _rng(100, kind, env)), tmp_path / "bad.npy")
            assert kinds_of(path, env) == [], (kind, env)


def test_real_files_of_quick_environments_need_no_explanation(kinds_of: Any, shared_data: Path) -> None:
    for name, env in (("babyai_hard", "babyai"), ("mujoco_rephrase", "halfcheetah")):
        assert kinds_of(shared_data / "golden" / f"{name}.npy", env) == []


@pytest.mark.slow
def test_at_least_95_of_100_plants_are_told_and_no_cell_is_blind(
    plants: Any, kinds_of: Any, shared_data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("libero")
    matrix: Counter[tuple[str, str]] = Counter()
    cells: Counter[tuple[str, str]] = Counter()
    for seed in range(ROUNDS_OF_PLANTS):
        for kind, env in _kinds(plants):
            path, options = _planted(plants, shared_data, kind, env, seed, tmp_path / "planted.npy")
            found = (kinds_of(path, env, **options) or ["none"])[0]
            matrix[kind, found] += 1
            cells[kind, env] += found == kind
    with capsys.disabled():
        sys.stdout.write(_text(matrix))
    total = sum(matrix.values())
    assert total >= 200
    assert sum(n for (kind, found), n in matrix.items() if kind == found) >= 0.95 * total
    assert min(cells.values()) >= ROUNDS_OF_PLANTS / 2, cells


@pytest.mark.slow
def test_no_honestly_bad_file_of_200_is_excused(plants: Any, kinds_of: Any, shared_data: Path, tmp_path: Path) -> None:
    pytest.importorskip("libero")
    excuses, files = [], 0
    for seed in range(ROUNDS_OF_BAD):
        for env in ENVS:
            for kind in (*plants.BAD, "shared"):
                content = plants.bad(shared_data, kind, env, _rng(seed, kind, env, "bad"))
                found = kinds_of(plants.write(content, tmp_path / "bad.npy"), env)
                files += 1
                excuses += [(seed, env, kind, found)] if found else []
    assert files >= 200
    assert excuses == []


def _text(matrix: Counter[tuple[str, str]]) -> str:
    """Planted by row, explained by column."""
    columns = sorted({found for _, found in matrix})
    lines = [f"{'planted':14}" + "".join(f"{name:>14}" for name in columns)]
    for kind in sorted({kind for kind, _ in matrix}):
        lines.append(f"{kind:14}" + "".join(f"{matrix[kind, found]:>14}" for found in columns))
    return "\n" + "\n".join(lines) + "\n"
