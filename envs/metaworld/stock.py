"""metaworld's own environments, as they are: what its steps lead to, and rollouts recorded in them."""

from __future__ import annotations

from functools import cache
from typing import Any

import mujoco
import numpy as np

from qualcheck.envs.metaworld.arm import UPRIGHT_MOCAP
from qualcheck.envs.metaworld.experts import AtRandom, Player, Scripted, rounded
from qualcheck.envs.metaworld.kernel import COMMANDED, QPOS, QVEL, goals_after, shown_rows, tips
from qualcheck.envs.metaworld.layout import GOAL, HAND, HORIZON, OBS_SIZE, OPENING, TASKS
from qualcheck.envs.metaworld.record import Live, reached, rollouts_of, sentence
from qualcheck.envs.metaworld.scene import FAMILIES, Scene
from qualcheck.envs.running_mujoco import quiet
from qualcheck.errors import UsageError
from qualcheck.types import AnyArray, FloatArray, Rollouts

STOCK = "3.x"  # the kernel's family that is metaworld as it is


@cache
def stock_env(task: str) -> Any:
    """metaworld's own environment of a task; None where it has none."""
    from metaworld.env_dict import ALL_V3_ENVIRONMENTS  # slow to import

    if f"{task}-v3" not in ALL_V3_ENVIRONMENTS:
        return None
    env: Any = ALL_V3_ENVIRONMENTS[f"{task}-v3"]()
    env._partially_observable, env._set_task_called = False, True
    env._freeze_rand_vec, env.seeded_rand_vec = False, True  # a frozen draw that a reset rejects, it rejects for ever
    env.seed(0)
    env.reset()
    return env


@cache
def stock_scene(task: str) -> Scene:
    """Where things are in the model of `stock_env`."""
    return Scene(task, TASKS[task].entities, FAMILIES[STOCK], stock_env(task).model)


def stock_end(task: str, row: FloatArray, action: AnyArray, hidden: FloatArray, layout_m: FloatArray) -> FloatArray:
    """The row after one step of metaworld's own environment, (91,); goal and other blocks as on the row before.

    Args:
        task: one that metaworld has.
        row: (91,) before.
        action: (4,).
        hidden: (36,) state of the simulator before.
        layout_m: (3,) place of the furniture, NaN where there is none.
    """
    env, scene = stock_env(task), stock_scene(task)
    model, data = env.model, env.data
    scene.place_layout(layout_m)
    mujoco.mj_resetData(model, data)
    data.qpos[:], data.qvel[:] = hidden[QPOS][: model.nq], hidden[QVEL][: model.nv]
    data.mocap_pos[0], data.mocap_quat[0] = hidden[COMMANDED], UPRIGHT_MOCAP
    move = np.clip(action.astype(np.float64), -1, 1)
    env.set_xyz_action(move[:3])
    env.do_simulation([action[3], -action[3]], n_frames=env.frame_skip)
    mujoco.mj_kinematics(model, data)
    return shown(scene, data, row)


def shown(scene: Scene, data: Any, row: FloatArray) -> FloatArray:
    """The row of a simulator whose kinematics are up to date, (91,); the goal and other blocks are those of `row`."""
    pose = np.stack([data.xpos[scene.bodies]] * 2), np.stack([data.xquat[scene.bodies]] * 2)
    return np.asarray(shown_rows(scene, *pose, row[None], 1)[1])


def _tip(scene: Scene, data: Any) -> FloatArray:
    found: FloatArray = tips(scene, data.xpos[scene.bodies][None], data.xquat[scene.bodies][None])[0]
    return found


def _episode(task: str, player: Player, seed: int, horizon: int, dtype: type) -> tuple[Live, bool]:
    """One episode, and whether its released goal was reached."""
    env, scene = stock_env(task), stock_scene(task)
    model, data = env.model, env.data
    env.seed(seed)
    obs, _ = env.reset()
    mujoco.mj_kinematics(model, data)
    row: FloatArray = np.zeros(OBS_SIZE)
    row[GOAL] = env._target_pos
    row = shown(scene, data, row)
    row[HAND], row[OPENING] = obs[HAND], obs[OPENING]  # a substep old, as every row 0
    live = Live(player, [row.astype(dtype).astype(np.float64)], [_tip(scene, data)], [])
    while len(live.action) < horizon:
        now = live.rows[-1]
        move = rounded(player.act(now, live.rows[-2] if live.action else now))
        env.step(move)
        end = shown(scene, data, now)
        end[GOAL] = goals_after(task, now[None], np.stack([now, end]), live.rows[0], True)[0]
        live.rows.append(end)
        live.tips.append(_tip(scene, data))
        live.action.append(move)
        if reached(task, [live], "released")[0]:
            return live, True
    return live, False


def record(
    task: str,
    n: int,
    rng: np.random.Generator,
    random_share: float = 0.0,
    horizon: int = HORIZON,
    dtype: type = np.float64,
) -> Rollouts:
    """n rollouts of metaworld's own environment, as `record.record` makes those of the kernel, rows of a `dtype`.

    Raises:
        UsageError: metaworld has no such task.
    """
    if stock_env(task) is None:
        raise UsageError(f"metaworld has no task {task!r}; record it with envs.metaworld.record.")
    live, won = [], np.zeros(n, bool)
    with quiet():
        for i, own in enumerate(rng.spawn(n)):
            player: Player = AtRandom(own) if own.random() < random_share else Scripted(task, own)
            one, won[i] = _episode(task, player, int(own.integers(2**31)), horizon, dtype)
            live.append(one)
    return rollouts_of(task, live, won, [sentence(task, rng) for _ in range(n)], dtype)
