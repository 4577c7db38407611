"""Each fault bends the one transition it says, and the labels see it there."""

from __future__ import annotations

import numpy as np
import pytest

from qualcheck.demo import corrupt, label, record
from qualcheck.demo.episode import MAX_STEPS, Episode
from qualcheck.envs.babyai import goals

# transitions out of a row that MiniGrid refuses follow these; after all others everything is right again
REFUSED_AFTER = {"wall_walk", "two_carried", "overlap"}


@pytest.fixture(scope="module")
def recordings() -> list[Episode]:
    rng = np.random.default_rng(8)
    return [episode for task in goals.TASK_IDS for episode in record.record(task, "easy", 12, rng)]


@pytest.fixture(scope="module")
def bent(recordings: list[Episode]) -> list[Episode]:
    return corrupt.corrupt(recordings, 4, np.random.default_rng(9))


@pytest.mark.parametrize("fault", corrupt.FAULTS)
def test_fault_bends_its_own_step_and_no_other(fault: str, bent: list[Episode]) -> None:
    mine = [episode for episode in bent if episode.fault == fault]
    assert len(mine) == 4
    for episode in mine:
        rollouts = label.labelled([episode])
        right = rollouts.extra_step["correct"]
        assert episode.length == len(episode.rows) - 1 <= MAX_STEPS
        if fault == "goal_tail_cut":
            assert (right == 1).all()
            assert episode.terminal
            assert rollouts.extra_rollout["goal_imagined"] == [0]
            assert episode.fault_step == episode.length - 1
            continue
        assert right[episode.fault_step] == 0
        others = np.delete(right, episode.fault_step)
        if fault in REFUSED_AFTER:
            assert right[episode.fault_step + 1] == -1
            assert (others == -1).sum() == 1
            assert (others != 0).all()
        else:
            assert (others == 1).all()


def test_claims_of_bent_rollouts_that_go_on_are_true_in_their_own_rows(bent: list[Episode]) -> None:
    goes_on = {
        "agent_teleport",
        "object_teleport",
        "pickup_from_afar",
        "door_toggle_afar",
        "frozen_agent",
        "door_locks",
    }
    mine = [episode for episode in bent if episode.fault in goes_on]
    found = label.labelled(mine).extra_rollout["goal_imagined"]
    assert [bool(goal) for goal in found] == [episode.terminal for episode in mine]
    assert any(found)


def test_every_bent_rollout_comes_from_another_recording(bent: list[Episode]) -> None:
    starts = {(episode.rows[0].tobytes(), episode.start.instruction) for episode in bent}
    assert len(starts) == len(bent) == 4 * len(corrupt.FAULTS)


def test_too_few_recordings_are_refused_by_name(recordings: list[Episode]) -> None:
    walks = [episode for episode in recordings if episode.start.placement.task == "go_wall"]
    with pytest.raises(ValueError, match="of 6 rollouts made from 12 recordings; give more"):
        corrupt.corrupt(walks, 6, np.random.default_rng(0))
