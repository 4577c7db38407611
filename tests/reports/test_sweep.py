"""The sweep of success thresholds: by hand, and against the verdicts of whole runs."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import qualcheck
from qualcheck.registry import load
from qualcheck.reports.sweep import steady, sweep
from qualcheck.table import Run
from qualcheck.thresholds import MULTIPLES, UNJUDGED, packed, scaled, stretched, unpacked
from qualcheck.types import Trajectory

SHIPPED = Path(qualcheck.__file__).parent / "data/babyai_imagined.parquet"
ONE = MULTIPLES.index(1.0)


def test_bits_come_back() -> None:
    rng = np.random.default_rng(0)
    reached, judged = rng.random((len(MULTIPLES), 50)) < 0.5, rng.random(50) < 0.8
    bits = packed(reached, judged)
    assert (bits[~judged] == UNJUDGED).all()
    np.testing.assert_array_equal(unpacked(bits), reached & judged)


def test_thresholds_are_stretched_inside_the_block_only() -> None:
    with stretched(2.0):
        assert scaled(0.05) == 0.1
        with stretched(0.5):
            assert scaled(0.05) == 0.025
    assert scaled(0.05) == 0.05


def test_the_order_of_cells_by_hand() -> None:
    def cell(rates: list[float]) -> dict[str, object]:
        return {"threshold_sweep": {"imagined": {"rates": rates, "n": 9}, "replayed": {"rates": None, "n": 0}}}

    first = cell([0.0, 0.0, 0.3, 0.4, 0.5, 0.6, 0.6, 0.6, 0.6, 0.6, 0.6])
    second = cell([0.1, 0.1, 0.1, 0.2, 0.5, 0.5, 0.5, 0.6, 0.7, 0.8, 0.9])
    # above at 1; equal at 0.9 and 1.25, which is no change of places; below from 1.5 on, and at 0.6 and less
    assert steady([first, second], "imagined") == {"from": 0.7, "to": 1.25, "cells": 2}
    assert steady([first, second], "replayed") is None
    assert steady([first], "imagined") is None
    assert steady([], "imagined") is None


def test_rates_are_of_the_judged_rollouts() -> None:
    bits = np.array([UNJUDGED, 1 << ONE, 0, (1 << len(MULTIPLES)) - 1], np.int32)
    found = sweep({"sweep_imagined": bits, "sweep_replayed": np.full(4, UNJUDGED, np.int32)})
    assert found is not None
    assert found["imagined"]["n"] == 3
    assert found["imagined"]["rates"][ONE] == pytest.approx(2 / 3)
    assert found["imagined"]["rates"][0] == pytest.approx(1 / 3)
    assert found["replayed"]["rates"] is None


def test_goals_without_thresholds_say_so(tmp_path: Path) -> None:
    run = qualcheck.score(SHIPPED, env="babyai", out=tmp_path / "run")
    content = json.loads(qualcheck.report(run, "json"))
    assert content["cells"][0]["threshold_sweep"] is None
    assert "no threshold" in content["cells"][0]["threshold_sweep_reason"]
    assert content["threshold_order"] == {"imagined": None, "replayed": None}
    assert "success thresholds" not in qualcheck.report(run)


@pytest.mark.parametrize(("env", "level"), [("halfcheetah", "hard"), ("clevr", "hard"), ("metaworld", "easy")])
def test_at_one_the_sweep_is_the_verdict_and_it_changes_on_both_sides(env: str, level: str, tmp_path: Path) -> None:
    qualcheck.collect(env, level, 4, tmp_path / "real.parquet", random_share=0.3)
    run = qualcheck.score(tmp_path / "real.parquet", env=env, out=tmp_path / "run")
    table = run.rollouts(["gc_imagined", "sweep_imagined"]).to_pandas()
    judged = (table["sweep_imagined"] != UNJUDGED).to_numpy()
    assert (judged == table["gc_imagined"].notna()).all()
    bits = unpacked(table["sweep_imagined"].to_numpy())[:, judged]
    np.testing.assert_array_equal(bits[ONE], table["gc_imagined"][judged] == 1)
    assert (bits[0] != bits[ONE]).any()
    (cell,) = json.loads(qualcheck.report(run, "json"))["cells"]
    assert cell["threshold_sweep"]["imagined"]["rates"][ONE] == pytest.approx(cell["goal_consistency"]["value"])
    assert "threshold_sweep" in qualcheck.report(run, "csv")
    assert "multiple of the success thresholds" in qualcheck.report(run)


def test_every_environment_whose_goals_measure_something_declares_and_stretches_it(shared_data: Path) -> None:
    """Nearer or wider thresholds change some verdict on golden rows, in all four environments."""
    from qualcheck.io import open_source

    names = {
        "halfcheetah": "mujoco_hard",
        "clevr": "clevr_hard",
        "libero": "libero_hard",
        "metaworld": "metaworld_easy",
    }
    assert not load("babyai").spec.thresholds
    for env, name in names.items():
        if env == "libero":
            pytest.importorskip("robosuite")
        adapter = load(env)
        assert adapter.spec.thresholds
        source = open_source(shared_data / "golden" / f"{name}.npy", adapter.layouts())
        adapter = adapter.with_layout(source.spec.obs_size)
        batch = replace(next(source.batches(3_000)), is_reset=None)
        batch = replace(batch, is_reset=np.ones(batch.n_rollouts, bool))
        rows = Trajectory(batch.obs, batch.row_offsets, adapter.takeable(batch.obs) == 0)
        told = adapter.annotate(rows, batch)
        placed = [adapter.place(text) for text in batch.instruction]
        hits = {}
        for multiple in (0.5, 1.0, 2.0):
            with stretched(multiple):
                hits[multiple] = int(adapter.goals(told, placed, np.arange(len(placed))).intended.sum())
        assert len(set(hits.values())) == 3, (env, hits)
        adapter.close()


def test_a_sweep_needs_no_second_simulation(tmp_path: Path) -> None:
    qualcheck.collect("clevr", "hard", 2, tmp_path / "real.parquet")
    run: Run = qualcheck.score(tmp_path / "real.parquet", env="clevr", out=tmp_path / "run", recheck=0)
    counts = run.manifest["results"]["counts"]
    assert counts["simulator_steps"] == 40 * counts["transitions"]  # substeps of a push, each simulated once
