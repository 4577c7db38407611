"""Where the time of a run goes: seconds of its threads, by what they were doing.

Off unless `started`; a phase then costs one look at a global.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

READ, RESTORE, SIMULATE, CHECK, RECHECK, WRITE = PHASES = (
    "read", "restore", "simulate", "check", "recheck", "write",
)  # fmt: skip
WAIT = "wait"  # for threads whose time is counted by themselves


class Clock:
    """Seconds by phase, summed over threads."""

    def __init__(self) -> None:
        self._seconds: Counter[str] = Counter()
        self._lock = threading.Lock()

    def add(self, seconds: Mapping[str, float]) -> None:
        """Count what another process has counted, or a thread."""
        with self._lock:
            self._seconds.update(seconds)

    def take(self) -> dict[str, float]:
        """What was counted since the last time."""
        with self._lock:
            taken, self._seconds = self._seconds, Counter()
        return {name: taken[name] for name in PHASES if name in taken}


_clock: Clock | None = None
_mine = threading.local()


@contextmanager
def started() -> Iterator[Clock]:
    """Count from here on, in all threads of this process."""
    global _clock
    before, _clock = _clock, Clock()
    try:
        yield _clock
    finally:
        _clock = before


def running() -> bool:
    """Whether anybody counts."""
    return _clock is not None


def count(seconds: Mapping[str, float]) -> None:
    """Add what another process has counted."""
    if _clock is not None:
        _clock.add(seconds)


class phase:
    """`with phase(SIMULATE):`; what is inside a nested phase counts for that one alone."""

    __slots__ = ("_begin", "_clock", "_inside", "_name", "_outer", "_threads")

    def __init__(self, name: str, threads: int = 1) -> None:
        """Args:
        name: one of `PHASES`, or `WAIT`.
        threads: that work meanwhile, in a library's own pool.
        """
        self._name, self._threads = name, threads

    def __enter__(self) -> None:
        self._clock = _clock
        if self._clock is None:
            return
        self._outer: phase | None = getattr(_mine, "phase", None)
        self._inside = 0.0
        _mine.phase = self
        self._begin = time.perf_counter()

    def __exit__(self, *_: object) -> None:
        if self._clock is None:
            return
        took = time.perf_counter() - self._begin
        _mine.phase = self._outer
        if self._outer is not None:
            self._outer._inside += took
        self._clock.add({self._name: (took - self._inside) * self._threads})
