"""The limits of the laws, learnt from real rollouts.

`python -m qualcheck.envs.halfcheetah.learn GOLDEN... --whole CS285 -o envs/halfcheetah/limits.json` makes the table
again: of the files named first only even-numbered rollouts are used, so that the odd ones stay a test.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from qualcheck.cut import cut
from qualcheck.envs.halfcheetah import measures
from qualcheck.envs.halfcheetah.dynamics import Dynamics
from qualcheck.envs.halfcheetah.layout import ACTION_SIZE, BENCHMARK_SIZE, HORIZON, make_spec, state_of
from qualcheck.envs.halfcheetah.reset import sample_states
from qualcheck.io import open_source
from qualcheck.types import FloatArray, Rollouts

ROW_MARGIN, STEP_MARGIN = 1.5, 2.0  # a limit is this many times the largest real value, and never under the one below
LEAST = {  # what trained gallops, faster than any recording at hand, need: 20 m/s and the motions that go with it
    "height_high": 1.5,
    "x_speed": 20.0,
    "z_speed": 10.0,
    "pitch_rate": 25.0,
    "joint_rate": 60.0,
    "displacement": 1.0,
}
POLICIES = ("uniform", "bang-bang", "smooth noise", "sine", "rest")
ROLLOUTS_EACH = 80
SEED = 7

Largest = dict[str, float]


def largest(rollouts: Rollouts) -> Largest:
    """The largest value of each measure over all transitions that show their end row."""
    shown = np.flatnonzero(rollouts.has_end)
    start, end = rollouts.start_obs[shown], rollouts.end_obs[shown]
    moved = end[:, 0].astype(np.float64) if end.shape[1] == BENCHMARK_SIZE else None
    return _peaks(state_of(start), state_of(end), moved)


def _peaks(start: FloatArray, end: FloatArray, moved: FloatArray | None) -> Largest:
    found = {**measures.of_rows(end, moved), **measures.of_steps(start, end, moved)}
    if moved is not None:
        found |= {name: np.maximum(found[name], value) for name, value in measures.of_rows(start, None).items()}
    return {name: float(values.max()) for name, values in found.items()}


def actions(policy: str, n: int, rng: np.random.Generator) -> FloatArray:
    """Actions of n episodes of one of `POLICIES`, (n, 200, 6)."""
    shape = (n, HORIZON, ACTION_SIZE)
    if policy == "uniform":
        return rng.uniform(-1, 1, shape)
    if policy == "bang-bang":
        held = rng.integers(1, 12, (n, 1, 1))
        draw = rng.choice([-1.0, 1.0], shape)
        return np.take_along_axis(draw, np.broadcast_to(np.arange(HORIZON)[:, None] // held, shape), axis=1)
    if policy == "smooth noise":
        noise = rng.normal(0, 1, shape)
        for step in range(1, HORIZON):
            noise[:, step] = 0.8 * noise[:, step - 1] + 0.6 * noise[:, step]
        return np.clip(noise, -1, 1)
    if policy == "sine":
        phase, hertz = rng.uniform(0, 2 * np.pi, (n, 1, ACTION_SIZE)), rng.uniform(0.5, 5, (n, 1, 1))
        wave = np.sin(2 * np.pi * hertz * 0.05 * np.arange(HORIZON)[:, None] + phase)
        return np.clip(1.5 * wave + rng.normal(0, 0.2, shape), -1, 1)
    return np.zeros(shape)


def own_recordings(rng: np.random.Generator) -> Largest:
    """The largest values over rollouts made here, 80 of each policy from fresh resets."""
    dynamics, peaks = Dynamics(), []
    for policy in POLICIES:
        start = sample_states(ROLLOUTS_EACH, rng)[:, 1:]
        action = actions(policy, ROLLOUTS_EACH, rng).reshape(-1, ACTION_SIZE)
        offsets = np.arange(ROLLOUTS_EACH + 1) * HORIZON
        for at, end, moved, _ in dynamics.play(start, action, offsets):
            before = np.concatenate([end[:1], end[:-1]])
            before[at % HORIZON == 0] = start[at[at % HORIZON == 0] // HORIZON]
            peaks.append(_peaks(before, end, moved))
    dynamics.close()
    return merge(peaks)


def merge(peaks: Iterable[Mapping[str, float]]) -> Largest:
    """The largest of several largest values, by name."""
    found: Largest = {}
    for part in peaks:
        found |= {name: max(value, found.get(name, -np.inf)) for name, value in part.items()}
    return found


def table(sources: Mapping[str, Largest]) -> dict[str, Any]:
    """The limits with where each came from: source -> its largest values."""
    total = merge(sources.values())
    margins = dict.fromkeys(measures.ROW_UNITS, ROW_MARGIN) | dict.fromkeys(measures.STEP_UNITS, STEP_MARGIN)
    entries = {
        name: {
            "limit": max(float(f"{margins[name] * total[name]:.3g}"), LEAST.get(name, 0.0)),
            "recorded": float(np.ceil(total[name] * 1e5) / 1e5),
            "unit": unit,
            "largest_real": {source: round(peaks[name], 5) for source, peaks in sources.items() if name in peaks},
        }
        for name, unit in (measures.ROW_UNITS | measures.STEP_UNITS).items()
    }
    return {
        "what": f"limit: largest legal value, {ROW_MARGIN} (rows) or {STEP_MARGIN} (steps) times the largest real one, "
        f"`recorded`, and at least {LEAST}",
        "command": "python -m qualcheck.envs.halfcheetah.learn GOLDEN... --whole FILE... -o FILE",
        "made_with": {name: version(name) for name in ("qualcheck", "mujoco", "numpy")},
        "limits": entries,
    }


def _of_file(path: Path, columns: int, every: int) -> Largest:
    source = open_source(path, make_spec(columns, ""))
    peaks = []
    for batch in source.batches():
        kept = np.flatnonzero(batch.source_rollout % every == 0)
        if len(kept):
            peaks.append(largest(cut(batch, kept, np.zeros(len(kept), np.int64), batch.length[kept])))
    return merge(peaks)


def main(arguments: Sequence[str] | None = None) -> None:
    """Learn all limits and write them to a file."""
    parser = argparse.ArgumentParser(prog="python -m qualcheck.envs.halfcheetah.learn", description=main.__doc__)
    parser.add_argument("halves", type=Path, nargs="+", metavar="FILE", help="18 columns; even-numbered rollouts count")
    parser.add_argument("--whole", type=Path, nargs="*", default=[], metavar="FILE", help="17 columns; all count")
    parser.add_argument("-o", "--output", type=Path, required=True, metavar="FILE", help="JSON file to write")
    given = parser.parse_args(arguments)
    sources = {f"{path.name}, even rollouts": _of_file(path, BENCHMARK_SIZE, 2) for path in given.halves}
    sources |= {path.name: _of_file(path, BENCHMARK_SIZE - 1, 1) for path in given.whole}
    sources["own recordings"] = own_recordings(np.random.default_rng(SEED))
    given.output.write_text(json.dumps(table(sources), indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
