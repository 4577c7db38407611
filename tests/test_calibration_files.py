"""Calibrations that ship can be given by name; damaged ones are refused with one line."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest

from qualcheck.calibration import load
from qualcheck.errors import DataError
from qualcheck.registry import load as load_adapter

FOLDER = Path(str(files("qualcheck") / "calibration"))


@pytest.mark.parametrize("name", sorted(path.name for path in FOLDER.glob("*.json") if path.name != "babyai.json"))
def test_every_shipped_calibration_is_complete(name: str) -> None:
    content = json.loads((FOLDER / name).read_text())
    adapter = load_adapter(content["env"]).with_layout(len(content["columns"]))
    assert load(FOLDER / name, adapter.spec, content.get("family", "")).content["env"] == content["env"]


DAMAGE: dict[str, Callable[[dict[str, Any]], Any]] = {
    "a block is missing": lambda c: c["storages"]["float32"]["median"].pop("red"),
    "a tolerance is no number": lambda c: c["storages"]["float32"].update(tolerance="small"),
    "a tolerance is not finite": lambda c: c["storages"]["float32"].update(tolerance=float("nan")),
    "what is common is not said": lambda c: c["storages"]["float32"].pop("common"),
    "what is common is beyond the tolerance": lambda c: c["storages"]["float32"].update(common=1e9),
    "a median is 0": lambda c: c["storages"]["float32"]["median"].update(red=0),
    "deviations are missing": lambda c: c.update(std_change=[1.0, 1.0]),
    "deviations are null": lambda c: c.update(std_state=None),
    "a situation is missing": lambda c: c["storages"]["float32"].pop("situations"),
    "the storages are a list": lambda c: c.update(storages=["float32"]),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_calibration_is_refused(damage: str, tmp_path: Path) -> None:
    content = copy.deepcopy(json.loads((FOLDER / "clevr-mujoco-3.json").read_text()))
    DAMAGE[damage](content)
    (tmp_path / "a.json").write_text(json.dumps(content))
    with pytest.raises(DataError, match="damaged"):
        load(tmp_path / "a.json", load_adapter("clevr").spec, "mujoco-3")
