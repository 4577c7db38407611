"""A worker process: takes jobs from its standard input, answers on its standard output, ends with its parent."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass, replace

from qualcheck.adapter import EnvAdapter
from qualcheck.engines.frames import receive, send
from qualcheck.engines.job import Done, Job, check
from qualcheck.errors import QualcheckError
from qualcheck.registry import load
from qualcheck.timing import started


@dataclass(frozen=True)
class Order:
    """The environment that a worker is to open."""

    env: str
    obs_size: int
    family: str
    timed: bool = False

    def open(self) -> EnvAdapter:
        """An adapter of one's own."""
        adapter = load(self.env).with_layout(self.obs_size)
        return adapter.with_family(self.family) if self.family else adapter

    def check(self, adapter: EnvAdapter, job: Job) -> Done:
        """What `job.check` gives, with the seconds that it took here where they are asked for."""
        if not self.timed:
            return check(adapter, job)
        with started() as clock:
            done = check(adapter, job)
            return replace(done, seconds=clock.take())


def main() -> None:
    """Answer every job with its `Done`, or with the error that it ended in, until the parent closes the pipe."""
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what a simulator prints must not get between the answers
    jobs = sys.stdin.buffer
    try:
        order: Order = receive(jobs)
        adapter = order.open()
        while True:
            job = receive(jobs)
            try:
                answer = order.check(adapter, job)
            except QualcheckError as error:
                send(answers, error)
            else:
                send(answers, answer)
    except (EOFError, BrokenPipeError):
        return


if __name__ == "__main__":
    main()
