"""perf_analyzer's results beside perfkit's: only what both define alike is compared, and what is not known stays unknown."""

import pathlib

import pytest

from perfkit.comparison.perf_analyzer_comparison import compare_with_perf_analyzer
from perfkit.errors import IncomparableError
from perfkit.report.comparison import comparison_text
from perfkit.result.perf_analyzer_result import PerfAnalyzerLoad, PerfAnalyzerPoint, PerfAnalyzerResult
from perfkit.stats.ratio_interval import Estimate
from tests.stored_results import distribution, point, result

MS = 1_000_000
OPEN = {"kind": "open", "rate_per_s": 500.0, "arrivals": "poisson"}


def old(mode="concurrency", value=4.0, kind="profile export", **figures):
    made = {"percentiles_ns": {"p50": Estimate(1.0 * MS, 0.9 * MS, 1.1 * MS)}, **figures}
    return PerfAnalyzerResult(pathlib.Path("old"), kind, (PerfAnalyzerPoint(PerfAnalyzerLoad(mode, value), **made),))


def open_result(**changes):
    response, delay = distribution(8.0, 20.0), distribution(0.1, 0.2)
    return result(points=[point(load=OPEN, response_time_ns=response, start_delay_ns=delay, **changes)])


def rows(*sides):
    return {row.metric: row for row in compare_with_perf_analyzer([(str(number), side) for number, side in enumerate(sides)]).rows}


def values(row):
    return [one and one.value for one in row.values]


def test_closed_loops_are_compared_by_service_time():
    found = rows(old(throughput_per_s=400.0), result())
    assert values(found["service time p50"]) == [1.0 * MS, 2.0 * MS]
    change = found["service time p50"].changes[1]
    assert change.value == 2.0
    assert change.low < 2.0 < change.high
    assert values(found["throughput"]) == [400.0, 500.0]
    assert found["throughput"].changes[1].low is None, "perf_analyzer's throughput has no interval"


def test_failures_and_percentiles_that_it_does_not_have_are_unknown():
    found = rows(old(), result())
    assert values(found["error rate"]) == [None, 0.0]
    assert values(found["service time p99"]) == [None, 6.0 * MS]
    assert found["error rate"].changes == found["service time p99"].changes == (None, None)
    assert values(found["throughput"]) == [None, 500.0]


def test_an_open_loop_is_compared_by_its_service_time_and_never_by_its_response_time():
    compared = compare_with_perf_analyzer([("old", old("request_rate", 500.0)), ("new", open_result())])
    found = {row.metric: row for row in compared.rows}
    assert values(found["service time p50"]) == [1.0 * MS, 2.0 * MS]
    assert found["service time p50"].values[1].low is None, "the intervals are those of the response time"
    assert 8.0 * MS not in [value for row in compared.rows for value in values(row)]
    assert (
        "The times of new are its service times, from the actual send; perf_analyzer has nothing to compare its response times with."
        in compared.notes
    )


@pytest.mark.parametrize("theirs", [old("request_rate", 4.0), old("concurrency", 8.0), old("request_rate", 0.0)])
def test_closed_loops_are_not_compared_with_rates(theirs):
    with pytest.raises(IncomparableError, match=r"no load in common \(new: http, concurrency 4; old: "):
        compare_with_perf_analyzer([("new", result()), ("old", theirs)])


def test_what_it_does_not_record_is_said_whichever_side_it_is():
    sentence = (
        "old is a profile export of perf_analyzer: no response time from the intended start, no failures: its format does not record them."
    )
    for sides in ([("old", old()), ("new", result())], [("new", result()), ("old", old())]):
        compared = compare_with_perf_analyzer(sides)
        assert sentence in compared.notes
        text = " ".join(comparison_text(compared).split())
        assert sentence in text
        assert "No recorded settings differ." not in text
        assert "settings: " in text


def test_a_report_counts_inferences_and_is_compared_by_them():
    theirs = old(kind="CSV report", inferences_per_s=1600.0, percentiles_ns={"p75": Estimate(3.0 * MS, None, None)})
    ours = result(points=[point(throughput_per_s=400.0, inferences_per_s=3200.0)])
    found = rows(theirs, ours)
    assert values(found["inferences"]) == [1600.0, 3200.0]
    assert values(found["throughput"]) == [None, 400.0]
    assert [*found][:4] == ["throughput", "inferences", "mean service time", "service time p50"]
    assert [*found].index("service time p75") == [*found].index("service time p50") + 1


def test_two_reports_have_neither_settings_nor_intervals_to_compare():
    theirs = old(kind="CSV report", percentiles_ns={"p75": Estimate(3.0 * MS, None, None)})
    compared = compare_with_perf_analyzer([("old", theirs), ("new", theirs)])
    assert [side.differences for side in compared.sides] == [(), ()]
    text = " ".join(comparison_text(compared).split())
    assert "perfkit cannot check that they are those of the other results" in text
    assert "cannot be told: measure both with perfkit, with three repetitions or more." in text
    assert "[–, –]" not in text
    assert "old is a CSV report of perf_analyzer or perfkit perf-analyzer: " in text


def test_an_export_and_a_report_share_no_throughput():
    found = rows(old(throughput_per_s=400.0), old(kind="CSV report", inferences_per_s=1600.0))
    assert values(found["throughput"]) == [400.0, None]
    assert values(found["inferences"]) == [None, 1600.0]


def test_both_protocols_of_a_result_are_shown_beside_it_and_left_out_points_named():
    ours = result(points=[point(), point(protocol="grpc"), point(load={"kind": "closed", "concurrency": 9})])
    compared = compare_with_perf_analyzer([("old", old()), ("new", ours)])
    assert list(dict.fromkeys(row.load_point for row in compared.rows)) == ["http, concurrency 4", "grpc, concurrency 4"]
    assert "Left out, because not all results have it: http, concurrency 9 of new." in compared.notes


def test_invalid_points_are_named():
    compared = compare_with_perf_analyzer([("new", result(valid=False)), ("old", old())])
    assert "Not valid in new: http, concurrency 4; its figures may be those of the load generator or of a cold target." in compared.notes
