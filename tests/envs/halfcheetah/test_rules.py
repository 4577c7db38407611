"""Laws: real data keep them, and a hand-made row or step breaks each."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from qualcheck.envs.halfcheetah import HalfCheetah, learn, measures, rules
from qualcheck.envs.halfcheetah.record import record

LIMIT = measures.limits()
REST = [0.0] * 18


def row(**columns: float) -> list[float]:
    """A row at rest but for columns named in the spec."""
    names = HalfCheetah().spec.columns
    values = list(REST)
    for name, value in columns.items():
        values[names.index(name)] = value
    return values


def found(rollouts: Any, columns: int = 18) -> list[str]:
    adapter = HalfCheetah(columns)
    numbers = adapter.legality(rollouts, [], np.zeros(rollouts.n_rollouts, np.int64)).rule
    return ["" if k == 0 else "unknown" if k < 0 else adapter.rules[k - 1].id for k in numbers]


def test_recorded_data_break_no_hard_rule(golden: Any, plain: Any) -> None:
    for _, rollouts in golden.values():
        for each, columns in ((rollouts, 18), (plain(rollouts), 17)):
            legality = HalfCheetah(columns).legality(each, [], np.zeros(each.n_rollouts, np.int64))
            assert not legality.rule.any()
            assert not legality.row0_rule.any()
            assert not any(legality.soft[name].any() for name in ("step.action_range", "step.over_horizon"))


def test_expert_data_break_soft_rules_only(expert: Any) -> None:
    legality = HalfCheetah(17).legality(expert, [], np.zeros(2, np.int64))
    assert not legality.rule.any()
    assert not legality.row0_rule.any()
    assert legality.soft["step.action_range"].mean() > 0.6
    assert legality.soft["step.over_horizon"].sum() == 1600
    assert not legality.soft["row.beyond_recorded"].any()


def test_rounded_real_data_break_no_hard_rule(golden: Any) -> None:
    rollouts = golden["hard"][1]
    for obs in (np.round(rollouts.obs, 2), rollouts.obs.astype(np.float16)):
        legality = HalfCheetah().legality(replace(rollouts, obs=obs), [], np.zeros(rollouts.n_rollouts, np.int64))
        assert not legality.rule.any()
        assert not legality.row0_rule.any()


def test_fast_gaits_break_no_hard_rule() -> None:
    for task in ("move-forward-fast", "move-backward-fast", "jump-in-place"):
        rollouts = record(task, 20, np.random.default_rng(4), noise=0.3, random_share=0.3, stop_at_success=False)
        assert set(found(rollouts)) == {""}


END_ROWS = {
    "row.finite": row(z_velocity_m_s=np.nan),
    "row.pitch": row(pitch_rad=1001.0),
    "row.height_low": row(height_m=-1.0),
    "row.height_high": row(height_m=1.6),
    "row.joint_range": row(ffoot_rad=0.95),
    "row.x_speed": row(x_velocity_m_s=-20.5),
    "row.z_speed": row(z_velocity_m_s=10.5),
    "row.pitch_rate": row(pitch_rate_rad_s=25.5),
    "row.joint_rate": row(bfoot_rate_rad_s=-61.0),
    "row.displacement": row(displacement_m=1.1),
    "step.height_kinematics": row(height_m=0.4),
    "step.pitch_kinematics": row(pitch_rad=0.6),
    "step.joint_kinematics": row(fshin_rad=-1.5, bthigh_rad=0.1),
    "step.displacement_kinematics": row(displacement_m=0.2),
    "step.x_speed_change": row(x_velocity_m_s=9.5, displacement_m=0.24),
    "step.z_speed_change": row(),
    "step.pitch_rate_change": row(),
    "step.joint_rate_change": row(),
}
START_ROWS = {
    "step.joint_kinematics": row(fshin_rad=1.0),
    "step.z_speed_change": row(z_velocity_m_s=-9.9, height_m=0.2),
    "step.pitch_rate_change": row(pitch_rate_rad_s=24.0, pitch_rad=-0.6),
    "step.joint_rate_change": row(bthigh_rate_rad_s=59.0, bthigh_rad=-0.8),
}
END_ROWS["step.z_speed_change"] = row(z_velocity_m_s=9.9, height_m=0.2)
END_ROWS["step.pitch_rate_change"] = row(pitch_rate_rad_s=-5.0, pitch_rad=-0.2)
END_ROWS["step.joint_rate_change"] = row(bthigh_rate_rad_s=-50.0, bthigh_rad=-0.6)


@pytest.mark.parametrize("rule", [law.id for law in (*rules.ROW_LAWS, *rules.STEP_LAWS)])
def test_hand_made_step_breaks_the_rule(rule: str, maker: Any) -> None:
    start = START_ROWS.get(rule, REST)
    still = maker([([start, start], np.zeros((1, 6)))])
    assert found(maker([([start, END_ROWS[rule]], np.zeros((1, 6)))])) == [rule]
    assert not found(still)[0].startswith("row."), "the start itself must be a legal row"


def test_step_laws_are_silent_out_of_an_illegal_row(maker: Any) -> None:
    rows = [REST, row(height_m=3.0), REST, row(displacement_m=0.2)]
    broken = found(maker([(rows, np.zeros((3, 6)))]))
    assert broken == ["row.height_high", "", "step.displacement_kinematics"]


def test_another_reading_of_the_next_row_is_judged_instead(maker: Any) -> None:
    rows = [REST, REST, REST]
    broken = maker([(rows, np.zeros((2, 6)))], break_at=np.array([0]), break_obs=np.array([row(height_m=3.0)]))
    assert found(broken) == ["row.height_high", ""]
    soft = HalfCheetah().legality(broken, [], np.zeros(1, np.int64)).soft
    assert soft["step.chain_break"].tolist() == [True, False]


def test_transitions_without_an_end_row_are_not_judged(maker: Any) -> None:
    assert found(maker([([REST, REST], np.zeros((2, 6)))], has_final=False)) == ["", "unknown"]


def test_soft_rules_count_actions_and_unusual_rows(maker: Any) -> None:
    fast = row(x_velocity_m_s=9.0)
    action = np.zeros((3, 6))
    action[1, 2] = -1.1
    rollouts = maker([([REST, REST, REST, fast], action)], source_step=np.array([198]))
    soft = HalfCheetah().legality(rollouts, [], np.zeros(1, np.int64)).soft
    assert soft["step.action_range"].tolist() == [False, True, False]
    assert soft["step.over_horizon"].tolist() == [False, False, True]
    assert soft["row.beyond_recorded"].tolist() == [False, False, True]
    assert soft["step.beyond_recorded"].tolist() == [False, False, True]


@pytest.mark.parametrize(
    ("first", "rule"),
    [
        (row(), ""),
        (row(displacement_m=0.1, height_m=-0.1, x_velocity_m_s=0.55), ""),
        (row(displacement_m=0.15), "row0.position"),
        (row(bshin_rad=-0.12), "row0.position"),
        (row(pitch_rate_rad_s=0.7), "row0.velocity"),
        (row(height_m=np.nan), "row0.position"),
    ],
)
def test_first_rows_are_those_of_a_reset(first: list[float], rule: str, maker: Any) -> None:
    adapter = HalfCheetah()
    rollouts = maker([([first, REST], np.zeros((1, 6)))])
    number = adapter.legality(rollouts, [], np.zeros(1, np.int64)).row0_rule[0]
    assert (adapter.rules[number - 1].id if number else "") == rule
    cut = replace(rollouts, is_reset=np.zeros(1, bool))
    assert adapter.legality(cut, [], np.zeros(1, np.int64)).row0_rule.tolist() == [-1]


def test_limits_can_be_learnt_again(shared_data: Path, tmp_path: Path) -> None:
    files = [str(path) for path in sorted((shared_data / "golden").glob("mujoco_*.npy"))]
    learn.main([*files, "-o", str(tmp_path / "limits.json")])
    again = json.loads((tmp_path / "limits.json").read_text())["limits"]
    assert set(again) == set(LIMIT)
    for name, entry in again.items():
        assert entry["recorded"] <= measures.limits("recorded")[name]
        assert 0 < entry["limit"] <= LIMIT[name]
        assert entry["limit"] >= entry["recorded"] * 1.2
