"""Instructions and goals of hand-made rollouts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

CANONICAL = {
    "goto": "go to the {color} {type}",
    "open": "open the {color} door",
    "pickup": "pick up the {color} {type}",
    "putnext": "put the {color1} {type1} next to the {color2} {type2}",
}


def _score(qualcheck: Any, bench: Any, tmp_path: Path, episodes: Any, **changes: Any) -> Any:
    content = {**bench.arrays(episodes), **changes}
    return qualcheck.score(tmp_path / "run", bench.npy(tmp_path / "a.npy", content))


def test_without_instructions_only_the_goal_is_unverifiable(
    qualcheck: Any, bench: Any, episode: Any, tour: Any, tmp_path: Path
) -> None:
    content = bench.arrays([episode(tour), episode(tour[:4])])
    del content["instructions"]
    run = qualcheck.score(tmp_path / "run", bench.npy(tmp_path / "a.npy", content))
    for column in ("gc_imagined", "gc_replayed", "gc_imagined_released", "gc_replayed_released", "consistency"):
        assert np.isnan(run.r[column]).all()
    assert list(run.r["gc_code"]) == ["no_instruction"] * 2
    assert list(run.r["task"]) == ["", ""]
    assert not run.r["trivial"].any()
    assert (run.t["tc"] == 1).all()
    assert (run.t["dl"] == 1).all()
    cell = qualcheck.report(tmp_path / "run")["cells"][0]
    assert cell["goal_consistency"] is None
    assert "no_instruction" in cell["goal_consistency_reason"]
    assert cell["unverifiable"]["goal_consistency"] == {"no_instruction": 2}
    for key in ("fabrication", "fabrication_excess"):
        assert cell[key] is None
        assert cell[f"{key}_reason"]


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("", "no_instruction"),
        ("dance a little jig", "ambiguous_instruction"),
        ("go to the blue ball or open the red door", "ambiguous_instruction"),
        ("go to the ball", "ambiguous_instruction"),
        ("go to the orange ball", "ambiguous_instruction"),
        ("put the blue ball next to", "ambiguous_instruction"),
        ("do not go to the blue ball, pick up the yellow key", "ambiguous_instruction"),
    ],
)
def test_a_text_without_one_task_is_not_placed(
    text: str, code: str, qualcheck: Any, bench: Any, episode: Any, tour: Any, tmp_path: Path
) -> None:
    run = _score(qualcheck, bench, tmp_path, [episode(tour, instruction=text), episode(tour)])
    assert run.r["gc_code"][0] == code
    assert np.isnan(run.r["gc_imagined"][0])
    assert np.isnan(run.r["gc_replayed"][0])
    assert run.r["task"][0] == ""
    assert run.r["gc_imagined"][1] == 1
    assert (run.t["tc"] == 1).all()


@pytest.mark.parametrize(
    "text", ["GO TO THE BLUE BALL", "  go  to the\tblue ball ", "Go to the blue ball.", "go to the blue ball!!"]
)
def test_case_space_and_punctuation_are_folded(
    text: str, qualcheck: Any, bench: Any, episode: Any, tour: Any, tmp_path: Path
) -> None:
    run = _score(qualcheck, bench, tmp_path, [episode(tour, instruction=text), episode(tour)])
    assert run.r["task"][0] == run.r["task"][1] != ""
    assert list(run.r["gc_imagined"]) == [1, 1]
    assert run.r["instruction"][0] == text


def test_the_first_instruction_of_a_list_is_the_one_used(
    qualcheck: Any, bench: Any, episode: Any, tour: Any, tmp_path: Path
) -> None:
    texts = [["go to the blue ball", "go to the yellow key"], ["go to the yellow key", "go to the blue ball"]]
    run = _score(qualcheck, bench, tmp_path, [episode(tour), episode(tour[:9])], instructions=texts)
    assert list(run.r["gc_imagined"]) == [1, 0]


@pytest.mark.parametrize("texts", ["strings", "array", "object array"])
def test_instructions_may_be_plain_strings_or_arrays(
    texts: str, qualcheck: Any, bench: Any, episode: Any, tour: Any, tmp_path: Path
) -> None:
    plain = ["go to the blue ball", "walk to the yellow key"]
    value = {"strings": plain, "array": np.array(plain), "object array": np.array(plain, object)}[texts]
    run = _score(qualcheck, bench, tmp_path, [episode(tour), episode(tour[:9])], instructions=value)
    assert list(run.r["instruction"]) == plain
    assert list(run.r["gc_imagined"]) == [1, 0]


def test_every_template_of_the_benchmark_is_placed_and_judged(
    qualcheck: Any, bench: Any, episode: Any, world: Any, shared: Path, tmp_path: Path
) -> None:
    templates = json.loads((shared / "spec/instructions_babyai.json").read_text(encoding="utf-8"))
    near_door = world.ROW0.copy()
    near_door[13:15] = 3, 6
    on_box = world.ROW0.copy()
    on_box[13:15] = 4, 2
    walks = {
        "goto": (world.ROW0, (2, 2, 2, 2, 1, 1, 1, 1)),
        "open": (near_door, (5,)),
        "pickup": (on_box, (3,)),
        "putnext": (on_box, (3, 1, 1, 1, 2, 4)),  # the green box goes to (3, 5), under the blue ball
    }
    words = {
        "goto": {"color": "blue", "type": "ball"},
        "open": {"color": "red", "type": "door"},
        "pickup": {"color": "green", "type": "box"},
        "putnext": {"color1": "green", "type1": "box", "color2": "blue", "type2": "ball"},
    }
    episodes, names = [], []
    for key, value in templates.items():
        family = next((name for name in ("putnext", "pickup", "goto", "open") if key.split("_")[-1] == name), key)
        if family not in walks:
            continue
        lists = [text for name, text in value.items() if isinstance(text, list)]
        for text in {template for block in lists for template in block}:
            row0, actions = walks[family]
            episodes.append(episode(actions, row0, instruction=text.format(**words[family])))
            names.append(family)
    assert len(episodes) >= 160
    run = _score(qualcheck, bench, tmp_path, episodes)
    failed = [run.r["instruction"][i] for i in np.flatnonzero(run.r["gc_imagined"] != 1)]
    assert not failed
    for family in walks:
        assert len({task for task, name in zip(run.r["task"], names, strict=True) if name == family}) == 1
    assert len(set(run.r["task"])) == 4


def test_another_colour_or_object_is_another_goal(
    qualcheck: Any, bench: Any, episode: Any, world: Any, tmp_path: Path
) -> None:
    texts = ("go to the blue ball", "go to the green box", "go to the yellow key", "go to the red door")
    ends = {"ball": (2, 5), "box": (4, 2), "key": (5, 5), "door": (3, 6)}
    episodes = []
    for text in texts:
        for y, x in ends.values():
            walk = [2] * (6 - y) + [1] * (x - 1)
            rows = world.play(world.ROW0, walk)
            rewards = np.zeros(len(walk))
            assert tuple(rows[-1, 13:15]) == (y, x)
            episodes.append(episode(walk, instruction=text, rewards=rewards))
    run = _score(qualcheck, bench, tmp_path, episodes)
    got = run.r["gc_imagined"].reshape(4, 4)
    assert np.array_equal(got, np.eye(4))


SWAPS = (("ball", "blue", "box", "green"), ("ball", "blue", "key", "yellow"), ("key", "yellow", "box", "green"))


@pytest.mark.parametrize(("first", "one", "second", "two"), SWAPS)
def test_swapping_the_objects_of_a_put_next_sentence_is_another_goal(
    first: str, one: str, second: str, two: str, qualcheck: Any, bench: Any, episode: Any, world: Any, tmp_path: Path
) -> None:
    place = {"ball": (2, 5), "box": (4, 2), "key": (5, 5)}[first]
    walk = [2] * (6 - place[0]) + [1] * (place[1] - 1) + [3, 0, 6, 0]
    rewards = world.putnext_reward(world.play(world.ROW0, walk), first, second)
    texts = (f"put the {one} {first} next to the {two} {second}", f"put the {two} {second} next to the {one} {first}")
    run = _score(qualcheck, bench, tmp_path, [episode(walk, instruction=text, rewards=rewards) for text in texts])
    assert np.abs(run.steps(0, "reward_error")).max() < 1e-5
    assert np.abs(run.steps(1, "reward_error")).max() > 1e-2


def test_put_next_looks_at_where_things_lie_and_not_at_what_is_carried(
    qualcheck: Any, bench: Any, episode: Any, world: Any, tmp_path: Path
) -> None:
    on_box = world.ROW0.copy()
    on_box[13:15] = 4, 2
    carried = (3, 1, 1, 1, 2)
    text = "put the green box next to the blue ball"
    episodes = [episode(carried, on_box, instruction=text), episode((*carried, 4), on_box, instruction=text)]
    run = _score(qualcheck, bench, tmp_path, episodes)
    assert list(run.r["gc_imagined"]) == [0, 1]
    assert list(run.r["gc_replayed"]) == [0, 1]


def test_a_goal_that_holds_at_row_0_is_trivial(
    qualcheck: Any, bench: Any, episode: Any, world: Any, tmp_path: Path
) -> None:
    near = world.ROW0.copy()
    near[4:6] = 2, 4
    text = "put the green box next to the blue ball"
    undone = near.copy()
    undone[13:15] = 2, 4
    episodes = [
        episode((2,), near, instruction=text),
        episode((2,), instruction=text),
        episode((3,), undone, instruction=text),
    ]
    run = _score(qualcheck, bench, tmp_path, episodes)
    assert list(run.r["trivial"]) == [True, False, True]
    assert list(run.r["gc_imagined"]) == [1, 0, 0]
    assert list(run.r["gc_replayed"]) == [1, 0, 0]


def test_open_pick_never_succeeds_as_released_and_does_as_intended(
    qualcheck: Any, bench: Any, episode: Any, world: Any, tmp_path: Path
) -> None:
    row0 = world.ROW0.copy()
    row0[13:15] = 3, 6
    row0[7:9] = 3, 5
    text = "open the door, then pick up any object"
    episodes = [
        episode((5, 0, 3), row0, instruction=text),
        episode((0, 3), row0, instruction=text),
        episode((5, 0), row0, instruction=text),
    ]
    run = _score(qualcheck, bench, tmp_path, episodes)
    assert list(run.r["gc_imagined"]) == [1, 0, 0]
    assert list(run.r["gc_replayed"]) == [1, 0, 0]
    assert list(run.r["gc_imagined_released"]) == [0, 0, 0]
    assert list(run.r["gc_replayed_released"]) == [0, 0, 0]
    assert list(run.r["consistency"]) == [1, 0.5, 0.5]
    assert list(run.r["consistency_replayed"]) == [1, 0.5, 0.5]


def _scene(world: Any, ball: Any, box: Any, key: Any, agent: Any, door: int = 1, held: str = "") -> np.ndarray:
    row = world.ROW0.copy()
    row[1:3], row[4:6], row[7:9], row[13:15], row[12] = ball, box, key, agent, door
    if held:
        at, kind = {"ball": (0, 6), "box": (3, 7), "key": (6, 5)}[held]
        row[at + 1 : at + 3] = 0
        row[15:17] = kind, row[at]
    return row


def test_the_goals_of_easy_and_hard_are_judged_on_each_end_row(
    qualcheck: Any, bench: Any, episode: Any, world: Any, tmp_path: Path
) -> None:
    pile, line = "gather the three items into a pile", "put the three items in a line"
    wall, centre = "goto the side of the wall", "goto the center of the room"
    go, lock = "open the door, then goto any object", "pick up the key, then open the door"
    away = (5, 3)
    cases = [
        (pile, _scene(world, (2, 2), (2, 3), (3, 2), away), 1),
        (pile, _scene(world, (2, 2), (2, 3), (2, 4), away), 0),
        (pile, _scene(world, (2, 2), (3, 2), (4, 2), away), 0),
        (pile, _scene(world, (2, 2), (3, 3), (2, 3), away), 1),
        (pile, _scene(world, (2, 2), (3, 3), (6, 6), away), 0),
        (line, _scene(world, (2, 1), (2, 4), (2, 6), away), 1),
        (line, _scene(world, (1, 3), (4, 3), (6, 3), away), 1),
        (line, _scene(world, (1, 1), (2, 2), (3, 3), away), 0),
        (line, _scene(world, (2, 1), (2, 4), (3, 6), away), 0),
        (line, _scene(world, (2, 1), (2, 4), (2, 6), away, held="ball"), 0),
        (wall, _scene(world, (2, 2), (2, 3), (3, 2), (1, 3)), 1),
        (wall, _scene(world, (2, 2), (2, 3), (3, 2), (4, 6)), 1),
        (wall, _scene(world, (2, 2), (2, 3), (3, 2), (2, 5)), 0),
        (centre, _scene(world, (2, 2), (2, 3), (3, 2), (3, 4)), 1),
        (centre, _scene(world, (2, 2), (2, 3), (3, 2), (3, 5)), 0),
        (centre, _scene(world, (2, 2), (2, 3), (3, 2), (2, 4)), 0),
        (go, _scene(world, (2, 2), (2, 3), (3, 2), (2, 2), door=0), 1),
        (go, _scene(world, (2, 2), (2, 3), (3, 2), (2, 2), door=1), 0),
        (go, _scene(world, (2, 2), (2, 3), (3, 2), (5, 5), door=0), 0),
        (lock, _scene(world, (2, 2), (2, 3), (3, 2), (5, 5), door=0), 1),
        (lock, _scene(world, (2, 2), (2, 3), (3, 2), (5, 5), door=2), 0),
    ]
    # action 4 with empty hands, and action 3 with full ones, changes nothing: the end row is row 0
    episodes = [episode((3 if row[15] else 4,), row, instruction=text) for text, row, _ in cases]
    content = bench.arrays(episodes)
    path = bench.npy(tmp_path / "a.npy", content)
    run = qualcheck.score(tmp_path / "run", path, options=["--start", "any"])
    assert (run.t["tc"] == 1).all()
    assert list(run.r["gc_imagined"]) == [want for *_, want in cases]
    assert list(run.r["gc_replayed"]) == [want for *_, want in cases]
    assert list(run.r["trivial"]) == [bool(want) for *_, want in cases]
