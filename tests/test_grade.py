"""Grades as text."""

from __future__ import annotations

import pytest

from qualcheck.errors import UsageError
from qualcheck.grade import Grade, parse_grade
from qualcheck.registry import load

EXACT, SCALED = load("babyai").spec, load("toy").spec


def test_the_judging_grade_is_the_default() -> None:
    assert parse_grade(None, EXACT) == Grade("exact")
    assert parse_grade(None, SCALED) == Grade("scaled:0.5", 0.5)


def test_equal_grades_have_one_name() -> None:
    assert parse_grade(" scaled:0.50 ", SCALED) == parse_grade("scaled:.5", SCALED)
    assert parse_grade("strict", SCALED) == Grade("strict")


@pytest.mark.parametrize(
    "text", ["exact", "scaled", "scaled:", "scaled:0", "scaled:-1", "scaled:nan", "scaled:inf", "fast", ""]
)
def test_what_no_measured_environment_can_be_judged_by_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        parse_grade(text, SCALED)


@pytest.mark.parametrize("text", ["strict", "scaled:0.5", "inexact"])
def test_an_exact_environment_has_no_other_grade(text: str) -> None:
    with pytest.raises(UsageError, match="exact"):
        parse_grade(text, EXACT)
