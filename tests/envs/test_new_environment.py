"""The worked example of a new environment is short, keeps the contract, and is found by its entry point."""

from __future__ import annotations

import importlib.util
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from qualcheck import registry
from qualcheck.contract import check_adapter, play

EXAMPLE = Path(__file__).resolve().parents[2] / "docs" / "new_environment.py"


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The example as an installed package: a module and the metadata that an installer writes."""
    shutil.copy(EXAMPLE, tmp_path / "hill_car_example.py")
    info = tmp_path / "hill_car_example-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: hill-car-example\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[qualcheck.envs]\nhill-car = hill_car_example:HillCar\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    yield
    sys.modules.pop("hill_car_example", None)


@pytest.mark.usefixtures("installed")
def test_an_installed_environment_is_found_and_keeps_the_contract() -> None:
    assert importlib.util.find_spec("hill_car_example") is not None
    assert "hill-car" in registry.known()
    adapter = registry.load("hill-car")
    rollouts = play(adapter, {"flag": "drive up to the flag"}, 6, np.random.default_rng(0))
    assert check_adapter(adapter, rollouts, rng=np.random.default_rng(1)) == []


def test_the_example_has_fewer_than_sixty_lines() -> None:
    assert len(EXAMPLE.read_text().splitlines()) < 60
