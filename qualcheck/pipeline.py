"""`score`: files in, a run folder out."""

from __future__ import annotations

import atexit
import platform
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import asdict, dataclass, field, replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq

from qualcheck import __version__, timing
from qualcheck.adapter import EnvAdapter
from qualcheck.calibration import control_of_run
from qualcheck.checks.flags import DEFECTS
from qualcheck.conformal import CONFORMAL
from qualcheck.engines import LOCAL, Engine, check_engine, open_engine
from qualcheck.errors import DataError, NothingVerified, QualcheckError, UsageError, WorkerLost
from qualcheck.explaining.explain import explain_run
from qualcheck.inputs import Inputs, open_inputs
from qualcheck.io import ArraySource, Source, source_from_arrays
from qualcheck.journal import Journal, Pieces
from qualcheck.manifest import DEFINITIONS, SCHEMA, dump, sha256
from qualcheck.options import ScoreOptions, read_options
from qualcheck.output import refuse_overlap, staged_folder
from qualcheck.registry import load
from qualcheck.sampling import WIDTH_COLUMNS, Plan, finding, narrow_enough, plan
from qualcheck.scorepass import PassResult, Progress, Referee, batch_size, run_pass
from qualcheck.table import HIDDEN_FILE, Run

PACKAGES = ("numpy", "pandas", "pyarrow", "scipy", "gymnasium", "minigrid", "mujoco", "metaworld")
SIMULATORS = ("minigrid", "mujoco", "metaworld")
INPUTS, REFERENCE = "inputs", "reference"  # the passes of a run


ARRAY_OPTIONS = ("rollout", "rewards", "terminals", "truncated", "instruction")


def score(
    *inputs: Any,
    env: str | None = None,
    out: str | Path | None = None,
    reference: str | Path | Sequence[str | Path] = (),
    progress: Callable[[str, int], Progress] | None = None,
    workers: int = 1,
    resume: bool = False,
    engine: str = LOCAL,
    pieces: Callable[[str, Inputs], Pieces] | None = None,
    profile: bool = False,
    **options: Any,
) -> Run:
    """Replay and check every transition of the inputs, and write the run folder `out`.

    Args:
        inputs: `score(path, env, out)`, `score([path, ...], env, out)`, or arrays: `score(obs, actions, next_obs,
            env=...)` with obs (M, O), actions (M,) or (M, A) and next_obs (M, O). The format of a file is found from
            its content.
        env: id of the environment.
        out: folder to create. It appears only when the run is complete. None: a folder that goes when Python ends.
        reference: files of real rollouts, scored beside as the control.
        progress: called with a title and a total, gives a function to advance by transitions.
        workers: processes that check, each with a simulator of its own; 1: threads of this process. The results do
            not depend on it.
        resume: go on with what a run of the same inputs and options left when it was stopped.
        engine: "local", or "ray": workers on the Ray cluster that this machine belongs to.
        profile: count where the time goes, into `manifest["run"]["profile"]`: seconds of all threads by phase.
        pieces: where results are that others have made, see `qualcheck.sharding`.
        options: fields of `ScoreOptions`; with arrays also rollout (M,) ids (without them every row is a rollout of
            its own), rewards, terminals and truncated (M,), and instruction; see `qualcheck.io.source_from_arrays`.

    Returns:
        The finished run.

    Raises:
        DataError: an input cannot be used.
        UsageError: options contradict each other, or `out` exists.
        NothingVerified: every verdict is unverifiable. The run folder is written all the same.
        SimulatorDisagreement: the fast engine differs from the simulator; nothing is written.
        WorkerLost: a worker process died again and again.
    """
    started = time.time()
    check_engine(engine, workers)
    more = {name: options.pop(name) for name in ARRAY_OPTIONS if name in options}
    chosen = read_options(options)
    inputs, env, out = _arguments(inputs, env, out)
    real = [Path(reference)] if isinstance(reference, (str, Path)) else [Path(path) for path in reference]
    adapter = load(env)
    how = How(_place(out), workers, resume, progress, engine, pieces)
    try:
        given = _given(inputs, adapter, more)
        out = how.out
        refuse_missing(out, [*(source for source in given if isinstance(source, Path)), *real])
        timed = timing.started() if profile else nullcontext()
        with staged_folder(out) as folder, ThreadPoolExecutor(1) as hasher, timed as clock:
            manifest = _write(adapter, given, real, folder, chosen, hasher, how)
            manifest["run"] |= _circumstances(started)
            if clock is not None:
                manifest["run"]["profile"] = {name: round(seconds, 3) for name, seconds in clock.take().items()}
            (folder / "manifest.json").write_text(dump(manifest), encoding="utf-8")
        how.forget()
    except QualcheckError as error:
        if not isinstance(error, WorkerLost):  # the same would come out again
            how.forget()
        raise
    finally:
        adapter.close()
    run = Run.open(out)
    _verdict(run, chosen)
    return run


@dataclass(frozen=True)
class How:
    """What a run does that its results do not depend on."""

    out: Path
    workers: int = 1
    resume: bool = False
    progress: Callable[[str, int], Progress] | None = None
    engine: str = LOCAL
    pieces: Callable[[str, Inputs], Pieces] | None = None
    journals: list[Journal] = field(default_factory=list)

    def open_engine(self, adapter: EnvAdapter) -> Engine:
        """What checks the batches."""
        return open_engine(adapter, self.workers, self.engine)

    def forget(self) -> None:
        """Remove the pieces, which nobody can go on with."""
        for journal in self.journals:
            journal.remove()


def refuse_missing(out: Path, paths: Sequence[Path]) -> None:
    """Refuse inputs that are not there, or that the output would overwrite.

    Raises:
        DataError, UsageError: they are.
    """
    for path in paths:
        if not path.exists():
            raise DataError(f"{path}: no such file. Check the path.")
        if path.is_dir():
            raise DataError(f"{path}: a folder; expected files of rollouts.")
    refuse_overlap(out, paths)


def _arguments(
    inputs: tuple[Any, ...], env: str | None, out: str | Path | None
) -> tuple[tuple[Any, ...], str, str | Path | None]:
    """Arrays or files, and env and out where they follow the files without their names."""
    if len(inputs) == 1 and isinstance(inputs[0], tuple) and inputs[0] and hasattr(inputs[0][0], "shape"):
        inputs = inputs[0]
    if inputs and not hasattr(inputs[0], "shape"):
        files, *named = inputs
        env, out = (*named, *(env, out)[len(named) :])[:2] if len(named) <= 2 else (None, None)
        inputs = (files,) if isinstance(files, (str, Path)) else tuple(files)
    if not inputs or not isinstance(env, str):
        raise UsageError(
            "score takes files and an environment, such as score('rollouts.npy', env='babyai', out='run')."
        )
    return inputs, env, out


def _given(inputs: tuple[Any, ...], adapter: EnvAdapter, more: dict[str, Any]) -> list[Source | Path]:
    """What is to be scored: files, or arrays as a source."""
    if hasattr(inputs[0], "shape"):
        if not 2 <= len(inputs) <= 3:
            raise UsageError(f"score takes arrays as (obs, actions) or (obs, actions, next_obs), not {len(inputs)}.")
        return [source_from_arrays(*inputs, spec=adapter.layouts(), **more)]
    if more:
        raise UsageError(f"score: {', '.join(more)} only with arrays; files say it themselves.")
    return [Path(path) for path in inputs]


def _place(out: str | Path | None) -> Path:
    """Where the run folder goes; without a name, to a temporary folder that goes when Python ends."""
    if out is not None:
        return Path(out)
    folder = Path(tempfile.mkdtemp(prefix="qualcheck-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder / "run"


def open_all(
    adapter: EnvAdapter, given: Sequence[Source | Path], real: Sequence[Path], options: ScoreOptions
) -> tuple[Inputs, Inputs | None]:
    """The inputs of a run, and its references, all of one simulator family."""
    beside = open_inputs(adapter, real, options, level="real") if real else None
    inputs = open_inputs(adapter, given, options, family=beside.adapter.family if beside else "")
    if beside is not None and beside.adapter.family != inputs.adapter.family:  # of a silent reference, the inputs tell
        beside = open_inputs(adapter, real, options, level="real", family=inputs.adapter.family)
    return inputs, beside


def _write(
    adapter: EnvAdapter,
    given: list[Source | Path],
    real: list[Path],
    folder: Path,
    options: ScoreOptions,
    hasher: ThreadPoolExecutor,
    how: How,
) -> dict[str, Any]:
    """Score inputs and references into a folder; the manifest comes back for the caller to write last."""
    before = {path: _stamp(path) for path in given if isinstance(path, Path)}
    digests = {path: hasher.submit(sha256, path) for path in before}
    inputs, beside = open_all(adapter, given, real, options)
    adapter, sources, labels = inputs.adapter, inputs.sources, inputs.labels
    partners = {source.path: list(getattr(source, "files", ())[1:]) for source in sources}
    refuse_overlap(how.out, [path for others in partners.values() for path in others])
    budget = None
    if options.sample is not None or options.target_width is not None:
        budget = plan(inputs.adapter, inputs.sources, inputs.labels, options.sample, options.seed)
    result = _score_all(inputs, folder, options, how, before, budget)
    sample = None
    if budget is not None:
        scored = pq.read_table(folder / "rollouts.parquet", columns=list(WIDTH_COLUMNS))
        columns = {name: scored[name].to_numpy() for name in WIDTH_COLUMNS}
        sample = budget.done(result.looks, columns, options.target_width)
    control = inputs.calibration.control(labels[0].restarts.storage) if inputs.calibration else None
    if beside is not None:
        (folder / "reference").mkdir()
        silent = replace(how, progress=None)
        _score_all(beside, folder / "reference", options, silent, {path: _stamp(path) for path in real}, part=REFERENCE)
        beside.adapter.close()
        control = control_of_run(folder / "reference", "--reference: " + ", ".join(path.name for path in real))
    for path, stamp in before.items():
        if _stamp(path) != stamp:
            raise DataError(f"{path}: changed while it was read. Score it again when nothing writes to it.")
    seen = sources if budget is None else budget.seen(inputs.sources, result.looks)
    explanations = explain_run(inputs, seen, labels, folder, options, beside)
    adapter.close()
    total = _total(result)
    results = {
        "env": adapter.spec.id,
        "env_version": adapter.spec.version,
        "family": adapter.family,
        "grade": labels[0].grade.name,
        "predicates": "intended",
        "definitions": DEFINITIONS,
        "calibration": inputs.calibration.digest if inputs.calibration and not adapter.spec.exact else None,
        "parameters": asdict(options),
        "reference": [str(path) for path in real],
        "files": {
            name: sha256(Path(value))
            for name in ("calibration", "encodings", "obs_mean", "obs_std")
            if (value := getattr(options, name)) is not None
        },
        "inputs": [
            {
                "path": str(source.path),
                "sha256": source.digest() if isinstance(source, ArraySource) else digests[source.path].result(),
                "partners": [{"path": str(path), "sha256": sha256(path)} for path in partners[source.path]],
                "format": source.format,
                "last_action": source.last_action,
                "n_rollouts": source.n_rollouts,
                "n_transitions": source.n_transitions,
                "reward_reading": reading,
                "columns": source.spec.obs_size,
                "storage": label.restarts.storage,
                "tolerance": label.scale.label if label.scale else None,
            }
            for source, label, reading in zip(sources, labels, result.preferred, strict=True)
        ],
        "counts": {
            "rollouts": sum(tally.rollouts for tally in result.tallies),
            "transitions": sum(tally.transitions for tally in result.tallies),
            "clusters": result.clusters,
            "simulator_steps": sum(tally.simulator_steps for tally in result.tallies),
            "verified": dict(sorted(total["verified"].items())),
            "passed": dict(sorted(total["passed"].items())),
        },
        "unverifiable": {metric: dict(sorted(codes.items())) for metric, codes in sorted(total["missing"].items())},
        "rules": dict(sorted(total["rules"].items())),
        "soft_rules": dict(sorted(total["soft"].items())),
        "flags": result.flags,
        "sample": sample,
        "findings": [*finding(sample), *_findings(inputs, result)],
        "explanations": explanations,
        "referee": {
            "checked": result.referee.checked,
            "agreed": result.referee.agreed,
            "refused_by_both": result.referee.refused_by_both,
        },
        "floors": _floors(
            adapter, sorted(result.tasks), max((source.longest for source in sources), default=0), options
        ),
        "control": control,
        "simulator_versions": _versions(SIMULATORS),
        "tables": {
            name: sha256(folder / name)
            for name in ("transitions.parquet", "rollouts.parquet", HIDDEN_FILE)
            if (folder / name).exists()
        },
    }
    return {
        "schema": SCHEMA,
        "results": results,
        "run": {
            "simulator_steps": result.steps,
            "workers": how.workers,
            "pieces_reused": sum(j.reused for j in how.journals),
        },
    }


def _score_all(
    inputs: Inputs,
    folder: Path,
    options: ScoreOptions,
    how: How,
    stamps: dict[Path, tuple[int, int]],
    budget: Plan | None = None,
    part: str = INPUTS,
) -> PassResult:
    looks = None if budget is None else budget.looks
    planned = [sum(source.n_transitions for source in look) for look in looks or [inputs.sources]]
    advance = how.progress("scoring", sum(planned)) if how.progress else None
    referee = Referee.draw(planned[0], options.recheck, options.seed)
    pieces: Pieces | None = None
    # arrays are gone with the process that has them, and an exact kernel is done before pieces are worth writing
    worth = not inputs.adapter.spec.exact or how.resume or how.workers > 1 or how.engine != LOCAL
    if how.pieces is not None:
        pieces = how.pieces(part, inputs)
    elif worth and len(stamps) == len(inputs.sources):
        files = [[str(path.resolve()), *stamp] for path, stamp in stamps.items()]
        how.journals.append(Journal(how.out, everything(inputs, options, files), how.resume))
        pieces = how.journals[-1]
    return run_pass(
        inputs.adapter,
        inputs.sources,
        inputs.labels,
        folder,
        referee,
        advance,
        how.open_engine,
        pieces,
        looks,
        None if budget is None or options.target_width is None else narrow_enough(budget.level, options.target_width),
    )


def everything(inputs: Inputs, options: ScoreOptions, files: Sequence[Any]) -> dict[str, Any]:
    """What the verdicts of a run depend on, given what tells the content of its files."""
    spec = inputs.adapter.spec
    return {
        "inputs": list(files),
        "last_action": [source.last_action for source in inputs.sources],
        "options": asdict(options),
        "env": [spec.id, spec.version, spec.obs_size, batch_size(inputs.adapter), inputs.adapter.family],
        "labels": [[label.source, label.level, str(label.grade), label.restarts.storage] for label in inputs.labels],
        "calibration": inputs.calibration.digest if inputs.calibration else None,
        "versions": [DEFINITIONS, SCHEMA, __version__, _versions(SIMULATORS)],
    }


def _stamp(path: Path) -> tuple[int, int]:
    stat = path.stat()
    return stat.st_size, stat.st_mtime_ns


def _total(result: PassResult) -> dict[str, Any]:
    total: dict[str, Any] = {name: Counter() for name in ("verified", "passed", "rules", "soft")}
    total["missing"] = {}
    for tally in result.tallies:
        for name in ("verified", "passed", "rules", "soft"):
            total[name].update(getattr(tally, name))
        for metric, codes in tally.unverifiable.items():
            total["missing"].setdefault(metric, Counter()).update(codes)
    return total


def _findings(inputs: Inputs, result: PassResult) -> list[str]:
    """What the user should know of the files, one line each."""
    lines = [*inputs.adapter.findings, *inputs.findings]
    if result.replaced:
        lines.append(f"--level {inputs.labels[0].level} replaces the level of the file: {', '.join(result.replaced)}")
    rewards = zip(result.preferred, result.reward_wrong, strict=True)
    for source, label, tally, reward in zip(inputs.sources, inputs.labels, result.tallies, rewards, strict=True):
        found = list(source.findings)
        if not inputs.adapter.spec.exact:
            found.append(f"storage: {label.restarts.storage}")
            if label.scale is None:
                found.append("no calibration for this storage; correctness is not verifiable")
            elif label.scale.label != CONFORMAL:
                found.append(f"strict tolerance: {label.scale.label}")
        reading, wrong = reward
        if len(set(wrong.values())) > 1:
            found.append(f"rewards follow the {reading} reading of the tasks")
        texts = {rule.id: rule.text for rule in inputs.adapter.rules}
        for rule, count in sorted(tally.soft.items()):
            found.append(f"{100 * count / max(tally.transitions, 1):.1f} % of transitions break {rule}: {texts[rule]}")
        lines += [f"{source.path}: {finding}" for finding in found]
    lines += [f"{count} {'rollout' if count == 1 else 'rollouts'}: {name}" for name, count in result.flags.items()]
    return lines


def _floors(adapter: EnvAdapter, tasks: list[str], longest: int, options: ScoreOptions) -> dict[str, Any]:
    """No-op and random success of each task within as many steps as the data have, shipped or measured now."""
    table: dict[str, Any] = {}
    horizons = adapter.spec.floor_horizons or (adapter.spec.horizon,)
    horizon = next((steps for steps in horizons if steps >= longest), horizons[-1])
    for task in tasks:
        entry: dict[str, Any] = {"horizon": horizon, "source": "measured" if options.floors else "shipped"}
        for number, policy in enumerate(("noop", "random")):
            if options.floors:
                rng = np.random.default_rng([options.seed, number])
                known = adapter.measure_floor(task, policy, horizon, options.floors, rng)
            else:
                known = adapter.floor(task, policy, horizon)
            entry[policy] = list(known) if known else None
        table[task] = entry
    return table


def _versions(packages: Sequence[str]) -> dict[str, str | None]:
    found: dict[str, str | None] = {}
    for package in packages:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = None
    return found


def _circumstances(started: float) -> dict[str, Any]:
    """What differs from run to run: command, versions, machine, time."""
    return {
        "command": sys.argv,
        "folder": str(Path.cwd()),
        "qualcheck": __version__,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "versions": _versions(PACKAGES),
        "started": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(started)),
        "seconds": round(time.time() - started, 3),
    }


def _verdict(run: Run, options: ScoreOptions) -> None:
    """Raise what a finished run still has to say through its exit code."""
    results = run.manifest["results"]
    verified = results["counts"]["verified"]
    if not any(count for metric, count in verified.items() if metric != "reward"):
        reasons = ", ".join(f"{k} {v}" for k, v in results["unverifiable"].get("transition_correctness", {}).items())
        raise NothingVerified(
            f"{run.path}: not one of {results['counts']['transitions']} transitions could be verified"
            f"{f' ({reasons})' if reasons else ''}. See: qualcheck report {run.path}"
        )
    defects = {name: count for name, count in results["flags"].items() if name in DEFECTS}
    if options.strict and defects:
        listed = ", ".join(f"{count} {name}" for name, count in defects.items())
        raise QualcheckError(f"{run.path}: --strict and the input has defects: {listed}.")
