"""Errors of single steps of Meta-World recordings, by task and by what a row shows, in one table.

    python benchmarks/metaworld_errors.py FILE...

FILE: real rollouts of the benchmark's layout. Each is replayed by the sequential filter of the simulator family that
made it, once as the product does, where the seven joints are turned until the hand is where the row has it, and once
with the arm left where it was carried. Median, 99th percentile and largest error of the hand (m), the opening (1), the
positions (m) and the orientations (1) of the entities of the task.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path

import numpy as np

from qualcheck.envs.metaworld import MetaWorld
from qualcheck.envs.metaworld.filter import GROUPS, episodes_of, faced, given, group_errors
from qualcheck.envs.metaworld.layout import OBS_SIZE
from qualcheck.envs.metaworld.tasks import tasks_of
from qualcheck.io import open_source
from qualcheck.types import Rollouts


def one_step(adapter: MetaWorld, rollouts: Rollouts, tasks: np.ndarray, seed_arm: bool) -> np.ndarray:
    """Errors by group of every transition, (M, 4); NaN where it is not replayed."""
    episodes = episodes_of(rollouts, tasks, given(rollouts, tasks))
    played = adapter._simulator().play([each for _, each in episodes.values()], filtered=True, seed_arm=seed_arm)
    end = np.full((rollouts.n_transitions, OBS_SIZE), np.nan)
    for (i, (skipped, episode)), done in zip(episodes.items(), played, strict=True):
        at = slice(rollouts.offsets[i] + skipped, rollouts.offsets[i + 1])
        end[at] = faced(done.obs[1:], rollouts.end_obs[at], episode.task)[0]
    errors = group_errors(end, rollouts.end_obs, tasks[rollouts.rollout])
    return errors[rollouts.has_end]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+", type=Path)
    options = parser.parse_args()
    found: dict[tuple[str, str], list[tuple[np.ndarray, np.ndarray]]] = {}
    for path in options.files:
        adapter = MetaWorld()
        for batch in open_source(path, adapter.layouts()).batches():
            rollouts = replace(batch, is_reset=np.ones(batch.n_rollouts, bool))
            adapter = adapter.with_family(adapter.recognise(rollouts)[0] or adapter.family)
            tasks = tasks_of(rollouts)
            seeded, carried = (one_step(adapter, rollouts, tasks, seed_arm) for seed_arm in (True, False))
            owner = tasks[rollouts.rollout][rollouts.has_end]
            for task in np.unique(owner):
                mine = owner == task
                found.setdefault((adapter.family, str(task)), []).append((seeded[mine], carried[mine]))
        adapter.close()
    head = "".join(f"{f'{group}, arm {how}':>32}" for group in GROUPS for how in ("seeded", "carried"))
    print(f"{'family':11}{'task':18}{'steps':>6}{head}")
    for (family, task), parts in sorted(found.items()):
        both = [np.concatenate(each) for each in zip(*parts, strict=True)]
        cells = ""
        for group in range(len(GROUPS)):
            for errors in both:
                shown = errors[:, group][np.isfinite(errors[:, group])]
                numbers = (np.median(shown), np.quantile(shown, 0.99), shown.max())
                cells += "".join(f"{number:10.1e}" for number in numbers) + "  "
        print(f"{family:11}{task:18}{len(both[0]):6}{cells}")


if __name__ == "__main__":
    main()
