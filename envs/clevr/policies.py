"""How recordings act, many episodes in lockstep: at random, greedily, and with a look at what each action would do.

The looking one simulates all 40 actions from the full state of an episode and takes the one after which the balls are
cheapest: the sum, over the sub-goals, of the way a ball still has to the spot where its sub-goal holds. One step is not
far ahead where several sub-goals are in each other's way, so that there some of its actions are greedy ones.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from qualcheck.envs.clevr import goals, measures
from qualcheck.envs.clevr.dynamics import XY, Dynamics, at_rest, state_of
from qualcheck.envs.clevr.goals import COMBINED, GATHER, ORDER, PUSH, STILL, TAU, WAY_VECTORS, Roles
from qualcheck.envs.clevr.layout import ACTIONS, BALLS, DIRECTIONS, HORIZON, OBS_SIZE, xy
from qualcheck.errors import unknown_name
from qualcheck.types import BoolArray, FloatArray, IntArray

POLICIES = ("random", "greedy", "look")
STRAY = 0.2  # share of greedy actions that are random, since a blocked push repeats itself for ever
JITTER_M = 0.02  # noise on the cost of looking, for the same reason
HEADSTRONG = 0.3  # share of greedy actions of the looking one where several sub-goals hinder each other
MISSED_M = 0.05  # cost of a sub-goal that does not hold, beside the way to its spot
BESIDE_M = 0.30  # from the reference ball to the spot beside it
DETOUR_M = 0.34  # from a ball in the way to where one goes round it
OUTSIDE = 3.0  # cost of a metre that a spot lies in a wall
GATHER_M = 0.29
LINE_STEP_M = (0.232, 0.059)  # five balls in a row are too long for the table, a zigzag just fits

_PUSH = measures.UNITS  # (8, 2)
_LINE = np.stack([LINE_STEP_M[0] * (np.arange(len(BALLS)) - 2), LINE_STEP_M[1] * (-1.0) ** np.arange(len(BALLS))], 1)


def _outside(spot: FloatArray) -> FloatArray:
    """How far spots lie in the walls, (..., 2) -> (...) m."""
    deep: FloatArray = np.maximum(np.maximum(measures.LOW_M - spot, spot - measures.HIGH_M), 0).sum(axis=-1)
    return deep


def _waypoint(ball: FloatArray, spot: FloatArray, block: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Where to go first on the way to a spot round a ball that may block it, (B, 2) each -> (B, 2), length (B,)."""
    way = spot - ball
    length = np.linalg.norm(way, axis=1)
    unit = way / np.maximum(length, 1e-9)[:, None]
    along = ((block - ball) * unit).sum(axis=1)
    aside = (block - ball) - along[:, None] * unit
    blocked = (along > 0) & (along < length) & ((aside**2).sum(axis=1) < (measures.DIAMETER_M - 0.02) ** 2)
    across = np.stack([-unit[:, 1], unit[:, 0]], axis=1)
    first, best = spot, np.full(len(ball), np.inf)
    for side in (1, -1):
        corner = block + side * DETOUR_M * across
        cost = np.linalg.norm(corner - ball, axis=1) + np.linalg.norm(spot - corner, axis=1)
        cost += OUTSIDE * _outside(corner)
        first, best = np.where((cost < best)[:, None], corner, first), np.minimum(cost, best)
    return np.where(blocked[:, None], first, spot), np.where(blocked, best, length)


def _beside(centre: FloatArray, part: IntArray) -> tuple[IntArray, FloatArray, FloatArray]:
    """Of a sub-goal: ball to push, where to first, and the cost. (B, 5, 2), (B, 3) -> (B,), (B, 2), (B,)."""
    each = np.arange(len(centre))
    ball, reference = centre[each, part[:, 0]], centre[each, part[:, 1]]
    direction = WAY_VECTORS[part[:, 2]]
    wanted = reference + BESIDE_M * direction
    outside = _outside(wanted)
    spot = np.clip(wanted, measures.LOW_M, measures.HIGH_M)
    first, cost = _waypoint(ball, spot, reference)
    holds = goals.beside(centre, part)
    cost = np.where(holds, 0, cost + OUTSIDE * outside + MISSED_M)
    # a reference ball at the wall leaves no room beside it: it is moved first
    aside = outside > 0.12
    mover = np.where(aside, part[:, 1], part[:, 0])
    return mover, np.where(aside[:, None], reference - direction, first), cost


def _line_spots(centre: FloatArray) -> FloatArray:
    """Spots of a zigzag line nearest to where the balls are, (B, 5, 2) -> (B, 5, 2)."""
    low, high = measures.LOW_M[1] + LINE_STEP_M[1], measures.HIGH_M[1] - LINE_STEP_M[1]
    middle = np.clip(centre[:, :, 1].mean(axis=1), low, high)
    spots = np.stack([_LINE, _LINE * [1, -1]])[None] + np.stack([np.zeros_like(middle), middle], 1)[:, None, None]
    ways = np.linalg.norm(spots - centre[:, None], axis=3).sum(axis=2)  # (B, 2)
    nearest: FloatArray = spots[np.arange(len(centre)), ways.argmin(axis=1)]
    return nearest


def cost(centre: FloatArray, task: Roles) -> FloatArray:
    """Way that balls still have to where their sub-goals hold, with a surcharge each, (B, 5, 2) -> (B,) m."""
    total = np.zeros(len(centre))
    for place in range(3):
        at = np.flatnonzero(np.isin(task.kind, (TAU, COMBINED)) & (task.part[:, place, 0] >= 0))
        total[at] += _beside(centre[at], task.part[at, place])[2]
    at = np.flatnonzero(task.kind == GATHER)
    away = np.linalg.norm(np.delete(centre[at], goals.CENTRE, axis=1) - centre[at, goals.CENTRE, None], axis=2)
    total[at] += (np.maximum(away - GATHER_M, 0) + MISSED_M * (away >= goals.GATHERED_M)).sum(axis=1)
    at = np.flatnonzero(task.kind == ORDER)
    away = np.linalg.norm(_line_spots(centre[at]) - centre[at], axis=2)
    total[at] += away.sum(axis=1) + MISSED_M * (~goals.in_line(centre[at])).sum(axis=1)
    return total


def random(n: int, rng: np.random.Generator) -> IntArray:
    """Any action, (n,)."""
    return rng.integers(0, ACTIONS, n)


def _right_pushes(task: Roles, at: IntArray, rng: np.random.Generator) -> IntArray:
    """One of the actions that meet an easy goal, (b,)."""
    allowed = goals.PUSHES[:, task.part[at, 0, 2]].T  # (b, 8)
    direction = np.where(allowed, rng.random(allowed.shape), -1).argmax(axis=1)
    action: IntArray = task.part[at, 0, 0] * np.int64(len(DIRECTIONS)) + direction
    return action


def greedy(centre: FloatArray, task: Roles, rng: np.random.Generator) -> IntArray:
    """Push a ball of the first sub-goal that does not hold towards its spot; one action in five is random, (B,)."""
    each = np.arange(len(centre))
    ball, spot = rng.integers(0, len(BALLS), len(centre)), rng.uniform(-1, 1, (len(centre), 2))
    for place in reversed(range(3)):
        at = np.flatnonzero(np.isin(task.kind, (TAU, COMBINED)) & (task.part[:, place, 0] >= 0))
        mover, first, missing = _beside(centre[at], task.part[at, place])
        todo = missing > 0
        ball[at[todo]], spot[at[todo]] = mover[todo], first[todo]
    for kind in (GATHER, ORDER):
        at = np.flatnonzero(task.kind == kind)
        wanted = centre[at, goals.CENTRE, None] if kind == GATHER else _line_spots(centre[at])
        furthest = np.linalg.norm(wanted - centre[at], axis=2).argmax(axis=1)
        ball[at], spot[at] = furthest, np.broadcast_to(wanted, centre[at].shape)[np.arange(len(at)), furthest]
    direction = ((spot - centre[each, ball]) @ _PUSH.T).argmax(axis=1)
    action: IntArray = ball * len(DIRECTIONS) + direction
    stray = (rng.random(len(centre)) < STRAY) | (task.kind == STILL)
    action[stray] = random(int(stray.sum()), rng)
    at = np.flatnonzero((task.kind == PUSH) & ~stray)
    action[at] = _right_pushes(task, at, rng)
    return action


def look(state: FloatArray, task: Roles, dynamics: Dynamics, rng: np.random.Generator) -> IntArray:
    """The action after which the cost is least, of all 40 in the simulator, (B, 69) -> (B,)."""
    action = np.zeros(len(state), np.int64)
    push = task.kind == PUSH
    action[push] = _right_pushes(task, np.flatnonzero(push), rng)
    at = np.flatnonzero(~push)
    if not len(at):
        return action
    every = np.tile(np.arange(ACTIONS), len(at))
    end, sound = dynamics.step(np.repeat(state[at], ACTIONS, axis=0), every)
    after = np.nan_to_num(end[:, XY])  # (b * 40, 5, 2)
    repeated = np.repeat(at, ACTIONS)
    price = cost(after, task.of(repeated)) + rng.uniform(0, JITTER_M, len(after))
    still = task.kind[repeated] == STILL
    price[still] = np.abs(after - state[repeated][:, XY]).max(axis=(1, 2))[still]
    price[~sound] = np.inf
    action[at] = price.reshape(len(at), ACTIONS).argmin(axis=1)
    at = np.flatnonzero(np.isin(task.kind, (COMBINED, ORDER)) & (rng.random(len(state)) < HEADSTRONG))
    action[at] = greedy(state[at][:, XY], task.of(at), rng)
    return action


def reached(task: Roles, before: FloatArray, after: FloatArray, action: IntArray) -> BoolArray:
    """Whether the intended goal holds after one step, (B, 5, 2) twice and (B,) -> (B,)."""
    held, number = goals.counts(after, task)
    holds: BoolArray = (number > 0) & (held == number)
    push, still = task.kind == PUSH, task.kind == STILL
    holds[push] = goals.pushed(action[push], task.part[push, 0])
    holds[still] = goals.at_rest(before[still], after[still])
    return holds


@dataclass(frozen=True)
class Played:
    """Episodes as rectangles; what lies behind the end of an episode is zero, and its action -1."""

    obs: FloatArray  # (N, T+1, 10), float32 as the benchmark stores rows
    action: IntArray  # (N, T)
    length: IntArray  # (N,)
    won: BoolArray  # (N,) the intended goal holds after the last action


def horizon_of(task: Roles) -> IntArray:
    """Steps of an episode: one for the easy goals, else 50, (N,)."""
    return np.where((task.kind == PUSH) | (task.kind == STILL), 1, HORIZON)


def play(
    start: FloatArray,
    task: Roles,
    policy: IntArray,
    dynamics: Dynamics,
    rng: np.random.Generator,
    horizon: int = HORIZON,
    noise: float = 0.0,
) -> Played:
    """Episodes from first rows at rest, all advanced together; each ends with its goal or at its horizon.

    Args:
        start: (N, 10) first rows, m.
        task: that of each episode.
        policy: (N,) index into `POLICIES`.
        dynamics: the simulator.
        rng: draws actions.
        horizon: at most so many steps.
        noise: share of the actions that are random whatever the policy.
    """
    n, last = len(start), np.minimum(horizon_of(task), horizon)
    longest = int(last.max(initial=0))
    obs = np.zeros((n, longest + 1, OBS_SIZE), np.float32)
    action = np.full((n, longest), -1, np.int64)
    length, won = np.zeros(n, np.int64), np.zeros(n, bool)
    obs[:, 0] = start
    state = state_of(xy(obs[:, 0]), at_rest(n))  # of the row as it is stored
    alive = np.flatnonzero(last > 0)
    for step in range(longest):
        if not len(alive):
            break
        action[alive, step] = act(state[alive], task.of(alive), policy[alive], dynamics, rng)
        if noise:
            stray = alive[rng.random(len(alive)) < noise]
            action[stray, step] = random(len(stray), rng)
        end, sound = dynamics.step(state[alive], action[alive, step])
        alive, end = alive[sound], end[sound]  # an episode that MuJoCo gives up ends before
        state[alive] = end
        obs[alive, step + 1] = end[:, XY].reshape(-1, OBS_SIZE)
        length[alive] = step + 1
        before, after = xy(obs[alive, step]), xy(obs[alive, step + 1])
        won[alive] = reached(task.of(alive), before, after, action[alive, step])
        alive = alive[~won[alive] & (length[alive] < last[alive])]
    return Played(obs, action, length, won)


def act(state: FloatArray, task: Roles, policy: IntArray, dynamics: Dynamics, rng: np.random.Generator) -> IntArray:
    """The action of each episode's policy, (B, 69), (B,) -> (B,)."""
    chosen = random(len(state), rng)
    at = np.flatnonzero(policy == POLICIES.index("greedy"))
    chosen[at] = greedy(state[at][:, XY], task.of(at), rng)
    at = np.flatnonzero(policy == POLICIES.index("look"))
    if len(at):
        chosen[at] = look(state[at], task.of(at), dynamics, rng)
    return chosen


def number_of(policy: str) -> int:
    """Index into `POLICIES`.

    Raises:
        UnknownName: no such policy.
    """
    if policy not in POLICIES:
        raise unknown_name("CLEVR-Robot policy", policy, list(POLICIES))
    return POLICIES.index(policy)
