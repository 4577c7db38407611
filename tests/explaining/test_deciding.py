"""When a hypothesis is named: its share, its interval and its rivals."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from qualcheck.explaining import deciding
from qualcheck.explaining.deciding import Weighed, best, pieces, share_of, weigh
from qualcheck.explaining.hypothesis import Hypothesis, Trial
from qualcheck.types import Rollouts


class _Subject:
    """What `weigh` asks of a sample: its rollouts and the errors as they stand."""

    def __init__(self, before: np.ndarray, length: int) -> None:
        n = len(before) // length
        self.before = before
        self.rollouts = Rollouts(
            obs=np.zeros((len(before) + n, 1)),
            action=np.zeros(len(before), np.int64),
            offsets=np.arange(n + 1) * length,
            has_final=np.ones(n, bool),
            source=np.zeros(n, np.int32),
            source_rollout=np.arange(n, dtype=np.int32),
            source_step=np.zeros(n, np.int32),
            instruction=[None] * n,
        )


def _hypothesis(kind: str = "shift") -> Hypothesis:
    return Hypothesis(kind, "it is so", "a change", lambda subject: pytest.fail("not called"))


def _weigh(before: np.ndarray, after: np.ndarray, left_out: np.ndarray | None = None) -> Weighed | None:
    return weigh(_Subject(before, 10), _hypothesis(), Trial(after, np.ones(len(before), bool), left_out), 0)  # type: ignore[arg-type]


def test_the_share_is_what_the_mean_error_falls_by() -> None:
    found = _weigh(np.full(100, 0.8), np.full(100, 0.2))
    assert found is not None
    assert found.share == pytest.approx(0.75)
    assert found.low == pytest.approx(0.75)
    assert best([found])[0] is found


def test_half_the_error_is_the_bar() -> None:
    small = _weigh(np.full(100, 0.8), np.full(100, 0.41))
    assert small is not None
    assert best([small]) == (None, [])


def test_a_share_that_hangs_on_one_rollout_is_not_sure() -> None:
    before, after = np.full(100, 0.01), np.full(100, 0.01)
    before[:10], after[:10] = 1.0, 0.0
    found = _weigh(before, after)
    assert found is not None
    assert found.share > 0.9
    assert found.low < deciding.SURELY
    assert best([found])[0] is None


def test_what_can_no_longer_be_verified_counts_as_wrong() -> None:
    found = _weigh(np.full(100, 0.8), np.full(100, np.nan))
    assert found is not None
    assert found.after == 1
    assert found.share < 0


def test_what_could_not_be_verified_before_does_not_count() -> None:
    before = np.full(100, 0.8)
    before[50:] = np.nan
    found = _weigh(before, np.where(np.isnan(before), 0.8, 0.0))
    assert found is not None
    assert found.share == 1


def test_transitions_left_out_count_before_and_not_after() -> None:
    bad = np.arange(100) % 10 >= 7
    found = _weigh(bad.astype(float), bad.astype(float), bad)
    assert found is not None
    assert found.before == pytest.approx(0.3)
    assert found.after == 0


def test_leaving_out_asks_for_more_error_than_a_change_does() -> None:
    before = np.where(np.arange(100) % 10 == 7, 0.4, 0.0)
    left_out, changed = _weigh(before, before, before > 0), _weigh(before, np.zeros(100))
    assert left_out is not None
    assert changed is not None
    assert left_out.before == changed.before == pytest.approx(0.04)
    assert not left_out.large
    assert changed.large


def test_too_few_rollouts_decide_nothing() -> None:
    assert _weigh(np.full(30, 1.0), np.zeros(30)) is None


def test_long_rollouts_are_several_units() -> None:
    subject = _Subject(np.ones(120), 120)
    assert np.bincount(pieces(subject.rollouts)).tolist() == [50, 50, 20]


def test_another_kind_that_explains_as_much_is_a_rival_and_the_same_kind_is_not() -> None:
    one = _weigh(np.full(100, 0.8), np.full(100, 0.1))
    assert one is not None
    same, other = replace(one), replace(one, hypothesis=_hypothesis("family"))
    first, rivals = best([one, same, other])
    assert first is one
    assert [each.hypothesis.kind for each in rivals] == ["family"]


def test_labels_have_an_exact_interval() -> None:
    share, low, high = share_of(np.array([True] * 9 + [False]), np.ones(10, bool))
    assert share == 0.9
    assert 0.55 < low < 0.56
    assert high > 0.99
