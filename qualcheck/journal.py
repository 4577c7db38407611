"""Finished pieces of a run on disk, so that a run that was killed can go on where it stopped.

A piece is what one job gave: plain Arrow tables and JSON, never pickles, since somebody else may have put the file
there. Pieces lie beside the output in a hidden folder whose name says which run they belong to: the inputs, options and
versions are in its hash, so that pieces of another run are never taken for this one's.
"""

from __future__ import annotations

import contextlib
import glob
import hashlib
import json
import os
import shutil
from collections import Counter
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from qualcheck.checks.reward import Reading
from qualcheck.engines.job import Done, Job, Rechecked
from qualcheck.manifest import dump
from qualcheck.scoring import Scored, Tally

FORMAT = 1  # of a piece; another one is not read


class Pieces(Protocol):
    """Where the results of jobs are kept, and taken from."""

    def load(self, job: Job) -> Done | None:
        """The result of a job, None where it is not there."""
        ...

    def save(self, job: Job, done: Done) -> None: ...


class Journal:
    """The pieces of one run."""

    def __init__(self, out: Path, plan: dict[str, Any], resume: bool) -> None:
        """Args:
        out: folder that the run makes; the pieces lie beside it.
        plan: everything that the results of the run depend on, as JSON.
        resume: take on what is there. False: pieces are written anew, and take the place of those of before.
        """
        self.plan = hashlib.sha256(dump({"format": FORMAT, **plan}).encode()).hexdigest()[:16]
        self.folder = out.absolute().parent / f".{out.name}.pieces-{self.plan}"
        self._resume = resume
        self._known: set[int] = set()

    @property
    def reused(self) -> int:
        """Pieces taken from an earlier run."""
        return len(self._known)

    def load(self, job: Job) -> Done | None:
        """The piece of a job, None where there is none that is whole."""
        if not self._resume:
            return None
        done = read_piece(self.folder, job)
        if done is not None:
            self._known.add(job.number)
        return done

    def save(self, job: Job, done: Done) -> None:
        """Keep the result of a job, unless it came from here; a disk that takes no more of them stops nothing."""
        if job.number in self._known:
            return
        name = self.folder / piece_name(job.number)
        partial = name.with_suffix(f".{os.getpid()}.partial")
        try:
            self.folder.mkdir(exist_ok=True)
            partial.write_bytes(_encode(job, done))
            partial.replace(name)
        except OSError:
            with contextlib.suppress(OSError):
                partial.unlink()

    def remove(self) -> None:
        """Remove the pieces of this output, those of earlier attempts with other inputs or options as well."""
        for folder in self.folder.parent.glob(f"{glob.escape(self.folder.name.rpartition('-')[0])}-*"):
            shutil.rmtree(folder, ignore_errors=True)


def piece_name(number: int) -> str:
    """File of the piece of the job with a number."""
    return f"{number:08d}.piece"


def read_piece(folder: Path, job: Job) -> Done | None:
    """The piece of a job in a folder, None where there is none that is whole and of this job."""
    try:
        return _decode((folder / piece_name(job.number)).read_bytes(), job)
    except (OSError, ValueError, KeyError, TypeError, pa.ArrowException):
        return None


def identity(job: Job) -> str:
    """What tells a job from any other of the same plan."""
    rollouts = job.rollouts
    parts = (job.source, rollouts.n_rollouts, rollouts.n_transitions, len(job.recheck), job.seed)
    digest = hashlib.sha256(repr(parts).encode())
    for values in (rollouts.source_rollout, rollouts.source_step, rollouts.offsets, job.recheck):
        digest.update(np.ascontiguousarray(values, np.int64).tobytes())
    return digest.hexdigest()


def _encode(job: Job, done: Done) -> bytes:
    scored = done.scored
    tally = {field.name: getattr(scored.tally, field.name) for field in fields(Tally)}
    head = {
        "job": identity(job),
        "tally": tally,
        "rechecked": asdict(done.rechecked),
        "steps": done.steps,
        "readings": {name: [r.wrong, r.verified, r.passed] for name, r in scored.readings.items()},
        "tasks": sorted(scored.tasks),
        "hidden": None if scored.hidden is None else list(scored.hidden.shape),
        "fingerprint": str(scored.fingerprint.dtype),
    }
    tables = {
        "transitions": pa.table(scored.transitions),
        "rollouts": pa.table(scored.rollouts),
        "flags": pa.table({name: pa.array(values) for name, values in scored.flags.items()}),
        "other": pa.table({"fingerprint": pa.array(scored.fingerprint)}),
    }
    for name, reading in scored.readings.items():
        tables[f"errors under {name}"] = pa.table({"error": reading.error})
        tables[f"rollouts under {name}"] = pa.table({"consistency": reading.consistency, "shifted": reading.shifted})
    if scored.hidden is not None:
        tables["hidden"] = pa.table({"hidden": pa.array(scored.hidden.ravel())})
    bodies = [_to_bytes(table) for table in tables.values()]
    head["sizes"] = {name: len(body) for name, body in zip(tables, bodies, strict=True)}
    content = json.dumps(head).encode() + b"\n" + b"".join(bodies)
    return hashlib.sha256(content).digest() + content


def _decode(data: bytes, job: Job) -> Done | None:
    """The result of a job, None where the piece is not whole or of another job."""
    digest, content = data[:32], data[32:]
    if hashlib.sha256(content).digest() != digest:
        return None
    line, _, rest = content.partition(b"\n")
    head = json.loads(line)
    if head["job"] != identity(job):
        return None
    tables, at = {}, 0
    for name, size in head["sizes"].items():
        tables[name] = pa.ipc.open_stream(pa.py_buffer(rest[at : at + size])).read_all()
        at += size
    hidden = None
    if head["hidden"] is not None:
        hidden = tables["hidden"]["hidden"].to_numpy().reshape(head["hidden"])
    scored = Scored(
        tally=_tally(head["tally"]),
        transitions=_columns(tables["transitions"]),
        rollouts=_columns(tables["rollouts"]),
        flags={name: values.astype(bool) for name, values in _columns(tables["flags"]).items()},
        readings={
            name: Reading(
                tables[f"errors under {name}"]["error"].to_numpy(),
                tables[f"rollouts under {name}"]["consistency"].to_numpy(),
                tables[f"rollouts under {name}"]["shifted"].to_numpy(),
                *counts,
            )
            for name, counts in head["readings"].items()
        },
        fingerprint=tables["other"]["fingerprint"].to_numpy().astype(head["fingerprint"]),
        candidate=np.zeros((0, 0)),
        hidden=hidden,
        replay_code=np.zeros(0, np.int64),
        tasks=set(head["tasks"]),
    )
    return Done(scored, Rechecked(**head["rechecked"]), head["steps"])


def _tally(values: dict[str, Any]) -> Tally:
    tally = Tally()
    for name, value in values.items():
        kept = getattr(tally, name)
        if isinstance(kept, Counter):
            kept.update(value)
        elif isinstance(kept, dict):
            kept.update({metric: Counter(codes) for metric, codes in value.items()})
        else:
            setattr(tally, name, value)
    return tally


def _columns(table: pa.Table) -> dict[str, Any]:
    """Columns as the checks give them: numbers as arrays, text as Arrow's."""
    columns: dict[str, Any] = {}
    for name in table.column_names:
        column = table[name].combine_chunks()
        number = pa.types.is_integer(column.type) or pa.types.is_floating(column.type) or column.type == pa.bool_()
        columns[name] = column.to_numpy(zero_copy_only=False) if number else column
    return columns


def _to_bytes(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    content: bytes = sink.getvalue().to_pybytes()
    return content
