"""The LIBERO adapter: what it says with and without its simulator, on recorded, false and unusable rows."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from qualcheck import registry
from qualcheck.contract import CONTRACT, check_adapter
from qualcheck.contract_subject import pieces
from qualcheck.cut import cut
from qualcheck.envs.libero import Libero, layout, situation
from qualcheck.envs.libero.columns import HAND, POSES
from qualcheck.envs.libero.goals import TASK_OF
from qualcheck.envs.libero.takeable import CODES, takeable, usable_actions
from qualcheck.errors import UnknownName, UsageError
from qualcheck.types import FloatArray, Replay, Rollouts

Golden = dict[str, tuple[dict[str, Any], Rollouts]]
LARGEST = {"joints": 0.03, "positions": 8e-3, "turns": 0.05}  # above the errors of starts in motion
TOLERANCE = {block.name: LARGEST[block.group or block.name] for block in layout.BLOCKS}
FAST = tuple(
    law
    for law in CONTRACT
    if law not in ("bad_rows_give_codes", "every_column_is_compared", "referee_agrees_with_replay")
)


@pytest.fixture(scope="module")
def adapter() -> Iterator[Libero]:
    pytest.importorskip("robosuite", reason="needs the extra libero")
    pytest.importorskip("numba", reason="needs the extra libero")
    adapter = Libero()
    yield adapter
    adapter.close()


@pytest.fixture(scope="module")
def replayed(adapter: Libero, golden: Golden) -> tuple[Rollouts, Replay, FloatArray]:
    """Every golden easy rollout, which are pick, carry and reach; its replay and the errors of the carried seeding."""
    rollouts = golden["easy"][1]
    replay = adapter.replay(rollouts)
    return rollouts, replay, np.abs(replay.candidates[0] - rollouts.end_obs)


@pytest.mark.parametrize(
    ("code", "columns", "value"),
    [
        ("", [], 0.0),
        ("non_finite_row", [8], np.nan),
        ("non_finite_row", [43], np.inf),
        ("no_rotation", [26, 27, 28, 29], 0.0),
        ("no_rotation", [28], 1.3),
        ("joint_range", [3], 0.5),
        ("joint_range", [14], 0.07),
        ("outside", [16], 5.0),
        ("outside", [39], 1e300),
        ("in_floor", [18], -0.1),
        ("", [18], 0.03),  # a can a few mm in the floor
        ("overlap", [23, 24, 25], (-0.119, -0.24, 0.0384)),
    ],
)
def test_rows_beyond_bounds_have_a_code(code: str, columns: list[int], value: Any, row: Callable[..., Any]) -> None:
    changed = row()
    changed[columns] = value
    assert CODES[takeable(changed[None])[0]] == code
    assert CODES[takeable(changed[None].astype(np.float64))[0]] == code


def test_the_bottle_that_released_starts_hold_in_the_floor_is_taken_on(row: Callable[..., Any]) -> None:
    sunk = row(salad_dressing=[0.1, -0.2, 0.0384, 0.0023, 0.7077, 0.7065, -0.0023])
    assert takeable(sunk[None])[0] == 0
    sunk[32] -= 0.02
    assert CODES[takeable(sunk[None])[0]] == "in_floor"


def test_actions_are_seven_finite_numbers() -> None:
    action = np.zeros((3, 7))
    action[1, 6], action[2, 0] = np.nan, 40.0
    assert usable_actions(action).tolist() == [True, False, True]
    assert not usable_actions(np.zeros((2, 6))).any()
    assert not usable_actions(np.zeros(2)).any()


def test_the_adapter_declares_one_layout_and_one_family() -> None:
    adapter = registry.load("libero")
    assert isinstance(adapter, Libero)
    assert adapter.with_layout(44) is adapter
    with pytest.raises(UsageError, match="44"):
        adapter.with_layout(45)
    assert (adapter.family, adapter.families()) == ("", ())
    with pytest.raises(UnknownName):
        adapter.with_family("other")
    assert adapter.spec.hidden[: layout.HIDDEN_SIZE] == layout.HIDDEN
    assert len(adapter.spec.hidden) == layout.FILTER_SIZE
    assert adapter.spec.unsettled == ("unsettled",)
    assert len(TASK_OF) == sum(map(len, adapter.tasks().values())) == 37


def test_without_the_extra_rows_are_judged_and_a_replay_says_what_to_install() -> None:
    script = (
        "import sys\n"
        "for name in ('numba', 'llvmlite', 'robosuite', 'libero'): sys.modules[name] = None\n"
        "import numpy as np\n"
        "from qualcheck import registry\n"
        "from qualcheck.errors import MissingExtra\n"
        "from qualcheck.types import Rollouts\n"
        "zero = np.zeros(1, np.int32)\n"
        "rollouts = Rollouts(np.zeros((2, 44)), np.zeros((1, 7)), np.array([0, 1]), np.ones(1, bool), zero, zero, zero,"
        " ['Employ the gripper to get close to the alphabet_soup.'])\n"
        "adapter = registry.load('libero')\n"
        "place = [adapter.place(rollouts.instruction[0])]\n"
        "print(place[0].task, adapter.takeable(rollouts.obs).tolist(), adapter.legality(rollouts, place, zero).rule)\n"
        "for call in (lambda: adapter.replay(rollouts), lambda: adapter.open_loop(rollouts),\n"
        "             lambda: adapter.referee(rollouts.obs, np.zeros((2, 7))),\n"
        "             lambda: adapter.make_env('reach-cream_cheese')):\n"
        "    try: call(); print('no error')\n"
        "    except MissingExtra as error: print(error.exit_code, \"pip install 'qualcheck[libero]'\" in str(error))\n"
    )
    found = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    lines = found.stdout.splitlines()
    assert lines[0].startswith("reach-alphabet_soup [2, 2] [")
    assert lines[1:] == ["2 True"] * 4


def test_recorded_rows_are_replayed_from_the_rows_alone(replayed: tuple[Rollouts, Replay, FloatArray]) -> None:
    rollouts, replay, error = replayed
    assert not replay.code.any()
    hand, joints = error[:, HAND : HAND + 3].max(axis=1), error[:, :7].max(axis=1)
    assert np.median(hand) < 2e-4
    assert np.quantile(hand, 0.95) < 6e-4
    assert np.quantile(hand, 0.99) < 2e-3
    assert np.quantile(joints, 0.95) < 3e-3
    free = replay.situation == situation.FREE
    assert free.mean() > 0.3
    assert error[free][:, HAND : HAND + 3].max() < 1e-3
    held = replay.situation == situation.GRASP
    assert held.sum() > 100
    assert error[held][:, [16, 17, 18, 23, 24, 25, 30, 31, 32]].max() < 4e-3
    assert (replay.situation == situation.UNSETTLED).mean() < 0.05
    assert rollouts.n_transitions == len(replay.code)


def test_other_seedings_are_tried_only_where_the_hidden_state_is_in_doubt(
    replayed: tuple[Rollouts, Replay, FloatArray],
) -> None:
    _, replay, error = replayed
    tried = np.isfinite(replay.candidates[1:]).all(axis=2)  # (2, M)
    unsettled = replay.situation == situation.UNSETTLED
    assert not tried[:, ~unsettled].any()
    assert tried[:, unsettled].any()
    missed = situation.block_errors(replay.candidates[0], replay.candidates[0] + error)
    assert (missed[tried[1]] > situation.TRUST.min(axis=0)).any(axis=1).all()


def test_no_other_seeding_is_tried_into_a_row_that_nothing_can_lead_to(adapter: Libero, golden: Golden) -> None:
    rollouts = pieces(golden["easy"][1], [0])
    wrong = rollouts.obs.copy()
    wrong[3, HAND] += 0.1  # rows 3 and 4 miss the replay, so that the hidden state before action 3 is in doubt
    wrong[4, HAND] += 0.1
    tried = adapter.replay(replace(rollouts, obs=wrong))
    nowhere = wrong.copy()
    nowhere[4, 18] = -0.3  # the can is in the floor
    spared = adapter.replay(replace(rollouts, obs=nowhere))
    assert np.isfinite(tried.candidates[:, 3]).all()
    assert np.isfinite(spared.candidates[0, 3]).all()
    assert np.isnan(spared.candidates[1:, 3]).all()
    assert tried.simulator_steps - spared.simulator_steps >= 2 * layout.SUBSTEPS


def test_a_replay_is_the_same_with_the_other_sign_of_a_quaternion(adapter: Libero, golden: Golden) -> None:
    rollouts = pieces(golden["easy"][1], [5])
    rng = np.random.default_rng(1)
    obs = rollouts.obs.copy()
    for first in POSES:
        obs[:, first + 3 : first + 7] *= np.where(rng.random(len(obs)) < 0.5, -1, 1)[:, None].astype(obs.dtype)
    turned = replace(rollouts, obs=obs)
    plain, other = adapter.replay(rollouts), adapter.replay(turned)
    error = np.abs(plain.candidates[0] - rollouts.end_obs)
    np.testing.assert_allclose(np.abs(other.candidates[0] - turned.end_obs), error, atol=1e-6)
    assert np.array_equal(plain.situation, other.situation)
    end, code = adapter.referee(turned.start_obs[:5], turned.action[:5], hidden=other.hidden[:5])  # type: ignore[index]
    assert not code.any()
    np.testing.assert_allclose(end, other.candidates[0, :5], atol=1e-6)


def test_a_false_transition_unsettles_what_follows_until_the_simulator_is_confirmed(
    adapter: Libero, golden: Golden
) -> None:
    rollouts = pieces(golden["easy"][1], [15])
    action = rollouts.action.copy()
    at = int(np.argmax(np.abs(action[4:20, :3]).max(axis=1))) + 4
    action[at, :3] *= -1
    replay = adapter.replay(replace(rollouts, action=action))
    error = np.abs(replay.candidates[0] - rollouts.end_obs)[:, HAND : HAND + 3].max(axis=1)
    assert error[at] > 5e-3
    assert error[:at].max() < 1.5e-3
    assert replay.situation is not None
    assert not (replay.situation[: at + 1] == situation.UNSETTLED).any()
    assert replay.situation[at + 1] == situation.UNSETTLED
    best = np.nanmin(np.abs(replay.candidates[:, at + 1] - rollouts.end_obs[at + 1])[:, HAND : HAND + 3].max(axis=1))
    assert best < error[at] / 2  # the fault is charged once
    assert not (replay.situation[at + 12 :] == situation.UNSETTLED).any()


def test_a_cut_carries_its_hidden_state_or_is_told_that_it_is_missing(adapter: Libero, golden: Golden) -> None:
    rollouts = pieces(golden["easy"][1], [3, 5])
    whole = adapter.replay(rollouts)
    at = rollouts.offsets[:-1] + 10
    piece = cut(rollouts, np.arange(2), np.full(2, 10), rollouts.length)
    known = adapter.replay(replace(piece, hidden=whole.hidden[at]))  # type: ignore[index]
    inside = rollouts.step >= 10
    assert np.array_equal(known.candidates, whole.candidates[:, inside], equal_nan=True)
    assert np.array_equal(known.hidden, whole.hidden[inside], equal_nan=True)  # type: ignore[index,arg-type]
    assert np.array_equal(known.situation, whole.situation[inside])  # type: ignore[index,arg-type]
    unknown, first = adapter.replay(piece), piece.offsets[:-1]
    assert [CODES[code] for code in unknown.code[first]] == ["hidden_unknown"] * 2
    assert not np.delete(unknown.code, first).any()
    assert (unknown.situation[first + 1] == situation.UNSETTLED).all()  # type: ignore[index]
    assert np.isnan(unknown.hidden[first]).all()  # type: ignore[index]
    assert [CODES[code] for code in adapter.open_loop(piece).code] == ["hidden_unknown"] * 2
    assert not adapter.open_loop(replace(piece, hidden=whole.hidden[at])).code.any()  # type: ignore[index]


def test_rows_and_actions_that_cannot_be_simulated_are_bridged(adapter: Libero, golden: Golden) -> None:
    rollouts = pieces(golden["easy"][1], [15, 15])
    obs, action = rollouts.obs.copy(), rollouts.action.copy()
    obs[5, 30] = np.nan
    action[rollouts.offsets[1] + 6, 2] = np.inf
    replay = adapter.replay(replace(rollouts, obs=obs, action=action))
    assert np.flatnonzero(replay.code).tolist() == [5, rollouts.offsets[1] + 6]
    assert [CODES[code] for code in replay.code[replay.code > 0]] == ["non_finite_row", "bad_action"]
    assert np.isfinite(replay.candidates[0, replay.code == 0]).all()
    error = np.abs(replay.candidates[0] - rollouts.end_obs)[:, HAND : HAND + 3].max(axis=1)
    assert error[6] < 2e-3  # the simulator went on through the missing row
    assert replay.situation is not None
    assert (replay.situation[[6, rollouts.offsets[1] + 7]] == situation.UNSETTLED).all()
    played = adapter.open_loop(replace(rollouts, action=action))
    assert [CODES[code] for code in played.code] == ["", "bad_action"]
    second = slice(played.trajectory.offsets[1], played.trajectory.offsets[2])
    assert played.trajectory.ok[second].tolist() == [step <= 6 for step in range(rollouts.length[1] + 1)]


def test_most_planted_faults_are_far_from_the_replay(
    adapter: Libero, mutated: tuple[dict[str, Any], Rollouts], replayed: tuple[Rollouts, Replay, FloatArray]
) -> None:
    data, rollouts = mutated
    wanted = [i for i, fault in enumerate(data["fault"]) if fault in ("wrong_action", "frozen_object")]
    part = pieces(rollouts, wanted)
    replay = adapter.replay(part)
    error = situation.block_errors(replay.candidates[0], part.end_obs)
    at = part.offsets[:-1] + data["first_bad_transition"][wanted]
    _, real, real_error = replayed
    found = []
    for place in at:
        same = real.situation == replay.situation[place]  # type: ignore[index]
        largest = real_error[same][:, layout.GROUPS["positions"]].max()
        found.append(error[place, 1] > 1.5 * largest)
    assert np.mean(found) >= 0.5


@pytest.mark.parametrize("law", FAST)
def test_the_contract_holds(law: str, adapter: Libero, golden: Golden) -> None:
    some = golden["real"][1]
    which = np.array([0, 1, 3, 6, 10])
    few = cut(some, which, np.zeros(5, np.int64), np.array([10, 8, 9, 12, 8]))
    few = replace(few, is_reset=np.ones(5, bool))
    assert not check_adapter(adapter, few, rng=np.random.default_rng(0), tolerance=TOLERANCE, laws=[law])


@pytest.mark.slow
@pytest.mark.parametrize("law", sorted(set(CONTRACT) - set(FAST)))
def test_the_slow_laws_of_the_contract_hold(law: str, adapter: Libero, golden: Golden) -> None:
    test_the_contract_holds(law, adapter, golden)


def test_goals_and_rewards_of_recordings_are_those_of_the_benchmark(golden: Golden) -> None:
    adapter = Libero()
    data, rollouts = golden["hard"]
    placements = [adapter.place(text) for text in rollouts.instruction]
    which = np.arange(rollouts.n_rollouts)
    gain = adapter.reward(rollouts, placements, which)["released"]
    assert rollouts.reward is not None
    np.testing.assert_allclose(gain, rollouts.reward, atol=1e-5)
    assert not (adapter.legality(rollouts, placements, which).rule > 0).any()
    assert [placement.task for placement in placements] == data["task_str"]
