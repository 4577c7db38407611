"""What the tests of explanations share: files made by one change, as plain numpy, in `plants.py`."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from qualcheck.inputs import open_inputs
from qualcheck.io import open_source
from qualcheck.options import ScoreOptions
from qualcheck.pipeline import score
from qualcheck.registry import load
from qualcheck.types import Rollouts

SHIPPED = Path(__file__).resolve().parents[2] / "qualcheck" / "data"


@pytest.fixture(scope="session")
def plants() -> Any:
    """The module of planted files."""
    spec = importlib.util.spec_from_file_location("plants", Path(__file__).with_name("plants.py"))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def real() -> Rollouts:
    """Real BabyAI rollouts that ship with the package."""
    adapter = load("babyai")
    (batch,) = open_source(SHIPPED / "babyai_real.parquet", adapter.layouts()).batches()
    return batch


@pytest.fixture(scope="session")
def rescore(real: Rollouts) -> Any:
    """Score the real rollouts with some arrays replaced; the explanations come back."""

    def run(**changed: Any) -> list[dict[str, Any]]:
        options = {name: changed.pop(name) for name in list(changed) if name in ("level", "obs_mean", "obs_std")}
        arrays = {
            "obs": real.start_obs,
            "actions": real.action,
            "next_obs": real.end_obs,
            "rewards": real.reward,
            "rollout": real.rollout,
            "instruction": real.instruction,
            **changed,
        }
        rows = (arrays.pop("obs"), arrays.pop("actions"), arrays.pop("next_obs"))
        found = score(*rows, env="babyai", **arrays, **options).manifest["results"]["explanations"]
        return [*found]

    return run


@pytest.fixture(scope="session")
def kinds_of(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Explain a file as a run does and give the kinds, the one of the errors first."""
    from qualcheck.explaining.explain import explain
    from qualcheck.explaining.real_rows import known_rows, statistics_of
    from qualcheck.explaining.sample import lengths

    def explain_file(path: Path, env: str, reference: Path | None = None, **options: Any) -> list[str]:
        adapter = load(env)
        inputs = open_inputs(adapter, [path], ScoreOptions(**options))
        source, beside = inputs.sources[0], None
        if reference is not None:
            beside = statistics_of(open_source(reference, adapter.layouts()))
        rows = (*((beside,) if beside is not None else ()), *known_rows(inputs.adapter.spec))
        found = explain(inputs.adapter, source, inputs.labels[0], *lengths(source), real=rows)
        inputs.adapter.close()
        return [entry["kind"] for entry in found]

    return explain_file


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(0)
