"""The tasks as environments, and robosuite as the referee of single steps."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from qualcheck.contract_subject import pieces
from qualcheck.errors import UnknownName, UsageError
from qualcheck.types import Rollouts

pytest.importorskip("robosuite", reason="needs the extra libero")
pytest.importorskip("numba", reason="needs the extra libero")

from qualcheck.envs.libero import experts, goals, reset, simulator
from qualcheck.envs.libero.filter import run
from qualcheck.envs.libero.kernel import Simulator
from qualcheck.envs.libero.takeable import CODES, takeable

Golden = dict[str, tuple[dict[str, Any], Rollouts]]


@pytest.fixture(scope="module")
def kernel() -> Iterator[Simulator]:
    kernel = Simulator()
    yield kernel
    kernel.close()


def test_an_environment_shows_takeable_rows_and_the_same_ones_from_the_same_seed(kernel: Simulator) -> None:
    shown = []
    for _ in range(2):
        env = simulator.LiberoTask("place-cream_cheese", instruction_code=np.ones(768), simulator=kernel)
        row, info = env.reset(seed=3)
        env.action_space.seed(3)
        after, reward, terminated, truncated, told = env.step(env.action_space.sample())
        shown.append(np.concatenate([row, after, [reward]]))
        assert row.shape == (812,)
        assert not takeable(np.stack([row, after])[:, :44]).any()
        assert (terminated, truncated, told["is_success"]) == (False, False, False)
        assert "cream_cheese" in info["instruction"]
        env.close()
    assert np.array_equal(*shown)


def test_a_recorded_row_and_action_give_the_replayed_row(kernel: Simulator, golden: Golden) -> None:
    rollouts = pieces(golden["real"][1], [0])
    found = run(rollouts, kernel)
    env = simulator.LiberoTask("pick-alphabet_soup", simulator=kernel)
    for at in (0, 12):
        row, _ = env.reset(options={"row": rollouts.start_obs[at], "hidden": found.hidden[at]})
        np.testing.assert_array_equal(row, rollouts.start_obs[at].astype(np.float64))
        after, *_ = env.step(rollouts.action[at])
        np.testing.assert_allclose(after, found.candidates[0, at], atol=1e-12)


def test_a_recorded_success_ends_the_episode_with_its_reward(kernel: Simulator, golden: Golden) -> None:
    data, rollouts = golden["real"]
    which = next(i for i in range(rollouts.n_rollouts) if data["success"][i] and data["task_str"][i].startswith("pick"))
    part = pieces(rollouts, [which])
    found = run(part, kernel)
    env = simulator.LiberoTask(data["task_str"][which], "released", simulator=kernel)
    last = part.n_transitions - 1
    env.reset(options={"row": part.start_obs[last], "hidden": found.hidden[last]})
    _, reward, terminated, truncated, info = env.step(part.action[last])
    assert (terminated, truncated, info["is_success"]) == (True, False, True)
    assert part.reward is not None
    assert reward == pytest.approx(part.reward[last], abs=0.02)


@pytest.mark.parametrize("action", [np.zeros(6), np.full(7, np.nan)])
def test_actions_that_are_none_are_refused(action: Any, kernel: Simulator) -> None:
    env = simulator.LiberoTask("reach-salad_dressing", simulator=kernel)
    env.reset(seed=0)
    with pytest.raises(ValueError, match="7 finite numbers"):
        env.step(action)


def test_what_makes_no_environment_is_refused(kernel: Simulator) -> None:
    with pytest.raises(UnknownName):
        simulator.LiberoTask("pick-milk", simulator=kernel)
    with pytest.raises(UnknownName):
        simulator.LiberoTask("pick-cream_cheese", "meant", simulator=kernel)
    with pytest.raises(UsageError, match="768"):
        simulator.LiberoTask("pick-cream_cheese", instruction_code=np.zeros(5), simulator=kernel)
    env = simulator.LiberoTask("pick-cream_cheese", simulator=kernel)
    for options in ({"row": np.full(44, np.nan)}, {"row": np.zeros(43)}):
        with pytest.raises(UsageError, match="44 numbers"):
            env.reset(options=options)
    row, _ = env.reset(seed=0)
    with pytest.raises(UsageError, match="hidden numbers"):
        env.reset(options={"row": row, "hidden": np.full(43, np.nan)})


def test_robosuite_confirms_recorded_steps_and_refuses_what_cannot_be_simulated(
    kernel: Simulator, golden: Golden
) -> None:
    rollouts = pieces(golden["easy"][1], [0])
    found = run(rollouts, kernel)
    at = np.arange(0, rollouts.n_transitions, 5)
    obs, action, hidden = rollouts.start_obs[at].copy(), rollouts.action[at].copy(), found.hidden[at].copy()
    stepped = simulator.robosuite_steps(obs, action, hidden[:, :43])
    error = simulator.block_errors(stepped, found.candidates[0, at])
    assert (error <= simulator.AGREES).all()
    assert np.median(error[:, 0]) < 1e-7
    obs[0, 5], action[1, 0], hidden[2, 3] = np.nan, np.nan, np.nan
    end, code = simulator.referee(obs, action, hidden, kernel)
    assert [CODES[each] for each in code[:3]] == ["non_finite_row", "bad_action", "hidden_unknown"]
    assert not code[3:].any()
    assert np.array_equal(end[3:], found.candidates[0, at[3:]])


def test_a_kernel_that_is_wrong_is_not_confirmed(
    kernel: Simulator, golden: Golden, monkeypatch: pytest.MonkeyPatch
) -> None:
    rollouts = pieces(golden["easy"][1], [0])
    found = run(rollouts, kernel)
    play = kernel.play

    def wrong(start: Any, action: Any, *more: Any, **others: Any) -> Any:
        return play(start, 0.5 * action, *more, **others)

    monkeypatch.setattr(kernel, "play", wrong)
    end, code = simulator.referee(rollouts.start_obs[10:14], rollouts.action[10:14], found.hidden[10:14], kernel)
    assert not code.any()
    np.testing.assert_allclose(end, found.candidates[0, 10:14], atol=1e-3)  # robosuite's, not the wrong kernel's
    assert not np.array_equal(end, found.candidates[0, 10:14])


@pytest.mark.parametrize("start", reset.STARTS)
def test_drawn_starts_settle_into_legal_first_rows(start: str, kernel: Simulator) -> None:
    live, rng = experts.Live(kernel), np.random.default_rng(5)
    row = experts.settle(live, experts.draw(live, start, rng))
    task = next(name for name in goals.TASK_IDS if reset.start_of(name) == start)
    assert not any(broken[0] for broken in reset.broken_start(row[None], np.array([task])))
    assert takeable(row[None])[0] == 0
