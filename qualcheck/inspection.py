"""`inspect`: one rollout of a run, step by step, with the rows behind the verdicts."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from qualcheck.cut import cut
from qualcheck.errors import DataError, UsageError
from qualcheck.registry import load
from qualcheck.reopen import place_of, reopen
from qualcheck.reports.transcript import StepRows, transcript
from qualcheck.scoring import of_task
from qualcheck.spec import EnvSpec
from qualcheck.table import Run
from qualcheck.types import Rollouts


def parse_place(text: str) -> tuple[int, int | None]:
    """(rollout, step) from "ROLLOUT" or "ROLLOUT:STEP".

    Raises:
        UsageError: the text is neither.
    """
    rollout, colon, step = text.partition(":")
    if not rollout.isdecimal() or (colon and not step.isdecimal()):
        raise UsageError(f"{text!r}: expected ROLLOUT or ROLLOUT:STEP, such as 12 or 12:3.")
    return int(rollout), int(step) if colon else None


def inspect(run: str | Path, rollout: int, step: int | None = None, *, trust_pickle: bool = False) -> dict[str, Any]:
    """Everything known of one rollout; with a step, its imagined and simulated rows side by side.

    `qualcheck.reports.transcript.transcript_text` makes it readable.

    Args:
        run: folder written by `score`.
        rollout: running index, the column `rollout` of the tables.
        step: position in the rollout.
        trust_pickle: load pickles with numpy's own loader.

    Raises:
        DataError: the run is incomplete, or the input is missing or was changed since.
        UsageError: there is no such rollout or step.
    """
    opened = Run.open(run)
    seen = transcript(opened, rollout, step)
    if step is None:
        return seen
    return transcript(opened, rollout, step, _rows(opened, rollout, step, trust_pickle))


def _rows(run: Run, rollout: int, step: int, trust_pickle: bool) -> StepRows:
    """The recorded and the simulated rows of one transition."""
    results = run.manifest["results"]
    number, place = _place(results, rollout)
    entry = results["inputs"][number]
    adapter = load(results["env"])
    try:
        source = reopen(entry, run.manifest, adapter, place_of(entry, run.manifest), 0, trust_pickle)
        adapter = adapter.with_layout(source.spec.obs_size)
        if results.get("family"):
            adapter = adapter.with_family(results["family"])
        batch, local = _find(source.batches(), place)
        rollouts = cut(batch, np.array([local]), np.array([0]), batch.length[local : local + 1])
        started = run.rollouts(["start"])["start"][rollout].as_py() == "reset"
        given = results["parameters"].get("task")
        rollouts = replace(rollouts, is_reset=np.array([started]))
        rollouts = of_task(rollouts, adapter.placement_of_task(given).task if given else None)
        replay = adapter.replay(rollouts)
        at = step
        shown = bool(rollouts.has_end[at])
        code = int(replay.code[at])
        seeding = run.transitions(["seeding"])["seeding"][int(run.offsets()[rollout]) + step].as_py()
        counted = replay.seedings.index(seeding) if seeding in replay.seedings else 0
        return StepRows(
            columns=adapter.spec.columns,
            units=_units(adapter.spec),
            action=str(np.asarray(rollouts.action[at]).tolist()),
            obs=rollouts.start_obs[at],
            next_obs=rollouts.end_obs[at] if shown else None,
            simulated=None if code else replay.candidates[counted][at],
        )
    finally:
        adapter.close()


def _place(results: dict[str, Any], rollout: int) -> tuple[int, int]:
    """The input that a rollout of a run comes from, and its place there."""
    if results.get("sample"):
        for look in results["sample"]["order"]:
            for number, places in enumerate(look):
                if rollout < len(places):
                    return number, places[rollout]
                rollout -= len(places)
    for number, entry in enumerate(results["inputs"]):
        if rollout < entry["n_rollouts"]:
            return number, rollout
        rollout -= entry["n_rollouts"]
    raise DataError("the tables hold more rollouts than the inputs. Score them again.")


def _units(spec: EnvSpec) -> list[str]:
    """The unit of each column; none where errors are counted, not measured."""
    units = [""] * spec.obs_size
    if not spec.exact:
        for block in spec.blocks:
            for column in block.columns:
                units[column] = block.unit
    return units


def _find(batches: Any, number: int) -> tuple[Rollouts, int]:
    """The batch that holds a rollout, and its place there."""
    for rollouts in batches:
        if number < rollouts.n_rollouts:
            return rollouts, number
        number -= rollouts.n_rollouts
    raise DataError("the scored file holds fewer rollouts than its run. Score it again.")
