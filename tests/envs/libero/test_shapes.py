"""Turns, the arm's chain and the overlap of boxes, against figures typed by hand, sampled points and real rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from qualcheck.envs.libero import shapes

UPRIGHT = [0.5, 0.5, 0.5, 0.5]  # of the bottle
FLAT = [0.0, 0.0, 1.0, 0.0]  # of the cream cheese


def test_both_signs_of_a_quaternion_are_one_orientation() -> None:
    quat = np.random.default_rng(0).normal(size=(50, 4))
    assert np.allclose(shapes.rotation(quat), shapes.rotation(-quat))
    assert np.allclose(shapes.turn_between(quat, -3 * quat), 0)


def test_turn_between_is_the_shortest_angle() -> None:
    still = np.array([[0.0, 0.0, 0.0, 1.0]] * 3)
    about_z = np.array([[0, 0, np.sin(a / 2), np.cos(a / 2)] for a in (1e-6, 1.0, 2 * np.pi - 0.5)])
    assert shapes.turn_between(still, about_z) == pytest.approx([1e-6, 1.0, 0.5], rel=1e-6)
    assert np.isnan(shapes.turn_between(still, np.zeros((3, 4)))).all()


def test_joints_put_the_hand_where_recordings_have_it(golden: Any) -> None:
    for _, rollouts in golden.values():
        away, turned = shapes.hand_errors(rollouts.obs, 7)
        assert away.max() < 1.3e-3
        assert np.degrees(turned.max()) < 0.25
        other, _ = shapes.hand_errors(rollouts.obs[:, [1, 0, *range(2, 44)]], 7)
        assert np.median(other) > 0.05, "two joints exchanged put it elsewhere"


def test_objects_at_rest_stand_on_the_floor(row: Any) -> None:
    low = shapes.lowest_m(row()[None])[0]
    assert low == pytest.approx([0, 0, 0, 0], abs=1e-3)
    sunk = row(salad_dressing=[0.1, -0.2, 0.0384, 0.002, 0.708, 0.707, -0.002])[None]
    assert shapes.lowest_m(sunk)[0, 2] == pytest.approx(-0.0343, abs=5e-4)


@pytest.mark.parametrize(
    ("place", "depth"),
    [
        ([0.05 + 0.0220 + 0.0406 - 0.006 - 0.0001, -0.1, 0.0089, *FLAT], 0.0),  # beside the bottle, lengthwise
        ([0.05, -0.1, 0.0727, *FLAT], 0.0172),  # inside it
        ([0.05, -0.1, 0.3, *FLAT], 0.0),
    ],
)
def test_overlap_of_a_box_and_the_bottle(place: list[float], depth: float, row: Any) -> None:
    found = float(shapes.overlap_m(row(cream_cheese=place)[None])[0])
    assert (found > 0.005) == (depth > 0)


def test_depth_of_two_boxes_agrees_with_sampled_points() -> None:
    rng = np.random.default_rng(3)
    n, half, half_other = 300, np.array([0.3, 0.2, 0.1]), np.array([0.1, 0.4, 0.2])
    turn, turn_other = (shapes.rotation(rng.normal(size=(n, 4))) for _ in range(2))
    centre, centre_other = np.zeros((n, 3)), rng.normal(0, 0.35, (n, 3))
    depth = shapes._depth((centre, turn), half, (centre_other, turn_other), half_other)
    points = rng.uniform(-1, 1, (4000, 3)) * half  # in the first box
    placed = np.einsum("nij,kj->nki", turn, points) - centre_other[:, None]
    inside = (np.abs(np.einsum("nij,nki->nkj", turn_other, placed)) <= half_other).all(axis=2).any(axis=1)
    assert 0.2 < inside.mean() < 0.8
    assert not (inside & (depth < 0)).any(), "boxes that share a point are not apart"
    assert inside[depth > 0.02].all()
    moved = centre_other + 1.01 * depth.max() * np.sign(centre_other)
    assert (shapes._depth((centre, turn), half, (moved, turn_other), half_other) < depth).all()


def test_overlap_does_not_depend_on_the_batch(golden: Any) -> None:
    obs = golden["hard"][1].obs[::50]
    whole = shapes.overlap_m(obs)
    assert whole.max() > 0
    assert [float(shapes.overlap_m(one[None])[0]) for one in obs] == pytest.approx(whole.tolist(), abs=1e-12)
