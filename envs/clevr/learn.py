"""The numbers behind the limits of the laws: the largest that real rollouts show.

`python -m qualcheck.envs.clevr.learn --halves GOLDEN... --whole KALM` prints them, source by source; `rules.LIMITS` has
them with a margin. Of the files after `--halves` only even-numbered rollouts are used, so that the odd ones stay a
test. Recordings of tasks seldom pile balls up; two of the policies here do little else.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np

from qualcheck.cut import cut
from qualcheck.envs.clevr import measures, reset, rules
from qualcheck.envs.clevr.dynamics import FAMILIES, XY, Dynamics, at_rest, state_of
from qualcheck.envs.clevr.layout import ACTIONS, BALLS, DIRECTIONS, HORIZON, SPEC, actions_of, xy
from qualcheck.io import open_source
from qualcheck.types import FloatArray, IntArray, Rollouts

POLICIES = ("random", "stubborn", "pile", "wall")
ROLLOUTS_EACH = 250
SEED = 7

Extremes = dict[str, float]


def of_arrays(before: FloatArray, after: FloatArray, action: IntArray) -> Extremes:
    """The extreme of each measure over steps, (M, 5, 2) twice and (M,); infinite where a measure never applies."""
    values = {**measures.of_rows(after), **measures.of_steps(before, after, action)}
    return {name: float(value.min() if name in rules.SMALLEST else value.max()) for name, value in values.items()}


def of_rollouts(rollouts: Rollouts) -> Extremes:
    """The same over all transitions that show their end row."""
    shown = np.flatnonzero(rollouts.has_end)
    before, after = xy(rollouts.start_obs[shown]), xy(rollouts.end_obs[shown])
    return of_arrays(before, after, actions_of(rollouts.action)[shown])


def merge(parts: Iterable[Mapping[str, float]]) -> Extremes:
    """The most extreme of several, by name."""
    found: Extremes = {}
    for part in parts:
        for name, value in part.items():
            worst = min if name in rules.SMALLEST else max
            found[name] = worst(value, found.get(name, value))
    return found


def choose(policy: str, centre: FloatArray, last: IntArray, rng: np.random.Generator) -> IntArray:
    """Next actions of one of `POLICIES`, (n, 5, 2), (n,) -> (n,).

    "stubborn" mostly repeats its last action, "pile" pushes balls to the middle of all, "wall" one ball outwards.
    """
    n, each = len(centre), np.arange(len(centre))
    anything = rng.integers(0, ACTIONS, n)
    if policy == "random":
        return anything
    if policy == "stubborn":
        return np.where(rng.random(n) < 0.15, anything, last)
    drawn = rng.integers(0, len(BALLS), n)
    if policy == "pile":
        ball, aim = drawn, centre.mean(axis=1) - centre[each, drawn]
    else:
        ball = np.where(rng.random(n) < 0.3, drawn, last // len(DIRECTIONS))
        aim = centre[each, ball] - (measures.LOW_M + measures.HIGH_M) / 2
    direction = (aim @ measures.UNITS.T).argmax(axis=1)
    return np.where(rng.random(n) < 0.1, anything, ball * len(DIRECTIONS) + direction)


def own_recordings(family: str, n: int, rng: np.random.Generator) -> Extremes:
    """The extremes over rollouts made here, n of each policy, 50 steps from a fresh reset."""
    dynamics, parts = Dynamics(family=family), []
    for policy in POLICIES:
        state = state_of(xy(reset.sample(n, rng)), at_rest(n))
        action: IntArray = rng.integers(0, ACTIONS, n)
        for _ in range(HORIZON):
            before = state[:, XY]
            action = choose(policy, before, action, rng)
            state, _ = dynamics.step(state, action)
            parts.append(of_arrays(before, state[:, XY], action))
    dynamics.close()
    return merge(parts)


def _of_file(path: Path, every: int) -> Extremes:
    parts = []
    for batch in open_source(path, SPEC).batches():
        kept = np.flatnonzero(batch.source_rollout % every == 0)
        if len(kept):
            parts.append(of_rollouts(cut(batch, kept, np.zeros(len(kept), np.int64), batch.length[kept])))
    return merge(parts)


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the extremes of every source, and of all together, as JSON."""
    parser = argparse.ArgumentParser(prog="python -m qualcheck.envs.clevr.learn", description=main.__doc__)
    parser.add_argument("--halves", type=Path, nargs="*", default=[], metavar="FILE", help="even rollouts count")
    parser.add_argument("--whole", type=Path, nargs="*", default=[], metavar="FILE", help="all rollouts count")
    parser.add_argument("--rollouts", type=int, default=ROLLOUTS_EACH, help="own rollouts of each policy and family")
    given = parser.parse_args(arguments)
    sources = {f"{path.name}, even rollouts": _of_file(path, 2) for path in given.halves}
    sources |= {path.name: _of_file(path, 1) for path in given.whole}
    for place, family in enumerate(FAMILIES):
        rng = np.random.default_rng([SEED, place])
        sources[f"own recordings, {family}"] = own_recordings(family, given.rollouts, rng)
    sources["all"] = merge(sources.values())
    rounded = {source: {name: round(v, 4) for name, v in part.items()} for source, part in sources.items()}
    sys.stdout.write(json.dumps(rounded, indent=1) + "\n")


if __name__ == "__main__":
    main()
