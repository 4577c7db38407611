"""Parquet and Arrow files with one row a step: LeRobot's v2.1 and v3.0, and one episode of Minari's.

LeRobot's columns are `observation.state`, `action`, `episode_index`, `frame_index`, and often `next.reward`,
`next.done` and `next.success`; v2.1 has one file an episode, v3.0 several in one. `next.done` marks the end of an
episode whatever its cause. Minari writes T+1 rows an episode, of which the last has an observation alone.
Sources: the LeRobot documentation ("LeRobotDataset v3.0") and Minari's ("Dataset standards").
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from qualcheck.errors import DataError
from qualcheck.types import AnyArray

LEROBOT = {
    "observation.state": "observations",
    "action": "actions",
    "episode_index": "rollout",
    "next.reward": "rewards",
    "next.done": "dones",
}
_NAMES = {"terminations": "terminals", "truncations": "timeouts"}  # as other files call them
MINARI = ("observations", "actions", "rewards", "terminations", "truncations")


def is_lerobot(names: list[str]) -> bool:
    return {"observation.state", "action", "episode_index"} <= set(names)


def is_minari(names: list[str]) -> bool:
    return set(MINARI) <= set(names)


def lerobot(path: Path, table: pa.Table) -> dict[str, Any]:
    """Flat arrays by the names of other files; columns that are no numbers are left out.

    Raises:
        DataError: steps of an episode are not in the order of `frame_index`, or a column is ragged.
    """
    found = {LEROBOT.get(name, name): _numbers(path, name, table[name]) for name in table.column_names}
    frame, episode = found.get("frame_index"), found["rollout"]
    if frame is not None and episode is not None:
        follows = (np.diff(frame) == 1) | (np.diff(episode) != 0)
        if not follows.all():
            at = int(np.argmin(follows)) + 1
            raise DataError(f"{path}: row {at}: frame_index does not follow the row before. Sort the file by frame")
    return {name: value for name, value in found.items() if value is not None}


def minari(path: Path, table: pa.Table) -> list[dict[str, Any]]:
    """The one episode of such a file; the last row shows where its last action led."""
    columns = {name: _numbers(path, name, table[name]) for name in MINARI}
    steps = max(table.num_rows - 1, 0)
    return [
        {
            _NAMES.get(name, name): value if name == "observations" else value[:steps]
            for name, value in columns.items()
            if value is not None
        }
    ]


def _numbers(path: Path, name: str, column: pa.ChunkedArray) -> AnyArray | None:
    """(M,) or (M, K) in the dtype of the file; None for a column of anything else."""
    kind = column.type
    listed = pa.types.is_list(kind) or pa.types.is_fixed_size_list(kind) or pa.types.is_large_list(kind)
    inner = kind.value_type if listed else kind
    if not (pa.types.is_integer(inner) or pa.types.is_floating(inner) or pa.types.is_boolean(inner)):
        return None
    if not listed:
        values: AnyArray = column.to_numpy()
        return values
    flat = column.combine_chunks()
    size = flat.value_lengths().to_numpy(zero_copy_only=False)
    if len(size) and not (size == size[0]).all():
        raise DataError(f"{path}: column {name!r} is ragged; expected as many numbers in each row")
    return np.asarray(flat.flatten().to_numpy(zero_copy_only=False)).reshape(
        len(size), int(size[0]) if len(size) else 0
    )
