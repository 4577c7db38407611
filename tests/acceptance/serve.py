"""Runs `qualcheck` commands in forked processes of their own, without importing the world again for each.

One JSON request a line on standard input: argv, cwd, env, out, err, timeout; one JSON answer a line: the exit code. The
modules are imported once, before the first fork; nothing is ever run in this process itself.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import traceback

import qualcheck.cli.app
import qualcheck.envs.babyai.simulator
import qualcheck.envs.clevr
import qualcheck.filtering
import qualcheck.inspection
import qualcheck.pipeline
import qualcheck.reporting


def child(request: dict) -> int:
    """Become the command; the exit code comes back."""
    for number, name, mode in (
        (0, os.devnull, os.O_RDONLY),
        (1, request["out"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC),
        (2, request["err"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC),
    ):
        os.dup2(os.open(name, mode, 0o600), number)
    signal.alarm(request["timeout"])  # ends the process, so that a hang is a failure
    os.environ.clear()
    os.environ.update(request["env"])
    os.chdir(request["cwd"])
    sys.argv = ["qualcheck", *request["argv"]]
    try:
        qualcheck.cli.app.run()
    except SystemExit as done:
        return done.code if isinstance(done.code, int) else int(done.code is not None)
    except BaseException:
        traceback.print_exc()
        return 1
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
    return 0


def main() -> None:
    answers = os.fdopen(os.dup(1), "w")
    for line in sys.stdin:
        request = json.loads(line)
        process = os.fork()
        if not process:
            os._exit(child(request))
        _, status = os.waitpid(process, 0)
        answers.write(json.dumps(os.waitstatus_to_exitcode(status)) + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
