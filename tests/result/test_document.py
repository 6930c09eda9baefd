"""`result.json`: its keys are promises."""

import json

import jsonschema
import pytest

from perfkit.errors import ResultError
from perfkit.result.file import read_result
from perfkit.result.model import Result, result_document

PERCENTILES = ["p50", "p90", "p95", "p99", "p99_9", "p99_99"]
KEYS = {
    (): {"schema", "scenario", "overrides", "environment", "status", "status_reason", "warnings", "started_at", "resumptions", "points", "summary"},
    ("resumptions", 0): {"at", "after_points", "paused_s", "changes"},
    ("points", 0): {
        "protocol", "load", "repetition", "valid", "warnings", "duration_s", "requests", "error_rate", "throughput_per_s", "inferences_per_s",
        "goodput_per_s", "warmup_s", "rejected_by_status", "workload", "alone", "checked", "wrong_answer_rate", "wrong_answer_interval", "effective_samples", "service_time_ns", "response_time_ns", "start_delay_ns", "failure_time_ns", "intervals", "mean_interval_ns", "throughput_interval_per_s", "slo", "connections", "replicas", "machines", "generator",
        "server", "server_cpu", "gpus", "energy_per_inference_j", "energy_above_idle_per_inference_j", "metrics", "throughput_series_per_s", "failed_series_per_s", "incidents", "failures",
        "first_response_time_ns", "response_gap_ns", "stream_time_ns", "sequence_time_ns", "further_intervals", "responses", "sequences",
        "first_token_time_ns", "event_gap_ns", "time_per_output_token_ns", "tokens", "output_tokens_per_s", "input_tokens_per_s",
        "after_gap_time_ns", "following_time_ns", "cold_start", "idle", "surge", "scan", "breakdown", "abandonment", "retries",
    },
    ("points", 0, "breakdown"): {
        "sampled", "without_spans", "failed", "clock_bound_ns", "clock_problem", "unknown", "mean", "p50", "p95", "p99", "contrast", "slowest",
    },
    ("points", 0, "breakdown", "p99"): {"requests", "total_ns", "parts_ns", "intervals_ns"},
    ("points", 0, "breakdown", "slowest", 0): {"trace_id", "total_ns", "parts_ns", "at_s", "repetition", "variant"},
    ("points", 0, "load"): {"kind", "concurrency"},
    ("points", 0, "warnings", 0): {"code", "message"},
    ("points", 0, "incidents", 0): {"kind", "repetition", "start_s", "length_s", "failed"},
    ("points", 0, "requests"): {
        "scheduled", "dropped", "sent", "ok", "rejected", "timed_out", "connect_failed", "broken", "invalid_output", "unfinished", "abandoned", "answered_early",
    },
    ("points", 0, "service_time_ns"): {"count", "min", "mean", "stddev", *PERCENTILES, "max"},
    ("points", 0, "failure_time_ns"): {"count", "min", "mean", "stddev", *PERCENTILES, "max"},
    ("points", 0, "connections"): {"opened", "reconnects", "retried", "rotated", "connect_time_ns"},
    ("points", 0, "generator"): {
        "workers", "cpu_share", "event_loop_lag_ns", "pacing_delay_ns", "steal_share", "throttled_share", "worker_cpu_shares", "machine_cpu_share", "gc_pauses",
        "context_switches", "tcp", "sockets_max", "open_files_max", "open_files_limit", "stops", "suspended_ns", "transport_ns", "others",
    },
    ("points", 0, "generator", "stops"): {"count", "total_ns", "max_ns", "touched_requests"},
    ("points", 0, "generator", "gc_pauses"): {"count", "total_ns", "max_ns"},
    ("points", 0, "generator", "context_switches"): {"voluntary", "involuntary"},
    ("points", 0, "generator", "others"): {"cpus", "busiest", "may_include_target"},
    ("points", 0, "generator", "others", "busiest", 0): {"name", "pid", "cpus"},
    ("points", 0, "generator", "tcp"): {"segments_sent", "retransmits"},
    ("points", 0, "server"): {
        "requests", "failed", "success_ns", "queue_ns", "compute_input_ns", "compute_infer_ns", "compute_output_ns", "executions", "mean_batch",
        "inferences", "cache_hits", "cache_misses", "cache_hit_ns", "cache_miss_ns", "client_requests", "client_mean_ns", "versions", "composing_models",
        "source", "times",
    },
    ("points", 0, "server", "times", 0): {"stage", "metric", "count", "mean_ns", "percentiles_ns", "buckets"},
    ("points", 0, "server_cpu"): {"cpus", "time_per_request_ns", "instructions_per_request"},
    ("points", 0, "metrics", 0): {"name", "labels", "kind", "rise", "per_s", "mean", "min", "max"},
}  # fmt: skip


@pytest.fixture
def read(tmp_path):
    """Writes a text, or a document, as a folder's `result.json` and reads it."""

    def write_and_read(content):
        (tmp_path / "result.json").write_text(content if isinstance(content, str) else json.dumps(content))
        return read_result(tmp_path)

    return write_and_read


@pytest.mark.parametrize(("path", "keys"), KEYS.items(), ids=lambda value: ".".join(map(str, value)) if isinstance(value, tuple) else "")
def test_the_keys_are_the_promised_ones(result, path, keys):
    found = result_document(result)
    for part in path:
        found = found[part]
    assert set(found) == keys


def test_the_document_is_the_result_and_fits_the_json_schema(result, document):
    found = json.loads(json.dumps(result_document(result)))
    assert found == document
    assert set(found["summary"][0]) == KEYS["points", 0]
    assert Result.model_validate(found) == result
    schema = Result.model_json_schema(by_alias=True, mode="serialization")
    jsonschema.validate(found, schema)
    document["points"][0]["service_time_ns"].pop("p99")
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.Draft202012Validator(schema).validate(document)


def test_a_result_is_read_from_its_folder_and_from_its_file(read, document, result, tmp_path):
    document["points"][0]["later"] = document["later"] = {"a": 1}  # keys of a later version are ignored
    assert read(document) == (result, tmp_path)
    assert read_result(tmp_path / "result.json") == (result, tmp_path)
    for status in ("complete", "interrupted", "incomplete", "invalid"):
        assert read({**document, "status": status})[0].status == status


def test_a_missing_result_is_reported(tmp_path):
    for path, missing in ((tmp_path, "there is no result.json"), (tmp_path / "none", "no such file or folder")):
        with pytest.raises(ResultError) as caught:
            read_result(path)
        assert str(caught.value) == f"{path}: {missing}; give a folder that `perfkit run` wrote"


def test_the_folder_of_a_gate_or_a_sweep_is_told_of_a_result_within_it(tmp_path):
    for within in ("runs/000-baseline-0", "case-0"):
        (tmp_path / within).mkdir(parents=True)
        (tmp_path / within / "result.json").write_text("{}")
        with pytest.raises(ResultError, match=f"a folder that `perfkit run` wrote, such as {tmp_path / within}$"):
            read_result(tmp_path)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('{"schema": ', "cannot be read: Expecting value: line 1 column 12 (char 11)"),
        ("", "cannot be read: Expecting value: line 1 column 1 (char 0)"),
        ("[]", "this perfkit reads perfkit.result/1, found None: a newer perfkit may read it"),
        ('{"points": []}', "this perfkit reads perfkit.result/1, found None: a newer perfkit may read it"),
        ('{"schema": "perfkit.result/2"}', "this perfkit reads perfkit.result/1, found 'perfkit.result/2': a newer perfkit may read it"),
        ('{"schema": "perfkit.result/1"}', "scenario: Field required"),
    ],
)  # fmt: skip
def test_other_documents_are_refused(read, tmp_path, content, message):
    with pytest.raises(ResultError) as caught:
        read(content)
    assert str(caught.value) == f"{tmp_path}/result.json: {message}"


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("valid", "perhaps", "points.0.valid: Input should be a valid boolean, unable to interpret input"),
        ("protocol", "tcp", "points.0.protocol: Input should be 'http', 'grpc' or 'mixed'"),
        ("service_time_ns", None, "points.0.service_time_ns: Input should be a valid dictionary or instance of Distribution"),
    ],
)
def test_a_damaged_field_is_named(read, document, tmp_path, key, value, message):
    document["points"][0][key] = value
    with pytest.raises(ResultError) as caught:
        read(document)
    assert str(caught.value) == f"{tmp_path}/result.json: {message}"


@pytest.mark.parametrize(("content", "reason"), [(b"\xff", "'utf-8' codec"), (b"[" * 100_000, "it is nested more than 100 levels deep")])
def test_bytes_that_are_not_utf8_or_nested_too_deeply_cannot_be_read(tmp_path, content, reason):
    (tmp_path / "result.json").write_bytes(content)
    with pytest.raises(ResultError, match=rf"result\.json: cannot be read: {reason}"):
        read_result(tmp_path)


def test_the_load_of_an_open_loop_is_read_back_as_one(result):
    document = result_document(result)
    for point in (*document["points"], *document["summary"]):
        point["load"] = {"kind": "open", "rate_per_s": 100.0, "arrivals": "gamma", "burstiness": 2.0, "max_in_flight": None, "speed": None}
    load = Result.model_validate(document).points[0].load
    assert (load.kind, load.level, load.title) == ("open", 100.0, "100/s gamma")
