"""The command that makes the shipped files, in small."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from qualcheck.demo import build, model
from qualcheck.demo.episode import Episode
from qualcheck.types import Rollouts

SMALL = build.Plan(
    seed=3, real=2, rephrase=1, easy=1, hard=2, training=20, epochs=2, dreams=2, tapes=8, per_fault=1, control=2
)


def _assert_same(one: Rollouts, other: Rollouts) -> None:
    for name in ("obs", "action", "offsets", "reward", "terminal", "truncated"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name), err_msg=name)
    for name in ("instruction", "level", "generator", "task", "extra_rollout"):
        assert getattr(one, name) == getattr(other, name), name
    np.testing.assert_array_equal(one.extra_step["correct"], other.extra_step["correct"])


def test_same_plan_gives_the_same_rollouts() -> None:
    _assert_same(build.real_rollouts(SMALL), build.real_rollouts(SMALL))
    _assert_same(build.imagined_rollouts(SMALL), build.imagined_rollouts(SMALL))


def test_same_plan_gives_the_same_files_byte_for_byte(tmp_path: Path) -> None:
    first, second = (build.build(tmp_path / name, SMALL) for name in ("first", "second"))
    assert [path.relative_to(tmp_path / "first").as_posix() for path in first] == [
        "data/babyai_real.parquet",
        "data/babyai_imagined.parquet",
        "calibration/babyai.json",
    ]
    assert [path.read_bytes() for path in first] == [path.read_bytes() for path in second]


def test_another_seed_gives_other_rollouts() -> None:
    one, other = (build.real_rollouts(build.Plan(seed=seed, real=1, rephrase=1, easy=1, hard=1)) for seed in (1, 2))
    assert one.obs.shape != other.obs.shape or not np.array_equal(one.obs, other.obs)


def test_model_is_fitted_to_nothing_but_real_rollouts_of_the_recorded_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Episode] = []
    fit = model.fit

    def watch(episodes: list[Episode], *rest: Any) -> model.Model:
        seen.extend(episodes)
        return fit(episodes, *rest)

    monkeypatch.setattr(model, "fit", watch)
    build.imagined_rollouts(SMALL)
    assert len(seen) == 4 * SMALL.training
    assert {(episode.start.level, episode.generator) for episode in seen} == {("real", "simulator")}
    assert {episode.start.placement.task for episode in seen} == {"goto", "open", "pickup", "putnext"}
