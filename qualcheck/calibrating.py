"""`calibrate`: real rollouts in, the tolerances that imagined ones are held against out."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from qualcheck import __version__
from qualcheck.adapter import EnvAdapter
from qualcheck.calibration import Calibration, control_of_run, shipped
from qualcheck.errors import DataError, UsageError
from qualcheck.inputs import open_inputs
from qualcheck.io import CanonicalWriter
from qualcheck.manifest import dump, sha256, sha256_text
from qualcheck.options import ScoreOptions
from qualcheck.output import refuse_overlap, staged_files
from qualcheck.registry import load
from qualcheck.scorepass import Referee, run_pass
from qualcheck.storage import coarser_or_equal, find_storage
from qualcheck.subset import Subset
from qualcheck.tolerance import ALPHA, Scale, fit, stored
from qualcheck.types import Rollouts

DOUBTFUL = 10  # times the median error of the shipped calibration
HELD_OUT = 5  # every fifth rollout is not fitted on, and kept as the control


def calibrate(
    real: str | Path | Sequence[str | Path],
    env: str,
    out: str | Path,
    *,
    alpha: float = ALPHA,
    trust_pickle: bool = False,
    family: str | None = None,
) -> Calibration:
    """Fit the tolerances of an environment on real rollouts, and write them to `out`.

    Four of five rollouts are fitted on; the fifth ones are scored with the result and stored as control.

    Args:
        real: files of real rollouts, all of one row layout.
        env: id of the environment.
        out: JSON file to create.
        alpha: share of new real rollouts that may hold a rejected transition.
        trust_pickle: load pickles with numpy's own loader.
        family: simulator family that made the files; None: recognised from them.

    Raises:
        DataError: a file cannot be used, or holds too little.
        UsageError: `out` exists or is an input, or the environment is exact and needs no tolerance.
    """
    paths = [Path(real)] if isinstance(real, (str, Path)) else [Path(path) for path in real]
    out = Path(out)
    if not 0 < alpha < 1:
        raise UsageError(f"--alpha {alpha}; it is a share between 0 and 1, such as {ALPHA}.")
    if not paths:
        raise UsageError("calibrate needs at least one file of real rollouts.")
    if out.exists():
        raise UsageError(f"-o {out} exists already; nothing is overwritten. Remove it or choose another name.")
    adapter = load(env)
    if adapter.spec.exact:
        raise UsageError(f"{env} is replayed exactly: its tolerance is 0 and nothing is to be calibrated.")
    for path in paths:
        if not path.exists():
            raise DataError(f"{path}: no such file. Check the path.")
    refuse_overlap(out, paths)
    try:
        inputs = open_inputs(adapter, paths, ScoreOptions(trust_pickle=trust_pickle, family=family), calibrated=False)
        fitted: list[Rollouts] = []
        kept: list[Rollouts] = []
        for source in inputs.sources:
            held = np.arange(source.n_rollouts) % HELD_OUT == HELD_OUT - 1
            fitted += Subset(source, ~held).batches()
            kept += Subset(source, held).batches()
        provenance = {
            "source": "held-out part of " + ", ".join(path.name for path in paths),
            "data": [{"path": str(path), "sha256": sha256(path)} for path in paths],
            "made_by": {"command": "qualcheck calibrate", "qualcheck": __version__},
        }
        content = build(inputs.adapter, fitted, kept, alpha, provenance)
        content["doubts"] = _doubts(inputs.adapter, content, fitted)
        inputs.adapter.close()
    finally:
        adapter.close()
    text = dump(content)
    with staged_files(out) as stage:
        (stage / out.name).write_text(text, encoding="utf-8")
    return Calibration(str(out), sha256_text(text), content)


def _doubts(adapter: EnvAdapter, content: dict[str, Any], rollouts: Sequence[Rollouts]) -> list[str]:
    """Why the rollouts may not be real ones, one line each."""
    lines = []
    for flag in ("chain_break", "non_finite"):
        count = sum(int(part.flags[flag].sum()) for part in rollouts if flag in part.flags)
        if count:
            lines.append(f"{count} of the rollouts are flagged {flag}")
    known = shipped(adapter.spec, adapter.family)
    for storage in content["native_storages"]:
        scale = known.scale(storage) if known is not None else None
        if scale is not None and storage in content["storages"]:
            median = content["storages"][storage]["median"]
            worst = max(median[block] / scale.noise.usual[block] for block in median)
            if worst > DOUBTFUL:
                lines.append(
                    f"their errors are up to {worst:,.0f} times those of recorded rollouts stored as {storage}: are "
                    "they imagined, or actions and rows out of step?"
                )
    return lines


def build(
    adapter: EnvAdapter,
    fitted: Sequence[Rollouts],
    kept: Sequence[Rollouts],
    alpha: float,
    provenance: dict[str, Any],
    spread: Sequence[Rollouts] | None = None,
) -> dict[str, Any]:
    """The content of a calibration file.

    Args:
        adapter: the environment in the row layout of the rollouts.
        fitted: real rollouts that the tolerances are learnt from.
        kept: others, which become the control, in every storage that they can be brought into.
        alpha: see `fit`.
        provenance: what else the file says.
        spread: see `fit`.

    Raises:
        DataError: there is no transition to learn from.
    """
    if not any(part.n_transitions for part in fitted):
        raise DataError("calibrate: the files hold no transition to learn from. Are they rollouts of this environment?")
    content = {**fit(adapter, fitted, alpha, spread), **provenance}
    if not content["storages"]:
        raise DataError("calibrate: no transition could be replayed. Are these rollouts of this environment?")
    known = Calibration("new", "", content)
    controls = {}
    for storage in content["storages"]:
        usable = [stored(part, storage) for part in kept if storage in coarser_or_equal(find_storage(part.obs))]
        if usable:
            controls[storage] = _control(adapter, usable, known.scale(storage))
    return {**content, "controls": controls}


def _control(adapter: EnvAdapter, rollouts: Sequence[Rollouts], scale: Scale | None) -> dict[str, Any]:
    """The compact table of real rollouts scored with a scale."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "kept.parquet"
        with CanonicalWriter(path, adapter.spec, {}) as writer:
            for part in rollouts:
                writer.append(part)
        inputs = open_inputs(adapter, [path], ScoreOptions(family=adapter.family or None), calibrated=False)
        labels = [replace(label, scale=scale) for label in inputs.labels]
        run_pass(adapter, inputs.sources, labels, Path(folder), Referee.draw(inputs.transitions, 0, 0))
        table: dict[str, Any] = control_of_run(Path(folder), "")["rollouts"]
        return table
