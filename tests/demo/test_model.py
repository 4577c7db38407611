"""The small model learns what it is shown and refuses what it must not see."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from qualcheck.demo import imagine, model, record
from qualcheck.demo.episode import MAX_STEPS, Episode
from qualcheck.demo.network import Network, softmax


@pytest.fixture(scope="module")
def episodes() -> list[Episode]:
    rng = np.random.default_rng(4)
    return [episode for task in ("goto", "pickup") for episode in record.record(task, "real", 400, rng, (0.0, 0.2))]


@pytest.fixture(scope="module")
def fitted(episodes: list[Episode]) -> model.Model:
    return model.fit(episodes, np.random.default_rng(5), epochs=20, hidden=64)


@pytest.mark.parametrize("level", ["rephrase", "easy", "hard"])
def test_fit_refuses_rollouts_of_other_levels(level: str, episodes: list[Episode]) -> None:
    foreign = replace(episodes[0], start=replace(episodes[0].start, level=level))
    with pytest.raises(ValueError, match=level):
        model.fit([*episodes[:5], foreign], np.random.default_rng(0), epochs=1)


def test_world_model_predicts_held_out_moves(fitted: model.Model) -> None:
    held_out = record.record("goto", "real", 40, np.random.default_rng(6), (0.0,))
    obs = np.concatenate([episode.rows[:-1] for episode in held_out])
    end = np.concatenate([episode.rows[1:] for episode in held_out])
    action = np.concatenate([episode.action for episode in held_out])
    bag, named = fitted.reader.read([episode.start.instruction for episode in held_out])
    owner = np.repeat(np.arange(len(held_out)), [episode.length for episode in held_out])
    fields = fitted.world.logits(model.world_input(obs, action, bag[owner], named[owner]))
    guess = np.stack([field.argmax(axis=1) for field in fields], axis=1)
    assert (guess == end).all(axis=1).mean() > 0.6
    assert (obs == end).all(axis=1).mean() < 0.1  # standing still would not do


def test_losses_fall(fitted: model.Model) -> None:
    for losses in fitted.losses.values():
        assert losses[-1] < 0.6 * losses[0]


def test_imagined_rollouts_keep_row_0_and_differ_with_the_seed(fitted: model.Model) -> None:
    starts = record.draw_starts("goto", "rephrase", 20, np.random.default_rng(1))
    one, again, other = (imagine.imagine(fitted, starts, np.random.default_rng(seed)) for seed in (1, 1, 2))
    for start, first, second in zip(starts, one, again, strict=True):
        np.testing.assert_array_equal(first.rows[0], start.row)
        np.testing.assert_array_equal(first.rows, second.rows)
        np.testing.assert_array_equal(first.action, second.action)
        assert 1 <= first.length == len(first.rows) - 1 <= MAX_STEPS
        assert first.terminal or first.length == MAX_STEPS
    assert any(not np.array_equal(a.action, b.action) for a, b in zip(one, other, strict=True))


def test_reader_keeps_the_order_of_the_named_objects_and_skips_unknown_words() -> None:
    reader = model.Reader.learn(["put the red ball next to the box"])
    bag, named = reader.read(["put the box next to the ball", "grip the key", "go"])
    assert named.tolist() == [[1, 0], [2, model.NO_TYPE], [model.NO_TYPE, model.NO_TYPE]]
    assert bag.sum(axis=1).tolist() == [6, 1, 0]


def test_network_gradient_equals_finite_differences() -> None:
    rng = np.random.default_rng(0)
    network = Network(5, 4, (3, 2), rng)
    x = rng.standard_normal((6, 5)).astype(np.float32)
    target = np.array([[0, 1], [1, 0], [2, -1], [-1, 1], [0, 0], [1, 1]])

    def loss() -> float:
        total = 0.0
        for values, wanted in zip(network.logits(x), target.T, strict=True):
            known = wanted >= 0
            total -= np.log(softmax(values.astype(np.float64))[np.arange(6), wanted][known]).sum()
        return total / 6

    stated, gradients = network.loss_and_gradients(x, target)
    assert stated == pytest.approx(loss(), rel=1e-5)
    for part, gradient in zip(network.weights, gradients, strict=True):
        at = np.unravel_index(np.abs(gradient).argmax(), gradient.shape)
        kept = part[at]
        part[at] = kept + 1e-2
        above = loss()
        part[at] = kept - 1e-2
        below = loss()
        part[at] = kept
        assert gradient[at] == pytest.approx((above - below) / 2e-2, rel=2e-2)
