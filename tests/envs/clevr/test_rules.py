"""Laws: real data keep them, and a hand-made row or step breaks each."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from qualcheck.cut import cut
from qualcheck.envs.clevr import learn, measures, rules
from qualcheck.envs.clevr.dynamics import FAMILIES
from qualcheck.envs.clevr.layout import takeable
from qualcheck.envs.clevr.record import record

# red in the middle, the others in the corners
REST = [0.0, 0.2, -0.4, 0.5, 0.4, 0.5, -0.4, -0.1, 0.4, -0.1]
RED, BLUE, GREEN, PURPLE, CYAN = range(5)
RIGHT, BEHIND, LEFT = 0, 1, 2


def row(start: list[float] = REST, **balls: tuple[float, float]) -> list[float]:
    """A row with balls put elsewhere by colour."""
    values = list(start)
    for number, name in enumerate(("red", "blue", "green", "purple", "cyan")):
        values[2 * number : 2 * number + 2] = balls.get(name, values[2 * number : 2 * number + 2])
    return values


PUSHED = row(red=(0.25, 0.2))


def found(rollouts: Any) -> list[str]:
    return ["" if k == 0 else "unknown" if k < 0 else rules.RULES[k - 1].id for k in rules.judge(rollouts)[0]]


def one_step(maker: Any, end: list[float], start: list[float] = REST, action: int = 8 * RED + RIGHT) -> str:
    rollouts = maker([([start, end], np.array([action]))], source_step=np.array([3]), is_reset=np.zeros(1, bool))
    return found(rollouts)[0]


def test_recorded_data_break_no_hard_rule(golden: Any, kalm: Any) -> None:
    for rollouts in (*(rollouts for _, rollouts in golden.values()), kalm):
        rule, soft = rules.judge(rollouts)
        assert not rule.any()
        assert not rules.reset_rule(rollouts).any()
        assert not any(soft[name].any() for name in ("step.bad_action", "step.over_horizon", "step.chain_break"))
        assert soft["step.moved_alone"].mean() < 0.01
        assert soft["row.tight"].any()


def test_rounded_real_data_break_no_hard_rule(golden: Any) -> None:
    for rollouts in (golden["real"][1], golden["hard"][1]):
        for obs in (np.round(rollouts.obs, 3), rollouts.obs.astype(np.float16)):
            rounded = replace(rollouts, obs=obs)
            assert not rules.judge(rounded)[0].any()
            assert not rules.reset_rule(rounded).any()


@pytest.mark.parametrize("family", FAMILIES)
def test_own_recordings_break_no_hard_rule(family: str) -> None:
    rollouts = record("gather", 30, np.random.default_rng(4), ("greedy",), random_share=0.3, family=family)
    assert rollouts.n_transitions > 500
    assert not rules.judge(rollouts)[0].any()
    assert not rules.reset_rule(rollouts).any()


def test_planted_faults_that_no_physics_allows_are_caught_and_nothing_before_them(mutated: Any) -> None:
    data, rollouts = mutated
    rule, _ = rules.judge(rollouts)
    caught: dict[str, list[bool]] = {}
    for i, fault in enumerate(data["fault"]):
        bad = data["first_bad_transition"][i]
        own = rule[rollouts.offsets[i] : rollouts.offsets[i + 1]]
        sound = own if fault in ("none", "truncated_goal") else own[:bad]
        assert not sound.any()
        if len(sound) < len(own):
            caught.setdefault(fault, []).append(bool(own[bad]))
    assert all(caught["off_table"] + caught["penetration"] + caught["swap_objects"])
    assert np.mean(caught["teleport_object"]) >= 0.75


_CORNERED = row(purple=(-0.46, -0.16), cyan=(0.0, -0.08))
END_ROWS: dict[str, tuple[list[float], list[float], int]] = {
    "row.finite": (REST, row(blue=(np.nan, 0.5)), 0),
    "row.outside_walls": (REST, row(PUSHED, blue=(-0.49, 0.5)), 0),
    "row.overlap": (row(red=(-0.4, 0.45)), row(red=(-0.4, 0.5)), 8 * RED + BEHIND),
    "row.unheld": (_CORNERED, row(_CORNERED, red=(0.0, 0.19), cyan=(0.0, 0.03)), 8 * RED + LEFT),
    "step.pushed_too_far": (row(red=(-0.3, 0.2)), row(red=(0.25, 0.2)), 0),
    "step.too_fast": (REST, row(PUSHED, purple=(0.0, -0.1)), 0),
    "step.thrown_too_far": (row(purple=(-0.4, -0.25)), row(PUSHED, purple=(0.1, -0.15)), 0),
    "step.pushed_backwards": (REST, row(red=(-0.1, 0.2)), 0),
    "step.climbed": (row(red=(-0.4, 0.2), blue=(-0.4, 0.46)), row(red=(-0.4, 0.35), blue=(-0.4, 0.46)), 1),
    "step.passed_through": (row(red=(-0.1, 0.2), blue=(0.15, 0.2)), row(red=(0.2, 0.2), blue=(-0.1, 0.2)), 0),
    "step.moved_without_cause": (REST, row(PUSHED, cyan=(0.15, -0.13)), 0),
    "step.wrong_direction": (REST, row(red=(0.05, 0.4)), 0),
    "step.pushed_stays": (REST, REST, 0),
}  # fmt: skip


@pytest.mark.parametrize("rule", [law.id for law in (*rules.ROW_LAWS, *rules.STEP_LAWS)])
def test_hand_made_step_breaks_the_rule(rule: str, maker: Any) -> None:
    start, end, action = END_ROWS[rule]
    if rule == "step.thrown_too_far":  # only a reset puts a ball into a wall
        assert found(maker([([start, end], np.array([action]))])) == [rule]
    else:
        assert one_step(maker, end, start, action) == rule


def test_a_push_a_hit_and_a_climb_at_the_wall_break_no_rule(maker: Any) -> None:
    assert one_step(maker, PUSHED) == ""
    hit = row(red=(-0.3, 0.2), blue=(0.0, 0.2))
    assert one_step(maker, row(red=(-0.15, 0.2), blue=(0.15, 0.2)), hit) == ""
    stacked = row(red=(-0.47, 0.3), blue=(-0.47, 0.5))
    assert one_step(maker, row(red=(-0.47, 0.35), blue=(-0.47, 0.5)), stacked, 8 * RED + BEHIND) == ""
    assert takeable(np.array([stacked])).shape == (1,)


def test_a_ball_in_a_wall_is_legal_in_the_first_row_alone(maker: Any) -> None:
    first, second = row(purple=(-0.4, -0.28)), row(PUSHED, purple=(-0.4, -0.05))
    assert found(maker([([first, second], np.zeros(1, np.int64))])) == [""]
    assert rules.reset_rule(maker([([first, second], np.zeros(1, np.int64))])).tolist() == [0]
    assert found(maker([([REST, first], np.zeros(1, np.int64))])) == ["row.outside_walls"]


def test_step_laws_are_silent_out_of_an_illegal_row(maker: Any) -> None:
    rows = [REST, row(blue=(-0.55, 0.5)), REST, REST]
    assert found(maker([(rows, np.zeros(3, np.int64))])) == ["row.outside_walls", "", "step.pushed_stays"]


def test_without_a_usable_action_any_ball_may_be_the_pushed_one(maker: Any) -> None:
    for action in (np.array([-1]), np.array([40]), np.array([np.nan]), np.array([0.5])):
        rollouts = maker([([REST, row(cyan=(0.05, -0.1))], action)])
        assert found(rollouts) == [""]
        assert rules.judge(rollouts)[1]["step.bad_action"].tolist() == [True]
        assert found(maker([([REST, row(red=(-0.3, -0.3))], action)])) == ["row.outside_walls"]


def test_transitions_without_an_end_row_are_not_judged(maker: Any) -> None:
    assert found(maker([([REST, PUSHED], np.zeros(2, np.int64))], has_final=False)) == ["", "unknown"]


def test_another_reading_of_the_next_row_is_judged_instead(maker: Any) -> None:
    after = row(red=(0.5 - 0.03, 0.2))
    broken = maker(
        [([REST, PUSHED, after], np.zeros(2, np.int64))],
        break_at=np.array([0]),
        break_obs=np.array([row(green=(0.9, 0.5))]),
    )
    assert found(broken) == ["row.outside_walls", ""]
    assert rules.judge(broken)[1]["step.chain_break"].tolist() == [True, False]


def test_pieces_are_judged_as_the_whole(golden: Any, mutated: Any) -> None:
    for rollouts in (golden["hard"][1], mutated[1]):
        whole, soft = rules.judge(rollouts)
        middle = rollouts.length // 2
        every = np.arange(rollouts.n_rollouts)
        piece = cut(rollouts, every, middle, rollouts.length)
        inside = rollouts.step >= middle[rollouts.rollout]
        part, part_soft = rules.judge(piece)
        assert np.array_equal(part, whole[inside])
        assert all(np.array_equal(part_soft[name], soft[name][inside]) for name in soft if name != "step.chain_break")
        assert (rules.reset_rule(piece)[middle > 0] == -1).all()


def test_soft_rules_count_what_is_unusual(maker: Any) -> None:
    end = row(red=(0.18, 0.36), cyan=(0.3, -0.1))
    rollouts = maker(
        [([REST, end], np.array([8 * RED + RIGHT])), ([REST, row(red=(-0.36, 0.2))], np.array([8 * RED + LEFT]))],
        source_step=np.array([50, 0]),
    )
    soft = rules.judge(rollouts)[1]
    assert soft["step.turned"].tolist() == [True, False]
    assert soft["step.moved_alone"].tolist() == [True, False]
    assert soft["step.pushed_far"].tolist() == [False, True]
    assert soft["step.over_horizon"].tolist() == [True, False]
    assert soft["row.tight"].tolist() == [False, False]
    assert set(soft) == {law.id for law in rules.SOFT}


@pytest.mark.parametrize(
    ("first", "rule"),
    [
        (row(), ""),
        (row(red=(0.0, 0.1204)), ""),
        (row(red=(0.52, 0.2)), "row0.box"),
        (row(purple=(-0.4, -0.31)), "row0.box"),
        (row(red=(np.nan, 0.2)), "row0.box"),
        (row(red=(-0.15, 0.3)), "row0.spacing"),
        (row(red=(0.005, 0.2), cyan=(0.01, -0.2)), "row0.aligned"),
    ],
)
def test_first_rows_are_those_of_a_reset(first: list[float], rule: str, maker: Any) -> None:
    rollouts = maker([([first, PUSHED], np.zeros(1, np.int64))])
    number = rules.reset_rule(rollouts)[0]
    assert (rules.RULES[number - 1].id if number else "") == rule
    assert rules.reset_rule(replace(rollouts, is_reset=np.zeros(1, bool))).tolist() == [-1]


def test_an_empty_batch_has_no_verdicts(maker: Any) -> None:
    empty = maker([(np.zeros((0, 10)), np.zeros(0, np.int64))], has_final=False)
    assert rules.judge(empty)[0].shape == (0,)
    assert rules.reset_rule(empty).tolist() == [-1]


def test_enormous_numbers_are_outside_and_nothing_worse(maker: Any) -> None:
    assert one_step(maker, row(blue=(1e300, -1e300))) == "row.outside_walls"
    assert one_step(maker, PUSHED, row(blue=(1e300, 0.0))) == ""


def test_the_way_ahead_ends_at_a_ball_or_a_wall() -> None:
    centre = np.array([REST, row(cyan=(0.4, 0.3))]).reshape(2, 5, 2)
    ahead = measures.clearance(centre, centre, np.array([RED, RED]), np.array([[1.0, 0.0], [1.0, 0.0]]))
    assert ahead[0] == pytest.approx(0.47)
    assert ahead[1] == pytest.approx(0.4 - np.sqrt(0.26**2 - 0.1**2))


def test_limits_stand_beyond_what_is_learnt_again(shared_data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    golden = [str(path) for path in sorted((shared_data / "golden").glob("clevr_*.npy"))]
    kalm = str(shared_data / "real" / "kalm_clevr_robot.npy")
    learn.main(["--halves", *golden, "--whole", kalm, "--rollouts", "2"])
    extremes = json.loads(capsys.readouterr().out)["all"]
    assert set(extremes) == set(rules.LIMITS)
    for name, value in extremes.items():
        limit, recorded = rules.LIMITS[name]
        sign = -1 if name in rules.SMALLEST else 1
        assert sign * value <= sign * recorded
        assert sign * recorded < sign * limit
