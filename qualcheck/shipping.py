"""Makes the calibrations that ship with the package, from real rollouts of others and recordings of its own.

    python -m qualcheck.shipping ENV REAL... [--spread REAL] [--family NAME] -o FOLDER

Even-numbered rollouts of the files are fitted on, so that the odd ones can test the result; of the files nothing but
numbers learnt from them is kept. Where an environment has several simulator families, each file counts for the one
that made it. The standard deviations come from all rollouts of the files named by --spread, else from what is fitted
on: the tasks of a recording may alternate, so that its even half holds only some of them. The control is made of own
recordings alone.

An environment's own recordings come from `recordings(purpose, each, family)` in its module `record`. They are left out
for the families that `EMULATED` there names: what the emulation of an older simulator costs shows on its own files
alone. There the odd-numbered rollouts are the control, in which a test on them changes nothing, and rows of float64
are held against what float32 ones show: not the rounding decides, but the emulation.
"""

from __future__ import annotations

import argparse
import importlib
import json
import sys
from collections.abc import Sequence
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path

import numpy as np

from qualcheck import __version__
from qualcheck.adapter import EnvAdapter
from qualcheck.calibrating import build
from qualcheck.inputs import FAMILY_SAMPLE
from qualcheck.io import open_source
from qualcheck.manifest import sha256
from qualcheck.registry import BUILT_IN, load
from qualcheck.subset import Subset
from qualcheck.tolerance import ALPHA
from qualcheck.types import Rollouts

EACH = 20  # own rollouts of each task, for the fit and for the control


def in_layout(rollouts: Rollouts, columns: int) -> Rollouts:
    """The rollouts with rows of the last `columns` numbers."""
    first = rollouts.obs.shape[1] - columns
    return replace(
        rollouts,
        obs=rollouts.obs[:, first:],
        break_obs=None if rollouts.break_obs is None else rollouts.break_obs[:, first:],
        reset_obs=None if rollouts.reset_obs is None else rollouts.reset_obs[:, first:],
    )


def of_family(adapter: EnvAdapter, paths: Sequence[Path], family: str) -> list[Path]:
    """The files that a simulator family made; all of them where there is only one."""
    if not family:
        return list(paths)
    found = []
    for path in paths:
        first = next(open_source(path, adapter.layouts()).batches(FAMILY_SAMPLE))
        named, _ = adapter.recognise(replace(first, is_reset=np.ones(first.n_rollouts, bool)))
        if (named or adapter.families()[0]) == family:
            found.append(path)
    return found


def ship(
    env: str,
    paths: Sequence[Path],
    spread: Sequence[Path],
    folder: Path,
    each: int = EACH,
    families: Sequence[str] = (),
) -> list[Path]:
    """Write the calibration of every row layout and simulator family of an environment, or of some families."""
    usual = load(env)
    record = importlib.import_module(f"qualcheck.envs.{env}.record")
    written = []
    for family in families or usual.families() or ("",):
        real, measured = of_family(usual, paths, family), of_family(usual, spread, family)
        emulated = family in getattr(record, "EMULATED", ())
        halves: list[list[Rollouts]] = [[], []]
        for path in real:
            source = open_source(path, usual.layouts())
            for half, parts in enumerate(halves):
                parts += Subset(source, np.arange(source.n_rollouts) % 2 == half).batches()
        whole = [part for path in measured for part in open_source(path, usual.layouts()).batches()]
        own = {
            purpose: [] if emulated else list(record.recordings(purpose, each, family))
            for purpose in ("fit", "control")
        }
        control = halves[1] if emulated else own["control"]
        for spec in usual.layouts():
            adapter = usual.with_layout(spec.obs_size)
            adapter = adapter.with_family(family) if family else adapter
            fitted, kept, told = (
                [in_layout(part, spec.obs_size) for part in parts]
                for parts in ([*halves[0], *own["fit"]], control, whole)
            )
            provenance = {
                "source": "shipped calibration: "
                + ("odd rollouts of the files" if emulated else "own recordings of every task, held out"),
                "data": [{"name": path.name, "sha256": sha256(path), "rollouts": "even"} for path in real],
                "made_by": {
                    "command": f"python -m qualcheck.shipping {env} --each {each}",
                    "qualcheck": __version__,
                    "mujoco": version("mujoco"),
                },
            }
            content = build(adapter, fitted, kept, ALPHA, provenance, told or None)
            adapter.close()
            if emulated:
                for part in (content["storages"], content["controls"]):
                    if "float32" in part:
                        part["float64"] = part["float32"]
            text = json.dumps(content, sort_keys=True, allow_nan=False, separators=(",", ":"))
            name = f"{env}-{family}" if family else f"{env}-{spec.obs_size}"
            name = env if not family and len(usual.layouts()) == 1 else name
            written.append(folder / f"{name}.json")
            written[-1].write_text(text + "\n", encoding="utf-8")
    usual.close()
    return written


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("env", choices=sorted(BUILT_IN))
    parser.add_argument("real", nargs="*", type=Path)
    parser.add_argument("--spread", type=Path, action="append", default=[])
    parser.add_argument("--family", action="append", default=[], help="of the environment's; default: every one")
    parser.add_argument("--each", type=int, default=EACH, help="own rollouts of each task; 100 in all or more")
    parser.add_argument("-o", "--out", type=Path, required=True)
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    for path in ship(options.env, options.real, options.spread, options.out, options.each, options.family):
        sys.stdout.write(f"{path}\n")


if __name__ == "__main__":
    main()
