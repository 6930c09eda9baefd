"""A point with idle gaps, from the loop in virtual time to its figures."""

import math

import pytest

from perfkit.clock import ManualClock
from perfkit.load.load_plan import IdlePlan
from perfkit.load.point import LoadPoint, PointPart
from perfkit.measurement.point_measurement import ProbedFacts, cut_window, make_point_measurement
from perfkit.measurement.point_telemetry import PointObservation
from perfkit.points.measured import NO_RESOURCES
from perfkit.points.point import LoadSummary
from perfkit.report.first_requests import idle_group, idle_sentence, idle_table
from perfkit.result.load import IdleLoad
from perfkit.scenario.file import read_document
from perfkit.target.address import Address
from perfkit.transport.base import Outcome, Prepared
from perfkit.transport.scripted import ScriptedTransport
from tests.measured_points import point_spec, run_point

MS, S = 1_000_000, 1_000_000_000


class Sleepy(ScriptedTransport):
    """Requests take 5 to 6 ms, and 40 ms more after 100 ms without a request."""

    def __init__(self, clock):
        self._last_ns = 0
        super().__init__(clock, self._service)

    def _service(self, index):
        now_ns = self._clock.now_ns()
        service_ns = 5 * MS + index * 37 % 1000 * 1000 + (40 * MS if now_ns - self._last_ns >= 100 * MS else 0)
        self._last_ns = now_ns + service_ns
        return service_ns, Outcome.OK


def summary(gap_ms, *, window_s=30, repetitions=2):
    """The pooled point of a load with gaps of that length."""
    load = {"idle": {"gap": f"{gap_ms}ms", "then": 10}}
    measure = {"duration": f"{window_s}s", "repetitions": repetitions}
    scenario = read_document({"name": "s", "target": {"model": "m"}, "load": load, "measure": measure}).scenario
    plan, pooled = IdlePlan(concurrency=1, think_time_ns=0, gap_ns=gap_ms * MS, then=10), LoadSummary()
    for repetition in range(repetitions):
        clock = ManualClock(5 * S)
        point = LoadPoint(0, (PointPart("http", plan),), repetition, repetition)
        spec = point_spec(load=plan, warmup_ns=S, window_ns=window_s * S, requests=None, drain_ns=S, connections=1)
        recorded = clock.run(
            run_point(
                spec, Sleepy(clock), [Prepared(())], clock=clock, address=Address("http", "h", 1), on_loop=lambda _: None,

            )
        )  # fmt: skip
        window = cut_window(scenario, recorded, is_open=False)
        pooled.add(
            make_point_measurement(scenario, ProbedFacts(), point, 0, recorded, window, PointObservation(NO_RESOURCES, (), ()), 1, [])
        )
    return pooled.pooled()


@pytest.mark.parametrize(("gap_ms", "penalty_ms"), [(50, 0), (500, 40)])
def test_the_penalty_is_the_declared_one_within_its_interval(gap_ms, penalty_ms):
    point = summary(gap_ms)
    penalty = point.idle.penalty_ns
    assert penalty.low <= penalty_ms * MS <= penalty.high
    assert penalty.high - penalty.low < 2 * MS
    assert point.idle.penalty_ratio.value == pytest.approx(point.after_gap_time_ns.p50 / point.following_time_ns.p50, rel=2e-3)
    # the service times have both kinds, each request once
    assert point.after_gap_time_ns.count + point.following_time_ns.count == point.service_time_ns.count
    assert point.idle.gaps == point.after_gap_time_ns.count
    assert point.load == IdleLoad(gap_s=gap_ms / 1000, then=10)
    # the gaps are no stalls, no drift, and no breach of Little's law
    assert {warning.code for warning in point.warnings} <= {"few_samples", "steal"}  # the host of the machine may steal


def test_few_gaps_are_named_with_the_duration_that_would_do():
    point = summary(5_000, window_s=30, repetitions=2)
    (warning,) = [warning for warning in point.warnings if warning.code == "few_gaps"]
    assert warning.message.startswith(
        f"Only {point.idle.gaps} idle gaps: the penalty of the first request is uncertain. 20 need windows of about "
    )
    assert 6 <= point.idle.gaps < 20
    assert point.idle.penalty_ns.low <= 40 * MS <= point.idle.penalty_ns.high


def test_the_report_has_the_penalty_in_its_table_chart_and_sentence():
    points = [summary(50), summary(500)]
    table = idle_table(points)
    rows = [dict(zip((column.key for column in table.columns), row, strict=True)) for row in table.rows]
    assert [row["gaps"].value for row in rows] == [point.idle.gaps for point in points]
    assert rows[1]["gap_penalty_ns"].value == points[1].idle.penalty_ns.value
    (chart,) = idle_group(points).charts
    after, following = chart.lines
    assert after.xs == following.xs == (0.05, 0.5)
    assert after.ys[1] == pytest.approx(45.5, abs=0.6)
    assert following.ys[1] == pytest.approx(5.5, abs=0.6)
    assert all(interval is not None and math.isfinite(sum(interval)) for interval in after.intervals)
    sentence = idle_sentence(points)
    assert sentence.startswith("at the median, the first request takes ")
    assert " after 500ms idle than the following ones" in sentence
