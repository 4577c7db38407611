"""robosuite's own environment as the referee, the kernel step by step, and the benchmark's tasks as environments."""

from __future__ import annotations

from functools import cache
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from qualcheck.envs.libero import experts, goals, reset, reward, text
from qualcheck.envs.libero.columns import (
    ACTION_SIZE,
    BODY_FIRST,
    FINGERS,
    HAND,
    HORIZON,
    JOINTS,
    OBS_SIZE,
    StartedRows,
    faced,
)
from qualcheck.envs.libero.experts import Live
from qualcheck.envs.libero.kernel import Simulator
from qualcheck.envs.libero.layout import (
    CARRIED,
    CODE_SIZE,
    FILTER_SIZE,
    GOAL_TURN,
    GRIPPER,
    HAND_BODY,
    HAND_SITE,
    HIDDEN_SIZE,
    SIGNS,
    SUBSTEPS,
    VELOCITY,
    qpos_of,
)
from qualcheck.envs.libero.model import benchmark_env
from qualcheck.envs.libero.situation import block_errors
from qualcheck.envs.libero.takeable import (
    BAD_ACTION,
    HIDDEN_UNKNOWN,
    SIMULATOR_WARNING,
    takeable,
    usable_actions,
)
from qualcheck.envs.running_mujoco import quiet
from qualcheck.errors import UsageError, unknown_name
from qualcheck.types import AnyArray, FloatArray, IntArray, Placement, Rollouts

# How far robosuite's step and the kernel's may end apart, by block (rad, m, 1): twice the largest of 10,000 steps, all
# of it in contacts, whose solver stops early in both.
AGREES = np.array([1e-4, 1e-3, 1e-2])


@cache
def _robosuite(whole: bool) -> Any:
    env = benchmark_env(whole)
    env.reset()
    return env


def robosuite_steps(obs: AnyArray, action: AnyArray, hidden: FloatArray, whole: bool = False) -> FloatArray:
    """Rows after single steps of robosuite's own environment, (R, 44), (R, 7), (R, 43) -> (R, 44).

    Args:
        obs: rows before the actions.
        action: in robosuite's order.
        hidden: velocities, the gripper's command and the goal of the hand's turn.
        whole: with all that is only seen in the model, see `model.benchmark_env`.

    Raises:
        MissingExtra: the extra is not installed.
    """
    end = np.full((len(obs), OBS_SIZE), np.nan)
    if not len(obs):
        return end
    benchmark = _robosuite(whole)
    env, robot = benchmark.env, benchmark.env.robots[0]
    data, model = env.sim.data._data, env.sim.model._model
    site, hand = model.site(HAND_SITE).id, model.body(HAND_BODY).id
    for i, qpos in enumerate(qpos_of(obs)):
        env.sim.set_state_from_flattened(np.concatenate([[0.0], qpos, hidden[i, VELOCITY]]))
        data.qacc_warmstart[:] = 0
        robot.controller.goal_ori = hidden[i, GOAL_TURN].reshape(3, 3).copy()
        robot.gripper.current_action = np.array([-1.0, 1.0]) * hidden[i, GRIPPER]
        robot.controller.new_update = True
        benchmark.step(action[i].astype(np.float64))
        end[i, JOINTS], end[i, FINGERS] = data.qpos[:7], data.qpos[7:9]
        end[i, HAND : HAND + 3], end[i, HAND + 3 : HAND + 7] = data.site_xpos[site], data.xquat[hand][[1, 2, 3, 0]]
        for name, first in BODY_FIRST.items():
            body = data.body(f"{name}_1_main")
            end[i, first : first + 3], end[i, first + 3 : first + 7] = body.xpos, body.xquat[[1, 2, 3, 0]]
    return end


def referee(
    obs: AnyArray, action: AnyArray, hidden: FloatArray | None, simulator: Simulator
) -> tuple[AnyArray, IntArray]:
    """Single steps in robosuite: (R, 44), (R, 7) and (R, 84) -> end rows (R, 44) and codes (R,) int8.

    Where robosuite and the kernel end within `AGREES` of each other the kernel's row is handed out, since whoever asks
    takes them for equal only to the last digits; else that of robosuite. Without hidden states: those of a reset.
    """
    code = takeable(obs)
    code[(code == 0) & ~usable_actions(action)] = BAD_ACTION
    carried: FloatArray = np.tile(simulator.rest, (len(obs), 1))
    signs: FloatArray = np.ones((len(obs), SIGNS.stop - SIGNS.start))
    if hidden is not None and hidden.shape == (len(obs), FILTER_SIZE):
        carried, signs = hidden[:, CARRIED].astype(np.float64), hidden[:, SIGNS]
    code[(code == 0) & ~np.isfinite(carried).all(axis=1)] = HIDDEN_UNKNOWN
    end, good = np.full((len(obs), OBS_SIZE), np.nan), np.flatnonzero(code == 0)
    one = np.arange(len(good) + 1)
    played = simulator.play(obs[good], action[good], one, hidden=carried[good])
    with quiet():
        stepped, _ = faced(robosuite_steps(obs[good], action[good], carried[good]), played.end)
    agreed = np.logical_and.reduce(block_errors(stepped, played.end) <= AGREES, axis=1)
    end[good] = np.where(agreed[:, None], played.end, stepped)
    for number, first in enumerate((HAND, *BODY_FIRST.values())):
        end[:, first + 3 : first + 7] *= signs[:, number, None]
    code[good[~played.sound]] = SIMULATOR_WARNING
    return end, code


class LiberoTask(gymnasium.Env[AnyArray, AnyArray]):
    """One task of the benchmark: 44 numbers, and 768 of the instruction if given.

    An episode ends with its goal or after 500 steps. A reset draws a scene of the kind that the task starts from and
    lets it settle for five steps. Unlike in the benchmark all randomness comes from the seed of `reset`.
    """

    metadata: dict[str, Any] = {"render_modes": []}  # noqa: RUF012  # gymnasium reads it off the class

    def __init__(
        self,
        task: str,
        predicates: str = "intended",
        instruction_code: AnyArray | None = None,
        simulator: Simulator | None = None,
        horizon: int = HORIZON,
    ) -> None:
        """Args:
            task: an id of `goals.TASKS` or a sentence.
            predicates: "intended" (the goal by meaning) or "released" (the benchmark's own test).
            instruction_code: (768,) appended to every observation.
            simulator: whose model is shared; None: one of its own.
            horizon: steps of an episode.

        Raises:
            UnknownName: no such task or predicate set.
            UsageError: the code does not fit.
            MissingExtra: the extra is not installed.
        """
        self.placement = text.placement_of_task(task)
        if predicates not in goals.PREDICATES:
            raise unknown_name("predicate set", predicates, list(goals.PREDICATES))
        if instruction_code is not None and np.shape(instruction_code) != (CODE_SIZE,):
            found = np.shape(instruction_code)
            raise UsageError(f"LIBERO instruction code: shape {found}; expected ({CODE_SIZE},), one code.")
        self.task, self.predicates, self.horizon = self.placement.task, predicates, horizon
        self._code = np.asarray([] if instruction_code is None else instruction_code, np.float64)
        self._own = Simulator(threads=1) if simulator is None else None
        self._live = Live(simulator or self._own)  # type: ignore[arg-type]  # one of them is there
        self._rows: list[AnyArray] = []
        self._actions: list[AnyArray] = []
        self._instruction = ""
        self.observation_space = spaces.Box(-np.inf, np.inf, (OBS_SIZE + len(self._code),), np.float64)
        self.action_space: Any = spaces.Box(-1.0, 1.0, (ACTION_SIZE,), np.float32)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[AnyArray, dict[str, Any]]:
        """Start an episode.

        Args:
            seed: of all that is drawn.
            options: "row", (44,) to begin in, else a scene is drawn; "hidden", (84,) as in `Replay.hidden` or (43,) its
                first part, else that of a reset.

        Raises:
            UsageError: the simulator cannot be put into the given row, or the hidden numbers are none.
        """
        super().reset(seed=seed)
        given = options or {}
        if given.get("row") is None:
            row = experts.settle(self._live, experts.draw(self._live, reset.start_of(self.task), self.np_random))
        else:
            row = np.asarray(given["row"], np.float64)
            if row.shape != (OBS_SIZE,) or takeable(row[None])[0]:
                raise UsageError(f"LIBERO reset: row {row.tolist()} is no state; expected {OBS_SIZE} numbers.")
            self._live.put(row, _carried(given.get("hidden")), SUBSTEPS)
        sentences = [words for words, task in text.sentences().items() if task == self.task]
        self._instruction = sentences[int(self.np_random.integers(len(sentences)))]
        self._rows, self._actions = [row], []
        return self._obs(row), {"is_success": False, "instruction": self._instruction}

    def step(self, action: AnyArray) -> tuple[AnyArray, float, bool, bool, dict[str, Any]]:
        """Apply an action for 0.05 s and judge the row after it.

        Raises:
            ValueError: the action is not seven finite numbers.
            RuntimeError: the simulator gave up.
        """
        wanted = np.asarray(action, np.float64)
        if wanted.shape != (ACTION_SIZE,) or not np.isfinite(wanted).all():
            raise ValueError(f"action {action!r}; expected {ACTION_SIZE} finite numbers")
        row, sound = self._live.step(wanted)
        if not sound:
            raise RuntimeError(f"MuJoCo gave up in action {action} from {self._rows[-1].tolist()}")
        self._rows.append(row)
        self._actions.append(wanted)
        success, gain = _judged(self.placement, self.predicates, np.array(self._rows), np.array(self._actions))
        info = {"is_success": success, "instruction": self._instruction}
        over = len(self._actions) >= self.horizon
        return self._obs(row), gain, success, over and not success, info

    def _obs(self, row: AnyArray) -> AnyArray:
        return np.concatenate([row, self._code])

    def close(self) -> None:
        if self._own is not None:
            self._own.close()


def _judged(placement: Placement, predicates: str, rows: AnyArray, action: AnyArray) -> tuple[bool, float]:
    """Whether the goal holds on the last row of an episode, and the reward of its last step."""
    offsets, which = np.array([0, len(rows)]), np.zeros(1, np.int64)
    judged = StartedRows(rows, offsets, np.ones(len(rows), bool), np.ones(1, bool))
    found = goals.evaluate(judged, [placement], which)
    gain = reward.recompute(episode(rows, action), [placement], which)[predicates]
    return bool((found.intended if predicates == "intended" else found.released)[-1]), float(gain[-1])


def episode(rows: AnyArray, action: AnyArray) -> Rollouts:
    """One rollout from a reset, (T+1, 44) and (T, 7)."""
    return Rollouts(
        obs=rows,
        action=action,
        offsets=np.array([0, len(action)]),
        has_final=np.ones(1, bool),
        source=np.zeros(1, np.int32),
        source_rollout=np.zeros(1, np.int32),
        source_step=np.zeros(1, np.int32),
        instruction=[None],
        is_reset=np.ones(1, bool),
    )


def _carried(hidden: Any) -> FloatArray | None:
    """The carried hidden state, (43,) or (84,) -> (43,)."""
    if hidden is None:
        return None
    numbers = np.asarray(hidden, np.float64).ravel()
    carried = numbers[CARRIED]
    if len(numbers) not in (HIDDEN_SIZE, FILTER_SIZE) or not np.isfinite(carried).all():
        known = int(np.isfinite(carried).sum())
        raise UsageError(
            f"LIBERO reset: {len(numbers)} hidden numbers, {known} of the first {HIDDEN_SIZE} known; expected "
            f"{HIDDEN_SIZE} or {FILTER_SIZE}, of which {HIDDEN_SIZE} are known."
        )
    return carried
