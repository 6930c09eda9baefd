"""The parts of the live check of autoscaling that need no server."""

import numpy as np
import pytest

from benchmarks.autoscaling_live import (
    HOUR_S,
    LIMIT,
    SERVICE_MS,
    WARM_UP_S,
    WINDOW_S,
    ServerModel,
    draw_hour,
    missed_windows,
    predict,
    predict_again,
    replica_spans,
    scaler_of,
)
from perfkit.plan.replica_queue import ServiceLaw
from perfkit.plan.steps import Steps

LAW = ServiceLaw(1, -SERVICE_MS / 1e3 * np.log1p(-(np.arange(5000) + 0.5) / 5000))
SCALER = scaler_of(ServerModel(17.5, 18.35, LAW, (LAW,)))


def test_the_replica_that_started_last_is_stopped_first():
    ready = Steps.of([(0.0, 2), (10.0, 4), (20.0, 1), (30.0, 2)])
    assert sorted(replica_spans(ready, 40.0)) == [(0, 0, 40), (1, 0, 20), (1, 30, 40), (2, 10, 20), (3, 10, 20)]


def test_every_request_goes_to_a_server_that_takes_requests_at_its_instant():
    hour = draw_hour(SCALER, 1)
    starts, stops = np.array([(start_s, stop_s) for _, start_s, stop_s in hour.spans]).T
    assert np.all(starts[hour.span_of] <= hour.arrivals_s)
    assert np.all(hour.arrivals_s < stops[hour.span_of])
    assert float(hour.ready.values.max()) > float(hour.ready.values.min())


def test_a_window_misses_the_slo_if_more_of_its_requests_are_slow_than_the_limit_allows():
    arrivals = WARM_UP_S + np.concatenate(
        (np.linspace(-WARM_UP_S, -0.1, 50), np.linspace(0, WINDOW_S - 0.1, 40), np.full(40, WINDOW_S + 1))
    )
    times = np.full(arrivals.size, 2 * LIMIT.limit_s)
    times[50:88] = times[93:] = LIMIT.limit_s  # two of forty requests are slow, and three
    assert np.flatnonzero(missed_windows(arrivals, times)).tolist() == [1]
    assert missed_windows(arrivals, times).size == round(HOUR_S / WINDOW_S)


def test_the_simulation_agrees_with_one_that_splits_and_serves_requests_on_its_own():
    """The mean share over 200 hours of the simulated fleet, and over 30 hours that are drawn and served here; each hour has a scatter of 2 %."""
    drawn = np.concatenate([predict_again([LAW], draw_hour(SCALER, seed), 2) for seed in range(30)])
    assert predict([LAW], SCALER).mean() == pytest.approx(drawn.mean(), abs=0.015)
