"""`python -m qualcheck`."""

from qualcheck.cli import main

main()
