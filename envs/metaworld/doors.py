"""Starts of the lock tasks behind a door that an earlier episode had left somewhere, settled beforehand.

`python -m qualcheck.envs.metaworld.doors -o envs/metaworld/doors.npz` makes the table again: for each family and each
of the two doors, the start that a reset ends in with the door at every point of the grid of `arm`. Settling them anew
takes the steps of 45 resets, more than most files of these tasks have themselves.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from functools import cache
from importlib.metadata import version
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np

from qualcheck.envs.metaworld.arm import Starts
from qualcheck.envs.metaworld.kernel import Kernel
from qualcheck.envs.metaworld.scene import FAMILIES, scene_key
from qualcheck.types import FloatArray

MADE_WITH = "mujoco"  # the key under which the file names the version that settled it


@cache
def _shipped() -> dict[str, FloatArray]:
    """The tables of the package, none where another MuJoCo is installed than settled them."""
    with files("qualcheck.envs.metaworld").joinpath("doors.npz").open("rb") as file, np.load(file) as found:
        if str(found[MADE_WITH]) != version("mujoco"):
            return {}
        return {name: found[name] for name in found.files if name != MADE_WITH}


def shipped(family: str, key: str) -> FloatArray | None:
    """Numbers of the start with the door at each point of the grid, (9, 5, 6 + nq + nv), of a family's scene.

    None where there is no table of them for the MuJoCo installed.
    """
    return _shipped().get(f"{family} {key}")


def main(arguments: Sequence[str] | None = None) -> None:
    """Settle every start and write the tables to a file."""
    parser = argparse.ArgumentParser(prog="python -m qualcheck.envs.metaworld.doors", description=main.__doc__)
    parser.add_argument("-o", "--output", type=Path, required=True, metavar="FILE", help=".npz file to write")
    given = parser.parse_args(arguments)
    tables = {}
    for family in FAMILIES:
        kernel = Kernel(family, threads=1)
        for hinged in (False, True):
            scene = kernel.scene("door-unlock", hinged)
            tables[f"{family} {scene_key('door-unlock', hinged)}"] = Starts().behind_doors(scene)
        kernel.close()
    content: dict[str, Any] = {MADE_WITH: np.array(version("mujoco")), **tables}
    np.savez(given.output, **content)


if __name__ == "__main__":
    main()
