"""Gymnasium's MuJoCo environments replay real recordings, and what a row hides is no verdict."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from qualcheck.contract import check_adapter
from qualcheck.envs.gymnasium_mujoco.record import record
from qualcheck.io import open_source
from qualcheck.registry import FAMILY, load

REAL = Path(__file__).resolve().parents[4] / "shared" / "data" / "real"
LAWS = (
    "spec_is_consistent",
    "results_have_declared_shapes",
    "replay_is_deterministic",
    "real_rollouts_replay",
    "replay_uses_the_action",
    "referee_agrees_with_replay",
    "bad_actions_give_codes",
    "empty_rollouts_are_fine",
    "inputs_stay_untouched",
    "open_loop_follows_real_rollouts",
    "real_rollouts_are_legal",
    "rules_are_evaluated",
    "closing_twice_is_fine",
)


@pytest.mark.parametrize("env", sorted(FAMILY))
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_member_keeps_the_laws_of_the_contract_that_need_no_goal(env: str) -> None:
    adapter = load(env)
    rollouts = record(adapter, 5, np.random.default_rng(0), 8, scale=0.2)
    assert check_adapter(adapter, rollouts, rng=np.random.default_rng(1), laws=LAWS) == []
    adapter.close()


@pytest.mark.parametrize("env", ["gymnasium/Ant-v5", "gymnasium/Hopper-v4", "gymnasium/Swimmer-v5"])
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_rows_that_include_the_absolute_position_replay_too(env: str) -> None:
    usual = load(env)
    adapter = usual.with_layout(usual.layouts()[1].obs_size)
    rollouts = record(adapter, 4, np.random.default_rng(0), 8)
    assert check_adapter(adapter, rollouts, rng=np.random.default_rng(1), laws=("real_rollouts_replay",)) == []
    assert adapter.spec.columns[0] == "x_m"


def test_a_family_has_no_goal_and_says_so() -> None:
    adapter = load("gymnasium/Hopper-v5")
    assert adapter.place("run").code == "no_goal"
    assert adapter.tasks() == {}


@pytest.mark.skipif(not REAL.is_dir(), reason="needs the shared data folder")
def test_real_walker_is_exact_where_velocities_are_not_clipped_and_no_verdict_where_they_are() -> None:
    adapter = load("gymnasium/Walker2d-v4")
    clipped_in_all = 0
    for rollouts in open_source(REAL / "cs285_expert_Walker2d-v4.pkl", adapter.layouts()).batches():
        replay = adapter.replay(rollouts)
        clipped = (np.abs(rollouts.start_obs[:, 8:]) >= 10).any(axis=1)
        assert np.array_equal(replay.code == adapter.spec.codes.index("clipped_velocity"), clipped)
        assert set(np.unique(replay.code[~clipped])) == {0}
        shown = ~clipped & rollouts.has_end
        assert np.abs(replay.candidates[0] - rollouts.end_obs)[shown].max() < 1e-9
        clipped_in_all += int(clipped.sum())
    assert clipped_in_all > 0
    adapter.close()


@pytest.mark.skipif(not REAL.is_dir(), reason="needs the shared data folder")
def test_real_walker_taken_for_another_member_is_wrong() -> None:
    adapter = load("gymnasium/HalfCheetah-v4")
    for rollouts in open_source(REAL / "cs285_expert_Walker2d-v4.pkl", adapter.layouts()).batches():
        replay = adapter.replay(rollouts)
        good = (replay.code == 0) & rollouts.has_end
        assert np.median(np.abs(replay.candidates[0] - rollouts.end_obs)[good].max(axis=1)) > 0.1
    adapter.close()
