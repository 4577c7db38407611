"""Recorded rollouts: real physics, the benchmark's layout, legal starts."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from qualcheck.envs.metaworld import MetaWorld, experts, record, reset
from qualcheck.envs.metaworld.kernel import Kernel
from qualcheck.envs.metaworld.layout import CONTACT, GOAL, TASKS, block, position, simulated_columns
from qualcheck.envs.metaworld.reset_rules import broken_start
from qualcheck.errors import UnknownName


@pytest.fixture(scope="module")
def kernel() -> Iterator[Kernel]:
    made = Kernel("2.3", threads=2)
    yield made
    made.close()


@pytest.mark.parametrize("task", sorted(TASKS))
def test_a_fresh_reset_breaks_no_law_of_row_0(task: str, kernel: Kernel) -> None:
    rows = reset.sample(task, 3, np.random.default_rng(5), kernel)
    assert not np.logical_or.reduce(broken_start(task, rows)).any()
    assert not rows[:, ~simulated_columns(task)].any()
    assert len(np.unique(rows[:, position(TASKS[task].entities[0])][:, :2], axis=0)) == 3


def test_a_fresh_reset_is_the_recorded_row_0_of_the_same_draw(golden: dict, kernel: Kernel) -> None:
    for name in ("real", "easy", "hard"):
        data, placements, rollouts = golden[name]
        for task in {placement.task for placement in placements} - {"door-unlock", "door-lock", "make-coffee"}:
            i = next(i for i, placement in enumerate(placements) if placement.task == task)
            shown = rollouts.obs[rollouts.first_row[i]].astype(np.float64)
            entity = TASKS[task].entities[0]
            made = kernel.first_row(task, shown[position(entity)], shown[GOAL], data["scene"][i] == "fork")
            np.testing.assert_allclose(made[:7], shown[:7], atol=3e-5, err_msg=task)
            for each in TASKS[task].entities:
                np.testing.assert_allclose(made[block(each)], shown[block(each)], atol=1e-5, err_msg=task)


def test_rollouts_are_real_legal_and_end_with_their_goal(kernel: Kernel) -> None:
    adapter = MetaWorld()
    for task in ("faucet-open", "coffee-button", "hammer"):
        rollouts = record.record(task, 4, np.random.default_rng(2), 0.25, kernel)
        assert rollouts.obs.dtype == rollouts.action.dtype == np.float32
        assert {adapter.place(text).task for text in rollouts.instruction} == {task}
        placements, which = [adapter.place(rollouts.instruction[0])], np.zeros(4, np.int64)
        legality = adapter.legality(rollouts, placements, which)
        assert not legality.rule.any()
        assert not legality.row0_rule.any()
        assert rollouts.terminal is not None
        assert rollouts.truncated is not None
        assert rollouts.terminal.sum() >= 2
        last = rollouts.offsets[1:] - 1
        assert (rollouts.terminal | rollouts.truncated)[last].all()
        assert (rollouts.reward[rollouts.terminal] == 10).all()  # type: ignore[index]
        replay = adapter.replay(rollouts)
        free = replay.situation < CONTACT
        assert np.abs(replay.candidates[0] - rollouts.end_obs)[free].max() < 2e-3
    adapter.close()


def test_recordings_are_drawn_from_their_seed_alone(kernel: Kernel) -> None:
    first, again = (record.record("reach", 2, np.random.default_rng(8), 0.5, kernel, 12) for _ in range(2))
    other = record.record("reach", 2, np.random.default_rng(9), 0.5, kernel, 12)
    np.testing.assert_array_equal(first.obs, again.obs)
    assert first.instruction == again.instruction
    assert not np.array_equal(first.obs, other.obs)


def test_every_task_has_a_script_and_every_second_door_is_rigid(kernel: Kernel) -> None:
    for task in TASKS:
        row = reset.sample(task, 1, np.random.default_rng(1), kernel)[0]
        action = experts.Scripted(task, np.random.default_rng(0)).act(row, row)
        assert action.shape == (4,)
        assert np.abs(action).max() <= 1
    doors = record.record("door-unlock", 2, np.random.default_rng(3), 0.0, kernel, 1)
    turned = doors.obs[doors.first_row][:, block("lock")][:, 3]
    np.testing.assert_allclose(turned, [np.sqrt(0.5), 1], atol=1e-6)


def test_unknown_tasks_and_families_are_refused() -> None:
    with pytest.raises(UnknownName):
        record.record("juggle", 1, np.random.default_rng(0))
    with pytest.raises(UnknownName):
        next(record.recordings("fit", 1, "mujoco-9"))
