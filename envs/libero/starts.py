"""Rows that episodes start from, judged row by row.

The nine released files hold 1,000 rows each; how many of them differ, and which break a law, is what is said here.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from qualcheck.envs.libero import shapes
from qualcheck.envs.libero.columns import BODIES, OBS_SIZE, POSES, finite_rows, quaternion
from qualcheck.envs.libero.reset import RESET_LAWS, broken_start, start_of
from qualcheck.envs.libero.rules import ROW_LAWS, broken_rows
from qualcheck.envs.libero.takeable import CODES, takeable
from qualcheck.errors import DataError
from qualcheck.io.npz import read_npz
from qualcheck.starting import DECIMALS, Starts
from qualcheck.types import AnyArray, FloatArray


def one_sign(obs: AnyArray) -> FloatArray:
    """The rows with each quaternion turned so that its largest part is positive, (R, 44) -> (R, 44) float64."""
    rows = obs.astype(np.float64)  # a copy, also of float64
    for first in POSES:
        quat = quaternion(rows, first)
        largest = np.abs(quat).round(2).argmax(axis=1)  # parts that agree to two digits count as equal: the first wins
        sign = np.where(quat[np.arange(len(quat)), largest] < 0, -1.0, 1.0)
        rows[:, first + 3 : first + 7] = quat * sign[:, None]
    return rows


def judge_starts(obs: AnyArray, task: str = "") -> Starts:
    """Count and judge start rows, (R, 44); with a task they must be of the file that the task draws from.

    Two rows that differ in the sign of a quaternion are one. The facts are the heights of the lowest point of each
    object over all rows, above the floor in m.
    """
    finite = finite_rows(obs)
    broken = dict(zip([law.id for law in ROW_LAWS], broken_rows(obs)[0], strict=True))
    begins = broken_start(obs, np.full(len(obs), task if start_of(task) else ""))
    broken |= {law.id: rows for law, rows in zip(RESET_LAWS, begins, strict=True)}
    lowest = shapes.lowest_m(obs[finite]) if finite.any() else np.full((1, len(BODIES)), np.nan)
    with np.errstate(invalid="ignore"):
        close = np.round(one_sign(obs), DECIMALS) + 0.0  # -0.0 and 0.0 are one number
    return Starts(
        n_rows=len(obs),
        unique=len(np.unique(obs, axis=0)),
        unique_close=len(np.unique(close, axis=0)),
        broken={name: rows for name, rows in broken.items() if rows.any()},
        facts={
            f"lowest_point_of_{body}_m": float(height) for body, height in zip(BODIES, lowest.min(axis=0), strict=True)
        },
    )


def read_inits(folder: Path, start: str) -> tuple[Path, FloatArray]:
    """The benchmark's file for a kind of start, such as "pick-cream_cheese", and its rows, (R, 44).

    Raises:
        DataError: the folder does not hold one such file, or it has other contents, or rows that no simulator takes
            on; the released files have none.
    """
    ending = f"{start.replace('-', '_')}_inits.npz"
    found = sorted(path for path in folder.glob("*.npz") if path.name.endswith(ending))
    if len(found) != 1:
        raise DataError(f"{folder}: {len(found)} files whose names end in {ending}; expected one. Check --inits.")
    rows = np.asarray(read_npz(found[0]).get("observations", np.zeros(0)))
    if rows.ndim != 2 or rows.shape[1] != OBS_SIZE or not len(rows) or rows.dtype.kind != "f":
        raise DataError(f"{found[0]}: observations of shape {rows.shape}; expected rows of {OBS_SIZE} numbers.")
    code = takeable(rows)
    bad = np.flatnonzero(code)
    if len(bad):
        raise DataError(
            f"{found[0]}: {len(bad)} of {len(rows)} rows are no states that the simulator takes on; row {bad[0]}: "
            f"{CODES[code[bad[0]]]}. Remove them, or leave --inits out."
        )
    return found[0], rows.astype(np.float64)
