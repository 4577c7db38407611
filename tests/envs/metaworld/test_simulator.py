"""The referee and the tasks as environments."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from qualcheck.contract_subject import pieces
from qualcheck.envs.metaworld import MetaWorld, record, stock
from qualcheck.envs.metaworld.filter import run
from qualcheck.envs.metaworld.kernel import Kernel
from qualcheck.envs.metaworld.layout import CODES, block
from qualcheck.envs.metaworld.simulator import MetaWorldTask
from qualcheck.errors import UnknownName, UsageError


@pytest.mark.parametrize("task", ["window-open", "coffee-button", "faucet-open"])
def test_an_environment_replays_a_recording_and_its_success(task: str, golden: dict) -> None:
    data, placements, rollouts = golden["real"]
    won = data["success"].reshape(len(placements), -1).any(axis=1)
    i = next(i for i, placement in enumerate(placements) if placement.task == task and won[i])
    rows = rollouts.obs[rollouts.row_offsets[i] : rollouts.row_offsets[i + 1]]
    env = MetaWorldTask(task, "released")
    first, info = env.reset(seed=1, options={"row": rows[0]})
    np.testing.assert_array_equal(first, rows[0])
    assert not info["is_success"]
    for t in range(rollouts.length[i]):
        obs, gain, terminated, truncated, info = env.step(rollouts.action[rollouts.offsets[i] + t])
        last = t == rollouts.length[i] - 1
        assert (terminated, info["is_success"], gain) == (last, last, 10.0 if last else 0.0)
        assert not truncated
    np.testing.assert_allclose(obs[:4], rows[-1, :4], atol=3e-3)
    env.close()


def test_an_environment_starts_in_mid_rollout_with_its_hidden_numbers(golden: dict) -> None:
    _, placements, rollouts = golden["real"]
    i = next(i for i, placement in enumerate(placements) if placement.task == "reach")
    part, kernel = pieces(rollouts, [i]), Kernel("2.3", threads=1)
    hidden = run(part, np.array(["reach"]), kernel).hidden
    kernel.close()
    env = MetaWorldTask("reach")
    for given, error in ((hidden[20], 1e-5), (hidden[20, :36], 1e-5)):
        env.reset(seed=0, options={"row": part.start_obs[20], "hidden": given})
        assert np.abs(env.step(part.action[20])[0] - part.end_obs[20])[:3].max() < error
    with pytest.raises(UsageError, match="hidden numbers"):
        env.reset(options={"row": part.start_obs[20], "hidden": np.full(36, np.nan)})
    with pytest.raises(UsageError, match="no state"):
        env.reset(options={"row": np.zeros(91)})
    env.close()


def test_an_environment_is_a_gymnasium_one_and_ends_at_its_horizon() -> None:
    env = MetaWorldTask("push", horizon=3)
    check_env(env, skip_render_check=True)
    env.reset(seed=4)
    ends = [env.step(np.zeros(4, np.float32))[2:4] for _ in range(3)]
    assert ends == [(False, False), (False, False), (False, True)]
    env.close()


def test_what_is_no_task_code_or_action_is_refused() -> None:
    with pytest.raises(UnknownName):
        MetaWorldTask("juggle")
    with pytest.raises(UnknownName):
        MetaWorldTask("reach", "best")
    with pytest.raises(UsageError):
        MetaWorldTask("reach", instruction_code=np.zeros(5))
    env = MetaWorldTask("reach", instruction_code=np.ones(768))
    with pytest.raises(RuntimeError):
        env.step(np.zeros(4))
    assert env.reset(seed=0)[0].shape == (91 + 768,)
    with pytest.raises(ValueError, match="finite"):
        env.step(np.array([0, np.nan, 0, 0]))
    env.close()


def test_the_referee_takes_the_same_step_as_the_filter(golden: dict) -> None:
    _, placements, rollouts = golden["hard"]
    adapter = MetaWorld()
    for i in (0, 7, 13, 19):
        part = pieces(rollouts, [i])
        task = placements[i].task
        found = run(part, np.array([task]), adapter._simulator())
        at = np.arange(0, part.n_transitions, 9)
        end, code = adapter.referee(part.start_obs[at], part.action[at], hidden=found.hidden[at])
        assert not code.any()
        np.testing.assert_allclose(end, found.candidates[0, at], atol=1e-9, err_msg=task)
        other = part.action[at].copy()
        other[:, 0] = np.where(other[:, 0] > 0, -1, 1)
        moved = np.abs(adapter.referee(part.start_obs[at], other, hidden=found.hidden[at])[0] - end)[:, 0]
        assert (moved > 5e-5).mean() > 0.8
    adapter.close()


def test_metaworlds_own_environments_step_as_the_newest_family_does() -> None:
    """Rows that metaworld's classes make, not the kernel's: they are handed out where both agree."""
    kernel = Kernel("3.x", threads=1)
    for task in ("push", "window-close", "door-open"):
        part = record.record(task, 1, np.random.default_rng(6), kernel=kernel, horizon=30)
        found = run(part, np.array([task]), kernel)
        for t in range(0, part.n_transitions, 6):
            end = stock.stock_end(
                task, part.start_obs[t].astype(np.float64), part.action[t], found.hidden[t, :36], found.hidden[t, 73:76]
            )
            np.testing.assert_allclose(end[:4], found.candidates[0, t, :4], atol=2e-4, err_msg=task)
    assert stock.stock_env("make-coffee") is None
    kernel.close()


def test_bad_rows_actions_and_hidden_numbers_have_codes(golden: dict) -> None:
    _, _, rollouts = golden["real"]
    part = pieces(rollouts, [0])
    adapter = MetaWorld()
    hidden = run(part, np.array(["reach"]), adapter._simulator()).hidden[:4].copy()
    obs, action = part.start_obs[:4].copy(), part.action[:4].copy()
    obs[0, 0], action[1, 3], hidden[2] = np.nan, np.inf, np.nan
    code: Any = adapter.referee(obs, action, hidden=hidden)[1]
    assert [CODES[each] for each in code] == ["non_finite", "bad_action", "hidden_unknown", ""]
    lone = part.start_obs[:2].copy()
    lone[1, block("target_object")] = 0
    assert [CODES[each] for each in adapter.referee(lone, action[:2])[1]] == ["no_task", "no_task"]
    adapter.close()
