"""Instructions are placed by meaning, or not at all."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from qualcheck.envs.libero.goals import TASK_IDS, TASKS
from qualcheck.envs.libero.text import place, placement_of_task, sentences
from qualcheck.errors import UnknownName
from qualcheck.types import Placement


def test_every_sentence_of_the_benchmark_is_placed(shared_data: Path) -> None:
    codes = np.load(shared_data / "real" / "imaginebench_libero_encode.npy", allow_pickle=True).item()
    assert set(codes) == set(sentences())
    assert len(codes) == 91
    assert {place(text).task for text in codes} == set(TASK_IDS)


def test_recorded_instructions_name_their_tasks(golden: object) -> None:
    for data, _ in golden.values():  # type: ignore[attr-defined]
        assert [place(texts[0]).task for texts in data["instructions"]] == data["task_str"]


def test_case_space_and_punctuation_are_folded() -> None:
    for text, task in sentences().items():
        assert place(f"  {text.upper().rstrip('.')}!").task == task
        assert place(text.replace("_", " ")) == Placement(task, task)


def test_levels_have_their_tasks() -> None:
    assert {level: len(tasks) for level, tasks in TASKS.items()} == {"real": 6, "rephrase": 6, "easy": 12, "hard": 13}


@pytest.mark.parametrize(
    ("text", "task"),
    [
        ("Employ the gripper to seize the salad_dressing and transfer the salad_dressing to the cream_cheese.",
         "pick-salad_dressing-and-place-to-cream_cheese"),
        ("Activate the robotic gripper to grasp the cream_cheese.", "rep-pick-cream_cheese"),
        ("Grab the soup", "pick-alphabet_soup"),
        ("please pick up the cream cheese", "pick-cream_cheese"),
        ("Use the robot arm to grasp the salad dressing", "pick-salad_dressing"),
        ("Place the soup in the basket", "place-alphabet_soup"),
        ("Transferr the soup to the baskt", "place-alphabet_soup"),
        ("Pick up the soup and put it into the basket", "pick-and-place-alphabet_soup"),
        ("Put the cheese next to the soup", "pick-cream_cheese-and-place-to-alphabet_soup"),
        ("Put the soup next to the cheese", "pick-alphabet_soup-and-place-to-cream_cheese"),
        ("Approach the dressing", "reach-salad_dressing"),
        ("Move to the soup", "reach-alphabet_soup"),
        ("Put the soup in the basket, then put the cheese in the basket",
         "sequential-pick-and-place-alphabet_soup-and-cream_cheese"),
        ("Move the dressing to the other side", "pick-and-place-aside-salad_dressing"),
        ("Take the soup out of the basket", "pick-out-of-alphabet_soup"),
        ("The basket is on fire, take the cheese out of the basket!", "pick-out-of-cream_cheese"),
        ("Put all objects in the basket", "sequential-pick-and-place-all"),
        ("Put the dressing, the cheese and the soup in the basket", "sequential-pick-and-place-all"),
    ],
)  # fmt: skip
def test_wordings_are_placed_with_their_roles(text: str, task: str) -> None:
    assert place(text) == Placement(task, task)


@pytest.mark.parametrize(
    ("text", "code"),
    [
        (None, "no_instruction"),
        ("  ", "no_instruction"),
        ("!?", "no_instruction"),
        ("Seize it", "ambiguous_instruction"),
        ("Seize the soup or the cheese", "ambiguous_instruction"),
        ("Seize the soup and the cheese", "ambiguous_instruction"),
        ("Do not seize the soup", "ambiguous_instruction"),
        ("Seize the soup in the basket", "ambiguous_instruction"),
        ("Seize the milk", "ambiguous_instruction"),
        ("Transfer to the soup the cream cheese", "ambiguous_instruction"),
        ("Put the soup in the basket after the cheese", "ambiguous_instruction"),
        ("Put the soup and the cheese in the basket", "ambiguous_instruction"),
        ("Put the soup next to the soup", "ambiguous_instruction"),
        ("Grasp the soup and transfer the cheese to the basket", "ambiguous_instruction"),
        ("Transfer the basket to the soup", "ambiguous_instruction"),
        ("Then seize the soup", "ambiguous_instruction"),
        ("Seize the soup and", "ambiguous_instruction"),
        ("seize the soup " * 500, "ambiguous_instruction"),
    ],
)
def test_unclear_instructions_are_left_unplaced(text: str | None, code: str) -> None:
    assert place(text) == Placement("", "", code=code)


def test_a_task_can_be_given_by_id_or_sentence() -> None:
    assert placement_of_task("reach-cream_cheese") == Placement("reach-cream_cheese", "reach-cream_cheese")
    assert placement_of_task("Grab the soup").task == "pick-alphabet_soup"
    with pytest.raises(UnknownName, match="Did you mean 'reach-cream_cheese'"):
        placement_of_task("reach-cream_chese")
