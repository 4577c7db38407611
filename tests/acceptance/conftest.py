"""What the acceptance tests share: the product's public face, a writer of inputs and a second model of BabyAI.

Nothing here imports the product. Runs are started as a user starts them, tables are read with plain pyarrow, and the
expectations come from a small model written from the specification, so that a fault of the product cannot hide itself.
"""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

SCRIPT = Path(sys.executable).parent / "qualcheck"
COLOURS = ("red", "green", "blue", "purple", "yellow", "grey")
FIELD = {"ball": 0, "box": 3, "key": 6, "door": 9}
TYPE = {"ball": 6, "box": 7, "key": 5}
MOVES = {0: (0, -1), 1: (0, 1), 2: (-1, 0), 6: (1, 0)}


@dataclass(frozen=True)
class Tables:
    """A run folder as plain columns: `t` one row a transition, `r` one row a rollout."""

    path: Path
    done: subprocess.CompletedProcess[str]

    def __post_init__(self) -> None:
        assert (self.path / "manifest.json").is_file(), self.done.stderr

    @property
    def manifest(self) -> dict[str, Any]:
        return json.loads((self.path / "manifest.json").read_text(encoding="utf-8"))

    @property
    def t(self) -> dict[str, np.ndarray]:
        return _columns(self.path / "transitions.parquet")

    @property
    def r(self) -> dict[str, np.ndarray]:
        return _columns(self.path / "rollouts.parquet")

    def grid(self, name: str, shape: tuple[int, int], fill: Any = np.nan) -> np.ndarray:
        """A column of transitions.parquet laid out by (rollout, step), `fill` where no row exists."""
        columns = self.t
        out = np.full(shape, fill, dtype=columns[name].dtype)
        out[columns["rollout"], columns["step"]] = columns[name]
        return out

    def steps(self, rollout: int, name: str) -> np.ndarray:
        columns = self.t
        return columns[name][columns["rollout"] == rollout]

    def flags(self, rollout: int) -> set[str]:
        return set(self.r["flags"][rollout])


_CACHE: dict[tuple[Path, int], dict[str, np.ndarray]] = {}


def _columns(path: Path) -> dict[str, np.ndarray]:
    key = (path, path.stat().st_mtime_ns)
    if key not in _CACHE:
        table = pq.read_table(path)
        _CACHE[key] = {
            name: np.array(
                table[name].to_pylist(),
                dtype=object if str(table.schema.field(name).type).startswith(("string", "list")) else None,
            )
            if str(table.schema.field(name).type).startswith("list")
            else table[name].to_numpy(zero_copy_only=False)
            for name in table.column_names
        }
    return _CACHE[key]


class Product:
    """The `qualcheck` command of this Python's environment."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._server = subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("serve.py"))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._calls = 0

    def close(self) -> None:
        self._server.stdin.close()
        self._server.wait(timeout=60)

    def __call__(
        self, *arguments: object, timeout: int = 150, env: dict[str, str] | None = None, cwd: Path | None = None
    ) -> subprocess.CompletedProcess[str]:
        self._calls += 1
        out, err = (self._folder / f"{self._calls}.{name}" for name in ("out", "err"))
        argv = [str(argument) for argument in arguments]
        request = {
            "argv": argv,
            "cwd": str(cwd or Path.cwd()),
            "env": {**os.environ, **(env or {})},
            "out": str(out),
            "err": str(err),
            "timeout": timeout,
        }
        self._server.stdin.write(json.dumps(request) + "\n")
        self._server.stdin.flush()
        code = json.loads(self._server.stdout.readline())
        return subprocess.CompletedProcess(
            [str(SCRIPT), *argv], code, out.read_text(encoding="utf-8"), err.read_text(encoding="utf-8")
        )

    def score(
        self, out: Path, *inputs: Path, options: Sequence[object] = (), code: int = 0, env: str = "babyai"
    ) -> Tables:
        done = self("score", *inputs, "--env", env, "-o", out, *options)
        assert done.returncode == code, f"exit {done.returncode}, expected {code}\n{done.stdout}\n{done.stderr}"
        return Tables(out, done)

    def report(self, *runs: Path, options: Sequence[object] = ()) -> dict[str, Any]:
        done = self("report", *runs, "--format", "json", *options)
        assert done.returncode == 0, done.stderr
        return strict_json(done.stdout)


def strict_json(text: str) -> Any:
    """JSON by the letter: the words NaN and Infinity are no numbers there."""

    def refuse(word: str) -> Any:
        raise AssertionError(f"{word} stands in the JSON as a number")

    return json.loads(text, parse_constant=refuse)


@pytest.fixture(scope="session")
def qualcheck(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Product]:
    product = Product(tmp_path_factory.mktemp("commands"))
    yield product
    product.close()


@pytest.fixture(scope="session")
def scored(
    qualcheck: Product, shared_data: Path, tmp_path_factory: pytest.TempPathFactory
) -> Callable[[str], tuple[Tables, dict[str, Any]]]:
    """Score one shared file, once a session; the tables and the file's own dictionary."""
    known: dict[str, tuple[Tables, dict[str, Any]]] = {}

    def get(name: str) -> tuple[Tables, dict[str, Any]]:
        if name not in known:
            folder = tmp_path_factory.mktemp(Path(name).stem)
            run = qualcheck.score(folder / "run", shared_data / name)
            known[name] = (run, load(shared_data / name))
        return known[name]

    return get


def load(path: Path) -> dict[str, Any]:
    """One of the shared dictionaries; their origin is known, so the plain reader will do."""
    content: dict[str, Any] = np.load(path, allow_pickle=True).item()
    return content


class World:
    """BabyAI from sections 1 to 7 of the environment's specification, one integer row of 17 at a time."""

    ROW0 = np.array([2, 2, 5, 1, 4, 2, 4, 5, 5, 0, 3, 7, 1, 6, 1, 0, 0])

    @staticmethod
    def step(row: np.ndarray, action: int) -> np.ndarray:
        new = row.copy()
        y, x = int(row[13]), int(row[14])
        here = [kind for kind in TYPE if (row[FIELD[kind] + 1], row[FIELD[kind] + 2]) == (y, x)]
        if action in MOVES:
            to = (y + MOVES[action][0], x + MOVES[action][1])
            if all(1 <= place <= 6 for place in to):
                new[13:15] = to
        elif action == 3 and row[15] == 0 and here:
            at = FIELD[here[0]]
            new[at + 1 : at + 3] = 0
            new[15:17] = TYPE[here[0]], row[at]
        elif action == 4 and row[15] != 0 and not here:
            at = next(FIELD[kind] for kind in TYPE if TYPE[kind] == row[15])
            new[at + 1 : at + 3] = y, x
            new[15:17] = 0
        elif action == 5 and (y, x) == (row[10], 6):
            fits = row[15] == 5 and row[16] == row[9]
            new[12] = {0: 1, 1: 0, 2: 0 if fits else 2}[int(row[12])]
        return new

    @classmethod
    def play(cls, row0: np.ndarray, actions: Sequence[int]) -> np.ndarray:
        """All rows of an episode, (T+1, 17)."""
        rows = [np.array(row0)]
        for action in actions:
            rows.append(cls.step(rows[-1], action))
        return np.stack(rows)

    @staticmethod
    def goto_reward(rows: np.ndarray, at: int = FIELD["ball"]) -> np.ndarray:
        """Reward of every step of a go-to episode whose target stands still and is no door, (T,)."""
        distance = np.abs(rows[:, at + 1 : at + 3] - rows[:, 13:15]).sum(1)
        success = 1 - 0.9 * np.arange(1, len(rows)) / 128
        dense = (distance[:-1] - distance[1:]) / (distance[0] + 1)
        return np.where(distance[1:] == 0, success, dense)

    @staticmethod
    def putnext_reward(rows: np.ndarray, first: str, second: str) -> np.ndarray:
        """Reward of every step of a put-next episode that carries no third object, (T,)."""

        def far(target: np.ndarray, start: np.ndarray, agent: np.ndarray) -> int:
            return int(np.abs(target - start).sum()) if target.any() else int(np.abs(start - agent).sum()) + 1

        def distance(row: np.ndarray) -> int:
            a, b = (row[FIELD[kind] + 1 : FIELD[kind] + 3] for kind in (first, second))
            if row[15] == 0:
                return far(a, row[13:15], row[13:15]) + far(b, a, row[13:15]) + 24
            return far(b, row[13:15], row[13:15]) if row[15] == TYPE[first] else 72

        out = []
        for t in range(1, len(rows)):
            a, b = (rows[t, FIELD[kind] + 1 : FIELD[kind] + 3] for kind in (first, second))
            if np.abs(a - b).sum() == 1:
                out.append(1 - 0.9 * t / 128)
            else:
                out.append((distance(rows[t - 1]) - distance(rows[t])) / (distance(rows[0]) + 1))
        return np.array(out)


@pytest.fixture(scope="session")
def world() -> type[World]:
    return World


@dataclass
class Episode:
    """One hand-made rollout: rows (T+1, 17) and actions (T,), with everything that a test wants to spoil."""

    rows: np.ndarray
    actions: np.ndarray
    instruction: Any = "go to the blue ball"
    rewards: np.ndarray | None = None
    next_rows: np.ndarray | None = None
    mask: np.ndarray | None = None
    terminal: bool = False


class Bench:
    """Writes hand-made rollouts as the older dictionary or as the current Parquet, both from spec/formats.md."""

    @staticmethod
    def arrays(episodes: Sequence[Episode], width: int | None = None, next_observations: bool = True) -> dict[str, Any]:
        n, width = len(episodes), width or max(len(e.actions) for e in episodes)
        kind = np.result_type(*(e.actions.dtype for e in episodes))
        out: dict[str, Any] = {
            "observations": np.zeros((n, width, 17), np.float32),
            "next_observations": np.zeros((n, width, 17), np.float32),
            "actions": np.zeros((n, width), np.float64 if kind.kind == "f" else np.int64),
            "rewards": np.zeros((n, width, 1), np.float32),
            "masks": np.zeros((n, width, 1), np.float32),
            "terminals": np.zeros((n, width, 1), bool),
            "instructions": [[e.instruction] for e in episodes],
        }
        for i, e in enumerate(episodes):
            length = len(e.actions)
            out["observations"][i, :length] = e.rows[:-1]
            out["next_observations"][i, :length] = e.rows[1:] if e.next_rows is None else e.next_rows
            out["actions"][i, :length] = e.actions
            if length and e.rewards is not None:
                out["rewards"][i, :length, 0] = e.rewards
            out["masks"][i, :length, 0] = 1 if e.mask is None else e.mask
            if length:
                out["terminals"][i, length - 1] = e.terminal
        if not next_observations:
            del out["next_observations"]
        return out

    @staticmethod
    def npy(path: Path, content: dict[str, Any], protocol: int = 4) -> Path:
        """What `np.save` of a dictionary writes, under a chosen pickle protocol."""
        box = np.empty((), object)
        box[()] = content
        with path.open("wb") as stream:
            np.lib.format.write_array_header_1_0(stream, {"descr": "|O", "fortran_order": False, "shape": ()})
            pickle.dump(box, stream, protocol=protocol)
        return path

    @staticmethod
    def parquet(path: Path, content: dict[str, Any], order: Sequence[int] | None = None) -> Path:
        """The current layout: a row a rollout, K_shape of the full array, raw little-endian bytes."""
        import pyarrow as pa

        n = len(content["observations"])
        order = list(range(n)) if order is None else list(order)
        columns: dict[str, Any] = {"file_name": [path.name] * n, "row_index": pa.array(order, pa.int64())}
        for key, value in content.items():
            if isinstance(value, np.ndarray):
                columns[f"{key}_shape"] = [str(value.shape)] * n
                columns[f"{key}_dtype"] = [value.dtype.name] * n
                little = value.astype(value.dtype.newbyteorder("<"))
                columns[f"{key}_data"] = pa.array([little[i].tobytes() for i in order], pa.binary())
            else:
                columns[f"list_{key}_shape"] = [f"({len(value[i])},)" for i in order]
                columns[f"list_{key}_dtype"] = ["<U200"] * n
                columns[f"list_{key}_data"] = pa.array([value[i] for i in order], pa.list_(pa.string()))
        pq.write_table(pa.table(columns), path)
        return path

    @staticmethod
    def read_parquet(path: Path) -> dict[str, Any]:
        """The current layout read as spec/formats.md describes the released loader, with its demands asserted."""
        rows = pq.read_table(path).to_pylist()
        n, out = len(rows), {}
        assert sorted(row["row_index"] for row in rows) == list(range(n))
        for name in rows[0]:
            if name.startswith("list_") and name.endswith("_data"):
                values: list[Any] = [None] * n
                for row in rows:
                    values[row["row_index"]] = row[name]
                out[name[5:-5]] = values
            elif name.endswith("_data"):
                key = name[:-5]
                shapes = {row[f"{key}_shape"] for row in rows}
                assert len(shapes) == 1
                shape = tuple(int(part) for part in shapes.pop().strip("()").split(",") if part.strip())
                assert shape[0] == n, f"{key}_shape says {shape[0]} rollouts; the file has {n}"
                array = np.zeros(shape, rows[0][f"{key}_dtype"])
                for row in rows:
                    raw = row[name]  # a list with one value where the full array is one-dimensional
                    one = raw[0] if isinstance(raw, list) else np.frombuffer(raw, array.dtype).reshape(shape[1:])
                    array[row["row_index"]] = one
                out[key] = array
        return out


@pytest.fixture(scope="session")
def bench() -> type[Bench]:
    return Bench


@pytest.fixture(scope="session")
def episode(world: type[World]) -> Callable[..., Episode]:
    """Make a rollout by playing actions from row 0; keywords replace parts of it."""

    def make(actions: Sequence[float] = (), row0: np.ndarray | None = None, **parts: Any) -> Episode:
        start = world.ROW0 if row0 is None else np.asarray(row0)
        rows = world.play(start, [int(action) for action in actions])
        return Episode(rows.astype(np.float64), np.asarray(actions), **parts)

    return make


# walks to the box, carries it one cell, puts it down, goes to the ball: every kind of effect but the door's
TOUR = (1, 2, 2, 3, 2, 4, 1, 1, 1, 2)


@pytest.fixture(scope="session")
def tour() -> tuple[int, ...]:
    return TOUR
