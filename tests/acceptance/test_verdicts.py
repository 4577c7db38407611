"""Hand-made rollouts: what transition correctness and dynamics legality say about one spoilt row."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

AT = 4  # the transition that is spoilt; row AT + 1 is its end
BOX_CARRIED_AT = 4  # in the tour the box is carried in rows 4 and 5

# a wrong value that is legal by itself wherever the column has one: column -> (value, can a simulator take the row on)
WRONG = {
    0: 3,
    1: 1,
    2: 4,
    3: 5,
    4: 2,
    5: 3,
    6: 0,
    7: 4,
    8: 6,
    9: 1,
    10: 4,
    11: 6,
    12: 0,
    13: 5,
    14: 5,
    15: 5,
    16: 3,
}


@pytest.fixture(scope="module")
def one_field_wrong(qualcheck: Any, bench: Any, episode: Any, tour: Any, tmp_path_factory: Any) -> Any:
    episodes = [episode(tour)]
    for column, value in WRONG.items():
        spoilt = episode(tour)
        assert spoilt.rows[AT + 1, column] != value
        spoilt.rows[AT + 1, column] = value
        episodes.append(spoilt)
    folder = tmp_path_factory.mktemp("fields")
    return qualcheck.score(folder / "run", bench.npy(folder / "fields.npy", bench.arrays(episodes)))


def test_the_unspoilt_tour_is_correct_and_legal(one_field_wrong: Any) -> None:
    assert (one_field_wrong.steps(0, "tc") == 1).all()
    assert (one_field_wrong.steps(0, "dl") == 1).all()
    assert one_field_wrong.r["gc_imagined"][0] == 1
    assert one_field_wrong.r["gc_replayed"][0] == 1


@pytest.mark.parametrize("column", WRONG)
def test_one_wrong_field_in_one_row_fails_there(column: int, one_field_wrong: Any) -> None:
    run, i = one_field_wrong, column + 1
    tc, code = run.steps(i, "tc"), run.steps(i, "tc_code")
    assert (tc[:AT] == 1).all()
    assert tc[AT] == 0
    assert code[AT] != ""
    assert run.steps(i, "tc_error")[AT] >= 1
    assert run.r["first_fault_step"][i] == AT
    assert (tc[AT + 2 :] == 1).all()
    if column not in (15, 16):  # a simulator derives these two and can go on from the row
        assert tc[AT + 1] != 1


@pytest.mark.parametrize("column", [1, 2, 7, 8, 12, 13, 14])
def test_a_wrong_field_within_its_range_counts_as_one(column: int, one_field_wrong: Any) -> None:
    assert one_field_wrong.steps(column + 1, "tc_error")[AT] == 1


@pytest.mark.parametrize("column", [0, 3, 6, 9, 10])
def test_a_changed_constant_breaks_a_context_rule(column: int, one_field_wrong: Any) -> None:
    run, i = one_field_wrong, column + 1
    assert run.steps(i, "dl")[AT] == 0
    prefix = "row." if column == 3 else "context."  # the box is carried: its colour must stand in the carried slot too
    assert run.steps(i, "dl_rule")[AT].startswith(prefix)


@pytest.mark.parametrize("column", [4, 5, 11, 15, 16])
def test_a_row_that_contradicts_itself_breaks_a_row_rule(column: int, one_field_wrong: Any) -> None:
    run, i = one_field_wrong, column + 1
    assert run.steps(i, "dl")[AT] == 0
    assert run.steps(i, "dl_rule")[AT].startswith("row.")


@pytest.mark.parametrize("column", [1, 2, 7, 8, 12])
def test_a_thing_that_changes_without_cause_breaks_a_step_rule(column: int, one_field_wrong: Any) -> None:
    run, i = one_field_wrong, column + 1
    assert run.steps(i, "dl")[AT] == 0
    assert run.steps(i, "dl_rule")[AT].startswith("step.")


def _illegal(rows: np.ndarray, kind: str) -> None:
    if kind == "overlap":
        rows[AT + 1, [7, 8]] = rows[AT + 1, [1, 2]]
    elif kind == "two_carried":
        rows[AT + 1, [7, 8]] = 0
    elif kind == "object_in_wall":
        rows[AT + 1, 7] = 0
    elif kind == "agent_in_wall":
        rows[AT + 1, 13] = 7
    elif kind == "agent_in_door":
        rows[AT + 1, 13:15] = 3, 7
    elif kind == "colour_6":
        rows[AT + 1, 0] = 6
    elif kind == "half":
        rows[AT + 1, 1] = 2.5
    elif kind == "door_state_3":
        rows[AT + 1, 12] = 3
    elif kind == "nan":
        rows[AT + 1] = np.nan
    elif kind == "one_nan":
        rows[AT + 1, 16] = np.nan
    elif kind == "infinite":
        rows[AT + 1, 2] = np.inf
    elif kind == "huge":
        rows[AT + 1, 2] = 1e30


KINDS = (
    "overlap",
    "two_carried",
    "object_in_wall",
    "agent_in_wall",
    "agent_in_door",
    "colour_6",
    "half",
    "door_state_3",
    "nan",
    "one_nan",
    "infinite",
    "huge",
)


@pytest.fixture(scope="module")
def illegal(qualcheck: Any, bench: Any, episode: Any, tour: Any, tmp_path_factory: Any) -> Any:
    episodes = []
    for kind in KINDS:
        spoilt = episode(tour)
        _illegal(spoilt.rows, kind)
        episodes += [spoilt, episode(tour, instruction="walk to the blue ball")]
    folder = tmp_path_factory.mktemp("illegal")
    return qualcheck.score(folder / "run", bench.npy(folder / "illegal.npy", bench.arrays(episodes)))


@pytest.mark.parametrize("kind", KINDS)
def test_an_illegal_row_is_charged_once(kind: str, illegal: Any) -> None:
    i = 2 * KINDS.index(kind)
    tc, code = illegal.steps(i, "tc"), illegal.steps(i, "tc_code")
    assert (tc[:AT] == 1).all()
    assert tc[AT] == 0
    assert code[AT] not in ("", "illegal_start")
    assert np.isnan(tc[AT + 1])
    assert code[AT + 1] == "illegal_start"
    assert (tc[AT + 2 :] == 1).all()
    assert illegal.r["first_fault_step"][i] == AT
    assert illegal.r["coverage_tc"][i] == pytest.approx(0.9)
    assert illegal.r["correctness"][i] == pytest.approx(8 / 9)


@pytest.mark.parametrize("kind", KINDS)
def test_step_rules_do_not_apply_out_of_an_illegal_row(kind: str, illegal: Any) -> None:
    i = 2 * KINDS.index(kind)
    dl, rule = illegal.steps(i, "dl"), illegal.steps(i, "dl_rule")
    assert dl[AT] == 0
    assert rule[AT].startswith("row.")
    assert dl[AT + 1] == 1
    assert (dl[AT + 2 :] == 1).all()


@pytest.mark.parametrize("kind", KINDS)
def test_a_defective_rollout_leaves_its_neighbour_alone(kind: str, illegal: Any) -> None:
    i = 2 * KINDS.index(kind) + 1
    assert (illegal.steps(i, "tc") == 1).all()
    assert (illegal.steps(i, "dl") == 1).all()
    assert "non_finite" not in illegal.flags(i)


@pytest.mark.parametrize("kind", KINDS)
def test_only_rows_that_are_not_finite_are_flagged_so(kind: str, illegal: Any) -> None:
    assert ("non_finite" in illegal.flags(2 * KINDS.index(kind))) == (kind in ("nan", "one_nan", "infinite"))


def test_a_goal_on_an_illegal_row_does_not_count(qualcheck: Any, bench: Any, episode: Any, tmp_path: Path) -> None:
    cheat = episode((6, 6), rewards=np.zeros(2))
    cheat.rows[1, 13:15] = cheat.rows[1, 1:3]
    honest_jump = episode((6, 6), rewards=np.zeros(2))
    honest_jump.rows[1, 13:15] = honest_jump.rows[1, 1:3]
    cheat.rows[1, 4:6] = cheat.rows[1, 7:9]  # box and key on one cell
    run = qualcheck.score(tmp_path / "run", bench.npy(tmp_path / "a.npy", bench.arrays([cheat, honest_jump])))
    assert list(run.r["gc_imagined"]) == [0, 1]
    assert list(run.r["gc_replayed"]) == [0, 0]
    assert list(run.r["consistency"]) == [0, 1]


def test_a_goal_reached_only_in_the_replay_is_hidden(qualcheck: Any, bench: Any, episode: Any, tmp_path: Path) -> None:
    frozen = episode((2, 2, 2, 2, 1, 1, 1, 1))
    frozen.rows[-1] = frozen.rows[-2]
    run = qualcheck.score(tmp_path / "run", bench.npy(tmp_path / "a.npy", bench.arrays([frozen])))
    assert (run.r["gc_imagined"][0], run.r["gc_replayed"][0]) == (0, 1)
    assert list(run.steps(0, "tc")) == [1] * 7 + [0]


EFFECTS = {
    "left": ((0,), {}),
    "right": ((1,), {}),
    "up": ((2,), {}),
    "down": ((6,), {13: 5}),
    "into the wall": ((0, 6), {}),
    "pickup of nothing": ((3,), {}),
    "drop of nothing": ((4,), {}),
    "toggle afar": ((5,), {}),
    "pickup": ((3,), {13: 4, 14: 2}),
    "pickup with full hands": ((3, 1, 3), {13: 4, 14: 2, 4: 4, 5: 2, 1: 4, 2: 3}),
    "drop on an object": ((3, 1, 4), {13: 4, 14: 2, 1: 4, 2: 3}),
    "open and close": ((5, 5), {13: 3, 14: 6}),
    "locked without key": ((5,), {13: 3, 14: 6, 12: 2}),
    "locked with the wrong key": ((3, 5), {13: 3, 14: 6, 12: 2, 7: 3, 8: 6}),
    "locked with the right key": ((3, 5, 5, 5), {13: 3, 14: 6, 12: 2, 7: 3, 8: 6, 6: 0}),
    "locked with a box of its colour": ((3, 5), {13: 3, 14: 6, 12: 2, 4: 3, 5: 6, 3: 0}),
}


def test_every_rule_of_the_world_is_applied(
    qualcheck: Any, bench: Any, episode: Any, world: Any, tmp_path: Path
) -> None:
    episodes = []
    for actions, changes in EFFECTS.values():
        row0 = world.ROW0.copy()
        for column, value in changes.items():
            row0[column] = value
        episodes.append(episode(actions, row0))
    run = qualcheck.score(
        tmp_path / "run", bench.npy(tmp_path / "a.npy", bench.arrays(episodes)), options=["--start", "any"]
    )
    wrong = {name for i, name in enumerate(EFFECTS) if not (run.steps(i, "tc") == 1).all()}
    assert not wrong


def test_any_other_outcome_of_any_action_fails(
    qualcheck: Any, bench: Any, episode: Any, world: Any, tmp_path: Path
) -> None:
    rng = np.random.default_rng(7)
    episodes = []
    for _ in range(300):
        row0 = world.ROW0.copy()
        row0[13:15] = rng.choice([[3, 6], [4, 2], [5, 5], [2, 5], [1, 1], [6, 6], [3, 3]])
        row0[12] = rng.integers(0, 3)
        action, other = rng.choice(7, 2, replace=False)
        one = episode((int(action),), row0)
        two = world.step(row0, int(other))
        if not np.array_equal(two, one.rows[1]):
            one.rows[1] = two
            episodes.append(one)
    assert len(episodes) > 100
    run = qualcheck.score(
        tmp_path / "run", bench.npy(tmp_path / "a.npy", bench.arrays(episodes)), options=["--start", "any"]
    )
    assert len(run.t["tc"]) == len(episodes)
    assert (run.t["tc"] == 0).all()


def test_row_0_rules_are_judged_only_at_a_reset(
    qualcheck: Any, bench: Any, episode: Any, world: Any, tmp_path: Path
) -> None:
    on_object = world.ROW0.copy()
    on_object[13:15] = on_object[4:6]
    carrying = world.step(on_object, 3)
    too_near = world.ROW0.copy()
    too_near[13:15] = 4, 3
    opened = world.ROW0.copy()
    opened[12] = 0
    episodes = [episode((2, 2), row0) for row0 in (world.ROW0, on_object, carrying, too_near, opened)]
    path = bench.npy(tmp_path / "a.npy", bench.arrays(episodes))
    reset = qualcheck.score(tmp_path / "reset", path, options=["--start", "reset"])
    assert list(reset.r["dl_row0"]) == [1, 0, 0, 0, 0]
    assert (reset.t["dl"] == 1).all()
    anywhere = qualcheck.score(tmp_path / "any", path, options=["--start", "any"])
    assert np.isnan(anywhere.r["dl_row0"]).all()
    assert (anywhere.t["tc"] == 1).all()
    assert "reset" not in set(anywhere.r["start"])
