"""Idle gaps in a scenario: their load points, and gaps that do not fit."""

import pytest

from perfkit.errors import ScenarioError
from perfkit.load.load_plan import IdlePlan
from perfkit.load.point import load_points
from perfkit.scenario.file import read_document

MS = 1_000_000


def read(load, **measure):
    return read_document({"name": "s", "target": {"model": "m"}, "load": load, "measure": measure})


def test_each_gap_is_a_load_point_with_one_request_in_flight():
    points = load_points(read({"idle": {"gap": ["100ms", "1s"], "then": 5}}, repetitions=2))
    assert [(type(point.loads[0]), point.loads[0].gap_ns, point.loads[0].then, point.loads[0].concurrency) for point in points] == [
        (IdlePlan, 100 * MS, 5, 1), (IdlePlan, 1000 * MS, 5, 1),
    ] * 2  # fmt: skip


def test_one_gap_needs_no_list_and_twenty_requests_follow_by_default():
    (point, *_) = load_points(read({"idle": {"gap": "20ms"}}))
    assert (point.loads[0].gap_ns, point.loads[0].then) == (20 * MS, 20)


@pytest.mark.parametrize(
    ("load", "measure", "found"),
    [
        ({"gap": "10s"}, {}, "10s fits 1 times into each of 3 windows, and a median needs 6 gaps: measure longer, such as measure.duration: 78s"),
        ({"gap": "10s"}, {"duration": "55s", "repetitions": 1}, "such as measure.duration: 220s"),
        ({"gap": "1ms", "then": 9}, {"requests": 50, "repetitions": 1}, "1ms fits 5 times into each of 1 windows, and a median needs 6 gaps: measure longer, such as measure.requests: 200"),
        ({"gap": ["1s", "1000ms"]}, {}, "values must be unique"),
        ({"gap": "0s"}, {}, "load.idle.gap"),
        ({"gap": "1ms", "then": 0}, {}, "load.idle.then"),
        ({}, {}, "load.idle.gap"),
    ],
)  # fmt: skip
def test_gaps_that_do_not_fit_are_refused_with_what_would_do(load, measure, found):
    with pytest.raises(ScenarioError) as caught:
        read({"idle": load}, **measure)
    assert found in str(caught.value)
