"""Percentile intervals, overload, drift and the SLO verdict of a point."""

import dataclasses

import numpy as np
import pytest

from perfkit.points.behaviour import target_warnings
from perfkit.points.point import LoadSummary, point
from perfkit.points.steady_state import without_parabola
from perfkit.recorder.recorder import Recorder
from perfkit.recorder.window import cut
from perfkit.stats.slo import SloLimits
from perfkit.transport.base import Outcome, Reply
from tests.points.made_measurement import WINDOW_S, open_measurement

MS, S = 1_000_000, 1_000_000_000


@pytest.fixture
def open_point():
    return open_measurement


def codes(found):
    return {warning.code for warning in found.warnings}


def test_a_quiet_target_has_intervals_around_its_percentiles_and_no_warning(open_point):
    found = point(open_point(lambda _: 10 * MS))
    assert codes(found) <= {"few_samples"}
    assert found.valid
    for name in ("p50", "p90", "p95", "p99"):
        low, high = found.intervals[name]
        assert low <= getattr(found.response_time_ns, name) <= high


def test_a_growing_backlog_is_a_warning_and_leaves_the_point_valid(open_point):
    """Answered at half the rate: the request of instant t ends at 2t."""
    found = point(open_point(lambda at_s: 10 * MS + at_s * S))
    assert found.valid
    assert "overloaded" in codes(found)
    assert "not_steady" not in codes(found)
    assert found.throughput_per_s == pytest.approx(50, rel=0.15)


def test_a_backlog_is_a_warning_even_if_a_number_of_requests_ends_the_window(open_point):
    """Offered 100/s for 60 s and answered at half of that: the window goes on until the last answer."""
    recorder = Recorder(window_start_ns=0, window_end_ns=None, is_open=True)
    for index in range(6000):
        reply = Reply(Outcome.OK, index * 10 * MS, index * 20 * MS + 10 * MS)
        reply.intended_ns = reply.paced_ns = index * 10 * MS
        recorder.add(reply)
    measured = dataclasses.replace(open_point(lambda _: 10 * MS), window=cut(recorder.finish(None), 0, is_open=True))
    (warning,) = target_warnings(measured)
    (of_retries,) = target_warnings(dataclasses.replace(measured, has_retries=True))
    assert (warning.code, of_retries.code) == ("overloaded", "overloaded")
    assert of_retries.message == f"{warning.message} Requests that pause before their next attempt are part of the backlog."


def test_a_drift_is_a_warning(open_point):
    found = point(open_point(lambda at_s: 10 * MS * (1 + at_s / WINDOW_S)))
    assert codes(found) - {"few_samples"} == {"not_steady"}
    assert found.valid


@pytest.mark.parametrize(
    ("respond", "limit_ms", "verdict"),
    [
        (lambda _: 10 * MS, 20, "satisfied"),
        (lambda _: 10 * MS, 5, "violated"),
        (lambda at_s: 10 * MS + at_s * S, 10**6, "violated"),  # overloaded
    ],
)
def test_an_slo_is_judged_on_the_pooled_repetitions(open_point, respond, limit_ms, verdict):
    found = LoadSummary([open_point(respond, 0), open_point(respond, 1)], SloLimits({0.95: limit_ms * MS})).pooled()
    assert found.slo.verdict == verdict
    assert point(open_point(respond)).slo is None


def test_an_slo_with_too_few_samples_is_inconclusive(open_point):
    assert LoadSummary([open_point(lambda _: 10 * MS)], SloLimits({0.9999: 20 * MS})).pooled().slo.verdict == "inconclusive"


@pytest.mark.parametrize(("unsent", "valid", "code"), [(200, False, "behind_schedule"), (0, True, "dropped")])
def test_dropped_arrivals_are_a_warning_and_those_that_a_late_generator_did_not_send_make_the_point_invalid(
    open_point, unsent, valid, code
):
    measured = open_point(lambda _: 10 * MS)
    found = point(
        dataclasses.replace(
            measured, window=dataclasses.replace(measured.window, counts={**measured.window.counts, "dropped": 200, "unsent": unsent})
        )
    )
    assert found.valid is valid
    assert code in codes(found)
    assert "overloaded" not in codes(found)
    assert found.requests.scheduled == found.requests.sent + 200
    assert found.error_rate == pytest.approx(200 / found.requests.scheduled)


@pytest.mark.parametrize("count", [6, 7, 200])
def test_residuals_of_a_parabola_are_those_of_numpys_fit(count):
    place = np.arange(count)
    values = 1e9 + 3e5 * place - 70 * place**2 + np.random.default_rng(count).normal(0, 1e6, count)
    fitted = np.polyval(np.polyfit(place, values, 2), place)
    assert without_parabola(values) == pytest.approx(values - fitted, abs=1)
