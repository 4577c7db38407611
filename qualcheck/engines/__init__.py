"""Where batches of rollouts are checked: in threads of this process, in worker processes, or on a Ray cluster.

Whatever the engine, the same jobs go in and the same results come back in the same order, so that the bytes of a run
do not depend on it.
"""

from __future__ import annotations

from qualcheck.adapter import EnvAdapter
from qualcheck.engines.job import Done, Engine, Job
from qualcheck.engines.processes import Processes
from qualcheck.engines.threads import Threads
from qualcheck.errors import UsageError

__all__ = ["ENGINES", "LOCAL", "RAY", "Done", "Engine", "Job", "check_engine", "open_engine"]

ENGINES = LOCAL, RAY = "local", "ray"


def check_engine(engine: str, workers: int) -> None:
    """Refuse what no run can be started with, before anything is read.

    Raises:
        UsageError: it is of that kind.
    """
    if not isinstance(workers, int) or workers < 1:
        raise UsageError(f"--workers {workers}; it is a whole number from 1.")
    if engine not in ENGINES:
        raise UsageError(f"--engine {engine!r}; it is one of: {', '.join(ENGINES)}.")
    if engine == RAY:
        from qualcheck.engines.cluster import connect

        connect()


def open_engine(adapter: EnvAdapter, workers: int = 1, engine: str = LOCAL) -> Engine:
    """The engine of a run.

    Args:
        adapter: the environment, in the layout and simulator family of the inputs.
        workers: processes to check in; 1: this one, in threads; on a cluster one actor each.
        engine: one of `ENGINES`.
    """
    if engine == RAY:
        from qualcheck.engines.cluster import Cluster

        return Cluster(adapter, workers)
    return Threads(adapter) if workers == 1 else Processes(adapter, workers)
