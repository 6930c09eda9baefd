"""Surges from replies to figures and a verdict: a queue of one server with constant times, whose backlog has a closed form."""

import dataclasses

import numpy as np
import pytest

from perfkit.points.point import LoadSummary
from perfkit.recorder.recorder import Recorder
from perfkit.recorder.window import cut
from perfkit.report.surge import surge_group, surge_sentence, surge_table
from perfkit.result.load import OpenLoad, SurgeLoad
from perfkit.transport.base import Outcome, Reply
from tests.queue_results import measured_point

S, MS = 1_000_000_000, 1_000_000
BASE, CAPACITY, BEFORE_S, FOR_S, AFTER_S, LIMIT_S = 100, 200, 2.0, 3.0, 10.0, 0.05
WINDOW_S = round(BEFORE_S + FOR_S + AFTER_S)


def _starts_s(surge_per_s):
    pieces = ((-1.0, BEFORE_S, BASE), (BEFORE_S, BEFORE_S + FOR_S, surge_per_s), (BEFORE_S + FOR_S, WINDOW_S, BASE))
    return np.concatenate([np.arange(start, end, 1 / rate) for start, end, rate in pieces])


def _summary(surge_per_s, *, most_waiting=None, repetitions=3):
    """Requests to a queue of one server, whose full queue of `most_waiting` rejects at once; the first second is the warm-up."""
    load = OpenLoad(rate_per_s=BASE, arrivals="constant", surge=SurgeLoad(rate_per_s=surge_per_s, start_s=BEFORE_S, end_s=BEFORE_S + FOR_S))
    summary = LoadSummary(slo=None)
    for repetition in range(repetitions):
        recorder = Recorder(
            window_start_ns=0,
            window_end_ns=WINDOW_S * S,
            is_open=True,
            good_within_ns={"waited": round(LIMIT_S * S)},
            surge_slot_ns=100 * MS,
        )
        free_s = -1.0
        for start_s in _starts_s(surge_per_s):
            intended_ns, is_full = round(start_s * S), most_waiting is not None and (free_s - start_s) * CAPACITY >= most_waiting
            if is_full:
                finished_ns, outcome = intended_ns + MS, Outcome.REJECTED
            else:
                free_s = max(free_s, start_s) + 1 / CAPACITY
                finished_ns, outcome = round(free_s * S), Outcome.OK
            reply = Reply(outcome, intended_ns, finished_ns)
            reply.intended_ns = reply.paced_ns = intended_ns
            recorder.add(reply)
        window = cut(recorder.finish(WINDOW_S * S), 0, is_open=True)
        measured = measured_point(
            load, repetition, seconds=WINDOW_S, outcomes={}, times={}, ended=0, finished=0, protocol="http", warnings=(), has_slo=True,
            beyond_share=0.01,
        )  # fmt: skip
        summary.add(dataclasses.replace(measured, window=window))
    return summary.pooled()


def test_a_backlog_and_its_recovery_are_those_of_the_closed_form():
    found = _summary(300)
    backlog = (300 - CAPACITY) * FOR_S
    drained_s = (backlog / CAPACITY - (LIMIT_S - 1 / CAPACITY)) / (1 - BASE / CAPACITY)
    assert found.surge.figures["in_flight_left"].value == pytest.approx(backlog, abs=2)
    assert found.surge.figures["recovery_s"].value == pytest.approx(drained_s, abs=0.05)
    assert found.surge.figures["before_per_s"].value == pytest.approx(BASE, rel=0.02)
    assert found.surge.verdict == "recovers"
    assert not {"overloaded", "not_steady", "stall", "error_burst"} & {one.code for one in found.warnings}
    assert (found.slo, found.incidents) == (None, ())


def test_a_bounded_queue_keeps_its_goodput_and_recovers_at_once():
    found = _summary(300, most_waiting=5)
    assert found.surge.figures["during_per_s"].value == pytest.approx(CAPACITY, rel=0.05)
    assert found.surge.figures["recovery_s"].value <= 0.1
    assert found.surge.verdict == "degrades"
    assert found.failure_time_ns.p99 == pytest.approx(MS, rel=0.01)


def test_a_surge_without_end_in_sight_collapses_and_two_repetitions_say_nothing():
    endless = _summary(900)
    assert endless.surge.verdict == "collapses"
    assert "recovery_s" not in endless.surge.figures
    assert _summary(300, most_waiting=5, repetitions=2).surge.verdict == "undecided"


def test_a_surge_is_told_in_a_table_a_chart_and_a_sentence():
    point = _summary(300, most_waiting=5)
    assert [row[1] for row in surge_table([point]).rows] == ["1", "2", "3", "mean"]
    (chart,) = surge_group([point]).charts
    (span,) = chart.spans
    assert (span.low, span.high) == (BEFORE_S, BEFORE_S + FOR_S)
    arrivals, good = chart.lines
    inside = [index for index, x in enumerate(arrivals.xs) if span.low < x < span.high]
    assert np.mean([arrivals.ys[index] for index in inside]) == pytest.approx(300, rel=0.02)
    assert np.mean([good.ys[index] for index in inside]) == pytest.approx(CAPACITY, rel=0.05)
    assert surge_sentence(point).startswith("degrades: goodput 100/s before the surge, 20")


def test_nothing_is_said_of_a_target_that_never_met_the_slo_or_was_overloaded_once():
    down = _summary(300, most_waiting=-(10**9)).surge
    assert (down.verdict, down.reason.split(":")[0]) == ("undecided", "No request met the SLO before the surge")
    assert _summary(900, repetitions=1).surge.verdict == "undecided"
