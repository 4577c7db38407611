"""What every environment that runs MuJoCo in its own process needs: no log file."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Lock

import mujoco


class _Silence:
    """How many callers want MuJoCo quiet, and the handler to bring back after the last one."""

    def __init__(self) -> None:
        self.lock, self.callers = Lock(), 0
        self.before: Callable[[str], None] | None = None


_SILENCE = _Silence()


@contextmanager
def quiet() -> Iterator[None]:
    """MuJoCo's warnings go nowhere; without this it writes MUJOCO_LOG.TXT into the working folder."""
    with _SILENCE.lock:
        if not _SILENCE.callers:
            _SILENCE.before = mujoco.get_mju_user_warning()
            mujoco.set_mju_user_warning(_ignore)
        _SILENCE.callers += 1
    try:
        yield
    finally:
        with _SILENCE.lock:
            _SILENCE.callers -= 1
            if not _SILENCE.callers:
                mujoco.set_mju_user_warning(_SILENCE.before)


def _ignore(_message: str) -> None:
    """What a warning meant is read off the simulated time, row by row."""
