"""What the page of a run says to do next."""

import pytest

from perfkit.errors import MeasurementWarning
from perfkit.report.grouped_warnings import grouped_warnings
from perfkit.report.run_next_steps import run_next_steps
from perfkit.result.scan import Scan
from perfkit.result.search import Search
from tests.report.test_answer import closed

CACHED = MeasurementWarning("cache_hits", "The server's response cache answered 40 of 500 requests.")
OVERLOADED = MeasurementWarning("overloaded", "The backlog grew to the end of the window.")


def commands(result):
    warnings = [one for one in grouped_warnings(result.summary) if not one.is_note]
    return [command for _, command in run_next_steps(result, warnings)]


@pytest.mark.parametrize(
    ("result", "command"),
    [
        (closed(812.0), "perfkit gate SCENARIO --baseline TARGET --candidate TARGET"),
        (closed(812.0, warnings=[(CACHED,)]), "perfkit run SCENARIO --set workload.variants=N"),
        (closed(812.0, verdicts=["violated"]), "perfkit explain RESULT"),
        # warnings of other load points than the answer's, and overload, are not remedied
        (closed(812.0, 300.0, warnings=[(), (CACHED,)]), "perfkit gate SCENARIO --baseline TARGET --candidate TARGET"),
        (closed(812.0, verdicts=["violated"], warnings=[(OVERLOADED,)]), "perfkit explain RESULT"),
        (closed(812.0, valid=[False], warnings=[(CACHED,)]), "perfkit run SCENARIO --set workload.variants=N"),
    ],
)
def test_a_run_names_the_remedy_first_then_why_an_slo_is_missed(result, command):
    assert commands(result) == [command]


@pytest.mark.parametrize("name", ["cold_start", "idle", "surge"])
def test_no_gate_is_proposed_for_loads_that_a_gate_refuses(name):
    result = closed(812.0)
    points = tuple(point.model_copy(update={name: object()}) for point in result.summary)
    assert commands(result.model_copy(update={"summary": points})) == []


def test_after_a_scan_load_points_around_its_knee_are_proposed():
    result = closed(812.0)
    scan = Scan(steps=(), knee=None, reason="x", proposed=(1, 4, 8))
    points = tuple(point.model_copy(update={"scan": scan, "warnings": (CACHED,)}) for point in result.summary)
    points += (points[0].model_copy(update={"protocol": "grpc", "scan": scan.model_copy(update={"proposed": (2, 8)})}),)
    assert commands(result.model_copy(update={"summary": points})) == ["perfkit run SCENARIO --set load.closed.concurrency='[1,2,4,8]'"]


@pytest.mark.parametrize(
    ("reason", "expected"),
    [
        ("precision", ["perfkit plan RESULT --slo 'p99<25ms,error_rate<1%' --demand RATE"]),
        ("budget", ["perfkit run SCENARIO --out RESULT --resume --budget=60s"]),
        ("interrupted", []),
    ],
)
def test_a_search_leads_to_a_plan_or_gets_more_time(reason, expected):
    search = Search(
        slo={"p99": "25ms", "error_rate": "1%"}, capacity_per_s=500.0, low_per_s=490.0, high_per_s=510.0, confidence=0.9, precision=0.05,
        stopped_because=reason, reason="x", needed_s=60.0,
    )  # fmt: skip
    for warnings in ((), (OVERLOADED,)):  # a search has overloaded probes
        assert commands(closed(812.0, warnings=[warnings]).model_copy(update={"search": search})) == expected
