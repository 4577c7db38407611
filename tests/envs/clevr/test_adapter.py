"""CLEVR-Robot as a whole: the contract on recordings, families, open loops and the referee."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from qualcheck.contract import CONTRACT, check_adapter
from qualcheck.cut import cut
from qualcheck.envs.clevr import Clevr
from qualcheck.envs.clevr.dynamics import FAMILIES, SUBSTEPS
from qualcheck.envs.clevr.layout import CARRIED
from qualcheck.errors import UnknownName, UsageError
from qualcheck.types import Rollouts, Trajectory


def whole(rollouts: Rollouts, which: Any) -> Rollouts:
    which = np.asarray(which)
    return cut(rollouts, which, np.zeros(len(which), np.int64), rollouts.length[which])


@pytest.fixture(scope="module")
def few(golden: Any) -> Rollouts:
    """Ten recorded rollouts of four to twelve transitions, with instructions, goals and rewards."""
    rollouts = golden["real"][1]
    return whole(rollouts, np.flatnonzero((rollouts.length >= 4) & (rollouts.length <= 12))[:10])


def names(adapter: Clevr, codes: Any) -> list[str]:
    return [adapter.spec.codes[code] for code in codes]


@pytest.mark.parametrize("law", CONTRACT)
def test_adapter_keeps_the_law_on_recordings(law: str, few: Rollouts) -> None:
    assert check_adapter(Clevr(), few, rng=np.random.default_rng(5), laws=[law]) == []


def test_family_of_every_recording_is_recognised_by_either_adapter(golden: Any, kalm: Any) -> None:
    for rollouts, family in [(one, "mujoco-3") for _, one in golden.values()] + [(kalm, "mujoco-2")]:
        for start in FAMILIES:
            found, evidence = Clevr(start).recognise(rollouts)
            assert found == family
            assert f"{family}: 100.0% within 0.001 m" in evidence


def test_family_is_recognised_in_rows_rounded_to_two_decimals(golden: Any, kalm: Any) -> None:
    for rollouts, family in ((golden["real"][1], "mujoco-3"), (kalm, "mujoco-2")):
        rounded = replace(rollouts, obs=rollouts.obs.astype(np.float64).round(2))
        found, evidence = Clevr().recognise(rounded)
        assert found == family
        assert "within 0.01 m" in evidence


def test_no_family_is_named_without_evidence(golden: Any) -> None:
    rollouts, adapter = golden["easy"][1], Clevr()
    imagined = replace(rollouts, obs=rollouts.obs + np.random.default_rng(0).normal(0, 0.02, rollouts.obs.shape))
    family, evidence = adapter.recognise(imagined)
    assert family == ""
    assert "telling first transitions" in evidence
    n = rollouts.n_rollouts
    for nothing in (replace(rollouts, is_reset=np.zeros(n, bool)), replace(rollouts, action=np.full(n, 40))):
        family, evidence = adapter.recognise(nothing)
        assert family == ""
        assert "only 0 first transitions" in evidence
    two = whole(rollouts, np.arange(2))
    assert adapter.recognise(two) == ("", "only 2 first transitions out of resets can be replayed")


def test_family_is_chosen_by_name() -> None:
    adapter = Clevr()
    assert adapter.families() == FAMILIES == ("mujoco-3", "mujoco-2")
    assert (adapter.family, adapter.with_family("mujoco-2").family) == FAMILIES
    assert adapter.with_family("mujoco-3") is adapter
    assert len(adapter.with_family("mujoco-2").findings) == len(adapter.findings) + 1
    with pytest.raises(UnknownName, match="mujoco-3"):
        adapter.with_family("mujoco-4")
    with pytest.raises(UsageError, match="10"):
        adapter.with_layout(17)


def test_replay_of_the_latest_rollouts_is_kept_and_its_steps_are_counted(few: Rollouts) -> None:
    adapter = Clevr()
    replay = adapter.replay(few)
    assert replay.simulator_steps == adapter.steps_executed == SUBSTEPS * few.n_transitions
    assert adapter.replay(few) is replay
    assert adapter.steps_executed == replay.simulator_steps
    again = adapter.replay(replace(few))
    assert again is not replay
    assert np.array_equal(again.candidates, replay.candidates, equal_nan=True)
    before = adapter.steps_executed
    adapter.recognise(few)
    assert adapter.steps_executed > before + SUBSTEPS * few.n_rollouts, "both families"


def test_open_loop_follows_recordings_to_the_end(golden: Any) -> None:
    for level in ("real", "easy"):
        rollouts = golden[level][1]
        played = Clevr().open_loop(rollouts)
        error = np.abs(played.trajectory.obs - rollouts.obs).max(axis=1)
        assert not played.code.any()
        assert played.trajectory.ok.all()
        assert np.median(error) < 1e-7
        assert np.quantile(error, 0.99) < 1e-4
        assert error[played.trajectory.offsets[:-1]].max() == 0, "row 0 is the recorded one"


def test_open_loop_never_looks_at_later_rows_and_leaves_with_another_action(few: Rollouts) -> None:
    adapter = Clevr()
    first = np.zeros(len(few.obs), bool)
    first[few.row_offsets[:-1]] = True
    blind = replace(few, obs=np.where(first[:, None], few.obs, np.nan).astype(few.obs.dtype))
    base = adapter.open_loop(few).trajectory
    assert np.array_equal(adapter.open_loop(blind).trajectory.obs, base.obs)
    action = few.action.copy()
    action[few.step == 1] = (action[few.step == 1] + 8) % 40
    other = adapter.open_loop(replace(few, action=action)).trajectory
    step = np.arange(len(base.obs)) - np.repeat(base.offsets[:-1], np.diff(base.offsets))
    assert np.array_equal(other.obs[step <= 1], base.obs[step <= 1])
    assert (np.abs(other.obs - base.obs)[step == 2].max(axis=1) > 1e-3).all()


def test_open_loop_stops_at_a_bad_action_and_needs_the_hidden_state_of_a_cut(few: Rollouts) -> None:
    adapter = Clevr()
    action = few.action.astype(np.float64)
    action[few.offsets[0] + 2] = np.nan
    played = adapter.open_loop(replace(few, action=action))
    assert names(adapter, played.code) == ["bad_action", *[""] * 9]
    assert played.trajectory.ok[: few.length[0] + 1].tolist() == [True] * 3 + [False] * (int(few.length[0]) - 2)
    piece = cut(few, np.arange(10), np.full(10, 2), few.length)
    lost = adapter.open_loop(piece)
    assert set(names(adapter, lost.code)) == {"hidden_unknown"}
    assert lost.trajectory.ok.sum() == 10
    known = replace(piece, hidden=adapter.replay(few).hidden[few.offsets[:-1] + 2])
    played = adapter.open_loop(known)
    assert not played.code.any()
    assert np.quantile(np.abs(played.trajectory.obs - piece.obs).max(axis=1), 0.95) < 1e-4
    obs = few.obs.copy()
    obs[few.row_offsets[3], 0] = 0.7
    assert names(adapter, adapter.open_loop(replace(few, obs=obs)).code)[3] == "outside_walls"


def test_rows_carry_the_action_that_led_to_them(few: Rollouts) -> None:
    adapter = Clevr()
    action = few.action.astype(np.float64)
    action[1] = 0.5
    acted = replace(few, action=action)
    rows = adapter.annotate(Trajectory(few.obs, few.row_offsets, np.ones(len(few.obs), bool)), acted)
    assert rows.action[:4].tolist() == [-1, int(few.action[0]), -1, int(few.action[2])]
    assert (rows.action[rows.offsets[:-1]] == -1).all()
    assert (adapter.open_loop(acted).trajectory.action == rows.action).all()
    assert rows.from_reset.all()


def test_referee_pushes_out_of_the_hidden_state_it_is_given(few: Rollouts) -> None:
    adapter = Clevr()
    replay = adapter.replay(few)
    end, code = adapter.referee(few.start_obs, few.action, hidden=replay.hidden)
    assert not code.any()
    assert np.array_equal(end, replay.candidates[0])
    rest, _ = adapter.referee(few.start_obs, few.action)
    assert np.array_equal(rest[few.step == 0], replay.candidates[0][few.step == 0])
    assert np.abs(rest - end)[few.step > 0].max() > 1e-3
    unknown = replay.hidden.copy()
    unknown[0, CARRIED.start] = np.nan
    rows, actions = few.start_obs.copy(), few.action.astype(np.float64)
    rows[1], actions[2] = np.nan, -1
    end, code = adapter.referee(rows, actions, hidden=unknown)
    assert names(adapter, code[:4]) == ["hidden_unknown", "non_finite_row", "bad_action", ""]
    assert np.isnan(end[:3]).all()
    assert np.isfinite(end[3:]).all()


def test_hidden_numbers_of_another_width_are_unknown_and_not_an_error(few: Rollouts) -> None:
    adapter = Clevr()
    piece = cut(few, np.arange(10), np.full(10, 2), few.length)
    odd = replace(piece, hidden=np.zeros((10, 3)))
    assert np.array_equal(adapter.replay(odd).code, adapter.replay(piece).code)
    assert set(names(adapter, adapter.open_loop(odd).code)) == {"hidden_unknown"}


def test_closed_adapter_can_be_used_again(few: Rollouts) -> None:
    adapter = Clevr()
    base = adapter.replay(few).candidates
    adapter.close()
    assert adapter.steps_executed == 0
    assert np.array_equal(adapter.replay(few).candidates, base, equal_nan=True)


def test_environments_are_simulated_in_the_family_of_the_adapter(kalm: Rollouts) -> None:
    at = int(np.flatnonzero(kalm.step == 0)[0])
    ends = {}
    for family in FAMILIES:
        env = Clevr(family).make_env("tau_left:red,blue")
        env.reset(seed=0, options={"row": kalm.start_obs[at]})
        ends[family] = env.step(int(kalm.action[at]))[0][:10]
        env.close()
    assert np.abs(ends["mujoco-2"] - kalm.end_obs[at]).max() < 1e-6
    assert np.abs(ends["mujoco-3"] - kalm.end_obs[at]).max() > 1e-4
