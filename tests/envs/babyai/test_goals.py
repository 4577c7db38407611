"""Goals on rows typed by hand, on recorded rollouts, and on imagined ones with labels of the reference simulator."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from qualcheck.envs.babyai import goals, kernel, text
from qualcheck.envs.babyai.layout import fields
from qualcheck.types import AnyArray, GoalRows, Placement, Trajectory

RED, GREEN, BLUE, PURPLE, YELLOW, GREY = range(6)
GONE = (0, 0)


def row(
    ball: tuple[int, int] = (2, 3),
    box: tuple[int, int] = (4, 5),
    key: tuple[int, int] = (6, 1),
    agent: tuple[int, int] = (3, 2),
    door: int = 2,
    state: int = 1,
) -> AnyArray:
    """A row with a red ball, a green box, a blue key and a purple door."""
    held = next(((number, colour) for number, colour, at in ((6, RED, ball), (7, GREEN, box), (5, BLUE, key))
                 if at == GONE), (0, 0))  # fmt: skip
    return np.array([RED, *ball, GREEN, *box, BLUE, *key, PURPLE, door, 7, state, *agent, *held], np.float32)


def judge(task: str, params: tuple[str, ...], *rows: AnyArray, ok: bool = True) -> GoalRows:
    obs = np.stack(rows)
    trajectory = Trajectory(obs, np.array([0, len(obs)]), np.full(len(obs), ok))
    return goals.evaluate(trajectory, [Placement(task, task, params)], np.zeros(1, np.int64))


LINE = {"ball": (3, 1), "box": (3, 6), "key": (3, 4)}
PILE = {"ball": (3, 3), "box": (3, 4), "key": (4, 4)}

TRUE = [
    ("goto", ("red", "ball"), row(agent=(2, 3))),
    ("goto", ("green", "box"), row(agent=(4, 5))),
    ("goto", ("blue", "key"), row(agent=(6, 1))),
    ("goto", ("purple", "door"), row(agent=(2, 6))),
    ("open", ("purple", "door"), row(state=0)),
    ("pickup", ("red", "ball"), row(ball=GONE)),
    ("pickup", ("blue", "key"), row(key=GONE)),
    ("putnext", ("red", "ball", "green", "box"), row(ball=(3, 5))),
    ("putnext", ("green", "box", "red", "ball"), row(ball=(4, 4))),
    ("putnext", ("blue", "key", "purple", "door"), row(key=(2, 6))),
    ("open_go", (), row(state=0, agent=(4, 5))),
    ("open_pick", (), row(state=0, box=GONE)),
    ("go_wall", (), row(agent=(1, 3))),
    ("go_wall", (), row(agent=(3, 6))),
    ("go_center", (), row(agent=(4, 3))),
    ("open_lock", (), row(state=0)),
    ("put_line", (), row(**LINE)),
    ("put_line", (), row(ball=(1, 2), box=(6, 2), key=(3, 2))),
    ("put_pile", (), row(**PILE)),
    ("put_pile", (), row(ball=(4, 3), box=(3, 3), key=(3, 4))),
]

FALSE = [
    ("goto", ("red", "ball"), row(agent=(2, 4))),
    ("goto", ("red", "ball"), row(ball=GONE)),
    ("goto", ("green", "ball"), row(agent=(2, 3))),  # the ball is red
    ("goto", ("red", "ball"), row(agent=(4, 5))),
    ("goto", ("purple", "door"), row(agent=(3, 6))),
    ("goto", ("purple", "door"), row(agent=(2, 5))),
    ("goto", ("grey", "door"), row(agent=(2, 6))),
    ("open", ("purple", "door"), row(state=1)),
    ("open", ("purple", "door"), row(state=2)),
    ("open", ("red", "door"), row(state=0)),
    ("pickup", ("red", "ball"), row(agent=(2, 3))),
    ("pickup", ("red", "ball"), row(box=GONE)),
    ("pickup", ("blue", "ball"), row(ball=GONE)),
    ("putnext", ("red", "ball", "green", "box"), row(ball=(3, 4))),  # diagonal
    ("putnext", ("red", "ball", "green", "box"), row(ball=(4, 3))),  # two cells away
    ("putnext", ("red", "ball", "green", "box"), row(ball=GONE, box=(1, 1))),
    ("putnext", ("red", "ball", "green", "box"), row(ball=(6, 2))),  # beside the key
    ("putnext", ("red", "ball", "blue", "box"), row(ball=(3, 5))),
    ("putnext", ("blue", "ball", "green", "box"), row(ball=(3, 5))),
    ("putnext", ("red", "ball", "red", "ball"), row()),
    ("open_go", (), row(state=0)),
    ("open_go", (), row(agent=(4, 5))),
    ("open_go", (), row(state=0, ball=GONE)),
    ("open_pick", (), row(state=0)),
    ("open_pick", (), row(ball=GONE)),
    ("go_wall", (), row(agent=(2, 5))),
    ("go_center", (), row(agent=(3, 2))),
    ("go_center", (), row(agent=(5, 4))),
    ("open_lock", (), row(key=GONE, state=2)),
    ("put_line", (), row(ball=(3, 1), box=(3, 6), key=(4, 4))),
    ("put_line", (), row(ball=(3, 1), box=(3, 6), key=GONE)),
    ("put_pile", (), row(ball=(3, 3), box=(3, 4), key=(3, 5))),
    ("put_pile", (), row(ball=(3, 3), box=(4, 3), key=(5, 3))),
    ("put_pile", (), row(ball=(3, 3), box=(3, 4), key=(5, 4))),
    ("put_pile", (), row(ball=(3, 3), box=(4, 4), key=(5, 5))),
]


@pytest.mark.parametrize(("task", "params", "where"), TRUE)
def test_goal_holds_on_a_row_typed_by_hand(task: str, params: tuple[str, ...], where: AnyArray) -> None:
    found = judge(task, params, where)
    assert found.intended[0]
    assert found.released[0] == (task != "open_pick")
    assert found.share[0] == 1


@pytest.mark.parametrize(("task", "params", "where"), FALSE)
def test_goal_fails_on_a_row_typed_by_hand(task: str, params: tuple[str, ...], where: AnyArray) -> None:
    found = judge(task, params, where)
    assert not found.intended[0]
    assert not found.released[0]
    assert found.share[0] < 1


@pytest.mark.parametrize(("task", "params", "where"), TRUE)
def test_goal_is_never_true_on_a_row_that_cannot_be_taken_on(
    task: str, params: tuple[str, ...], where: AnyArray
) -> None:
    found = judge(task, params, where, ok=False)
    assert not found.intended[0]
    assert not found.released[0]
    assert found.share[0] == 0


def test_share_counts_the_sub_goals() -> None:
    shares = judge("open_go", (), row(), row(state=0), row(agent=(4, 5)), row(state=0, agent=(4, 5))).share
    assert shares.tolist() == [0, 0.5, 0.5, 1]
    shares = judge("open_pick", (), row(), row(state=0), row(box=GONE), row(state=0, box=GONE)).share
    assert shares.tolist() == [0, 0.5, 0.5, 1]
    assert all(len(parts) == (2 if task in ("open_go", "open_pick") else 1) for task, parts in goals.SUB_GOALS.items())


def test_every_task_of_every_level_has_sub_goals() -> None:
    assert set(goals.SUB_GOALS) == set(goals.TASK_IDS)
    assert len(goals.TASK_IDS) == 11
    assert goals.TASKS["real"] == goals.TASKS["rephrase"]


def test_rollouts_of_all_tasks_together_are_judged_as_alone() -> None:
    cases = [*TRUE, *FALSE]
    placements = [Placement(task, task, params) for task, params, _ in cases] + [text.AMBIGUOUS]
    which = np.concatenate([np.random.default_rng(0).permutation(len(cases)), [len(cases)]])
    obs = np.stack([np.stack([cases[i][2], row()]) if i < len(cases) else np.stack([row(), row()]) for i in which])
    offsets = np.arange(len(which) + 1) * 2
    found = goals.evaluate(Trajectory(obs.reshape(-1, 17), offsets, np.ones(offsets[-1], bool)), placements, which)
    for number, i in enumerate(which[:-1]):
        alone = judge(cases[i][0], cases[i][1], cases[i][2], row())
        part = slice(2 * number, 2 * number + 2)
        assert found.intended[part].tolist() == alone.intended.tolist()
        assert found.released[part].tolist() == alone.released.tolist()
        assert found.share[part].tolist() == alone.share.tolist()
    assert not found.intended[-2:].any()
    assert not found.released[-2:].any()
    assert np.isnan(found.share[-2:]).all()
    assert not np.isnan(found.share[:-2]).any()


def test_no_rollouts_and_empty_rollouts_are_fine() -> None:
    nothing = goals.evaluate(Trajectory(np.zeros((0, 17), np.float32), np.zeros(1, np.int64), np.zeros(0, bool)), [],
                             np.zeros(0, np.int64))  # fmt: skip
    assert len(nothing.share) == 0
    rows = Trajectory(row()[None], np.array([0, 0, 1]), np.ones(1, bool))
    found = goals.evaluate(rows, [Placement("go_wall", "go_wall")], np.zeros(2, np.int64))
    assert len(found.intended) == 1


def load(path: Path) -> tuple[dict[str, Any], Trajectory, list[Placement]]:
    """Rows and placements of a benchmark file, the final next observation included."""
    data: dict[str, Any] = np.load(path, allow_pickle=True).item()
    masks = data["masks"].reshape(len(data["masks"]), -1) > 0
    parts = [rows[mask] for rows, mask in zip(data["observations"], masks, strict=True)]
    if "next_observations" in data:
        last = masks.sum(axis=1) - 1
        parts = [np.concatenate([rows, data["next_observations"][i, last[i], None]]) for i, rows in enumerate(parts)]
    obs = np.concatenate(parts)
    offsets = np.concatenate([[0], np.cumsum([len(part) for part in parts])])
    placements = [text.place(sentences[0]) for sentences in data["instructions"]]
    return data, Trajectory(obs, offsets, kernel.takeable(fields(obs)) == 0), placements


def first_and_later(hit: AnyArray, offsets: AnyArray) -> tuple[AnyArray, AnyArray]:
    first = hit[offsets[:-1]]
    total = np.add.reduceat(hit.astype(int), offsets[:-1])
    return first, total - first > 0


@pytest.mark.parametrize("level", ["real", "rephrase", "easy", "hard"])
def test_released_goal_equals_the_recorded_success(shared_data: Path, level: str) -> None:
    data, rows, placements = load(shared_data / f"golden/babyai_{level}.npy")
    found = goals.evaluate(rows, placements, np.arange(len(placements)))
    first, later = first_and_later(found.released, rows.offsets)
    assert (first == data["success"][:, 0]).all()
    assert (later == data["success"][:, 1]).all()


@pytest.mark.parametrize(
    "name", ["imagined/imag_babyai_rephrase", "imagined/imag_babyai_easy", "mutated/babyai_mutated"]
)
def test_goals_equal_the_labels_of_the_reference_simulator(shared_data: Path, name: str) -> None:
    _, rows, placements = load(shared_data / f"{name}.npy")
    labels = np.load(shared_data / f"{name}_labels.npz")
    found = goals.evaluate(rows, placements, np.arange(len(placements)))
    first, later = first_and_later(found.released, rows.offsets)
    assert (first == labels["goal_row0"]).all()
    assert (later == labels["goal_imagined"]).all()
    assert (first_and_later(found.intended, rows.offsets)[1] == labels["goal_imagined_intended"]).all()
