"""Batches checked in worker processes, one simulator each.

A worker is a fresh interpreter (no fork, and the user's own main module is not run again), told what to do over a pipe.
It ends when the pipe closes, whatever ended the run.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from qualcheck.adapter import EnvAdapter
from qualcheck.cores import THREADS_VARIABLE, cores
from qualcheck.engines.frames import receive, send
from qualcheck.engines.job import Done, Job
from qualcheck.engines.worker import Order
from qualcheck.errors import QualcheckError, WorkerLost
from qualcheck.timing import running

AHEAD = 2  # jobs a worker, so that none waits for the next one to be read
TRIES = 2  # of a job whose worker died
_START = (
    "import json, signal, sys; "
    "signal.signal(signal.SIGINT, signal.SIG_IGN); "  # the parent decides what Ctrl-C means, and closes the pipe
    "sys.path[:] = json.loads(sys.argv[1]); "
    "from qualcheck.engines.worker import main; main()"
)


class Processes:
    """`workers` processes. A job whose worker dies is given to a new one once; if that dies too the run ends."""

    def __init__(self, adapter: EnvAdapter, workers: int) -> None:
        self._order = Order(adapter.spec.id, adapter.spec.obs_size, adapter.family, running())
        self._workers = workers
        self._spare: SimpleQueue[_Worker] = SimpleQueue()
        self._all: list[_Worker] = []
        self._closed = False
        self._pool = ThreadPoolExecutor(workers)
        for _ in range(workers):
            self._spare.put(self._start())

    def _start(self) -> _Worker:
        worker = _Worker(self._order, max(1, cores() // self._workers))
        self._all.append(worker)
        return worker

    @property
    def ahead(self) -> int:
        return AHEAD * self._workers

    def submit(self, job: Job) -> Future[Done]:
        return self._pool.submit(self._check, job)

    def _check(self, job: Job) -> Done:
        for attempt in range(TRIES):
            worker = self._spare.get()
            try:
                answer = worker.ask(job)
            except (OSError, EOFError, ValueError) as error:  # a stream that close() shut is a ValueError
                worker.end()
                self._spare.put(worker if self._closed else self._start())
                if self._closed or attempt + 1 == TRIES:
                    raise WorkerLost(
                        f"{job.label.source}: a worker died {TRIES} times on the same rollouts (exit "
                        f"{worker.exit_code}), perhaps for lack of memory. Use fewer --workers."
                    ) from error
                continue
            self._spare.put(worker)
            if isinstance(answer, QualcheckError):
                raise answer
            done: Done = answer
            return done
        raise AssertionError("unreachable")

    def close(self) -> None:
        self._closed = True
        for worker in self._all:
            worker.end()
        self._pool.shutdown(cancel_futures=True)


class _Worker:
    """One process and the two ends of its pipes."""

    def __init__(self, order: Order, threads: int) -> None:
        path = json.dumps([entry or str(Path.cwd()) for entry in sys.path])
        self._process = subprocess.Popen(
            [sys.executable, "-c", _START, path],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, THREADS_VARIABLE: str(threads)},
        )
        with contextlib.suppress(OSError):  # it is dead already; asking it tells
            send(self._process.stdin, order)  # type: ignore[arg-type]

    @property
    def exit_code(self) -> int | None:
        return self._process.poll()

    def ask(self, job: Job) -> Any:
        """The answer to one job.

        Raises:
            OSError, EOFError: the process is gone.
        """
        send(self._process.stdin, job)  # type: ignore[arg-type]
        return receive(self._process.stdout)  # type: ignore[arg-type]

    def end(self) -> None:
        self._process.kill()
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout):
            with contextlib.suppress(OSError):
                stream.close()  # type: ignore[union-attr]
