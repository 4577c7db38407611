"""The command line. It parses, calls and prints; nothing else happens here."""

from __future__ import annotations


def main() -> None:
    """Entry point of the `qualcheck` command."""
    from qualcheck.cli.app import run

    run()
