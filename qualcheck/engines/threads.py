"""Batches checked in threads of this process, each with an adapter of its own."""

from __future__ import annotations

import queue
from concurrent.futures import Future, ThreadPoolExecutor

from qualcheck.adapter import EnvAdapter
from qualcheck.cores import cores
from qualcheck.engines.job import Done, Job, check
from qualcheck.registry import again


class Threads:
    """As many batches at once as the environment gains from."""

    def __init__(self, adapter: EnvAdapter) -> None:
        self._first = adapter
        self._count = min(adapter.spec.batches_at_once, cores())
        self._others = [again(adapter) for _ in range(self._count - 1)]
        self._spare: queue.SimpleQueue[EnvAdapter] = queue.SimpleQueue()
        for each in (adapter, *self._others):
            self._spare.put(each)
        self._pool = ThreadPoolExecutor(self._count)

    @property
    def ahead(self) -> int:
        return self._count

    def submit(self, job: Job) -> Future[Done]:
        return self._pool.submit(self._check, job)

    def _check(self, job: Job) -> Done:
        adapter = self._spare.get()
        try:
            return check(adapter, job)
        finally:
            self._spare.put(adapter)

    def close(self) -> None:
        self._pool.shutdown(cancel_futures=True)
        for adapter in self._others:
            adapter.close()
