"""The sequential filter of CLEVR-Robot: the simulator is carried along each rollout, rows are written over it.

A row hides heights, velocities and spins. From a reset they are known; after that the simulator's own are kept and
only x and y are overwritten by each row. Rollouts advance in lockstep, two batched calls a time step: the carried
simulation of all, then, for those whose hidden state is in doubt, the ones out of the previous row and out of rest.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from qualcheck.envs.clevr.dynamics import XY, Dynamics, at_rest, hidden_of, state_of
from qualcheck.envs.clevr.layout import (
    BAD_ACTION,
    BALLS,
    BRIDGED,
    CARRIED,
    HIDDEN_SIZE,
    HIDDEN_UNKNOWN,
    OBS_SIZE,
    PREVIOUS,
    SETTLED,
    SIMULATOR_WARNING,
    TRUST,
    actions_of,
    from_reset,
    takeable,
    xy,
)
from qualcheck.types import AnyArray, BoolArray, FloatArray, IntArray, Rollouts

SEEDINGS = ("carried", "previous", "rest")
TRUST_M = 1e-4  # real replays from the true hidden state end within 1e-7 m, from a wrong one 3e-3 m off (medians)
TRIES_M = 1e-2  # above every error of a real rollout carried from its reset: only then are other seedings tried
ROUNDINGS = 5.0  # of the last decimal: how far a replay out of rounded rows goes astray
DECIMALS = range(1, 7)


@dataclass(frozen=True)
class Filtered:
    """What the filter makes of every recorded transition."""

    candidates: FloatArray  # (3, M, 10) NaN where not tried or not replayed
    code: IntArray  # (M,) int8
    situation: IntArray  # (M,) int8, 0 settled, 1 unsettled
    hidden: FloatArray  # (M, 82) before each action, NaN where unknown


def trust_of(rollouts: Rollouts, row_code: IntArray) -> FloatArray:
    """How far a replay may end from the next row and still vouch for the hidden state: (N,) m.

    1e-4 m, or five units of the last decimal to which every row of the rollout is rounded.

    Args:
        rollouts: theirs.
        row_code: (R,) of `layout.takeable`; other rows have no say.
    """
    owner = np.repeat(np.arange(rollouts.n_rollouts), np.diff(rollouts.row_offsets))[row_code == 0]  # (r,)
    shown = rollouts.obs[row_code == 0]
    trust = np.full(rollouts.n_rollouts, TRUST_M)
    for decimals in reversed(DECIMALS):  # what is rounded to fewer decimals is rounded to more
        rounded = np.round(shown.astype(np.float64), decimals)
        same = ((shown == rounded) | (shown == rounded.astype(np.float32))).all(axis=1)
        every = np.ones(rollouts.n_rollouts, bool)
        every[owner[~same]] = False
        owner, shown = owner[every[owner]], shown[every[owner]]
        trust[owner] = max(TRUST_M, ROUNDINGS * 10.0**-decimals)
    return trust


def run(rollouts: Rollouts, dynamics: Dynamics) -> Filtered:
    """Replay every transition under each seeding; results of a rollout depend on nothing but it."""
    return _Filter(rollouts, dynamics).run()


class _Filter:
    """The filter in one batch. Arrays of n numbers are in the order of `order`, of which the alive are a prefix."""

    def __init__(self, rollouts: Rollouts, dynamics: Dynamics) -> None:
        self.dynamics = dynamics
        m, n = rollouts.n_transitions, rollouts.n_rollouts
        row_code = takeable(rollouts.obs)
        self.action = actions_of(rollouts.action)  # (M,)
        self.start = xy(rollouts.start_obs)  # (M, 5, 2)
        self.end = xy(rollouts.end_obs)
        self.has_end = rollouts.has_end
        self.shown = row_code[rollouts.row] == 0  # (M,)
        code = row_code[rollouts.row].astype(np.int8)
        code[(code == 0) & (self.action < 0)] = BAD_ACTION
        self.found = Filtered(
            np.full((len(SEEDINGS), m, OBS_SIZE), np.nan), code, np.ones(m, np.int8), np.full((m, HIDDEN_SIZE), np.nan)
        )

        self.order = np.argsort(-rollouts.length, kind="stable")
        self.length = rollouts.length[self.order]  # (n,)
        self.first = rollouts.offsets[:-1][self.order]
        reset = from_reset(rollouts)[self.order]
        given = np.full((n, HIDDEN_SIZE), np.nan)
        if rollouts.hidden is not None and rollouts.hidden.shape[1] == HIDDEN_SIZE:
            given[:] = rollouts.hidden[self.order]
        trust = trust_of(rollouts, row_code)[self.order]
        self.trust = np.where(np.isfinite(given[:, TRUST]), given[:, TRUST], trust)
        # the state before the action to come
        self.hidden = np.where(reset[:, None], at_rest(n), given[:, CARRIED])  # (n, 35)
        self.previous = np.where(reset[:, None], np.nan, given[:, PREVIOUS])  # (n, 35)
        self.centre = given[:, BRIDGED].reshape(n, len(BALLS), 2)  # (n, 5, 2) the simulator's own
        self.centre[reset] = np.nan
        self.settled = reset | (given[:, SETTLED] == 1)
        self.rest = reset.copy()  # (n,) the carried state is that of rest

    def run(self) -> Filtered:
        steps = int(self.length.max(initial=0))
        alive = np.searchsorted(-self.length, -np.arange(steps), side="left")
        for step, n in enumerate(alive):
            self._advance(self.first[:n] + step, step + 1 < self.length[:n])
        return self.found

    def _advance(self, now: IntArray, more: BoolArray) -> None:
        """One time step of the n alive: `now` (n,) are their transitions, `more` says whether another one follows."""
        n = len(now)
        found, shown = self.found, self.shown[now]
        centre = np.where(shown[:, None, None], self.start[now], self.centre[:n])
        known: BoolArray = np.logical_and.reduce(np.isfinite(self.hidden[:n]), axis=1)
        known &= np.logical_and.reduce(np.isfinite(centre), axis=(1, 2))
        self._note(now, known, shown)
        found.code[now[(found.code[now] == 0) & ~known]] = HIDDEN_UNKNOWN
        actable = self.action[now] >= 0
        runs = known & actable
        end = self._step(centre, self.hidden[:n], now, runs)  # (n, 69) NaN elsewhere
        sound = np.isfinite(end[:, 0])
        found.code[now[(found.code[now] == 0) & ~sound]] = SIMULATOR_WARNING
        replayed = found.code[now] == 0
        found.candidates[0, now[replayed]] = end[replayed][:, XY].reshape(-1, OBS_SIZE)

        vouched = self._near(end, self.end[now], self.trust[:n]) & self.has_end[now]
        close = self._near(end, self.end[now], np.maximum(TRIES_M, self.trust[:n]))
        doubt = replayed & ~self.settled[:n] & ~close & self.has_end[now]
        # what the previous row will tell about the next one, should that be in doubt
        after = np.minimum(now + 1, len(self.start) - 1)
        told = more & shown & actable & self.shown[after] & (self.action[after] >= 0)
        lost = shown & actable & ~known
        second, third = self._doubtful(centre, now, doubt, lost | (told & sound & ~vouched), end)
        carried = np.where(lost[:, None], second, end)
        for other in (second, third):  # another seeding that ends on the row knew the hidden state better
            found_it = (
                (doubt | (lost & self.has_end[now])) & ~vouched & self._near(other, self.end[now], self.trust[:n])
            )
            carried[found_it], vouched = other[found_it], vouched | found_it
        then = vouched & self._near(carried, self.start[after], self.trust[:n])  # the next row may be shown differently
        self.hidden[:n], self.centre[:n] = hidden_of(carried), carried[:, XY]
        self.previous[:n] = np.where(told[:, None], hidden_of(second), np.nan)
        self.settled[:n] = then
        self.rest[:n] = False

    def _note(self, now: IntArray, known: BoolArray, shown: BoolArray) -> None:
        """What a cut before these transitions has to carry."""
        n, hidden = len(now), self.found.hidden
        hidden[now, CARRIED] = np.where(known[:, None], self.hidden[:n], np.nan)
        hidden[now, PREVIOUS] = self.previous[:n]
        bridged = known & ~shown
        hidden[now[bridged], BRIDGED] = self.centre[:n][bridged].reshape(-1, OBS_SIZE)
        self.settled[:n] &= known
        hidden[now, SETTLED], hidden[now, TRUST] = self.settled[:n], self.trust[:n]
        self.found.situation[now] = np.where(self.settled[:n], 0, 1)

    def _near(self, end: AnyArray, rows: FloatArray, within_m: FloatArray) -> BoolArray:
        """Simulated ends (n, 69) within some distance (n,) of the rows (n, 5, 2)."""
        near: BoolArray = np.abs(end[:, XY] - rows).max(axis=(1, 2)) <= within_m
        return near

    def _step(self, centre: FloatArray, hidden: FloatArray, now: IntArray, which: BoolArray) -> FloatArray:
        """End states of some of the n, (n, 69), NaN for the others."""
        end = np.full((len(now), 69), np.nan)
        if which.any():
            end[which], _ = self.dynamics.step(state_of(centre[which], hidden[which]), self.action[now[which]])
        return end

    def _doubtful(
        self, centre: FloatArray, now: IntArray, doubt: BoolArray, asked: BoolArray, carried: FloatArray
    ) -> tuple[FloatArray, FloatArray]:
        """Fill in the candidates "previous" and "rest" of those in doubt; the end states of "rest" and "previous".

        Both are (n, 69), NaN where not simulated.

        Args:
            centre: (n, 5, 2) before the action.
            now: (n,) transitions.
            doubt: (n,) whose hidden state is in doubt.
            asked: (n,) whose simulation out of rest is needed besides.
            carried: (n, 69) end states of the carried simulation, which a reset starts at rest.
        """
        n = len(now)
        same = self.rest[:n]
        still = np.flatnonzero((doubt | asked) & ~same)
        told = np.flatnonzero(doubt & np.isfinite(self.previous[:n]).all(axis=1))
        both = np.concatenate([still, told])
        end, before = np.where(same[:, None], carried, np.nan), np.full((n, 69), np.nan)
        if len(both):
            seeds = np.concatenate([at_rest(len(still)), self.previous[told]])
            ends, _ = self.dynamics.step(state_of(centre[both], seeds), self.action[now[both]])
            end[still], before[told] = ends[: len(still)], ends[len(still) :]
            self.found.candidates[1, now[told]] = before[told][:, XY].reshape(-1, OBS_SIZE)
        self.found.candidates[2, now[doubt]] = end[doubt][:, XY].reshape(-1, OBS_SIZE)
        return end, before
