"""Reads damaged copies of a file in a process of its own, and prints what came of each as a line of JSON.

python damage.py FILE ENV cuts|flips [COUNT]
"""

from __future__ import annotations

import json
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from qualcheck.errors import QualcheckError
from qualcheck.inputs import open_inputs
from qualcheck.options import ScoreOptions
from qualcheck.registry import load

BLOCK = 4096
SECONDS = 20


def damaged(content: bytes, how: str, count: int) -> Iterator[tuple[str, bytes]]:
    """Cuts at every 4 KiB, or copies with a few bytes changed, half of them near the beginning or the end."""
    if how == "cuts":
        for end in range(0, len(content), BLOCK):
            yield f"cut {end}", content[:end]
        return
    rng = np.random.default_rng(0)
    for number in range(count):
        copy = bytearray(content)
        near = min(len(copy), 2048)
        places = [(0, len(copy)), (0, near), (len(copy) - near, len(copy)), (0, len(copy))][number % 4]
        for _ in range(int(rng.integers(1, 9))):
            copy[int(rng.integers(*places))] = int(rng.integers(256))
        yield f"flip {number}", bytes(copy)


def outcome(path: Path, env: str) -> str:
    """ "read", "refused: ..." or "fault: ..."."""
    try:
        adapter = load(env)
        inputs = open_inputs(adapter, [path], ScoreOptions())
        for source in inputs.sources:
            for batch in source.batches():
                assert len(batch.start_obs) == batch.n_transitions
        inputs.adapter.close()
    except QualcheckError as error:
        return f"refused: {error}"
    except Exception as error:
        return f"fault: {type(error).__name__}: {error}"
    return "read"


def peak_mb() -> float:
    """The most memory that this process has held; `ru_maxrss` would begin with what its parent held."""
    lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM:")) / 1024


def say(line: dict[str, object]) -> None:
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()


def main() -> None:
    path, env, how = Path(sys.argv[1]), sys.argv[2], sys.argv[3]
    content = path.read_bytes()

    def late(*_: object) -> None:
        raise TimeoutError(f"longer than {SECONDS} s")

    signal.signal(signal.SIGALRM, late)
    with tempfile.TemporaryDirectory() as folder:
        for name, data in damaged(content, how, int(sys.argv[4]) if len(sys.argv) > 4 else 0):
            copy = Path(folder) / path.name
            copy.write_bytes(data)
            say({"case": name, "outcome": "died"})
            signal.alarm(SECONDS)
            begin = time.monotonic()
            found = outcome(copy, env)
            signal.alarm(0)
            seconds = time.monotonic() - begin
            peak = peak_mb()
            say({"case": name, "outcome": found, "seconds": seconds, "peak_mb": peak})


if __name__ == "__main__":
    main()
