"""What really is right about a rollout, found by stepping MiniGrid.

Nothing here asks the checks or the vectorised kernel that the labels are to test, and the goals are judged a second
time, on MiniGrid's own objects.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from qualcheck.demo.episode import Episode, pack
from qualcheck.envs.babyai.simulator import World
from qualcheck.types import AnyArray, Placement, Rollouts

Cell = tuple[int, int]  # (row, col)
INNER = (1, 6)
CENTRE = (3, 4)


def reached(world: World, placement: Placement) -> tuple[bool, bool]:
    """Whether the world as it stands fulfils a task by meaning, and by the benchmark's own test."""
    meant = _meant(world, placement)
    return meant, meant and placement.task != "open_pick"  # the benchmark's test of that task is inverted


def _meant(world: World, placement: Placement) -> bool:
    task, params = placement.task, placement.params
    agent: Cell = (int(world.agent_pos[1]), int(world.agent_pos[0]))
    lying = _lying(world)
    opened = bool(world.door.is_open)
    if task in ("open", "open_lock"):
        return opened and (not params or world.door.color == params[0])
    if task == "open_go":
        return opened and any(lying.get(kind) == agent for kind in ("ball", "box", "key"))
    if task == "open_pick":
        return opened and world.carrying is not None
    if task == "go_wall":
        return any(place in INNER for place in agent)
    if task == "go_center":
        return all(place in CENTRE for place in agent)
    if task == "pickup":
        held = world.carrying
        return held is not None and (held.color, held.type) == params
    if task == "goto":
        cell = _named(world, lying, *params)
        return cell is not None and agent == ((cell[0], cell[1] - 1) if params[1] == "door" else cell)
    if task == "putnext":
        return _touching(_named(world, lying, *params[:2]), _named(world, lying, *params[2:]))
    return _arranged(task, [lying.get(kind) for kind in ("ball", "box", "key")])


def _lying(world: World) -> dict[str, Cell]:
    """Where each object stands that is not carried."""
    width = world.grid.width
    return {
        thing.type: divmod(at, width)
        for at, thing in enumerate(world.grid.grid)
        if thing is not None and thing.type != "wall" and (thing.type != "door" or thing is world.door)
    }


def _named(world: World, lying: dict[str, Cell], colour: str, kind: str) -> Cell | None:
    thing = next(thing for thing in (*world.things, world.door) if thing.type == kind)
    return lying.get(kind) if thing.color == colour else None


def _touching(one: Cell | None, other: Cell | None) -> bool:
    return one is not None and other is not None and abs(one[0] - other[0]) + abs(one[1] - other[1]) == 1


def _arranged(task: str, cells: list[Cell | None]) -> bool:
    if any(cell is None for cell in cells):
        return False
    line = any(len({cell[axis] for cell in cells if cell}) == 1 for axis in (0, 1))
    if task == "put_line":
        return line
    pairs = sum(_touching(cells[one], cells[other]) for one, other in ((0, 1), (0, 2), (1, 2)))
    return pairs >= 2 and not line


def correct(rollouts: Rollouts) -> AnyArray:
    """1 where MiniGrid, put into a row, reaches the next one, 0 where not, -1 out of rows it refuses, (M,) int8."""
    world = World()
    starts, ends = rollouts.start_obs.tolist(), rollouts.end_obs.tolist()
    label = np.empty(rollouts.n_transitions, np.int8)
    for at, (row, action, end) in enumerate(zip(starts, rollouts.action.tolist(), ends, strict=True)):
        if world.restore(row):
            label[at] = -1
        else:
            world.act(action)
            label[at] = world.row() == end
    return label


def _imagined(world: World, rows: list[list[float]], placement: Placement) -> Iterator[tuple[bool, bool]]:
    for row in rows[1:]:
        yield (False, False) if world.restore(row) else reached(world, placement)


def _replayed(world: World, row: list[float], actions: list[int], placement: Placement) -> Iterator[tuple[bool, bool]]:
    if world.restore(row):
        return
    for action in actions:
        world.act(action)
        yield reached(world, placement)


def goals(rollouts: Rollouts, placements: Sequence[Placement]) -> dict[str, list[int]]:
    """Whether each rollout reaches its goal after row 0, as imagined and with its actions executed from row 0.

    Args:
        placements: (N,) the task of each rollout.

    Returns:
        `goal_imagined`, `goal_replayed` and the same with `_released`, (N,) 0 or 1 each.
    """
    world = World()
    names = ("goal_imagined", "goal_imagined_released", "goal_replayed", "goal_replayed_released")
    found: dict[str, list[int]] = {name: [] for name in names}
    for rollout, placement in enumerate(placements):
        rows = rollouts.obs[rollouts.row_offsets[rollout] : rollouts.row_offsets[rollout + 1]].tolist()
        actions = rollouts.action[rollouts.offsets[rollout] : rollouts.offsets[rollout + 1]].tolist()
        claims = list(_imagined(world, rows, placement))
        facts = list(_replayed(world, rows[0], actions, placement))
        for name, (steps, which) in zip(names, ((claims, 0), (claims, 1), (facts, 0), (facts, 1)), strict=True):
            found[name].append(int(any(step[which] for step in steps)))
    return found


def labelled(episodes: Sequence[Episode]) -> Rollouts:
    """The episodes as one batch, with their labels as extra columns."""
    rollouts = pack(episodes)
    per_rollout: dict[str, list[Any]] = {
        **goals(rollouts, [episode.start.placement for episode in episodes]),
        "fault": [episode.fault for episode in episodes],
        "fault_step": [episode.fault_step for episode in episodes],
    }
    return replace(rollouts, extra_rollout=per_rollout, extra_step={"correct": correct(rollouts)})
