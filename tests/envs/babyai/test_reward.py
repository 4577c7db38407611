"""The recomputed reward: numbers worked out by hand, and every recorded reward of the benchmark's own runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from qualcheck.envs.babyai import goals, reward, text
from qualcheck.envs.babyai.layout import fields
from qualcheck.types import AnyArray, FloatArray, Placement, Rollouts

RED, GREEN, BLUE, PURPLE, YELLOW, GREY = range(6)
GONE = (0, 0)


def row(
    ball: tuple[int, int] = (2, 3),
    box: tuple[int, int] = (4, 5),
    key: tuple[int, int] = (6, 1),
    agent: tuple[int, int] = (3, 2),
    door: int = 2,
    state: int = 1,
    colours: tuple[int, int, int, int] = (RED, GREEN, BLUE, PURPLE),
) -> AnyArray:
    held = next(((number, colour) for number, colour, at in zip((6, 7, 5), colours, (ball, box, key), strict=False)
                 if at == GONE), (0, 0))  # fmt: skip
    return np.array(
        [colours[0], *ball, colours[1], *box, colours[2], *key, colours[3], door, 7, state, *agent, *held], np.float32
    )


def rollouts(*pieces: list[AnyArray], has_final: bool = True, **changes: Any) -> Rollouts:
    """Rollouts whose rows are given; without a final row the last action's end is not shown."""
    n = len(pieces)
    length = [len(piece) - has_final for piece in pieces]
    given: dict[str, Any] = {
        "obs": np.concatenate([np.stack(piece) for piece in pieces]),
        "action": np.zeros(sum(length), np.int64),
        "offsets": np.concatenate([[0], np.cumsum(length)]),
        "has_final": np.full(n, has_final),
        "source": np.zeros(n, np.int32),
        "source_rollout": np.arange(n, dtype=np.int32),
        "source_step": np.zeros(n, np.int32),
        "instruction": [None] * n,
    }
    return Rollouts(**{**given, **changes})


def both(task: str, params: tuple[str, ...], batch: Rollouts) -> dict[str, FloatArray]:
    placement = Placement(task, task, params) if task else text.AMBIGUOUS
    return reward.recompute(batch, [placement], np.zeros(batch.n_rollouts, np.int64))


def released(task: str, params: tuple[str, ...], *rows: AnyArray) -> list[float]:
    found = both(task, params, rollouts(list(rows)))["released"]
    return [float(value) for value in found]


def test_a_step_nearer_pays_its_share_of_the_way() -> None:
    # from (3, 2) the ball at (2, 3) is 2 away, so a step nearer pays 1 / 3 and a step away -1 / 3
    assert released("goto", ("red", "ball"), row(), row(agent=(2, 2)), row(agent=(3, 2))) == pytest.approx(
        [1 / 3, -1 / 3]
    )


def test_success_pays_one_less_the_time_used() -> None:
    rows = [row(), row(agent=(2, 2)), row(agent=(2, 3))]
    assert released("goto", ("red", "ball"), *rows)[1] == pytest.approx(1 - 0.9 * 2 / 128)


def test_steps_are_counted_in_the_source_rollout() -> None:
    rows = [row(agent=(2, 2)), row(agent=(2, 3))]
    early, late, last = (
        both("goto", ("red", "ball"), rollouts(rows, source_step=np.array([step], np.int32)))["released"][0]
        for step in (0, 99, 127)
    )
    assert early == pytest.approx(1 - 0.9 / 128)
    assert late == pytest.approx(1 - 0.9 * 100 / 128)
    assert last == pytest.approx(0.1 + 1 / 2)  # 1 - 0.9 is just under 0.1, so the dense term is added too


def test_a_cut_piece_measures_its_way_from_the_reset() -> None:
    rows = [row(agent=(2, 2)), row(agent=(3, 2))]
    cut = rollouts(rows, reset_obs=np.stack([row(agent=(6, 6))]))  # 7 away at the reset
    assert both("goto", ("red", "ball"), cut)["released"][0] == pytest.approx(-1 / 8)


@pytest.mark.parametrize(
    ("task", "params", "where", "effort"),
    [
        ("goto", ("red", "ball"), row(), 2),
        ("goto", ("purple", "door"), row(), 6),  # to the door's own cell (2, 7)
        ("goto", ("red", "ball"), row(ball=GONE), 1),
        ("open", ("purple", "door"), row(), 6),
        ("pickup", ("green", "box"), row(), 4),
        ("pickup", ("green", "box"), row(box=GONE), 1),
        ("putnext", ("red", "ball", "green", "box"), row(), 2 + 4 + 24),
        ("putnext", ("red", "ball", "green", "box"), row(ball=GONE), 4),
        ("putnext", ("red", "ball", "green", "box"), row(box=GONE), 72),
        ("putnext", ("red", "ball", "green", "box"), row(key=GONE), 72),
        ("putnext", ("blue", "ball", "green", "box"), row(ball=GONE), 72),  # not the ball that was named
        ("open_go", (), row(), 5 + 3 + 24),  # (2, 6), then the ball at (2, 3) or the box at (4, 5)
        ("open_go", (), row(state=0), 2),
        ("open_go", (), row(ball=GONE), 5 + 3 + 24),  # carried: 5 + 1 from the door, so the box is nearer
        ("open_pick", (), row(state=0, ball=GONE), 1),
        ("go_wall", (), row(agent=(3, 4)), 2),
        ("go_wall", (), row(agent=(2, 4)), 1),
        ("go_center", (), row(agent=(1, 6)), 4),
        ("go_center", (), row(agent=(3, 4)), 0),
        ("open_lock", (), row(colours=(RED, GREEN, BLUE, BLUE)), 4 + 9 + 24),
        ("open_lock", (), row(key=GONE, colours=(RED, GREEN, BLUE, BLUE)), 5),
        ("open_lock", (), row(key=GONE), 72),  # the key does not fit
        ("open_lock", (), row(ball=GONE), 72),
        ("put_line", (), row(), 2 * 4),  # rows 2, 4, 6 and cols 3, 5, 1
        ("put_line", (), row(ball=GONE), 2 * 3),  # at the agent's (3, 2): rows 3, 4, 6; cols 2, 5, 1
        ("put_pile", (), row(), 8 + 8),
        ("put_pile", (), row(key=GONE), 2 * (2 + 3)),  # at (3, 2): rows 2, 4, 3; cols 3, 5, 2
    ],
)
def test_effort_by_hand(task: str, params: tuple[str, ...], where: AnyArray, effort: int) -> None:
    found = reward.effort(task, fields(where[None]).value, goals.role_columns([params]))
    assert found.tolist() == [effort]


def test_readings_differ_only_for_open_pick() -> None:
    rows = [row(state=0, agent=(2, 3)), row(state=0, ball=GONE, agent=(2, 3))]
    found = both("open_pick", (), rollouts(rows))
    assert found["intended"][0] == pytest.approx(1 - 0.9 / 128)
    assert found["released"][0] == pytest.approx(-1.0)  # 0 steps away before, 1 when carried, over 0 + 1
    same = both("open_go", (), rollouts(rows))
    assert same["intended"].tolist() == same["released"].tolist()


def test_no_reward_without_a_task_an_end_row_or_two_rows_that_can_be_taken_on() -> None:
    rows = [row(), row(agent=(2, 2)), row(agent=(2, 3))]
    assert np.isnan(both("", (), rollouts(rows))["released"]).all()
    unseen = both("goto", ("red", "ball"), rollouts(rows, has_final=False))["released"]
    assert np.isnan(unseen).tolist() == [False, False, True]
    overlap = [row(), row(box=(2, 3)), row(agent=(2, 2)), row(agent=(2, 3))]
    assert np.isnan(both("goto", ("red", "ball"), rollouts(overlap))["intended"]).tolist() == [True, True, False]
    holes = [row(), np.full(17, np.nan, np.float32), row(), row(agent=(2, 2))]
    assert np.isnan(both("goto", ("red", "ball"), rollouts(holes))["released"]).tolist() == [True, True, False]
    from_bad = [row(box=(2, 3)), row(), row(agent=(2, 2))]  # the way at the reset is not known
    assert np.isnan(both("goto", ("red", "ball"), rollouts(from_bad))["released"]).all()


def test_where_the_file_shows_two_end_rows_its_own_next_observation_counts() -> None:
    rows = [row(), row(agent=(3, 3)), row(agent=(2, 3))]
    broken = rollouts(rows, break_at=np.array([0]), break_obs=np.stack([row(agent=(3, 1))]))
    found = both("goto", ("red", "ball"), broken)["released"]
    assert found[0] == pytest.approx(-1 / 3)
    assert found[1] == pytest.approx(1 - 0.9 * 2 / 128)


def test_rollouts_do_not_touch_each_other() -> None:
    rows = [row(), row(agent=(2, 2)), row(agent=(2, 3))]
    other = [row(agent=(6, 6)), row(agent=(6, 5))]
    alone = both("goto", ("red", "ball"), rollouts(rows))["released"]
    together = both("goto", ("red", "ball"), rollouts(other, rows, other))["released"]
    assert together[1:3].tolist() == alone.tolist()
    assert together[0] == together[3] == pytest.approx(1 / 8)


def test_an_empty_batch_has_no_rewards() -> None:
    empty = Rollouts(
        np.zeros((0, 17), np.float32), np.zeros(0, np.int64), np.zeros(1, np.int64), np.zeros(0, bool),
        np.zeros(0, np.int32), np.zeros(0, np.int32), np.zeros(0, np.int32), [],
    )  # fmt: skip
    found = reward.recompute(empty, [], np.zeros(0, np.int64))
    assert {name: len(values) for name, values in found.items()} == {"released": 0, "intended": 0}


def load(path: Path) -> tuple[Rollouts, list[Placement]]:
    data: dict[str, Any] = np.load(path, allow_pickle=True).item()
    length = (data["masks"].reshape(len(data["masks"]), -1) > 0).sum(axis=1)
    final = "next_observations" in data
    pieces, recorded = [], []
    for i, steps in enumerate(length):
        rows = list(data["observations"][i, :steps])
        pieces.append([*rows, data["next_observations"][i, steps - 1]] if final else rows)
        recorded.append(data["rewards"][i, :steps, 0])
    batch = rollouts(*pieces, has_final=final, reward=np.concatenate(recorded).astype(float))
    return batch, [text.place(sentences[0]) for sentences in data["instructions"]]


@pytest.mark.parametrize("level", ["real", "rephrase", "easy", "hard"])
def test_every_recorded_reward_is_recomputed(shared_data: Path, level: str) -> None:
    batch, placements = load(shared_data / f"golden/babyai_{level}.npy")
    found = reward.recompute(batch, placements, np.arange(len(placements)))["released"]
    assert batch.reward is not None
    assert not np.isnan(found).any()
    assert abs(found - batch.reward).max() <= 1e-5


@pytest.mark.parametrize("level", ["rephrase", "easy"])
def test_every_imagined_reward_is_recomputed_and_zero_where_it_cannot_be(shared_data: Path, level: str) -> None:
    batch, placements = load(shared_data / f"imagined/imag_babyai_{level}.npy")
    found = reward.recompute(batch, placements, np.arange(len(placements)))["released"]
    assert batch.reward is not None
    assert abs(np.nan_to_num(found) - batch.reward).max() <= 1e-5
    steppable = np.load(shared_data / f"imagined/imag_babyai_{level}_labels.npz")["steppable"] == 1
    known = steppable[batch.rollout, batch.step] & batch.has_end
    known[known] = steppable[batch.rollout[known], batch.step[known] + 1]
    assert (np.isnan(found) == ~known).all()
