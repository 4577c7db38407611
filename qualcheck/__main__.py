"""`python -m qualcheck`."""

from qualcheck.cli import main

if __name__ == "__main__":
    main()
