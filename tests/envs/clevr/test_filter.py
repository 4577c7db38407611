"""The sequential filter: exact on recordings, honest about what it does not know, and blind to how rollouts are cut."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from qualcheck.cut import cut
from qualcheck.envs.clevr import filter as sequential
from qualcheck.envs.clevr.dynamics import Dynamics
from qualcheck.envs.clevr.filter import TRUST_M, run, trust_of
from qualcheck.envs.clevr.layout import BRIDGED, CARRIED, CODES, PREVIOUS, SETTLED, TRUST, takeable
from qualcheck.types import Rollouts

APART = [-0.4, 0.0, 0.0, 0.0, -0.4, 0.4, 0.0, 0.5, 0.4, 0.5]


@pytest.fixture(scope="module")
def simulator() -> Any:
    dynamics = Dynamics()
    yield dynamics
    dynamics.close()


def whole(rollouts: Rollouts, which: Any) -> Rollouts:
    which = np.asarray(which)
    return cut(rollouts, which, np.zeros(len(which), np.int64), rollouts.length[which])


@pytest.fixture(scope="module")
def few(golden: Any) -> Rollouts:
    """Twelve recorded rollouts of 8 transitions and more."""
    rollouts = golden["real"][1]
    return whole(rollouts, np.flatnonzero((rollouts.length >= 8) & (rollouts.length <= 30))[:12])


def errors(found: Any, rollouts: Rollouts) -> Any:
    return np.abs(found.candidates - rollouts.end_obs).max(axis=2)  # (3, M)


def spoilt(rollouts: Rollouts, rng: np.random.Generator) -> Rollouts:
    """Rows moved, missing, overlapping and repeated, and actions changed and missing, a few percent of each."""
    obs, action = rollouts.obs.copy(), rollouts.action.astype(np.float64)
    drawn = rng.random(len(obs))
    obs[drawn < 0.02] = np.nan
    moved = np.flatnonzero((drawn > 0.02) & (drawn < 0.06))
    obs[moved, 0] += rng.normal(0, 0.1, len(moved)).astype(np.float32)
    onto = (drawn > 0.06) & (drawn < 0.08)
    obs[onto, 2:4] = obs[onto, :2]
    repeated = np.flatnonzero((drawn > 0.08) & (drawn < 0.16) & (np.arange(len(obs)) > 0))
    obs[repeated] = obs[repeated - 1]
    drawn = rng.random(len(action))
    action[drawn < 0.02] = np.nan
    action[drawn > 0.97] = 17
    return replace(rollouts, obs=obs, action=action)


@pytest.mark.parametrize("level", ["real", "rephrase", "easy", "hard"])
def test_recordings_are_replayed_to_a_tenth_of_a_micrometre(level: str, golden: Any, simulator: Any) -> None:
    rollouts = golden[level][1]
    found = run(rollouts, simulator)
    error = errors(found, rollouts)
    assert not found.code.any()
    assert error[0][rollouts.step == 0].max() < 2e-7
    assert np.quantile(error[0], 0.99) < 1e-6
    assert error[0].max() < 0.01
    assert (found.situation == 0).mean() > 0.99
    assert np.isnan(found.candidates[1:, found.situation == 0]).all()


def test_other_actions_are_noticed(golden: Any, simulator: Any) -> None:
    rollouts = whole(golden["real"][1], np.arange(20))
    wrong = replace(rollouts, action=(rollouts.action + 8) % 40)
    error = np.fmin.reduce(errors(run(wrong, simulator), wrong), axis=0)
    assert (error > 0.03).mean() > 0.9


def test_recordings_of_the_older_family_are_exact_under_it(kalm: Any) -> None:
    dynamics = Dynamics(family="mujoco-2")
    found = run(kalm, dynamics)
    dynamics.close()
    assert not found.code.any()
    assert errors(found, kalm)[0].max() < 1e-6
    assert not found.situation.any()


def test_planted_faults_show_at_their_step_and_not_before(mutated: Any, simulator: Any) -> None:
    data, rollouts = mutated
    found = run(rollouts, simulator)
    best = np.fmin.reduce(errors(found, rollouts), axis=0)
    at = np.asarray(data["first_bad_transition"])
    kept = ~np.isin(data["fault"], ["none", "truncated_goal"])
    assert best[(rollouts.offsets[:-1] + at)[kept]].min() > 0.1
    before = (rollouts.step < at[rollouts.rollout]) | ~kept[rollouts.rollout]
    assert best[before].max() < 0.01


def test_cut_with_its_hidden_state_is_replayed_as_in_its_source(golden: Any, simulator: Any) -> None:
    rng = np.random.default_rng(1)
    recorded = golden["hard"][1]
    source = spoilt(whole(recorded, np.flatnonzero(recorded.length > 20)[:20]), rng)
    found = run(source, simulator)
    assert {CODES[code] for code in found.code} >= {"non_finite_row", "overlap", "bad_action", "hidden_unknown"}
    piece = rng.permutation(np.repeat(np.arange(source.n_rollouts), 2))
    start = rng.integers(0, source.length[piece])
    stop = start + 1 + rng.integers(0, source.length[piece] - start)
    begins = source.offsets[piece] + start
    pieces = replace(cut(source, piece, start, stop), hidden=found.hidden[begins])
    at = np.arange(pieces.n_transitions) + np.repeat(begins - pieces.offsets[:-1], pieces.length)
    again = run(pieces, simulator)
    assert np.array_equal(again.candidates, found.candidates[:, at], equal_nan=True)
    assert np.array_equal(again.code, found.code[at])
    assert np.array_equal(again.situation, found.situation[at])
    assert np.array_equal(again.hidden, found.hidden[at], equal_nan=True)
    assert np.isfinite(again.candidates[1]).any()
    assert np.isfinite(again.hidden[pieces.offsets[:-1], BRIDGED.start]).any(), "pieces that start on a bridged row"
    forgetful = run(replace(pieces, hidden=None), simulator)
    assert not np.array_equal(forgetful.candidates, again.candidates, equal_nan=True)


def test_rollouts_do_not_influence_each_other(few: Rollouts, simulator: Any) -> None:
    source = spoilt(few, np.random.default_rng(3))
    found = run(source, simulator)
    order = np.random.default_rng(4).permutation(source.n_rollouts)[:7]
    turned = run(whole(source, order), simulator)
    at = np.concatenate([np.arange(source.offsets[i], source.offsets[i + 1]) for i in order])
    assert np.array_equal(turned.candidates, found.candidates[:, at], equal_nan=True)
    assert np.array_equal(turned.hidden, found.hidden[at], equal_nan=True)


def test_cut_without_a_hidden_state_is_judged_from_its_second_transition_on(few: Rollouts, simulator: Any) -> None:
    n = few.n_rollouts
    later = cut(few, np.arange(n), np.full(n, 3), few.length)
    found = run(later, simulator)
    first, second = later.step == 0, later.step == 1
    assert {CODES[code] for code in found.code[first]} == {"hidden_unknown"}
    assert np.isnan(found.candidates[:, first]).all()
    assert np.isnan(found.hidden[first][:, CARRIED]).all()
    assert not found.code[~first].any()
    assert found.situation[first | second].all()
    error = np.fmin.reduce(errors(found, later), axis=0)
    assert np.median(error[second]) < 0.01
    assert np.median(error[later.step >= 4]) < 1e-4 < np.median(error[second]), "contacts wash what is not known out"


def test_bad_row_is_bridged_and_costs_two_transitions(few: Rollouts, simulator: Any) -> None:
    clean = run(few, simulator)
    obs = few.obs.copy()
    row = few.row_offsets[:-1] + 4
    obs[row] = np.nan
    bridged = replace(few, obs=obs)
    found = run(bridged, simulator)
    assert {CODES[code] for code in found.code[few.step == 4]} == {"non_finite_row"}
    assert np.isfinite(found.hidden[few.step == 4]).all(axis=0)[CARRIED].all()
    assert np.isfinite(found.hidden[few.step == 4][:, BRIDGED]).all()
    error = errors(found, bridged)[0]
    assert np.isnan(error[few.step == 3]).all(), "its end row says nothing"
    assert np.median(error[few.step == 5]) < 1e-6
    assert not found.code[(few.step != 4)].any()
    assert np.array_equal(found.candidates[0, few.step <= 3], clean.candidates[0, few.step <= 3])
    assert (found.situation[few.step == 5] == 0).mean() > 0.9, "the carried state has shown that it is right"


def test_bad_action_makes_the_next_hidden_state_unknown(few: Rollouts, simulator: Any) -> None:
    action = few.action.astype(np.float64)
    action[few.step == 2], action[few.offsets[0] + 2] = np.nan, 40
    found = run(replace(few, action=action), simulator)
    assert {CODES[code] for code in found.code[few.step == 2]} == {"bad_action"}
    assert {CODES[code] for code in found.code[few.step == 3]} == {"hidden_unknown"}
    assert not found.code[(few.step < 2) | (few.step > 3)].any()
    assert found.situation[few.step == 4].all()


def test_simulator_that_gives_up_has_its_code_and_forgets(few: Rollouts, simulator: Any) -> None:
    n = few.n_rollouts
    start = few.offsets[:-1] + 3
    hidden = run(few, simulator).hidden[start]
    hidden[0, 1] = 1e9  # m/s
    later = replace(cut(few, np.arange(n), np.full(n, 3), few.length), hidden=hidden)
    found = run(later, simulator)
    assert [CODES[code] for code in found.code[:3]] == ["simulator_warning", "hidden_unknown", ""]
    assert np.isnan(found.candidates[:, :2]).all()
    assert not found.code[later.offsets[1] :].any()


def test_other_seedings_are_tried_only_after_a_fault(few: Rollouts, simulator: Any) -> None:
    obs = few.obs.copy()
    row = few.row_offsets[:-1] + 4
    obs[row] = obs[row - 1]  # nothing moves, though it was pushed
    frozen = replace(few, obs=obs)
    found = run(frozen, simulator)
    assert (found.situation[few.step <= 3] == 0).all()
    pushed = errors(found, frozen)[0][few.step == 3] > TRUST_M
    assert found.situation[few.step == 4][pushed].all()
    assert pushed.sum() > 8
    tried = np.isfinite(found.candidates[1:, :, 0])
    assert not tried[:, few.step <= 3].any()
    assert tried[:, few.step == 4].any(axis=1).all()
    told = found.hidden[few.step == 4][:, PREVIOUS]
    assert np.isfinite(told[pushed]).all()
    assert np.isnan(told[~pushed]).all()


def test_without_an_end_row_the_first_candidate_stands_alone_where_settled(few: Rollouts, simulator: Any) -> None:
    ends = few.row_offsets[1:] - 1
    open_end = replace(few, obs=np.delete(few.obs, ends, axis=0), has_final=np.zeros(few.n_rollouts, bool))
    found, full = run(open_end, simulator), run(few, simulator)
    assert np.array_equal(found.candidates[0], full.candidates[0])
    assert not found.code.any()


def test_hand_typed_rollout_of_one_push_moves_one_ball(maker: Any, simulator: Any) -> None:
    after = list(APART)
    after[2] = 0.2485
    found = run(maker([([APART, after], [8])]), simulator)
    np.testing.assert_allclose(found.candidates[0, 0], after, atol=2e-4)
    assert found.hidden[0, SETTLED] == 1
    assert found.hidden[0, CARRIED].reshape(5, 7).tolist() == [[-0.195, 0, 0, 0, 0, 0, 0]] * 5


@pytest.mark.parametrize(
    ("decimals", "trust"), [(1, 0.5), (2, 0.05), (3, 5e-3), (4, 5e-4), (5, 1e-4), (6, 1e-4), (9, 1e-4)]
)
def test_trust_follows_the_rounding_of_the_rollout_alone(decimals: int, trust: float, few: Rollouts) -> None:
    for kind in (np.float32, np.float64):
        obs = few.obs.astype(kind)
        mine = np.arange(few.row_offsets[3], few.row_offsets[4])
        obs[mine] = np.round(few.obs[mine].astype(np.float64), decimals)
        obs[mine[2], 5] = np.nan  # such rows have no say
        found = trust_of(replace(few, obs=obs), np.where(np.isnan(obs).any(axis=1), 1, 0))
        assert found[3] == pytest.approx(trust)
        assert (np.delete(found, 3) == TRUST_M).all()
        obs[mine[1], 0] = 0.12345678
        assert trust_of(replace(few, obs=obs), takeable(obs))[3] == TRUST_M


def test_rows_rounded_to_two_decimals_stay_settled_by_their_own_trust(few: Rollouts, simulator: Any) -> None:
    rounded = replace(few, obs=few.obs.astype(np.float64).round(2))
    found = run(rounded, simulator)
    assert (found.hidden[:, TRUST] == 0.05).all()
    assert (found.situation == 0).mean() > 0.9


def test_file_that_shows_the_next_row_twice_is_not_vouched_for(few: Rollouts, simulator: Any) -> None:
    shown = few.end_obs[few.step == 2].copy()
    obs = few.obs.copy()
    obs[few.row_offsets[:-1] + 3, 0] += 0.03  # the row itself; its second reading is the true one
    broken = replace(few, obs=obs, break_at=np.flatnonzero(few.step == 2), break_obs=shown)
    found = run(broken, simulator)
    assert errors(found, broken)[0][few.step == 2].max() < 1e-4
    assert found.situation[few.step == 3].all()


def test_rollouts_without_transitions_are_fine(few: Rollouts, simulator: Any) -> None:
    none = np.zeros(few.n_rollouts, np.int64)
    found = run(cut(few, np.arange(few.n_rollouts), none, none), simulator)
    assert found.candidates.shape == (len(sequential.SEEDINGS), 0, 10)
