"""`filter`: a run folder and its inputs in, the rollouts worth keeping out."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from qualcheck import __version__
from qualcheck.auditing import audit as side_effects_of
from qualcheck.cut import cut
from qualcheck.errors import DataError, UsageError
from qualcheck.filters.columns import SAID, score_columns
from qualcheck.filters.decide import MODES, Decision, Mode, decide
from qualcheck.filters.pieces import Pieces
from qualcheck.filters.quantile import Cutoff
from qualcheck.filters.reasons import LABELS
from qualcheck.filters.side_effects import lines as side_effect_lines
from qualcheck.filters.summary import summary, summary_lines
from qualcheck.filters.threshold import Limits
from qualcheck.inputs import FAMILY_KEY, STORAGE_KEY
from qualcheck.io import Source
from qualcheck.io.canonical import CanonicalWriter
from qualcheck.io.like_input import CUTOFFS_KEY, write_like_input
from qualcheck.manifest import dump, sha256
from qualcheck.output import refuse_overlap, staged_files
from qualcheck.registry import load
from qualcheck.reopen import place_of, reopen
from qualcheck.spec import EnvSpec
from qualcheck.table import Run
from qualcheck.types import AnyArray, BoolArray, FloatArray, IntArray

BATCH = 65_536  # transitions
BESIDE = (".filter.json", ".audit.json", ".decisions.parquet", ".codes.npy")  # what may stand beside an output
SCHEMA = 1


@dataclass(frozen=True)
class FilterOptions(Limits):
    """Every parameter of a filtering, with its default; all of them stand in OUT.filter.json."""

    mode: Mode = "rollouts"
    top_fraction: float | None = None
    like_input: bool = False

    def check(self, exact: bool) -> None:
        """Raise UsageError for values that no filtering can have."""
        if self.mode not in MODES:
            raise UsageError(f"--mode {self.mode!r}; it is one of: {', '.join(MODES)}.")
        for option in fields(self):
            value = getattr(self, option.name)
            if option.name.startswith("min_") and value is not None and not 0 <= value <= 1:
                raise UsageError(f"--{option.name.replace('_', '-')} {value}; it is a share from 0 to 1.")
        if self.top_fraction is not None and not 0 < self.top_fraction <= 1:
            raise UsageError(f"--top-fraction {self.top_fraction}; it is a share above 0, up to 1.")
        if self.max_scaled_error is not None and exact:
            raise UsageError("--max-scaled-error: this environment is judged exactly; use --min-correctness.")
        if self.max_scaled_error is not None and not self.max_scaled_error >= 0:
            raise UsageError(f"--max-scaled-error {self.max_scaled_error}; it is a number from 0.")


@dataclass(frozen=True)
class FilterResult:
    """What was written and why; `report` is what OUT.filter.json holds."""

    out: Path
    pieces: Pieces  # what was kept, in the order written; `rollout` is the row of rollouts.parquet
    report: dict[str, Any]
    lines: list[str] = field(default_factory=list)  # for the user, one finding each


@dataclass(frozen=True)
class _Input:
    path: Path
    recorded: dict[str, Any]  # its entry in the manifest
    index: int
    first: int  # running index of its first rollout
    selected: bool
    named: bool  # the user named the task of all its rollouts


def filter_run(
    run: str | Path,
    out: str | Path,
    *,
    input_path: str | Path | None = None,
    trust_pickle: bool = False,
    audit: bool = False,
    **options: Any,
) -> FilterResult:
    """Keep what passes of a scored run, and write it as `out`.

    Beside `out` stand `out`.filter.json (parameters, cut-offs, counts by reason, hashes) and `out`.decisions.parquet
    (one row a rollout of the run). The three appear under their names only when complete, `out` last. A filtering
    that keeps nothing still writes an empty set.

    Args:
        run: folder written by `score`.
        out: file to create: canonical Parquet, or with `like_input` the layout of the input.
        input_path: where an input lies now, if it moved; in a run over several inputs, also the only one to keep from.
        trust_pickle: load pickles with numpy's own loader.
        audit: also say what the filtering does to tasks, lengths and visited states, in `out`.audit.json.
        options: fields of `FilterOptions`.

    Raises:
        DataError: the run is incomplete, or an input is missing or not the file that was scored.
        UsageError: options contradict each other, or `out` exists, is an input or lies in the run folder.
    """
    run, out = Path(run), Path(out)
    known = [option.name for option in fields(FilterOptions)]
    for name in options:
        if name not in known:
            raise UsageError(f"filter has no option {name!r}; it has: {', '.join(known)}.")
    chosen = FilterOptions(**options)
    opened = Run.open(run)
    results = opened.manifest["results"]
    seen = results.get("sample")
    if seen and (seen["rollouts"] < seen["of"] or seen["looks"] > 1):
        how = "drawn in random order" if seen["rollouts"] == seen["of"] else "a sample"
        raise UsageError(
            f"{run}: {how}, {seen['rollouts']} of {seen['of']} rollouts. A filter needs a verdict on each rollout, "
            "in the order of the file: score it without --sample and --target-width."
        )
    adapter = load(results["env"])
    adapter.close()
    chosen.check(adapter.spec.exact)
    inputs = _inputs(opened.manifest, run, None if input_path is None else Path(input_path))
    selected = [entry for entry in inputs if entry.selected]
    if chosen.like_input and len(selected) != 1:
        raise UsageError(
            f"--like-input: {run} scored {len(inputs)} inputs and one file has one layout. Name one with --input PATH, "
            "or leave --like-input out for a single canonical file."
        )
    _refuse(out, run, [entry.path for entry in inputs])
    storage = _one_storage(selected)
    sources = [
        reopen(entry.recorded, opened.manifest, adapter, entry.path, entry.index, trust_pickle) for entry in selected
    ]
    _refuse(out, run, [path for source in sources for path in source.files])
    spec = sources[0].spec
    rollouts, transitions, offsets = score_columns(opened, chosen.mode)
    decision = _decide((rollouts, transitions, offsets), selected, sources, chosen, spec.exact)
    report = _report(opened, inputs, chosen, decision, rollouts["gc_replayed"])
    hidden = _hidden(opened, decision.pieces, offsets)
    effects = None
    if audit:
        candidate = np.logical_or.reduce([_inside(rollouts["rollout"], entry) for entry in selected])
        effects = side_effects_of(opened, sources, [entry.first for entry in selected], decision, candidate, offsets)
        effects["kept_replay"] = report["kept_replay"]
        report["side_effects"] = effects
    with staged_files(out) as stage:
        data = stage / out.name
        tag = _tag(chosen, decision.cutoffs, sources)
        if results.get("family"):
            tag[FAMILY_KEY] = results["family"]
        if storage != "exact":
            tag[STORAGE_KEY] = storage
        if chosen.like_input and sources[0].format != "canonical":
            kept = _of_input(decision.pieces, rollouts["rollout"], selected[0])
            mine = _of_input_mask(decision.pieces, rollouts["rollout"], selected[0])
            whole = (decision.pieces.start == 0) & (rollouts["start"][decision.pieces.rollout] == "reset")
            state = None if hidden is None else hidden[mine]
            write_like_input(sources[0], kept, data, tag, state, whole[mine])
        else:
            _write_canonical(data, spec, selected, sources, (decision.pieces, hidden), rollouts, tag)
        report["output"] = {"name": out.name, "sha256": sha256(data), "format": _format(chosen, sources)}
        if effects is not None:
            (stage / f"{out.name}.audit.json").write_text(dump(effects), encoding="utf-8")
        (stage / f"{out.name}.filter.json").write_text(dump(report), encoding="utf-8")
        _write_decisions(stage / f"{out.name}.decisions.parquet", rollouts["rollout"], decision, offsets)
    lines = [f"{out}: written as {_format(chosen, sources)}", *summary_lines(report, decision)]
    if effects is not None:
        lines += side_effect_lines(effects)
    if chosen.mode == "rollouts" and chosen == FilterOptions(mode="rollouts", like_input=chosen.like_input):
        lines.append("no threshold was given: only coverage was asked for; see qualcheck filter --help")
    if not report["pieces"]:
        lines.append(f"nothing passed: {out} holds an empty set")
    return FilterResult(out, decision.pieces, report, lines)


def _inputs(manifest: Mapping[str, Any], run: Path, moved: Path | None) -> list[_Input]:
    entries: list[dict[str, Any]] = manifest["results"]["inputs"]
    first = np.concatenate([[0], np.cumsum([entry["n_rollouts"] for entry in entries])]).tolist()
    paths = [place_of(entry, manifest) for entry in entries]
    chosen: int | None = None
    if moved is not None:
        if not moved.is_file():
            raise UsageError(f"--input {moved}: no such file.")
        digest = sha256(moved)
        same = [i for i, entry in enumerate(entries) if entry["sha256"] == digest]
        if not same:
            raise DataError(
                f"--input {moved}: not a file that {run} scored; its sha256 begins {digest[:12]}, scored were "
                f"{', '.join(entry['sha256'][:12] for entry in entries)}. Score it again."
            )
        chosen = same[0]
        paths[chosen] = moved
    named = manifest["results"].get("parameters", {}).get("task") is not None
    return [
        _Input(path, entry, i, first[i], chosen in (None, i), named)
        for i, (path, entry) in enumerate(zip(paths, entries, strict=True))
    ]


def _one_storage(selected: Sequence[_Input]) -> str:
    """The storage of the inputs, which the output's rows are held against when it is scored again.

    Raises:
        UsageError: they have several, and one file is held against one noise floor.
    """
    found = {entry.recorded["storage"]: entry.path for entry in selected}
    if len(found) > 1:
        listed = ", ".join(f"{path} ({storage})" for storage, path in found.items())
        raise UsageError(
            f"the inputs are stored in different ways: {listed}. One file has one noise floor: filter them apart with "
            "--input PATH."
        )
    return str(next(iter(found), "exact"))


def _refuse(out: Path, run: Path, inputs: list[Path]) -> None:
    refuse_overlap(out, [*inputs, run])
    folded = str(out.resolve()).casefold()
    for path in inputs:
        if str(path.resolve()).casefold() == folded:
            raise UsageError(f"-o {out}: differs from the input {path} in case only. Choose another output.")
    for path in (out, *(out.with_name(f"{out.name}{beside}") for beside in BESIDE)):
        if path.exists() or path.is_symlink():
            raise UsageError(
                f"-o {out}: {path} exists already; nothing is overwritten. Remove it or choose another name."
            )


def _decide(
    columns: tuple[dict[str, AnyArray], dict[str, AnyArray], IntArray],
    inputs: list[_Input],
    sources: Sequence[Source],
    options: FilterOptions,
    exact: bool,
) -> Decision:
    """Judge the score columns of the selected inputs."""
    rollouts, transitions, offsets = columns
    eligible = np.zeros(len(offsets) - 1, bool)
    known: dict[str, Cutoff] = {}
    for entry, source in zip(inputs, sources, strict=True):
        eligible |= _inside(rollouts["rollout"], entry)
        known.update(_known_cutoffs(source, options))
    return decide(
        rollouts,
        transitions,
        offsets,
        mode=options.mode,
        limits=options,
        fraction=options.top_fraction,
        known=known,
        exact=exact,
        candidate=eligible,
    )


def _inside(rollout: IntArray, entry: _Input) -> BoolArray:
    inside: BoolArray = (rollout >= entry.first) & (rollout < entry.first + entry.recorded["n_rollouts"])
    return inside


def _of_input(pieces: Pieces, rollout: IntArray, entry: _Input) -> Pieces:
    """The pieces of one input, their rollouts counted within it."""
    mine = pieces.select(_of_input_mask(pieces, rollout, entry))
    return Pieces(rollout[mine.rollout].astype(np.int64) - entry.first, mine.start, mine.stop)


def _of_input_mask(pieces: Pieces, rollout: IntArray, entry: _Input) -> BoolArray:
    return _inside(rollout[pieces.rollout], entry)


def _hidden(run: Run, pieces: Pieces, offsets: IntArray) -> FloatArray | None:
    """Hidden state that each piece starts with, (P, H), NaN where it has no transition; None where rows show all."""
    some = pieces.stop > pieces.start  # pieces from a reset too: how far a replay is trusted hangs on the whole rollout
    found = run.hidden(offsets[pieces.rollout[some]] + pieces.start[some])
    if found is None:
        return None
    state = np.full((len(pieces), found.shape[1]), np.nan)
    state[some] = found
    return state


def _recorded(options: FilterOptions, cutoffs: Mapping[str, Cutoff]) -> dict[str, Any]:
    return {
        "mode": options.mode,
        "top_fraction": options.top_fraction,
        "cutoffs": {task: asdict(cutoff) for task, cutoff in sorted(cutoffs.items())},
    }


def _tag(options: FilterOptions, cutoffs: Mapping[str, Cutoff], sources: Sequence[Source]) -> dict[str, str]:
    """The cut-offs as the output itself carries them; those of an earlier filtering stay true without new ones."""
    if cutoffs:
        return {CUTOFFS_KEY: dump(_recorded(options, cutoffs)).strip()}
    earlier = sources[0].metadata.get(CUTOFFS_KEY) if len(sources) == 1 else None
    return {CUTOFFS_KEY: earlier} if isinstance(earlier, str) else {}


def _known_cutoffs(source: Source, options: FilterOptions) -> dict[str, Cutoff]:
    """Cut-offs of an earlier filtering that wrote this input with the same best share."""
    text = source.metadata.get(CUTOFFS_KEY)
    if options.top_fraction is None or not isinstance(text, str):
        return {}
    try:
        earlier = json.loads(text)
        if earlier["top_fraction"] != options.top_fraction:
            return {}
        return {task: Cutoff(**cutoff) for task, cutoff in earlier["cutoffs"].items()}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise DataError(f"{source.path}: its record of an earlier filtering cannot be read ({error}).") from error


def _write_canonical(
    path: Path,
    spec: EnvSpec,
    inputs: list[_Input],
    sources: Sequence[Source],
    cuts: tuple[Pieces, FloatArray | None],
    rollouts: Mapping[str, AnyArray],
    tag: Mapping[str, str],
) -> None:
    said = [{k: v for k, v in source.metadata.items() if not k.startswith("qualcheck_")} for source in sources]
    names = [""] * (max(entry.index for entry in inputs) + 1)
    for entry in inputs:
        names[entry.index] = str(entry.path)
    metadata = (
        said[0]
        if len(said) == 1
        else {"inputs": {str(source.path): part for source, part in zip(sources, said, strict=True)}}
    )
    with CanonicalWriter(path, spec, {**metadata, **tag}, names) as writer:
        for entry, source in zip(inputs, sources, strict=True):
            _append(writer, entry, source, cuts, rollouts)


def _append(
    writer: CanonicalWriter,
    entry: _Input,
    source: Source,
    cuts: tuple[Pieces, FloatArray | None],
    rollouts: Mapping[str, AnyArray],
) -> None:
    """Cut the pieces of one input and write them."""
    pieces, hidden = cuts
    kept = _of_input(pieces, rollouts["rollout"], entry)
    if hidden is not None:
        hidden = hidden[_of_input_mask(pieces, rollouts["rollout"], entry)]
    mine = _inside(rollouts["rollout"], entry)
    said = {name: rollouts[name][mine] for name in SAID}  # (N,) of this input
    done = 0
    for batch in source.batches(BATCH, extras=True):
        place = slice(*np.searchsorted(kept.rollout, [done, done + batch.n_rollouts]))
        here = kept.select(place)
        part = slice(done, done + batch.n_rollouts)
        batch = replace(
            batch,
            is_reset=said["start"][part] == "reset",
            level=said["level"][part].tolist(),
            generator=said["generator"][part].tolist(),
            task=rollouts["task"][mine][part].tolist() if entry.named else batch.task,
        )
        if len(here):
            piece = cut(batch, here.rollout - done, here.start, here.stop)
            writer.append(piece if hidden is None else replace(piece, hidden=hidden[place]))
        done += batch.n_rollouts


def _format(options: FilterOptions, sources: Sequence[Source]) -> str:
    return sources[0].format if options.like_input else "canonical"


def _write_decisions(path: Path, rollout: IntArray, decision: Decision, offsets: IntArray) -> None:
    n = len(offsets) - 1
    length = decision.pieces.stop - decision.pieces.start
    table = pa.table(
        {
            "rollout": pa.array(rollout, pa.int32()),
            "kept": pa.array(decision.rollout_reason == 0),
            "reason": pa.array(np.asarray(LABELS)[decision.rollout_reason], pa.string()),
            "pieces": pa.array(np.bincount(decision.pieces.rollout, minlength=n), pa.int32()),
            "transitions_kept": pa.array(
                np.bincount(decision.pieces.rollout, weights=length, minlength=n).astype(np.int32)
            ),
        }
    )
    pq.write_table(table, path, store_schema=False)


def _report(
    run: Run,
    inputs: list[_Input],
    options: FilterOptions,
    decision: Decision,
    gc_replayed: AnyArray,
) -> dict[str, Any]:
    reached = gc_replayed[decision.pieces.rollout] if options.mode == "rollouts" else None
    return {
        "schema": SCHEMA,
        "parameters": {**asdict(options), "min_coverage": options.coverage},
        "top_fraction": _recorded(options, decision.cutoffs) if options.top_fraction is not None else None,
        **summary(decision, reached),
        "inputs": [
            {"path": str(entry.path), "sha256": entry.recorded["sha256"], "selected": entry.selected}
            for entry in inputs
        ],
        "run": {"path": str(run.path), "manifest_sha256": sha256(run.path / "manifest.json")},
        "versions": {"qualcheck": __version__, **{name: version(name) for name in ("numpy", "pyarrow")}},
    }
