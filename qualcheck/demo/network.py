"""A small network in numpy: one hidden layer, a linear path around it, several softmax outputs, fitted with Adam."""

from __future__ import annotations

import numpy as np

from qualcheck.types import AnyArray, FloatArray, IntArray

BETA_1, BETA_2, EPSILON = 0.9, 0.999, 1e-8


def softmax(logits: FloatArray) -> FloatArray:
    """Probabilities along the last axis."""
    weights = np.exp(logits - logits.max(axis=-1, keepdims=True))
    probabilities: FloatArray = weights / weights.sum(axis=-1, keepdims=True)
    return probabilities


class Network:
    """logits = relu(x W1 + b1) W2 + x S + b2, split into one softmax a group."""

    def __init__(self, inputs: int, hidden: int, groups: tuple[int, ...], rng: np.random.Generator) -> None:
        """Args:
        inputs: width of x. hidden: width of the hidden layer.
        groups: number of classes of each output.
        rng: draws the starting weights.
        """
        outputs = sum(groups)
        self.groups = groups
        self.skip = np.zeros((inputs, outputs), np.float32)
        self._first = (rng.standard_normal((inputs, hidden)) * np.sqrt(0.1)).astype(np.float32)
        self._first_bias = np.zeros(hidden, np.float32)
        self._second = (rng.standard_normal((hidden, outputs)) * 0.02).astype(np.float32)
        self._second_bias = np.zeros(outputs, np.float32)
        self.weights: list[AnyArray] = [self._first, self._first_bias, self._second, self._second_bias, self.skip]

    def logits(self, x: FloatArray) -> list[FloatArray]:
        """Logits of each group, (M, inputs) -> (M, classes) each."""
        hidden = np.maximum(x @ self._first + self._first_bias, 0)
        return self._split(hidden @ self._second + x @ self.skip + self._second_bias)

    def _split(self, values: FloatArray) -> list[FloatArray]:
        return np.split(values, np.cumsum(self.groups)[:-1], axis=1)

    def fit(
        self, x: FloatArray, target: IntArray, rng: np.random.Generator, epochs: int, rate: float, batch: int = 256
    ) -> list[float]:
        """Lower the mean cross-entropy by Adam with a rate that falls to 0; the mean loss of each epoch comes back.

        Args:
            x: (M, inputs) float32.
            target: (M, groups) class of each output, -1 where it is not known.
            rng: shuffles the rows.
        """
        mean = [np.zeros_like(part) for part in self.weights]
        square = [np.zeros_like(part) for part in self.weights]
        steps = epochs * -(-len(x) // batch)
        step, losses = 0, []
        for _ in range(epochs):
            order = rng.permutation(len(x))
            total = 0.0
            for begin in range(0, len(x), batch):
                rows = order[begin : begin + batch]
                loss, gradients = self.loss_and_gradients(x[rows], target[rows])
                total += loss * len(rows)
                step += 1
                size = rate * (1 - (step - 1) / steps) * np.sqrt(1 - BETA_2**step) / (1 - BETA_1**step)
                for part, gradient, first, second in zip(self.weights, gradients, mean, square, strict=True):
                    first += (1 - BETA_1) * (gradient - first)
                    second += (1 - BETA_2) * (gradient * gradient - second)
                    part -= (size * first / (np.sqrt(second) + EPSILON)).astype(np.float32)
            losses.append(total / len(x))
        return losses

    def loss_and_gradients(self, x: FloatArray, target: IntArray) -> tuple[float, list[AnyArray]]:
        """Mean cross-entropy in nats, summed over the outputs, and its gradient for each of `weights`."""
        rows = np.arange(len(x))
        before = x @ self._first + self._first_bias
        hidden = np.maximum(before, 0)
        logits = self._split(hidden @ self._second + x @ self.skip + self._second_bias)
        loss, errors = 0.0, []
        for values, wanted in zip(logits, target.T, strict=True):
            known = wanted >= 0
            probability = softmax(values)
            loss -= float(np.log(probability[rows, wanted] + 1e-12)[known].sum())
            probability[rows, wanted] -= 1
            probability[~known] = 0
            errors.append(probability)
        error = np.concatenate(errors, axis=1) / np.float32(len(x))  # (M, outputs)
        inner = (error @ self._second.T) * (before > 0)
        gradients = [x.T @ inner, inner.sum(axis=0), hidden.T @ error, error.sum(axis=0), x.T @ error]
        return loss / len(x), gradients
