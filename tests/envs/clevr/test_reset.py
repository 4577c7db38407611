"""Fresh scenes and goals."""

from __future__ import annotations

import numpy as np
import pytest

from qualcheck.envs.clevr import goals, measures, reset, rules
from qualcheck.envs.clevr.layout import BALLS, takeable, xy
from qualcheck.errors import UnknownName


def test_scenes_keep_the_distances_of_the_benchmark_and_fill_its_box() -> None:
    rows = reset.sample(3000, np.random.default_rng(0))
    centre = xy(rows)
    assert (takeable(rows) == 0).all()
    assert (centre >= reset.LOW_M).all()
    assert (centre <= reset.HIGH_M).all()
    np.testing.assert_allclose(centre.min(axis=(0, 1)), reset.LOW_M, atol=0.01)
    np.testing.assert_allclose(centre.max(axis=(0, 1)), reset.HIGH_M, atol=0.01)
    nearest = measures.pair_distance(centre).min(axis=1)
    assert nearest.min() >= 0.36
    assert np.quantile(nearest, 0.5) < 0.42
    apart = np.abs(np.diff(np.sort(centre, axis=1), axis=1))
    assert apart.min() >= 0.01
    walled = measures.wall_gap(centre).min(axis=1) < 0
    assert walled.mean() == pytest.approx(0.94, abs=0.03)


def test_scenes_depend_on_their_generator_only() -> None:
    one, same, other = (reset.sample(20, np.random.default_rng(seed)) for seed in (3, 3, 4))
    assert np.array_equal(one, same)
    assert not np.array_equal(one, other)


def test_a_spot_is_free_unless_it_is_near_or_nearly_in_line() -> None:
    placed = np.array([[0.0, 0.0]])
    spots = np.array([[0.36, 0.1], [0.2, 0.2], [0.4, 0.005], [0.4, 0.0], [-0.009, 0.4]])
    assert reset.free(spots, placed).tolist() == [True, False, False, True, False]


@pytest.mark.parametrize("task", goals.TASK_IDS)
def test_drawn_goals_name_their_balls_and_are_not_met_at_the_start(task: str) -> None:
    rng = np.random.default_rng(1)
    centre = xy(reset.sample(40, rng))
    placements = reset.draw(task, centre, rng)
    roles = goals.roles(placements)
    assert (roles.kind != goals.NONE).all()
    held, number = goals.counts(centre, roles)
    assert not ((number > 0) & (held == number)).any()
    if task not in ("order", "gather"):
        assert {ball for placement in placements for ball in placement.params} >= set(BALLS)
    if task == "tau_3":
        for part in roles.part:
            assert len({*part[:, 0]}) == 3, "each sub-goal moves another ball"
            assert all(part[later, 0] not in part[: later + 1, 1] for later in range(3)), "and no reference"


def test_unknown_tasks_are_refused() -> None:
    with pytest.raises(UnknownName, match="tau_left"):
        reset.draw("tau_lift", np.zeros((1, 5, 2)), np.random.default_rng(0))


def test_scenes_keep_the_laws_of_a_first_row(maker: object) -> None:
    rows = reset.sample(500, np.random.default_rng(2)).astype(np.float32)
    rollouts = maker([([row], np.zeros(0, np.int64)) for row in rows])  # type: ignore[operator]
    assert not rules.reset_rule(rollouts).any()
