"""How many threads this process may use."""

from __future__ import annotations

import os

THREADS_VARIABLE = "QUALCHECK_THREADS"  # set for worker processes, so that together they do not take every core twice


def cores() -> int:
    """Threads this process may use: what `QUALCHECK_THREADS` says, else the cores it may run on."""
    told = os.environ.get(THREADS_VARIABLE, "")
    if told.isdigit() and int(told) > 0:
        return int(told)
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
