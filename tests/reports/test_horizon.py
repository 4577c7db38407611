"""Usable horizons by hand, and the curves of runs against what is known of their simulators."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import qualcheck
from qualcheck.reports.horizon import curve, fate, growth, usable
from qualcheck.types import AnyArray

SHIPPED = Path(qualcheck.__file__).parent / "data/babyai_imagined.parquet"
REAL = SHIPPED.with_name("babyai_real.parquet")


def _fate(rows: list[list[float]]) -> Any:
    """Rollouts written as lists of 1 (within), 0 (out) and nan (unknown)."""
    length = np.array([len(row) for row in rows])
    values = np.concatenate([np.array(row, float) for row in rows])
    member = np.repeat(np.arange(len(rows)), length)
    step = np.concatenate([np.arange(n) for n in length])
    return fate(member, step, values == 0, np.isnan(values), length, len(rows))


def test_the_first_step_out_of_the_grade_or_unknown_ends_a_rollout() -> None:
    nan = np.nan
    found = _fate([[1, 1, 1], [1, 0, 1], [0], [1, nan, 0], [nan, 0], [1, 0, nan]])
    assert found.steps.tolist() == [3, 1, 0, 1, 0, 1]
    assert found.left.tolist() == [False, True, True, False, False, True]


def test_the_usable_horizon_by_hand() -> None:
    rows = [[1.0] * 10 for _ in range(20)]
    rows[0][4] = 0  # 19 of 20 are within up to step 4
    rows[1][6] = 0  # 18 of 20 = 0.9 up to step 6
    rows[2][7] = 0  # 17 of 20 from step 7 on
    found = usable(_fate(rows))
    assert found is not None
    assert found["value"] == 7
    assert not found["at_least"]
    assert found["low"] < 7 <= found["high"] <= 10
    assert (found["n"], found["left"]) == (20, 3)


def test_rollouts_that_end_early_are_censored_and_not_counted_as_faults() -> None:
    rows = [[1.0] * 3 for _ in range(30)] + [[1.0] * 12 for _ in range(30)]
    found = usable(_fate(rows))
    assert found is not None
    assert found["value"] == 12
    assert found["at_least"]
    assert found["low"] == 3  # of 30 that are left one in ten may be out: 0.025 ** (1 / 30) = 0.884
    few = usable(_fate([[1.0] * 5 for _ in range(4)]))
    assert few is not None
    assert few["low"] == 0
    assert few["at_least"]


def test_nothing_seen_says_nothing() -> None:
    assert usable(_fate([[np.nan, np.nan]])) is None
    assert (
        usable(fate(np.zeros(0, int), np.zeros(0, int), np.zeros(0, bool), np.zeros(0, bool), np.zeros(0, int), 0))
        is None
    )


def test_intervals_of_the_horizon_cover_the_truth() -> None:
    rng = np.random.default_rng(0)
    rate = 0.02  # a constant hazard: S(h) = 0.98^h >= 0.9 up to h = 5
    covered = 0
    for _ in range(300):
        first = rng.geometric(rate, 80) - 1
        length = rng.integers(3, 40, 80)
        rows = [[1.0] * min(a, n) + [0.0] * (a < n) for a, n in zip(first.tolist(), length.tolist(), strict=True)]
        found = usable(_fate([row or [0.0] for row in rows]))
        assert found is not None
        covered += found["low"] <= 5 <= found["high"]
    assert covered >= 0.93 * 300


def test_a_curve_is_the_median_of_each_step() -> None:
    step = np.array([0, 0, 0, 1, 1, 2])
    error: AnyArray = np.array([1.0, 2.0, 9.0, 4.0, np.nan, np.inf])
    assert curve(step, error) == [
        {"step": 0, "n": 3, "median": 2.0, "p90": pytest.approx(7.6)},
        {"step": 1, "n": 1, "median": 4.0, "p90": 4.0},
    ]


def test_growth_of_a_doubling_error() -> None:
    step = np.tile(np.arange(20), 5)
    error = 1e-5 * 2.0 ** (step / 2)
    found = growth(step, error)
    assert found is not None
    assert found["doubling_steps"] == pytest.approx(2)
    assert growth(step, np.zeros(len(step))) is None
    assert growth(step[:3], error[:3]) is None


def test_a_report_has_the_horizon_of_imagined_and_of_real_rollouts(tmp_path: Path) -> None:
    run = qualcheck.score(SHIPPED, env="babyai", out=tmp_path / "run", reference=REAL)
    content = json.loads(qualcheck.report(run, "json"))
    table = run.rollouts(["level", "generator", "first_divergence_step", "length"]).to_pandas()
    for cell in content["cells"]:
        found = cell["horizon"]
        mine = table[(table["level"] == cell["level"]) & (table["generator"] == cell["generator"])]
        assert found["unit"] == "wrong fields"
        assert found["open_loop"]["usable"]["n"] == len(mine)
        assert found["open_loop"]["usable"]["left"] == (mine["first_divergence_step"] >= 0).sum()
        assert found["real"]["teacher_forced"]["usable"]["at_least"]
        assert all(point["median"] == 0 for point in found["real"]["open_loop"]["curve"])
    assert "Usable horizon" in qualcheck.report(run)
    alone = json.loads(qualcheck.report(qualcheck.score(SHIPPED, env="babyai", out=tmp_path / "alone"), "json"))
    assert alone["cells"][0]["horizon"]["real"] is None
    assert "--reference" in alone["cells"][0]["horizon"]["real_reason"]


def test_open_loop_errors_are_zero_exactly_where_the_replay_is_the_record(tmp_path: Path) -> None:
    run = qualcheck.score(SHIPPED, env="babyai", out=tmp_path / "run")
    steps = run.transitions(["rollout", "step", "open_loop_error"]).to_pandas()
    divergence = run.rollouts(["first_divergence_step"])["first_divergence_step"].to_numpy()[steps["rollout"]]
    known = steps["open_loop_error"].notna()
    before = (divergence < 0) | (steps["step"] < divergence)
    assert (steps["open_loop_error"][known & before] == 0).all()
    at = known & (divergence == steps["step"])
    assert at.sum() > 20
    assert (steps["open_loop_error"][at] >= 1).all()


def test_halfcheetah_is_chaotic_and_its_real_rollouts_say_so(shared_data: Path, tmp_path: Path) -> None:
    run = qualcheck.score(shared_data / "golden/mujoco_real.npy", env="halfcheetah", out=tmp_path / "run")
    (cell,) = json.loads(qualcheck.report(run, "json"))["cells"]
    assert cell["horizon"]["teacher_forced"]["usable"]["at_least"]
    opened = cell["horizon"]["open_loop"]
    assert 20 <= opened["usable"]["value"] <= 100  # real float32 starts diverge after 50 to 100 steps
    assert opened["growth"]["doubling_steps"] < 10
    assert opened["curve"][0]["median"] < 1e-6
