"""The world on MiniGrid, the referee and the environment, against hand-typed and recorded episodes."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from qualcheck.envs.babyai import goals, kernel, text
from qualcheck.envs.babyai.layout import DROP, HORIZON, PICKUP, TOGGLE, UP, fields
from qualcheck.envs.babyai.simulator import BabyAIEnv, World, referee
from qualcheck.errors import UnknownName, UsageError

BASE = [0, 2, 2, 1, 3, 5, 2, 5, 1, 2, 4, 7, 1, 4, 4, 0, 0]
AT_LOCK = [0, 2, 2, 1, 3, 5, 2, 0, 0, 2, 4, 7, 2, 4, 6, 5, 2]  # the matching key in hand, before the locked door


def test_restore_then_row_gives_the_row_back_whatever_stood_there_before(crowded_rows) -> None:
    rows = crowded_rows(3000, np.random.default_rng(1))
    decoded = fields(rows)
    world = World()
    for given in rows[kernel.takeable(decoded) == 0].tolist():
        assert world.restore(given) == 0
        assert world.row()[:15] == given[:15]
        assert sum(thing is not None and thing.type != "wall" for thing in world.grid.grid) == 4 - given[1:9:3].count(0)


def test_a_refused_row_leaves_nothing_behind() -> None:
    world = World()
    assert world.restore([*BASE[:7], 2, 2, *BASE[9:]]) == kernel.OVERLAP
    assert world.restore(BASE) == 0
    assert world.row() == BASE


def test_the_world_keeps_its_state_over_an_episode() -> None:
    world = World()
    world.restore([0, 2, 2, 1, 3, 5, 2, 5, 1, 2, 4, 7, 2, 5, 1, 0, 0])
    for action in (PICKUP, 1, 1, 1, 1, 1, UP, TOGGLE, 0, DROP):
        world.act(action)
    assert world.row() == [0, 2, 2, 1, 3, 5, 2, 4, 5, 2, 4, 7, 0, 4, 5, 0, 0]


@pytest.mark.parametrize("action", [-1, 7, 100])
def test_an_unknown_action_is_refused_by_the_world(action: int) -> None:
    world = World()
    world.restore(BASE)
    with pytest.raises(ValueError, match="0 to 6"):
        world.act(action)


def test_referee_gives_codes_not_exceptions() -> None:
    obs = np.array([BASE, BASE, BASE, [np.nan] * 17, AT_LOCK], np.float64)
    obs[2, 1] = 99
    end, code = referee(obs, np.array([UP, 9.0, UP, UP, TOGGLE]))
    assert [kernel.CODES[number] for number in code] == ["", "bad_action", "illegal_start", "illegal_start", ""]
    assert end[0].tolist() == [*BASE[:13], 3, 4, 0, 0]
    assert end[4, 12] == 0
    assert not end[1:4].any()


def test_a_thousand_rows_are_refereed_in_the_time_of_drawing_three_grids_each(crowded_rows) -> None:
    rng = np.random.default_rng(2)
    rows, action = crowded_rows(1000, rng), rng.integers(0, 7, 1000)
    took, drawn = [], []
    for _ in range(3):
        begin = time.process_time()
        referee(rows, action)
        took.append(time.process_time() - begin)
        begin = time.process_time()
        world = World()
        for _ in range(300):  # a restore that rebuilds the grid costs more than ten of these
            world._gen_grid(world.width, world.height)
        drawn.append(time.process_time() - begin)
    assert min(took) < 3 * min(drawn) * 1000 / 300


@pytest.mark.parametrize("task", goals.TASK_IDS)
def test_the_environment_of_each_task_passes_gymnasiums_checker(task: str) -> None:
    check_env(BabyAIEnv(task), skip_render_check=True)


def test_resets_depend_on_the_seed_alone() -> None:
    first, second = BabyAIEnv("putnext"), BabyAIEnv("putnext")
    rows = [first.reset(seed=5)[0], first.reset()[0]]
    assert (np.array(rows) == [second.reset(seed=5)[0], second.reset()[0]]).all()
    assert (rows[0] != rows[1]).any()
    assert (rows[0] != first.reset(seed=6)[0]).any()


def test_a_task_gets_the_colours_it_names() -> None:
    env = BabyAIEnv("pickup", params=("grey", "key"))
    assert {int(env.reset(seed=seed)[0][6]) for seed in range(20)} == {5}
    assert {int(BabyAIEnv("goto").reset(seed=seed)[0][0]) for seed in range(20)} == {2}


def test_an_episode_ends_with_the_goal() -> None:
    env = BabyAIEnv("open_lock")
    env.reset(options={"row": AT_LOCK})
    obs, reward, terminated, truncated, info = env.step(TOGGLE)
    assert (obs[12], terminated, truncated) == (0, True, False)
    assert info == {"is_success": True, "instruction": "pick up the key, then open the door"}
    assert reward == pytest.approx(1 - 0.9 / 128)


def test_an_episode_is_cut_at_the_horizon() -> None:
    env = BabyAIEnv("open_lock")
    env.reset(seed=0)
    ends = [env.step(DROP)[2:4] for _ in range(HORIZON)]
    assert ends == [(False, False)] * (HORIZON - 1) + [(False, True)]


def test_open_pick_succeeds_by_meaning_and_never_as_released() -> None:
    start = [0, 2, 2, 1, 3, 5, 2, 5, 1, 2, 4, 7, 0, 2, 2, 0, 0]  # open door, agent on the ball
    ends = []
    for predicates in ("intended", "released"):
        env = BabyAIEnv("open_pick", predicates)
        env.reset(options={"row": start})
        ends.append(env.step(PICKUP)[2])
    assert ends == [True, False]


def test_the_instruction_code_follows_the_row() -> None:
    code = np.arange(768) / 7
    obs, _ = BabyAIEnv("goto", instruction_code=code).reset(options={"row": BASE})
    assert obs.dtype == np.float32
    assert (obs == np.array([*BASE, *code], np.float32)).all()


def test_wrong_names_and_parameters_are_refused() -> None:
    with pytest.raises(UnknownName, match="goto"):
        BabyAIEnv("got")
    with pytest.raises(UnknownName, match="intended"):
        BabyAIEnv("goto", "meant")
    with pytest.raises(UsageError, match="parameters"):
        BabyAIEnv("goto", params=("ball", "blue"))
    with pytest.raises(UsageError, match="parameters"):
        BabyAIEnv("go_wall", params=("blue", "ball"))
    with pytest.raises(UsageError, match="768"):
        BabyAIEnv("goto", instruction_code=np.zeros(17))
    with pytest.raises(UsageError, match="overlap"):
        BabyAIEnv("goto").reset(options={"row": [*BASE[:7], 2, 2, *BASE[9:]]})


@pytest.mark.parametrize("level", ["real", "rephrase", "easy", "hard"])
def test_recorded_episodes_run_the_same_in_the_environment(level: str, shared_data: Path) -> None:
    data: dict[str, Any] = np.load(shared_data / "golden" / f"babyai_{level}.npy", allow_pickle=True).item()
    length = np.asarray(data["masks"]).reshape(len(data["masks"]), -1).sum(axis=1).astype(int)
    for i in range(0, len(length), 7):
        placed = text.place(data["instructions"][i][0])
        env = BabyAIEnv(placed.task, "released", params=placed.params)
        env.reset(options={"row": data["observations"][i, 0]})
        done = False
        for t in range(length[i]):
            obs, reward, done, _, _ = env.step(data["actions"][i, t])
            assert (obs == data["next_observations"][i, t]).all()
            assert reward == pytest.approx(data["rewards"][i, t, 0], abs=1e-6)
        assert done == data["success"][i, 1]
