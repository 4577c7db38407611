"""HDF5 files with one group an episode: Minari's (`episode_0`, ...) and robomimic's (`data/demo_0`, ...).

Sources: the dataset standards in the documentation of Minari ("Dataset standards") and of robomimic ("Dataset
structure").
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import h5py

from qualcheck.errors import DataError
from qualcheck.io.hdf5 import _datasets, _plain, _size
from qualcheck.io.limits import check_unpacked

_NUMBERED = re.compile(r"(episode|demo)_(\d+)")
_NAMES = {"terminations": "terminals", "truncations": "timeouts"}  # as other files call them
_DERIVED = ("id", "total_steps", "num_samples")  # attributes that follow from the groups themselves


def read_episodes(path: Path) -> list[dict[str, Any]] | None:
    """One dict an episode, in the order of their numbers; None where the file has no such groups.

    Raises:
        DataError: an episode is no flat array, lies outside the file, or is refused; see `read_hdf5`.
    """
    try:
        with h5py.File(path, "r") as file:
            root = _hard(path, file, "data") if "data" in file else file
            names = _names(root) if isinstance(root, h5py.Group) else []
            if not names:
                return None
            groups = [_hard(path, root, name) for name in names]
            parts = [_parts(path, group) for group in groups]
            check_unpacked(path, sum(_size(data) for part in parts for data in part.values()))
            return [
                {
                    **{key: _plain(value) for key, value in group.attrs.items() if key not in _DERIVED},
                    **{_NAMES.get(key, key): _numbers(data) for key, data in part.items()},
                }
                for group, part in zip(groups, parts, strict=True)
            ]
    except DataError:
        raise
    # the library raises nearly any exception on a file that is not what it claims
    except Exception as error:
        reason = str(error).splitlines()[0][:200] if str(error) else type(error).__name__
        raise DataError(f"{path}: the HDF5 file cannot be read ({reason}). Is it whole? Copy it again") from error


def _names(root: h5py.Group) -> list[str]:
    return sorted((n for n in root if _NUMBERED.fullmatch(n)), key=lambda name: int(name.rpartition("_")[2]))


def _hard(path: Path, parent: h5py.Group, name: str) -> Any:
    if not isinstance(parent.get(name, getlink=True), h5py.HardLink):
        raise DataError(f"{path}: {name!r} is a link; expected the data themselves. Write the file again without it")
    return parent[name]


def _parts(path: Path, group: h5py.Group) -> dict[str, h5py.Dataset]:
    """Arrays of an episode; a group with a single array, as robomimic's `obs`, stands for that array."""
    found = _datasets(path, group)
    for name in group:
        part = _hard(path, group, name)
        if not isinstance(part, h5py.Group):
            continue
        inner = _datasets(path, part)
        if name in ("obs", "next_obs", "observations", "actions"):
            if len(inner) != 1:
                shown = ", ".join(list(inner)[:8])
                raise DataError(
                    f"{path}: {group.name}/{name} holds {len(inner)} arrays ({shown}); expected one. Put the columns "
                    "of the environment's row into one array"
                )
            found[name] = next(iter(inner.values()))
        else:
            found |= {f"{name}/{key}": data for key, data in inner.items()}
    if not any(key in found for key in ("obs", "observations", "observation")) and "states" in found:
        raise DataError(
            f"{path}: {group.name} holds simulator states and no observations; expected observations. Extract them "
            "with the program that recorded the file"
        )
    return found


def _numbers(data: h5py.Dataset) -> Any:
    """The values of an array, in memory; None where they are neither numbers nor text."""
    if h5py.check_string_dtype(data.dtype) is not None:
        return _plain(data.asstr("utf-8", "replace")[()])
    return _plain(data[()]) if data.dtype.kind in "biufSU" and data.shape is not None else None
