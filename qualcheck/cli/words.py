"""Numbers as the commands print them."""

from __future__ import annotations


def percent(part: int, whole: int) -> str:
    """A share as text, "-" where there is nothing to share."""
    return f"{100 * part / whole:.1f} %" if whole else "-"
