"""Audits on a budget: what is drawn, when it is enough, and what the intervals of such runs are worth."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import qualcheck
from qualcheck.errors import UsageError
from qualcheck.sampling import look_sizes, proportional_order
from qualcheck.stats import LEVEL, clopper_pearson, korn_graubard

SHIPPED = Path(qualcheck.__file__).parent / "data/babyai_imagined.parquet"
REAL = SHIPPED.with_name("babyai_real.parquet")


def _tables(run: Path) -> list[bytes]:
    return [(run / name).read_bytes() for name in ("transitions.parquet", "rollouts.parquet")]


def test_every_beginning_of_the_order_holds_the_strata_in_proportion() -> None:
    stratum = np.repeat([0, 1, 2], [600, 90, 10])
    order = proportional_order(stratum, np.random.default_rng(3))
    assert sorted(order.tolist()) == list(range(700))
    for n in (70, 140, 350, 630):
        drawn = np.bincount(stratum[order[:n]], minlength=3)
        assert np.abs(drawn - n * np.array([600, 90, 10]) / 700).max() <= 2


def test_every_rollout_is_drawn_equally_often() -> None:
    stratum = np.repeat([0, 1, 2], [24, 12, 4])
    drawn = np.zeros(40)
    for seed in range(2_000):
        drawn[proportional_order(stratum, np.random.default_rng(seed))[:10]] += 1
    assert np.abs(drawn / 2_000 - 0.25).max() < 5 * np.sqrt(0.25 * 0.75 / 2_000)


def test_looks_double_until_nothing_is_left() -> None:
    assert look_sizes(10) == [10]
    assert look_sizes(64) == [64]
    assert look_sizes(1_000) == [64, 128, 256, 512, 1_000]
    assert look_sizes(0) == [0]


def test_a_sample_scores_so_many_rollouts_as_the_whole_run_does(tmp_path: Path) -> None:
    whole = qualcheck.score(SHIPPED, env="babyai", out=tmp_path / "whole").rollouts().to_pandas()
    run = qualcheck.score([REAL, SHIPPED], env="babyai", out=tmp_path / "part", sample=50)
    part, seen = run.rollouts().to_pandas(), run.manifest["results"]["sample"]
    real = qualcheck.score(REAL, env="babyai", out=tmp_path / "real").manifest["results"]["counts"]["rollouts"]
    assert (len(part), seen["rollouts"], seen["of"]) == (50, 50, 332 + real)
    assert part["rollout"].tolist() == list(range(50))
    first, second = seen["order"][0]
    assert len(first) + len(second) == 50
    columns = ["instruction", "length", "correctness", "legality", "gc_imagined", "gc_replayed", "first_fault_step"]
    told = part[len(first) :].reset_index(drop=True)
    assert told[columns].equals(whole.iloc[second].reset_index(drop=True)[columns])
    assert run.manifest["results"]["findings"][0].startswith("sample: 50 of ")
    again = qualcheck.score([REAL, SHIPPED], env="babyai", out=tmp_path / "again", sample=50)
    assert _tables(again.path) == _tables(run.path)
    other = qualcheck.score([REAL, SHIPPED], env="babyai", out=tmp_path / "other", sample=50, seed=1)
    assert other.manifest["results"]["sample"]["order"] != seen["order"]


def test_a_sample_larger_than_the_file_is_the_file(tmp_path: Path) -> None:
    run = qualcheck.score(SHIPPED, env="babyai", out=tmp_path / "run", sample=9_999)
    assert _tables(run.path) == _tables(qualcheck.score(SHIPPED, env="babyai", out=tmp_path / "whole").path)
    assert run.manifest["results"]["findings"][0] == "sample: all 332 rollouts were scored"
    qualcheck.filter(run.path, out=tmp_path / "kept.parquet", min_consistency=1)


def test_scoring_stops_when_the_intervals_are_narrow_enough(tmp_path: Path) -> None:
    for target, most in ((0.25, 256), (0.02, 332)):
        run = qualcheck.score(SHIPPED, env="babyai", out=tmp_path / f"run{target}", target_width=target)
        seen = run.manifest["results"]["sample"]
        assert seen["rollouts"] <= most
        assert seen["level"] == pytest.approx(1 - 0.05 / 4)  # 64, 128, 256, 332
        assert (seen["rollouts"] == 332) == (target == 0.02)
        table = run.rollouts().to_pandas()
        wide = clopper_pearson(table["gc_imagined"].sum(), len(table), seen["level"])
        assert (wide.high - wide.low <= target) == (target == 0.25)
        (cell, *_) = json.loads(qualcheck.report(run, "json"))["cells"]
        mine = table[(table["level"] == cell["level"]) & (table["generator"] == cell["generator"])]
        told = clopper_pearson(mine["gc_imagined"].sum(), len(mine), seen["level"])
        assert (cell["goal_consistency"]["low"], cell["goal_consistency"]["high"]) == pytest.approx(tuple(told))
        shown = qualcheck.inspect(run.path, len(table) - 1, 0)
        assert shown["instruction"] == table["instruction"].iloc[-1]
        with pytest.raises(UsageError, match="A filter needs"):
            qualcheck.filter(run.path, out=tmp_path / "kept.parquet")


def test_inspect_finds_the_rows_of_a_sampled_rollout(tmp_path: Path) -> None:
    run = qualcheck.score([REAL, SHIPPED], env="babyai", out=tmp_path / "run", target_width=0.2)
    steps = run.transitions(["rollout", "step", "tc", "tc_error"]).to_pandas()
    wrong = steps[(steps["tc"] == 0) & (steps["tc_error"] > 0)]
    assert len(wrong)
    for rollout, step in wrong[["rollout", "step"]].iloc[:5].itertuples(index=False):
        shown = qualcheck.inspect(run.path, int(rollout), int(step))
        differ = sum(column["differs"] for column in shown["columns"])
        assert differ == steps["tc_error"][(steps["rollout"] == rollout) & (steps["step"] == step)].iloc[0]


@pytest.mark.parametrize(
    "options",
    [
        {"sample": 0},
        {"sample": -3},
        {"sample": 1.5},
        {"target_width": 0.0},
        {"target_width": 1.0},
        {"target_width": -0.1},
        {"target_width": float("nan")},
        {"sample": 10, "target_width": 0.1},
    ],
)
def test_budgets_that_make_no_sense_are_refused(options: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"--sample|--target-width"):
        qualcheck.score(SHIPPED, env="babyai", out=tmp_path / "run", **options)
    assert list(tmp_path.iterdir()) == []


def _stopped(p: float, target: float, clusters: int, correlation: float, rng: np.random.Generator) -> bool:
    """One sequential audit of a file of rollouts of 5 to 30 steps: does its last interval hold the file's rate?"""
    length = rng.integers(5, 31, clusters)
    if correlation >= 1:
        share = (rng.random(clusters) < p).astype(float)
    elif correlation > 0:
        size = (1 - correlation) / correlation
        share = rng.beta(max(p * size, 1e-9), max((1 - p) * size, 1e-9), clusters)
    else:
        share = np.full(clusters, p)
    passes = rng.binomial(length, share)
    truth = passes.sum() / length.sum()
    order = proportional_order(rng.integers(0, 4, clusters), rng)
    sizes = look_sizes(clusters)
    level = 1 - (1 - LEVEL) / len(sizes)
    for size in sizes:
        mine = order[:size]
        found = korn_graubard(passes[mine], length[mine], level)
        if found.high - found.low <= target:
            break
    return bool(found.low <= truth <= found.high)


@pytest.mark.parametrize(("p", "target", "correlation"), [(0.5, 0.1, 0.2), (0.9, 0.1, 1.0), (0.99, 0.05, 0.2)])
def test_intervals_hold_although_the_data_decide_when_to_stop(p: float, target: float, correlation: float) -> None:
    rng = np.random.default_rng(7)
    held = sum(_stopped(p, target, 1_500, correlation, rng) for _ in range(200))
    assert held >= 0.95 * 200 - 2 * np.sqrt(200 * 0.05 * 0.95)


@pytest.mark.slow
@pytest.mark.parametrize("p", [0.5, 0.9, 0.99, 1.0])
@pytest.mark.parametrize("target", [0.3, 0.1, 0.03])
@pytest.mark.parametrize("correlation", [0.0, 0.2, 1.0])
def test_sequential_stopping_keeps_its_coverage(p: float, target: float, correlation: float) -> None:
    rng = np.random.default_rng(int(1_000 * p + 100 * target + 10 * correlation))
    held = sum(_stopped(p, target, 3_000, correlation, rng) for _ in range(1_000))
    assert held >= 950, f"p {p}, width {target}, correlation {correlation}: {held / 10:.1f} % of 1,000"
