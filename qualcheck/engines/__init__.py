"""Where batches of rollouts are checked: in threads of this process, or in worker processes.

Whatever the engine, the same jobs go in and the same results come back in the same order, so that the bytes of a run
do not depend on it.
"""

from __future__ import annotations

from qualcheck.adapter import EnvAdapter
from qualcheck.engines.job import Done, Engine, Job
from qualcheck.engines.processes import Processes
from qualcheck.engines.threads import Threads

__all__ = ["Done", "Engine", "Job", "open_engine"]


def open_engine(adapter: EnvAdapter, workers: int = 1) -> Engine:
    """The engine of a run.

    Args:
        adapter: the environment, in the layout and simulator family of the inputs.
        workers: processes to check in; 1: this one, in threads.
    """
    return Threads(adapter) if workers == 1 else Processes(adapter, workers)
