from __future__ import annotations

import math
import subprocess
import sys

import numpy as np
import pytest

from qualcheck.stats import Interval, clopper_pearson, difference, korn_graubard, median_interval


def test_clopper_pearson_solves_the_binomial_tails_exactly() -> None:
    def at_least(k: int, n: int, p: float) -> float:
        return sum(math.comb(n, j) * p**j * (1 - p) ** (n - j) for j in range(k, n + 1))

    for k, n in ((1, 4), (3, 10), (19, 20), (7, 7)):
        low, high = clopper_pearson(k, n)
        assert at_least(k, n, low) == pytest.approx(0.025, abs=1e-9)
        if k < n:
            assert 1 - at_least(k + 1, n, high) == pytest.approx(0.025, abs=1e-9)


def test_clopper_pearson_agrees_with_printed_tables() -> None:
    assert clopper_pearson(0, 10) == pytest.approx((0.0, 0.3085), abs=5e-5)
    assert clopper_pearson(5, 10) == pytest.approx((0.1871, 0.8129), abs=5e-5)
    assert clopper_pearson(10, 10) == pytest.approx((0.6915, 1.0), abs=5e-5)
    assert clopper_pearson(5, 10, level=0.9) == pytest.approx((0.2224, 0.7776), abs=5e-5)


def test_no_trials_leave_everything_possible() -> None:
    assert clopper_pearson(0, 0) == (0.0, 1.0)
    assert korn_graubard(np.zeros(0), np.zeros(0)) == (0.0, 1.0, 0.0)
    assert korn_graubard(np.zeros(3), np.zeros(3)) == (0.0, 1.0, 0.0)


def test_all_right_is_never_an_interval_of_no_width() -> None:
    for clusters in (1, 12, 1500):
        low, high, effective = korn_graubard(np.full(clusters, 40), np.full(clusters, 40))
        assert effective == clusters
        assert low == pytest.approx(0.025 ** (1 / clusters))
        assert high == 1.0
        assert low < 1.0
    assert korn_graubard(np.full(12, 0), np.full(12, 40)).high == pytest.approx(1 - 0.025 ** (1 / 12))


def test_clusters_without_variation_count_one_each() -> None:
    same = korn_graubard(np.array([9, 9, 9]), np.array([10, 10, 10]))
    assert same.effective_n == 3
    assert same[:2] == clopper_pearson(2.7, 3)
    assert korn_graubard(np.array([9]), np.array([10])).effective_n == 1


def test_single_transitions_as_clusters_give_clopper_pearson() -> None:
    passes = np.array([1] * 70 + [0] * 30)
    low, high, effective = korn_graubard(passes, np.ones(100))
    assert effective == pytest.approx(100)
    assert (low, high) == pytest.approx(clopper_pearson(70, 100))


def test_whole_clusters_of_one_verdict_count_about_once() -> None:
    """By hand: 40 clusters of 10, half right: without the extra quarter cluster the design effect is 40/39 * 10."""
    from scipy.special import stdtrit

    passes, trials = np.repeat([10, 0], 20), np.full(40, 10)
    plain = 40 / (40 / 39) * (stdtrit(399, 0.975) / stdtrit(39, 0.975)) ** 2
    assert korn_graubard(passes, trials).effective_n == pytest.approx(plain, rel=0.02)


def test_clusters_without_a_trial_change_nothing() -> None:
    passes, trials = np.array([3, 9, 5]), np.array([5, 10, 5])
    assert korn_graubard(np.append(passes, 0), np.append(trials, 0)) == korn_graubard(passes, trials)


def test_difference_matches_newcombe_on_its_own_limits() -> None:
    low, high = difference(0.5, Interval(0.4, 0.6), 0.2, Interval(0.1, 0.35))
    assert low == pytest.approx(0.3 - math.hypot(0.1, 0.15))
    assert high == pytest.approx(0.3 + math.hypot(0.1, 0.1))
    assert difference(1.0, Interval(0.2, 1.0), 0.0, Interval(0.0, 0.9)) == pytest.approx(
        (1 - math.hypot(0.8, 0.9), 1.0)
    )


def test_median_lies_between_order_statistics() -> None:
    values = np.arange(1.0, 102.0)
    median, low, high = median_interval(values, np.arange(101))
    assert median == 51
    # ranks 41 and 61 are the exact 95 % limits of a median of 101 values; Woodruff's may differ by one rank
    assert low in (40, 41, 42)
    assert high in (60, 61, 62)


def test_the_median_of_repeated_values_in_few_clusters_is_less_certain() -> None:
    values = np.repeat(np.arange(10.0), 50)
    _, low, high = median_interval(values, np.repeat(np.arange(10), 50))
    _, low_free, high_free = median_interval(values, np.arange(500))
    assert high - low > high_free - low_free


def test_importing_the_module_does_not_import_scipy() -> None:
    code = "import sys, qualcheck.stats; sys.exit(any(name.startswith('scipy') for name in sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def draw_clusters(
    rng: np.random.Generator, clusters: int, p: float, correlation: float
) -> tuple[np.ndarray, np.ndarray]:
    """Passes and trials of clusters of 1 to 39 transitions whose rates are beta distributed around p."""
    trials = rng.integers(1, 40, clusters)
    if correlation == 0:
        rate = np.full(clusters, p)
    elif correlation == 1 or p == 1:
        rate = (rng.random(clusters) < p).astype(float)
    else:
        size = 1 / correlation - 1
        rate = rng.beta(p * size, (1 - p) * size, clusters)
    return rng.binomial(trials, rate), trials


def transition_coverage(clusters: int, p: float, correlation: float, repeats: int) -> float:
    rng = np.random.default_rng(20_000 + clusters)
    hits = 0
    for _ in range(repeats):
        low, high, _ = korn_graubard(*draw_clusters(rng, clusters, p, correlation))
        hits += low <= p <= high
    return hits / repeats


def rollout_coverage(n: int, p: float) -> float:
    """Exact: the probability of all outcomes whose interval holds p."""
    from scipy.stats import binom

    inside = [k for k in range(n + 1) if clopper_pearson(k, n)[0] <= p <= clopper_pearson(k, n)[1]]
    return float(binom.pmf(inside, n, p).sum())


@pytest.mark.parametrize("p", [0.5, 0.9, 0.99, 1.0])
@pytest.mark.parametrize("n", [1, 12, 60, 150])
def test_rollout_rates_cover_95_percent_exactly(n: int, p: float) -> None:
    assert rollout_coverage(n, p) >= 0.95


@pytest.mark.parametrize(("clusters", "p"), [(60, 0.99), (12, 0.9)])
def test_transition_rates_cover_where_failures_sit_in_few_clusters(clusters: int, p: float) -> None:
    """The two settings where the plain Korn-Graubard interval covers 87 and 92 of 100 draws."""
    assert transition_coverage(clusters, p, 0.2, repeats=400) >= 0.95


@pytest.mark.slow
@pytest.mark.parametrize("correlation", [0.0, 0.2, 1.0])
@pytest.mark.parametrize("p", [0.5, 0.9, 0.99, 1.0])
@pytest.mark.parametrize("clusters", [12, 60, 1500])
def test_transition_rates_cover_93_percent(clusters: int, p: float, correlation: float) -> None:
    assert transition_coverage(clusters, p, correlation, repeats=1000) >= 0.93


@pytest.mark.slow
@pytest.mark.parametrize("p", [0.5, 0.9, 0.99, 1.0])
def test_rollout_rates_cover_95_percent_at_1500(p: float) -> None:
    assert rollout_coverage(1500, p) >= 0.95
