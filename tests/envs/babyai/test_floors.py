"""The shipped floors are measured ones and agree with those measured in the benchmark itself."""

from __future__ import annotations

import json
from importlib.resources import files
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from qualcheck.envs.babyai import floors, goals
from qualcheck.errors import UnknownName

# random policy, 128 steps, 100 episodes each in the benchmark's own environment (spec/benchmark_defects.md)
MEASURED_ELSEWHERE = {
    "go_wall": 100,
    "go_center": 94,
    "goto": 53,
    "open": 25,
    "pickup": 23,
    "putnext": 15,
    "open_go": 13,
    "put_line": 8,
    "put_pile": 1,
    "open_lock": 0,
}


@pytest.mark.parametrize("task", goals.TASK_IDS)
@pytest.mark.parametrize("policy", ["noop", "random"])
@pytest.mark.parametrize("horizon", [128, 39])
def test_every_task_policy_and_horizon_is_shipped(task: str, policy: str, horizon: int) -> None:
    for predicates in ("intended", "released"):
        found = floors.shipped(task, policy, horizon, predicates)
        assert found is not None
        assert 0 <= found[0] <= found[1] == 1_000


@pytest.mark.parametrize(("task", "hits"), MEASURED_ELSEWHERE.items())
def test_random_floor_agrees_with_the_benchmarks_own(task: str, hits: int) -> None:
    found = floors.shipped(task, "random", 128, "released")
    assert found is not None
    low, high = stats.binomtest(hits, 100).proportion_ci(0.95)
    assert low <= found[0] / found[1] <= high


def test_doing_nothing_only_keeps_goals_that_held_at_the_start() -> None:
    shares = {task: (floors.shipped(task, "noop", 128) or (-1, 1))[0] / 1_000 for task in goals.TASK_IDS}
    assert 0.07 < shares.pop("putnext") < 0.14
    assert 0.01 < shares.pop("put_line") < 0.05
    assert 0.005 < shares.pop("put_pile") < 0.03
    assert 0 < shares.pop("goto") < 0.02  # a start in front of the named door
    assert set(shares.values()) == {0.0}


def test_released_open_pick_is_never_reached() -> None:
    assert floors.shipped("open_pick", "random", 128, "released") == (0, 1_000)
    intended = floors.shipped("open_pick", "random", 128)
    assert intended is not None
    assert intended[0] > 20


@pytest.mark.parametrize("task", goals.TASK_IDS)
@pytest.mark.parametrize("policy", ["noop", "random"])
def test_a_longer_horizon_never_has_fewer_successes(task: str, policy: str) -> None:
    short, long = (floors.shipped(task, policy, horizon) for horizon in (39, 128))
    assert short is not None
    assert long is not None
    assert long >= short


@pytest.mark.parametrize(
    ("task", "policy", "horizon"), [("goto", "expert", 128), ("goto", "noop", 64), ("fly", "noop", 39)]
)
def test_what_was_not_measured_is_none(task: str, policy: str, horizon: int) -> None:
    assert floors.shipped(task, policy, horizon) is None


def test_shipped_table_is_what_its_command_makes(tmp_path: Path) -> None:
    kept = json.loads(files("qualcheck.envs.babyai").joinpath("floors.json").read_text("utf-8"))
    floors.main(["-o", str(tmp_path / "floors.json")])
    made = json.loads((tmp_path / "floors.json").read_text("utf-8"))
    assert made["floors"] == kept["floors"]
    assert {row["episodes"] for row in (made, kept)} == {1_000}
    assert set(kept["made_with"]) == {"qualcheck", "numpy"}


def test_measuring_again_agrees_with_the_shipped_table() -> None:
    hits, episodes = floors.measure("goto", "random", 39, 1_000, np.random.default_rng(99))
    shipped = floors.shipped("goto", "random", 39)
    assert shipped is not None
    assert episodes == 1_000
    assert stats.fisher_exact([[hits, episodes - hits], [shipped[0], shipped[1] - shipped[0]]]).pvalue > 0.001
    again = floors.measure("goto", "random", 39, 1_000, np.random.default_rng(99))
    assert again == (hits, episodes)


def test_unknown_names_are_refused_with_the_known_ones() -> None:
    rng = np.random.default_rng(0)
    with pytest.raises(UnknownName, match="goto"):
        floors.measure("gotoo", "random", 39, 10, rng)
    with pytest.raises(UnknownName, match="noop"):
        floors.measure("goto", "still", 39, 10, rng)
    with pytest.raises(UnknownName, match="released"):
        floors.measure("goto", "noop", 39, 10, rng, predicates="real")
