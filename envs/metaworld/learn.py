"""The limits of the laws, learnt from real rollouts.

`python -m qualcheck.envs.metaworld.learn GOLDEN... -o envs/metaworld/limits.json` makes the table again: of the
rollouts only even-numbered ones are used, so that the odd ones stay a test. Every row also counts as rounded to four
decimals, which no law may take for a fault.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from qualcheck.envs.metaworld import measures
from qualcheck.envs.metaworld.layout import OBS_SIZE, TASKS, base_task
from qualcheck.types import AnyArray, FloatArray

MARGIN = 1.5  # a limit is this many times the largest real value, and never under the one below
LEAST = {
    "opening_out": 0.05,
    "quaternion_length": 1e-3,
    "sunk": 0.01,
    "fixture": 1e-3,
    "distractors": 0.5,
    "goal_moved": 1e-3,
    "off_track": 2e-3,
    "distractor_changed": 0.5,
    "hand_out": 0.02,
    "past_stop": 0.04,  # a button gives way at its stop, in the newer simulators by more
    "untouched_step": 0.007,  # a hammer or a mug settles after it was let go
    "hanging": 1e-3,  # of the 1.5 mm by which free fall adds to every step
}
DECIMALS = 4

Largest = dict[str, float]


def merge(peaks: Iterable[Mapping[str, float]]) -> Largest:
    """The largest of several largest values, by name."""
    found: Largest = {}
    for part in peaks:
        found |= {name: max(value, found.get(name, -np.inf)) for name, value in part.items()}
    return found


def of_episode(task: str, rows: AnyArray, action: AnyArray) -> dict[str, FloatArray]:
    """Every measure of one whole episode, (T+1, 91) and (T, 4): of its rows, (T+1,), and of its steps, (T,)."""
    wide, steps = rows.astype(np.float64), len(action)
    context = np.broadcast_to(wide[0], wide.shape)
    missing = np.full((2, OBS_SIZE), np.nan)
    earlier = np.concatenate([missing, wide])  # two rows longer: that of t - 2 comes first
    path = measures.commanded_hands(
        np.array([0, steps + 1]),
        np.array([0, steps]),
        np.array([TASKS[task].hand_start_m]),
        action.astype(np.float64),
        task,
    )
    with np.errstate(invalid="ignore"):
        return {
            **measures.of_rows(task, wide),
            **measures.of_context(task, wide, context, np.ones(len(wide), bool)),
            **measures.of_steps(
                task, wide[:-1], wide[1:], earlier[1 : steps + 1], earlier[:steps], path[:-1], path[1:]
            ),
        }


def of_rollouts(path: Path) -> Largest:
    """The largest values over the even rollouts of a padded file of the benchmark's layout."""
    data: dict[str, Any] = np.load(path, allow_pickle=True).item()
    peaks = []
    for number in range(0, len(data["masks"]), 2):
        steps = int(data["masks"][number].sum())
        rows = np.concatenate(
            [data["observations"][number, :steps], data["next_observations"][number, steps - 1 : steps]]
        )
        task, action = base_task(str(data["task_str"][number])), data["actions"][number, :steps]
        for stored in (rows, np.round(rows.astype(np.float64), DECIMALS)):
            peaks.append({name: float(value.max()) for name, value in of_episode(task, stored, action).items()})
    return merge(peaks)


def table(sources: Mapping[str, Largest]) -> dict[str, Any]:
    """The limits with where each came from: source -> its largest values."""
    total = merge(sources.values())
    units = measures.ROW_UNITS | measures.CONTEXT_UNITS | measures.STEP_UNITS
    entries = {
        name: {
            "limit": max(float(f"{MARGIN * total[name]:.3g}"), LEAST.get(name, 0.0)),
            "recorded": float(np.ceil(total[name] * 1e5) / 1e5),
            "unit": unit,
            "largest_real": {source: round(peaks[name], 5) for source, peaks in sources.items()},
        }
        for name, unit in units.items()
    }
    return {
        "what": f"limit: largest legal value, {MARGIN} times the largest real one, `recorded`, and at least {LEAST}",
        "command": "python -m qualcheck.envs.metaworld.learn GOLDEN... -o FILE",
        "made_with": {name: version(name) for name in ("qualcheck", "numpy")},
        "limits": entries,
    }


def main(arguments: Sequence[str] | None = None) -> None:
    """Learn all limits and write them to a file."""
    parser = argparse.ArgumentParser(prog="python -m qualcheck.envs.metaworld.learn", description=main.__doc__)
    parser.add_argument("rollouts", type=Path, nargs="+", metavar="FILE", help="padded files; even rollouts count")
    parser.add_argument("-o", "--output", type=Path, required=True, metavar="FILE", help="JSON file to write")
    given = parser.parse_args(arguments)
    sources = {f"{path.name}, even rollouts": of_rollouts(path) for path in given.rollouts}
    given.output.write_text(json.dumps(table(sources), indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
