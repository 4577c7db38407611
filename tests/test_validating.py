"""`validate`: scores against outcomes of the user's."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy.stats import kendalltau, spearmanr

import qualcheck
from qualcheck.errors import DataError
from qualcheck.rank_correlation import holm, kendall, spearman, tied
from qualcheck.table import Run

SHIPPED = Path(qualcheck.__file__).parent / "data/babyai_imagined.parquet"


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return qualcheck.score(SHIPPED, env="babyai", out=tmp_path_factory.mktemp("validate") / "run")


@pytest.fixture(scope="module")
def table(run: Run) -> pd.DataFrame:
    return run.rollouts().to_pandas()


def _file(tmp_path: Path, content: pd.DataFrame, name: str = "outcome.csv") -> Path:
    path = tmp_path / name
    if name.endswith("csv"):
        content.to_csv(path, index=False)
    elif name.endswith("parquet"):
        content.to_parquet(path)
    else:
        content.to_json(path, orient="records")
    return path


def test_a_perfect_score_gives_one_with_an_interval_that_excludes_zero(
    run: Run, table: pd.DataFrame, tmp_path: Path
) -> None:
    path = _file(tmp_path, table[["rollout"]].assign(success=table["correctness"]))
    found = qualcheck.validate(run, path)
    mine = next(f for f in found.findings if f.score == "correctness")
    assert mine.spearman is not None
    assert mine.kendall is not None
    assert mine.spearman.value == pytest.approx(1)
    assert mine.kendall.value == pytest.approx(1)
    assert 0 < mine.spearman.low < 1
    assert mine.verdict == "validated"
    assert found.recommended == {"success": "--min-correctness"}


def test_a_random_outcome_recommends_no_filter(run: Run, table: pd.DataFrame, tmp_path: Path) -> None:
    wrong = 0
    for seed in range(40):
        outcome = np.random.default_rng(seed).random(len(table))
        found = qualcheck.validate(run, _file(tmp_path, table[["rollout"]].assign(noise=outcome)), resamples=400)
        wrong += found.recommended["noise"] is not None
    assert wrong <= 5  # Holm holds the chance under 0.05 a file: 5 or fewer of 40 in 98.6 %


def test_a_score_that_goes_against_the_outcome_is_said_to(run: Run, table: pd.DataFrame, tmp_path: Path) -> None:
    found = qualcheck.validate(run, _file(tmp_path, table[["rollout"]].assign(cost=-table["legality"])))
    mine = next(f for f in found.findings if f.score == "legality")
    assert mine.verdict == "against the outcome"
    assert found.recommended["cost"] is None


def test_constants_and_ties_are_said(run: Run, table: pd.DataFrame, tmp_path: Path) -> None:
    outcomes = table[["rollout"]].assign(same=1.0, rare=(np.arange(len(table)) % 9 == 0).astype(float))
    found = qualcheck.validate(run, _file(tmp_path, outcomes))
    by = {(f.outcome, f.score): f for f in found.findings}
    assert by["same", "correctness"].verdict == "constant outcome: says nothing"
    assert by["same", "correctness"].spearman is None
    assert any("of the outcomes are tied" in note for note in by["rare", "correctness"].notes)
    assert found.recommended == {"same": None, "rare": None}


def test_too_few_rollouts_say_nothing(run: Run, table: pd.DataFrame, tmp_path: Path) -> None:
    few = table[["rollout"]].assign(success=table["correctness"])[:8]
    found = qualcheck.validate(run, _file(tmp_path, few))
    assert {f.verdict for f in found.findings if f.score == "consistency"} <= {
        "too few: 8 independent, need 10",
        "constant score: says nothing",
    }
    assert found.recommended == {"success": None}
    assert found.without_outcome == len(table) - 8


@pytest.mark.parametrize("name", ["outcome.csv", "outcome.parquet", "outcome.json"])
def test_every_format_and_key_gives_the_same(name: str, run: Run, table: pd.DataFrame, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    outcome = table["correctness"].fillna(0) + rng.normal(0, 0.1, len(table))
    shuffled = rng.permutation(len(table))
    by_rollout = table[["rollout"]].assign(value=outcome).iloc[shuffled]
    by_source = table[["source", "source_rollout"]].assign(value=outcome)
    first = qualcheck.validate(run, _file(tmp_path, by_rollout, name))
    second = qualcheck.validate(run, _file(tmp_path, by_source, "by_source_" + name))
    assert first.keys == ("rollout",)
    assert second.keys == ("source", "source_rollout")
    for one, other in zip(first.findings, second.findings, strict=True):
        assert one.spearman == other.spearman
        if one.spearman is not None:
            both = np.isfinite(table[one.score]) & np.isfinite(outcome)
            want = spearmanr(table[one.score][both], outcome[both]).statistic
            assert one.spearman.value == pytest.approx(-want if one.score == "scaled_error" else want, abs=1e-12)


def test_cells_are_matched_by_their_means(run: Run, table: pd.DataFrame, tmp_path: Path) -> None:
    cells = table.groupby(["level", "generator", "task"])["correctness"].mean().reset_index()
    found = qualcheck.validate(run, _file(tmp_path, cells.rename(columns={"correctness": "policy_success"})))
    assert found.unit == "cell"
    assert found.matched == len(cells)
    mine = next(f for f in found.findings if f.score == "correctness")
    assert mine.n == len(cells)
    assert mine.spearman is not None
    assert mine.spearman.value == pytest.approx(1)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("", "no CSV"),
        ("rollout,success\n", "holds no lines"),
        ("episode,success\n1,2\n", "name neither rollouts"),
        ("rollout,success\n0,1\n0,2\n", "rollout 0 stands there more than once"),
        ("rollout,success\n0,yes\n1,no\n", "no column of numbers"),
        ("rollout,success\n1.5,1\n", "whole numbers|belongs to"),
        ("rollout,success\n99999,1\n", "none of its 1 lines"),
        ("rollout\n0\n", "no column of numbers"),
        ("[{", "no CSV"),
    ],
)
def test_unusable_outcome_files_are_refused_in_one_line(content: str, words: str, run: Run, tmp_path: Path) -> None:
    path = tmp_path / "outcome.csv"
    path.write_text(content)
    with pytest.raises(DataError, match=words):
        qualcheck.validate(run, path)


def test_the_command_prints_a_table_and_json(run: Run, table: pd.DataFrame, tmp_path: Path) -> None:
    path = _file(tmp_path, table[["rollout"]].assign(success=table["consistency"]))
    command = [sys.executable, "-m", "qualcheck", "validate", str(run.path), "--outcome", str(path)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "filter with --min-consistency" in done.stdout
    content = json.loads(subprocess.run([*command, "--json"], capture_output=True, text=True).stdout)
    assert content["recommended"] == {"success": "--min-consistency"}
    missing = subprocess.run([*command[:-1], "nothing.csv"], capture_output=True, text=True)
    assert missing.returncode == 1
    assert "nothing.csv" in missing.stderr
    assert "Traceback" not in missing.stderr


def test_intervals_of_rank_correlations_cover_the_truth() -> None:
    rng = np.random.default_rng(0)
    repeats, covered = 150, np.zeros(2)
    truth_rho, truth_tau = 6 / np.pi * np.arcsin(0.25), 2 / np.pi * np.arcsin(0.5)  # of normal pairs, correlation 0.5
    for _ in range(repeats):
        x = rng.normal(size=60)
        y = 0.5 * x + np.sqrt(0.75) * rng.normal(size=60)
        for at, (method, truth) in enumerate(((spearman, truth_rho), (kendall, truth_tau))):
            found = method(x, y, np.arange(60), rng, 300)
            covered[at] += found.low <= truth <= found.high
            if at:
                assert found.value == pytest.approx(kendalltau(x, y).statistic)
    assert (covered / repeats > 0.9).all(), covered / repeats


def test_clusters_widen_the_interval() -> None:
    rng = np.random.default_rng(1)
    x, y = rng.normal(size=30), rng.normal(size=30)
    alone = spearman(x, y, np.arange(30), np.random.default_rng(0), 500)
    copied = spearman(np.repeat(x, 50), np.repeat(y, 50), np.arange(1500), np.random.default_rng(0), 500)
    honest = spearman(np.repeat(x, 50), np.repeat(y, 50), np.repeat(np.arange(30), 50), np.random.default_rng(0), 500)
    assert copied.high - copied.low < 0.3 * (alone.high - alone.low)
    assert honest.high - honest.low == pytest.approx(alone.high - alone.low, rel=0.1)


def test_holm_by_hand() -> None:
    np.testing.assert_allclose(holm(np.array([0.01, 0.04, 0.03])), [0.03, 0.06, 0.06])
    assert tied(np.array([1, 1, 2, 3])) == 0.5
