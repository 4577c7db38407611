"""The actions that a policy may give."""

from __future__ import annotations

from typing import Any

import numpy as np

from qualcheck.errors import UsageError
from qualcheck.spec import ActionSpec
from qualcheck.types import AnyArray


def usable(action: Any, spec: ActionSpec, n: int) -> AnyArray:
    """The actions of n episodes, (n,) int64 or (n, A) as numbers.

    Args:
        action: (n,) or (n, 1) whole numbers of any dtype, or (n, A) numbers; values out of the bounds are the
            simulator's affair.
        spec: what the environment takes.
        n: episodes.

    Raises:
        UsageError: they are not so many, not finite, or none of the discrete ones.
    """
    discrete = spec.kind == "discrete"
    expected = f"a whole number from 0 to {spec.size - 1}" if discrete else f"{spec.size} finite numbers"
    try:
        given = np.asarray(action)
        if given.dtype.kind not in "biufO":
            raise TypeError
        number = given if given.dtype.kind in "biuf" else given.astype(np.float64)
        shape = (n,) if discrete else (n, spec.size)
        number = number.reshape(shape) if discrete and number.shape == (n, 1) else number
        sound = number.shape == shape and bool(np.isfinite(number).all())
        if sound and discrete:
            sound = bool(((number >= 0) & (number < spec.size) & (number == np.floor(number))).all())
    except (TypeError, ValueError):
        sound = False
    if not sound:
        shown = action[0] if n == 1 and isinstance(action, list) else action  # of a single episode
        what = f"of shape {np.shape(action)}" if np.size(action) > 8 else " ".join(repr(shown).split())
        raise UsageError(f"action {what}; expected {expected}{f' for each of {n} episodes' if n > 1 else ''}.")
    return number.astype(np.int64) if discrete else number
