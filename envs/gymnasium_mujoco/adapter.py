"""Gymnasium's own MuJoCo environments, v4 and v5: one batched step out of every row, no tasks.

Absolute x (and y of Ant and Swimmer) is left out of a row by default; nothing in the dynamics depends on it, so every
replay starts at 0. Rows that include it are another layout, and are compared in it too. Hopper and Walker2d show
velocities clipped to +-10: a row with one at the bound does not tell its state, so what follows it is no verdict
(code `clipped_velocity`), while end rows are compared after the same clipping.
"""

from __future__ import annotations

from importlib.resources import files
from typing import Any, ClassVar, Self

import mujoco
import mujoco.rollout
import numpy as np

from qualcheck.cores import cores
from qualcheck.envs.gymnasium_mujoco.models import MEMBERS, Member
from qualcheck.envs.plain import CLIPPED, CODES, RULES, Plain
from qualcheck.envs.running_mujoco import quiet
from qualcheck.errors import UsageError
from qualcheck.spec import ActionSpec, Block, EnvSpec, Rule
from qualcheck.timing import SIMULATE, phase
from qualcheck.types import AnyArray, BoolArray, FloatArray, IntArray, Rollouts

VERSION = "1"
POSITION_BOUND = 1_000.0  # m or rad; angles wind up with every turn. Beyond it a number says nothing
SPEED_BOUND = 1_000.0  # m/s or rad/s
CHUNK = 5_000  # transitions handed over at once
AT_BOUND = 1e-6  # a stored velocity so near the bound is clipped, whatever it was rounded to
HEALTHY = Rule("row.healthy", "range", "1", "healthy", "the body is upright: an episode would go on", hard=False)
UNITS = {"_rad_s": "rad/s", "_m_s": "m/s", "_rad": "rad", "_m": "m"}


def unit_of(column: str) -> str:
    return next((unit for ending, unit in UNITS.items() if column.endswith(ending)), "1")


def make_spec(name: str, member: Member, excluded: int) -> EnvSpec:
    """The layout whose rows leave out the first `excluded` coordinates."""
    contact = tuple(f"contact_{i}" for i in range(member.contacts))
    columns = (*member.qpos[excluded:], *member.qvel, *contact)
    positions, motions = len(member.qpos) - excluded, len(member.qvel)
    groups: dict[tuple[str, str], list[int]] = {}
    for i, column in enumerate(columns[: positions + motions]):
        kind = "position" if i < positions else "velocity"
        groups.setdefault((kind, unit_of(column)), []).append(i)
    titles = {"rad": "angles", "m": "position", "1": "orientation", "m/s": "velocity", "rad/s": "rates"}
    blocks = [Block(titles[unit], tuple(at), unit) for (_, unit), at in groups.items()]
    if contact:
        blocks.append(Block("contact_forces", tuple(range(positions + motions, len(columns))), "N or Nm"))
    return EnvSpec(
        id=f"gymnasium/{name}",
        version=VERSION,
        blocks=tuple(blocks),
        obs_size=len(columns),
        code_size=0,
        action=ActionSpec("box", member.action, -member.action_limit, member.action_limit),
        step_seconds=member.frame_skip * member.substep_seconds,
        horizon=member.horizon,
        judging_grade="scaled:0.5",
        restores="exact",
        codes=CODES,
        columns=columns,
        batch_transitions=8_192,
    )


class GymnasiumMujoco(Plain):
    """One member of the family; the subclasses below name it."""

    NAME: ClassVar[str]

    def __init__(self, obs_size: int | None = None) -> None:
        """Args:
            obs_size: columns of a row; None: the coordinates that gymnasium leaves out by default are not there.

        Raises:
            UsageError: no layout has so many.
        """
        super().__init__()
        self.member = member = MEMBERS[self.NAME]
        self._layouts = tuple(make_spec(self.NAME, member, left) for left in (member.excluded, 0))
        sizes = [spec.obs_size for spec in self._layouts]
        if obs_size is not None and obs_size not in sizes:
            raise UsageError(f"{self.NAME} rows of {obs_size} columns; expected {sizes[0]} or {sizes[1]}.")
        self.excluded = 0 if obs_size == sizes[1] else member.excluded
        self.spec = self._layouts[0 if self.excluded else 1]
        self.rules = (*RULES, HEALTHY) if member.healthy else RULES
        positions = len(member.qpos) - self.excluded
        self.high = np.array([POSITION_BOUND] * positions + [SPEED_BOUND] * (self.spec.obs_size - positions))
        self.low = -self.high
        self._model: mujoco.MjModel | None = None

    def layouts(self) -> tuple[EnvSpec, ...]:
        return self._layouts

    def with_layout(self, obs_size: int) -> Self:
        return self if obs_size == self.spec.obs_size else type(self)(obs_size)

    @property
    def _qpos(self) -> int:
        return len(self.member.qpos)

    def begin(self, obs: FloatArray) -> tuple[FloatArray, IntArray]:
        """qpos and qvel, (R, nq + nv); a velocity at the bound is not known."""
        size = self._qpos + len(self.member.qvel)
        state = np.zeros((len(obs), size))
        state[:, self.excluded :] = obs[:, : size - self.excluded]
        code = np.zeros(len(obs), np.int8)
        if self.member.clip:
            code[(np.abs(state[:, self._qpos :]) >= self.member.clip - AT_BOUND).any(axis=1)] = CLIPPED
        return state, code

    def _load(self) -> mujoco.MjModel:
        if self._model is None:
            path = files("gymnasium") / "envs" / "mujoco" / "assets" / self.member.model
            self._model = mujoco.MjModel.from_xml_path(str(path))
            threads = max(1, cores())
            self._data = [mujoco.MjData(self._model) for _ in range(threads)]
            self._pool = mujoco.rollout.Rollout(nthread=threads if threads > 1 else 0)
        return self._model

    def advance(self, state: FloatArray, action: FloatArray) -> tuple[FloatArray, FloatArray, BoolArray]:
        self._load()
        run = self._with_contacts if self.member.contacts else self._batched
        parts = [run(state[at : at + CHUNK], action[at : at + CHUNK]) for at in range(0, len(state), CHUNK)]
        last, force = (np.concatenate([part[i] for part in parts]) for i in range(2))  # (R, 1 + nq + nv), (R, F)
        member, end = self.member, last[:, 1:]
        # a MuJoCo that gives up restarts its clock
        sound: BoolArray = last[:, 0] > (member.frame_skip - 0.5) * member.substep_seconds
        sound &= np.isfinite(end).all(axis=1)
        speed = end[:, self._qpos :]
        shown = np.clip(speed, -member.clip, member.clip) if member.clip else speed
        return end, np.concatenate([end[:, self.excluded : self._qpos], shown, force], axis=1), sound

    def _batched(self, state: FloatArray, action: FloatArray) -> tuple[FloatArray, FloatArray]:
        initial = np.concatenate([np.zeros((len(state), 1)), state], axis=1)
        with quiet(), phase(SIMULATE, len(self._data)):
            full, _ = self._pool.rollout(
                self._model, self._data, initial, action[:, None], nstep=self.member.frame_skip
            )
        return np.asarray(full)[:, -1], np.zeros((len(state), 0))

    def _with_contacts(self, state: FloatArray, action: FloatArray) -> tuple[FloatArray, FloatArray]:
        """One by one: contact forces are no part of the state that a batched replay hands back."""
        model, data = self._load(), self._data[0]
        last, force = np.empty((len(state), 1 + state.shape[1])), np.empty((len(state), self.member.contacts))
        with quiet(), phase(SIMULATE):
            for i in range(len(state)):
                mujoco.mj_resetData(model, data)
                data.qpos[:], data.qvel[:] = state[i, : self._qpos], state[i, self._qpos :]
                data.ctrl[:] = action[i]
                mujoco.mj_step(model, data, nstep=self.member.frame_skip)
                mujoco.mj_rnePostConstraint(model, data)
                last[i] = data.time, *data.qpos, *data.qvel
                force[i] = np.clip(data.cfrc_ext[1:].reshape(-1), -1.0, 1.0)
        return last, force

    def soft(self, rollouts: Rollouts) -> dict[str, BoolArray]:
        """Where an episode that ends with a fallen body would have ended: the row before an action is unhealthy."""
        if not self.member.healthy:
            return {}
        fallen = np.zeros(rollouts.n_transitions, bool)
        for place, low, high in self.member.healthy:
            shown = rollouts.start_obs[:, place - self.excluded].astype(np.float64)
            fallen |= ~((shown > low) & (shown < high))
        return {HEALTHY.id: fallen}

    def simulator(self) -> Any:
        """Gymnasium's environment of this name and layout."""
        import gymnasium  # not at the top: its environments are slow to import

        options: dict[str, Any] = {} if self.excluded else {"exclude_current_positions_from_observation": False}
        return gymnasium.make(self.NAME, disable_env_checker=True, **options).unwrapped

    def referee(
        self,
        obs: AnyArray,
        action: AnyArray,
        seed: int = 0,  # noqa: ARG002  nothing is drawn
        hidden: FloatArray | None = None,  # noqa: ARG002  rows show the whole state
    ) -> tuple[AnyArray, IntArray]:
        """Single steps by gymnasium's own `set_state` and `step`."""
        end, code = np.full(obs.shape, np.nan), self.takeable(obs)
        code[(code == 0) & ~np.isfinite(action).all(axis=1)] = CODES.index("bad_action")
        at = np.flatnonzero(code == 0)
        state, code[at] = self.begin(obs[at].astype(np.float64))
        env = self.simulator()
        env.reset(seed=0)
        with quiet():
            for i, each in zip(at, state, strict=True):
                if code[i] == 0:
                    env.data.qacc_warmstart[:] = 0
                    env.set_state(each[: self._qpos], each[self._qpos :])
                    end[i] = env.step(self._clipped(action[i][None])[0])[0]
        env.close()
        return end, code

    def close(self) -> None:
        super().close()
        if self._model is not None:
            self._pool.close()
        self._model = None


def _named(name: str) -> type[GymnasiumMujoco]:
    return type(name.replace("-", "").title().replace("_", ""), (GymnasiumMujoco,), {"NAME": name, "__doc__": name})


AntV4, AntV5 = _named("Ant-v4"), _named("Ant-v5")
HalfCheetahV4, HalfCheetahV5 = _named("HalfCheetah-v4"), _named("HalfCheetah-v5")
HopperV4, HopperV5 = _named("Hopper-v4"), _named("Hopper-v5")
SwimmerV4, SwimmerV5 = _named("Swimmer-v4"), _named("Swimmer-v5")
Walker2dV4, Walker2dV5 = _named("Walker2d-v4"), _named("Walker2d-v5")
