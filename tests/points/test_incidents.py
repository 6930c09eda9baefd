"""Stalls and error bursts are found where they are, and nowhere else."""

import dataclasses
import heapq

import numpy as np
import pytest

from perfkit.points.behaviour import find_incidents
from perfkit.points.measured import PointMeasurement
from perfkit.points.point import LoadSummary, point
from perfkit.recorder.recorder import Recorder
from perfkit.recorder.stops import Stop
from perfkit.recorder.window import cut
from perfkit.result.counts import Connections
from perfkit.result.generator import Generator
from perfkit.result.load import ClosedLoad, OpenLoad
from perfkit.transport.base import Attempt, Outcome, Reply, RetriedReply

MS, S = 1_000_000, 1_000_000_000


def steady(_):
    return Outcome.OK


def recorded(requests, *, window_s, is_open):
    recorder = Recorder(window_start_ns=0, window_end_ns=window_s * S, is_open=is_open)
    for intended_ns, finished_ns, outcome in sorted(requests, key=lambda one: one[1]):
        one = Reply(outcome, intended_ns, finished_ns)
        one.intended_ns = one.paced_ns = intended_ns
        recorder.add(one)
    return cut(recorder.finish(window_s * S), 0, is_open=is_open)


def closed_window(concurrency, service_ms, *, window_s=10, stalls=(), outcome_at=steady, seed=1):
    """Connections that each send one request after another; no answer leaves within a stall, given by its ends in seconds."""
    random, requests = np.random.default_rng(seed), []
    starts = [(0, number) for number in range(concurrency)]
    while starts:
        start_ns, number = heapq.heappop(starts)
        end_ns = start_ns + max(int(random.exponential(service_ms * MS)), 1)
        end_ns = next((round(high * S) + number for low, high in stalls if low * S <= end_ns < high * S), end_ns)
        if start_ns < window_s * S:
            requests.append((start_ns, end_ns, outcome_at(end_ns / S)))
            heapq.heappush(starts, (end_ns, number))
    return recorded(requests, window_s=window_s, is_open=False)


def open_window(rate_per_s, *, window_s=10, stalls=(), silent=(), outcome_at=steady, seed=1):
    """Poisson arrivals with service times of 5 ms; nothing arrives within `silent`."""
    random, requests = np.random.default_rng(seed), []
    for at_s in np.cumsum(random.exponential(1 / rate_per_s, round(rate_per_s * window_s * 1.2))).tolist():
        if at_s >= window_s or any(low <= at_s < high for low, high in silent):
            continue
        end_s = next((high for low, high in stalls if low <= at_s + 0.005 < high), at_s + 0.005)
        requests.append((round(at_s * S), round(end_s * S), outcome_at(end_s)))
    return recorded(requests, window_s=window_s, is_open=True)


def found(window, concurrency=None):
    load = OpenLoad(rate_per_s=100.0, arrivals="poisson") if concurrency is None else ClosedLoad(concurrency=concurrency)
    return [(one.kind, one.start_s, one.end_s) for one in find_incidents(window, load, 0)]


def measurement(window, load, repetition=0):
    return PointMeasurement(
        protocol="http", load=load, batch_size=1, repetition=repetition, window=window, warmup_ns=0, warnings=(),
        connections=Connections(opened=1, reconnects=0), generator=Generator(cpu_share=0.1, steal_share=0.0),
    )  # fmt: skip


@pytest.mark.parametrize("concurrency", [1, 4, 16])
def test_a_stall_of_a_closed_loop_is_found_at_its_seconds(concurrency):
    ((kind, start_s, end_s),) = found(closed_window(concurrency, 10, stalls=[(4.1, 6.1)]), concurrency)
    assert (kind, start_s, end_s) == ("stall", pytest.approx(4.1, abs=0.1), pytest.approx(6.1, abs=0.1))


def test_a_stall_of_an_open_loop_is_found_at_its_seconds():
    ((kind, start_s, end_s),) = found(open_window(100, stalls=[(2.0, 4.0)]))
    assert (kind, start_s, end_s) == ("stall", pytest.approx(2.0, abs=0.1), pytest.approx(4.0, abs=0.1))


@pytest.mark.parametrize(
    "window",
    [
        closed_window(4, 50),
        closed_window(1, 400, window_s=60),
        closed_window(4, 10, stalls=[(second / 2, second / 2 + 0.49) for second in range(20)]),  # answers of a batch come together
        open_window(100),
        open_window(2, window_s=60),
        open_window(100, silent=[(3, 5)]),
    ],
    ids=["slow", "slower than half a second", "batches", "open", "rare arrivals", "a pause of the schedule"],
)
def test_ordinary_gaps_between_answers_are_no_stall(window):
    assert found(window, None if window.times.get("response_time") else 4) == []


def test_a_gap_in_which_the_generator_stood_still_is_not_a_stall_of_the_target():
    window = closed_window(4, 10, stalls=[(4, 6)])
    assert found(dataclasses.replace(window, stops=(Stop(round(4.1 * S), round(5.9 * S), 7 * S),)), 4) == []
    assert len(found(dataclasses.replace(window, stops=(Stop(round(4.1 * S), round(4.2 * S), 7 * S),)), 4)) == 1


@pytest.mark.parametrize(("outcome", "stalls"), [(Outcome.REJECTED, 0), (Outcome.TIMED_OUT, 1)])
def test_answers_that_clients_take_as_a_reason_to_pause_and_send_again_are_no_stall(outcome, stalls):
    """A hundred requests a second; for two seconds the first attempt of each fails at once, and the second follows after a pause of a second."""
    recorder = Recorder(window_start_ns=0, window_end_ns=20 * S, is_open=True, some_retry=True)
    for at_ns in range(0, 20 * S, 10 * MS):
        failed_ns, again_ns = at_ns + 2 * MS, at_ns + 2 * MS + S
        attempts = (Attempt(outcome, "", at_ns, failed_ns), Attempt(Outcome.OK, "", again_ns, again_ns + 5 * MS))
        is_retried = 8 * S <= at_ns < 10 * S
        last = Reply(Outcome.OK, again_ns, again_ns + 5 * MS)
        one = RetriedReply.of(last, attempts, is_over_budget=False) if is_retried else Reply(Outcome.OK, at_ns, at_ns + 5 * MS)
        one.intended_ns = one.paced_ns = at_ns
        recorder.add(one)
    assert [kind for kind, *_ in found(cut(recorder.finish(20 * S), 0, is_open=True))] == ["stall"] * stalls


def failing(low, high, share=1.0, otherwise=0.0):
    random = np.random.default_rng(2)
    return lambda at_s: Outcome.REJECTED if random.random() < (share if low <= at_s < high else otherwise) else Outcome.OK


@pytest.mark.parametrize("otherwise", [0.0, 0.02])
@pytest.mark.parametrize("share", [0.5, 1.0])
def test_an_error_burst_is_found_at_its_seconds(share, otherwise):
    assert found(open_window(200, outcome_at=failing(7, 9, share, otherwise))) == [("error_burst", 7.0, 9.0)]


@pytest.mark.parametrize(("begin", "end"), [(1, 10), (2, 10), (4, 10), (3, 9)])
def test_most_requests_that_fail_for_most_of_the_window_are_a_burst_from_the_second_in_which_they_begin_to(begin, end):
    assert found(open_window(200, outcome_at=failing(begin, end, 0.9))) == [("error_burst", begin, end)]
    assert found(closed_window(4, 10, outcome_at=failing(begin, end)), 4) == [("error_burst", begin, end)]


@pytest.mark.parametrize(
    ("peak_s", "spans"),
    [
        ({1}, [(1.0, 2.0, 1000), (3.0, 10.0, 700)]),
        ({2}, [(2.0, 10.0, 1700)]),  # in which most requests still succeed
        ({2, 3}, [(2.0, 10.0, 2600)]),
        ({3}, [(3.0, 10.0, 1600)]),
        ({8}, [(3.0, 10.0, 1600)]),
    ],
)
def test_a_failure_is_counted_once_where_a_peak_lies_in_or_beside_the_seconds_in_which_most_fail(peak_s, spans):
    failed = tuple(1000 if second in peak_s else 100 if second >= 3 else 0 for second in range(10))
    answered = tuple(1500 if second < 3 else 0 for second in range(10))
    window = dataclasses.replace(open_window(100), failed_per_s=failed, finished_per_s=answered)
    bursts = [one for one in find_incidents(window, OpenLoad(rate_per_s=100.0, arrivals="poisson"), 0) if one.kind == "error_burst"]
    assert [(one.start_s, one.end_s, one.failed) for one in bursts] == spans


def test_requests_that_fail_from_the_beginning_are_no_incident():
    assert found(open_window(200, outcome_at=failing(0, 10))) == []


def test_a_burst_within_two_seconds_of_the_clock_names_both():
    assert found(closed_window(4, 10, outcome_at=failing(3.5, 4.5)), 4) == [("error_burst", 3.0, 5.0)]


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize(("share", "rate"), [(0.01, 50), (0.1, 50), (0.5, 200), (1.0, 20)])
def test_failures_spread_over_the_window_are_no_burst(share, rate, seed):
    random = np.random.default_rng([3, seed])
    outcome = lambda _: Outcome.REJECTED if random.random() < share else Outcome.OK  # noqa: E731 - one line says it
    assert found(open_window(rate, window_s=30, outcome_at=outcome, seed=seed)) == []


def test_nine_failures_are_no_burst():
    left = iter([Outcome.REJECTED] * 9)
    assert found(open_window(100, outcome_at=lambda at_s: next(left, Outcome.OK) if at_s > 5 else Outcome.OK)) == []


def test_the_warnings_name_seconds_and_repetition():
    load = OpenLoad(rate_per_s=200.0, arrivals="poisson")
    stalled, quiet = open_window(200, stalls=[(2.0, 4.0)]), open_window(200, seed=2)
    failed = open_window(200, outcome_at=failing(7, 9))
    number = sum(failed.failed_per_s)
    (own,) = [one.message for one in point(measurement(stalled, load)).warnings if one.code == "stall"]
    assert own == "The target answered nothing from 2.0 to 4.0 s of the window, although requests were waiting."
    pooled = LoadSummary([measurement(quiet, load), measurement(failed, load, 1), measurement(stalled, load, 2)]).pooled()
    texts = {one.code: one.message for one in pooled.warnings}
    assert texts["stall"] == "The target answered nothing from 2.0 to 4.0 s of repetition 3, although requests were waiting."
    assert texts["error_burst"] == f"{number} requests failed close together, from 7 to 9 s of repetition 2."
    assert [(one.kind, one.repetition, one.failed) for one in pooled.incidents] == [("error_burst", 1, number), ("stall", 2, 0)]


def test_a_quiet_point_has_neither():
    quiet = point(measurement(open_window(200), OpenLoad(rate_per_s=200.0, arrivals="poisson")))
    assert quiet.incidents == ()
    assert not {"stall", "error_burst"} & {one.code for one in quiet.warnings}
