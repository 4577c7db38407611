"""Find the gaits of the experts: random search that keeps the best and narrows around them.

`python -m qualcheck.envs.halfcheetah.search -o envs/halfcheetah/gaits.json` finds them again.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from qualcheck.envs.halfcheetah.dynamics import Dynamics
from qualcheck.envs.halfcheetah.experts import wave
from qualcheck.envs.halfcheetah.layout import ACTION_SIZE, HEIGHT, PITCH
from qualcheck.envs.halfcheetah.reset import sample_states
from qualcheck.types import FloatArray

CANDIDATES, KEPT, ROUNDS, STARTS, STEPS = 60, 8, 25, 3, 100
ACTION_NOISE = 0.1  # standard deviation; a gait must bear it
TIPPED_RAD = 1.0
SEED = 11

# Score of episodes from their places x, heights and pitches, (n, T) each -> (n,)
SCORES: dict[str, Callable[[FloatArray, FloatArray, FloatArray], FloatArray]] = {
    "forward": lambda x, _z, pitch: x[:, -1] - 5 * _tipped(pitch),
    "backward": lambda x, _z, pitch: -x[:, -1] - 5 * _tipped(pitch),
    "bounce": lambda x, z, pitch: 5 * z[:, 20:].std(axis=1) - 2 * np.abs(x).max(axis=1) - 5 * _tipped(pitch),
}


def _tipped(pitch: FloatArray) -> FloatArray:
    """Share of rows that lean too far."""
    share: FloatArray = (np.abs(pitch) > TIPPED_RAD).mean(axis=1)
    return share


def _score(name: str, gait: FloatArray, dynamics: Dynamics, rng: np.random.Generator) -> FloatArray:
    """Mean score of each candidate over noisy episodes, (C, 3, 7) -> (C,)."""
    n = len(gait) * STARTS
    action = np.repeat(wave(gait, STEPS), STARTS, axis=0)
    action = (action + rng.normal(0, ACTION_NOISE, action.shape)).reshape(-1, ACTION_SIZE)
    x, z, pitch = (np.zeros((n, STEPS)) for _ in range(3))
    for at, state, moved, _ in dynamics.play(sample_states(n, rng)[:, 1:], action, np.arange(n + 1) * STEPS):
        where = at // STEPS, at % STEPS
        x[where], z[where], pitch[where] = moved, state[:, HEIGHT], state[:, PITCH]
    score: FloatArray = SCORES[name](x.cumsum(axis=1), z, pitch).reshape(len(gait), STARTS).mean(axis=1)
    return score


def find(name: str, dynamics: Dynamics, rng: np.random.Generator) -> tuple[FloatArray, float]:
    """The best gait under one of `SCORES` and its score, (3, 7)."""
    mean = np.array([[*[0.0] * 6, 3.0], [*[0.7] * 6, 0.0], [0.0] * 7])
    width = np.array([[*[0.3] * 6, 1.0], [*[0.3] * 6, 0.0], [*[2.0] * 6, 0.0]])
    for _ in range(ROUNDS):
        gait = mean + width * rng.normal(size=(CANDIDATES, 3, 7))
        gait[0] = mean
        best = np.argsort(-_score(name, gait, dynamics, rng))[:KEPT]
        mean = gait[best].mean(axis=0)
        width = np.maximum(gait[best].std(axis=0), 0.03 * (width > 0))
    return mean, float(_score(name, mean[None].repeat(20, axis=0), dynamics, rng).mean())


def table(seed: int = SEED) -> dict[str, Any]:
    """All gaits, each from its own seed."""
    dynamics, found, scores = Dynamics(), {}, {}
    for number, name in enumerate(SCORES):
        gait, score = find(name, dynamics, np.random.default_rng([seed, number]))
        bias, amplitude, phase = np.round(gait, 4).tolist()
        hertz = bias.pop()
        found[name] = {"hertz": hertz, "bias": bias, "amplitude": amplitude[:-1], "phase": phase[:-1]}
        scores[name] = round(score, 2)
    dynamics.close()
    return {
        "what": "waves of the six joints: clip(bias + amplitude sin(2 pi hertz t + phase)), t in s from the reset",
        "command": "python -m qualcheck.envs.halfcheetah.search -o FILE",
        "seed": seed,
        "scores": scores,
        "made_with": {name: version(name) for name in ("qualcheck", "mujoco", "numpy")},
        "gaits": found,
    }


def main(arguments: Sequence[str] | None = None) -> None:
    """Find all gaits and write them to a file."""
    parser = argparse.ArgumentParser(prog="python -m qualcheck.envs.halfcheetah.search", description=main.__doc__)
    parser.add_argument("-o", "--output", type=Path, required=True, metavar="FILE", help="JSON file to write")
    parser.add_argument("--seed", type=int, default=SEED)
    given = parser.parse_args(arguments)
    given.output.write_text(json.dumps(table(given.seed), indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
