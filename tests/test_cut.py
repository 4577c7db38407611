"""Pieces of rollouts keep every verdict their rows had."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from qualcheck.cut import cut
from qualcheck.types import Rollouts


def batch(
    lengths: list[int], seed: int = 0, final: list[bool] | None = None, breaks: list[int] | None = None
) -> Rollouts:
    """Rows are numbered through; breaks get rows of their own."""
    n, m = len(lengths), sum(lengths)
    has_final = np.array(final if final is not None else [True] * n, bool)
    rows = m + int(has_final.sum())
    at = np.array(sorted(breaks or []), np.int64)
    rng = np.random.default_rng(0)
    return Rollouts(
        obs=np.arange(rows * 2, dtype=np.float32).reshape(rows, 2),
        action=rng.integers(0, 7, m),
        offsets=np.cumsum([0, *lengths]).astype(np.int64),
        has_final=has_final,
        source=np.zeros(n, np.int32),
        source_rollout=np.arange(n, dtype=np.int32),
        source_step=np.zeros(n, np.int32),
        instruction=[f"text {i}" for i in range(n)],
        reward=rng.random(m),
        terminal=np.ones(m, bool),
        break_at=at,
        break_obs=-1.0 - np.stack([at, at], axis=1).astype(np.float32),
        flags={"chain_break": np.array([bool(breaks)] * n), "duplicate": np.arange(n) % 2 == 1},
        defect=[""] * n,
        code=np.arange(n * 3).reshape(n, 3),
        goal=[np.array([i]) for i in range(n)],
        extra_rollout={"x": [str(i) for i in range(n)]},
        extra_step={"y": np.arange(m * 2).reshape(m, 2)},
    )


@st.composite
def cuts(draw: st.DrawFn) -> tuple[Rollouts, list[tuple[int, int, int]]]:
    lengths = draw(st.lists(st.integers(1, 6), min_size=1, max_size=4))
    final = draw(st.lists(st.booleans(), min_size=len(lengths), max_size=len(lengths)))
    ends = set(np.cumsum(lengths) - 1)
    inner = [t for t in range(sum(lengths)) if t not in ends]
    breaks = draw(st.lists(st.sampled_from(inner), unique=True, max_size=3)) if inner else []
    parts = []
    for i, length in enumerate(lengths):
        for _ in range(draw(st.integers(0, 2))):
            start = draw(st.integers(0, length - 1))
            parts.append((i, start, draw(st.integers(start + 1, length))))
    return batch(lengths, final=final, breaks=breaks), parts


def apply(rollouts: Rollouts, parts: list[tuple[int, int, int]]) -> Rollouts:
    index = np.array(parts, np.int64).reshape(-1, 3)
    return cut(rollouts, index[:, 0], index[:, 1], index[:, 2])


@given(cuts())
def test_every_transition_of_a_piece_is_the_one_it_was(case: tuple[Rollouts, list[tuple[int, int, int]]]) -> None:
    whole, parts = case
    made = apply(whole, parts)
    assert made.length.tolist() == [stop - start for _, start, stop in parts]
    for p, (rollout, start, stop) in enumerate(parts):
        new = slice(made.offsets[p], made.offsets[p + 1])
        old = slice(whole.offsets[rollout] + start, whole.offsets[rollout] + stop)
        for name in ("start_obs", "end_obs", "has_end", "action", "reward"):
            assert np.array_equal(getattr(made, name)[new], getattr(whole, name)[old]), name
        assert np.array_equal(made.extra_step["y"][new], whole.extra_step["y"][old])
        assert np.array_equal(made.context_obs[p], whole.context_obs[rollout])
        assert made.instruction[p] == whole.instruction[rollout]
        assert made.source_step[p] == start
        early = stop < whole.length[rollout]
        assert made.has_final[p] == (early or whole.has_final[rollout])
        assert made.terminal is not None
        assert made.terminal[new].tolist() == [True] * (stop - start - 1) + [not early]
        if early:
            assert made.truncated is not None
            assert made.truncated[new].tolist() == [False] * (stop - start - 1) + [True]


@given(cuts(), st.data())
def test_cutting_twice_is_cutting_once(case: tuple[Rollouts, list[tuple[int, int, int]]], data: st.DataObject) -> None:
    whole, first = case
    second, direct = [], []
    for p, (rollout, start, stop) in enumerate(first):
        low = data.draw(st.integers(0, stop - start - 1))
        high = data.draw(st.integers(low + 1, stop - start))
        second.append((p, low, high))
        direct.append((rollout, start + low, start + high))
    assert_same(apply(apply(whole, first), second), apply(whole, direct))


def assert_same(left: Rollouts, right: Rollouts) -> None:
    """Equal as a reader sees them: an absent array and one that says nothing are the same."""
    for part in fields(Rollouts):
        a, b = getattr(left, part.name), getattr(right, part.name)
        if part.name in ("reset_obs", "is_reset", "truncated", "break_obs"):
            continue
        assert_equal(a, b, part.name)
    assert_equal(left.context_obs, right.context_obs, "context_obs")
    assert_equal(left.end_obs, right.end_obs, "end_obs")
    for name, silent in (("is_reset", True), ("truncated", False)):
        a, b = (getattr(side, name) for side in (left, right))
        size = left.n_rollouts if name == "is_reset" else left.n_transitions
        a, b = (np.full(size, silent) if side is None else side for side in (a, b))
        assert_equal(a, b, name)


def assert_equal(a: Any, b: Any, name: str) -> None:
    if isinstance(a, dict):
        assert a.keys() == b.keys()
        for key in a:
            assert_equal(a[key], b[key], f"{name}.{key}")
    else:
        assert np.array_equal(np.asarray(a), np.asarray(b)), name


def test_a_cut_carries_row_0_of_its_episode_and_is_no_reset() -> None:
    whole = batch([4, 2])
    made = apply(whole, [(0, 0, 2), (0, 3, 4), (1, 0, 2)])
    assert made.is_reset is not None
    assert made.is_reset.tolist() == [True, False, True]
    assert made.context_obs.tolist() == [[0, 1], [0, 1], [10, 11]]
    assert made.obs[made.first_row].tolist() == [[0, 1], [6, 7], [10, 11]]


def test_prefixes_need_no_row_0_of_their_own() -> None:
    made = apply(batch([4, 2]), [(0, 0, 2), (1, 0, 2)])
    assert made.reset_obs is None
    assert made.is_reset is None


def test_the_last_transition_keeps_the_reading_it_was_judged_by() -> None:
    whole = batch([4], breaks=[1])
    made = apply(whole, [(0, 0, 2)])
    assert made.end_obs[1].tolist() == [-2, -2]
    assert made.obs[-1].tolist() == [-2, -2]
    assert len(made.break_at) == 0
    assert made.flags["chain_break"].tolist() == [False]
    inside = apply(whole, [(0, 1, 3)])
    assert inside.break_at.tolist() == [0]
    assert inside.flags["chain_break"].tolist() == [True]


def test_the_source_is_left_alone() -> None:
    whole = batch([4], breaks=[1])
    before = whole.obs.copy(), whole.break_at.copy()
    apply(whole, [(0, 0, 2), (0, 2, 4)])
    assert (whole.obs == before[0]).all()
    assert (whole.break_at == before[1]).all()
    assert whole.terminal is not None
    assert whole.terminal.all()


def test_an_empty_rollout_survives() -> None:
    made = apply(batch([0, 2]), [(0, 0, 0), (1, 0, 1)])
    assert made.length.tolist() == [0, 1]
    assert made.has_final.tolist() == [True, True]
    assert made.obs.tolist() == [[0, 1], [2, 3], [4, 5]]
