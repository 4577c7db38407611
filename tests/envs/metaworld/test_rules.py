"""The laws of a recording: real rollouts keep them, planted faults and rows typed by hand break the one meant."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from qualcheck.envs.metaworld import learn, measures, rules
from qualcheck.envs.metaworld.layout import block
from qualcheck.types import Placement, Rollouts

Row = Callable[..., Any]
PUCK = [-0.05, 0.66, 0.02, 0, 0, 0, 1]


def broken(rollouts: Rollouts, task: str) -> list[str]:
    """Id of the first rule each transition breaks, "" where none, "?" where not judged."""
    which = np.zeros(rollouts.n_rollouts, np.int64)
    found, _ = rules.judge(rollouts, [Placement(task, task)], which)
    return ["?" if number < 0 else "" if number == 0 else rules.RULES[number - 1].id for number in found]


def episode(maker: Callable[..., Rollouts], rows: list[Any], task: str, **more: Any) -> list[str]:
    return broken(maker([(np.array(rows), np.zeros((len(rows) - 1, 4)))], **more), task)


@pytest.mark.parametrize("name", ["real", "rephrase", "easy", "hard", "real_mj301"])
def test_recorded_rollouts_break_no_hard_rule(golden: Any, name: str) -> None:
    _, placements, rollouts = golden[name]
    which = np.arange(len(placements))
    found, soft = rules.judge(rollouts, placements, which)
    assert not found.any()
    assert not rules.reset_rule(rollouts, placements, which).any()
    even = rollouts.rollout % 2 == 0
    assert not (soft["row.beyond_recorded"] | soft["step.beyond_recorded"])[even].any()


def test_rollouts_of_other_recorders_break_no_hard_rule(kalm: Any) -> None:
    _, placements, rollouts = kalm
    assert not rules.judge(rollouts, placements, np.arange(len(placements)))[0].any()
    assert not rules.reset_rule(rollouts, placements, np.arange(len(placements))).any()


FOUND_BY = {
    "hand_teleport": {"step.hand_move"},
    "object_teleport": {"step.entity_move", "context.off_track"},
    "object_floats": {"step.entity_move"},
    "below_table": {"row.below_table"},
    "gripper_jump": {"step.opening_change"},
    "target_moves": {"context.goal_moved"},
    "entity_swap": {"row.missing_entity"},
    "quat_unnormalised": {"row.unit_quaternion"},
}


def test_every_planted_fault_of_the_rows_is_found_at_its_step_by_its_rule(mutated: Any) -> None:
    data, placements, rollouts = mutated
    found, _ = rules.judge(rollouts, placements, np.arange(len(placements)))
    seen = set()
    for i, fault in enumerate(data["fault"]):
        mine, step = found[rollouts.offsets[i] : rollouts.offsets[i + 1]], int(data["fault_step"][i])
        assert not mine[: step if step >= 0 else len(mine)].any(), "no alarm before the fault"
        if fault in FOUND_BY:
            assert rules.RULES[mine[step] - 1].id in FOUND_BY[fault]
            assert mine[step] > 0
            seen.add(fault)
    assert seen == set(FOUND_BY)


def test_a_legal_row_typed_by_hand_is_legal(maker: Callable[..., Rollouts], row: Row) -> None:
    assert episode(maker, [row(target_object=PUCK)] * 3, "push") == ["", ""]


@pytest.mark.parametrize(
    ("change", "rule"),
    [
        ({"hand": [0.6, 0.6, 0.2]}, "row.hand_range"),
        ({"opening": 0.1}, "row.opening_range"),
        ({"opening": 1.1}, "row.opening_range"),
        ({"target_object": [-0.05, 0.66, 0.02, 0, 0, 0, 0.9]}, "row.unit_quaternion"),
        ({"target_object": [-0.05, 0.66, -0.05, 0, 0, 0, 1]}, "row.below_table"),
        ({"target_object": [0.0] * 7}, "row.missing_entity"),
        ({"target_object": [np.nan, 0.66, 0.02, 0, 0, 0, 1]}, "row.finite"),
        ({"goal": [0.07, 0.85, 0.21]}, "context.goal_moved"),
        ({"hammer": [0.0, 0.45, 0, 1, 0, 0, 0]}, "context.distractor"),
        ({"hammer": [0.0, 0.45, 0, 1, 0, 0, 0], "soccer": [0.0, 0.65, 0.03, 0, 0, 0, 1]}, "row.distractors"),
        ({"hand": [0.1, 0.6, 0.194]}, "step.hand_move"),
        ({"opening": 0.85}, "step.opening_change"),
        ({"target_object": [-0.05, 0.72, 0.02, 0, 0, 0, 1]}, "step.entity_move"),
    ],
)
def test_a_spoilt_row_breaks_the_law_meant(maker: Callable[..., Rollouts], row: Row, change: Any, rule: str) -> None:
    good = row(target_object=PUCK)
    found = episode(maker, [good, good, row(**{"target_object": PUCK, **change})], "push")
    assert found == ["", rule]


def test_an_object_at_rest_that_moves_with_nothing_near_it_is_found(maker: Callable[..., Rollouts], row: Row) -> None:
    rows = [row(target_object=[-0.05, 0.66 + y, 0.02, 0, 0, 0, 1]) for y in (0, 0, 0.01)]
    assert episode(maker, rows, "push") == ["", "step.moved_untouched"]
    near = [row(hand=[-0.05, 0.66, 0.1], target_object=[-0.05, 0.66 + y, 0.02, 0, 0, 0, 1]) for y in (0, 0, 0.01)]
    assert episode(maker, near, "push") == ["", ""]


def test_an_object_that_hangs_in_the_air_is_found_and_one_that_falls_is_not(
    maker: Callable[..., Rollouts], row: Row
) -> None:
    still = [row(hand=[0.3, 0.6, 0.4], target_object=[-0.05, 0.66, 0.12, 0, 0, 0, 1])] * 3
    assert episode(maker, still, "push") == ["", "step.hanging"]
    height = 0.12 - 9.81 * (0.0125 * np.arange(3)) ** 2 / 2
    falls = [row(hand=[0.3, 0.6, 0.4], target_object=[-0.05, 0.66, z, 0, 0, 0, 1]) for z in height]
    assert episode(maker, falls, "push") == ["", ""]


@pytest.mark.parametrize(
    ("task", "entity", "start", "legal", "off", "past"),
    [
        ("button-press", "button", [0, 0.68, 0.115], [0, 0.70, 0.115], [0.01, 0.68, 0.115], [0, 0.63, 0.115]),
        ("window-open", "window", [0, 0.7, 0.16], [0.04, 0.7, 0.16], [0, 0.71, 0.16], [-0.045, 0.7, 0.16]),
        ("faucet-open", "faucet", [0, 0.65, 0.114], [0.03, 0.65, 0.114], [0, 0.66, 0.114], [-0.05, 0.657, 0.114]),
        ("door-unlock", "lock", [0, 0.69, 0.121], [0.03, 0.69, 0.121], None, [0, 0.735, 0.121]),
    ],
)
def test_an_entity_keeps_to_the_track_and_stops_of_its_joint(
    maker: Callable[..., Rollouts], row: Row, task: str, entity: str, start: Any, legal: Any, off: Any, past: Any
) -> None:
    turn = [0, 0, 0, 0] if entity == "window" else [1, 0, 0, 0]

    def outcome(place: Any) -> str:
        return episode(maker, [row(**{entity: [*each, *turn]}) for each in (start, place)], task)[0]

    if task == "faucet-open":  # turn the arm about its pivot, as its joint does
        pivot, angle = np.array([0.015, 0.175]), 0.15
        arm = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]]) @ -pivot
        legal = [*(np.array(start[:2]) + pivot + arm), start[2]]
        arm = (
            np.array([[np.cos(angle * 1.8), np.sin(angle * 1.8)], [-np.sin(angle * 1.8), np.cos(angle * 1.8)]]) @ -pivot
        )
        past = [*(np.array(start[:2]) + pivot + arm), start[2]]
    assert outcome(legal) == ""
    assert off is None or outcome(off) == "context.off_track"
    assert outcome(past) == "context.past_stop"


def test_a_wall_and_a_nail_stand_where_they_are_fixed(maker: Callable[..., Rollouts], row: Row) -> None:
    wall = [0.1, 0.75, 0.06, 1, 0, 0, 0]
    good = row(target_object=PUCK, wall=wall)
    assert episode(maker, [good, good], "push-wall") == [""]
    moved = row(target_object=PUCK, wall=[0.12, *wall[1:]])
    assert episode(maker, [good, moved], "push-wall") == ["row.fixture"]
    assert episode(maker, [good, good], "hammer") == ["row.missing_entity"]


def test_the_distractor_may_flicker_and_hold_anything(golden: Any) -> None:
    data, placements, rollouts = golden["real"]
    who = next(i for i, name in enumerate(data["distractor"]) if name and name != "wall")
    obs = rollouts.obs.copy()
    mine = slice(*rollouts.row_offsets[who : who + 2])
    obs[mine, block(str(data["distractor"][who]))] = np.nan
    found, _ = rules.judge(replace(rollouts, obs=obs), placements, np.arange(len(placements)))
    assert not found[rollouts.rollout == who].any()


def test_the_hand_goes_after_the_commanded_one(golden: Any) -> None:
    _, placements, rollouts = golden["real"]
    turned = replace(rollouts, action=-rollouts.action)
    found, _ = rules.judge(turned, placements, np.arange(len(placements)))
    reach = np.array([placement.task == "reach" for placement in placements])[rollouts.rollout]
    ids = {rules.RULES[number - 1].id for number in np.unique(found[reach & (found > 0)])}
    assert ids == {"step.hand_follows"}
    assert (found[reach] > 0).mean() > 0.3


def test_the_goal_may_turn_to_that_of_the_second_stage(maker: Callable[..., Rollouts], row: Row) -> None:
    blocks = {"coffee": [0.05, 0.6, 0, 0, 0, 0, 1], "coffee_button": [0.02, 0.72, 0.3, 1, 0, 0, 0]}
    first = row(hand=[0, 0.4, 0.2], goal=[0.02, 0.72, 0.0], **blocks)
    assert episode(maker, [first, row(hand=[0, 0.4, 0.2], goal=[0.02, 0.75, 0.001], **blocks)], "make-coffee") == [""]
    moved = row(hand=[0, 0.4, 0.2], goal=[0.02, 0.75, 0.05], **blocks)
    assert episode(maker, [first, moved], "make-coffee") == ["context.goal_moved"]


def test_without_an_end_row_nothing_is_judged_and_out_of_an_illegal_row_no_step_law_is(
    maker: Callable[..., Rollouts], row: Row
) -> None:
    good, bad = row(target_object=PUCK), row(target_object=[-0.05, 0.66, -0.2, 0, 0, 0, 1])
    rows = np.array([good, bad, good])
    assert broken(maker([(rows, np.zeros((3, 4)))], has_final=False), "push") == ["row.below_table", "", "?"]


def test_without_a_task_only_numbers_hand_and_opening_are_tested(maker: Callable[..., Rollouts], row: Row) -> None:
    good = row(soccer=[9, 9, 9, 9, 9, 9, 9])
    rows = [good, good, row(hand=[np.nan, 0, 0]), good, row(hand=[2, 0.6, 0.2])]
    assert episode(maker, rows, "") == ["", "row.finite", "", "row.hand_range"]
    assert rules.reset_rule(
        maker([(np.array([good, good]), np.zeros((1, 4)))]), [Placement("", "")], np.array([0])
    ).tolist() == [-1]


@pytest.mark.parametrize(
    ("change", "rule"),
    [
        ({}, ""),
        ({"hand": [0.1, 0.6, 0.194]}, "row0.hand"),
        ({"opening": 0.7}, "row0.gripper"),
        ({"target_object": [-0.2, 0.66, 0.02, 0, 0, 0, 1]}, "row0.entity"),
        ({"goal": [0.07, 0.85, 0.4]}, "row0.goal"),
        ({"goal": [-0.05, 0.8, 0.2], "target_object": [-0.05, 0.69, 0.02, 0, 0, 0, 1]}, "row0.goal"),
        ({"hand": [np.nan, 0.6, 0.194]}, "row0.hand"),
    ],
)
def test_an_episode_starts_as_a_reset_leaves_it(
    maker: Callable[..., Rollouts], row: Row, change: Any, rule: str
) -> None:
    first = row(**{"target_object": PUCK, **change})
    rollouts = maker([(np.array([first, first]), np.zeros((1, 4)))])
    (number,) = rules.reset_rule(rollouts, [Placement("reach", "reach")], np.array([0]))
    assert (rules.RULES[number - 1].id if number else "") == rule


def test_a_cut_keeps_the_laws_of_its_episode(golden: Any, maker: Callable[..., Rollouts]) -> None:
    _, placements, rollouts = golden["real"]
    cuts, tasks, contexts = [], [], []
    for i in range(0, len(placements), 5):
        first, last = rollouts.row_offsets[i : i + 2]
        half = (last - first) // 2
        cuts.append(
            (rollouts.obs[first + half : last], rollouts.action[rollouts.offsets[i] + half : rollouts.offsets[i + 1]])
        )
        tasks.append(placements[i])
        contexts.append(rollouts.obs[first])
    steps = np.full(len(cuts), 30, np.int32)
    for more in ({}, {"reset_obs": np.array(contexts)}):
        part = maker(cuts, source_step=steps, **more)
        assert not rules.judge(part, tasks, np.arange(len(tasks)))[0].any()
        assert (rules.reset_rule(part, tasks, np.arange(len(tasks))) == -1).all()


def test_rollouts_do_not_see_each_other(golden: Any, maker: Callable[..., Rollouts], mutated: Any) -> None:
    _, placements, rollouts = mutated
    every, _ = rules.judge(rollouts, placements, np.arange(len(placements)))
    for i in (3, 17, 40):
        rows = rollouts.obs[slice(*rollouts.row_offsets[i : i + 2])]
        own = maker([(rows, rollouts.action[slice(*rollouts.offsets[i : i + 2])])])
        alone, _ = rules.judge(own, [placements[i]], np.array([0]))
        np.testing.assert_array_equal(alone, every[rollouts.rollout == i])


def test_other_readings_of_a_row_are_judged_too(maker: Callable[..., Rollouts], row: Row) -> None:
    good = row(target_object=PUCK)
    rollouts = maker(
        [(np.array([good] * 4), np.zeros((3, 4)))],
        break_at=np.array([1]),
        break_obs=row(target_object=[-0.05, 0.66, -0.2, 0, 0, 0, 1])[None],
    )
    assert broken(rollouts, "push") == ["", "row.below_table", ""]


def test_the_shipped_limits_are_those_learnt_from_the_recorded_files(shared_data: Path) -> None:
    peaks = [learn.of_rollouts(path) for path in sorted((shared_data / "golden").glob("metaworld_*.npy"))]
    made = learn.table({str(number): each for number, each in enumerate(peaks)})["limits"]
    assert {name: entry["limit"] for name, entry in made.items()} == measures.limits()


def test_ids_are_unique_and_follow_the_order_of_testing() -> None:
    ids = [rule.id for rule in rules.RULES]
    assert len(set(ids)) == len(ids)
    kinds = [("row.", "context.", "step.").index(rule.id.split(".")[0] + ".") for rule in rules.RULES[:-4] if rule.hard]
    assert kinds == sorted(kinds)
