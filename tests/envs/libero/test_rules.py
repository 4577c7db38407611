"""Laws: real data keep them, and a hand-made row or step breaks each."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from qualcheck.envs.libero import learn, measures, rules, shapes
from qualcheck.envs.libero.reset import STARTS, start_of
from qualcheck.types import Placement

IDS = ["", *(rule.id for rule in rules.RULES)]
LAWS = [law.id for law in (*rules.ROW_LAWS, *rules.STEP_LAWS)]
ALOFT = {"alphabet_soup": [0.4, -0.4, 0.3]}


def found(rollouts: Any) -> list[str]:
    return ["unknown" if k < 0 else IDS[k] for k in rules.judge(rollouts)[0]]


def placed(data: dict[str, Any]) -> tuple[list[Placement], Any]:
    return [Placement(task, task) for task in data["task_str"]], np.arange(len(data["task_str"]))


@pytest.mark.parametrize("decimals", [None, 4, 3, 2])
def test_recorded_data_break_no_hard_rule(decimals: int | None, golden: Any) -> None:
    for data, rollouts in golden.values():
        obs = rollouts.obs if decimals is None else np.round(rollouts.obs, decimals)
        stored = replace(rollouts, obs=obs)
        rule, soft = rules.judge(stored)
        assert not rule.any(), [IDS[k] for k in set(rule)]
        assert not any(soft[name].any() for name in ("step.action_range", "step.over_horizon", "step.chain_break"))
        assert soft["row.beyond_recorded"].mean() < 0.01
        assert not rules.reset_rule(stored, *placed(data)).any()


def test_signs_of_quaternions_change_no_verdict(mutated: Any) -> None:
    rollouts = mutated[1]
    obs, sign = rollouts.obs.copy(), np.random.default_rng(1).choice([-1, 1], (len(rollouts.obs), 5))
    for number, first in enumerate((7, 16, 23, 30, 37)):
        obs[:, first + 3 : first + 7] *= sign[:, number : number + 1]
    assert np.array_equal(rules.judge(replace(rollouts, obs=obs))[0], rules.judge(rollouts)[0])


def test_planted_faults_are_found_without_false_alarms(mutated: Any) -> None:
    data, rollouts = mutated
    rule, caught, planted = rules.judge(rollouts)[0], dict[str, int](), dict[str, int]()
    for i, fault in enumerate(data["fault"]):
        at = data["first_bad_transition"][i]
        mine = rule[rollouts.offsets[i] : rollouts.offsets[i + 1]]
        assert not mine[: at if at >= 0 else None].any(), "nothing is broken before the fault"
        planted[fault] = planted.get(fault, 0) + 1
        caught[fault] = caught.get(fault, 0) + bool(0 <= at < len(mine) and mine[at])
    for fault in ("teleport_object", "off_table", "penetration", "quat_unnormalised", "swap_objects"):
        assert caught[fault] == planted[fault] > 0
    for fault in ("none", "wrong_action", "frozen_object", "shift_by_one"):
        assert caught[fault] == 0, "such rows are lawful by themselves; the simulator must tell"


def columns(row: Any, **values: float) -> Any:
    changed = row.copy()
    for place, value in values.items():
        changed[int(place[1:])] = value
    return changed


def turned(row: Any, first: int, angle: float) -> Any:
    """The row with a pose turned about the world's vertical."""
    changed = row.copy()
    x, y, z, w = row[first + 3 : first + 7]
    s, c = np.sin(angle / 2), np.cos(angle / 2)
    changed[first + 3 : first + 7] = [c * x - s * y, c * y + s * x, c * z + s * w, c * w - s * z]
    return changed


def arm(row: Any, joint: int, angle: float) -> Any:
    """The row with one joint turned and the hand where that puts it."""
    changed = columns(row, **{f"c{joint}": row[joint] + angle})
    place, turn = shapes.hand_of_joints(changed[None, :7])
    trace = np.trace(turn[0])
    quat = np.array([1 + 2 * turn[0, 0, 0] - trace, turn[0, 0, 1] + turn[0, 1, 0], turn[0, 0, 2] + turn[0, 2, 0],
                     turn[0, 2, 1] - turn[0, 1, 2]])  # fmt: skip
    changed[7:14] = [*place[0], *quat / np.linalg.norm(quat)]
    return changed


def three_rows(rule: str, row: Any) -> list[Any]:
    """A start, the row before a step, and the row after it that breaks the rule."""
    rest, aloft = row(), row(**ALOFT)
    quick = arm(rest, 3, 0.2)
    steps = {
        "row.finite": [rest, rest, columns(rest, c40=np.inf)],
        "row.joint_range": [rest, rest, columns(rest, c4=2.92)],
        "row.finger_range": [rest, rest, columns(rest, c14=0.0452, c15=-0.0452)],
        "row.unit_quaternion": [rest, rest, columns(rest, c22=0.3)],
        "row.hand_position": [rest, rest, columns(rest, c8=0.03)],
        "row.hand_turn": [rest, rest, turned(rest, 7, 0.06)],
        "row.hand_in_floor": [rest, rest, arm(rest, 1, 1.3)],
        "row.object_far": [rest, rest, row(cream_cheese=[1.2, 0.0, 0.0089])],
        "row.floor_penetration": [rest, rest, row(salad_dressing=[0.1, -0.2, 0.0384, 0.002, 0.708, 0.707, -0.002])],
        "row.object_penetration": [rest, rest, row(cream_cheese=[0.05, -0.1, 0.05])],
        "step.joint_change": [rest, rest, arm(rest, 6, 0.3)],
        "step.hand_change": [rest, rest, quick],
        "step.hand_turn": [rest, rest, arm(rest, 6, 0.2)],
        "step.finger_change": [rest, rest, columns(rest, c14=0.039, c15=-0.039)],
        "step.object_change": [rest, rest, row(alphabet_soup=[-0.02, -0.2398, 0.0384])],
        "step.object_fall": [rest, aloft, row(alphabet_soup=[0.4, -0.4, 0.04])],
        "step.object_turn": [rest, rest, turned(rest, 16, 2.2)],
        "step.moved_untouched": [rest, rest, row(alphabet_soup=[-0.09, -0.2398, 0.0384])],
        "step.turned_untouched": [rest, rest, turned(rest, 16, 0.25)],
        "step.hanging": [rest, aloft, aloft],
    }
    return steps[rule]


@pytest.mark.parametrize("rule", LAWS)
def test_hand_made_step_breaks_the_rule(rule: str, row: Any, maker: Any) -> None:
    rows = three_rows(rule, row)
    if rule in ("step.object_fall", "step.hanging"):
        rows[0] = rows[1]  # it was there before
    broken = found(maker([(rows, np.zeros((2, 7)))]))
    assert broken[1] == rule
    still = found(maker([([rows[1]] * 3, np.zeros((2, 7)))]))
    assert not still[1].startswith("row."), "the start itself must be a legal row"


def test_falling_and_rolling_objects_break_nothing(row: Any, maker: Any) -> None:
    x, y, z = ALOFT["alphabet_soup"]
    heights = [z - 0.5 * 9.81 * (0.05 * k) ** 2 for k in range(5)]
    fall = [row(alphabet_soup=[x, y, height]) for height in heights]
    roll = [row(alphabet_soup=[x + 0.02 * k, y, 0.0384]) for k in range(5)]
    roll[0] = roll[1].copy()
    roll[0][16] -= 0.005
    for rows in (fall, roll):
        assert set(found(maker([(rows, np.zeros((4, 7)))]))) == {""}


def test_an_object_beside_the_hand_may_move(row: Any, maker: Any) -> None:
    low = arm(row(), 1, 0.5)  # the hand leans down
    low[23:26] = low[7:10] - np.array([0, 0, 0.05])
    pushed = low.copy()
    pushed[23] += 0.03
    assert found(maker([([low, low, pushed], np.zeros((2, 7)))])) == ["", ""]
    for rows in (low, pushed):
        rows[24] -= 0.3  # out of the hand's reach
    assert found(maker([([low, low, pushed], np.zeros((2, 7)))])) == ["", "step.moved_untouched"]


def test_step_laws_are_silent_out_of_an_illegal_row(row: Any, maker: Any) -> None:
    sunk = row(salad_dressing=[0.05, -0.1, -0.2])
    assert found(maker([([row(), sunk, row()], np.zeros((2, 7)))])) == ["row.floor_penetration", ""]


def test_another_reading_of_the_next_row_is_judged_instead(row: Any, maker: Any) -> None:
    rows = [row(), row(), row()]
    sunk = row(salad_dressing=[0.05, -0.1, -0.2])
    broken = maker([(rows, np.zeros((2, 7)))], break_at=np.array([0]), break_obs=np.array([sunk]))
    assert found(broken) == ["row.floor_penetration", ""]
    assert rules.judge(broken)[1]["step.chain_break"].tolist() == [True, False]


def test_transitions_without_an_end_row_are_not_judged(row: Any, maker: Any) -> None:
    assert found(maker([([row(), row()], np.zeros((2, 7)))], has_final=False)) == ["", "unknown"]


def test_no_number_makes_a_law_raise(row: Any, maker: Any) -> None:
    rng, rows = np.random.default_rng(5), np.tile(row().astype(np.float32), (120, 1))
    for one in rows[1:]:
        one[rng.integers(44)] = rng.choice([np.nan, np.inf, -np.inf, 1e38, -1e30, 0.0])
    rows[1::7, 10:14] = 0
    broken = found(maker([(rows, np.full((119, 7), np.nan))]))
    assert {"row.finite", "row.unit_quaternion", "row.object_far"} <= set(broken)


def test_soft_rules_count_actions_and_long_rollouts(row: Any, maker: Any) -> None:
    action = np.zeros((3, 7))
    action[1, 2] = -1.1
    soft = rules.judge(maker([([row()] * 4, action)], source_step=np.array([498])))[1]
    assert soft["step.action_range"].tolist() == [False, True, False]
    assert soft["step.over_horizon"].tolist() == [False, False, True]


@pytest.mark.parametrize(
    ("changes", "task", "rule"),
    [
        ({}, "pick-alphabet_soup", ""),
        ({}, "", ""),
        ({}, "place-alphabet_soup", "row0.hand"),
        ({}, "pick-salad_dressing", "row0.objects"),
        ({"hand": [0.1, 0.2, 0.2]}, "reach-alphabet_soup", "row0.hand"),
        ({"basket": [0.1, 0.26, 0.0]}, "", "row0.objects"),
        ({"cream_cheese": [np.nan, 0, 0]}, "", "row0.objects"),
    ],
)
def test_first_rows_are_those_of_a_reset(changes: Any, task: str, rule: str, row: Any, maker: Any) -> None:
    rollouts = maker([([row(**changes), row()], np.zeros((1, 7)))])
    placement = [Placement(task, task)]
    number = rules.reset_rule(rollouts, placement, np.zeros(1, np.int64))[0]
    assert IDS[number] == rule
    cut = replace(rollouts, is_reset=np.zeros(1, bool))
    assert rules.reset_rule(cut, placement, np.zeros(1, np.int64)).tolist() == [-1]


def test_tasks_draw_from_the_file_of_their_first_object() -> None:
    assert start_of("pick-cream_cheese-and-place-to-alphabet_soup") == "pick-cream_cheese"
    assert start_of("rep-place-salad_dressing") == "place-salad_dressing"
    assert start_of("pick-out-of-cream_cheese") == "safe-cream_cheese"
    assert start_of("sequential-pick-and-place-all") == "pick-alphabet_soup"
    assert start_of("") == ""
    assert len(STARTS) == 9


def test_limits_can_be_learnt_again(shared_data: Path, tmp_path: Path) -> None:
    files = [str(path) for path in sorted((shared_data / "golden").glob("libero_*.npy"))]
    starts = [str(path) for path in sorted((shared_data / "real").glob("*libero*_inits.npz"))]
    learn.main([*files, "--starts", *starts, "-o", str(tmp_path / "limits.json")])
    again = json.loads((tmp_path / "limits.json").read_text())
    assert set(again["starts"]) == set(STARTS)
    assert set(again["limits"]) == set(measures.limits())
    for name, entry in again["limits"].items():
        assert entry["recorded"] <= measures.limits("recorded")[name] + 1e-9
        assert entry["limit"] == pytest.approx(measures.limits()[name])
