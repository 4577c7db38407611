"""A scripted hand for every task of LIBERO, and the scenes it starts from.

The script is a list of legs: go above an object, down, close, lift, carry, open. It is not meant to be clever; it is
there so that recordings hold grasps, carries, drops and misses of all objects. Scenes are those of the benchmark's
start files: where things stand is taken from their ranges, and starts with something in the hand are reached by the
script itself, then stripped of their velocities as the benchmark's reset does.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import mujoco
import numpy as np

from qualcheck.envs.libero.columns import ACTION_SIZE, BODIES, BODY_FIRST, FINGERS, HAND, JOINTS, OBS_SIZE
from qualcheck.envs.libero.controller import STEP_M
from qualcheck.envs.libero.goals import TASK_OF, Task
from qualcheck.envs.libero.kernel import Simulator, _Worker
from qualcheck.envs.libero.layout import HIDDEN_SIZE, RESET_JOINTS, SUBSTEPS, qpos_of
from qualcheck.envs.running_mujoco import quiet
from qualcheck.types import AnyArray, BoolArray, FloatArray

LAGGING = SUBSTEPS - 1  # the substep whose joints the benchmark's sensors show
SETTLE_STEPS = 5  # actions of nothing after a scene is set up, as in the benchmark
GAIN = 1.6  # of the way to a target asked for in a step
OPEN, CLOSE = -1.0, 1.0
UPRIGHT = {  # height of the centre in m, quaternion x, y, z, w
    "alphabet_soup": (0.0384, (0.0023, 0.7077, 0.7065, -0.0023)),
    "cream_cheese": (0.0089, (0.0, 0.0, 1.0, 0.0)),
    "salad_dressing": (0.0727, (0.5, 0.5, 0.5, 0.5)),
    "basket": (-0.0046, (-0.0017, 0.0017, 0.7071, 0.7071)),
}
# centre and half width of the square each body is put down in, m, by the object that the file of starts is named after
SCENES: dict[str, dict[str, tuple[float, float, float]]] = {
    "alphabet_soup": {
        "alphabet_soup": (-0.119, -0.24, 0.0),
        "cream_cheese": (-0.15, 0.06, 0.005),
        "salad_dressing": (0.05, -0.1, 0.0),
    },
    "cream_cheese": {
        "alphabet_soup": (-0.119, -0.24, 0.0),
        "cream_cheese": (0.05, -0.1, 0.005),
        "salad_dressing": (0.1, -0.2, 0.0),
    },
    "salad_dressing": {
        "alphabet_soup": (-0.149, 0.06, 0.0),
        "cream_cheese": (0.1, -0.2, 0.005),
        "salad_dressing": (0.05, -0.1, 0.0),
    },
}
BASKET = (0.0, 0.261, 0.014)
JOINT_SPREAD_RAD = 0.01
HOLD_M = {"alphabet_soup": 0.0, "cream_cheese": 0.003, "salad_dressing": 0.046}  # of the hand above the centre
ABOVE_M, CARRY_M = 0.1, 0.2  # height over an object before going down, and of its centre on the way
RELEASE_M = {"alphabet_soup": 0.14, "cream_cheese": 0.12, "salad_dressing": 0.18}  # height of the centre over a target
OVER_M = 0.08  # higher still on the way there, so that nothing is knocked over
CLOSING_STEPS, OPENING_STEPS = 10, 6
LEG_STEPS = 60  # a leg that takes longer is given up
HELD_M = 0.09  # between the hand and an object that is in it
AROUND_M = 0.15  # higher still where a careful hand passes the basket
TRIES = 6  # of a careful hand at seizing what it has missed or lost
REACH_M = 0.03  # of it above a centre that it only reaches for, which is reached within 0.05


@dataclass(frozen=True)
class Leg:
    """Go with the hand to an offset from a body, or from where the hand was when the leg began."""

    body: str  # of `BODIES`, or "hand"
    offset_m: tuple[float, float, float]
    grip: float
    near_m: float = 0.012
    least_steps: int = 0
    holds: str = ""  # of `BODIES`: what must be in the hand at the end


def seize(name: str) -> list[Leg]:
    """Legs that take an object and lift it."""
    hold = HOLD_M[name]
    return [
        Leg(name, (0.0, 0.0, hold + ABOVE_M), OPEN, 0.02),
        Leg(name, (0.0, 0.0, hold), OPEN, 0.008),
        Leg("hand", (0.0, 0.0, 0.0), CLOSE, 1.0, CLOSING_STEPS),
        Leg("hand", (0.0, 0.0, CARRY_M), CLOSE, 0.02, holds=name),
    ]


def carry(name: str, target: str) -> list[Leg]:
    """Legs that bring a held object over its target and let it go."""
    hold = HOLD_M[name]
    height = hold + RELEASE_M[name]
    return [
        Leg(target, (0.0, 0.0, height + OVER_M), CLOSE, 0.02, holds=name),
        Leg(target, (0.0, 0.0, height), CLOSE, 0.015, holds=name),
        Leg("hand", (0.0, 0.0, 0.0), OPEN, 1.0, OPENING_STEPS),
        Leg("hand", (0.0, 0.0, 0.08), OPEN, 0.02),
    ]


def around(legs: list[Leg]) -> list[Leg]:
    """The legs past the basket's handle: up after every release, and along to the next object up there."""
    out: list[Leg] = []
    for leg in legs:
        if out and out[-1].grip == leg.grip == OPEN and out[-1].body == "hand" and leg.body != "hand":
            out[-1] = replace(out[-1], offset_m=(0.0, 0.0, AROUND_M))
            out.append(replace(leg, offset_m=(0.0, 0.0, leg.offset_m[2] + AROUND_M), near_m=0.03))
        out.append(leg)
    return out


def plan(task: Task) -> list[Leg]:
    """The legs of a task."""
    first = task.objects[0]
    if task.family == "reach":
        return seize(first)[:2]
    if task.family == "pick":
        return seize(first)
    if task.family == "place":  # the hand is at the object already
        return [*seize(first)[2:], *carry(first, task.target)]
    if task.family == "aside":
        return [*seize(first), Leg("hand", (0.05, 0.14, 0.0), CLOSE, 0.02)]
    if task.family == "out":
        away = Leg("hand", (0.0, -0.4, 0.1), CLOSE, 0.03)
        if first == "salad_dressing":  # its neck slips through the settling fingers, and stands out of the basket
            return [Leg("hand", (0.0, 0.0, 0.05), OPEN, 1.0, OPENING_STEPS), *seize(first), away]
        return [*seize(first)[2:], away]  # still held, and out of reach once it lies in the basket
    return [leg for name in task.objects for leg in [*seize(name), *carry(name, task.target)]]


def careful(task: Task) -> list[Leg]:
    """The legs of a task for a careful hand: `around` the basket, and well within reach where reaching is all."""
    legs = around(plan(task))
    if task.family == "reach":
        height = min(legs[-1].offset_m[2], REACH_M)
        legs[-1] = replace(legs[-1], offset_m=(0.0, 0.0, height), least_steps=OPENING_STEPS)
    return legs


class Hand:
    """A script at work: an action for each row."""

    def __init__(
        self, legs: list[Leg], noise: float, turns: bool, rng: np.random.Generator, again: bool = False
    ) -> None:
        """Args:
        legs: what to do, one after the other; afterwards the hand stays.
        noise: standard deviation added to each of the first six numbers of an action.
        turns: False leaves the three rotations at exactly 0, so that the first goal of the turn stays.
        rng: draws the noise.
        again: seize again what was missed or lost on the way.
        """
        self._legs, self._noise, self._turns, self._rng = list(legs), noise, turns, rng
        self._tries = TRIES if again else 0
        self._carried: list[Leg] = []  # legs done since the object was lifted
        self._steps = 0
        self._from: FloatArray | None = None  # (3,) the hand where the leg began

    @property
    def done(self) -> bool:
        return not self._legs

    def act(self, row: AnyArray) -> FloatArray:
        """The action after a row, (44,) -> (7,)."""
        hand = row[HAND : HAND + 3]
        action = np.zeros(ACTION_SIZE)
        if self._legs:
            leg = self._legs[0]
            if self._from is None:
                self._from = hand.copy()
            base = self._from if leg.body == "hand" else row[BODY_FIRST[leg.body] : BODY_FIRST[leg.body] + 3]
            way = base + leg.offset_m - hand
            action[:3], action[6] = GAIN * way / STEP_M, leg.grip
            self._steps += 1
            near = np.abs(way).max() < leg.near_m and self._steps >= leg.least_steps
            if near or self._steps >= LEG_STEPS:
                self._steps, self._from = 0, None
                self._finish(self._legs.pop(0), row)
        action[:6] += self._noise * self._rng.normal(size=6)
        if not self._turns:
            action[3:6] = 0.0
        return np.clip(action, -1.0, 1.0)

    def _finish(self, leg: Leg, row: AnyArray) -> None:
        """Go on to the next leg, or back to the object that should be in the hand and is not."""
        self._carried = [*self._carried, leg] if leg.holds and leg.body != "hand" else []
        if not leg.holds or not self._tries:
            return
        first = BODY_FIRST[leg.holds]
        away = row[first : first + 3] - row[HAND : HAND + 3] + (0.0, 0.0, HOLD_M[leg.holds])
        if np.linalg.norm(away) > HELD_M:
            self._tries -= 1
            back = Leg("hand", (0.0, 0.0, ABOVE_M), OPEN, 0.03)
            self._legs = [back, *seize(leg.holds), *self._carried, *self._legs]


class Live:
    """The simulator in one episode, action after action: the open loop of `Simulator.play`, with policies in it.

    As in the benchmark a row shows the joints one substep before the action's end, and poses one substep earlier.
    """

    def __init__(self, simulator: Simulator) -> None:
        self._simulator, self._worker = simulator, _Worker(simulator.model)
        self._hidden, self._sample_after = simulator.rest.copy(), LAGGING

    def put(self, row: AnyArray, hidden: FloatArray | None = None, sample_after: int = LAGGING) -> None:
        """Begin in a row, (44,), with a hidden state, (43,); None: that of a reset.

        After a row that lags itself, such as a recorded one, the next rows are those after all of the substeps.
        """
        self._sample_after = sample_after
        mujoco.mj_resetData(self._worker.model, self._worker.data)
        self._worker.data.qpos[:] = qpos_of(row[None])[0]
        self._hidden = (self._simulator.rest if hidden is None else hidden).copy()

    def step(self, action: AnyArray) -> tuple[FloatArray, bool]:
        """The row after an action of seven finite numbers, and whether the simulator could do it."""
        before, ends, sound = np.empty((1, HIDDEN_SIZE)), np.full((1, OBS_SIZE), np.nan), np.zeros(1, bool)
        moves, worker = action[None].astype(np.float64), self._worker
        here = worker.data.qpos[None].copy()  # taken on again, which changes nothing
        with quiet():
            self._simulator._compiled.play(
                *(*self._simulator._functions, *worker.address, *worker.views, here, np.ones(1, bool), moves),
                *(self._sample_after, self._hidden, before, ends, sound),
            )
        return ends[0], bool(sound[0])


def scene(name: str, rng: np.random.Generator) -> FloatArray:
    """A row of a scene with the arm near its reset pose, nothing in the hand, (44,)."""
    row = np.zeros(OBS_SIZE)
    spread = np.clip(rng.normal(0, JOINT_SPREAD_RAD, 7), -2 * JOINT_SPREAD_RAD, 2 * JOINT_SPREAD_RAD)
    row[JOINTS], row[FINGERS] = RESET_JOINTS + spread, (0.0205, -0.0205)
    places = {**SCENES[name], "basket": BASKET}
    for body in BODIES:
        (x, y, half), (height, quaternion), first = places[body], UPRIGHT[body], BODY_FIRST[body]
        row[first : first + 2] = np.array([x, y]) + rng.uniform(-half, half, 2)
        row[first + 2], row[first + 3 : first + 7] = height, quaternion
    return row


def draw(live: Live, start: str, rng: np.random.Generator) -> FloatArray:
    """A row like those of one of the nine files of starts, (44,), before it has settled.

    Args:
        live: the simulator, which plays the script up to the start; where it was is forgotten.
        start: of `reset.STARTS`: "pick-" the scene alone, "place-" the hand at the object, "safe-" the object held over
            the basket.
        rng: draws the scene and where the script is stopped.
    """
    way, name = start.split("-", 1)
    row = scene(name, rng)
    if way == "pick":
        return row
    legs = seize(name)
    if way == "place":
        legs[3] = replace(legs[3], offset_m=(0.0, 0.0, 0.02))
        stop = 2 + int(rng.integers(2))  # open around the object, or closed
    else:
        legs += carry(name, "basket")[:2]
        stop = len(legs)
    live.put(row)
    hand, sound = Hand(legs[:stop], 0.05, True, rng), True
    while sound and not hand.done:
        row, sound = live.step(hand.act(row))
    return row


def settle(live: Live, row: FloatArray) -> FloatArray:
    """Row 0 of an episode: the scene put down at rest and left alone for five steps, (44,) -> (44,)."""
    live.put(row)
    for _ in range(SETTLE_STEPS):
        row, _ = live.step(np.zeros(ACTION_SIZE))
    return row


def episode(
    live: Live,
    task: str,
    start: str,
    acts: bool,
    longest: int,
    rng: np.random.Generator,
    noise: float | None = None,
    first: FloatArray | None = None,
) -> tuple[FloatArray, FloatArray, BoolArray]:
    """An episode from a fresh scene: rows (T+1, 44), actions (T, 7), and whether each step was sound (T,).

    Args:
        live: the simulator.
        task: id of the task whose script is played; once it is done the hand stays, with its noise.
        start: see `draw`.
        acts: False draws every action uniformly instead.
        longest: T.
        rng: draws everything.
        noise: standard deviation added to the three translations of a careful hand; None: a hasty one, which also turns
            and whose noise is drawn.
        first: row of a file of starts to put down, (44,); None: `draw` one.
    """
    rows = [settle(live, draw(live, start, rng) if first is None else first)]
    if noise is None:
        hand = Hand(plan(TASK_OF[task]), float(rng.uniform(0, 0.2)), bool(rng.random() < 0.6), rng)
    else:
        hand = Hand(careful(TASK_OF[task]), noise, False, rng, again=True)
    actions, sounds = [], []
    for _ in range(longest):
        action = hand.act(rows[-1]) if acts else rng.uniform(-1, 1, ACTION_SIZE)
        row, sound = live.step(action.astype(np.float32))
        rows.append(row)
        actions.append(action)
        sounds.append(sound)
        if not sound or (acts and hand.done and len(actions) > 1):
            break
    return np.array(rows), np.array(actions), np.array(sounds)
