"""BabyAI as a whole: recorded data pass, labels of the reference agree, planted faults are found where they are."""

from __future__ import annotations

import dataclasses
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from qualcheck.envs.babyai import BabyAI, kernel, rules
from qualcheck.envs.babyai.layout import COLUMNS, DOWN, LEFT, RIGHT, UP
from qualcheck.envs.babyai.simulator import World
from qualcheck.types import Placement, Rollouts

BASE = [0, 2, 2, 1, 3, 5, 2, 5, 1, 2, 4, 7, 1, 4, 4, 0, 0]
NOWHERE = [Placement("", "")]


def make(episodes: list[tuple[Any, list[float]]], has_final: bool = True, **more: Any) -> Rollouts:
    """Rollouts from (rows, actions) of each."""
    n = len(episodes)
    return Rollouts(
        obs=np.concatenate([np.asarray(rows, np.float32) for rows, _ in episodes]),
        action=np.concatenate([np.asarray(actions) for _, actions in episodes]),
        offsets=np.cumsum([0, *(len(actions) for _, actions in episodes)]).astype(np.int64),
        has_final=np.full(n, has_final),
        source=np.zeros(n, np.int32),
        source_rollout=np.arange(n, dtype=np.int32),
        source_step=more.pop("source_step", np.zeros(n, np.int32)),
        instruction=more.pop("instruction", [None] * n),
        **more,
    )


def load(path: Path) -> tuple[dict[str, Any], Rollouts]:
    data: dict[str, Any] = np.load(path, allow_pickle=True).item()
    length = np.asarray(data["masks"]).reshape(len(data["masks"]), -1).sum(axis=1).astype(int)
    after = data.get("next_observations")
    episodes = []
    for i, rows in enumerate(length):
        obs = data["observations"][i, :rows]
        if after is not None:
            obs = np.concatenate([obs, after[i, rows - 1 : rows]])
        episodes.append((obs, data["actions"][i, : len(obs) - 1]))
    return data, make(episodes, instruction=[names[0] for names in data["instructions"]])


def verdicts(adapter: BabyAI, rollouts: Rollouts) -> Any:
    """1 where the end row is the simulated one, 0 where not, -1 where there was no replay."""
    replay = adapter.replay(rollouts)
    same = (replay.candidates[0] == rollouts.end_obs).all(axis=1)
    return np.where(replay.code != 0, -1, same)


def placed(adapter: BabyAI, rollouts: Rollouts) -> tuple[list[Placement], Any]:
    names = list(dict.fromkeys(rollouts.instruction))
    which = np.array([names.index(name) for name in rollouts.instruction])
    return [adapter.place(name) for name in names], which


def rule_ids(numbers: Any) -> list[str]:
    return ["" if number == 0 else "unknown" if number < 0 else rules.RULES[number - 1].id for number in numbers]


def legality(adapter: BabyAI, rollouts: Rollouts) -> list[str]:
    return rule_ids(adapter.legality(rollouts, NOWHERE, np.zeros(rollouts.n_rollouts, np.int64)).rule)


@pytest.mark.parametrize("level", ["real", "rephrase", "easy", "hard"])
def test_recorded_rollouts_are_correct_and_legal(level: str, shared_data: Path) -> None:
    adapter = BabyAI()
    _, rollouts = load(shared_data / "golden" / f"babyai_{level}.npy")
    assert (verdicts(adapter, rollouts) == 1).all()
    found = adapter.legality(rollouts, *placed(adapter, rollouts))
    assert not found.rule.any()
    assert not found.row0_rule.any()
    assert not any(hits.any() for hits in found.soft.values())
    replayed = adapter.open_loop(rollouts)
    assert not replayed.code.any()
    assert replayed.trajectory.ok.all()
    assert (replayed.trajectory.obs == rollouts.obs).all()


@pytest.mark.parametrize(
    "name", ["imagined/imag_babyai_rephrase", "imagined/imag_babyai_easy", "mutated/babyai_mutated"]
)
def test_verdicts_equal_the_labels_of_the_reference(name: str, shared_data: Path) -> None:
    adapter = BabyAI()
    data, rollouts = load(shared_data / f"{name}.npy")
    with np.load(shared_data / f"{name}_labels.npz") as labels:
        label = {key: labels[key] for key in ("correct", "legal_state", "steppable")}
    rollout, step = rollouts.rollout, rollouts.step
    assert (verdicts(adapter, rollouts) == label["correct"][rollout, step]).all()
    assert ((adapter.takeable(rollouts.start_obs) == 0) == label["steppable"][rollout, step]).all()
    row_rule = np.array([rule.startswith("row.") for rule in legality(adapter, rollouts)])
    shown = label["legal_state"][
        rollout[:-1], np.minimum(step[:-1] + 1, 38)
    ]  # the label of the end row, where it is one
    last = step[:-1] + 1 >= np.asarray(data["masks"]).reshape(len(data["masks"]), -1).sum(axis=1)[rollout[:-1]]
    assert (row_rule[:-1] == (shown == 0))[~last].all()


NAMED = {
    "agent_teleport": {"step.agent_teleported", "step.agent_wrong_way"},
    "wall_walk": {"row.agent_in_wall"},
    "object_teleport": {"step.object_moved"},
    "pickup_from_afar": {"step.pickup_from_afar"},
    "drop_on_object": {"row.overlap"},
    "door_toggle_afar": {"step.toggle_from_afar"},
    "unlock_without_key": {"step.unlocked_without_key"},
    "colour_change": {"context.ball_colour", "context.box_colour", "context.key_colour", "context.door_colour"},
    "carry_inconsistent": {"row.carried_slot"},
    "two_carried": {"row.two_carried"},
    "overlap": {"row.overlap"},
    "action_swap": {"step.agent_wrong_way", "step.agent_moved_without_move", "step.agent_stayed",
                    "step.picked_without_pickup"},
    "frozen_agent": {"step.agent_stayed"},
}  # fmt: skip


def test_every_planted_fault_is_found_at_its_step_under_a_name_that_fits(shared_data: Path) -> None:
    adapter = BabyAI()
    data, rollouts = load(shared_data / "mutated" / "babyai_mutated.npy")
    tc, rule = verdicts(adapter, rollouts), legality(adapter, rollouts)
    for i, (fault, step) in enumerate(zip(data["fault"], data["fault_step"], strict=True)):
        mine = slice(rollouts.offsets[i], rollouts.offsets[i + 1])
        if fault in ("none", "goal_tail_cut"):
            assert (tc[mine] == 1).all()
            assert set(rule[mine]) == {""}
            continue
        at = rollouts.offsets[i] + step
        assert tc[at] == 0
        assert rule[at] in NAMED[fault], fault
        assert (tc[mine.start : at] == 1).all()
        assert set(rule[mine.start : at]) <= {""}


@pytest.mark.parametrize("column", range(17))
def test_one_wrong_number_in_one_row_fails(column: int) -> None:
    adapter = BabyAI()
    right = [BASE, [*BASE[:14], 3, 0, 0], [*BASE[:14], 2, 0, 0]]
    for wrong in (0, 1, 2, 3, 5, 6, 7, 0.5, np.nan, -1, 128, 256 + right[1][column]):
        if wrong == right[1][column]:
            continue
        rows = np.array(right, np.float32)
        rows[1, column] = wrong
        rollouts = make([(right, [LEFT, LEFT]), (rows, [LEFT, LEFT]), (right, [LEFT, LEFT])])
        assert verdicts(adapter, rollouts)[[0, 1, 2, 4, 5]].tolist() == [1, 1, 0, 1, 1]
        found = legality(adapter, rollouts)
        assert [rule == "" for rule in found[:3]] == [True, True, False], COLUMNS[column]
        assert found[4:] == ["", ""]


def test_a_bad_row_is_charged_once() -> None:
    rows = [BASE, [*BASE[:14], 9, 0, 0], [*BASE[:14], 2, 0, 0], [*BASE[:14], 5, 0, 0]]
    adapter, rollouts = BabyAI(), make([(rows, [LEFT, LEFT, LEFT])])
    assert verdicts(adapter, rollouts).tolist() == [0, -1, 0]
    assert [adapter.spec.codes[code] for code in adapter.replay(rollouts).code] == ["", "illegal_start", ""]
    assert legality(adapter, rollouts) == ["row.agent_in_wall", "", "step.agent_teleported"]


def test_a_bad_action_is_a_code_and_stops_the_open_loop() -> None:
    rows = [BASE] * 4
    adapter, rollouts = BabyAI(), make([(rows, [3, 9, 3]), (rows, [3, 3, 3]), (rows, [3, np.nan, 3])])
    codes = [adapter.spec.codes[code] for code in adapter.replay(rollouts).code]
    assert codes == ["", "bad_action", "", "", "", "", "", "bad_action", ""]
    assert legality(adapter, rollouts) == ["", "unknown", "", "", "", "", "", "unknown", ""]
    replayed = adapter.open_loop(rollouts)
    assert [adapter.spec.codes[code] for code in replayed.code] == ["bad_action", "", "bad_action"]
    assert replayed.trajectory.ok.tolist() == [True, True, False, False, *[True] * 4, True, True, False, False]
    broken = make([([BASE, [*BASE[:14], 0, 0, 0]], [9])])
    assert legality(adapter, broken) == ["row.agent_in_wall"]


def test_an_open_loop_from_an_impossible_row_is_a_code() -> None:
    bad = [*BASE[:7], 2, 2, *BASE[9:]]
    replayed = BabyAI().open_loop(make([([bad, BASE], [3]), ([BASE, BASE], [3])]))
    assert [BabyAI.spec.codes[code] for code in replayed.code] == ["illegal_start", ""]
    assert replayed.trajectory.ok.tolist() == [False, False, True, True]


def test_open_loop_equals_the_simulator_run_step_by_step(crowded_rows) -> None:
    rng = np.random.default_rng(4)
    rows = crowded_rows(80, rng)
    episodes = [(np.tile(row, (length + 1, 1)), rng.integers(0, 7, length)) for row, length in zip(
        rows, rng.integers(0, 30, len(rows)), strict=True)]  # fmt: skip
    rollouts = make(episodes)
    replayed = BabyAI().open_loop(rollouts)
    world = World()
    assert 10 < (replayed.code == 0).sum() < 80
    for i, (obs, actions) in enumerate(episodes):
        mine = slice(replayed.trajectory.offsets[i], replayed.trajectory.offsets[i + 1])
        refused = world.restore(obs[0].tolist())
        assert (replayed.code[i] == 0) == (refused == 0)
        assert (replayed.trajectory.ok[mine] == (refused == 0)).all()
        if not refused:
            expected = [world.row()]
            for action in actions.tolist():
                world.act(action)
                expected.append(world.row())
            assert replayed.trajectory.obs[mine].tolist() == expected


def test_results_of_a_rollout_do_not_depend_on_its_neighbours(crowded_rows, broken_rows) -> None:
    rng = np.random.default_rng(9)
    rows = np.concatenate([crowded_rows(300, rng), broken_rows(100, rng)])[rng.permutation(400)]
    parts = np.split(rows, np.sort(rng.choice(np.arange(1, 400), 59, replace=False)))
    episodes = [(part, rng.integers(-1, 8, len(part) - 1)) for part in parts]
    adapter = BabyAI()
    together = make(episodes)
    replay, found, loop = adapter.replay(together), legality(adapter, together), adapter.open_loop(together)
    for i, episode in enumerate(episodes):
        alone = make([episode])
        mine = slice(together.offsets[i], together.offsets[i + 1])
        single = adapter.replay(alone)
        assert (single.code == replay.code[mine]).all()
        fine = single.code == 0
        assert (single.candidates[:, fine] == replay.candidates[:, mine][:, fine]).all()
        assert legality(adapter, alone) == found[mine]
        mine = slice(loop.trajectory.offsets[i], loop.trajectory.offsets[i + 1])
        again = adapter.open_loop(alone)
        assert again.code[0] == loop.code[i]
        assert (again.trajectory.ok == loop.trajectory.ok[mine]).all()
        assert (again.trajectory.obs == loop.trajectory.obs[mine])[again.trajectory.ok].all()


def test_without_a_last_row_the_last_transition_is_not_judged() -> None:
    rows = [BASE, [*BASE[:14], 3, 0, 0]]
    rollouts = make([(rows, [LEFT, LEFT]), (rows, [LEFT, LEFT])], has_final=False)
    assert legality(BabyAI(), rollouts) == ["", "unknown", "", "unknown"]
    assert BabyAI().open_loop(rollouts).trajectory.obs[:, 14].tolist() == [4, 3, 2, 4, 3, 2]


def test_a_chain_break_is_judged_by_the_next_observation() -> None:
    rows = [BASE, [*BASE[:14], 3, 0, 0], [*BASE[:14], 2, 0, 0]]
    other = np.array([[*BASE[:14], 5, 0, 0]], np.float32)
    rollouts = make([(rows, [LEFT, LEFT])], break_at=np.array([0]), break_obs=other)
    adapter = BabyAI()
    assert verdicts(adapter, rollouts).tolist() == [0, 1]
    found = adapter.legality(rollouts, NOWHERE, np.array([0]))
    assert rule_ids(found.rule) == ["step.agent_wrong_way", ""]
    assert found.soft["step.chain_break"].tolist() == [True, False]


def test_context_of_a_cut_is_row_zero_of_its_episode() -> None:
    zero = np.array([BASE, BASE], np.float32)
    zero[1, 0] = 4  # the ball had another colour at the reset of the second episode
    rows = [BASE, [*BASE[:14], 3, 0, 0]]
    cuts = make([(rows, [LEFT])] * 2, reset_obs=zero, is_reset=np.array([False, False]),
                source_step=np.array([5, 127], np.int32))  # fmt: skip
    found = BabyAI().legality(cuts, NOWHERE, np.zeros(2, np.int64))
    assert rule_ids(found.rule) == ["", "context.ball_colour"]
    assert rule_ids(found.row0_rule) == ["unknown", "unknown"]
    assert not found.soft["step.over_horizon"].any()


def test_context_rules_need_a_row_zero_that_can_be_taken_on() -> None:
    zero = np.array([BASE], np.float32)
    zero[0, 0] = np.nan
    rows = [BASE, [*BASE[:14], 3, 0, 0]]
    assert legality(BabyAI(), make([(rows, [LEFT])], reset_obs=zero)) == [""]


def test_steps_beyond_the_horizon_are_counted_only() -> None:
    rollouts = make([([BASE] * 131, [4] * 130)])
    found = BabyAI().legality(rollouts, NOWHERE, np.array([0]))
    assert not found.rule.any()
    assert np.flatnonzero(found.soft["step.over_horizon"]).tolist() == [128, 129]


def test_an_illegal_but_steppable_start_row_excuses_its_step_rules_only() -> None:
    start = [*BASE[:15], 7, 1]  # the slot claims a carried box
    rows = [BASE, start, [*BASE[:14], 1, 0, 0], [*BASE[:14], 6, 0, 0]]
    rollouts = make([(rows, [4, LEFT, UP])])
    assert verdicts(BabyAI(), rollouts).tolist() == [0, 0, 0]
    assert legality(BabyAI(), rollouts) == ["row.carried_slot", "", "step.agent_teleported"]


def test_empty_input_gives_empty_results() -> None:
    adapter = BabyAI()
    none = dataclasses.replace(make([(np.zeros((1, 17)), [])]), obs=np.zeros((0, 17), np.float32),
                               has_final=np.array([False]))  # fmt: skip
    assert adapter.replay(none).candidates.shape == (1, 0, 17)
    found = adapter.legality(none, NOWHERE, np.array([0]))
    assert (found.rule.tolist(), found.row0_rule.tolist()) == ([], [-1])
    assert adapter.open_loop(none).code.tolist() == [kernel.ILLEGAL_START]
    assert adapter.takeable(none.obs).shape == (0,)


def test_replay_and_referee_agree(crowded_rows, broken_rows) -> None:
    rng = np.random.default_rng(10)
    rows = np.concatenate([crowded_rows(500, rng), broken_rows(500, rng)])
    rollouts = make(
        [(np.stack([row, row]), [action]) for row, action in zip(rows, rng.integers(-1, 8, 1000), strict=True)]
    )
    adapter = BabyAI()
    replay = adapter.replay(rollouts)
    end, code = adapter.referee(rollouts.start_obs, rollouts.action)
    assert (code == replay.code).all()
    assert (end == replay.candidates[0])[code == 0].all()
    assert Counter(code.tolist()).keys() == {0, kernel.ILLEGAL_START, kernel.BAD_ACTION}
    assert replay.simulator_steps == (code == 0).sum()


def test_blocks_cover_every_column_once() -> None:
    columns = [column for block in BabyAI.spec.blocks for column in block.columns]
    assert sorted(columns) == list(range(17))
    assert [block.name for block in BabyAI.spec.blocks] == ["ball", "box", "key", "door", "agent", "carried"]


def test_directions_of_the_moves_are_absolute() -> None:
    rows = [BASE, [*BASE[:13], 3, 4, 0, 0], [*BASE[:13], 3, 5, 0, 0], [*BASE[:13], 4, 5, 0, 0], BASE]
    rollouts = make([(rows, [UP, RIGHT, DOWN, LEFT])])
    assert verdicts(BabyAI(), rollouts).tolist() == [1, 1, 1, 1]
