"""Opens the inputs of a run: their layout, storage and tolerances, and what is said of all their rollouts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from qualcheck import calibration
from qualcheck.adapter import EnvAdapter
from qualcheck.calibration import Calibration
from qualcheck.checks.restarts import Restarts
from qualcheck.errors import DataError, UsageError
from qualcheck.grade import parse_grade
from qualcheck.io import Source, looks_standardised, open_source, read_statistics
from qualcheck.options import ScoreOptions
from qualcheck.scoring import Labels, of_task
from qualcheck.storage import STORAGES, find_storage, finer_rows, sample

FAMILY_KEY = "qualcheck_family"  # what a filtered or collected file says of itself
STORAGE_KEY = "qualcheck_storage"  # the noise floor that the run of a filtered file held its rows against
FAMILY_SAMPLE = 2_000  # transitions that a simulator family is recognised from


@dataclass(frozen=True)
class Inputs:
    """Opened files of one environment and row layout."""

    adapter: EnvAdapter
    sources: list[Source]
    labels: list[Labels]
    calibration: Calibration | None
    findings: list[str]  # on the files as a whole

    @property
    def transitions(self) -> int:
        return sum(source.n_transitions for source in self.sources)


def open_inputs(
    adapter: EnvAdapter,
    sources: Sequence[Source | Path],
    options: ScoreOptions,
    level: str | None = None,
    family: str = "",
    calibrated: bool = True,
) -> Inputs:
    """The inputs, ready to be scored.

    Args:
        adapter: the environment, in any of its layouts.
        sources: files, or sources that are open already.
        options: of the run.
        level: what all rollouts are labelled with, whatever the options say.
        family: simulator family of files that do not tell theirs; "": the usual one.
        calibrated: False: no tolerances are looked for, since the caller brings its own.

    Raises:
        DataError: a file cannot be used, or the calibration does not fit.
        UsageError: the files have different row layouts.
    """
    mean, std = (None if name is None else read_statistics(name) for name in (options.obs_mean, options.obs_std))
    opened = [
        open_source(
            source,
            adapter.layouts(),
            index=index,
            last_action=options.last_action,
            trust_pickle=options.trust_pickle,
            encodings=options.encodings,
            obs_mean=mean,
            obs_std=std,
        )
        if isinstance(source, Path)
        else source
        for index, source in enumerate(sources)
    ]
    sizes = {source.spec.obs_size: source.path for source in opened}
    if len(sizes) > 1:
        listed = ", ".join(f"{path} ({size})" for size, path in sizes.items())
        raise UsageError(f"the inputs have rows of different numbers of columns: {listed}. Score them apart.")
    adapter = adapter.with_layout(opened[0].spec.obs_size) if opened else adapter
    adapter, told = _in_family(adapter, opened, options, family)
    known = None
    if options.calibration:
        known = calibration.load(Path(options.calibration), adapter.spec, adapter.family)
    elif calibrated:
        known = calibration.shipped(adapter.spec, adapter.family)
    grade = parse_grade(options.grade, adapter.spec)
    labels: list[Labels] = []
    findings = list(told)
    for source in opened:
        rows = None if adapter.spec.exact else sample(source)
        told_storage = source.metadata.get(STORAGE_KEY)
        storage = "exact" if rows is None else told_storage if told_storage in STORAGES else find_storage(rows)
        if rows is not None and mean is None and looks_standardised(rows):
            findings.append(
                f"{source.path}: the rows look standardised (means near 0, deviations near 1); give the statistics "
                "with --obs-mean and --obs-std"
            )
        scale = known.scale(storage) if known and not adapter.spec.exact else None
        if options.calibration and scale is None and not adapter.spec.exact:
            raise DataError(
                f"{options.calibration}: holds no tolerance for {source.path}, whose rows are stored as {storage}. "
                "Fit it on real rollouts of that storage or a finer one."
            )
        if rows is not None and finer_rows(rows, storage):
            findings.append(
                f"{source.path}: {100 * finer_rows(rows, storage):.2g} % of the rows are finer than {storage}"
            )
        labels.append(
            Labels(
                source=str(source.path),
                level=level or options.level,
                generator=options.generator,
                start=options.start,
                longest=source.longest,
                grade=grade,
                scale=scale,
                restarts=Restarts(options.restarts, storage, options.seed),
                task=adapter.placement_of_task(options.task) if options.task else None,
            )
        )
    return Inputs(adapter, opened, labels, known, findings)


def _in_family(
    adapter: EnvAdapter, sources: Sequence[Source], options: ScoreOptions, usual: str
) -> tuple[EnvAdapter, list[str]]:
    """The adapter of the simulator family that made the files, and how that is known, one line a file.

    Raises:
        UsageError: there is no such family, or the files come from different ones.
    """
    families = adapter.families()
    if options.family is not None:
        if options.family not in families:
            known = ", ".join(families) if families else "none, it has one simulator"
            raise UsageError(f"--family {options.family!r}: {adapter.spec.id} knows: {known}.")
        return adapter.with_family(options.family), _contradictions(adapter, sources, options)
    if not families:
        return adapter, []
    found: dict[str, Path] = {}
    silent: list[tuple[Path, str]] = []
    lines = []
    for source in sources:
        told = source.metadata.get(FAMILY_KEY)
        if told in families:
            found[told] = source.path
            lines.append(f"{source.path}: simulator family {told}: the file says so")
            continue
        name, evidence = _recognised(adapter, source, options)
        if name is None:
            continue
        if name:
            found[name] = source.path
            lines.append(f"{source.path}: simulator family {name}: {evidence}")
        else:
            silent.append((source.path, evidence))
    if len(found) > 1:
        listed = ", ".join(f"{path} ({name})" for name, path in found.items())
        raise UsageError(
            f"the inputs come from different simulators: {listed}. Score them apart, or say which with --family."
        )
    name = next(iter(found), usual or families[0])
    why = "that of the other inputs" if found else "that of --reference" if usual else "the usual one"
    lines += [f"{path}: simulator family {name}: {why}, its rows do not tell ({evidence})" for path, evidence in silent]
    return adapter.with_family(name), lines


def _recognised(adapter: EnvAdapter, source: Source, options: ScoreOptions) -> tuple[str | None, str]:
    """The family that the first transitions of a file tell, and the evidence; "": none; None: no transitions."""
    first = next(source.batches(FAMILY_SAMPLE), None)
    if first is None or not first.n_transitions:
        return None, ""
    if options.start != "auto" or first.is_reset is None:
        first = replace(first, is_reset=np.full(first.n_rollouts, options.start != "any"))
    given = adapter.placement_of_task(options.task).task if options.task else None
    return adapter.recognise(of_task(first, given))


def _contradictions(adapter: EnvAdapter, sources: Sequence[Source], options: ScoreOptions) -> list[str]:
    """Where the rows tell another family than the one that the user names, one line a file."""
    lines = []
    for source in sources:
        name, evidence = _recognised(adapter, source, options)
        if name and name != options.family:
            lines.append(
                f"{source.path}: simulator family {options.family}, as --family says; its rows look like {name} "
                f"({evidence})"
            )
    return lines
