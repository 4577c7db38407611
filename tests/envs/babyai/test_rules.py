"""Every law has a row typed by hand that breaks it and nothing before it; no true step breaks any."""

from __future__ import annotations

import numpy as np
import pytest

from qualcheck.envs.babyai import kernel, reset, reset_rules, rules
from qualcheck.envs.babyai.goals import TASK_IDS
from qualcheck.envs.babyai.layout import COLUMNS, DOWN, DROP, LEFT, PICKUP, RIGHT, TOGGLE, UP, fields
from qualcheck.types import Placement

BASE = [0, 2, 2, 1, 3, 5, 2, 5, 1, 2, 4, 7, 1, 4, 4, 0, 0]  # blue key and blue closed door, agent at (4, 4)
Change = dict[str, float]


def row(base: list[float] = BASE, **changes: float) -> list[float]:
    out = list(base)
    for name, value in changes.items():
        out[COLUMNS.index(name)] = value
    return out


BALL_UP: Change = {"ball_row": 0, "ball_col": 0, "carried_type": 6, "carried_colour": 0}
KEY_UP: Change = {"key_row": 0, "key_col": 0, "carried_type": 5, "carried_colour": 2}
EMPTY: Change = {"carried_type": 0, "carried_colour": 0}
ON_BALL: Change = {"agent_row": 2, "agent_col": 2}
AT_DOOR: Change = {"agent_row": 4, "agent_col": 6}

# rule -> (row 0 against BASE, start against row 0, action, end against the start)
CASES: dict[str, tuple[Change, Change, int, Change]] = {
    "row.non_finite": ({}, {}, LEFT, {"agent_col": np.nan}),
    "row.not_integer": ({}, {}, LEFT, {"agent_col": 3.5}),
    "row.colour_range": ({}, {}, DROP, {"box_colour": 6}),
    "row.door_state": ({}, {}, DROP, {"door_state": 3}),
    "row.door_place": ({}, {}, DROP, {"door_col": 6}),
    "row.agent_in_wall": ({}, {"agent_col": 1}, LEFT, {"agent_col": 0}),
    "row.object_in_wall": ({}, {}, DROP, {"key_row": 7}),
    "row.half_carried": ({}, {}, DROP, {"key_row": 0}),
    "row.two_carried": ({}, BALL_UP, PICKUP, {"key_row": 0, "key_col": 0}),
    "row.overlap": ({}, {}, DROP, {"key_row": 2, "key_col": 2}),
    "row.carried_slot": ({}, ON_BALL, PICKUP, {"ball_row": 0, "ball_col": 0}),
    "context.ball_colour": ({}, {}, LEFT, {"agent_col": 3, "ball_colour": 4}),
    "context.box_colour": ({}, {}, LEFT, {"agent_col": 3, "box_colour": 4}),
    "context.key_colour": ({}, {}, LEFT, {"agent_col": 3, "key_colour": 4}),
    "context.door_colour": ({}, {}, LEFT, {"agent_col": 3, "door_colour": 4}),
    "context.door_moved": ({}, {}, LEFT, {"agent_col": 3, "door_row": 5}),
    "context.door_locked": ({}, {}, LEFT, {"agent_col": 3, "door_state": 2}),
    "step.colour_changed": ({}, {"key_colour": 4}, LEFT, {"agent_col": 3, "key_colour": 2}),
    "step.door_moved": ({}, {"door_row": 5}, LEFT, {"agent_col": 3, "door_row": 4}),
    "step.picked_without_pickup": ({}, ON_BALL, DOWN, {"agent_row": 3, **BALL_UP}),
    "step.pickup_while_carrying": ({}, {**ON_BALL, **KEY_UP}, PICKUP, {**BALL_UP, "key_row": 5, "key_col": 1}),
    "step.pickup_from_afar": ({}, {}, PICKUP, BALL_UP),
    "step.released_without_drop": ({}, BALL_UP, UP, {"agent_row": 3, "ball_row": 4, "ball_col": 4, **EMPTY}),
    "step.drop_on_object": ({}, {**ON_BALL, **KEY_UP}, DROP, {"key_row": 2, "key_col": 3, **EMPTY}),
    "step.drop_elsewhere": ({}, BALL_UP, DROP, {"ball_row": 4, "ball_col": 5, **EMPTY}),
    "step.object_moved": ({}, {}, LEFT, {"agent_col": 3, "box_row": 6}),
    "step.door_without_toggle": ({}, AT_DOOR, LEFT, {"agent_col": 5, "door_state": 0}),
    "step.toggle_from_afar": ({}, {}, TOGGLE, {"door_state": 0}),
    "step.unlocked_without_key": ({"door_state": 2}, {**AT_DOOR, **BALL_UP}, TOGGLE, {"door_state": 0}),
    "step.unlocked_but_closed": ({"door_state": 2}, {**AT_DOOR, **KEY_UP}, TOGGLE, {"door_state": 1}),
    "step.door_became_locked": ({"door_state": 2}, {**AT_DOOR, "door_state": 0}, TOGGLE, {"door_state": 2}),
    "step.agent_teleported": ({}, {}, LEFT, {"agent_col": 2}),
    "step.agent_moved_without_move": ({}, {}, TOGGLE, {"agent_col": 3}),
    "step.agent_wrong_way": ({}, {}, LEFT, {"agent_col": 5}),
    "step.agent_stayed": ({}, {}, RIGHT, {}),
    "step.pickup_missing": ({}, ON_BALL, PICKUP, {}),
    "step.drop_missing": ({}, BALL_UP, DROP, {}),
    "step.toggle_missing": ({}, AT_DOOR, TOGGLE, {}),
}

# more ways to break a rule than the one above: (rule, row 0, start, action, end)
MORE: list[tuple[str, Change, Change, int, Change]] = [
    ("row.object_in_wall", {}, {}, DROP, {"ball_col": 7}),
    ("row.object_in_wall", {}, {}, DROP, {"box_col": 1000}),
    ("row.door_place", {}, {}, DROP, {"door_row": 0}),
    ("row.agent_in_wall", {}, AT_DOOR, RIGHT, {"agent_col": 7}),
    ("row.half_carried", {}, {}, DROP, {"box_col": 0}),
    ("row.carried_slot", {}, BALL_UP, LEFT, {"agent_col": 3, "carried_colour": 5}),
    ("row.carried_slot", {}, {}, LEFT, {"agent_col": 3, "carried_type": 7}),
    ("step.unlocked_without_key", {"door_state": 2}, AT_DOOR, TOGGLE, {"door_state": 1}),
    ("step.unlocked_without_key", {"door_state": 2, "key_colour": 5},
     {**AT_DOOR, **KEY_UP, "carried_colour": 5}, TOGGLE, {"door_state": 0}),
    ("step.door_without_toggle", {"door_state": 2}, {}, LEFT, {"agent_col": 3, "door_state": 1}),
    ("step.agent_wrong_way", {}, {"agent_col": 1}, LEFT, {"agent_row": 5}),
    ("step.agent_teleported", {}, {}, PICKUP, {"agent_row": 1}),
    ("step.object_moved", {}, {"agent_row": 3, "agent_col": 5}, PICKUP, {"box_row": 6}),
    ("step.pickup_from_afar", {}, ON_BALL, PICKUP, KEY_UP),
]  # fmt: skip


def broken(zero: Change, start: Change, action: int, end: Change) -> str:
    context = row(**zero)
    before = row(context, **start)
    after = row(before, **end)
    case = rules.Case(
        fields(np.array([before])).value, fields(np.array([after])), fields(np.array([context])).value,
        np.array([action], np.int8),
    )  # fmt: skip
    assert kernel.takeable(fields(np.array([before])))[0] == 0
    assert rules.carried_agrees(case.start).all()
    number = int(rules.first_broken(case, np.array([True]), np.array([True]))[0])
    laws = (*rules.ROW_LAWS, *rules.CONTEXT_LAWS, *rules.STEP_LAWS)
    return laws[number - 1][0].id if number else ""


@pytest.mark.parametrize("rule", CASES)
def test_a_transition_typed_by_hand_breaks_its_rule(rule: str) -> None:
    assert broken(*CASES[rule]) == rule


@pytest.mark.parametrize(("rule", "zero", "start", "action", "end"), MORE)
def test_another_way_to_break_a_rule_is_found(rule: str, zero: Change, start: Change, action: int, end: Change) -> None:
    assert broken(zero, start, action, end) == rule


@pytest.mark.parametrize("rule", CASES)
def test_without_a_rule_its_transition_is_judged_otherwise(rule: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ROW_LAWS", "CONTEXT_LAWS", "STEP_LAWS"):
        kept = tuple(law for law in getattr(rules, name) if law[0].id != rule)
        monkeypatch.setattr(rules, name, kept)
    assert broken(*CASES[rule]) != rule


def test_every_rule_has_a_case_and_every_case_a_rule() -> None:
    hard = [rule.id for rule in rules.RULES if rule.hard]
    assert set(hard) == {*CASES, *RESETS}
    assert [rule.id for rule in rules.RULES if not rule.hard] == ["step.over_horizon", "step.chain_break"]
    assert len({rule.id for rule in rules.RULES}) == len(rules.RULES)
    kinds = [rule_id.split(".")[0] for rule_id in hard]
    assert kinds == sorted(kinds, key=["row", "context", "step", "row0"].index)


def test_a_rule_out_of_scope_is_not_applied() -> None:
    given = np.array([row()])
    case = rules.Case(fields(given).value, fields(np.array([row(agent_col=1, ball_colour=5)])), fields(given).value,
                      np.array([LEFT], np.int8))  # fmt: skip
    yes, no = np.array([True]), np.array([False])
    names = [
        rules.RULES[rules.first_broken(case, context, step)[0] - 1].id for context, step in ((yes, yes), (no, yes))
    ]
    assert names == ["context.ball_colour", "step.colour_changed"]
    assert rules.first_broken(case, no, no)[0] == 0


def _transitions(crowded_rows, walked_rows, n: int, seed: int):
    """Legal start rows and actions, (17, n) and (n,)."""
    rng = np.random.default_rng(seed)
    rows = np.concatenate([crowded_rows(2 * n, rng), walked_rows(n, rng)])
    value = fields(rows).value[:, kernel.takeable(fields(rows)) == 0]
    value[15], value[16] = rules.carried(value)
    value = value[:, rng.permutation(value.shape[1])[:n]]
    assert value.shape[1] == n
    return value, rng.integers(0, 7, n).astype(np.int8), rng


def test_no_true_step_breaks_a_rule(crowded_rows, walked_rows) -> None:
    start, action, _ = _transitions(crowded_rows, walked_rows, 60_000, 5)
    end = kernel.step(start, action)
    yes = np.ones(len(action), bool)
    case = rules.Case(start, rules.Fields(end, yes, yes), start, action)
    for law, test in rules.LAWS:
        assert not test(case).any(), law.id


def test_a_rule_is_broken_by_every_end_row_that_is_not_the_true_one(crowded_rows, walked_rows) -> None:
    start, action, rng = _transitions(crowded_rows, walked_rows, 60_000, 6)
    n = len(action)
    other = kernel.step(start, rng.integers(0, 7, n).astype(np.int8))  # what another action would have done
    wrong = rng.random((17, n)) < 0.04
    end = np.where(wrong, rng.integers(0, 8, (17, n), dtype=np.int8), other)
    half = rng.random(n) < 0.7
    end[15:, half] = np.array(rules.carried(end))[:, half]
    yes, no = np.ones(n, bool), np.zeros(n, bool)
    case = rules.Case(start, rules.Fields(end, yes, yes), start, action)
    differs = (end != kernel.step(start, action)).any(axis=0)
    assert 1000 < differs.sum() < n - 1000
    for use_context in (yes, no):
        assert ((rules.first_broken(case, use_context, yes) != 0) == differs).all()


def test_row_rules_are_broken_exactly_by_rows_that_no_real_state_has(broken_rows, crowded_rows) -> None:
    rng = np.random.default_rng(7)
    rows = np.concatenate([broken_rows(30_000, rng), crowded_rows(30_000, rng)])
    decoded = fields(rows)
    right = rng.random(len(rows)) < 0.6
    value = decoded.value
    value[15:, right] = np.array(rules.carried(value))[:, right]
    case = rules.Case(value, decoded, value, np.zeros(len(rows), np.int8))
    no = np.zeros(len(rows), bool)
    legal = (kernel.takeable(decoded) == 0) & rules.carried_agrees(value)
    assert 1000 < legal.sum() < len(rows) - 1000
    assert ((rules.first_broken(case, no, no) == 0) == legal).all()


GO = ("goto", ("red", "ball"))
# rule -> (task, parameters, row 0 against BASE)
RESETS: dict[str, tuple[str, tuple[str, ...], Change]] = {
    "row0.illegal": (*GO, {"agent_row": 0}),
    "row0.carrying": (*GO, BALL_UP),
    "row0.agent_on_object": (*GO, ON_BALL),
    "row0.agent_place": ("go_center", (), {}),
    "row0.object_near_agent": (*GO, {"agent_row": 2, "agent_col": 3}),
    "row0.walled_in": ("putnext", ("red", "ball", "blue", "key"), {"box_row": 4, "box_col": 6}),
    "row0.door_state": (*GO, {"door_state": 0}),
    "row0.lock_colour": ("open_lock", (), {"door_state": 2, "door_colour": 0}),
    "row0.named_object": ("goto", ("green", "ball"), {}),
}
MORE_RESETS: list[tuple[str, str, tuple[str, ...], Change]] = [
    ("", *GO, {}),
    ("", "", (), {}),
    ("", "go_wall", (), {}),
    ("", "go_wall", (), {"ball_row": 4, "ball_col": 3}),
    ("", "go_center", (), {"agent_row": 2, "agent_col": 5}),
    ("", "open_lock", (), {"door_state": 2}),
    ("", "", (), {"door_state": 2}),
    ("row0.agent_place", "go_wall", (), {"agent_row": 5}),
    ("row0.agent_on_object", "go_center", (), ON_BALL),
    ("row0.door_state", "", (), {"door_state": 0}),
    ("row0.door_state", *GO, {"door_state": 2}),
    ("row0.door_state", "open_lock", (), {}),
    ("row0.named_object", "putnext", ("red", "ball", "blue", "box"), {}),
    ("row0.named_object", "open", ("red", "door"), {}),
    ("row0.walled_in", "putnext", ("red", "ball", "blue", "key"),
     {"key_row": 1, "key_col": 1, "ball_row": 1, "ball_col": 2, "box_row": 2, "box_col": 1}),
    ("", "goto", ("blue", "key"),
     {"key_row": 1, "key_col": 1, "ball_row": 1, "ball_col": 2, "box_row": 2, "box_col": 1}),
]  # fmt: skip


def reset_broken(task: str, params: tuple[str, ...], changes: Change) -> str:
    decoded = fields(np.array([row(**changes)]))
    legal = (kernel.takeable(decoded) == 0) & rules.carried_agrees(decoded.value)
    placed = [Placement(task, task, params)]
    number = int(reset_rules.first_broken_at_reset(decoded.value, legal, placed, np.array([0]))[0])
    return reset_rules.RESET_LAWS[number - 1][0].id if number else ""


@pytest.mark.parametrize("rule", RESETS)
def test_a_start_typed_by_hand_breaks_its_rule(rule: str) -> None:
    assert reset_broken(*RESETS[rule]) == rule


@pytest.mark.parametrize(("rule", "task", "params", "changes"), MORE_RESETS)
def test_another_start_is_judged_by_its_task(rule: str, task: str, params: tuple[str, ...], changes: Change) -> None:
    assert reset_broken(task, params, changes) == rule


@pytest.mark.parametrize("rule", RESETS)
def test_without_a_reset_rule_its_start_is_judged_otherwise(rule: str, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = tuple(law for law in reset_rules.RESET_LAWS if law[0].id != rule)
    monkeypatch.setattr(reset_rules, "RESET_LAWS", kept)
    assert reset_broken(*RESETS[rule]) != rule


@pytest.mark.parametrize("task", TASK_IDS)
def test_no_sampled_start_breaks_a_reset_rule(task: str) -> None:
    params = {"goto": ("blue", "ball"), "open": ("grey", "door"), "pickup": ("red", "key"),
              "putnext": ("green", "box", "red", "key")}.get(task, ())  # fmt: skip
    rows = reset.sample_rows(task, [params] * 500, 500, np.random.default_rng(8))
    value = fields(rows).value
    legal = (kernel.takeable(fields(rows)) == 0) & rules.carried_agrees(value)
    found = reset_rules.first_broken_at_reset(value, legal, [Placement(task, task, params)], np.zeros(500, np.int64))
    assert not found.any()
