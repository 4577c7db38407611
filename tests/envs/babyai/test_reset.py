"""Fresh starts have the distribution of the benchmark's resets."""

from __future__ import annotations

from collections import deque

import numpy as np
import pytest
from scipy import stats

from qualcheck.envs.babyai import goals, kernel, reset
from qualcheck.envs.babyai.layout import COLOURS, TYPES, fields
from qualcheck.types import AnyArray

N = 6_000
AGENT = (13, 14)
ITEMS = ((1, 2), (4, 5), (7, 8))


def starts(task: str, n: int = N, seed: int = 0) -> tuple[AnyArray, list[tuple[str, ...]]]:
    rng = np.random.default_rng(seed)
    params = reset.sample_params(task, n, rng)
    return reset.sample_rows(task, params, n, rng).astype(int), params


def uniform(values: AnyArray, categories: int) -> float:
    """p value of the chi-square test that all categories are equally likely."""
    return float(stats.chisquare(np.bincount(values, minlength=categories)).pvalue)


def cells(rows: AnyArray, at: tuple[int, int]) -> AnyArray:
    return (rows[:, at[0]] - 1) * 6 + rows[:, at[1]] - 1


def gaps(rows: AnyArray) -> AnyArray:
    return np.stack([abs(rows[:, r] - rows[:, 13]) + abs(rows[:, c] - rows[:, 14]) for r, c in ITEMS])


@pytest.mark.parametrize("task", goals.TASK_IDS)
def test_every_start_can_be_taken_on_and_nothing_is_carried(task: str) -> None:
    rows, _ = starts(task)
    assert rows.shape == (N, 17)
    assert (kernel.takeable(fields(rows)) == 0).all()
    assert (rows[:, 15:] == 0).all()
    assert (rows[:, [1, 4, 7]] > 0).all()
    assert (gaps(rows) > 0).all()
    assert (rows[:, 11] == 7).all()
    assert (rows[:, 12] == (2 if task == "open_lock" else 1)).all()


@pytest.mark.parametrize("task", [task for task in goals.TASK_IDS if task not in ("go_wall", "go_center")])
def test_objects_start_two_moves_away_from_the_agent(task: str) -> None:
    distance = gaps(starts(task)[0])
    assert distance.min() == 2


def test_agent_and_door_row_are_uniform() -> None:
    rows, _ = starts("open")
    assert uniform(cells(rows, AGENT), 36) > 0.001
    assert uniform(rows[:, 10] - 1, 6) > 0.001


def test_objects_are_uniform_over_the_free_cells_in_their_order() -> None:
    rows, _ = starts("open", 60_000)
    corner = rows[(rows[:, 13] == 1) & (rows[:, 14] == 1)]  # 33 cells are two moves away
    assert len(corner) > 1_000
    for at in ITEMS:
        allowed = [c for c in range(36) if c // 6 + c % 6 >= 2]
        counts = np.bincount(cells(corner, at), minlength=36)
        assert counts.sum() == counts[allowed].sum()
        assert stats.chisquare(counts[allowed]).pvalue > 0.001


@pytest.mark.parametrize(("task", "lines"), [("go_wall", (3, 4)), ("go_center", (1, 2, 5, 6))])
def test_two_tasks_place_the_agent_in_their_own_region(task: str, lines: tuple[int, ...]) -> None:
    rows, _ = starts(task)
    assert np.isin(rows[:, AGENT], lines).all()
    assert len(set(cells(rows, AGENT).tolist())) == len(lines) ** 2
    assert gaps(rows).min() == 1


def walled_in(row: AnyArray) -> bool:
    """Breadth-first search over one start, written apart from the vectorised one."""
    items = {(int(row[r]), int(row[c])) for r, c in ITEMS}
    start = (int(row[13]), int(row[14]))
    seen, queue = {start}, deque([start])
    while queue:
        r, c = queue.popleft()
        for cell in ((r + 1, c), (r - 1, c), (r, c + 1), (r, c - 1)):
            if 1 <= cell[0] <= 6 and 1 <= cell[1] <= 6 and cell not in seen:
                seen.add(cell)
                if cell not in items:
                    queue.append(cell)
    return not items <= seen or (int(row[10]), 6) not in seen - items


def test_putnext_refuses_starts_with_something_walled_in() -> None:
    rows, _ = starts("putnext")
    assert not any(walled_in(row) for row in rows)
    others, _ = starts("pickup")
    share = np.mean([walled_in(row) for row in others])
    assert 0.02 < share < 0.2  # so the refusal above is not empty
    agent, items = cells(others, AGENT), np.stack([cells(others, at) for at in ITEMS])
    assert (reset.reachable(agent, items, others[:, 10]) == [not walled_in(row) for row in others]).all()


@pytest.mark.parametrize("task", ["goto", "open", "pickup", "putnext"])
def test_named_objects_have_their_colour_and_the_others_any(task: str) -> None:
    rows, params = starts(task)
    for number in range(0, len(params[0]), 2):
        kind = np.array([TYPES.index(p[number + 1]) for p in params])
        colour = np.array([COLOURS.index(p[number]) for p in params])
        assert (rows[np.arange(N), np.array([0, 3, 6, 9])[kind]] == colour).all()
    for column in (0, 3, 6, 9):
        assert uniform(rows[:, column], 6) > 0.001


def test_params_are_uniform_over_what_a_task_can_name() -> None:
    for task, kinds in (("goto", 4), ("pickup", 3)):
        _, params = starts(task)
        assert uniform(np.array([TYPES.index(kind) for _, kind in params]), kinds) > 0.001
        assert uniform(np.array([COLOURS.index(colour) for colour, _ in params]), 6) > 0.001
    _, params = starts("putnext")
    pairs = np.array([TYPES.index(p[1]) * 3 + TYPES.index(p[3]) for p in params])
    assert set(pairs.tolist()) == {1, 2, 3, 5, 6, 7}
    assert uniform(np.searchsorted([1, 2, 3, 5, 6, 7], pairs), 6) > 0.001


def test_locked_door_has_the_colour_of_the_key() -> None:
    rows, _ = starts("open_lock")
    assert (rows[:, 9] == rows[:, 6]).all()
    assert uniform(rows[:, 6], 6) > 0.001


@pytest.mark.parametrize(
    ("task", "share"),
    [
        ("putnext", 0.100),
        ("put_line", 0.031),
        ("put_pile", 0.017),
        *[(task, 0.0) for task in goals.TASK_IDS if task not in ("goto", "putnext", "put_line", "put_pile")],
    ],
)
def test_goal_already_holds_as_often_as_measured_in_the_benchmark(task: str, share: float) -> None:
    rows, params = starts(task)
    intended, _, _ = goals.holds(task, fields(rows).value, goals.role_columns(params))
    low, high = stats.binomtest(round(share * 1_500), 1_500).proportion_ci(0.999)  # measured on 1,500 resets
    assert low <= intended.mean() <= high
    assert share or not intended.any()


def test_goto_starts_at_its_goal_only_in_front_of_a_door() -> None:
    rows, params = starts("goto")
    intended, _, _ = goals.holds("goto", fields(rows).value, goals.role_columns(params))
    door = np.array([kind == "door" for _, kind in params])
    assert not intended[~door].any()
    assert stats.binomtest(int(intended.sum()), int(door.sum()), 1 / 36).pvalue > 0.001


def test_same_seed_same_starts_and_no_params_draw_every_colour() -> None:
    one, other = (reset.sample_rows("goto", None, 50, np.random.default_rng(7)) for _ in range(2))
    assert (one == other).all()
    assert one.dtype == np.float32
    many = reset.sample_rows("goto", None, N, np.random.default_rng(8)).astype(int)
    assert all(uniform(many[:, column], 6) > 0.001 for column in (0, 3, 6, 9))


def test_one_row_is_a_start_of_its_task() -> None:
    row = reset.sample_row("pickup", ("purple", "key"), np.random.default_rng(3))
    assert row.shape == (17,)
    assert row[6] == COLOURS.index("purple")
