"""Audits on a budget: what is drawn, when it is enough, and what the intervals of such runs are worth."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import qualcheck
from qualcheck.errors import DataError, UsageError
from qualcheck.outcomes import match
from qualcheck.sampling import headline, look_sizes, narrow_enough, proportional_order
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
        assert (seen["target_width"], seen["reached"]) == (target, target == 0.25)
        goal = seen["rates"]["goal_consistency"]
        assert (goal["value"], goal["low"], goal["high"]) == pytest.approx((table["gc_imagined"].mean(), *wide))
        told = " ".join(run.manifest["results"]["findings"])
        assert f"goal consistency {100 * goal['value']:.1f} % [{100 * goal['low']:.1f}, " in told
        assert ("there are no more rollouts" in told) == (target == 0.02)
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


def test_outcomes_of_the_file_are_not_taken_for_those_of_a_sample(tmp_path: Path) -> None:
    run = qualcheck.score(SHIPPED, env="babyai", out=tmp_path / "run", sample=60)
    table, outcome = run.rollouts(["source_rollout"]).to_pandas(), np.random.default_rng(2).random(332)
    for key in ("rollout", "source_rollout"):
        lines = [f"{at},{value}" for at, value in enumerate(outcome)]
        (tmp_path / f"{key}.csv").write_text("\n".join([f"{key},success", *lines]))
    with pytest.raises(DataError, match="source_rollout"):
        match(run, tmp_path / "rollout.csv", ("correctness",))
    joined = match(run, tmp_path / "source_rollout.csv", ("correctness",)).table
    assert len(joined) == 60
    assert set(joined["source_rollout"]) == set(table["source_rollout"])
    np.testing.assert_allclose(joined["success"], outcome[joined["source_rollout"]])


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


def _audited(total: int, target: float, rng: np.random.Generator) -> dict[str, bool]:
    """One audit of a file of three kinds of rollouts by the very rule of `score`: does each interval hold its rate?"""
    kind = rng.choice(3, total, p=[0.6, 0.3, 0.1])
    length = rng.integers(5, 31, total)
    known = length * (rng.random(total) < 0.95)  # some rollouts have no verdict
    right, legal = (rng.binomial(known, np.array(rates)[kind]) for rates in ([0.99, 0.7, 0.2], [1.0, 0.95, 0.6]))
    columns: dict[str, Any] = {
        "gc_imagined": (rng.random(total) < np.array([0.9, 0.5, 0.0])[kind]).astype(np.float32),
        "correctness": _share(right, known),
        "legality": _share(legal, known),
        "coverage_tc": _share(known, length),
        "coverage_dl": _share(known, length),
        "length": length,
        "cluster": rng.integers(0, total, total),
    }
    order = proportional_order(kind, rng)
    sizes = look_sizes(total)
    level = 1 - (1 - LEVEL) / len(sizes)
    enough = narrow_enough(level, target)
    parts: list[dict[str, Any]] = []
    for begin, end in zip([0, *sizes], sizes, strict=False):
        parts.append({name: values[order[begin:end]] for name, values in columns.items()})
        if enough(parts):
            break
    seen = {name: np.concatenate([part[name] for part in parts]) for name in columns}
    truth = {
        "goal_consistency": columns["gc_imagined"].mean(),
        "transition_correctness": right.sum() / known.sum(),
        "dynamics_legality": legal.sum() / known.sum(),
    }
    held = {}
    for name, (value, limits) in headline(seen, level).items():
        assert limits is not None
        assert limits.low <= value <= limits.high
        held[name] = limits.low - 1e-6 <= truth[name] <= limits.high + 1e-6
    return held


def _share(k: Any, n: Any) -> Any:
    return np.where(n > 0, k / np.maximum(n, 1), np.nan).astype(np.float32)


def _fixed(total: int, n: int, p: float, rng: np.random.Generator) -> bool:
    """One `--sample n` of a file whose rate differs by stratum: does the 95 % interval hold the file's rate?"""
    kind = rng.choice(3, total, p=[0.6, 0.3, 0.1])
    goal = rng.random(total) < np.clip(p + np.array([0.1, -0.1, -0.3])[kind], 0, 1)
    mine = proportional_order(kind, rng)[:n]
    found = clopper_pearson(float(goal[mine].sum()), n)
    return bool(found.low <= goal.mean() <= found.high)


def test_rates_of_nothing_are_no_rates() -> None:
    nothing = np.full(3, np.nan, np.float32)
    names = ("gc_imagined", "correctness", "legality", "coverage_tc", "coverage_dl")
    columns = {**dict.fromkeys(names, nothing), "length": np.full(3, 5), "cluster": np.arange(3)}
    assert all(limits is None for _, limits in headline(columns, LEVEL).values())
    assert not narrow_enough(LEVEL, 0.9)([columns])


@pytest.mark.parametrize("target", [0.3, 0.1])
def test_all_headline_intervals_hold_although_the_widest_decides_when_to_stop(target: float) -> None:
    rng = np.random.default_rng(11)
    held = [_audited(1_000, target, rng) for _ in range(150)]
    for name in held[0]:
        assert np.mean([each[name] for each in held]) >= 0.95, name


@pytest.mark.parametrize(("total", "n"), [(1_000, 60), (100, 60), (60, 60)])
@pytest.mark.parametrize("p", [0.5, 0.9])
def test_the_interval_of_a_sample_holds_the_rate_of_the_file(total: int, n: int, p: float) -> None:
    rng = np.random.default_rng(5)
    assert np.mean([_fixed(total, n, p, rng) for _ in range(1_000)]) >= 0.95


@pytest.mark.slow
@pytest.mark.parametrize("target", [0.3, 0.1, 0.05])
@pytest.mark.parametrize("total", [150, 1_500])
def test_headline_intervals_hold_in_1000_audits(total: int, target: float) -> None:
    rng = np.random.default_rng(total)
    held = [_audited(total, target, rng) for _ in range(1_000)]
    for name in held[0]:
        share = np.mean([each[name] for each in held])
        assert share >= 0.95, f"{name}, {total} rollouts, width {target}: {100 * share:.1f} % of 1,000"


@pytest.mark.slow
@pytest.mark.parametrize("p", [0.5, 0.9, 0.99, 1.0])
@pytest.mark.parametrize("target", [0.3, 0.1, 0.03])
@pytest.mark.parametrize("correlation", [0.0, 0.2, 1.0])
def test_sequential_stopping_keeps_its_coverage(p: float, target: float, correlation: float) -> None:
    rng = np.random.default_rng(int(1_000 * p + 100 * target + 10 * correlation))
    held = sum(_stopped(p, target, 3_000, correlation, rng) for _ in range(1_000))
    assert held >= 950, f"p {p}, width {target}, correlation {correlation}: {held / 10:.1f} % of 1,000"
