"""The worst-first list: what is fabricated, then what pays, then what is wrong."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import qualcheck
from qualcheck.reports.worst import worst
from qualcheck.table import Run

SHIPPED = Path(qualcheck.__file__).parent / "data/babyai_imagined.parquet"


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return qualcheck.score(SHIPPED, env="babyai", out=tmp_path_factory.mktemp("worst") / "run")


def test_the_list_begins_with_fabricated_goals_of_high_return(run: Run) -> None:
    table = run.rollouts().to_pandas()
    listed = worst([run], 400)
    fabricated = ((table["gc_imagined"] == 1) & (table["gc_replayed"] == 0)).to_numpy()
    faulty = (table["first_fault_step"] >= 0).to_numpy()
    assert len(listed) == (fabricated | faulty).sum()
    lead = [entry["rollout"] for entry in listed[: fabricated.sum()]]
    assert set(lead) == set(np.flatnonzero(fabricated).tolist())
    assert all(entry["why"].startswith("fabricated") for entry in listed[: fabricated.sum()])
    for entry in listed:
        row = table.iloc[entry["rollout"]]
        assert (entry["task"], entry["first_fault_step"]) == (row["task"], row["first_fault_step"])
    for task in set(table["task"]):
        paid = [entry["imagined_return"] for entry in listed[: fabricated.sum()] if entry["task"] == task]
        assert paid == sorted(paid, reverse=True)


def test_returns_are_sums_of_the_recorded_rewards(run: Run) -> None:
    import pyarrow.parquet as pq

    rows = pq.read_table(SHIPPED, columns=["rollout", "reward"]).to_pandas()
    want = rows.groupby("rollout")["reward"].sum().to_numpy()
    np.testing.assert_allclose(run.rollouts(["imagined_return"])["imagined_return"].to_numpy(), want, atol=1e-5)


def test_clean_rollouts_are_not_on_the_list(tmp_path: Path) -> None:
    real = SHIPPED.with_name("babyai_real.parquet")
    clean = qualcheck.score(real, env="babyai", out=tmp_path / "run")
    assert worst([clean]) == []
    assert "Worst rollouts" not in qualcheck.report(clean)


def test_the_report_says_how_to_look_at_them(run: Run) -> None:
    content = json.loads(qualcheck.report(run, "json"))
    assert len(content["worst"]) == 10
    first = content["worst"][0]
    assert f"qualcheck inspect RUN {first['rollout']}" in " ".join(qualcheck.report(run).split())
    assert qualcheck.inspect(run.path, first["rollout"])["task"] == first["task"]
