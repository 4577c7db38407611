"""`manifest.json`: written last, so that its presence means the run is complete."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from qualcheck.errors import DataError

SCHEMA = 1
DEFINITIONS = 1


def sha256(path: Path) -> str:
    """Hex digest of a file's bytes."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def sha256_text(text: str) -> str:
    """Hex digest of a text in UTF-8."""
    return hashlib.sha256(text.encode()).hexdigest()


def dump(value: Any) -> str:
    """JSON text that is equal for equal values: sorted keys, no NaN."""
    return json.dumps(value, indent=1, sort_keys=True, allow_nan=False, ensure_ascii=False) + "\n"


def read_manifest(run: Path) -> dict[str, Any]:
    """The manifest of a finished run.

    Raises:
        DataError: the folder is missing, unfinished, or from a newer schema.
    """
    path = run / "manifest.json"
    try:
        manifest = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        what = "holds no manifest.json, so it is no finished run" if run.is_dir() else "does not exist"
        raise DataError(f"{run}: {what}. Make one with: qualcheck score INPUT --env ENV -o {run}") from error
    except NotADirectoryError as error:
        raise DataError(f"{run}: a file; expected the folder that `qualcheck score -o` wrote.") from error
    except (OSError, ValueError) as error:
        raise DataError(f"{path}: not readable as JSON ({error}). Score the input again.") from error
    if not isinstance(manifest, dict) or not isinstance(manifest.get("results"), dict):
        raise DataError(f"{path}: not a qualcheck manifest. Is this the folder that `qualcheck score -o` wrote?")
    inputs = manifest["results"].get("inputs", [])
    if not isinstance(inputs, list) or not all(
        isinstance(entry, dict) and isinstance(entry.get("path"), str) for entry in inputs
    ):
        raise DataError(f"{path}: its list of inputs is damaged. Score the input again.")
    if manifest.get("schema") != SCHEMA:
        raise DataError(f"{path}: schema {manifest.get('schema')!r}; this version reads {SCHEMA}. Score again.")
    return manifest
