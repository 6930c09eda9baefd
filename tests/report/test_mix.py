"""Workloads alone and together: which load points belong together, their ratios, and the sentences."""

import math

import pytest

from perfkit.report.answer import answer
from perfkit.report.grouped_warnings import grouped_warnings
from perfkit.report.mix import neighbour_sentences, neighbours, neighbours_table
from perfkit.report.run_tables import summary_table
from perfkit.result.model import Result

MS = 1_000_000


def times(p99):
    figures = dict.fromkeys(("p50", "p90", "p95", "p99", "p99_9", "p99_99")) | {"p50": p99 // 2, "p99": p99}
    return {"count": 1000, "min": 1, "mean": p99 / 2, "stddev": 1.0, "max": p99, **figures}


def point(workload, load, p99, *, alone=False, repetition=None, rate=100.0, valid=True, interval=(0.9, 1.2)):
    counts = {"scheduled": 1000, "dropped": 0, "sent": 1000, "ok": 1000}
    outcomes = dict.fromkeys(("rejected", "timed_out", "connect_failed", "broken", "invalid_output", "unfinished"), 0)
    return {
        "workload": workload, "alone": alone, "protocol": "http", "load": load, "repetition": repetition, "valid": valid,
        "warnings": [{"code": "not_steady", "message": "Unsteady."}] if workload == "small" and not alone else [],
        "duration_s": 10.0, "requests": counts | outcomes, "error_rate": 0.0, "throughput_per_s": rate, "inferences_per_s": rate,
        "service_time_ns": times(p99), "failure_time_ns": None, "intervals": {"p99": [p99 * interval[0], p99 * interval[1]]},
        "connections": {"opened": 1, "reconnects": 0}, "generator": {"cpu_share": 0.1, "steal_share": 0.0},
    }  # fmt: skip


def result(points, weights=(70, 30), names=("small", "large")):
    workloads = [{"name": name, "weight": weight} for name, weight in zip(names, weights, strict=True)]
    pooled = [one | {"repetition": None} for one in points]
    repeated = [one | {"repetition": number} for number in range(3) for one in points]
    document = {"scenario": {"name": "mix", "workloads": workloads}, "environment": {}, "status": "complete", "started_at": "x"}
    return Result.model_validate({**document, "points": repeated, "summary": pooled})


def closed(concurrency):
    return {"kind": "closed", "concurrency": concurrency}


def open_load(rate):
    return {"kind": "open", "rate_per_s": rate, "arrivals": "poisson"}


@pytest.fixture
def weighted():
    return result(
        [
            point(None, closed(10), 40 * MS), point("small", closed(10), 30 * MS), point("large", closed(10), 90 * MS),
            point("small", closed(7), 10 * MS, alone=True), point("large", closed(3), 100 * MS, alone=True, rate=200.0),
        ]
    )  # fmt: skip


def test_a_workload_alone_belongs_to_its_part_of_the_mix(weighted):
    pairs = neighbours(weighted)
    assert [(one.together.workload, one.alone.load.concurrency) for one in pairs] == [("small", 7), ("large", 3)]
    own_load = result(
        [point(None, open_load(150), 1), point("small", open_load(100), 2 * MS), point("small", open_load(100), MS, alone=True)],
        weights=(None, None),
    )
    (only,) = neighbours(own_load)
    assert only.alone.alone
    assert neighbours(result([point(None, closed(10), 1), point("small", closed(10), 1)])) == []


def test_ratios_have_the_intervals_of_both_sides(weighted):
    small, large = neighbours(weighted)
    ratio = small.times("p99")
    assert ratio is not None
    assert ratio.value == 3
    # the limits of a ratio of independent figures, on logarithms
    assert ratio.low == pytest.approx(3 * math.exp(-math.hypot(math.log(0.9), math.log(1.2))))
    assert ratio.high == pytest.approx(3 * math.exp(math.hypot(math.log(1.2), math.log(0.9))))
    assert large.throughput is not None
    assert large.throughput.value == pytest.approx(0.5)


def test_the_answer_says_how_much_longer_each_workload_takes(weighted):
    sentences = list(neighbour_sentences(weighted))
    assert sentences[0] == (
        "p99 of small is 3 [2.43, 3.7] times as long beside large as alone (30.0 ms after 10.0 ms; only an indication: in the closed loop that "
        "they share it had 1.5 requests in flight on average, alone 0.5)."
    )
    assert sentences[1].startswith("p99 of large is 0.9 [")
    assert "it had 4.5 requests in flight on average, alone 10)" in sentences[1]
    assert sentences[0] in answer(weighted)
    assert sum("small" in sentence for sentence in answer(weighted)) == 2, "the whole is described once, not each workload"


@pytest.mark.parametrize(("load", "weights"), [(open_load(150), (70, 30)), (closed(3), (None, None))])
def test_only_a_closed_loop_shared_by_weights_makes_the_comparison_an_indication(weighted, load, weights):
    points = [point(None, load, 2 * MS), point("small", load, 2 * MS), point("large", load, MS), point("small", load, MS, alone=True)]
    same_load = result(points, weights=weights)
    (sentence,) = neighbour_sentences(same_load)
    assert sentence == "p99 of small is 2 [1.62, 2.47] times as long beside large as alone (2.00 ms after 1.00 ms)."
    assert "only an indication" not in neighbours_table(same_load).note
    assert "only an indication where workloads share a closed loop by weights" in neighbours_table(weighted).note


def test_load_points_that_are_not_valid_are_left_out_of_the_sentences():
    disturbed = result(
        [point("small", closed(10), 30 * MS, valid=False), point("small", closed(7), 10 * MS, alone=True), point(None, closed(10), MS)]
    )
    assert list(neighbour_sentences(disturbed)) == []
    assert neighbours_table(disturbed).marks == ("invalid",)


def test_tables_and_warnings_name_the_workloads(weighted):
    table = summary_table(weighted.summary)
    assert table.columns[0].key == "workload"
    assert [row[0] for row in table.rows] == ["all", "small", "large", "small, alone", "large, alone"]
    (warning,) = grouped_warnings(weighted.summary)
    assert warning.load_points == "small, concurrency 10"
