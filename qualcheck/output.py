"""Outputs appear whole or not at all, and never over something of the user's."""

from __future__ import annotations

import contextlib
import os
import platform
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path

from qualcheck.errors import UsageError


def refuse_overlap(out: Path, inputs: Iterable[Path]) -> None:
    """Refuse an output that is an input, holds one, or lies in one, under whatever name.

    Raises:
        UsageError: it does.
    """
    target = out.resolve()
    for path in inputs:
        source = path.resolve()
        same = out.exists() and path.exists() and out.samefile(path)
        if same or target == source or target in source.parents or source in target.parents:
            raise UsageError(f"-o {out} would overwrite the input {path}. Choose another output.")


@contextlib.contextmanager
def staged_folder(out: Path) -> Iterator[Path]:
    """A folder beside `out` that takes its name when the block ends well, and is removed when it does not.

    Raises:
        UsageError: `out` exists and is not an empty folder, or its parent cannot be written.
    """
    if out.is_symlink() or (out.exists() and not (out.is_dir() and not any(out.iterdir()))):
        raise UsageError(f"-o {out} exists already; nothing is overwritten. Remove it or choose another name.")
    stage = _open_stage(out)
    try:
        yield stage
        stage.chmod(0o777 & ~_umask())
        try:
            stage.rename(out)  # an empty folder of that name is replaced; anything else is not
        except OSError as error:
            raise UsageError(f"-o {out} appeared while the run went on; nothing is overwritten.") from error
    finally:
        shutil.rmtree(stage, ignore_errors=True)


@contextlib.contextmanager
def staged_files(out: Path) -> Iterator[Path]:
    """A folder beside `out` whose files take their names when the block ends well, the one named as `out` last.

    Raises:
        UsageError: the parent of `out` cannot be written, or one of the names was taken meanwhile.
    """
    stage = _open_stage(out)
    try:
        yield stage
        for path in sorted(stage.iterdir(), key=lambda path: (path.name == out.name, path.name)):
            _publish(path, out.absolute().parent / path.name)
    finally:
        shutil.rmtree(stage, ignore_errors=True)


def _publish(path: Path, name: Path) -> None:
    """Give a finished file its name; of several who want it the first one gets it."""
    try:
        os.link(path, name)
    except FileExistsError as error:
        raise UsageError(f"{name} appeared while the output was written; nothing is overwritten.") from error
    except OSError:  # a file system without hard links
        if name.exists():
            raise UsageError(f"{name} appeared while the output was written; nothing is overwritten.") from None
        path.replace(name)


def _open_stage(out: Path) -> Path:
    parent = out.absolute().parent
    try:
        parent.mkdir(parents=True, exist_ok=True)
        _remove_abandoned(parent, out.name)
        return Path(tempfile.mkdtemp(prefix=f"{_stage_prefix(out.name)}{os.getpid()}-", dir=parent))
    except OSError as error:
        raise UsageError(f"-o {out}: cannot write there ({error.strerror}). Choose another output.") from error


def _stage_prefix(name: str) -> str:
    """Names of unfinished folders tell this machine's from those of others on a shared disk."""
    return f".{name}.partial-{platform.node()}-"


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def _remove_abandoned(parent: Path, name: str) -> None:
    """Remove the unfinished folders of killed runs into the same output."""
    prefix = _stage_prefix(name)
    for stage in parent.iterdir():
        if not stage.name.startswith(prefix):
            continue
        owner = stage.name.removeprefix(prefix).partition("-")[0]
        if owner.isdigit() and not _alive(int(owner)):
            shutil.rmtree(stage, ignore_errors=True)


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
