"""Policies of recordings."""

from __future__ import annotations

import numpy as np
import pytest

from qualcheck.envs.clevr import goals, measures, policies, reset
from qualcheck.envs.clevr.dynamics import FAMILIES, XY, Dynamics, at_rest, state_of
from qualcheck.envs.clevr.layout import takeable, xy
from qualcheck.errors import UnknownName
from qualcheck.types import Placement

RANDOM, GREEDY, LOOK = range(3)


def played(task: str, policy: int, n: int, seed: int = 5, horizon: int = 50) -> policies.Played:
    rng = np.random.default_rng(seed)
    start = reset.sample(n, rng)
    roles = goals.roles(reset.draw(task, xy(start), rng))
    dynamics = Dynamics()
    found = policies.play(start, roles, np.full(n, policy), dynamics, rng, horizon)
    dynamics.close()
    return found


@pytest.mark.parametrize("task", goals.TASKS["real"])
def test_looking_and_greed_reach_the_goals_of_the_real_level(task: str) -> None:
    assert played(task, LOOK, 6).won.mean() >= 0.8
    assert played(task, GREEDY, 20).won.mean() >= 0.8


@pytest.mark.parametrize("task", [task for task in goals.TASKS["easy"] if task != "push_still"])
def test_looking_reaches_the_easy_goals_in_their_only_step(task: str) -> None:
    found = played(task, LOOK, 20)
    assert found.won.all()
    assert (found.length == 1).all()
    assert played(task, RANDOM, 200).won.mean() < 0.25


def test_looking_reaches_two_goals_at_once_and_gathers() -> None:
    assert played("tau_2", LOOK, 4).won.mean() >= 0.6
    assert played("gather", LOOK, 4).won.mean() >= 0.6


def test_greed_sometimes_makes_a_line_or_three_neighbours() -> None:
    for task in ("order", "tau_3"):
        found = played(task, GREEDY, 16)
        assert found.won.any()
        assert (found.length[~found.won] == 50).all()


def test_looking_finds_the_push_that_moves_nothing() -> None:
    corner = [-0.47, 0.57, 0.47, 0.57, -0.47, -0.17, 0.47, -0.17, 0.0, 0.2]
    state = state_of(xy(np.array([corner])), at_rest(1))
    roles = goals.roles([Placement("push_still", "push_still", ("cyan",))])
    dynamics = Dynamics()
    action = policies.look(state, roles, dynamics, np.random.default_rng(0))
    end, _ = dynamics.step(state, action)
    assert policies.reached(roles, state[:, XY], end[:, XY], action).all()
    assert np.abs(end[:, XY] - state[:, XY]).max() < 0.03
    right, _ = dynamics.step(state, np.array([8 * 4]))
    assert not policies.reached(roles, state[:, XY], right[:, XY], np.array([8 * 4])).any()
    dynamics.close()


def test_a_ball_goes_round_another_that_is_in_its_way() -> None:
    red_right_of_blue = goals.roles([Placement("tau_right", "tau_right", ("red", "blue"))])
    centre = np.array([[[-0.3, 0.2], [0.0, 0.2], [-0.4, 0.5], [0.4, 0.5], [-0.4, -0.1]]])
    straight = np.array([[[-0.3, 0.2], [0.0, 0.5], [-0.4, 0.5], [0.4, 0.5], [-0.4, -0.1]]])
    assert policies.cost(centre, red_right_of_blue)[0] > 0.65
    assert policies.cost(straight, red_right_of_blue)[0] < policies.cost(centre, red_right_of_blue)[0]
    beside = centre.copy()
    beside[0, 0] = [0.3, 0.2]
    assert policies.cost(beside, red_right_of_blue)[0] == 0


def test_a_line_of_the_cheapest_spots_is_a_line_and_fits_the_table() -> None:
    line = goals.roles([Placement("order", "order")])
    spots = policies._line_spots(np.zeros((1, 5, 2)))
    assert goals.in_line(spots).all()
    assert measures.wall_gap(spots).min() >= 0
    assert measures.pair_distance(spots).min() > 0.25
    assert policies.cost(spots, line)[0] < 0.1 < policies.cost(spots[:, ::-1], line)[0]


def test_episodes_end_with_their_goal_and_depend_on_their_generator_only() -> None:
    one, same, other = (played("tau_behind", GREEDY, 12, seed, horizon=15) for seed in (1, 1, 2))
    assert np.array_equal(one.obs, same.obs)
    assert not np.array_equal(one.obs, other.obs)
    assert ((one.length == 15) | one.won).all()
    for i, length in enumerate(one.length):
        assert (one.action[i, :length] >= 0).all()
        assert (one.action[i, length:] == -1).all()
        assert (takeable(one.obs[i, : length + 1]) == 0).all()
        assert not one.obs[i, length + 1 :].any()


def test_names_are_checked() -> None:
    assert policies.number_of("look") == LOOK
    with pytest.raises(UnknownName, match="greedy"):
        policies.number_of("greed")
    with pytest.raises(UnknownName, match=FAMILIES[0]):
        Dynamics(family="mujoco-9")
