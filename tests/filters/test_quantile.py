"""The best share of each task, its recorded cut-off, and filtering again."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from qualcheck.filters.quantile import Cutoff, top_fraction
from qualcheck.filters.reasons import Reason
from qualcheck.types import AnyArray

NAN = float("nan")


def scored(error: list[float], right: list[float]) -> dict[str, AnyArray]:
    return {"scaled_error": np.array(error, np.float32), "correctness": np.array(right, np.float32)}


def test_the_smallest_errors_of_each_task_stay() -> None:
    scores = scored([0.4, 0.1, 0.3, 0.2, 9.0, 8.0], [1] * 6)
    task = np.array(["a", "a", "a", "a", "b", "b"])
    reason, cutoffs = top_fraction(scores, task, np.ones(6, bool), 0.5)
    assert (reason == 0).tolist() == [False, True, False, True, False, True]
    assert cutoffs["a"] == Cutoff("scaled_error", float(np.float32(0.2)))
    assert cutoffs["b"] == Cutoff("scaled_error", 8.0)


def test_exact_environments_rank_by_correctness_and_keep_ties() -> None:
    scores = scored([NAN] * 4, [1.0, 1.0, 0.5, NAN])
    reason, cutoffs = top_fraction(scores, np.array(["a"] * 4), np.ones(4, bool), 0.3)
    assert cutoffs == {"a": Cutoff("correctness", 1.0)}
    assert reason.tolist() == [0, 0, Reason.NOT_IN_TOP_FRACTION, Reason.UNVERIFIABLE_RANK]
    kept, _ = top_fraction(scores, np.array(["a"] * 4), np.ones(4, bool), 0.3, keep_unverifiable=True)
    assert kept[3] == 0


def test_items_that_are_out_already_are_neither_ranked_nor_judged() -> None:
    scores = scored([0.1, 0.2, 0.3], [1, 1, 1])
    reason, cutoffs = top_fraction(scores, np.array(["a"] * 3), np.array([False, True, True]), 0.5)
    assert reason.tolist() == [0, 0, Reason.NOT_IN_TOP_FRACTION]
    assert cutoffs["a"].value == pytest.approx(0.2)


def test_a_task_with_nothing_to_rank_records_no_value() -> None:
    reason, cutoffs = top_fraction(scored([NAN], [NAN]), np.array(["a"]), np.ones(1, bool), 0.5)
    assert cutoffs == {"a": Cutoff("correctness", None)}
    assert reason.tolist() == [Reason.UNVERIFIABLE_RANK]


@given(
    st.lists(st.tuples(st.sampled_from("ab"), st.floats(0, 4, width=32)), min_size=1, max_size=40),
    st.floats(0.01, 1),
)
def test_re_applying_the_recorded_cutoff_drops_nothing_more(items: list[tuple[str, float]], fraction: float) -> None:
    task = np.array([name for name, _ in items])
    error = np.array([value for _, value in items], np.float32)
    scores = {"scaled_error": error, "correctness": np.ones(len(items), np.float32)}
    reason, cutoffs = top_fraction(scores, task, np.ones(len(items), bool), fraction)
    stay = reason == 0
    for name in set(task.tolist()):
        assert stay[task == name].sum() >= fraction * (task == name).sum() - 1e-6
    again, same = top_fraction(
        {name: values[stay] for name, values in scores.items()},
        task[stay],
        np.ones(int(stay.sum()), bool),
        fraction,
        known=cutoffs,
    )
    assert (again == 0).all()
    assert same == cutoffs
