"""The benchmark's BabyAI world on the real MiniGrid simulator.

Every action is carried out by MiniGrid's own `step`, so that walls, picking up, dropping and keys are decided there and
not by rules repeated here; `kernel.py` is tested against it. Source: the ImagineBench BabyAI class (arXiv 2505.10010).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from minigrid.core.actions import Actions
from minigrid.core.constants import COLOR_TO_IDX, DIR_TO_VEC, IDX_TO_COLOR, OBJECT_TO_IDX, STATE_TO_IDX
from minigrid.core.mission import MissionSpace
from minigrid.core.roomgrid import RoomGrid
from minigrid.core.world_object import Ball, Box, Door, Key, Wall, WorldObj

from qualcheck.envs.babyai import goals, reward, start
from qualcheck.envs.babyai.kernel import CODES
from qualcheck.envs.babyai.layout import (
    ACTIONS,
    CODE_SIZE,
    DOWN,
    DROP,
    HORIZON,
    LEFT,
    OBS_SIZE,
    PICKUP,
    RIGHT,
    TOGGLE,
    TYPES,
    UP,
)
from qualcheck.errors import UsageError, unknown_name
from qualcheck.types import AnyArray, IntArray

ROOM_SIZE = 8  # cells, walls included; two rooms share a wall, which makes the grid 15 x 8
EAST, SOUTH, WEST, NORTH = range(4)  # MiniGrid's headings
HEADINGS = {LEFT: WEST, RIGHT: EAST, UP: NORTH, DOWN: SOUTH}  # absolute move -> heading


class World(RoomGrid):
    """Two rooms, one ball, one box, one key and one door, moved by the seven absolute actions.

    Positions inside are MiniGrid's (x, y); rows of numbers are (row, col) = (y, x).
    """

    def __init__(self) -> None:
        super().__init__(
            room_size=ROOM_SIZE,
            num_rows=1,
            num_cols=2,
            max_steps=2**31,  # the horizon is the caller's: one action here takes several MiniGrid steps
            mission_space=MissionSpace(mission_func=lambda: "imagined"),
        )
        make: dict[str, Any] = {"ball": Ball, "box": Box, "key": Key}  # some of MiniGrid is not typed
        self.things: tuple[WorldObj, ...] = tuple(make[name]("red") for name in TYPES[:3])
        self.door: Any = Door("red")
        self.carrying: Any = None
        self.grid: Any
        self._taken: list[tuple[int, int]] = []  # cells that hold an object
        self._door_cell: tuple[int, int] | None = None
        super().reset(seed=0)  # the seed places nothing that a row does not place again
        self._room = self.get_room(0, 0)

    def gen_obs(self) -> dict[str, Any]:
        """Nothing: the picture of the agent's view is never read, and making it takes most of a MiniGrid step."""
        return {}

    def restore(self, row: Sequence[float]) -> int:
        """Put the world into a row of 17 numbers; 0 if done, else why not as an index into `kernel.CODES`.

        Only cells of objects are touched. After a refusal the world is in no defined state. Columns 15 and 16
        follow from the rest and are not read.
        """
        if not all(math.isfinite(number) for number in row):
            return CODES.index("non_finite")
        if any(number != int(number) for number in row):
            return CODES.index("not_integer")
        values = [int(number) for number in row]
        self._clear()
        colours, door_cell = values[0:12:3], (values[11], values[10])
        cells = [(values[i + 1], values[i]) for i in (1, 4, 7)]
        agent = (values[14], values[13])
        state = {number: name for name, number in STATE_TO_IDX.items()}.get(values[12])
        corner = self._room.top
        placed = [cell for cell in cells if 0 not in cell]
        possible = (
            all(colour in IDX_TO_COLOR for colour in colours)
            and state is not None
            and all(self._is_floor(cell) for cell in (*placed, agent))
            and all(0 <= x < ROOM_SIZE - 1 and 0 <= y < ROOM_SIZE - 1 for x, y in cells)
            and door_cell in [(ROOM_SIZE - 1, y) for y in range(1, ROOM_SIZE - 1)]
        )
        if not possible:
            return CODES.index("out_of_range")
        if any(0 in cell and cell != corner for cell in cells):
            return CODES.index("half_carried")
        if cells.count(corner) > 1:
            return CODES.index("two_carried")
        for thing, cell, colour in zip(self.things, cells, colours, strict=False):
            thing.color = IDX_TO_COLOR[colour]
            if cell == corner:
                self.carrying = thing
            elif self.grid.get(*cell) is not None:
                return CODES.index("overlap")
            else:
                self._put(thing, cell)
        self.door.color = IDX_TO_COLOR[colours[3]]
        self.door.is_open, self.door.is_locked = state == "open", state == "locked"
        self._put(self.door, door_cell)
        self._door_cell = door_cell
        self.agent_pos, self.agent_dir = agent, NORTH
        return 0

    def _is_floor(self, cell: tuple[int, int]) -> bool:
        return bool(self._room.pos_inside(*cell)) and self.grid.get(*cell) is None

    def _put(self, thing: WorldObj, cell: tuple[int, int]) -> None:
        self.grid.set(*cell, thing)
        thing.cur_pos = cell
        self._taken.append(cell)

    def _clear(self) -> None:
        for cell in self._taken:
            self.grid.set(*cell, None)
        if self._door_cell is not None:
            self.grid.set(*self._door_cell, Wall())
        self._taken, self._door_cell, self.carrying = [], None, None

    def act(self, action: int) -> None:
        """Carry out one of the seven absolute actions by MiniGrid steps.

        Raises:
            ValueError: the action is not 0..6.
        """
        if action in HEADINGS:
            self._move(HEADINGS[action])
        elif action in (PICKUP, DROP):
            self._handle(Actions.pickup if action == PICKUP else Actions.drop)
        elif action == TOGGLE:
            self._toggle()
        else:
            raise ValueError(f"action {action!r} is none of the seven: 0 to 6")

    def _turn(self, heading: int) -> None:
        while self.agent_dir != heading:
            super().step(Actions.right)

    def _move(self, heading: int) -> None:
        self._turn(heading)
        ahead = (int(self.front_pos[0]), int(self.front_pos[1]))
        thing = self.grid.get(*ahead)
        if thing is self.door:
            return  # in MiniGrid an open door can be walked through; in the benchmark no door can
        if thing in self.things:  # lifted out of the way: the agent may stand on objects
            self.grid.set(*ahead, None)
        super().step(Actions.forward)
        if thing in self.things:
            self.grid.set(*ahead, thing)

    def _handle(self, action: Actions) -> None:
        """Pick up or drop on the agent's own cell, by facing that cell from the one before it."""
        own = (int(self.agent_pos[0]), int(self.agent_pos[1]))
        dx, dy = DIR_TO_VEC[self.agent_dir]
        self.agent_pos = (own[0] - int(dx), own[1] - int(dy))
        super().step(action)
        self.agent_pos = own
        if own not in self._taken:
            self._taken.append(own)

    def _toggle(self) -> None:
        for heading in (EAST, SOUTH, WEST, NORTH):
            dx, dy = DIR_TO_VEC[heading]
            beside = self.grid.get(self.agent_pos[0] + int(dx), self.agent_pos[1] + int(dy))
            if beside is self.door:
                self._turn(heading)
                super().step(Actions.toggle)

    def row(self) -> list[int]:
        """The 17 numbers of the world as it is, read off the grid."""
        where = {id(thing): divmod(i, self.grid.width) for i, thing in enumerate(self.grid.grid) if thing is not None}
        row: list[int] = []
        for thing in self.things:
            row += [COLOR_TO_IDX[thing.color], *where.get(id(thing), (0, 0))]
        _, colour, state = self.door.encode()
        row += [colour, *where[id(self.door)], state, int(self.agent_pos[1]), int(self.agent_pos[0])]
        held = self.carrying
        row += [0, 0] if held is None else [OBJECT_TO_IDX[held.type], COLOR_TO_IDX[held.color]]
        return row


def referee(obs: AnyArray, action: AnyArray) -> tuple[AnyArray, IntArray]:
    """Single steps in the simulator, each from its own row: (R, 17), (R,) -> end rows (R, 17) int8, codes (R,) int8.

    A code is an index into `kernel.CODES`: 0, illegal_start or bad_action; the end row is 0 where it is not 0.
    """
    world = World()
    end = np.zeros((len(obs), OBS_SIZE), np.int8)
    code = np.zeros(len(obs), np.int8)
    for i, (row, chosen) in enumerate(zip(obs.tolist(), action.reshape(len(obs)).tolist(), strict=True)):
        if world.restore(row):
            code[i] = CODES.index("illegal_start")
        elif chosen not in range(len(ACTIONS)):
            code[i] = CODES.index("bad_action")
        else:
            world.act(int(chosen))
            end[i] = world.row()
    return end, code


class BabyAIEnv(gymnasium.Env[AnyArray, int]):
    """One task of the benchmark as an environment: 17 numbers (and 768 of the instruction, if given), seven actions.

    An episode ends with the goal, or after 128 steps. Resets follow the benchmark's distribution; unlike there all
    randomness comes from the seed of `reset`, and colours the task does not fix are drawn anew each time.
    """

    metadata: dict[str, Any] = {"render_modes": []}  # noqa: RUF012  # gymnasium reads it off the class

    def __init__(
        self,
        task: str,
        predicates: str = "intended",
        params: Sequence[str] | None = None,
        instruction_code: AnyArray | None = None,
        level: str | None = None,
        horizon: int = HORIZON,
    ) -> None:
        """Args:
            task: an id of `goals.TASKS`.
            predicates: "intended" (the goal by meaning) or "released" (the benchmark's own test).
            params: see `start.Starts`; so is the level.
            instruction_code: (768,) appended to every observation.
            horizon: steps of an episode.

        Raises:
            UnknownName: no such task, level or predicate set.
            UsageError: parameters or code do not fit.
        """
        self._starts = start.Starts(task, params, level)
        if predicates not in ("intended", "released"):
            raise unknown_name("predicate set", predicates, ["intended", "released"])
        if instruction_code is not None and np.shape(instruction_code) != (CODE_SIZE,):
            found = np.shape(instruction_code)
            raise UsageError(f"BabyAI instruction code: shape {found}; expected ({CODE_SIZE},), one code.")
        self.task, self.predicates, self.horizon = task, predicates, horizon
        self._code = np.asarray([] if instruction_code is None else instruction_code, np.float32)
        self._world = World()
        self._steps = 0
        high = np.concatenate([np.full(OBS_SIZE, 7, np.float32), np.full(len(self._code), np.inf, np.float32)])
        low = np.concatenate([np.zeros(OBS_SIZE, np.float32), np.full(len(self._code), -np.inf, np.float32)])
        self.observation_space = spaces.Box(low, high, dtype=np.float32)
        self.action_space: Any = spaces.Discrete(len(ACTIONS))

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[AnyArray, dict[str, Any]]:
        """Start an episode; `options={"row": row}` starts it in that row of 17 numbers.

        Raises:
            UsageError: the simulator cannot be put into the given row.
        """
        super().reset(seed=seed)
        drawn, self.params, self.instruction = self._starts.draw(self.np_random)
        self._role = goals.roles(self.params)[:, None]  # (4, 1)
        row = (options or {}).get("row")
        row = drawn if row is None else row
        if len(row) != len(drawn):
            raise UsageError(f"BabyAI reset: a row of {len(row)} numbers; expected {len(drawn)}.")
        code = self._world.restore(np.asarray(row, np.float64).tolist())
        if code:
            raise UsageError(f"BabyAI reset: row {list(row)} is no state of the world ({CODES[code]}).")
        self._steps = 0
        self._row = self._column()
        self._effort = self._first_effort = reward.effort(self.task, self._row, self._role)
        return self._obs(), self._info(False)

    def step(self, action: int) -> tuple[AnyArray, float, bool, bool, dict[str, Any]]:
        """Carry out one action and judge the row after it.

        Raises:
            ValueError: the action is not 0..6.
        """
        self._world.act(int(action))
        self._steps += 1
        self._row = self._column()
        before, self._effort = self._effort, reward.effort(self.task, self._row, self._role)
        intended, released, _ = goals.holds(self.task, self._row, self._role)
        goal = intended if self.predicates == "intended" else released
        gain = reward.combine(goal, before, self._effort, self._first_effort, np.array([self._steps]))
        done = bool(goal[0])
        return self._obs(), float(gain[0]), done, self._steps >= self.horizon, self._info(done)

    def _info(self, success: bool) -> dict[str, Any]:
        return {"is_success": success, "instruction": self.instruction}

    def _column(self) -> AnyArray:
        return np.array(self._world.row(), np.int8)[:, None]  # (17, 1)

    def _obs(self) -> AnyArray:
        return np.concatenate([self._row[:, 0].astype(np.float32), self._code])
