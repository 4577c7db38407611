"""Sentences and goal arrays name the task that they mean, or none."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from qualcheck.envs.clevr import goals, text
from qualcheck.errors import UnknownName

SENTENCES = {
    "Push the red ball behind the blue ball": ("tau_behind", "red", "blue"),
    "CAN YOU HELP ME MOVE THE CYAN BALL IN LEFT OF THE GREEN BALL?": ("tau_left", "cyan", "green"),
    "The purple ball was pushed to the front of the red ball.": ("tau_front", "purple", "red"),
    "  is there any blue ball   right the cyan ball ": ("tau_right", "blue", "cyan"),
    "Push the red ball to the left": ("push_left", "red"),
    "keep the cyan ball still": ("push_still", "cyan"),
    "Gather all the balls together": ("gather",),
    "arrange the balls in a line": ("order",),
    "push the blue ball behind the red ball and push the green ball left of the cyan ball": (
        "tau_2", "behind", "blue", "red", "left", "green", "cyan",
    ),
    "To the left of the blue ball, put the red ball": ("tau_left", "red", "blue"),
    "Get the puprle sphere to the back of the green one, please": ("tau_behind", "purple", "green"),
    "push the red ball backwards": ("push_behind", "red"),
    "line up all the balls": ("order",),
    "Move red left of blue, green behind cyan and purple in front of red.": (
        "tau_3", "left", "red", "blue", "behind", "green", "cyan", "front", "purple", "red",
    ),
}  # fmt: skip
UNCLEAR = (
    "don't push the red ball behind the blue ball",
    "I can't stand the red ball ahead of the blue one. Could you switch the positions of them?",
    "push the red ball",
    "push the red ball behind the red ball",
    "push the red ball behind the yellow ball",
    "red ball blue ball behind",
    "push the red ball from the left of the blue ball",
    "push the red ball located to the left of the blue ball",
    "push the red ball to the left and behind the blue ball",
    "push the red and blue balls to the left of the cyan ball",
    "push the red ball behind with the blue ball",
    "push the red ball right behind the blue ball",
    "the blue ball has the red ball to its left",
    "the red ball is left of the blue ball and push the green ball behind the cyan ball",
    "push the red ball left and push the blue ball right",
    "keep the red ball to the left",
    "push the red ball back",
    "gather all the balls in a line",
    "push all the balls in a line",
    "colourless green ideas sleep furiously",
)


@pytest.mark.parametrize("sentence", SENTENCES)
def test_a_sentence_names_its_task_and_the_roles_of_its_balls(sentence: str) -> None:
    found = text.place(sentence)
    assert (found.task, *found.params) == SENTENCES[sentence]
    assert found.code == ""


@pytest.mark.parametrize("sentence", UNCLEAR)
def test_a_sentence_that_leaves_it_open_names_none(sentence: str) -> None:
    found = text.place(sentence)
    assert (found.task, found.code) == ("", "ambiguous_instruction")


@pytest.mark.parametrize("sentence", [None, "", " ?! "])
def test_no_sentence_is_no_instruction(sentence: str | None) -> None:
    assert text.place(sentence).code == "no_instruction"


GOALS: list[tuple[list[float], tuple[str, ...]]] = [
    ([1, 2, 0, 0, 0, 0], ("tau_behind", "red", "blue")),
    ([0, 2, 0, 0, 1, 3], ("tau_right", "cyan", "blue")),
    ([0, 0, 1, 0, 0, 2], ("push_front", "green")),
    ([0, 0, 1, 0, 0, 4], ("push_still", "green")),
    ([0, 0, 0, 0, 0, 2, *[-1] * 18], ("order",)),
    ([0, 0, 0, 0, 0, 3, *[-1] * 18], ("gather",)),
    (
        [0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 2, 1, 2, 0, 0, 1, 0, 3, *[-1] * 6],
        ("tau_2", "left", "red", "cyan", "right", "purple", "red"),
    ),
]


@pytest.mark.parametrize(("goal", "expected"), GOALS)
@pytest.mark.parametrize("kind", [np.int64, np.float32])
def test_a_goal_array_names_its_task_and_outweighs_the_sentence(goal: list[int], expected: Any, kind: type) -> None:
    found = text.place("gather all the balls together", np.array(goal, kind))
    assert (found.task, *found.params) == expected
    steps = np.array([goal, goal], kind)
    assert text.place(None, steps) == found, "of goals that stand once a step the first counts"


@pytest.mark.parametrize(
    "goal",
    [
        np.zeros(6),
        np.array([1, 2, 0, 0, 0, 7]),
        np.array([1, 1, 2, 0, 0, 1]),
        np.zeros(3),
        np.array([0.5, 2, 0, 0, 0, 0]),
        np.array([0, 0, 0, 0, 0, 1, 1, 0, 0, 2, 0, 3, 2, 0, 0, 1, 2, 1, *[-1] * 6]),  # two parts of three
        np.array([1, 2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0]),
        np.array(["red", "blue"]),
    ],
)
def test_an_impossible_goal_array_leaves_the_sentence_to_decide(goal: Any) -> None:
    assert text.place("push the red ball to the left", goal).task == "push_left"
    assert text.place(None, goal).code == "ambiguous_instruction"


@pytest.mark.parametrize("goal", [None, np.zeros((0, 6)), np.full(24, np.nan), np.full(6, -1)])
def test_an_empty_goal_array_is_as_good_as_none(goal: Any) -> None:
    assert text.place("push the red ball to the left", goal).task == "push_left"
    assert text.place(None, goal).code == "no_instruction"


def test_tasks_are_named_with_their_balls() -> None:
    assert text.placement_of_task("tau_left:red,blue") == text.place("push the red ball left the blue ball")
    assert text.placement_of_task("gather").task == "gather"
    with pytest.raises(UnknownName, match="tau_left:red,blue"):
        text.placement_of_task("tau_left")
    for task in goals.TASK_IDS:
        assert text.placement_of_task(text.example(task)).task == task
    for unfit in ("tau_left:red", "tau_left:red,red", "tau_2:left,red,blue,right,cyan", "push_still:pink", "order:red"):
        with pytest.raises(UnknownName, match="type for example"):
            text.placement_of_task(unfit)
    with pytest.raises(UnknownName, match="known: gather"):
        text.placement_of_task("juggle")


def test_every_sentence_of_the_recorded_file_means_its_goal_array(shared_data: Path) -> None:
    data: dict[str, Any] = np.load(shared_data / "real/kalm_clevr_robot.npy", allow_pickle=True).item()
    for goal, sentences in zip(data["goals"], data["instructions"], strict=True):
        expected = text.place(None, goal[0])
        assert expected.task
        for sentence in sentences:
            found = text.place(str(sentence))
            assert (found.task, found.params) == (expected.task, expected.params), sentence


def test_of_free_english_most_is_placed_and_nothing_wrongly(shared_data: Path) -> None:
    data: dict[str, Any] = np.load(shared_data / "real/kalm_clevr_rephrase_prompt.npy", allow_pickle=True).item()
    right = 0
    for goal, (sentence,) in zip(data["goals"], data["instructions"], strict=True):
        expected, found = text.place(None, goal), text.place(str(sentence))
        if found.task:
            assert (found.task, found.params) == (expected.task, expected.params), sentence
            right += 1
    assert right >= 58
