"""Layouts of two files with one stem: arrays in an HDF5 file, texts and goals in a `.npy` beside it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

ARRAY_SUFFIXES = (".hdf5", ".h5", ".hdf")
TOLD = ("instructions", "goals")  # what the second file adds


def with_partner(
    path: Path, format: str, raw: dict[str, Any], read: Callable[[Path], Any]
) -> tuple[dict[str, Any], Path | None]:
    """The keys of a file together with those of its partner, and that partner; either of the two may be `path`.

    Args:
        format: kind of the file at `path`.
        raw: its contents.
        read: gives the contents of another file.
    """
    tells = any(raw.get(name) is not None for name in TOLD)
    if format == "hdf5" and not tells and raw.get("observations") is not None:
        partner = path.with_suffix(".npy")
        if partner.is_file():
            texts = read(partner)
            if isinstance(texts, dict) and texts.get("observations") is None and any(k in texts for k in TOLD):
                return {**texts, **raw}, partner
    if format == "npy" and tells and raw.get("observations") is None:
        for suffix in ARRAY_SUFFIXES:
            partner = path.with_suffix(suffix)
            if partner.is_file():
                arrays = read(partner)
                if isinstance(arrays, dict):
                    return {**raw, **arrays}, partner
    return raw, None
