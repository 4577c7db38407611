"""The parameters of a run."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

from qualcheck.errors import UsageError

STARTS = ("auto", "reset", "any")
LAST_ACTIONS = ("auto", "executed", "filler")


@dataclass(frozen=True)
class ScoreOptions:
    """Every parameter of a run, with its default; all of them stand in the manifest."""

    level: str | None = None  # None: the file's own word, else "custom"
    generator: str | None = None
    calibration: str | None = None  # a file; None: the one that is shipped
    family: str | None = None  # simulator family that made the rollouts; None: recognised from them
    grade: str | None = None  # None: the judging grade of the environment
    task: str | None = None  # of every rollout, instead of its instruction
    start: str = "auto"
    last_action: str = "auto"
    encodings: str | None = None  # file of reference codes, for files without text
    obs_mean: str | None = None  # files of the statistics that the rows were standardised with
    obs_std: str | None = None
    restarts: int = 8  # replays in a chaotic environment that end near a threshold
    floors: int | None = None  # starts to measure floors on; None: the shipped table
    recheck: int = 1_000  # transitions stepped in the real simulator as well
    sample: int | None = None  # whole rollouts to score; None: all of them
    target_width: float | None = None  # of the intervals of the headline rates, at which scoring stops
    seed: int = 0
    trust_pickle: bool = False
    strict: bool = False

    def __post_init__(self) -> None:
        """Raise UsageError for values that no run can have."""
        for name, value, known in (("start", self.start, STARTS), ("last-action", self.last_action, LAST_ACTIONS)):
            if value not in known:
                raise UsageError(f"--{name} {value!r}; it is one of: {', '.join(known)}.")
        if (self.obs_mean is None) != (self.obs_std is None):
            raise UsageError("--obs-mean and --obs-std belong together: give both or neither.")
        for name, number, least in (
            ("recheck", self.recheck, 0),
            ("seed", self.seed, 0),
            ("restarts", self.restarts, 0),
            ("floors", self.floors, 1),
            ("sample", self.sample, 1),
        ):
            if number is not None and (not isinstance(number, int) or number < least):
                raise UsageError(f"--{name} {number}; it is a whole number from {least}.")
        if self.target_width is not None and not 0 < self.target_width < 1:
            raise UsageError(f"--target-width {self.target_width}; it is a width between 0 and 1.")
        if self.sample is not None and self.target_width is not None:
            raise UsageError(
                "--sample and --target-width exclude each other: so many rollouts, or as many as it takes."
            )


def read_options(given: dict[str, Any]) -> ScoreOptions:
    """The options of a call.

    Raises:
        UsageError: an option does not exist, or a value is out of its range.
    """
    known = [field.name for field in fields(ScoreOptions)]
    for name in given:
        if name not in known:
            raise UsageError(f"score has no option {name!r}; it has: {', '.join(known)}.")
    return ScoreOptions(**given)
