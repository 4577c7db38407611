"""The limits of the laws, learnt from real rollouts.

`python -m qualcheck.envs.libero.learn GOLDEN... --starts INITS... -o envs/libero/limits.json` makes the table again: of
the rollouts only even-numbered ones are used, so that the odd ones stay a test. Every row also counts as rounded to two
decimals, the coarsest storage that files come in.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from qualcheck.envs.libero import measures
from qualcheck.envs.libero.columns import OBS_SIZE, POSES, finite_rows
from qualcheck.types import AnyArray

MARGIN = 1.5  # a limit is this many times the largest real value, and never under the one below
LEAST = {
    "joint_overshoot": 0.01,  # the limits of the model give way a little
    "finger_overshoot": 0.004,  # own recordings: 0.0028 while a grasp is squeezed
    "floor_depth": 0.024,  # own recordings: the arm presses the cream cheese 21 mm into the floor, which gives way
    "hand_low": 0.01,
    "object_far": 1.5,  # what is knocked away rolls on beyond the arm's reach of 0.86 m
    "object_fall": 0.25,  # a fall out of 1.2 m, where no hand gets
    "object_turn": 2.0,  # an object that tumbles after a knock, at 40 rad/s
    "untouched_turn": 0.2,
    "hanging": 0.009,
}
DECIMALS = 2
POSITIONS = [first + axis for first in POSES for axis in range(3)]
SUNK = "cream_cheese"  # released starts of this name hold a bottle 3.4 cm deep in the floor: no floor to learn there

Largest = dict[str, float]


def merge(peaks: Iterable[Mapping[str, float]]) -> Largest:
    """The largest of several largest values, by name."""
    found: Largest = {}
    for part in peaks:
        found |= {name: max(value, found.get(name, -np.inf)) for name, value in part.items()}
    return found


def _peaks(values: Mapping[str, AnyArray]) -> Largest:
    return {name: float(value.max()) for name, value in values.items()}


def of_rollouts(path: Path) -> Largest:
    """The largest values over the even rollouts of a padded file of the benchmark's layout."""
    data: dict[str, Any] = np.load(path, allow_pickle=True).item()
    valid = data["masks"][::2, :, 0] > 0
    start, end = data["observations"][::2], data["next_observations"][::2]
    before = np.concatenate([np.full((len(start), 1, OBS_SIZE), np.nan, start.dtype), start[:, :-1]], axis=1)
    exact = [rows[valid] for rows in (start, end, before)]
    peaks = []
    for one in (exact, [np.round(rows, DECIMALS) for rows in exact]):
        peaks += [_peaks(measures.of_rows(rows)) for rows in one[:2]] + [_peaks(measures.of_steps(*one))]
    return merge(peaks)


def _start_rows(path: Path) -> AnyArray:
    with np.load(path) as file:
        rows: AnyArray = file["observations"]
    return rows[finite_rows(rows)]


def of_starts(path: Path) -> Largest:
    """The largest values over the rows of a file of starts."""
    rows = _start_rows(path)
    peaks = merge(_peaks(measures.of_rows(each)) for each in (rows, np.round(rows, DECIMALS)))
    return {name: value for name, value in peaks.items() if name != "floor_depth" or SUNK not in path.name}


def range_of_starts(path: Path) -> dict[str, dict[str, list[float]]]:
    """The ranges of the hand's, the objects' and the basket's positions in one file, by its name in `reset.STARTS`."""
    place = _start_rows(path)[:, POSITIONS]
    low, high = np.floor(place.min(axis=0) * 1e4) / 1e4, np.ceil(place.max(axis=0) * 1e4) / 1e4
    way, name = path.stem.removesuffix("_inits").split("libero_")[-1].split("_", 1)
    return {f"{way}-{name}": {"low": low.tolist(), "high": high.tolist()}}


def table(sources: Mapping[str, Largest]) -> dict[str, Any]:
    """The limits with where each came from: source -> its largest values."""
    total = merge(sources.values())
    entries = {
        name: {
            "limit": max(float(f"{MARGIN * total[name]:.3g}"), LEAST.get(name, 0.0)),
            "recorded": float(np.ceil(total[name] * 1e5) / 1e5),
            "unit": unit,
            "largest_real": {source: round(peaks[name], 5) for source, peaks in sources.items() if name in peaks},
        }
        for name, unit in (measures.ROW_UNITS | measures.STEP_UNITS).items()
    }
    return {
        "what": f"limit: largest legal value, {MARGIN} times the largest real one, `recorded`, and at least {LEAST}",
        "command": "python -m qualcheck.envs.libero.learn GOLDEN... --starts FILE... -o FILE",
        "made_with": {name: version(name) for name in ("qualcheck", "numpy")},
        "limits": entries,
    }


def main(arguments: Sequence[str] | None = None) -> None:
    """Learn all limits and write them to a file."""
    parser = argparse.ArgumentParser(prog="python -m qualcheck.envs.libero.learn", description=main.__doc__)
    parser.add_argument("rollouts", type=Path, nargs="+", metavar="FILE", help="padded files; even rollouts count")
    parser.add_argument("--starts", type=Path, nargs="*", default=[], metavar="FILE", help="files of starts")
    parser.add_argument("-o", "--output", type=Path, required=True, metavar="FILE", help="JSON file to write")
    given = parser.parse_args(arguments)
    sources = {f"{path.name}, even rollouts": of_rollouts(path) for path in given.rollouts}
    sources |= {path.name: of_starts(path) for path in given.starts}
    starts = {name: kept for path in given.starts for name, kept in range_of_starts(path).items()}
    given.output.write_text(json.dumps(table(sources) | {"starts": starts}, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
