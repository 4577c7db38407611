"""Recorded rollouts with one planted fault each: found at its step, under a name that says what happened."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

# what a reader of tc_code and dl_rule must find there to know what happened
WORDS = {
    "agent_teleport": ("agent", "move", "passed", "step_limit"),
    "wall_walk": ("agent", "wall"),
    "object_teleport": ("object", "ball", "box", "key", "moved", "teleport"),
    "pickup_from_afar": ("pickup", "carr", "ball", "box", "key", "object"),
    "drop_on_object": ("overlap", "drop", "same_cell", "stack"),
    "door_toggle_afar": ("door", "toggle"),
    "unlock_without_key": ("door", "lock", "toggle"),
    "colour_change": ("colour", "color"),
    "carry_inconsistent": ("carr",),
    "two_carried": ("carr",),
    "overlap": ("overlap", "same_cell", "stack"),
    "action_swap": ("agent", "move", "door", "toggle", "pickup", "drop", "carr", "ball", "box", "key", "object"),
    "frozen_agent": ("agent", "move", "frozen", "no_effect", "effect"),
}


@pytest.fixture(scope="module")
def mutated(scored: Any, shared_data: Path) -> tuple[Any, dict[str, Any], Any]:
    run, content = scored("mutated/babyai_mutated.npy")
    return run, content, np.load(shared_data / "mutated/babyai_mutated_labels.npz")


def test_every_transition_verdict_equals_the_label(mutated: Any) -> None:
    run, content, labels = mutated
    t = run.t
    assert len(t["tc"]) == content["masks"].sum()
    correct = labels["correct"][t["rollout"], t["step"]].astype(float)
    correct[correct == -1] = np.nan
    assert np.array_equal(t["tc"], correct, equal_nan=True)


@pytest.mark.parametrize("fault", sorted(WORDS))
def test_the_fault_is_found_at_its_step_and_named(fault: str, mutated: Any) -> None:
    run, content, labels = mutated
    shape = content["masks"].shape[:2]
    tc, dl = run.grid("tc", shape), run.grid("dl", shape)
    code, rule = run.grid("tc_code", shape, ""), run.grid("dl_rule", shape, "")
    rollouts = np.flatnonzero(labels["fault"] == fault)
    assert len(rollouts) >= 50
    step = labels["fault_step"][rollouts]
    found = (tc[rollouts, step] == 0) | (dl[rollouts, step] == 0)
    assert found.all(), f"missed in rollouts {rollouts[~found]}"
    says = [f"{code[i, s]} {rule[i, s]}" for i, s in zip(rollouts, step, strict=True)]
    unnamed = {text for text in says if not any(word in text for word in WORDS[fault])}
    assert not unnamed


@pytest.mark.parametrize("fault", sorted(WORDS))
def test_the_first_fault_step_is_the_planted_one(fault: str, mutated: Any) -> None:
    run, _, labels = mutated
    rollouts = np.flatnonzero(labels["fault"] == fault)
    assert np.array_equal(run.r["first_fault_step"][rollouts], labels["fault_step"][rollouts])


def test_carry_faults_break_a_row_rule_of_the_carried_slot(mutated: Any) -> None:
    run, content, labels = mutated
    rule = run.grid("dl_rule", content["masks"].shape[:2], "")
    for fault in ("carry_inconsistent", "two_carried", "overlap", "drop_on_object"):
        for i in np.flatnonzero(labels["fault"] == fault):
            assert rule[i, labels["fault_step"][i]].startswith("row."), fault


def test_nothing_is_raised_outside_the_fault_windows(mutated: Any) -> None:
    run, _, labels = mutated
    t = run.t
    wrong = (t["tc"] == 0) | (t["dl"] == 0)
    rollout, step = t["rollout"][wrong], t["step"][wrong]
    start, span = labels["fault_step"][rollout], labels["fault_len"][rollout]
    colour = labels["fault"][rollout] == "colour_change"  # later rows differ from row 0 for good
    outside = ((step < start) | (step >= start + span)) & ~(colour & (step >= start))
    pairs = [(labels["fault"][i], int(i), int(s)) for i, s in zip(rollout[outside], step[outside], strict=True)]
    assert not pairs


def test_nothing_is_raised_on_unmodified_rollouts(mutated: Any) -> None:
    run, _, labels = mutated
    clean = labels["fault"] == "none"
    assert clean.sum() == 158
    inside = clean[run.t["rollout"]]
    assert (run.t["tc"][inside] == 1).all()
    assert (run.t["dl"][inside] == 1).all()
    assert (run.r["first_fault_step"][clean] == -1).all()
    assert (run.r["dl_row0"][clean] == 1).all()
    allowed = {"duplicate"}
    assert all(set(flags) <= allowed for flags in run.r["flags"][clean])


def test_a_cut_tail_is_a_missing_goal_without_a_bad_transition(mutated: Any) -> None:
    run, _, labels = mutated
    cut = labels["fault"] == "goal_tail_cut"
    assert cut.sum() == 56
    inside = cut[run.t["rollout"]]
    assert (run.t["tc"][inside] == 1).all()
    assert (run.t["dl"][inside] == 1).all()
    assert (run.r["gc_imagined"][cut] == 0).all()
    assert (run.r["gc_imagined_released"][cut] == 0).all()


def test_goals_equal_the_labels(mutated: Any) -> None:
    run, _, labels = mutated
    assert np.array_equal(run.r["gc_imagined_released"], labels["goal_imagined"])
    assert np.array_equal(run.r["gc_replayed_released"], labels["goal_replayed"])
    assert np.array_equal(run.r["gc_imagined"], labels["goal_imagined_intended"])
    assert np.array_equal(run.r["gc_replayed"], labels["goal_replayed_intended"])
