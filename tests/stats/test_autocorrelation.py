"""Autocorrelation times beside those of processes that have closed forms."""

import numpy as np
import pytest

from perfkit.stats.autocorrelation import autocorrelation_time, first_order_time, lag_1_autocorrelation, variance_of_share


def first_order(random, count, phi):
    """AR(1) with unit variance, from its stationary distribution: a truncated sum of its own past."""
    lags = phi ** np.arange(int(np.ceil(np.log(1e-9) / np.log(phi))) if phi else 1)
    return np.convolve(random.normal(size=count + lags.size - 1), lags, mode="valid") * np.sqrt(1 - phi * phi)


@pytest.mark.parametrize("phi", [0.0, 0.5, 0.8, 0.9])
def test_the_time_of_a_first_order_series_is_its_closed_form(phi):
    """Its standard error is about √(2(2M+1)/n), 5 % at φ = 0.9 with M ≈ 100: 20 % is four of them, false alarms below 0.1 %."""
    series = first_order(np.random.default_rng(1), 100_000, phi)
    expected = (1 + phi) / (1 - phi)
    assert lag_1_autocorrelation(series) == pytest.approx(phi, abs=0.02)
    assert autocorrelation_time(series) == pytest.approx(expected, rel=0.2)
    assert first_order_time(series) == pytest.approx(expected, rel=0.2)


@pytest.mark.parametrize(("load", "expected"), [(0.5, 9.7), (0.8, 82.3)])
def test_the_time_of_a_queues_waiting_times_is_its_closed_form(queue, load, expected):
    """(2+5ρ-4ρ²+ρ³)/((2-ρ)(1-ρ)²); the standard error is 7 % at most here, so that 30 % is four: false alarms below 0.1 %.

    Response times are a little less correlated than waiting times: the request's own service is added to each.
    """
    formula = (2 + 5 * load - 4 * load**2 + load**3) / ((2 - load) * (1 - load) ** 2)
    assert formula == pytest.approx(expected, abs=0.1)
    found = autocorrelation_time(queue(np.random.default_rng(2), load, 1_000_000, warm_up=10_000))
    assert 0.7 * formula < found < 1.15 * formula


def test_an_alternating_series_is_worth_more_than_its_length():
    series = np.tile([1.0, -1.0], 500) + np.random.default_rng(3).normal(0, 0.1, 1000)
    assert 0 < autocorrelation_time(series) < 0.2
    assert first_order_time(series) == 1


@pytest.mark.parametrize("series", [[0.1] * 1000, [0.0] * 10, [7.0]])
def test_a_constant_series_is_not_correlated(series):
    assert (lag_1_autocorrelation(series), autocorrelation_time(series), first_order_time(series)) == (0.0, 1.0, 1.0)


@pytest.mark.parametrize("fitted", [1, 2, 3])
def test_the_correlation_of_a_short_series_is_estimated_without_bias(fitted):
    """The mean of 400 estimates of ρ = 0.6 from 30 values: standard error 0.009, and the correction leaves terms in 1/n²."""
    random, found = np.random.default_rng(4), []
    for _ in range(400):
        series = first_order(random, 30, 0.6)
        series -= np.polyval(np.polyfit(np.arange(30), series, fitted - 1), np.arange(30))
        time = first_order_time(series, fitted)
        found.append((time - 1) / (time + 1))
    assert np.mean(found) == pytest.approx(0.6, abs=0.05)


def test_the_variance_of_the_share_is_that_of_batch_means():
    above, sizes = np.array([1, 4, 2, 5]), np.array([10, 10, 10, 10])
    assert variance_of_share(above, sizes) == pytest.approx(np.var(above / sizes, ddof=1) / 4)
