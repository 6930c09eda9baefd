"""Scans from replies to a knee, in virtual time: a closed loop on c servers has its knee at c."""

import dataclasses
import heapq
import itertools
import random

import pytest

from perfkit.clock import ManualClock
from perfkit.load.load_plan import RampPlan
from perfkit.load.loop import Stoppable
from perfkit.measurement.load_points import describe_load
from perfkit.points.point import LoadSummary
from perfkit.recorder.window import cut
from perfkit.report.scan import scan_group, scan_sentence, scan_table
from perfkit.result.checks import problems
from perfkit.result.model import Result
from perfkit.result.scan import Scan, scan_problems
from perfkit.transport.base import Outcome, Prepared
from perfkit.transport.scripted import ScriptedTransport
from tests.measured_points import point_spec, run_point
from tests.queue_results import measured_point
from tests.stored_results import changed

MS, S = 1_000_000, 1_000_000_000
OVER_S, SERVICE_S = 20, 0.02


def summary(servers, *, start=1, to=32, draw_s=lambda: SERVICE_S, over_s=OVER_S, queue=None, stop_s=None):
    """The load point of a scan on so many servers, with room for `queue` that wait; an interrupt after `stop_s` of the window."""
    clock = ManualClock(5 * S)
    plan, free_ns = RampPlan(to, 0, start=start, over_ns=over_s * S), [0] * servers

    loops, ends_ns = list[Stoppable](), list[int]()

    def script(_):
        if stop_s is not None and clock.now_ns() >= (6 + stop_s) * S:
            loops[0].stop("interrupted")
        ends_ns[:] = [one for one in ends_ns if one > clock.now_ns()]
        if queue is not None and len(ends_ns) >= servers + queue:
            return 2 * MS, Outcome.REJECTED
        end_ns = max(clock.now_ns(), free_ns[0]) + round(draw_s() * S)
        ends_ns.append(end_ns)
        heapq.heapreplace(free_ns, end_ns)
        return end_ns - clock.now_ns(), Outcome.OK

    spec = point_spec(plan, S, over_s * S, None, S, to)
    recording = clock.run(run_point(spec, ScriptedTransport(clock, script), [Prepared(())], clock=clock, on_loop=loops.append)).recording
    window = cut(recording, 0, is_open=False)
    measured = measured_point(
        describe_load(plan), 0, seconds=over_s, outcomes={}, times={}, ended=0, finished=0, protocol="http", warnings=(), load_varies=True
    )
    return LoadSummary([dataclasses.replace(measured, window=window)]).pooled()


@pytest.mark.parametrize("servers", [4, 8, 16])
@pytest.mark.parametrize("law", ["constant", "exponential"])
def test_the_knee_is_at_the_number_of_servers(servers, law):
    source = random.Random(servers)
    draw_s = {"constant": lambda: SERVICE_S, "exponential": lambda: source.expovariate(1 / SERVICE_S)}[law]
    point = summary(servers, draw_s=draw_s, over_s=20 if law == "constant" else 60)
    knee = point.scan.knee
    assert knee.low <= servers <= knee.high
    assert knee.high - knee.low <= (4 if law == "constant" else 16)
    assert servers in range(point.scan.proposed[0], point.scan.proposed[-1])
    # the bounds of operational analysis: N / service time below the knee, and servers / service time above it
    for one in point.scan.steps:
        assert one.throughput_per_s <= 1.15 * min(one.highest, servers) / SERVICE_S
        if law == "constant":
            assert one.throughput_per_s * one.mean_ns / S == pytest.approx(one.concurrency, abs=0.5)
    assert point.scan.steps[-1].throughput_per_s == pytest.approx(servers / SERVICE_S, rel=0.02 if law == "constant" else 0.15)
    assert not {"few_samples", "not_steady", "cold", "overloaded", "stall"} & {one.code for one in point.warnings}


def test_a_knee_that_a_scan_does_not_reach_or_begins_above_is_none():
    beyond = summary(64).scan
    assert (beyond.knee, beyond.reason.partition(":")[0]) == (None, "No knee up to 32 requests in flight")
    assert beyond.proposed[-1] == 64
    assert summary(4, to=2).scan.reason.startswith("No knee up to 2 requests in flight")  # ten steps have two in flight
    below = summary(1, start=2).scan
    assert (below.knee, below.reason.startswith("The knee is at")) == (None, True)
    assert summary(8, over_s=1).scan is not None


def test_a_scan_that_begins_above_the_knee_proposes_fewer():
    scan = summary(8, start=16, to=64).scan
    assert (scan.knee, scan.reason.endswith("begin lower than 16.")) == (None, True)
    assert scan.proposed[0] <= 8 <= scan.proposed[-1]


def test_too_few_answers_are_no_finding():
    for servers in (4, 8):
        scan = summary(servers, draw_s=lambda: 4.0, over_s=60).scan
        assert (scan.knee, scan.reason.partition(":")[0], scan.proposed) == (None, "Too few answers per step to tell a knee", ())


def test_refused_requests_are_no_throughput_and_prevent_a_knee():
    point = summary(8, queue=4, over_s=8)
    failing = next(step for step in point.scan.steps if step.highest > 12)
    assert (point.scan.knee, point.scan.proposed[-1]) == (None, failing.lowest)
    assert "failed or were given up" in point.scan.reason
    assert max(step.throughput_per_s for step in point.scan.steps) <= 1.15 * 8 / SERVICE_S
    assert summary(8, queue=32).scan.knee is not None


def test_a_scan_that_is_interrupted_claims_what_it_reached():
    scan = summary(64, stop_s=10).scan
    assert scan.reason.startswith(
        f"The scan ended early, at {scan.steps[-1].highest} of 32 requests in flight. No knee up to {scan.steps[-1].highest} "
    )
    assert scan.steps[-1].highest in (16, 17)


def test_a_scan_is_told_in_a_table_two_charts_and_a_sentence():
    point = summary(8)
    rows = scan_table([point]).rows
    assert len(rows) == len(point.scan.steps) <= 20
    assert [row[-1] for row in rows].count("knee") == 1
    throughput, times = scan_group([point]).charts
    (level,), (span,) = throughput.levels, throughput.spans
    assert span.low <= 8 <= span.high
    assert level.value == point.scan.knee.concurrency
    assert [line.name for line in times.lines] == ["p50", "p99"]
    assert scan_sentence(point).startswith("scan, not a steady load: knee at ")
    assert scan_sentence(point).endswith(
        f"; the load points to measure: --set load.closed.concurrency='[{','.join(map(str, point.scan.proposed))}]'"
    )
    assert (point.title, point.load.quantity) == ("http, scan of concurrency 1 to 32", "scan of concurrency")


def test_a_stored_scan_fits_its_load():
    point = summary(8)
    result = Result(
        scenario={}, environment={}, status="complete", started_at="2026-01-02T03:04:05.678+00:00", points=(point.model_copy(update={"repetition": 0}),),
        summary=(point,),
    )  # fmt: skip
    assert list(problems(result)) == []
    stored = point.scan.model_dump(mode="json")
    for path, value, key in (
        ("steps.3.highest", 40, "steps.3"),
        ("steps.3.lowest", 2, "steps.3.lowest"),
        ("steps.3.p50_ns", 10**12, "steps.3.p99_ns"),
        ("knee.low", 20, "knee"),
    ):
        assert key in [found for found, _ in scan_problems(Scan.model_validate(changed(stored, path, value)), point.load)]


def test_slots_begin_when_the_ramp_reaches_them_and_are_divided_among_workers():
    started_ns: list[list[int]] = [[], []]

    def script_of(worker):
        def script(_):
            started_ns[worker].append(clock.now_ns() - 6 * S)
            return 3600 * S, Outcome.OK

        return script

    plan = RampPlan(9, 0, start=3, over_ns=7 * S)
    for worker, spec in enumerate(point_spec(plan, S, 7 * S, None, S, 9).split(2)):
        clock = ManualClock(5 * S)
        clock.run(run_point(spec, ScriptedTransport(clock, script_of(worker)), [Prepared(())], clock=clock, on_loop=lambda _: None))
    # three from the start of the warm-up, then one more at equal distances, so that each number lasts as long, the last one, too
    assert sorted(itertools.chain(*started_ns)) == [-S, -S, -S, S, 2 * S, 3 * S, 4 * S, 5 * S, 6 * S]
    assert [len(one) for one in started_ns] == [5, 4]
    load = describe_load(plan)
    assert [load.concurrency_at(instant_s) for instant_s in (0, 0.9, 1, 5.9, 6, 7)] == [3, 3, 4, 8, 9, 9]
