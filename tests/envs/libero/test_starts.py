"""The nine released files of starts, and files that are none."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from qualcheck.envs.libero.starts import judge_starts, one_sign

UNIQUE = {
    "pick_alphabet_soup": (59, 50),
    "pick_cream_cheese": (52, 48),
    "pick_salad_dressing": (59, 50),
}
SUNK = {"pick_cream_cheese": 1000, "place_cream_cheese": 929, "safe_cream_cheese": 919}
NAMES = [f"{way}_{name}" for way in ("pick", "place", "safe") for name in
         ("alphabet_soup", "cream_cheese", "salad_dressing")]  # fmt: skip


def released(shared_data: Path, name: str) -> Any:
    return np.load(shared_data / "real" / f"imaginebench_libero_{name}_inits.npz")["observations"]


@pytest.mark.parametrize("name", NAMES)
def test_released_files_are_counted_and_the_bottle_in_the_floor_is_named(name: str, shared_data: Path) -> None:
    found = judge_starts(released(shared_data, name))
    assert found.n_rows == 1000
    assert (found.unique, found.unique_close) == UNIQUE.get(name, (1000, 1000))
    assert {rule: int(rows.sum()) for rule, rows in found.broken.items()} == (
        {"row.floor_penetration": SUNK[name]} if name in SUNK else {}
    )
    assert found.n_broken == SUNK.get(name, 0)
    assert (found.facts["lowest_point_of_salad_dressing_m"] < -0.034) == (name in SUNK)


def test_both_signs_of_a_quaternion_are_accepted(shared_data: Path) -> None:
    obs = np.array(released(shared_data, "pick_salad_dressing"))
    other = obs.copy()
    other[::2, 10:14] *= -1
    other[:, 33:37] *= -1
    assert np.allclose(one_sign(other), one_sign(obs), atol=1e-12)
    found = judge_starts(other)
    assert found.broken == {}
    assert found.unique_close == 50
    assert found.unique > 59


def test_each_fault_of_a_start_is_named(row: Any) -> None:
    rows = np.array([row(), row(), row(), row(), row()])
    rows[1, 3] = np.nan
    rows[2, 10:14] *= 1.2
    rows[3, 16] += 0.3
    found = judge_starts(rows)
    assert {rule: np.flatnonzero(hit).tolist() for rule, hit in found.broken.items()} == {
        "row.finite": [1],
        "row.unit_quaternion": [2],
        "row0.objects": [3],
    }
    assert (found.n_rows, found.n_broken, found.unique, found.unique_close) == (5, 3, 4, 4)


def test_starts_of_another_task_are_told_apart(shared_data: Path) -> None:
    rows = released(shared_data, "pick_alphabet_soup")
    assert judge_starts(rows, task="pick-alphabet_soup").broken == {}
    assert judge_starts(rows, task="pick-salad_dressing").broken["row0.objects"].all()


def test_no_rows_are_no_fault() -> None:
    found = judge_starts(np.zeros((0, 44)))
    assert (found.n_rows, found.unique, found.n_broken) == (0, 0, 0)
    assert np.isnan(found.facts["lowest_point_of_basket_m"])
