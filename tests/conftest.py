"""What several test files share."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of test inputs that never enter the repository; tests that need it skip without it."""
    folder = Path(os.environ.get("QUALCHECK_SHARED", ROOT.parent / "shared"))
    if not folder.is_dir():
        pytest.skip("the shared folder of test inputs is not beside the repository")
    return folder


@pytest.fixture(scope="session")
def shared_data(shared: Path) -> Path:
    return shared / "data"
