"""Opens the inputs of a finished run again, if they are still what was scored."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from qualcheck.adapter import EnvAdapter
from qualcheck.errors import DataError, UsageError
from qualcheck.io import FileSource, open_source, read_statistics
from qualcheck.manifest import sha256


def reopen(
    entry: Mapping[str, Any],
    manifest: Mapping[str, Any],
    adapter: EnvAdapter,
    path: Path,
    index: int,
    trust_pickle: bool,
) -> FileSource:
    """One input of a run, read as it was read then.

    Args:
        entry: its part of the manifest.
        manifest: of the run.
        adapter: the environment, in any of its layouts.
        path: where the file lies now.
        index: its place in the list of inputs.
        trust_pickle: load pickles with numpy's own loader.

    Raises:
        DataError: the file is missing, or is not the one that was scored.
        UsageError: there never was a file.
    """
    if entry["format"] == "arrays":
        raise UsageError("the run was made from arrays in memory, which are gone; save them to a file and score that.")
    if not path.is_file():
        raise DataError(f"{path}: no such file; it was scored there. If it moved, name it with --input PATH.")
    decided = entry["last_action"]
    beside = {name: _beside(name, manifest) for name in ("encodings", "obs_mean", "obs_std")}
    mean, std = beside["obs_mean"], beside["obs_std"]
    check_digest(path, entry["sha256"])
    source = open_source(
        path,
        adapter.layouts(),
        index=index,
        last_action=decided if decided in ("executed", "filler") else "auto",
        trust_pickle=trust_pickle,
        encodings=beside["encodings"],
        obs_mean=None if mean is None else read_statistics(mean),
        obs_std=None if std is None else read_statistics(std),
    )
    for other, partner in zip(source.files[1:], entry.get("partners", []), strict=False):
        check_digest(other, partner["sha256"])
    counted = entry["n_rollouts"], entry["n_transitions"]
    if (source.n_rollouts, source.n_transitions) != counted:
        raise DataError(
            f"{path}: {source.n_transitions} transitions in {source.n_rollouts} rollouts; the run counted {counted[1]} "
            f"in {counted[0]}. It was read by another version; score it again."
        )
    return source


def _beside(name: str, manifest: Mapping[str, Any]) -> Path | None:
    """A file that an option of the run named, if it still is what it was."""
    results = manifest["results"]
    value = results.get("parameters", {}).get(name)
    if value is None:
        return None
    path = place_of({"path": value}, manifest)
    if not path.is_file():
        raise DataError(f"{path}: no such file; the run read its --{name.replace('_', '-')} there. Put it back.")
    check_digest(path, results["files"][name])
    return path


def check_digest(path: Path, digest: str) -> None:
    """Raise DataError if the file is not the one with that hash."""
    found = sha256(path)
    if found != digest:
        raise DataError(
            f"{path}: changed since it was scored; its sha256 begins {found[:12]}, it was {digest[:12]}. Score it "
            "again, or name the file that was scored with --input PATH."
        )


def place_of(entry: Mapping[str, Any], manifest: Mapping[str, Any]) -> Path:
    """Where an input lies: as named, seen from here, or else from the folder in which it was scored."""
    named = Path(entry["path"])
    there = Path(manifest.get("run", {}).get("folder", ".")) / named
    return there if not named.exists() and there.exists() else named
