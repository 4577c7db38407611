"""A run in shards: each checks its share of the batches, on whatever machine, and `merge` makes the run of them.

A shard keeps what its batches came to, as pieces of a `Journal`. To merge is to score again with all pieces at hand:
the inputs are read once more, nothing is simulated but what a summary needs, and the bytes are those of a run in one
go, since it is the same run.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from qualcheck.engines import LOCAL, check_engine, open_engine
from qualcheck.engines.job import Done, Job
from qualcheck.errors import DataError, QualcheckError, UsageError, WorkerLost
from qualcheck.inputs import Inputs
from qualcheck.journal import Journal, piece_name, read_piece
from qualcheck.manifest import dump, sha256
from qualcheck.options import ScoreOptions, read_options
from qualcheck.output import staged_folder
from qualcheck.pipeline import INPUTS, REFERENCE, everything, open_all, refuse_missing, score
from qualcheck.registry import load
from qualcheck.sampling import plan as plan_sample
from qualcheck.scorepass import Progress, Referee, run_shard
from qualcheck.table import Run

FORMAT = 1  # of a shard; another one is not read
HEAD = "shard.json"


@dataclass(frozen=True)
class Share:
    """One part of a run: those batches whose number is `number` - 1 modulo `of`."""

    number: int
    of: int

    @classmethod
    def read(cls, text: str) -> Share:
        """From "I/N".

        Raises:
            UsageError: it is no such text, or I is not from 1 to N.
        """
        first, slash, second = text.partition("/")
        whole = slash and first.isascii() and second.isascii() and first.isdigit() and second.isdigit()
        if not whole or not 1 <= int(first) <= int(second):
            raise UsageError(f"--shard {text}; it is I/N with I from 1 to N, such as 2/8.")
        return cls(int(first), int(second))

    def has(self, batch: int) -> bool:
        """Whether a batch is in it."""
        return batch % self.of == self.number - 1


def score_shard(
    inputs: Sequence[str | Path],
    env: str,
    out: str | Path,
    shard: str,
    *,
    reference: Sequence[str | Path] = (),
    progress: Callable[[str, int], Progress] | None = None,
    workers: int = 1,
    resume: bool = False,
    engine: str = LOCAL,
    **options: Any,
) -> Path:
    """Check one share of the batches of a run into the folder `out`, for `merge`.

    Args:
        inputs: files of rollouts, the same for every shard.
        env: id of the environment.
        out: folder to create.
        shard: "I/N".
        reference, progress, workers, resume, engine, options: see `score`; the same options for every shard.

    Returns:
        The folder.

    Raises:
        DataError, UsageError, SimulatorDisagreement, WorkerLost: as `score`.
    """
    share, chosen, out = Share.read(shard), read_options(options), Path(out)
    if chosen.target_width is not None:
        raise UsageError("--target-width asks for the results so far, which no shard knows. Use --sample N.")
    check_engine(engine, workers)
    paths, real = [Path(path) for path in inputs], [Path(path) for path in reference]
    adapter = load(env)
    journals: list[Journal] = []
    try:
        refuse_missing(out, [*paths, *real])
        digests = {path: sha256(path) for path in [*paths, *real]}
        opened, beside = open_all(adapter, paths, real, chosen)
        passes = {INPUTS: (opened, paths)} | ({REFERENCE: (beside, real)} if beside else {})
        head: dict[str, Any] = {
            "format": FORMAT, "shard": [share.number, share.of], "env": env, "inputs": [str(path) for path in paths],
            "reference": [str(path) for path in real], "folder": str(Path.cwd()), "options": asdict(chosen),
            "passes": {},
        }  # fmt: skip
        with staged_folder(out) as folder:
            for name, (each, files) in passes.items():
                content = _content(each, chosen, [digests[path] for path in files])
                journal = Journal(out, {**content, "shard": [name, share.number, share.of]}, resume)
                journals.append(journal)
                sources = each.sources
                if chosen.sample is not None and name == INPUTS:
                    sources = plan_sample(each.adapter, sources, each.labels, chosen.sample, chosen.seed).looks[0]
                total = sum(source.n_transitions for source in sources)
                batches = run_shard(
                    each.adapter, sources, each.labels, Referee.draw(total, chosen.recheck, chosen.seed), share.has,
                    journal, progress("checking", total) if progress and name == INPUTS else None,
                    lambda adapter: open_engine(adapter, workers, engine),
                )  # fmt: skip
                head["passes"][name] = {"plan": _digest(content), "batches": batches}
                (folder / name).mkdir()
                for number in batches:
                    _move(journal.folder / piece_name(number), folder / name / piece_name(number))
            for path, digest in digests.items():
                if sha256(path) != digest:
                    raise DataError(f"{path}: changed while it was read. Score it again when nothing writes to it.")
            (folder / HEAD).write_text(dump(head), encoding="utf-8")
        for journal in journals:
            journal.remove()
    except QualcheckError as error:
        if not isinstance(error, WorkerLost):
            for journal in journals:
                journal.remove()
        raise
    finally:
        adapter.close()
    return out


def merge(
    shards: Sequence[str | Path], out: str | Path, *, progress: Callable[[str, int], Progress] | None = None
) -> Run:
    """The run that shards are the parts of, byte for byte the one that `score` makes in one go.

    Args:
        shards: folders of `score_shard`, all of one run, in any order.
        out: folder to create.
        progress: see `score`.

    Raises:
        DataError: a shard is missing, damaged, given twice, of another run, or the inputs are not the same any more.
        UsageError: `out` exists, or nothing is given.
    """
    folders = [Path(folder) for folder in shards]
    if not folders:
        raise UsageError("merge needs the folders of all shards, such as: qualcheck merge shards/* -o RUN")
    heads = {folder: _head(folder) for folder in folders}
    first = heads[folders[0]]
    of = first["shard"][1]
    known: dict[int, Path] = {}
    for folder, head in heads.items():
        if _same(head) != _same(first):
            differs = [name for name in _same(first) if _same(head)[name] != _same(first)[name]]
            raise DataError(f"{folder}: a shard of another run than {folders[0]}: {', '.join(differs)} differ.")
        other = known.setdefault(head["shard"][0], folder)
        if other is not folder:
            raise DataError(f"{folder}: shard {head['shard'][0]}/{of}, which {other} is as well. Give each once.")
    if missing := [str(number) for number in range(1, of + 1) if number not in known]:
        raise DataError(f"merge: of {of} shards {', '.join(missing)} {'is' if len(missing) == 1 else 'are'} missing.")
    paths = [Path(path) for path in [*first["inputs"], *first["reference"]]]
    if gone := next((path for path in paths if not path.exists()), None):
        raise DataError(f"{gone}: no such file. The shards were made in {first['folder']}: merge them there.")
    options = read_options(first["options"])
    ordered = [known[number] for number in range(1, of + 1)]

    def pieces(name: str, inputs: Inputs) -> _Shards:
        digests = [sha256(Path(path)) for path in first[name]]
        if _digest(_content(inputs, options, digests)) != first["passes"][name]["plan"]:
            raise DataError(
                f"{folders[0]}: the inputs, qualcheck or a simulator are not the ones that the shards were made with."
            )
        return _Shards([folder / name for folder in ordered])

    given = asdict(options)
    return score(
        paths[: len(first["inputs"])], first["env"], out,
        reference=first["reference"], progress=progress, pieces=pieces, **given,
    )  # fmt: skip


class _Shards:
    """The pieces of all shards, which nobody adds to."""

    def __init__(self, folders: Sequence[Path]) -> None:
        self._folders = folders

    def load(self, job: Job) -> Done:
        folder = self._folders[job.number % len(self._folders)]
        done = read_piece(folder, job)
        if done is None:
            raise DataError(
                f"{folder / piece_name(job.number)}: missing or damaged. Make shard "
                f"{job.number % len(self._folders) + 1}/{len(self._folders)} again."
            )
        return done

    def save(self, job: Job, done: Done) -> None:
        """Nothing: it came from here."""


def _content(inputs: Inputs, options: ScoreOptions, digests: Sequence[str]) -> dict[str, Any]:
    return {"format": FORMAT, **everything(inputs, options, digests)}


def _digest(content: dict[str, Any]) -> str:
    return hashlib.sha256(dump(content).encode()).hexdigest()


def _same(head: dict[str, Any]) -> dict[str, Any]:
    """What all shards of a run have in common."""
    return {
        "environment": head["env"],
        "number of shards": head["shard"][1],
        "inputs": head["inputs"],
        "references": head["reference"],
        "options": head["options"],
        "content of the inputs or versions": {name: each["plan"] for name, each in head["passes"].items()},
    }


def _head(folder: Path) -> dict[str, Any]:
    try:
        head = json.loads((folder / HEAD).read_text(encoding="utf-8"))
        number, of = head["shard"]
        sound = head["format"] == FORMAT and 1 <= number <= of and isinstance(head["env"], str)
        sound = sound and all(isinstance(each["plan"], str) for each in head["passes"].values())
        sound = sound and all(isinstance(path, str) for path in [*head["inputs"], *head["reference"], head["folder"]])
        sound = sound and set(head["passes"]) == {INPUTS, *([REFERENCE] if head["reference"] else [])}
        sound = sound and bool(head["inputs"]) and isinstance(head["options"], dict)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise DataError(f"{folder}: not the folder of a finished shard; those are made by score --shard.") from error
    if not sound:
        raise DataError(f"{folder}: the shard is of another version of qualcheck, or damaged. Make it again.")
    loaded: dict[str, Any] = head
    return loaded


def _move(piece: Path, name: Path) -> None:
    try:
        piece.rename(name)
    except OSError as error:
        raise DataError(f"{name}: a piece could not be written. Is the disk full?") from error
