"""Recordings of the scripted hand, and the floors of doing nothing and acting at random."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from qualcheck.envs.libero import goals, rules, text
from qualcheck.errors import UnknownName

pytest.importorskip("robosuite", reason="needs the extra libero")
pytest.importorskip("numba", reason="needs the extra libero")

from qualcheck.envs.libero import Libero, experts, floors, record, reset
from qualcheck.envs.libero.kernel import Simulator
from qualcheck.types import Placement


@pytest.fixture(scope="module")
def kernel() -> Iterator[Simulator]:
    kernel = Simulator()
    yield kernel
    kernel.close()


@pytest.mark.parametrize("task", ["pick-cream_cheese", "rep-place-alphabet_soup", "pick-out-of-salad_dressing"])
def test_the_scripted_hand_reaches_its_goal(task: str, kernel: Simulator) -> None:
    rollouts = record.record(task, 3, np.random.default_rng(0), simulator=kernel)
    assert rollouts.obs.dtype == rollouts.action.dtype == np.float32
    assert rollouts.terminal is not None
    assert rollouts.truncated is not None
    assert rollouts.reward is not None
    last = rollouts.offsets[1:] - 1
    assert rollouts.terminal[last].sum() >= 2
    assert ((rollouts.terminal | rollouts.truncated) == np.isin(np.arange(rollouts.n_transitions), last)).all()
    assert np.isfinite(rollouts.reward).all()
    assert {text.place(sentence).task for sentence in rollouts.instruction} == {task}
    placements = [Placement(task, task)]
    which = np.zeros(3, np.int64)
    assert (rules.reset_rule(rollouts, placements, which) == 0).all()
    rule, _ = rules.judge(rollouts)
    assert (rule > 0).mean() < 0.01


def test_recordings_are_replayed_like_the_benchmarks_own(kernel: Simulator) -> None:
    adapter = Libero()
    rollouts = record.record("pick-and-place-alphabet_soup", 2, np.random.default_rng(1), simulator=kernel)
    replay = adapter.replay(rollouts)
    assert not replay.code.any()
    error = np.abs(replay.candidates[0] - rollouts.end_obs)
    assert 2e-5 < np.median(error[:, 7:10].max(axis=1)) < 2e-4  # rows lag the simulator, as the benchmark's do
    assert np.quantile(error[:, 7:10].max(axis=1), 0.95) < 1e-3
    adapter.close()


def test_the_same_generator_gives_the_same_recording_and_another_one_another(kernel: Simulator) -> None:
    one, two, other = (
        record.record("reach-salad_dressing", 2, np.random.default_rng(seed), 0.5, kernel, 12) for seed in (4, 4, 5)
    )
    assert np.array_equal(one.obs, two.obs)
    assert np.array_equal(one.action, two.action)
    assert not np.array_equal(one.obs[0], other.obs[0])
    assert (one.length <= 12).all()


def test_a_share_of_the_recordings_acts_at_random(kernel: Simulator) -> None:
    random = record.record("pick-cream_cheese", 2, np.random.default_rng(0), 1.0, kernel, 20)
    assert np.abs(random.action[:, 3:6]).mean() > 0.3
    assert record.record("pick-cream_cheese", 0, np.random.default_rng(0), 1.0, kernel).n_rollouts == 0


def test_unknown_names_are_refused_before_anything_is_simulated() -> None:
    with pytest.raises(UnknownName):
        record.record("pick-milk", 1, np.random.default_rng(0))
    with pytest.raises(UnknownName):
        next(record.recordings("fit", 1, family="mujoco-2"))
    with pytest.raises(UnknownName):
        floors.measure("pick-milk", "noop", 5, 1, np.random.default_rng(0))
    with pytest.raises(UnknownName):
        floors.measure("pick-cream_cheese", "clever", 5, 1, np.random.default_rng(0))


def test_doing_nothing_reaches_no_object_and_the_script_does(kernel: Simulator) -> None:
    rows = floors.episodes_of("pick-alphabet_soup", "noop", 10, 3, np.random.default_rng(0), kernel)
    assert rows.shape == (3, 11, 44)
    assert (floors.first_success("pick-alphabet_soup", rows) == -1).all()
    live = experts.Live(kernel)
    played, _, _ = experts.episode(
        live, "reach-alphabet_soup", "pick-alphabet_soup", True, 60, np.random.default_rng(0)
    )
    assert floors.first_success("reach-alphabet_soup", played[None])[0] > 5


def test_floors_ship_for_every_task_and_grow_with_the_horizon() -> None:
    for task in goals.TASK_IDS:
        for policy in floors.POLICIES:
            short, long = (floors.shipped(task, policy, horizon) for horizon in (100, 150))
            assert short is not None
            assert long is not None
            assert 0 <= short[0] <= long[0] <= long[1] == floors.EPISODES
    assert floors.shipped("pick-cream_cheese", "noop", 100_000) is None
    assert floors.shipped("pick-milk", "noop", 100) is None
    assert {reset.start_of(task) for task in goals.TASK_IDS} == set(reset.STARTS)
