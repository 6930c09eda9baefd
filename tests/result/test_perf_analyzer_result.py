"""Files that perf_analyzer wrote: real ones, and literal ones of its documented format."""

import json
import pathlib

import pytest

from perfkit.errors import ResultError
from perfkit.result import perf_analyzer_export
from perfkit.result.file import read_result
from perfkit.result.perf_analyzer_files import perf_analyzer_kind
from perfkit.result.perf_analyzer_result import PerfAnalyzerLoad, PerfAnalyzerResult, read_perf_analyzer
from perfkit.stats.buckets import bucket_width_ns

REAL = pathlib.Path(__file__).parent / "perf_analyzer"
MS, S = 1_000_000, 1_000_000_000
T0 = 1_700_000_000 * S


def read(path):
    kind = perf_analyzer_kind(path)
    assert kind is not None
    return read_perf_analyzer(path, kind)


def request(started_ms, *responses_ms, outputs=None):
    """A request whose outputs are one value each, or those given."""
    responses = [T0 + round(one * MS) for one in responses_ms]
    return {
        "timestamp": T0 + round(started_ms * MS),
        "request_inputs": {"IN": 1},
        "response_timestamps": responses,
        "response_outputs": [{"OUT": value} for value in outputs or range(len(responses))],
    }


def export(*experiments):
    """An export of pairs of requests and the windows' boundaries in milliseconds, with concurrency 1, 2, …"""
    return {
        "experiments": [
            {
                "experiment": {"mode": "concurrency", "value": number},
                "requests": requests,
                "window_boundaries": [T0 + round(one * MS) for one in boundaries_ms],
            }
            for number, (requests, boundaries_ms) in enumerate(experiments, 1)
        ],
        "version": "2.60.0",
        "service_kind": "triton",
        "endpoint": "",
    }


@pytest.fixture
def points(tmp_path):
    def make(document, **changes):
        file = tmp_path / "export.json"
        file.write_text(json.dumps(document, **changes))
        return read(file).points

    return make


@pytest.mark.parametrize(("name", "last"), [("rate", -1), ("stream", -2)])
def test_an_export_gives_the_figures_of_perf_analyzers_own_report(name, last):
    exported, reported = read(REAL / f"{name}.json"), read(REAL / f"{name}.csv")
    assert (exported.kind, reported.kind) == ("profile export", "CSV report")
    own = {point.load.value: point for point in exported.points}
    service_ns = {
        one["experiment"]["value"]: sorted(request["response_timestamps"][last] - request["timestamp"] for request in one["requests"])
        for one in json.loads((REAL / f"{name}.json").read_text())["experiments"]
    }
    for theirs in reported.points:
        ours, times_ns = own[theirs.load.value], service_ns[theirs.load.value]
        # its six digits, and its whole microseconds
        assert ours.throughput_per_s == pytest.approx(theirs.inferences_per_s, rel=1e-5)
        if theirs.mean_ns is not None:
            assert ours.mean_ns == pytest.approx(theirs.mean_ns, abs=1000)
        if theirs.responses_per_s is not None:
            assert ours.responses_per_s == pytest.approx(theirs.responses_per_s, rel=1e-5)
        for percentile, share in (("p50", 0.5), ("p90", 0.9)):
            # the ranks of the two differ by one where there are few requests
            assert theirs.percentiles_ns[percentile].value == times_ns[int(share * (len(times_ns) - 1) + 0.5)] // 1000 * 1000
            expected_ns = times_ns[int(share * len(times_ns) + 0.5) - 1]
            assert ours.percentiles_ns[percentile].value == pytest.approx(expected_ns, abs=bucket_width_ns(expected_ns))


def test_a_report_keeps_the_columns_that_it_has():
    (point,) = read(REAL / "rate.csv").points
    assert point.load == PerfAnalyzerLoad("request_rate", 60.0)
    assert point.inferences_per_s == 59.3825
    assert {name: one.value for name, one in point.percentiles_ns.items()} == {
        "p50": 1_440_000, "p75": 2_203_000, "p90": 3_701_000, "p95": 4_978_000, "p99": 6_070_000,
    }  # fmt: skip
    assert (point.mean_ns, point.requests, point.throughput_per_s) == (None, None, None)
    assert point.further["Server Queue"] == "36"


def test_throughput_is_that_of_the_windows_and_times_begin_at_the_actual_send(points):
    requests = [request(10 * number, 10 * number + 4) for number in range(100)]
    (point,) = points(export((requests, [0, 500, 1000])))
    assert (point.requests, point.duration_s, point.throughput_per_s) == (100, 1.0, 100.0)
    assert point.mean_ns == 4 * MS
    assert point.percentiles_ns["p50"].value == pytest.approx(4 * MS, abs=bucket_width_ns(4 * MS))
    assert {*point.percentiles_ns} == {"p50", "p90", "p95", "p99"}, "the others have too few samples"
    assert (point.first_response_ns, point.responses_per_s, point.notes) == (None, None, ())


def test_percentiles_have_intervals_from_the_order_of_the_requests(points):
    requests = [request(number, number + 4 + number % 7 / 10) for number in range(2000)]
    (point,) = points(export((requests, [0, 1000, 2005])))
    median = point.percentiles_ns["p50"]
    assert median.low <= median.value <= median.high
    assert 0 < median.high - median.low < 0.3 * MS


def test_an_empty_final_response_is_no_response(points):
    decoupled = [request(100 * number, 100 * number + 10, 100 * number + 30, 100 * number + 31, outputs=[7, 8, ""]) for number in range(10)]
    (point,) = points(export((decoupled, [0, 500, 1000])))
    assert point.mean_ns == 30 * MS
    assert (point.first_response_ns.count, point.first_response_ns.max) == (10, pytest.approx(10 * MS, rel=1e-3))
    assert (point.response_gap_ns.count, point.response_gap_ns.min) == (10, pytest.approx(20 * MS, rel=1e-3))
    assert point.responses_per_s == 20.0


def test_responses_in_shared_memory_which_are_all_empty_all_count(points):
    shared = [request(100 * number, 100 * number + 10, 100 * number + 30, outputs=["", ""]) for number in range(10)]
    (point,) = points(export((shared, [0, 500, 1000])))
    assert (point.mean_ns, point.responses_per_s) == (30 * MS, 20.0)


def test_the_idle_end_of_a_request_counts_window_is_left_out_and_said(points):
    requests = [request(10 * number, 10 * number + 10) for number in range(5)]
    (point,) = points(export((requests, [0, 1000])))
    assert (point.throughput_per_s, point.duration_s) == (100.0, 0.05)
    assert point.notes == (
        (
            "concurrency 1: the throughput is that until the last response: perf_analyzer's window goes on for 950 ms after it, as with "
            "--request-count, so that it reported 5.00/s."
        ),
    )


def test_a_slow_load_in_one_window_is_no_idle_end(points):
    requests = [request(200 * number, 200 * number + 10) for number in range(5)]
    (point,) = points(export((requests, [0, 1000])))
    assert (point.throughput_per_s, point.notes) == (5.0, ())


def test_the_time_between_windows_that_do_not_touch_is_left_out_and_said(points):
    requests = [request(begin + 10 * number, begin + 10 * number + 10) for begin in (0, 300, 900) for number in range(10)]
    (point,) = points(export((requests, [0, 100, 300, 400, 900, 1000])))
    assert (point.duration_s, point.throughput_per_s) == (0.3, 100.0)
    assert point.notes == ("concurrency 1: the windows do not touch, and the 700 ms between them are left out.",)


@pytest.mark.parametrize(
    ("requests", "boundaries_ms"),
    [
        # a request spans the second window, in which none ended
        ([request(0, 100), request(100, 250), *(request(250 + number, 251 + number) for number in range(40))], [0, 100, 200, 300]),
        # so few requests that an empty window says nothing
        ([request(10, 20), request(210, 220)], [0, 100, 200, 300]),
    ],
)
def test_an_empty_window_is_no_gap(points, requests, boundaries_ms):
    (point,) = points(export((requests, boundaries_ms)))
    assert (point.duration_s, point.notes) == (0.3, ())


def test_windows_without_bounds_last_from_the_first_request_to_the_last_response(points):
    document = export(([request(100, 200), request(200, 300)], []))
    document["experiments"][0]["window_boundaries"] = [0, 2**64 - 1]
    document["experiments"][0]["experiment"] = {"mode": "request_rate", "value": 0.0}
    (point,) = points(document)
    assert (point.duration_s, point.throughput_per_s) == (0.2, 10.0)
    assert point.load.title == "a schedule or sessions"


def test_requests_without_a_response_are_left_out_and_said(points):
    (point,) = points(export(([request(0, 10), request(10), request(20, 30)], [0, 15, 30])))
    assert point.requests == 2
    assert point.notes == ("1 requests of concurrency 1 have no response, and are left out.",)


@pytest.mark.parametrize("characters", [1, 7, 1 << 20])
def test_a_file_is_read_alike_in_pieces_of_any_size(points, monkeypatch, characters):
    document = export(([request(0, 10), request(10, 21)], [0, 15, 30]), ([request(40, 50, 60)], [40, 50, 60]))
    whole = points(document)
    monkeypatch.setattr(perf_analyzer_export, "_CHUNK_CHARACTERS", characters)
    assert [(one.load, one.mean_ns, one.requests) for one in points(document, indent=1)] == [
        (one.load, one.mean_ns, one.requests) for one in whole
    ]
    assert [one.load.value for one in whole] == [1, 2]


def test_text_that_is_not_utf_8_as_perf_analyzer_writes_it_is_read(tmp_path):
    text = json.dumps(export(([request(0, 10)], [0, 10]))).replace('{"IN": 1}', '{"IN": "a§"}')
    (tmp_path / "e.json").write_bytes(text.encode("latin-1"))
    assert read(tmp_path / "e.json").points[0].requests == 1


def damaged(path, value):
    document = export(([request(0, 10)], [0, 10]))
    place = document["experiments"][0]
    *parents, last = path
    for parent in parents:
        place = place[parent]
    place[last] = value
    return json.dumps(document)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('{"experiments": [', "this is no whole profile export of perf_analyzer: "),
        (json.dumps(export(([request(0, 10)], [0, 10])))[:-80], "this is no whole profile export of perf_analyzer: it ends early"),
        ('{"experiments": []}', "this profile export has no experiment"),
        ('{"experiments": [{}]}', "experiments.0.experiment: expected mode and value"),
        (json.dumps(export(([], [0, 10]))), "concurrency 1: this profile export has no answered request of this load"),
        (damaged(["experiment", "mode"], "users"), "experiments.0.experiment: expected mode concurrency or request_rate"),
        (damaged(["experiment", "value"], True), "experiments.0.experiment: expected mode concurrency or request_rate"),
        (damaged(["requests", 0, "timestamp"], 1.5), "experiments.0.requests.0.timestamp: expected nanoseconds since 1970, found [1.5]"),
        (damaged(["requests", 0, "timestamp"], 2**63), "experiments.0.requests.0.timestamp: expected nanoseconds since 1970"),
        (damaged(["requests", 0, "response_timestamps"], [1]), "expected instants in their order, after the request's timestamp"),
        (damaged(["requests", 0, "response_timestamps"], [T0 + 7200 * S]), "experiments.0.requests.0: it lasts longer than an hour"),
        (json.dumps(export(([request(0, 0)] * 2, [0, 0]))), "concurrency 1: 2e+09 requests per second are more than could be measured"),
        (damaged(["requests", 0], 3), "experiments.0.requests.0: expected an object"),
        (damaged(["window_boundaries"], [2, 1]), "experiments.0.window_boundaries: expected instants in their order"),
        ('{"experiments"' + "[" * 100_000, "expected ':', found '['"),
        ('{"experiments": [{"x": ' + "[" * 100_000, "it ends early, or has a value that is no JSON"),
    ],
)  # fmt: skip
def test_a_damaged_export_is_refused(tmp_path, text, problem):
    (tmp_path / "e.json").write_text(text)
    with pytest.raises(ResultError) as raised:
        read(tmp_path / "e.json")
    assert str(raised.value).startswith(f"{tmp_path / 'e.json'}: ")
    assert problem in str(raised.value)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("Concurrency,p50 latency\n1,2\n", "expected the columns Concurrency or Request Rate, and Inferences/Second"),
        ("Concurrency,Inferences/Second\n", "line 2: expected 2 values"),
        ("Concurrency,Inferences/Second\n1\n", "line 2: expected 2 values"),
        ("Concurrency,Inferences/Second\n1,nan\n", "line 2: Inferences/Second: expected a number that could be measured, found 'nan'"),
        ("Concurrency,Inferences/Second\n-1,2\n", "line 2: Concurrency: expected a number that could be measured, found '-1'"),
        ("Request Rate,Inferences/Second,p50 latency\n1,2,4e9\n", "line 2: p50 latency: expected a number that could be measured"),
    ],
)
def test_a_damaged_report_is_refused(tmp_path, text, problem):
    (tmp_path / "r.csv").write_text(text)
    with pytest.raises(ResultError) as raised:
        read(tmp_path / "r.csv")
    assert str(raised.value).startswith(f"{tmp_path / 'r.csv'}: ")
    assert problem in str(raised.value)


def test_a_report_that_a_spreadsheet_saved_with_a_byte_order_mark_is_read(tmp_path):
    (tmp_path / "r.csv").write_text("Concurrency,Inferences/Second,p50 latency\n4,500,1500\n", encoding="utf-8-sig")
    (point,) = read(tmp_path / "r.csv").points
    assert (point.inferences_per_s, point.percentiles_ns["p50"].value) == (500.0, 1_500_000)


def test_other_readers_of_results_say_what_the_file_is(tmp_path):
    with pytest.raises(ResultError, match=r"rate.json: this is a profile export of perf_analyzer, which only `perfkit compare` and"):
        read_result(REAL / "rate.json")
    (tmp_path / "notes.txt").write_text("Throughput: 12")
    with pytest.raises(ResultError, match=r"notes.txt: cannot be read: expected a result of perfkit, or a profile export or CSV report of"):
        read_result(tmp_path / "notes.txt")


@pytest.mark.parametrize(
    ("kind", "version", "program"),
    [
        ("profile export", "2.60.0", "perf_analyzer 2.60.0"),
        ("profile export", "2.60.0 (perfkit 0.1.0)", "perfkit 0.1.0"),
        ("profile export", "", "perf_analyzer"),
        ("CSV report", "", "perf_analyzer or perfkit perf-analyzer"),
    ],
)
def test_a_file_names_the_program_that_wrote_it(kind, version, program):
    assert PerfAnalyzerResult(pathlib.Path("file"), kind, (), version).program == program
