"""Every task of every environment as a gymnasium environment."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gymnasium.error import ResetNeeded
from gymnasium.utils.env_checker import check_env

import qualcheck
from qualcheck.errors import MissingExtra, UnknownName, UsageError
from qualcheck.registry import BUILT_IN, load

ENVS = sorted(set(BUILT_IN) - {"toy"})
FAST = [name for name in ENVS if name not in ("libero", "metaworld")]  # the others have one task here, for their time


def tasks() -> list[tuple[str, str]]:
    found = []
    for env in ENVS:
        levels = load(env).tasks()
        found += [
            (env, task) for names in levels.values() for task in names if env in FAST or task == levels["easy"][-1]
        ]
    return list(dict.fromkeys(found))


def made(env: str, task: str, **options: Any) -> Any:
    try:
        return qualcheck.make_env(env, task, **options)
    except MissingExtra as error:
        pytest.skip(str(error))


@pytest.mark.filterwarnings("ignore:.*observation space.*infinity", "ignore:.*Box observation space")
@pytest.mark.parametrize(("env", "task"), tasks())
def test_gymnasium_accepts_every_task_and_resets_are_seeded_and_say_what_to_do(env: str, task: str) -> None:
    single = made(env, task)
    check_env(single, skip_render_check=True)
    (first, told), (again, same), (other, _) = (single.reset(seed=seed) for seed in (3, 3, 4))
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)
    assert told["success"] is False
    assert told["instruction"] == same["instruction"]
    assert load(env).place(told["instruction"], told.get("goal")).task == task
    single.close()


@pytest.mark.parametrize(("env", "task"), [("babyai", "put_pile"), ("halfcheetah", "move-forward"), ("clevr", "order")])
def test_an_episode_is_cut_at_its_horizon_and_that_is_no_end(env: str, task: str) -> None:
    for horizon in (None, 7):
        single = made(env, task, horizon=horizon)
        single.reset(seed=1)
        action = 4 if env == "babyai" else np.zeros(6) if env == "halfcheetah" else 0
        ends = []
        while not ends or not any(ends[-1]):
            ends.append(single.step(action)[2:4])
        assert len(ends) == (horizon or load(env).spec.horizon)
        assert ends[-1] == (False, True)
        single.close()


def test_a_goal_ends_an_episode_and_on_the_last_step_it_is_no_time_out() -> None:
    single = made("halfcheetah", "jump-in-place", horizon=15)
    single.reset(seed=0)
    ends = [single.step(np.zeros(6))[2:] for _ in range(15)]
    assert [end[:2] for end in ends] == [(False, False)] * 14 + [(True, False)]
    assert [end[2]["success"] for end in ends] == [False] * 14 + [True]


def test_the_released_test_of_a_task_can_be_asked_for() -> None:
    row = [0, 1, 1, 1, 2, 2, 2, 3, 3, 3, 4, 7, 0, 1, 1, 0, 0]  # the door is open and the agent on the ball
    for success, won in (("intended", True), ("released", False)):
        single = made("babyai", "open_pick", success=success)
        single.reset(options={"row": row})
        _, _, terminated, _, info = single.step(3)
        assert (terminated, info["success"]) == (won, won)


def test_instruction_codes_follow_the_row() -> None:
    codes = {"Run forward.": np.arange(5.0), "Jump a step backward": np.ones(5)}
    single = made("halfcheetah", "move-forward", codes=codes)
    plain, _ = made("halfcheetah", "move-forward").reset(seed=2)
    row, told = single.reset(seed=2)
    assert told["instruction"] == "Run forward."
    assert single.observation_space.shape == row.shape == (23,)
    assert np.array_equal(row, [*plain, *range(5)])
    assert np.array_equal(single.step(np.zeros(6))[0][18:], range(5))
    assert single.observation_space.contains(row)
    with pytest.raises(UsageError, match="no instruction code for 'Jump"):
        made("halfcheetah", "jump-forward", codes=codes).reset(seed=0)
    with pytest.raises(UsageError, match="as many for each"):
        made("halfcheetah", "jump-forward", codes={"a": np.ones(2), "b": np.ones(3)})


def test_the_benchmarks_own_codes_are_appended(shared_data: Any) -> None:
    table = shared_data / "real/imaginebench_mujoco_encode.npy"
    for task in ("jump-forward", "rep-move-backward", "jump-in-place"):
        row, _ = made("halfcheetah", task, codes=table).reset(seed=0)
        assert row.shape == (786,)
        assert np.abs(row[18:]).max() <= 1


def test_babyai_names_the_benchmarks_objects_or_any() -> None:
    fixed = {made("babyai", "goto").reset(seed=seed)[1]["instruction"].split(" the ")[-1] for seed in range(12)}
    assert all("blue ball" in words for words in fixed)
    drawn = {made("babyai", "goto", params="any").reset(seed=seed)[1]["instruction"][-8:] for seed in range(12)}
    assert len(drawn) > 4
    words = made("babyai", "goto", level="rephrase").reset(seed=0)[1]["instruction"]
    assert words in {text.format(color="blue", type="ball") for text in _rephrased("goto")}


def _rephrased(task: str) -> tuple[str, ...]:
    from qualcheck.envs.babyai import text

    return text.sentences(task, True)


def test_what_does_not_exist_is_refused_in_words() -> None:
    with pytest.raises(UnknownName, match="no environment"):
        qualcheck.make_env("babyia", "goto")
    with pytest.raises(UnknownName, match="Did you mean 'goto'"):
        qualcheck.make_env("babyai", "gotto")
    with pytest.raises(UnknownName, match="success test"):
        qualcheck.make_env("babyai", "goto", success="meant")
    with pytest.raises(UnknownName, match="level of BabyAI"):
        qualcheck.make_env("babyai", "goto", level="hard")
    with pytest.raises(UsageError, match="horizon 0"):
        qualcheck.make_env("babyai", "goto", horizon=0)
    with pytest.raises(UsageError, match="family"):
        qualcheck.make_env("babyai", "goto", family="x")


@pytest.mark.parametrize(
    ("env", "task", "wrong"),
    [
        ("babyai", "goto", [-1, 7, 1.5, np.nan, np.array([np.nan]), "3", None, np.zeros(3), "x"]),
        ("clevr", "order", [-1, 40, 1.5, None, np.zeros(3)]),
        ("halfcheetah", "jump-forward", [0, np.zeros(5), np.full(6, np.nan), None, "x", np.zeros((6, 1))]),
        ("metaworld", "reach", [0, np.zeros(5), np.full(4, np.inf), None]),
    ],
)
def test_what_is_no_action_is_refused_and_nothing_is_guessed(env: str, task: str, wrong: list[Any]) -> None:
    made = qualcheck.make_env(env, task)
    made.reset(seed=0)
    for action in wrong:
        with pytest.raises(UsageError, match=r"action .*; expected"):
            made.step(action)
    first = made.step(made.action_space.sample())
    assert np.isfinite(first[0]).all()
    made.close()


@pytest.mark.parametrize(("env", "task"), [("babyai", "goto"), ("clevr", "order"), ("halfcheetah", "jump-forward")])
def test_there_is_no_step_without_a_reset_and_no_start_that_is_guessed(env: str, task: str) -> None:
    single = made(env, task, horizon=np.int64(3))
    action = single.action_space.sample()
    with pytest.raises(ResetNeeded, match="call reset first"):
        single.step(action)
    for row in (np.zeros(3), "x", [[1.0]], 5):
        with pytest.raises(UsageError, match=r"reset: .*expected"):
            single.reset(seed=1, options={"row": row})
    with pytest.raises(UsageError, match="no option rwo; expected row"):
        single.reset(seed=1, options={"rwo": np.zeros(3)})
    single.reset(seed=1)
    single.step(action)
    single.close()
    with pytest.raises(ResetNeeded, match="call reset first"):
        single.step(action)
    with pytest.raises(UsageError, match=f"{env} has no option 'foo'"):
        made(env, task, horizon=3, foo=1)


@pytest.mark.parametrize(
    "codes", [{}, {"a": "b"}, {"a": [[1], [1, 2]]}, {"a": [np.nan]}, {"a": []}, {"a": np.ones((2, 2, 2))}]
)
def test_codes_that_are_no_numbers_are_refused(codes: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="codes: expected a dict of instruction -> finite numbers, as many for each"):
        made("babyai", "goto", codes=codes)


def test_a_task_that_is_no_name_is_refused() -> None:
    with pytest.raises(UsageError, match="task 5; it is the name of one"):
        qualcheck.make_env("babyai", 5)  # type: ignore[arg-type]
    with pytest.raises(UnknownName, match="no environment None; known: babyai"):
        qualcheck.make_env(None, "goto")  # type: ignore[arg-type]
