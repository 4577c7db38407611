"""The shipped floor tables: complete, hashed, with intervals that hold what was measured in the benchmark."""

from __future__ import annotations

import json

import pytest

from qualcheck import floor_tables
from qualcheck.errors import DataError
from qualcheck.floor_tables import digest, sealed, shipped_table
from qualcheck.registry import load
from qualcheck.stats import clopper_pearson

STARTS = {"babyai": 1_000, "halfcheetah": 1_000, "clevr": 1_000, "libero": 50, "metaworld": 200}
HORIZONS = {
    "babyai": (39, 128),
    "halfcheetah": (100, 200),
    "clevr": (50,),
    "libero": (100, 150, 500),
    "metaworld": (100,),
}


@pytest.mark.parametrize("env", STARTS)
def test_every_task_has_its_floors_with_an_interval_each(env: str) -> None:
    table, adapter = shipped_table(env), load(env)
    assert table["episodes"] == STARTS[env]
    assert table["sha256"] == digest(table)
    assert "mujoco" in table["made_with"] or env == "babyai"
    assert adapter.spec.horizon == HORIZONS[env][-1]
    policies = ("random",) if env == "clevr" else ("noop", "random")
    expected = set()
    for task in {task for tasks in adapter.tasks().values() for task in tasks}:
        for policy in policies:
            for horizon in HORIZONS[env]:
                won, n = adapter.floor(task, policy, horizon) or (-1, 0)
                name = f"{task} {policy} intended {horizon}"
                expected.add(name)
                assert table["intervals"][name] == pytest.approx(clopper_pearson(won, n), abs=1e-4)
    assert expected <= set(table["intervals"])
    adapter.close()


@pytest.mark.parametrize(
    ("env", "task", "policy", "measured"),
    [
        *(("babyai", task, "random", won) for task, won in
          (("go_wall", 100), ("go_center", 94), ("goto", 53), ("open", 25), ("pickup", 23), ("putnext", 15),
           ("open_go", 13), ("put_line", 8), ("put_pile", 1), ("open_lock", 0))),
        ("halfcheetah", "jump-in-place", "noop", 100),
        ("halfcheetah", "jump-forward", "noop", 45),
        ("halfcheetah", "jump-backward", "noop", 72),
    ],
)  # fmt: skip
def test_floors_are_those_measured_in_the_benchmark_within_the_interval(
    env: str, task: str, policy: str, measured: int
) -> None:
    won, n = load(env).floor(task, policy, HORIZONS[env][-1]) or (-1, 1)
    low, high = clopper_pearson(measured, 100)
    assert low <= won / n <= high


def test_a_changed_table_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    table = sealed({"episodes": 10, "floors": []}, [floor_tables.Count("goto", "noop", "intended", 5, 3)])
    assert table["intervals"] == {"goto noop intended 5": [0.0667, 0.6525]}
    spoilt = {**table, "episodes": 11}
    assert digest(spoilt) != table["sha256"]
    monkeypatch.setattr(json, "loads", lambda _text: spoilt)
    with pytest.raises(DataError, match="its hash is not that of its content"):
        shipped_table("babyai")
