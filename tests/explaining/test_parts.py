"""The pieces that hypotheses are made of."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from qualcheck.envs.halfcheetah import lookalikes
from qualcheck.explaining import bounds, ends, turns, units
from qualcheck.explaining.hypothesis import RowStatistics
from qualcheck.explaining.real_rows import known_rows, learn
from qualcheck.explaining.sample import choose, joined
from qualcheck.registry import load
from qualcheck.spec import Quaternion
from qualcheck.types import Rollouts


def _rollouts(rows: np.ndarray, actions: np.ndarray) -> Rollouts:
    """Rollouts of equal length with their final rows, (N, T + 1, O) and (N, T, A)."""
    n, steps = actions.shape[:2]
    return Rollouts(
        obs=rows.reshape(-1, rows.shape[2]),
        action=actions.reshape(n * steps, -1),
        offsets=np.arange(n + 1) * steps,
        has_final=np.ones(n, bool),
        source=np.zeros(n, np.int32),
        source_rollout=np.arange(n, dtype=np.int32),
        source_step=np.zeros(n, np.int32),
        instruction=[f"text {i}" for i in range(n)],
        is_reset=np.ones(n, bool),
    )


def _moving(rng: np.random.Generator, n: int = 4, steps: int = 8) -> Rollouts:
    return _rollouts(rng.normal(size=(n, steps + 1, 3)), rng.normal(size=(n, steps, 2)))


def test_padding_is_the_blank_tail_and_the_step_into_it(rng: np.random.Generator) -> None:
    rollouts = _moving(rng)
    rows, actions = rollouts.obs.reshape(4, 9, 3).copy(), rollouts.action.reshape(4, 8, 2).copy()
    for i, length in enumerate((5, 6, 3, 8)):
        rows[i, length + 1 :], actions[i, length:] = 0, 0
    found = ends.find(_rollouts(rows, actions))
    assert found is not None
    expected = np.zeros((4, 8), bool)
    for i, length in enumerate((5, 6, 3)):
        expected[i, length:] = True
    assert (found.reshape(4, 8) == expected).all()


def test_rows_that_stand_still_under_changing_actions_are_no_padding(rng: np.random.Generator) -> None:
    rollouts = _moving(rng)
    rows = rollouts.obs.reshape(4, 9, 3).copy()
    rows[:, 4:] = rows[:, 4:5]
    assert ends.find(_rollouts(rows, rollouts.action.reshape(4, 8, 2))) is None


def test_rollouts_of_different_lengths_are_not_padded(rng: np.random.Generator) -> None:
    rows, actions = np.zeros((1, 9, 3)), np.zeros((1, 8, 2))
    one, short = _rollouts(rows, actions), _rollouts(rows[:, :5], actions[:, :4])
    assert ends.find(joined([one, short])) is None


def test_ties_at_the_end_of_a_column_are_bounds_and_those_of_the_simulator_are_not(rng: np.random.Generator) -> None:
    values = rng.normal(size=(1_000, 2))
    clipped = np.clip(values, -1, 0.7)
    found = bounds.ties(clipped, -1, 1)
    assert np.isnan(found[0]).all()
    assert (found[1] == 0.7).all()
    assert (bounds.touches(clipped, found) == (values >= 0.7).any(axis=1)).all()
    assert np.isnan(bounds.ties(values)).all()


def test_columns_of_few_values_have_no_bounds(rng: np.random.Generator) -> None:
    assert np.isnan(bounds.ties(rng.integers(0, 9, (1_000, 3)).astype(float))).all()


def test_reordering_undoes_the_other_order_of_quaternions() -> None:
    rows = np.arange(12.0).reshape(1, 12)
    known = (Quaternion((1, 2, 3, 4), "last"), Quaternion((6, 7, 8, 9), "first"))
    moved = turns.reordered(rows, known)
    assert moved[0].tolist() == [0, 2, 3, 4, 1, 5, 9, 6, 7, 8, 10, 11]
    flipped = tuple(replace(q, scalar="first" if q.scalar == "last" else "last") for q in known)
    assert (turns.reordered(moved, flipped) == rows).all()


@pytest.mark.parametrize("env", ["metaworld", "libero"])
def test_declared_quaternions_are_unit_in_real_rows(env: str, shared_data: Path, plants: Any) -> None:
    content = plants._load(shared_data / "golden" / f"{env}_real.npy")
    rows = content["observations"][plants._valid(content)].astype(np.float64)
    declared = load(env).with_layout(rows.shape[1]).spec.quaternions
    assert declared
    for quaternion in declared:
        length = np.linalg.norm(rows[:, quaternion.columns], axis=1)
        assert (np.abs(length[length > 0] - 1) < 1e-3).all()


def test_a_lattice_gives_back_whole_numbers_whatever_the_mean(rng: np.random.Generator) -> None:
    numbers = np.stack([rng.integers(1, 7, 500), rng.integers(0, 6, 500), np.full(500, 7)], axis=1).astype(float)
    mean, std = np.array([3.2, 2.6, 7.0]), np.array([1.7, 1.4, 1.0])
    real = RowStatistics("", mean + 0.3, std, np.array([1.0, 0, 7]), np.array([6.0, 5, 7]))
    real = replace(real, mean=np.array([3.5, 2.9, 7.0]))
    rows = ((numbers - mean) / std).astype(np.float32)
    assert (units.from_lattice(*units.lattice(rows, real), rows) == numbers).all()


def test_rows_in_their_units_do_not_resemble_standardised_ones(rng: np.random.Generator) -> None:
    rows = rng.normal(size=(200, 6))
    assert units.resembles_standardised(rows)
    assert not units.resembles_standardised(rows * 0.2 + 3)
    assert not units.resembles_standardised(rows[:10])


def test_a_sample_takes_whole_rollouts_in_turn_from_each_stratum(rng: np.random.Generator) -> None:
    length = np.full(1_000, 10)
    stratum = ["many"] * 990 + ["few"] * 10
    chosen = choose(length, stratum, rng)
    assert len(chosen) == len(set(chosen.tolist())) == 64
    assert (chosen >= 990).sum() == 10
    assert length[choose(np.full(50, 300), ["a"] * 50, rng)].sum() <= 2_000
    assert choose(np.array([9_000, 9_000]), ["a", "a"], rng).shape == (1,)
    assert choose(np.array([0, 0]), ["a", "a"], rng).shape == (0,)


def test_batches_are_joined_as_one(rng: np.random.Generator) -> None:
    one, two = _moving(rng), _moving(rng, n=2, steps=3)
    whole = joined([one, two])
    assert whole.n_rollouts == 6
    assert (whole.start_obs == np.concatenate([one.start_obs, two.start_obs])).all()
    assert (whole.end_obs == np.concatenate([one.end_obs, two.end_obs])).all()
    assert whole.length.tolist() == [8] * 4 + [3] * 2
    assert whole.instruction == [*one.instruction, *two.instruction]


def test_breaks_stay_where_they_were(rng: np.random.Generator) -> None:
    one = replace(_moving(rng), break_at=np.array([2]), break_obs=np.full((1, 3), 9.0))
    whole = joined([_moving(rng), one])
    assert (whole.end_obs[32 + 2] == 9).all()


def test_shipped_statistics_are_those_of_real_rows(shared_data: Path) -> None:
    files = {level: shared_data / "golden" / f"babyai_{level}.npy" for level in ("real", "rephrase", "easy", "hard")}
    shipped = {each.name: each for each in known_rows(load("babyai").spec)}
    again = learn("babyai", files)["babyai-17"]
    assert set(shipped) == set(again)
    for name, values in again.items():
        assert np.allclose(shipped[name].mean, values["mean"])


def test_every_layout_with_a_tolerance_has_statistics() -> None:
    for env in ("babyai", "halfcheetah", "clevr", "metaworld"):
        for spec in load(env).layouts():
            assert known_rows(spec)
            assert all(len(each.mean) == spec.obs_size for each in known_rows(spec))


def test_walker_rows_are_stepped_by_the_simulator_that_made_them() -> None:
    gymnasium = pytest.importorskip("gymnasium")
    env = gymnasium.make("Walker2d-v5")
    row, _ = env.reset(seed=0)
    rows, actions = [row], []
    env.action_space.seed(0)
    for _ in range(15):
        actions.append(env.action_space.sample())
        rows.append(env.step(actions[-1])[0])
    env.close()
    step = lookalikes.lookalikes(17)["Walker2d-v5"]
    gap = np.abs(step(np.array(rows[:-1]), np.array(actions)) - rows[1:])
    told = ~np.isnan(gap).any(axis=1)
    assert told.sum() >= 3
    assert gap[told].max() < 1e-9
    assert lookalikes.lookalikes(18) == {}


def test_every_placement_can_be_rewarded(real: Rollouts) -> None:
    adapter: Any = load("babyai")
    known = adapter.every_placement()
    assert len(known) == len(set(known))
    which = np.arange(real.n_rollouts) % len(known)
    values = adapter.reward(real, known, which)
    assert all(np.isfinite(each).all() for each in values.values())
