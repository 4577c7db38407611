"""Prefixes, passing stretches, and the scores of a piece on its own."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from qualcheck.filters.pieces import Pieces, passing, piece_scores
from qualcheck.filters.segments import segments
from qualcheck.filters.truncate import truncate
from qualcheck.types import AnyArray

NAN = float("nan")
verdicts = st.lists(st.lists(st.booleans(), max_size=7), max_size=6)


def flat(rollouts: list[list[bool]]) -> tuple[AnyArray, AnyArray]:
    passes = np.array([verdict for rollout in rollouts for verdict in rollout], bool)
    return passes, np.cumsum([0, *(len(rollout) for rollout in rollouts)]).astype(np.int64)


def listed(pieces: Pieces) -> list[tuple[int, int, int]]:
    return list(zip(pieces.rollout.tolist(), pieces.start.tolist(), pieces.stop.tolist(), strict=True))


def test_unverifiable_transitions_stop_a_piece_unless_they_may_stay() -> None:
    tc = np.array([1, 0, NAN, 1, 1], np.float32)
    dl = np.array([1, 1, 1, NAN, 0], np.float32)
    shown = np.zeros(5, bool)
    assert passing(tc, dl, False, shown).tolist() == [True, False, False, False, False]
    assert passing(tc, dl, True, shown).tolist() == [True, False, True, True, False]
    assert passing(tc, dl, False, np.isnan(tc)).tolist() == [True, False, True, False, False]


def test_truncate_keeps_the_prefix_before_the_first_fault() -> None:
    passes, offsets = flat([[True, True, False, True], [False, True], [], [True, True]])
    assert listed(truncate(passes, offsets)) == [(0, 0, 2), (3, 0, 2)]


def test_segments_never_join_across_a_hole_or_a_rollout() -> None:
    passes, offsets = flat([[True, False, True, True], [True], [], [False, False], [True, False]])
    assert listed(segments(passes, offsets)) == [(0, 0, 1), (0, 2, 4), (1, 0, 1), (4, 0, 1)]


@given(verdicts)
def test_segments_hold_every_passing_transition_once_and_no_other(rollouts: list[list[bool]]) -> None:
    passes, offsets = flat(rollouts)
    taken = np.zeros(len(passes), int)
    for rollout, start, stop in listed(segments(passes, offsets)):
        assert 0 <= start < stop <= offsets[rollout + 1] - offsets[rollout]
        taken[offsets[rollout] + start : offsets[rollout] + stop] += 1
        before, after = offsets[rollout] + start - 1, offsets[rollout] + stop
        assert start == 0 or not passes[before]
        assert after == offsets[rollout + 1] or not passes[after]
    assert (taken == passes).all()


@given(verdicts)
def test_a_prefix_is_the_longest_one_without_a_fault(rollouts: list[list[bool]]) -> None:
    passes, offsets = flat(rollouts)
    found = {rollout: stop for rollout, start, stop in listed(truncate(passes, offsets)) if start == 0}
    for i, rollout in enumerate(rollouts):
        expected = [*rollout, False].index(False)
        assert found.get(i, 0) == expected


def columns(**values: list[float]) -> dict[str, AnyArray]:
    return {name: np.array(column, np.float32) for name, column in values.items()}


def scores_of(pieces: list[tuple[int, int, int]], broken: bool = False, exact: bool = True) -> dict[str, list[float]]:
    """Two rollouts of five and two transitions; in the first, 2 is wrong and 3 unverifiable."""
    made = piece_scores(
        Pieces(*(np.array(part, np.int64) for part in zip(*pieces, strict=True))),
        np.array([0, 5, 7]),
        {"open_end": np.zeros(7, bool)}
        | columns(
            tc=[1, 1, 0, NAN, 1, 1, 1],
            dl=[1, 0, 0, 1, 1, 1, 1],
            tc_scaled=[0.5, 0.1, 3, 4, 0.2, 1, 2],
            goal_share=[0, 0.5, 1, 0.5, 0.5, 1, 0],
            goal_share_replayed=[0, 0.5, 0.5, 0, 1, 0, NAN],
        ),
        np.array([1, 0], np.float32),
        np.array([broken, broken]),
        exact,
    )
    return {name: values.tolist() for name, values in made.items()}


def test_a_piece_is_scored_on_its_own_transitions() -> None:
    made = scores_of([(0, 0, 2), (0, 2, 5), (1, 0, 2)])
    assert made["correctness"] == [1, 0.5, 1]
    np.testing.assert_allclose(made["legality"], [0.5, 2 / 3, 1], rtol=1e-6)
    np.testing.assert_allclose(made["coverage_tc"], [1, 2 / 3, 1], rtol=1e-6)
    assert made["coverage_dl"] == [1, 1, 1]
    assert made["consistency"] == [0.5, 1, 1]
    np.testing.assert_allclose(made["scaled_error"], [0.3, 1.6, 1.5], rtol=1e-6)


def test_a_piece_after_a_hole_is_trivial_if_the_row_before_it_reached_the_goal() -> None:
    assert scores_of([(0, 0, 1), (0, 3, 4), (0, 4, 5), (1, 1, 2)])["trivial"] == [1, 1, 0, 1]


def test_the_replay_of_a_piece_after_a_hole_is_known_only_where_every_step_is_exact() -> None:
    pieces = [(0, 0, 2), (0, 4, 5), (0, 3, 5), (1, 1, 2)]
    np.testing.assert_equal(scores_of(pieces)["consistency_replayed"], [0.5, 0.5, NAN, 0])
    np.testing.assert_equal(scores_of(pieces, exact=False)["consistency_replayed"], [0.5, NAN, NAN, NAN])


def test_a_prefix_whose_replay_stops_before_the_goal_is_unverifiable() -> None:
    np.testing.assert_equal(scores_of([(1, 0, 1), (1, 0, 2)])["consistency_replayed"], [0, NAN])


def test_two_readings_of_a_row_make_what_hangs_on_it_a_lower_bound_or_unknown() -> None:
    made = scores_of([(0, 0, 3), (0, 4, 5)], broken=True)
    assert made["consistency"] == [0.5, 0.5]  # the end of the first piece may be another row than the column judged
    np.testing.assert_equal(made["trivial"], [1, NAN])
    np.testing.assert_equal(made["consistency_replayed"], [0.5, NAN])
