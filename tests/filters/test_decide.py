"""Modes, thresholds and reasons together: everything adds up."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from qualcheck.filters.decide import MODES, Decision, decide
from qualcheck.filters.reasons import LABELS, Reason
from qualcheck.filters.summary import summary
from qualcheck.filters.threshold import Limits
from qualcheck.types import AnyArray

NAN = float("nan")
verdict = st.sampled_from([1.0, 1.0, 1.0, 0.0, NAN])
transition = st.tuples(verdict, verdict, st.sampled_from([0.0, 0.5, 1.0, NAN]))
sets = st.lists(st.lists(transition, max_size=6), max_size=6)
limit = st.sampled_from([None, 0.5, 1.0])


def tables(
    rollouts: list[list[tuple[float, float, float]]],
) -> tuple[dict[str, AnyArray], dict[str, AnyArray], AnyArray]:
    """Score columns as `score` would write them."""
    offsets = np.cumsum([0, *map(len, rollouts)]).astype(np.int64)
    steps = np.array([step for rollout in rollouts for step in rollout], np.float32).reshape(-1, 3).T
    columns = {
        "tc": steps[0],
        "dl": steps[1],
        "tc_scaled": np.full(len(steps[0]), NAN, np.float32),
        "goal_share": steps[2],
        "goal_share_replayed": steps[2],
        "open_end": np.zeros(len(steps[2]), bool),
    }
    n = len(rollouts)
    per: dict[str, AnyArray] = {
        "task": np.array([f"task{i % 2}" for i in range(n)], dtype=str),
        "trivial": np.zeros(n, np.float32),
        "broken": np.zeros(n, bool),
        "scaled_error": np.full(n, NAN, np.float32),
    }
    for name, column in (("correctness", "tc"), ("legality", "dl")):
        per[name] = np.array([mean(columns[column][a:b]) for a, b in spans(offsets)], np.float32)
        known = [mean(~np.isnan(columns[column][a:b])) for a, b in spans(offsets)]
        per[f"coverage_{column}"] = np.array(known, np.float32)
    best = [np.fmax.reduce(steps[2][a:b], initial=NAN) for a, b in spans(offsets)]
    per["consistency"] = per["consistency_replayed"] = np.array(best, np.float32)
    return per, columns, offsets


def spans(offsets: AnyArray) -> list[tuple[int, int]]:
    return list(zip(offsets[:-1].tolist(), offsets[1:].tolist(), strict=True))


def mean(values: AnyArray) -> float:
    known = values[~np.isnan(values)]
    return float(known.mean()) if len(known) else NAN


def labels(codes: AnyArray) -> list[str]:
    return [LABELS[code] for code in codes]


def test_each_mode_keeps_its_part_of_a_rollout_and_says_why_the_rest_goes() -> None:
    good, wrong, dark = (1.0, 1.0, 0.0), (0.0, 1.0, 0.0), (NAN, 1.0, 0.0)
    per, steps, offsets = tables([[good, wrong, good, dark], [wrong, good]])

    def of(mode: str, **limits: float) -> Decision:
        return decide(per, steps, offsets, mode=mode, limits=Limits(**limits), exact=True)  # type: ignore[arg-type]

    whole = of("rollouts", min_correctness=0.6)
    assert labels(whole.rollout_reason) == ["", "low_correctness"]
    assert labels(whole.transition_reason) == [""] * 4 + ["low_correctness"] * 2
    prefix = of("truncate")
    assert labels(prefix.rollout_reason) == ["", "incorrect_transition"]
    assert labels(prefix.transition_reason) == [
        "", "incorrect_transition", "after_first_fault", "unverifiable_transition",
        "incorrect_transition", "after_first_fault",
    ]  # fmt: skip
    parts = of("segments")
    assert parts.pieces.start.tolist() == [0, 2, 1]
    assert labels(parts.transition_reason) == [
        "", "incorrect_transition", "", "unverifiable_transition", "incorrect_transition", "",
    ]  # fmt: skip


def test_thresholds_of_the_cutting_modes_judge_the_piece() -> None:
    per, steps, offsets = tables([[(1, 1, 0.0), (1, 1, 1.0), (0, 0, 0.0)], [(1, 1, 0.0), (0, 1, 1.0)]])
    decision = decide(
        per, steps, offsets, mode="truncate", limits=Limits(min_consistency=1, min_correctness=1), exact=True
    )
    assert labels(decision.rollout_reason) == ["", "low_consistency"]
    assert decision.scores["correctness"].tolist() == [1]


def test_rollouts_outside_the_selection_are_dropped_as_such_whatever_their_scores() -> None:
    per, steps, offsets = tables([[(1, 1, 1.0)], [(1, 1, 1.0)], []])
    mask = np.array([False, True, False])
    for mode in MODES:
        decision = decide(per, steps, offsets, mode=mode, limits=Limits(), exact=True, candidate=mask)
        assert decision.rollout_reason.tolist() == [Reason.OTHER_INPUT, 0, Reason.OTHER_INPUT]
        assert decision.pieces.rollout.tolist() == [1]


@pytest.mark.parametrize("mode", MODES)
@given(rollouts=sets, correct=limit, consistent=limit, fraction=st.sampled_from([None, 0.5]), loose=st.booleans())
def test_kept_and_dropped_add_up_and_no_piece_holds_a_fault(
    mode: str,
    rollouts: list[list[tuple[float, float, float]]],
    correct: float | None,
    consistent: float | None,
    fraction: float | None,
    loose: bool,
) -> None:
    per, steps, offsets = tables(rollouts)
    limits = Limits(min_correctness=correct, min_consistency=consistent, keep_unverifiable=loose)
    made = decide(per, steps, offsets, mode=mode, limits=limits, fraction=fraction, exact=True)  # type: ignore[arg-type]
    counts = summary(made, None)
    for what, total in (("rollouts", len(rollouts)), ("transitions", len(steps["tc"]))):
        assert counts[what]["all"] == total == counts[what]["kept"] + sum(counts[what]["dropped"].values())
    taken: Counter[int] = Counter()
    for rollout, start, stop in zip(made.pieces.rollout, made.pieces.start, made.pieces.stop, strict=True):
        taken.update(range(offsets[rollout] + start, offsets[rollout] + stop))
    assert set(taken.values()) <= {1}
    kept = np.array(sorted(taken), dtype=int)
    assert kept.tolist() == np.flatnonzero(made.transition_reason == 0).tolist()
    assert set(np.flatnonzero(made.rollout_reason == 0)) == set(made.pieces.rollout)
    assert sum(counts["kept_replay"].values()) == len(made.pieces)
    if mode != "rollouts":
        bad = [0.0] if loose else [0.0, NAN]
        for name in ("tc", "dl"):
            assert not np.isin(np.nan_to_num(steps[name][kept], nan=-1), np.nan_to_num(bad, nan=-1)).any()


@pytest.mark.parametrize("mode", MODES)
@given(rollouts=sets, correct=limit, consistent=limit, replayed=limit)
def test_absolute_thresholds_drop_nothing_more_the_second_time(
    mode: str,
    rollouts: list[list[tuple[float, float, float]]],
    correct: float | None,
    consistent: float | None,
    replayed: float | None,
) -> None:
    per, steps, offsets = tables(rollouts)
    limits = Limits(min_correctness=correct, min_consistency=consistent, min_consistency_replayed=replayed)
    made = decide(per, steps, offsets, mode=mode, limits=limits, exact=True)  # type: ignore[arg-type]
    pieces = [
        rollouts[rollout][start:stop]
        for rollout, start, stop in zip(made.pieces.rollout, made.pieces.start, made.pieces.stop, strict=True)
    ]
    again = decide(*tables(pieces), mode=mode, limits=limits, exact=True)  # type: ignore[arg-type]
    assert (again.rollout_reason == 0).all()
    assert (again.transition_reason == 0).all()
