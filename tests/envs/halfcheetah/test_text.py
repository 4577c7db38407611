"""Instructions are placed by meaning, or not at all."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from qualcheck.envs.halfcheetah.text import place, placement_of_task
from qualcheck.errors import UnknownName
from qualcheck.types import Placement


def test_all_sentences_of_the_benchmark_are_placed(shared: Path) -> None:
    served = json.loads((shared / "spec" / "instructions_halfcheetah.json").read_text())
    assert sum(len(texts) for texts in served.values()) == 49
    for task, texts in served.items():
        for text in texts:
            meant = {"jump-forward": "jump-backward", "jump-backward": "jump-forward"}.get(task, task)
            assert place(text) == Placement(meant, task)
            assert place(f"  {text.upper().rstrip('.')} ") == Placement(meant, task)


@pytest.mark.parametrize(
    ("text", "task"),
    [
        ("Leap a step forward.", "jump-forward"),
        ("Bound a step backward", "jump-backward"),
        ("Hop ahead", "jump-forward"),
        ("sprint forward", "move-forward"),
        ("Dash backwards!", "move-backward"),
        ("please rush backward", "move-backward"),
        ("Advance.", "move-forward"),
        ("Retreat backwards", "move-backward"),
        ("Run faster forward", "move-forward-fast"),
        ("Move bakward faster", "move-backward-fast"),
        ("Run forward, then run backward", "move-forward-backward"),
        ("Run backward then forward", "move-backward-forward"),
        ("Move forward. Slow down and move back.", "move-forward-backward"),
        ("Jump in place", "jump-in-place"),
        ("hop on the spot", "jump-in-place"),
    ],
)
def test_other_wordings_are_placed_by_meaning(text: str, task: str) -> None:
    assert place(text) == Placement(task, task)


@pytest.mark.parametrize(
    ("text", "code"),
    [
        (None, "no_instruction"),
        (" ", "no_instruction"),
        ("!?", "no_instruction"),
        ("Jump", "ambiguous_instruction"),
        ("go faster", "ambiguous_instruction"),
        ("forward", "ambiguous_instruction"),
        ("Do not run forward", "ambiguous_instruction"),
        ("Run forward or backward", "ambiguous_instruction"),
        ("Move forward after moving backward", "ambiguous_instruction"),
        ("Move back and forth", "ambiguous_instruction"),
        ("Retreat forward", "ambiguous_instruction"),
        ("Jump forward and move backward", "ambiguous_instruction"),
        ("Move forward and slow down", "ambiguous_instruction"),
        ("Jump three steps forward", "ambiguous_instruction"),
        ("Open the door", "ambiguous_instruction"),
        ("run forward " * 500, "ambiguous_instruction"),
    ],
)
def test_unclear_instructions_are_left_unplaced(text: str | None, code: str) -> None:
    assert place(text) == Placement("", "", code=code)


def test_task_can_be_given_by_name() -> None:
    assert placement_of_task("jump-forward") == Placement("jump-forward", "jump-forward")
    with pytest.raises(UnknownName, match="Did you mean 'jump-forward'"):
        placement_of_task("jump-forwards")
