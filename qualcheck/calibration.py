"""Calibration files: tolerances by storage, the scale of real change, and real rollouts kept as control."""

from __future__ import annotations

import json
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq

from qualcheck.checks.flags import GOAL_IS_ACTION
from qualcheck.errors import DataError
from qualcheck.manifest import sha256_text
from qualcheck.spec import EnvSpec
from qualcheck.tolerance import Scale, Tolerance

CONTROL_COLUMNS = (
    "task",
    "level",
    "cluster",
    "length",
    "gc_imagined",
    "gc_replayed",
    "gc_imagined_released",
    "gc_replayed_released",
)


@dataclass(frozen=True)
class Calibration:
    """One calibration file."""

    name: str  # path, or "shipped"
    digest: str  # sha256 of its text
    content: dict[str, Any]

    def scale(self, storage: str) -> Scale | None:
        """The tolerances of a storage; None where real data of that storage were never seen."""
        found = self.content.get("storages", {}).get(storage)
        if found is None:
            return None
        return Scale(
            storage,
            Tolerance(found["median"], found["tolerance"], found["common"]),
            np.array(self.content["std_change"]),
            np.array(self.content["std_state"]),
            found["label"],
            {
                name: Tolerance(each["median"], each["tolerance"], each["common"])
                for name, each in found.get("settled", {}).items()
            },
            {
                situation: {
                    seeding: Tolerance(each["usual"], each["tolerance"]) for seeding, each in told["seedings"].items()
                }
                for situation, told in found.get("situations", {}).items()
            },
        )

    def control(self, storage: str) -> dict[str, Any] | None:
        """The held-out real rollouts kept with it, stored in the same way, as a report needs them."""
        table = self.content.get("controls", {}).get(storage, self.content.get("rollouts"))
        if table is None:
            return None
        how = "" if storage == "exact" else f", stored as {storage}"
        return {"source": self.content["source"] + how, "rollouts": table}


def shipped(spec: EnvSpec, family: str = "") -> Calibration | None:
    """The calibration that comes with the package for an environment, its row layout and its simulator family.

    None where there is none.
    """
    folder = files("qualcheck") / "calibration"
    names = (f"{spec.id}-{family}.json",) if family else (f"{spec.id}-{spec.obs_size}.json", f"{spec.id}.json")
    for name in names:
        if (folder / name).is_file():
            text = (folder / name).read_text(encoding="utf-8")
            return Calibration("shipped", sha256_text(text), json.loads(text))
    return None


def load(path: Path, spec: EnvSpec, family: str = "") -> Calibration:
    """A calibration file that `qualcheck calibrate` wrote.

    Raises:
        DataError: it is no calibration, or of another environment, row layout or simulator family.
    """
    try:
        text = path.read_text(encoding="utf-8")
        content = json.loads(text)
    except (OSError, ValueError) as error:
        raise DataError(
            f"{path}: no calibration ({error}). Make one with: qualcheck calibrate REAL --env ENV"
        ) from error
    if not isinstance(content, dict) or not {"env", "columns", "storages", "std_change"} <= set(content):
        raise DataError(f"{path}: no calibration. Make one with: qualcheck calibrate REAL --env {spec.id} -o FILE")
    if content["env"] != spec.id:
        raise DataError(
            f"{path}: a calibration of {content['env']}, and the input is {spec.id}. Leave it out or refit."
        )
    if content["columns"] != list(spec.columns):
        raise DataError(
            f"{path}: made for rows of {len(content['columns'])} columns, and the input has {spec.obs_size}. Refit it."
        )
    if not _complete(content, spec):
        raise DataError(f"{path}: damaged, or of another version of qualcheck. Fit it again: qualcheck calibrate.")
    if content.get("family", "") != family:
        raise DataError(
            f"{path}: made with the simulator family {content.get('family', '')!r}, and the input is of {family!r}. "
            "Leave it out, refit it, or say with --family which one made the input."
        )
    return Calibration(str(path), sha256_text(text), content)


def _complete(content: dict[str, Any], spec: EnvSpec) -> bool:
    """Whether every tolerance that the content names is there, for every block, and is a number above 0."""
    blocks = {block.name for block in spec.blocks}
    try:
        known = Calibration("", "", content)
        for name, found in content["storages"].items():
            scale = known.scale(name)
            if scale is None or {*scale.others} < {*spec.situations} & {*spec.unsettled}:
                return False
            if found.get("label") is None or {len(scale.std_change), len(scale.std_state)} != {spec.obs_size}:
                return False
            others = [each for seedings in scale.others.values() for each in seedings.values()]
            for each in (scale.noise, *scale.settled.values(), *others):
                values = np.array([each.limit_joint, *each.usual.values()], np.float64)
                if {*each.usual} != blocks or not np.isfinite(values).all() or (values <= 0).any():
                    return False
        return bool(content["storages"])
    except (KeyError, TypeError, AttributeError, ValueError):
        return False


def control_of_run(folder: Path, source: str) -> dict[str, Any]:
    """The compact table of a scored folder that a report needs for its control row."""
    rollouts = pq.read_table(folder / "rollouts.parquet", columns=["rollout", *CONTROL_COLUMNS, "flags"])
    steps = pq.read_table(folder / "transitions.parquet", columns=["rollout", "tc", "dl"])
    table: dict[str, list[Any]] = {
        name: [None if value != value else value for value in rollouts[name].to_pylist()] for name in CONTROL_COLUMNS
    }
    table["goal_is_action"] = [GOAL_IS_ACTION in flags for flags in rollouts["flags"].to_pylist()]
    owner, size = steps["rollout"].to_numpy(), rollouts.num_rows
    for name in ("tc", "dl"):
        values = steps[name].to_numpy()
        table[f"{name}_pass"] = np.bincount(owner[values == 1], minlength=size).tolist()
        table[f"{name}_n"] = np.bincount(owner[~np.isnan(values)], minlength=size).tolist()
    return {"source": source, "rollouts": table}
