"""Stored figures are checked before they are believed; each refusal names the file and the key."""

import copy
import datetime
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfkit.cli.main import main
from perfkit.errors import ResultError
from perfkit.result.checks import problems, timestamp_problems
from perfkit.result.distribution import distribution
from perfkit.result.file import read_result
from perfkit.result.interval_log import check_log
from perfkit.result.model import Result
from perfkit.spans.split import PARTS
from perfkit.stats.buckets import BucketCounts
from tests.queue_results import Writer
from tests.stored_results import changed, document, point, write, write_log

SEARCH = {
    "slo": {"p99": "10ms"}, "capacity_per_s": 500.0, "low_per_s": 480.0, "high_per_s": 520.0, "confidence": 0.9, "precision": 0.05,
    "stopped_because": "precision", "reason": "Found.", "curve": None,
    "probes": [{"rate_per_s": 480.0, "stage": "bracket", "limits": {"p99": {"beyond": 5, "count": 1000, "allowed_share": 0.01, "dispersion": 2.0}}, "met": True, "overloaded": False, "valid": True, "took_s": 1.0}],
}  # fmt: skip
SERVER = {
    "requests": 4, "failed": 0, "success_ns": 1.5e6, "queue_ns": 5e5, "compute_input_ns": 1e5, "compute_infer_ns": 8e5, "compute_output_ns": 1e5,
    "executions": 2, "mean_batch": 2.0,
}  # fmt: skip


def complete_document():
    made = {**document(), "search": copy.deepcopy(SEARCH)}
    for one in (*made["points"], *made["summary"]):
        one["server"] = dict(SERVER)
    return made


def refusal(tmp_path, made):
    with pytest.raises(ResultError) as caught:
        read_result(write(tmp_path / "r", made))
    assert str(caught.value).startswith(f"{tmp_path}/r/result.json: ")
    return str(caught.value).removeprefix(f"{tmp_path}/r/result.json: ")


RETRIES = {"attempts": 5010, "retries": 10, "amplification": 1.002, "by_cause": {"503": 10}}


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        ("summary.0.throughput_per_s", 1e9, "summary.0.throughput_per_s: 1e+09/s would be 3e+10 answers in 30 s, but there were 16,513 requests"),
        ("points.1.throughput_per_s", 1e9, "points.1.throughput_per_s: 1e+09/s would be"),
        ("points.0.throughput_per_s", -1.0, "points.0.throughput_per_s: -1.0 is below zero"),
        ("points.0.throughput_per_s", 450.0, "summary.0.throughput_per_s: 500 does not fit the repetitions"),
        ("points.0.service_time_ns.p50", 7_000_000, "points.0.service_time_ns.p90: 4000000 is below p50, 7000000"),
        ("points.0.service_time_ns.p99", 13_000_000, "points.0.service_time_ns.max: 12000000 is below a percentile"),
        ("points.0.service_time_ns.max", 10**16, "points.0.service_time_ns.max: 10000000000000000 is"),
        ("points.0.service_time_ns.min", 3_000_000, "points.0.service_time_ns.min: 3000000 is above another figure"),
        ("points.0.service_time_ns.mean", 1.0, "points.0.service_time_ns.mean: 1 is not between"),
        ("points.0.service_time_ns.count", 4000, "points.0.service_time_ns.count: 4000 is not the number of requests with such a time, 5000"),
        ("points.0.requests.ok", 4999, "points.0.requests.sent: 5000 is not the sum of the outcomes, 4999"),
        ("points.0.requests.dropped", 5, "points.0.requests.scheduled: 5000 is not the sum of dropped and sent"),
        ("points.0.error_rate", 0.5, "points.0.error_rate: 0.5 is not that of the counts, 0"),
        ("points.0.duration_s", 1e12, "points.0.duration_s: 1000000000000.0 is more than could be measured"),
        ("points.0.intervals", {"p50": [5e6, 4e6]}, "points.0.intervals.p50: 5000000.0 to 4000000.0 is no interval"),
        ("points.0.goodput_per_s", 600.0, "points.0.goodput_per_s: 600/s is above the throughput"),
        ("points.0.throughput_series_per_s", [1] * 10, "points.0.throughput_per_s: 500/s over 10 s is not the sum of throughput_series_per_s, 10"),
        ("points.0.failed_series_per_s", [0] * 13, "points.0.failed_series_per_s: 13 seconds are more than the window of 10 s"),
        (
            "points.0.retries", {**RETRIES, "attempts": 5011},
            "points.0.retries.attempts: 5011 is not the sum of the requests sent and the retries, 5000 + 10",
        ),
        ("points.0.retries", {**RETRIES, "by_cause": {"503": 9}}, "points.0.retries.by_cause: its sum, 9, is not the number of retries, 10"),
        ("points.0.retries", {**RETRIES, "amplification": 2.0}, "points.0.retries.amplification: 2 is not attempts ÷ requests sent"),
        (
            "points.0.retries", {**RETRIES, "attempts_series_per_s": [1] * 13, "retries_series_per_s": [0] * 13},
            "points.0.retries.attempts_series_per_s: 13 seconds are more than the window of 10 s",
        ),
        (
            "points.0.retries", {**RETRIES, "attempts_series_per_s": [1], "retries_series_per_s": [2]},
            "points.0.retries.retries_series_per_s: in some second there are more retries than attempts",
        ),
        (
            "points.0.incidents", [{"kind": "stall", "repetition": 0, "start_s": 9.0, "length_s": 4.0}],
            "points.0.incidents.0: its end at 13 s is after that of the window of 10 s",
        ),
        ("points.0.server.queue_ns", -1.0, "points.0.server.queue_ns: -1.0 is below zero"),
        ("points.0.generator.cpu_share", -0.1, "points.0.generator.cpu_share: -0.1 is below zero"),
        ("points.0.load.concurrency", 0, "points.0.load.concurrency: 0 is no load"),
        ("points.0.surge", {"verdict": "degrades", "reason": "", "repetitions": [], "figures": {}, "slot_s": 0.1, "scheduled_per_s": [], "good_per_s": []},
         "points.0.surge: the load has no surge"),
        ("summary.0.requests.scheduled", 15_001, "summary.0.requests.scheduled: 15001 is not the sum of dropped and sent"),
        ("summary.0.duration_s", 29.0, "summary.0.duration_s: 29 does not fit the repetitions"),
        ("points", [], "points: there is no load point, so nothing was measured"),
        ("started_at", "9999-99-99", "started_at: expected an instant in UTC such as 2026-01-31T12:00:00.000+00:00, found '9999-99-99'"),
        (
            "resumptions", [{"at": "2026-01-31T12:00:00.000+00:00", "after_points": 0, "paused_s": 1.0}],
            "resumptions.0: after 0 load points and 1 s, no run was resumed",
        ),
        ("scenario.target", ["m"], "scenario.target: expected a mapping, found list"),
        ("scenario.workload.batch_size", "x", "scenario.workload.batch_size: expected a whole number"),
        ("environment.gpus", {"a": 1}, "environment.gpus: expected a list of mappings"),
        ("search.capacity_per_s", 700.0, "search.high_per_s: 520 is below capacity_per_s, 700"),
        ("search.probes.0.limits.p99.beyond", 1001, "search.probes.0.limits.p99: 1001 of 1000"),
        (
            "search.added_time",
            [{"after_probes": 9, "budget_s": 60.0}],
            "search.added_time.0: 60 s after 9 of 1 probes were not added",
        ),
        ("search.slo", {"x": "1"}, "search.slo: expected limits on percentiles or error_rate, found x"),
    ],
)  # fmt: skip
def test_a_figure_that_no_run_could_have_written_is_refused(tmp_path, path, value, message):
    assert refusal(tmp_path, changed(complete_document(), path, value)).startswith(message)


PARTS_NS = dict.fromkeys(PARTS, 0) | {"queue": 3_000_000, "response_way": -20_000, "remainder": 20_000}
MEANS = {"requests": 10, "total_ns": 3_000_000, "parts_ns": PARTS_NS, "intervals_ns": {"queue": [-5, 5]}}
SLOW = {"trace_id": "0" * 32, "total_ns": 3_000_000, "parts_ns": PARTS_NS, "at_s": 1.0, "repetition": 0, "variant": 0}
BREAKDOWN = {
    "sampled": 90, "without_spans": 10, "failed": 0, "clock_bound_ns": 500, "clock_problem": "", "unknown": [], "mean": None, "p50": MEANS, "p95": None,
    "p99": None, "contrast": {}, "slowest": [SLOW, SLOW],
}  # fmt: skip


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ({}, []),
        ({"sampled": 4_999}, ["sampled"]),
        ({"failed": -1}, ["failed"]),
        ({"unknown": ["lunch"]}, ["unknown"]),
        ({"p99": {**MEANS, "total_ns": 1}}, ["p99.total_ns"]),
        ({"p99": {**MEANS, "requests": 91}}, ["p99.requests"]),
        ({"p99": {**MEANS, "parts_ns": {"queue": 3_000_000}}}, ["p99.parts_ns"]),
        ({"contrast": {"p99": {**MEANS, "intervals_ns": {"total": [2, 1]}}}}, ["contrast.p99.intervals_ns.total"]),
        ({"slowest": [{**SLOW, "total_ns": 2_000_000, "parts_ns": PARTS_NS | {"queue": 2_000_000}}, SLOW]}, ["slowest.0.total_ns"]),
        ({"slowest": [SLOW, {**SLOW, "at_s": -1.0}]}, ["slowest.1"]),
        ({"slowest": [{**SLOW, "at_s": 1e300}]}, ["slowest.0"]),
        ({"slowest": [{**SLOW, "total_ns": 10**14, "parts_ns": PARTS_NS | {"queue": 10**14}}]}, ["slowest.0.parts_ns.queue"]),
    ],
)
def test_the_parts_of_traced_requests_add_up(changed, expected):
    stored = complete_document()
    stored["points"][0]["breakdown"] = BREAKDOWN | changed
    assert [key for key, _ in problems(Result.model_validate(stored))] == [f"points.0.breakdown.{key}" for key in expected]


@pytest.mark.parametrize("literal", ["NaN", "Infinity", "-Infinity", "1e400", "1" + "0" * 400, "1" + "0" * 5000])
def test_a_number_that_is_not_finite_is_refused_with_its_key(tmp_path, capsys, literal):
    folder = write(tmp_path / "r", complete_document())
    text = (folder / "result.json").read_text()
    (folder / "result.json").write_text(text.replace('"throughput_per_s": 500.0', f'"throughput_per_s": {literal}', 1))
    assert main(["compare", str(folder), str(folder)]) == 2
    said = capsys.readouterr().err
    assert f"{folder}/result.json: points.0.throughput_per_s: " in said
    assert "is not a finite number" in said


def test_a_result_has_the_time_of_each_sequence_that_ended():
    stored = complete_document()
    for one in (*stored["points"], *stored["summary"]):
        one |= {
            "sequence_time_ns": one["service_time_ns"],
            "sequences": {"started": 1, "ended": one["service_time_ns"]["count"], "failed": 0},
        }
    assert list(problems(Result.model_validate(stored))) == []
    stored["points"][0]["sequences"]["ended"] -= 1
    assert [key for key, _ in problems(Result.model_validate(stored))] == ["points.0.sequence_time_ns.count"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"schema": "perfkit.result/1", "a": {"b": 1, "b": 2}}', "b: this key occurs twice in one object"),
        ('{"a":' * 200 + "1" + "}" * 200, "cannot be read: it is nested more than 100 levels deep"),
        ("[" * 99_999, "cannot be read: it is nested more than 100 levels deep"),
        ("[" + "1," * 8_000_001, "cannot be read: it has about 8,000,002 values"),
        ("", "cannot be read: Expecting value"),
    ],
)
def test_a_document_that_is_too_deep_too_large_or_ambiguous_is_refused(tmp_path, text, message):
    (tmp_path / "result.json").write_text(text)
    with pytest.raises(ResultError) as caught:
        read_result(tmp_path)
    assert str(caught.value).startswith(f"{tmp_path}/result.json: {message}")


def test_a_file_larger_than_256_mib_or_not_regular_is_refused_without_being_read(tmp_path):
    file = tmp_path / "result.json"
    with file.open("wb") as stream:
        stream.truncate(256 * 2**20 + 1)  # a sparse file
    with pytest.raises(ResultError, match="larger than 256 MiB"):
        read_result(file)
    file.unlink()
    file.symlink_to("/dev/zero")
    with pytest.raises(ResultError, match="this is no regular file"):
        read_result(file)


def test_a_result_of_a_simulated_queue_has_no_problems(tmp_path):
    folder = Writer(tmp_path)((20, 50, 110), seconds=10, repetitions=2, overloaded_from=100)
    result, _ = read_result(folder)
    assert list(problems(result)) == []
    check_log(folder, result)
    assert list(problems(Result.model_validate(complete_document()))) == []


@pytest.mark.parametrize(
    "damage",
    [lambda text: text[:0], lambda text: text.partition("\n")[0], lambda text: text + text, lambda text: text.rpartition("Tag=")[0]],
)
def test_a_log_without_the_times_of_the_result_is_refused_by_every_command_that_needs_it(tmp_path, capsys, damage):
    folder = write(tmp_path / "r", document())
    write_log(folder, document())
    log = folder / "latency.hlog"
    log.write_text(damage(log.read_text()))
    for command in (["baseline", str(folder), "--out", str(tmp_path / "b.json")], ["report", str(folder)]):
        assert main(command) == 2
        assert f"{log}: http, concurrency 4, repetition " in capsys.readouterr().err
    assert not (tmp_path / "b.json").exists()


def test_arrivals_of_a_burst_before_the_window_may_be_answered_in_it():
    load = {"kind": "open", "rate_per_s": 100.0, "arrivals": "trace"}
    made = document(points=[point(throughput_per_s=6000.0, load=load, warmup_s=1.0)])
    assert list(problems(Result.model_validate(made))) == []


def test_times_that_are_all_zero_are_no_fault():
    zeros = distribution(BucketCounts.of([0] * 3)).document()
    generator = {"cpu_share": 0.2, "steal_share": 0.0, "event_loop_lag_ns": zeros}
    assert list(problems(Result.model_validate(document(points=[point(generator=generator)])))) == []


def test_halves_of_surrogate_pairs_are_replaced_since_no_file_could_hold_them(tmp_path):
    folder = write(tmp_path / "r", changed(document(), "scenario.name", "\udc80"))
    assert read_result(folder)[0].scenario["name"] == "\N{REPLACEMENT CHARACTER}"
    assert json.loads((folder / "result.json").read_text())["scenario"]["name"] == "\udc80"


@given(st.integers(-(2**63), 2**63 - 1))
def test_every_instant_of_a_clock_of_64_bits_is_one_of_a_result(instant_ns):
    instant = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC) + datetime.timedelta(microseconds=instant_ns // 1000)
    assert list(timestamp_problems("started_at", instant.isoformat(timespec="milliseconds"))) == []
