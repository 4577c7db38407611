from __future__ import annotations

from typing import Any

import pytest

from qualcheck.errors import BelowBar, UnknownName, UsageError
from qualcheck.reports.bar import METRICS, fail_under, parse_bar
from qualcheck.reports.cells import build_report


def report(make_run: Any) -> Any:
    return build_report([make_run([4, 4], rollouts={"level": ["easy", "hard"]}, steps={"tc": [1.0] * 7 + [0.0]})])


def test_every_cell_must_reach_the_bar(make_run: Any) -> None:
    content = report(make_run)
    fail_under(content, "transition_correctness=0.75")
    with pytest.raises(BelowBar, match=r"toy hard g: 0\.7500") as raised:
        fail_under(content, "transition-correctness=0.76")
    assert "easy" not in str(raised.value)
    assert raised.value.exit_code == 4


def test_a_missing_value_is_below_any_bar(make_run: Any) -> None:
    with pytest.raises(BelowBar, match="nothing verified"):
        fail_under(report(make_run), "goal_consistency=0")


def test_no_rollouts_are_below_any_bar(make_run: Any) -> None:
    with pytest.raises(BelowBar, match="no rollouts"):
        fail_under(build_report([make_run([])]), "goal_consistency=0")


def test_unknown_metrics_and_those_where_less_is_better_are_refused() -> None:
    with pytest.raises(UnknownName, match="Did you mean 'goal_consistency'"):
        parse_bar("goal_consistancy=0.5")
    with pytest.raises(UnknownName):
        parse_bar("fabrication=0.5")


@pytest.mark.parametrize(
    "text", ["goal_consistency", "goal_consistency=", "goal_consistency=90", "goal_consistency=nan"]
)
def test_a_bar_that_is_no_fraction_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        parse_bar(text)


def test_every_metric_with_a_bar_is_a_key_of_a_cell(make_run: Any) -> None:
    assert set(METRICS) <= set(report(make_run)["cells"][0])
