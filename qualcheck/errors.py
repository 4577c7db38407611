"""What a user can get wrong, each with the exit code the command line ends with."""

from __future__ import annotations


class QualcheckError(Exception):
    """A message for the user: where, what was found, what was expected, what to do."""

    exit_code = 1

    def __init__(self, message: str) -> None:
        super().__init__(" ".join(message.splitlines()))  # one line, whatever a library or a file name brings along


class DataError(QualcheckError):
    """An input that cannot be used: its structure, a refused pickle, a changed hash."""


class SimulatorDisagreement(QualcheckError):
    """The fast kernel and the real simulator gave different rows for one transition."""


class WorkerLost(QualcheckError):
    """A worker process died again and again on the same rollouts."""


class UsageError(QualcheckError):
    """A call that asks for something contradictory or unknown."""

    exit_code = 2


class UnknownName(UsageError):
    """A name that is not in a list of known names."""


class MissingExtra(UsageError):
    """A package that an optional part needs is not installed."""


class NothingVerified(QualcheckError):
    """Every verdict of a run is unverifiable."""

    exit_code = 3


class BelowBar(QualcheckError):
    """A rate is under the bar that `--fail-under` set."""

    exit_code = 4


def unknown_name(kind: str, name: str, known: list[str]) -> UnknownName:
    """An error that names what is known and the nearest spelling."""
    import difflib

    near = difflib.get_close_matches(str(name), known, n=1)
    hint = f" Did you mean {near[0]!r}?" if near else ""
    return UnknownName(f"no {kind} {name!r}; known: {', '.join(sorted(known)) or 'none'}.{hint}")
