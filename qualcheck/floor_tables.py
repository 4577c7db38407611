"""What the shipped floor tables have in common: an interval beside every count, and a hash over all of it.

`python -m qualcheck.floor_tables ENV...` prints the tables, checked.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib.resources import files
from typing import Any, NamedTuple

from qualcheck.errors import DataError
from qualcheck.stats import clopper_pearson

DIGITS = 4  # of a limit


class Count(NamedTuple):
    """Episodes of a policy that reached a task's goal within a horizon."""

    task: str
    policy: str
    predicates: str
    horizon: int
    won: int

    @property
    def name(self) -> str:
        return " ".join(map(str, self[:4]))


def by_horizon(entries: Iterable[Mapping[str, Any]], horizons: Sequence[int]) -> Iterator[Count]:
    """Counts of entries that hold the step of each first success."""
    for row in entries:
        for horizon in horizons:
            won = sum(count for step, count in row["first_success"].items() if int(step) <= horizon)
            yield Count(row["task"], row["policy"], row["predicates"], horizon, won)


def sealed(table: Mapping[str, Any], counts: Iterable[Count]) -> dict[str, Any]:
    """The table with the 95 % interval of every count and the SHA-256 of all that it says.

    Args:
        table: holds `episodes`, which every count is out of.
        counts: what it says of each horizon that it is for.
    """
    n = int(table["episodes"])
    limits = {count.name: [round(limit, DIGITS) for limit in clopper_pearson(count.won, n)] for count in counts}
    whole = {**{key: value for key, value in table.items() if key != "sha256"}, "intervals": limits}
    return {**whole, "sha256": digest(whole)}


def digest(table: Mapping[str, Any]) -> str:
    """SHA-256 of a table without its own hash, in hex."""
    said = {key: value for key, value in table.items() if key != "sha256"}
    return hashlib.sha256(json.dumps(said, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def shipped_table(env: str) -> dict[str, Any]:
    """The floor table of an environment.

    Raises:
        DataError: it is not what was measured.
    """
    place = files(f"qualcheck.envs.{env}").joinpath("floors.json")
    table: dict[str, Any] = json.loads(place.read_text(encoding="utf-8"))
    if table.get("sha256") != digest(table):
        raise DataError(f"{place}: its hash is not that of its content. Install qualcheck again.")
    return table


def main(arguments: Sequence[str] | None = None) -> None:
    """Print floor tables: task, policy, success test, horizon and the interval in percent."""
    parser = argparse.ArgumentParser(prog="python -m qualcheck.floor_tables", description=main.__doc__)
    parser.add_argument("env", nargs="+")
    for env in parser.parse_args(arguments).env:
        table = shipped_table(env)
        made = " ".join(f"{name} {number}" for name, number in table["made_with"].items())
        sys.stdout.write(f"{env}: {table['episodes']} starts, {made}, sha256 {table['sha256']}\n")
        for name, (low, high) in table["intervals"].items():
            sys.stdout.write(f"  {name:<56} {100 * low:6.2f} {100 * high:6.2f}\n")


if __name__ == "__main__":
    main()
