"""Batches checked by actors on a Ray cluster, one simulator each (extra `ray`).

The cluster is one that runs already: this machine is a node of it, or RAY_ADDRESS names it. Jobs go to whichever actor
is free; one whose actor or node died is given to another, and the actor is started anew where the cluster has room.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import pickle
import queue
import time
from concurrent.futures import Future, ThreadPoolExecutor
from threading import Lock, Thread
from typing import Any

from qualcheck.adapter import EnvAdapter
from qualcheck.engines.job import Done, Job
from qualcheck.engines.worker import Order
from qualcheck.errors import QualcheckError, UsageError, WorkerLost
from qualcheck.timing import running

AHEAD = 2  # jobs an actor, so that none waits for the next one to be read
STARTS = 10  # of an actor that dies at once, a second apart and then longer
TRIES = 3  # of a job whose actor died: a node that is lost takes several actors with it, one after the other
PATIENCE_S = 300.0  # until an actor is free, when none is at work


def connect() -> Any:
    """The ray module, connected to the running cluster.

    Raises:
        UsageError: ray is not installed, or there is no cluster.
    """
    try:
        ray: Any = importlib.import_module("ray")
    except ImportError as error:
        raise UsageError("--engine ray needs ray: pip install 'qualcheck[ray]' on every node.") from error
    if not ray.is_initialized():
        try:
            ray.init(address=os.environ.get("RAY_ADDRESS", "auto"), log_to_driver=False, logging_level="ERROR")
        except (ConnectionError, ValueError, RuntimeError) as error:
            raise UsageError(
                "--engine ray: no Ray cluster is running here. Start one with `ray start --head`, or name one in "
                "RAY_ADDRESS."
            ) from error
    return ray


class Checker:
    """What an actor does: it opens the environment once, and checks job after job."""

    def __init__(self, order: Order) -> None:
        self._order, self._adapter = order, order.open()

    def ready(self) -> None:
        """Comes back when the environment is open."""

    def check(self, job: bytes) -> bytes:
        """A pickled `Job` in, its `Done` out, or the error for the user that it ended in."""
        try:
            return pickle.dumps(self._order.check(self._adapter, pickle.loads(job)), protocol=5)
        except QualcheckError as error:
            return pickle.dumps(error)


class Cluster:
    """`workers` actors, as many of them at once as the cluster has cores for."""

    def __init__(self, adapter: EnvAdapter, workers: int) -> None:
        self._ray = connect()
        self._order = Order(adapter.spec.id, adapter.spec.obs_size, adapter.family, running())
        self._workers = workers
        self._spare: queue.Queue[Any] = queue.Queue()
        self._all: list[Any] = []
        self._busy, self._lock, self._closed = 0, Lock(), False
        self._refused = "has it a free core, and qualcheck on every node?"
        self._pool = ThreadPoolExecutor(workers)
        for _ in range(workers):
            self._start()

    def _start(self) -> None:
        """Ask for one more actor; it is spare as soon as the cluster has given it a core."""
        Thread(target=self._begin, daemon=True).start()

    def _begin(self) -> None:
        """Start an actor; where the cluster takes a node for alive that is lost, the first ones die on it."""
        for attempt in range(STARTS):
            if self._closed:
                return
            try:
                actor = self._ray.remote(num_cpus=1, max_restarts=0)(Checker).remote(self._order)
                self._all.append(actor)
                self._ray.get(actor.ready.remote())
            except self._ray.exceptions.RayTaskError as error:  # the environment cannot be opened there
                self._refused = str(error.cause)
                return
            except Exception as error:  # of a lost node, or of a cluster that has gone
                self._refused = str(error).strip().split("\n")[0]
                time.sleep(attempt + 1)
            else:
                if self._closed:
                    with contextlib.suppress(Exception):
                        self._ray.kill(actor)
                self._spare.put(actor)
                return

    @property
    def ahead(self) -> int:
        return AHEAD * self._workers

    def submit(self, job: Job) -> Future[Done]:
        return self._pool.submit(self._check, job)

    def _check(self, job: Job) -> Done:
        sent = pickle.dumps(job, protocol=5)
        for _ in range(TRIES):
            actor = self._free(job)
            try:
                answer = self._ray.get(actor.check.remote(sent))
            except self._ray.exceptions.RayError:  # the actor or its node is gone
                self._release(None)
                continue
            self._release(actor)
            result = pickle.loads(answer)
            if isinstance(result, QualcheckError):
                raise result
            done: Done = result
            return done
        raise WorkerLost(
            f"{job.label.source}: a Ray actor died {TRIES} times on the same rollouts, perhaps for lack of memory. Go "
            "on with --resume."
        )

    def _free(self, job: Job) -> Any:
        """An actor that nobody else has."""
        while True:
            try:
                actor = self._spare.get(timeout=PATIENCE_S)
            except queue.Empty:
                if not self._busy:
                    raise WorkerLost(
                        f"{job.label.source}: the Ray cluster gave no actor within {PATIENCE_S:.0f} s: {self._refused} "
                        "Go on with --resume."
                    ) from None
            else:
                with self._lock:
                    self._busy += 1
                return actor

    def _release(self, actor: Any) -> None:
        """Give an actor back, or start one in the place of a dead one."""
        with self._lock:
            self._busy -= 1
        if actor is not None:
            self._spare.put(actor)
        elif not self._closed:
            self._start()

    def close(self) -> None:
        self._closed = True
        for actor in self._all:
            with contextlib.suppress(Exception):  # of a lost node
                self._ray.kill(actor)
        self._pool.shutdown(wait=False, cancel_futures=True)
