"""The referee, which steps MuJoCo or metaworld itself, and the benchmark's tasks as environments."""

from __future__ import annotations

from typing import Any

import gymnasium
import mujoco
import numpy as np
from gymnasium import spaces

from qualcheck.envs.metaworld import experts, record, reset, text
from qualcheck.envs.metaworld.arm import UPRIGHT_MOCAP
from qualcheck.envs.metaworld.filter import GROUPS, group_errors
from qualcheck.envs.metaworld.goals import PREDICATES
from qualcheck.envs.metaworld.kernel import (
    COMMANDED,
    QPOS,
    QVEL,
    Episode,
    Kernel,
    Played,
    goals_after,
    is_hinged,
)
from qualcheck.envs.metaworld.layout import (
    ACTION_SIZE,
    BAD_ACTION,
    CARRIED,
    CODE_SIZE,
    ENTITIES,
    FIRST_ENTITY,
    FIRST_GOAL,
    GOAL,
    HIDDEN_SIZE,
    HIDDEN_UNKNOWN,
    HORIZON,
    LAYOUT,
    NO_TASK,
    OBS_SIZE,
    OTHERS,
    SIGNS,
    SUBSTEPS,
    TASK,
    TASK_IDS,
    commanded_hand,
    quaternion,
    takeable,
    takeable_for,
    usable_actions,
    without_task,
)
from qualcheck.envs.metaworld.recognise import FAMILIES
from qualcheck.envs.metaworld.scene import Scene
from qualcheck.envs.metaworld.stock import STOCK, shown, stock_end, stock_env
from qualcheck.envs.metaworld.tasks import tasks_of_rows
from qualcheck.envs.running_mujoco import quiet
from qualcheck.errors import UsageError, unknown_name
from qualcheck.types import AnyArray, FloatArray, IntArray

# How far metaworld's own step and the kernel's may end apart, by group (m, 1, m, 1): its models keep the geoms that the
# kernel's have lost, and its solver starts elsewhere, which shows in contacts.
AGREES = np.array([1e-4, 1e-3, 1e-3, 1e-2])
assert len(AGREES) == len(GROUPS)


def plain_end(scene: Scene, row: FloatArray, action: AnyArray, hidden: FloatArray, layout_m: FloatArray) -> FloatArray:
    """The same by five separate `mj_step` calls on the kernel's model of the scene."""
    model, data = scene.model, scene.data
    scene.place_layout(layout_m)
    mujoco.mj_resetData(model, data)
    data.qpos[:], data.qvel[:] = hidden[QPOS][: model.nq], hidden[QVEL][: model.nv]
    data.mocap_pos[0] = commanded_hand(hidden[COMMANDED], np.asarray(action)[None], scene.task)[1]
    data.mocap_quat[0], data.ctrl[:] = UPRIGHT_MOCAP, [action[3], -action[3]]
    for _ in range(SUBSTEPS):
        mujoco.mj_step(model, data)
    mujoco.mj_kinematics(model, data)
    return shown(scene, data, row)


def referee(obs: AnyArray, action: AnyArray, hidden: FloatArray | None, kernel: Kernel) -> tuple[AnyArray, IntArray]:
    """Single steps: (R, 91), (R, 4) and (R, H) -> end rows (R, 91) and codes (R,) int8.

    In the family that is metaworld as it is they are steps of metaworld's own environment where it has the task. Where
    those and the kernel's end within `AGREES` of each other the kernel's row is handed out, since whoever asks takes
    them for equal only to the last digits. All other steps are plain `mj_step` calls on the kernel's model. Without
    hidden states: those of a reset, of the task that a row shows.
    """
    n, rows = len(obs), np.asarray(obs[:, :OBS_SIZE], np.float64)
    code = without_task(takeable(rows))
    told = hidden is not None and hidden.shape == (n, HIDDEN_SIZE)
    given = hidden.astype(np.float64) if told and hidden is not None else np.full((n, HIDDEN_SIZE), np.nan)
    tasks = tasks_of_rows(rows, np.ones(n, bool))
    if told:
        tasks = np.array([TASK_IDS[int(number)] if np.isfinite(number) else "" for number in given[:, TASK]] + [""])[
            :-1
        ]
    code[(code == 0) & (tasks == "")] = HIDDEN_UNKNOWN if told else NO_TASK
    for task in np.unique(tasks[tasks != ""]):
        mine = np.flatnonzero((tasks == task) & (code == 0))
        code[mine] = takeable_for(rows[mine], str(task))
    code[(code == 0) & ~usable_actions(action)] = BAD_ACTION
    if told:
        code[(code == 0) & ~np.isfinite(given[:, CARRIED.stop - 1])] = HIDDEN_UNKNOWN
    end, good = np.full((n, OBS_SIZE), np.nan), np.flatnonzero(code == 0)
    with quiet():
        for i in good:
            end[i], code[i] = _one(str(tasks[i]), rows[i], action[i], given[i] if told else None, kernel)
    return end, code


def _one(
    task: str, row: FloatArray, action: AnyArray, given: FloatArray | None, kernel: Kernel
) -> tuple[FloatArray, int]:
    played = _played(task, row, action, given, kernel)
    if played.code[0]:
        return np.full(OBS_SIZE, np.nan), int(played.code[0])
    before, hinged = played.hidden[0], is_hinged(task, played.hidden[0])
    if kernel.family.name == STOCK and not hinged and stock_env(task) is not None:
        end = stock_end(task, row, action, before, played.layout_m)
        apart = group_errors(end[None], played.obs[1:], np.array([task]))[0]
        end = played.obs[1].copy() if (apart <= AGREES).all() else end
    else:
        end = plain_end(kernel.scene(task, hinged), row, action, before, played.layout_m)
    context = row.copy()
    if given is not None:
        context[GOAL] = given[FIRST_GOAL]
    end[GOAL] = goals_after(task, row[None], np.stack([row, end]), context, True)[0]
    if given is not None:
        for number, entity in enumerate(ENTITIES):
            end[quaternion(entity)] *= given[SIGNS][number]
        end[FIRST_ENTITY:] = np.where(np.isnan(given[OTHERS]), end[FIRST_ENTITY:], given[OTHERS])
    return end, 0


def _played(task: str, row: FloatArray, action: AnyArray, given: FloatArray | None, kernel: Kernel) -> Played:
    """One step of the kernel."""
    state, layout_m = (None, None) if given is None else (given[CARRIED], given[LAYOUT])
    episode = Episode(task, row[None], np.asarray(action)[None], row, state, given is None, layout_m)
    return kernel.play([episode], filtered=True)[0]


class MetaWorldTask(gymnasium.Env[AnyArray, AnyArray]):
    """One task of the benchmark: 91 numbers, and 768 of the instruction if given.

    An episode ends with its goal or after 100 steps. The reward is 10 in the step that reaches the goal and else 0: the
    benchmark's shaped one reads finger pads, which no row shows. Unlike in the benchmark there is no distractor, a
    reset depends on nothing that came before it, and all randomness comes from the seed of `reset`.
    """

    metadata: dict[str, Any] = {"render_modes": []}  # noqa: RUF012  # gymnasium reads it off the class

    def __init__(
        self,
        task: str,
        predicates: str = "intended",
        instruction_code: AnyArray | None = None,
        family: str = next(iter(FAMILIES)),
        hinged: bool = True,
        horizon: int = HORIZON,
    ) -> None:
        """Args:
            task: an id of `goals.TASKS` or a sentence.
            predicates: "intended" (the goal by meaning) or "released" (the benchmark's own test).
            instruction_code: (768,) appended to every observation.
            family: of `recognise.FAMILIES`.
            hinged: the lock's door turns on a hinge, as in the benchmark, else it is metaworld's rigid one.
            horizon: steps of an episode.

        Raises:
            UnknownName: no such task, predicate set or family.
            UsageError: the code does not fit.
        """
        if predicates not in PREDICATES:
            raise unknown_name("predicate set", predicates, list(PREDICATES))
        if family not in FAMILIES:
            raise unknown_name("simulator family of metaworld", family, list(FAMILIES))
        if instruction_code is not None and np.shape(instruction_code) != (CODE_SIZE,):
            found = np.shape(instruction_code)
            raise UsageError(f"Meta-World instruction code: shape {found}; expected ({CODE_SIZE},), one code.")
        self.task, self.predicates = text.placement_of_task(task).task, predicates
        self._code = np.asarray([] if instruction_code is None else instruction_code, np.float64)
        self._kernel, self._hinged, self._horizon = Kernel(FAMILIES[family], threads=1), hinged, horizon
        self._live: record.Live | None = None
        self._instruction = ""
        self.observation_space = spaces.Box(-np.inf, np.inf, (OBS_SIZE + len(self._code),), np.float64)
        self.action_space: Any = spaces.Box(-1.0, 1.0, (ACTION_SIZE,), np.float32)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[AnyArray, dict[str, Any]]:
        """Start an episode.

        Args:
            seed: of all that is drawn.
            options: "row", (91,) row 0 of an episode or, with "hidden", (H,) of `Replay.hidden` or (36,) its first
                part, any row; else the places are drawn.

        Raises:
            UsageError: the simulator cannot be put into the given row, or the hidden numbers are none.
        """
        super().reset(seed=seed)
        given = options or {}
        if given.get("row") is None:
            row = reset.sample(self.task, 1, self.np_random, self._kernel, self._hinged)[0]
        else:
            row = np.asarray(given["row"], np.float64)
            if row.shape != (OBS_SIZE,) or takeable_for(row[None], self.task)[0]:
                raise UsageError(
                    f"Meta-World reset: the row given is no state of {self.task}; expected {OBS_SIZE} numbers."
                )
        self._instruction = record.sentence(self.task, self.np_random)
        start = record.Live(experts.AtRandom(self.np_random), [row], [np.full(3, np.nan)], [])
        if given.get("hidden") is not None:
            hidden = np.asarray(given["hidden"], np.float64).ravel()
            if len(hidden) not in (CARRIED.stop, HIDDEN_SIZE) or not np.isfinite(hidden[CARRIED.stop - 1]):
                raise UsageError(
                    f"Meta-World reset: {len(hidden)} hidden numbers; expected {HIDDEN_SIZE} or {CARRIED.stop}, known."
                )
            start.hidden = hidden[CARRIED]
            start.layout_m = hidden[LAYOUT] if len(hidden) == HIDDEN_SIZE else None
        self._live = start
        return self._obs(row), self._info(False)

    def step(self, action: AnyArray) -> tuple[AnyArray, float, bool, bool, dict[str, Any]]:
        """Execute an action and judge the row after it.

        Raises:
            ValueError: the action is not of four finite numbers.
            RuntimeError: there was no reset, or the simulator gave up.
        """
        moves = np.asarray(action)
        if moves.shape != (ACTION_SIZE,) or not usable_actions(moves[None])[0]:
            raise ValueError(f"action {action!r}; expected {ACTION_SIZE} finite numbers")
        if self._live is None:
            raise RuntimeError("step before reset")
        if not record.step(self._kernel, self.task, [self._live], [moves])[0]:
            raise RuntimeError(f"MuJoCo gave up in action {action} of an episode of {self.task}")
        success = bool(record.reached(self.task, [self._live], self.predicates)[0])
        over = len(self._live.action) >= self._horizon
        return self._obs(self._live.rows[-1]), 10.0 * success, success, over and not success, self._info(success)

    def _obs(self, row: AnyArray) -> AnyArray:
        return np.concatenate([row, self._code])

    def _info(self, success: bool) -> dict[str, Any]:
        return {"is_success": success, "instruction": self._instruction}

    def close(self) -> None:
        self._kernel.close()
