"""How exact a verdict is: the tolerance behind the word "correct"."""

from __future__ import annotations

import math
from dataclasses import dataclass

from qualcheck.errors import UsageError
from qualcheck.spec import EnvSpec


@dataclass(frozen=True)
class Grade:
    """exact, strict (within the noise floor of real data) or scaled:S (within S deviations of the real change)."""

    name: str
    limit: float | None = None  # S of scaled:S


def parse_grade(text: str | None, spec: EnvSpec) -> Grade:
    """The grade a text names; None gives the judging grade of the environment.

    Raises:
        UsageError: no such grade, or one that makes no sense for the environment.
    """
    text = spec.judging_grade if text is None else text.strip()
    if (text == "exact") != spec.exact:
        known = "exact" if spec.exact else "strict, scaled:S"
        raise UsageError(f"--grade {text!r}: {spec.id} is judged by: {known}.")
    if text in ("exact", "strict"):
        return Grade(text)
    name, _, number = text.partition(":")
    try:
        limit = float(number)
    except ValueError:
        limit = math.nan
    if name != "scaled" or not (math.isfinite(limit) and limit > 0):
        raise UsageError(f"--grade {text!r}: expected exact, strict or scaled:S with S above 0, such as scaled:0.5.")
    return Grade(f"scaled:{limit:g}", limit)
