"""Starts behind a door: the table that ships is what settling gives, and where it does not fit it is settled."""

from __future__ import annotations

import numpy as np
import pytest

from qualcheck.envs.metaworld import arm, doors
from qualcheck.envs.metaworld.arm import DOOR_X_M, DOOR_Y_M, Starts, settle
from qualcheck.envs.metaworld.kernel import Kernel
from qualcheck.envs.metaworld.layout import commanded_hand
from qualcheck.envs.metaworld.scene import FAMILIES, scene_key


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("hinged", [False, True])
def test_the_table_that_ships_is_what_a_reset_settles_to(family: str, hinged: bool) -> None:
    kernel = Kernel(family, threads=1)
    scene = kernel.scene("door-unlock", hinged)
    table = doors.shipped(family, scene_key("door-unlock", hinged))
    assert table is not None
    for x, y in ((0, 0), (4, 2), (8, 3)):
        scene.move_layout(np.array([DOOR_X_M[x], DOOR_Y_M[y]]))
        np.testing.assert_allclose(table[x, y], settle(scene).numbers, atol=1e-6)
    kernel.close()


def test_a_start_behind_a_door_is_found_from_the_hand_that_row_0_shows() -> None:
    kernel = Kernel("2.3", threads=1)
    scene = kernel.scene("door-lock", True)
    usual = Starts().at(scene, np.full(3, np.nan))
    furthest, found = 0.0, []
    for x, y in ((-0.09, 0.81), (-0.05, 0.82), (-0.02, 0.806)):
        scene.move_layout(np.array([x, y]))
        true, starts = settle(scene), Starts()
        start = starts.at(scene, true.hand_after("door-lock"))
        assert starts.steps == arm.RESET_STEPS + 1  # the usual one: what a door does is looked up
        found.append(np.abs(start.hand_after("door-lock") - true.hand_after("door-lock")).max())
        furthest = max(furthest, np.abs(usual.hand_after("door-lock") - true.hand_after("door-lock")).max())
    assert furthest > 5e-3
    assert max(found) < 0.2 * furthest
    kernel.close()


def test_a_table_of_another_mujoco_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doors, "version", lambda _: "1.0")
    doors._shipped.cache_clear()
    assert doors.shipped("2.3", "door_lock") is None
    monkeypatch.undo()
    doors._shipped.cache_clear()
    assert doors.shipped("2.3", "door_lock") is not None


def test_a_commanded_hand_that_meets_no_wall_is_the_sum_of_the_actions_and_else_stops_there() -> None:
    rng = np.random.default_rng(0)
    for size in (0.2, 1.5):
        action = size * rng.normal(size=(60, 4)).astype(np.float32)
        path = commanded_hand(np.array([0.0, 0.6, 0.2]), action, "push")
        at = np.array([0.0, 0.6, 0.2])
        for t, move in enumerate(action):
            at = np.clip(at + 0.01 * np.clip(move[:3].astype(np.float64), -1, 1), [-0.5, 0.4, 0.05], [0.5, 1.0, 0.5])
            np.testing.assert_array_equal(path[t + 1], at)
    down = commanded_hand(np.array([0.0, 0.6, 0.07]), np.tile([0, 0, -1.0, 0], (5, 1)), "push")
    np.testing.assert_allclose(down[:, 2], [0.07, 0.06, 0.05, 0.05, 0.05, 0.05])
