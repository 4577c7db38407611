"""`selftest`: plants faults of known kind and size into real rollouts and counts which of them are found."""

from __future__ import annotations

from qualcheck.selftesting.running import selftest

__all__ = ["selftest"]
