"""One push: against recorded full states, against a plain loop, and as numbers that can be worked out by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from qualcheck.envs.clevr.dynamics import (
    QUATERNION,
    SPIN,
    SUBSTEPS,
    VELOCITY,
    XY,
    Dynamics,
    Z,
    at_rest,
    hidden_of,
    make_model,
    state_of,
)
from qualcheck.errors import UnknownName

APART = np.array([[[-0.4, 0.0], [0.0, 0.0], [-0.4, 0.4], [0.0, 0.5], [0.4, 0.5]]])


@pytest.fixture(scope="module")
def simulator() -> Any:
    dynamics = Dynamics()
    yield dynamics
    dynamics.close()


@pytest.fixture(scope="module")
def recorded(golden: Any) -> tuple[Any, Any, Any]:
    """Full states of a file, their actions and the rows after them."""
    data, rollouts = golden["hard"]
    valid = np.reshape(data["masks"], data["states"].shape[:2]) > 0
    return data["states"][valid], rollouts.action, rollouts.end_obs


def test_recorded_full_states_step_to_the_recorded_rows(simulator: Any, recorded: Any) -> None:
    state, action, after = (part[:800] for part in recorded)
    end, sound = simulator.step(state, action)
    assert sound.all()
    assert np.abs(end[:, XY.ravel()] - after).max() < 1e-7
    other, _ = simulator.step(state, (action + 8) % 40)
    assert (np.abs(other[:, XY.ravel()] - after).max(axis=1) > 1e-2).mean() > 0.95


def test_plain_loop_gives_the_same_to_the_bit(simulator: Any, recorded: Any) -> None:
    state, action, _ = (part[:200] for part in recorded)
    for one, other in zip(simulator.step(state, action), simulator.step_plain(state, action), strict=True):
        assert np.array_equal(one, other)


def test_results_do_not_depend_on_batch_order_or_threads(simulator: Any, recorded: Any) -> None:
    state, action, _ = (part[:600] for part in recorded)  # more than one chunk
    whole, _ = simulator.step(state, action)
    order = np.random.default_rng(0).permutation(600)
    for threads in (1, 3):
        other = Dynamics(threads)
        assert np.array_equal(other.step(state[order], action[order])[0], whole[order])
        assert np.array_equal(other.step(state[7:9], action[7:9])[0], whole[7:9])
        other.close()


def test_balls_turned_upright_have_the_same_future(simulator: Any, recorded: Any) -> None:
    state, action = recorded[0][:400].copy(), recorded[1][:400]
    turned = np.random.default_rng(0).normal(size=(400, 5, 4))
    state[:, QUATERNION] = turned / np.linalg.norm(turned, axis=2, keepdims=True)
    upright = state_of(state[:, XY], hidden_of(state))
    end, again = simulator.step(state, action)[0], simulator.step(upright, action)[0]
    assert np.abs(again[:, XY] - end[:, XY]).max() < 1e-12
    assert np.abs(hidden_of(again) - hidden_of(end)).max() < 1e-12
    wrong = upright.copy()
    wrong[:, SPIN] = state[:, SPIN]  # spins about the ball's axes taken for those about the world's
    assert np.abs(simulator.step(wrong, action)[0][:, XY] - end[:, XY]).max() > 1e-5


def test_quarter_turn_moves_the_spin_to_the_world_axes() -> None:
    state = state_of(APART, at_rest(1))
    state[:, QUATERNION[0]] = [np.sqrt(0.5), 0, 0, np.sqrt(0.5)]  # about z: the ball's x is the world's y
    state[:, SPIN[0]] = [3.0, 0.0, 1.0]
    np.testing.assert_allclose(hidden_of(state)[0, :7], [-0.195, 0, 0, 0, 0, 3, 1], atol=1e-12)


def test_hidden_numbers_survive_the_way_there_and_back() -> None:
    hidden = np.random.default_rng(0).normal(size=(4, 35))
    state = state_of(np.repeat(APART, 4, axis=0), hidden)
    assert np.array_equal(hidden_of(state), hidden)
    assert np.array_equal(state[:, Z], hidden.reshape(4, 5, 7)[..., 0])
    assert np.array_equal(state[:, VELOCITY], hidden.reshape(4, 5, 7)[..., 1:4])


def test_clean_push_moves_its_ball_alone_by_the_measured_distance(simulator: Any) -> None:
    end, _ = simulator.step(state_of(np.repeat(APART, 2, axis=0), at_rest(2)), np.array([8, 12]))
    moved = end[:, XY] - APART
    np.testing.assert_allclose(moved[:, 1], [[0.2485, 0.0], [0.1965, 0.1965]], atol=2e-4)
    assert np.abs(np.delete(moved, 1, axis=1)).max() < 1e-3


def test_where_the_pusher_was_and_how_fast_does_not_matter(simulator: Any) -> None:
    state = state_of(APART, at_rest(1))
    other = state.copy()
    other[:, 35:37], other[:, 67:69] = 0.3, 5.0
    assert np.array_equal(simulator.step(state, np.array([9]))[0], simulator.step(other, np.array([9]))[0])


def test_simulator_that_gives_up_is_told_apart_and_leaves_no_file(
    simulator: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    state = np.repeat(state_of(APART, at_rest(1)), 3, axis=0)
    state[1, VELOCITY[2]] = 1e11
    for step in (simulator.step, simulator.step_plain):
        end, sound = step(state, np.array([8, 8, 8]))
        assert sound.tolist() == [True, False, True]
        assert np.isnan(end[1]).all()
        assert np.array_equal(end[0], end[2])
    assert list(tmp_path.iterdir()) == []


def test_steps_are_counted_and_an_empty_batch_is_fine() -> None:
    dynamics = Dynamics(2)
    end, sound = dynamics.step(np.zeros((0, 69)), np.zeros(0, np.int64))
    assert (end.shape, sound.shape, dynamics.steps) == ((0, 69), (0,), 0)
    dynamics.step(np.repeat(state_of(APART, at_rest(1)), 3, axis=0), np.array([1, 2, 3]))
    assert dynamics.steps == 3 * SUBSTEPS
    dynamics.close()


def test_older_family_counts_the_armature_in_the_weights_of_the_pusher_only() -> None:
    new, old = make_model(), make_model("mujoco-2")
    mass = 0.5 * 4 / 3 * np.pi * 0.05**3  # kg, typed by hand: density and radius of the pusher
    np.testing.assert_allclose(old.dof_invweight0[30:], 1 / (mass + 0.04))
    np.testing.assert_allclose(old.body_invweight0[6], [2 / 3 / (mass + 0.04), 0])
    assert np.array_equal(new.body_invweight0[:6], old.body_invweight0[:6])
    assert new.body_invweight0[6, 0] > 10 * old.body_invweight0[6, 0]
    with pytest.raises(UnknownName, match="mujoco-2"):
        make_model("mujoco-1")


def test_first_steps_of_the_older_recordings_belong_to_the_older_family(kalm: Any) -> None:
    first = np.flatnonzero(kalm.step == 0)
    state = state_of(kalm.start_obs[first].astype(np.float64).reshape(-1, 5, 2), at_rest(len(first)))
    error = {}
    for family in ("mujoco-3", "mujoco-2"):
        dynamics = Dynamics(family=family)
        end, _ = dynamics.step(state, kalm.action[first])
        error[family] = np.abs(end[:, XY.ravel()] - kalm.end_obs[first]).max(axis=1)
        dynamics.close()
    assert error["mujoco-2"].max() < 1e-6
    assert np.median(error["mujoco-3"]) > 1e-3
