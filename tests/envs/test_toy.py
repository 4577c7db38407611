"""The toy environment: its physics, the sequential filter over its hidden velocity, its goals, rules and floors."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from qualcheck.cut import cut
from qualcheck.envs.toy import FLOORS, POLICIES, RULES, SPEC, Toy, record
from qualcheck.envs.toy_simulator import GRIPPER, HORIZON, MASS, POSITION, STEP_SECONDS, TASKS, ToyEnv, advance
from qualcheck.errors import UnknownName
from qualcheck.types import Replay, Rollouts, Trajectory

EXACT = 2e-6  # float32 rows
TOY = Toy()


def error(replay: Replay, rollouts: Rollouts) -> np.ndarray:
    return np.abs(replay.candidates - rollouts.end_obs).max(axis=2)  # (K, M)


def single(
    rows: list[list[float]], actions: list[list[float]], text: str | None = None, reset: bool = True
) -> Rollouts:
    return Rollouts(
        obs=np.array(rows, np.float64),
        action=np.array(actions, np.float64).reshape(-1, 2),
        offsets=np.array([0, len(actions)]),
        has_final=np.array([len(rows) > len(actions)]),
        source=np.zeros(1, np.int32),
        source_rollout=np.zeros(1, np.int32),
        source_step=np.zeros(1, np.int32),
        instruction=[text],
        is_reset=np.array([True]),
    )


def played(actions: list[list[float]], velocity: float = 0.0, row: tuple[float, ...] = (0.5, 1.0, 1.0)) -> Rollouts:
    """The true rows of some actions, from a row and a hidden velocity."""
    rows, state, speed = [list(row)], np.array(row), np.array(velocity)
    for action in actions:
        state, speed = advance(state, speed, np.array(action))
        rows.append(state.tolist())
    return single(rows, actions)


def test_one_push_moves_the_puck_by_hand_computed_amounts() -> None:
    row, speed = advance(np.array([0.5, 1.0, 2.0]), np.array(0.4), np.array([1.0, -1.0]))
    assert row == pytest.approx([0.543, 0.75, 2.0])  # v = 0.95 * 0.4 + 0.1 / 2 = 0.43
    assert speed == pytest.approx(0.43)


def test_wall_mirrors_the_puck_with_loss() -> None:
    row, speed = advance(np.array([0.02, 1.0, 1.0]), np.array(-1.0), np.array([0.0, 0.0]))
    assert row[POSITION] == pytest.approx(0.8 * 0.075)
    assert speed == pytest.approx(0.76)


def test_closed_gripper_stops_the_puck() -> None:
    row, speed = advance(np.array([0.3, 0.2, 1.0]), np.array(1.5), np.array([1.0, -1.0]))
    assert row.tolist() == [0.3, 0.0, 1.0]
    assert speed == 0


def test_filter_is_exact_where_restoring_at_rest_is_far_off(capsys: pytest.CaptureFixture[str]) -> None:
    rollouts = record(60, np.random.default_rng(0))
    replay = TOY.replay(rollouts)
    worst = dict(zip(replay.seedings, error(replay, rollouts).max(axis=1).tolist(), strict=True))
    with capsys.disabled():
        print(f"\ntoy, largest replay error in m over {rollouts.n_transitions} transitions: {worst}")  # noqa: T201  a figure to read
    assert worst["carried"] < EXACT
    assert worst["previous"] > 1e-2  # a bounce hides the velocity from a difference of rows
    assert worst["rest"] > 0.1
    assert (replay.code == 0).all()


def test_teleport_is_charged_once() -> None:
    rollouts = played([[0.6, 0.0]] * 4 + [[-0.4, 0.0]] * 4)
    obs, speed = rollouts.obs.copy(), (rollouts.obs[4, POSITION] - rollouts.obs[3, POSITION]) / STEP_SECONDS
    after = played(rollouts.action[4:].tolist(), speed, (0.25, 1.0, 1.0))
    obs[4:] = after.obs
    faulty = replace(rollouts, obs=obs)
    best = error(TOY.replay(faulty), faulty).min(axis=0)
    assert best[3] > 0.1
    assert np.delete(best, 3).max() < EXACT


def test_lost_velocity_is_charged_once() -> None:
    rollouts = played([[1.0, 0.0]] * 4 + [[0.5, 0.0]] * 4)
    stopped = played([[0.5, 0.0]] * 4, 0.0, tuple(rollouts.obs[3]))  # row 4 repeats row 3; on from there at rest
    faulty = replace(rollouts, obs=np.concatenate([rollouts.obs[:4], stopped.obs]))
    replay = TOY.replay(faulty)
    by_seeding = dict(zip(replay.seedings, error(replay, faulty), strict=True))
    best = error(replay, faulty).min(axis=0)
    assert best[3] > 1e-2
    assert np.delete(best, 3).max() < EXACT
    assert by_seeding["carried"][4:].min() > 1e-3
    assert by_seeding["previous"][5:].max() < EXACT


def test_cut_is_unverifiable_at_its_first_transition_only() -> None:
    rollouts = played([[0.6, 0.0]] * 6 + [[-0.6, 0.0]] * 4)
    piece = cut(rollouts, np.array([0]), np.array([4]), np.array([10]))
    replay = TOY.replay(piece)
    assert [SPEC.codes[code] for code in replay.code] == ["hidden_velocity_unknown", *[""] * 5]
    assert error(replay, piece).min(axis=0)[1:].max() < EXACT
    assert SPEC.codes[TOY.open_loop(piece).code[0]] == "hidden_velocity_unknown"
    assert TOY.legality(piece, [TOY.place(None)], np.zeros(1, np.int64)).row0_rule.tolist() == [-1]


def test_cut_under_a_closed_gripper_is_verifiable_at_once() -> None:
    rollouts = played([[1.0, -1.0]] * 5 + [[1.0, 1.0]] * 4)
    piece = cut(rollouts, np.array([0]), np.array([5]), np.array([9]))
    assert piece.obs[0, GRIPPER] == 0
    assert (TOY.replay(piece).code == 0).all()
    assert error(TOY.replay(piece), piece).min(axis=0).max() < EXACT
    assert np.abs(TOY.open_loop(piece).trajectory.obs - piece.obs).max() < EXACT


def test_filter_bridges_a_row_that_is_not_finite() -> None:
    rollouts = played([[0.6, 0.0]] * 8)
    obs = rollouts.obs.copy()
    obs[4] = np.nan
    holed = replace(rollouts, obs=obs)
    replay = TOY.replay(holed)
    assert [SPEC.codes[code] for code in replay.code] == [*[""] * 4, "non_finite_row", *[""] * 3]
    assert error(replay, holed).min(axis=0)[5:].max() < EXACT


def test_velocity_after_a_bad_action_comes_from_the_rows() -> None:
    rollouts = played([[0.6, 0.0]] * 8)
    action = rollouts.action.copy()
    action[3] = np.nan
    replay = TOY.replay(replace(rollouts, action=action))
    assert [SPEC.codes[code] for code in replay.code] == [*[""] * 3, "non_finite_action", *[""] * 4]
    assert error(replay, rollouts)[0, 4:].max() < EXACT


def test_open_loop_stops_at_a_bad_action() -> None:
    rollouts = played([[0.6, 0.0]] * 5)
    action = rollouts.action.copy()
    action[3, 1] = np.inf
    outcome = TOY.open_loop(replace(rollouts, action=action))
    assert outcome.trajectory.ok.tolist() == [True] * 4 + [False] * 2
    assert SPEC.codes[outcome.code[0]] == "non_finite_action"


@pytest.mark.parametrize(("left", "right"), [("left", "right"), ("right", "left")])
def test_swapped_sentence_is_another_task(left: str, right: str) -> None:
    assert TOY.place(f"Touch the {left} side, then the {right} side!").task == f"{left}_then_{right}"


def goal_of(task: str, positions: list[float], gripper: float = 1.0, ok: list[bool] | None = None):
    rows = np.array([[position, gripper, 1.0] for position in positions])
    trajectory = Trajectory(rows, np.array([0, len(rows)]), np.array(ok if ok is not None else [True] * len(rows)))
    return TOY.goals(trajectory, [TOY.place(TASKS[task].texts[0])], np.zeros(1, np.int64))


def test_two_stages_are_latched_in_order() -> None:
    goal = goal_of("left_then_right", [0.5, 0.95, 0.5, 0.05, 0.5, 0.95, 0.5])
    assert goal.intended.tolist() == [False] * 5 + [True] * 2
    assert goal.released.tolist() == [False] * 3 + [True] * 4  # the released test forgets the order
    assert goal.share.tolist() == [0, 0, 0, 0.5, 0.5, 1, 1]


def test_stage_reached_on_an_unusable_row_does_not_count() -> None:
    goal = goal_of("left_then_right", [0.5, 0.05, 0.95], ok=[True, False, True])
    assert not goal.intended.any()
    assert goal.share.tolist() == [0, 0, 0]


def test_released_hold_forgets_the_middle() -> None:
    aside, inside = goal_of("hold_middle", [0.9], gripper=0), goal_of("hold_middle", [0.55], gripper=0)
    assert (aside.intended[0], aside.released[0], aside.share[0]) == (False, True, 0.5)
    assert (inside.intended[0], inside.released[0], inside.share[0]) == (True, True, 1.0)


HONEST = [[0.5, 1.0, 1.0], [0.51, 1.0, 1.0]]
BROKEN = {
    "row.finite": [HONEST[0], [np.nan, 1.0, 1.0]],
    "row.position_range": [HONEST[0], [1.1, 1.0, 1.0]],
    "row.gripper_range": [HONEST[0], [0.51, -0.1, 1.0]],
    "row.mass_range": [HONEST[0], [0.51, 1.0, 3.0]],
    "context.mass_constant": [HONEST[0], [0.51, 1.0, 1.01]],
    "step.speed_limit": [HONEST[0], [0.75, 1.0, 1.0]],
    "step.gripper_rate": [HONEST[0], [0.51, 0.7, 1.0]],
    "step.held_puck_moves": [[0.5, 0.2, 1.0], [0.51, 0.0, 1.0]],
    "row0.start_position": [[0.7, 1.0, 1.0], [0.71, 1.0, 1.0]],
    "row0.gripper_open": [[0.5, 0.9, 1.0], [0.51, 0.9, 1.0]],
}


@pytest.mark.parametrize("rule", [rule.id for rule in RULES if rule.hard])
def test_hard_rule_is_broken_by_its_example_alone(rule: str) -> None:
    placement, which = [TOY.place(None)], np.zeros(1, np.int64)
    found = TOY.legality(single(BROKEN[rule], [[0.0, 0.0]]), placement, which)
    number = found.row0_rule[0] if rule.startswith("row0.") else found.rule[0]
    assert RULES[number - 1].id == rule
    fine = TOY.legality(single(HONEST, [[0.0, 0.0]]), placement, which)
    assert (fine.rule[0], fine.row0_rule[0]) == (0, 0)


def test_clipped_action_is_counted_and_legal() -> None:
    rollouts = played([[1.0, 0.0], [1.5, 0.0]])
    found = TOY.legality(rollouts, [TOY.place(None)], np.zeros(1, np.int64))
    assert found.soft["step.action_range"].tolist() == [False, True]
    assert found.rule.tolist() == [0, 0]


def test_step_rules_do_not_apply_out_of_an_illegal_row() -> None:
    rollouts = single([[0.5, 1.0, 1.0], [7.0, 1.0, 1.0], [0.5, 1.0, 1.0]], [[0.0, 0.0]] * 2)
    found = TOY.legality(rollouts, [TOY.place(None)], np.zeros(1, np.int64))
    assert [RULES[found.rule[0] - 1].id, found.rule[1]] == ["row.position_range", 0]


def test_missing_end_row_is_not_judged() -> None:
    rollouts = single(HONEST, [[0.0, 0.0]] * 2, TASKS["reach_left"].texts[0])
    placement, which = [TOY.place(rollouts.instruction[0])], np.zeros(1, np.int64)
    assert TOY.legality(rollouts, placement, which).rule.tolist() == [0, -1]
    reward = TOY.reward(rollouts, placement, which)["intended"]
    assert np.isnan(reward).tolist() == [False, True]


def test_reward_of_two_stages_needs_the_whole_episode() -> None:
    rollouts = single([[0.05, 1.0, 1.0], [0.95, 1.0, 1.0]], [[1.0, 0.0]], TASKS["left_then_right"].texts[0])
    placement, which = [TOY.place(rollouts.instruction[0])], np.zeros(1, np.int64)
    assert TOY.reward(rollouts, placement, which)["intended"] == pytest.approx([0.99])
    piece = replace(rollouts, is_reset=np.array([False]))
    assert np.isnan(TOY.reward(piece, placement, which)["intended"]).all()


def test_recorded_rewards_and_endings_are_those_of_the_simulator() -> None:
    rollouts = record(10, np.random.default_rng(4))
    assert rollouts.terminal is not None
    assert rollouts.truncated is not None
    last = rollouts.offsets[1:] - 1
    assert (rollouts.terminal | rollouts.truncated).nonzero()[0].tolist() == last.tolist()
    assert (rollouts.length[rollouts.truncated[last]] == HORIZON).all()
    placements = [TOY.place(text) for text in rollouts.instruction]
    goal = TOY.goals(
        Trajectory(rollouts.obs, rollouts.row_offsets, np.ones(len(rollouts.obs), bool)), placements, np.arange(10)
    )
    assert goal.intended[rollouts.row_offsets[1:] - 1].tolist() == rollouts.terminal[last].tolist()


def test_environment_ends_at_its_horizon_without_success() -> None:
    env = TOY.make_env("right_then_left", "released")
    env.reset(seed=3)
    ends = [env.step(np.zeros(2, np.float32))[2:4] for _ in range(HORIZON)]
    assert ends == [(False, False)] * (HORIZON - 1) + [(False, True)]


def test_released_environment_rewards_either_order() -> None:
    rewards = {}
    for predicates in ("intended", "released"):
        env = ToyEnv("right_then_left", predicates)
        env.restore(np.array([0.05, 1.0, 1.0]))
        env.seen.append(np.array([0.5, 1.0, 1.0], np.float32))
        env.state = np.array([0.95, 1.0, 1.0])
        rewards[predicates] = env.step(np.zeros(2))[1]
    assert rewards == {"intended": 0.0, "released": 1.0}


def test_mass_and_start_differ_between_resets() -> None:
    rows = np.array([ToyEnv("reach_left").reset(seed=seed)[0] for seed in range(20)])
    assert np.ptp(rows[:, MASS]) > 0.5
    assert np.ptp(rows[:, POSITION]) > 0.1


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("policy", POLICIES)
def test_shipped_floor_is_the_measured_one(task: str, policy: str) -> None:
    shipped = TOY.floor(task, policy, HORIZON)
    assert shipped == TOY.measure_floor(task, policy, HORIZON, 200, np.random.default_rng(0))
    assert shipped == (FLOORS[task][POLICIES.index(policy)], 200)
    assert TOY.floor(task, policy, HORIZON + 1) is None


@pytest.mark.parametrize("call", [lambda: TOY.make_env("reach_lef"), lambda: TOY.make_env("reach_left", "meant")])
def test_unknown_task_or_predicates_are_refused(call) -> None:
    with pytest.raises(UnknownName, match="known:"):
        call()


def test_unknown_policy_is_refused() -> None:
    with pytest.raises(UnknownName, match="noop, random"):
        TOY.measure_floor("reach_left", "expert", 5, 2, np.random.default_rng(0))
