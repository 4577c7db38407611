"""Columns, actions and takeable rows of CLEVR-Robot."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from qualcheck.envs.clevr import layout
from qualcheck.envs.clevr.layout import SPEC, actions_of, takeable, usable_actions

APART = [-0.4, 0.0, 0.0, 0.0, 0.4, 0.0, -0.4, 0.4, 0.0, 0.4]  # red blue green purple cyan, typed by hand


def codes(rows: Any) -> list[str]:
    return [SPEC.codes[code] for code in takeable(np.asarray(rows))]


def test_columns_stand_in_the_order_of_the_balls() -> None:
    assert SPEC.columns[:4] == ("red_x_m", "red_y_m", "blue_x_m", "blue_y_m")
    assert [block.name for block in SPEC.blocks] == ["red", "blue", "green", "purple", "cyan"]
    assert [column for block in SPEC.blocks for column in block.columns] == list(range(10))
    assert layout.xy(np.array([APART], np.float32))[0, 3].tolist() == pytest.approx([-0.4, 0.4])


def test_hidden_numbers_have_names_at_their_places() -> None:
    assert len(SPEC.hidden) == len(set(SPEC.hidden)) == layout.HIDDEN_SIZE == 82
    assert SPEC.hidden[layout.CARRIED][:2] == ("carried_red_z_m", "carried_red_vx_m_s")
    assert SPEC.hidden[layout.PREVIOUS][-1] == "previous_cyan_wz_rad_s"
    assert SPEC.hidden[layout.BRIDGED] == tuple(f"bridged_{name}" for name in SPEC.columns)
    assert (SPEC.hidden[layout.SETTLED], SPEC.hidden[layout.TRUST]) == ("settled", "trust_m")


def test_pushes_point_right_behind_left_and_front_and_diagonals_are_longer() -> None:
    assert layout.DIRECTIONS[:4].tolist() == [[1, 0], [0, 1], [-1, 0], [0, -1]]
    np.testing.assert_allclose(np.linalg.norm(layout.DIRECTIONS[4:], axis=1), 1.1314, atol=1e-4)


def test_rows_out_of_the_walls_overlapping_or_not_finite_have_their_codes() -> None:
    rows = np.array([APART] * 9)
    rows[1, 4], rows[2, 7], rows[3, 0], rows[4, 9] = np.nan, np.inf, -0.51, 0.59
    rows[5, 2:4] = [-0.31, 0.0]  # 0.09 from red
    rows[6, 2:4] = [-0.29, 0.0]  # 0.11 from red: leaning over it
    rows[7, 0] = 1e300
    rows[8, :2] = [-0.5, -0.3]  # drawn by a reset, within two walls
    assert codes(rows) == ["", "non_finite_row", "non_finite_row", "outside_walls", "outside_walls",
                           "overlap", "", "outside_walls", ""]  # fmt: skip
    assert codes(np.zeros((0, 10))) == []


def test_every_real_row_is_takeable_rounded_to_two_decimals_too(golden: Any, kalm: Any) -> None:
    for rollouts in (*(one for _, one in golden.values()), kalm):
        assert not takeable(rollouts.obs).any()
        assert not takeable(rollouts.obs.astype(np.float64).round(2)).any()


def test_actions_are_whole_numbers_from_0_to_39() -> None:
    given = np.array([0, 39, 40, -1, 0.5, np.nan, np.inf, 7.0])
    assert actions_of(given).tolist() == [0, 39, -1, -1, -1, -1, -1, 7]
    assert usable_actions(given[:, None]).tolist() == usable_actions(given).tolist()
    assert usable_actions(np.array([3, 200], np.uint8)).tolist() == [True, False]
    assert usable_actions(np.zeros((2, 2))).tolist() == [False, False], "one number an action"
    assert usable_actions(np.array(["3", "x"])).tolist() == [False, False]
    assert actions_of(np.zeros(0)).shape == (0,)


def test_pieces_start_at_a_reset_where_the_file_says_so_or_nothing_was_cut_off(maker: Any) -> None:
    rollouts = maker([([APART] * 2, [0])] * 2, source_step=np.array([0, 3], np.int32), is_reset=None)
    assert layout.from_reset(rollouts).tolist() == [True, False]
    assert layout.from_reset(replace(rollouts, is_reset=np.array([False, False]))).tolist() == [False, False]
