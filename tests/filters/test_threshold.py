"""Absolute thresholds: bounds included, NaN only on request, one reason a drop."""

from __future__ import annotations

import numpy as np
import pytest

from qualcheck.filters.reasons import LABELS, Reason
from qualcheck.filters.threshold import Limits, threshold

NAN = float("nan")
GOOD = {
    "coverage_tc": 1.0,
    "coverage_dl": 1.0,
    "correctness": 1.0,
    "legality": 1.0,
    "consistency": 1.0,
    "consistency_replayed": 1.0,
    "scaled_error": 0.1,
    "trivial": 0.0,
}


def judge(limits: Limits, length: int = 4, **scores: float) -> str:
    columns = {name: np.array([value], np.float32) for name, value in {**GOOD, **scores}.items()}
    return LABELS[threshold(columns, np.array([length]), limits)[0]]


@pytest.mark.parametrize(
    ("option", "score"),
    [
        ("min_consistency", "consistency"),
        ("min_consistency_replayed", "consistency_replayed"),
        ("min_correctness", "correctness"),
        ("min_legality", "legality"),
    ],
)
def test_a_minimum_is_inclusive_and_names_its_score(option: str, score: str) -> None:
    limits = Limits(**{option: 0.9})
    assert judge(limits, **{score: 0.9}) == ""
    assert judge(limits, **{score: 0.89}) == f"low_{score}"
    assert judge(limits, **{score: NAN}) == f"unverifiable_{score}"
    assert judge(Limits(**{option: 0.9}, keep_unverifiable=True), **{score: NAN}) == ""


@pytest.mark.parametrize("score", ["coverage_tc", "coverage_dl"])
def test_half_of_the_transitions_must_be_verified_unless_said_otherwise(score: str) -> None:
    assert judge(Limits(), **{score: 0.5}) == ""
    assert judge(Limits(), **{score: 0.49}) == "low_coverage"
    assert judge(Limits(min_coverage=0.2), **{score: 0.25}) == ""
    assert judge(Limits(keep_unverifiable=True), **{score: 0.0}) == ""
    assert judge(Limits(keep_unverifiable=True, min_coverage=0.5), **{score: 0.0}) == "low_coverage"


def test_a_maximal_error_is_inclusive() -> None:
    limits = Limits(max_scaled_error=0.5)
    assert judge(limits, scaled_error=0.5) == ""
    assert judge(limits, scaled_error=0.51) == "high_scaled_error"
    assert judge(limits, scaled_error=NAN) == "unverifiable_scaled_error"


def test_trivial_goals_are_dropped_only_on_request() -> None:
    assert judge(Limits(), trivial=1.0) == ""
    assert judge(Limits(drop_trivial=True), trivial=1.0) == "trivial"
    assert judge(Limits(drop_trivial=True), trivial=0.0) == ""
    assert judge(Limits(drop_trivial=True), trivial=NAN) == "unverifiable_trivial"


def test_a_rollout_without_transitions_is_empty_before_it_is_anything_else() -> None:
    nothing = dict.fromkeys(("coverage_tc", "coverage_dl", "correctness", "consistency"), NAN)
    assert judge(Limits(min_consistency=1), length=0, **nothing) == "empty"
    assert judge(Limits(min_consistency=1, keep_unverifiable=True), length=0, **nothing) == ""


def test_the_first_reason_wins() -> None:
    limits = Limits(min_correctness=1, min_consistency=1)
    assert judge(limits, correctness=0.5, consistency=0.0) == "low_correctness"


def test_every_reason_has_a_label_of_its_own() -> None:
    assert len(set(LABELS)) == len(Reason)
    assert LABELS[Reason.KEPT] == ""
