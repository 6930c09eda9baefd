"""A result made by hand, as `result.json` holds it."""

import copy
import dataclasses

import pytest

from perfkit.figures.resources import GpuFigures
from perfkit.result.model import Result

DISTRIBUTION = {
    "count": 3, "min": 1_000_000, "mean": 2e6, "stddev": 8e5, "p50": 2_000_000, "p90": None, "p95": None, "p99": None, "p99_9": None, "p99_99": None, "max": 3_000_000,
}  # fmt: skip
GENERATOR = {
    "worker_cpu_shares": [0.4, None], "machine_cpu_share": 0.5, "gc_pauses": {"count": 1, "total_ns": 2, "max_ns": 2},
    "context_switches": {"voluntary": 7, "involuntary": 1}, "tcp": {"segments_sent": 9, "retransmits": 0},
    "stops": {"count": 2, "total_ns": 30_000_000, "max_ns": 20_000_000, "touched_requests": 3}, "suspended_ns": 0, "transport_ns": 120_000, "sockets_max": 5, "open_files_max": 6, "open_files_limit": 1024,
    "others": {"cpus": 0.3, "busiest": [{"name": "make", "pid": 7, "cpus": 0.2}], "may_include_target": False},
}  # fmt: skip
SERVER = {
    "requests": 4, "failed": 0, "success_ns": 1.5e6, "queue_ns": 5e5, "compute_input_ns": 1e5, "compute_infer_ns": 8e5, "compute_output_ns": 1e5,
    "executions": 2, "mean_batch": 2.0, "inferences": 4, "cache_hits": 0, "cache_misses": 0, "cache_hit_ns": None, "cache_miss_ns": None, "client_requests": 4, "client_mean_ns": 2e6, "versions": ["1"], "composing_models": [],
    "source": "statistics",
    "times": [{"stage": "first_response", "metric": "x_ms", "count": 2, "mean_ns": 1.5e6, "percentiles_ns": {"p50": [0.0, None]}, "buckets": [[None, 2]]}],
}  # fmt: skip
PARTS = {
    "start_delay": 0, "connection_wait": 0, "request_way": 100_000, "queue": 1_300_000, "compute_input": 0, "compute_infer": 500_000,
    "compute_output": 0, "response_way": -1_000, "remainder": 101_000,
}  # fmt: skip
MEANS = {"requests": 2, "total_ns": 2_000_000, "parts_ns": PARTS, "intervals_ns": {"total": [1_900_000, 2_100_000], "queue": [-5, 7]}}
BREAKDOWN = {
    "sampled": 2, "without_spans": 1, "failed": 1, "clock_bound_ns": 40_000, "clock_problem": "", "unknown": ["compute_input"],
    "mean": MEANS, "p50": MEANS, "p95": None, "p99": MEANS, "contrast": {"p99": MEANS},
    "slowest": [{"trace_id": "ab" * 16, "total_ns": 2_000_000, "parts_ns": PARTS, "at_s": 1.5, "repetition": 0, "variant": 3}],
}  # fmt: skip
POINT = {
    "workload": None, "alone": False, "protocol": "grpc",
    "load": {"kind": "closed", "concurrency": 2},
    "repetition": 0,
    "valid": True,
    "warnings": [{"code": "few_samples", "message": "Too few."}],
    "warmup_s": 1.0,
    "duration_s": 2.0,
    "requests": {
        "scheduled": 4, "dropped": 0, "sent": 4, "ok": 3, "rejected": 1, "timed_out": 0, "connect_failed": 0, "broken": 0, "invalid_output": 0, "unfinished": 0, "abandoned": 0, "answered_early": 0,
    },
    "rejected_by_status": {"503": 1},
    "checked": 2,
    "wrong_answer_rate": 0.0,
    "wrong_answer_interval": [0.0, 0.84],
    "error_rate": 0.25,
    "throughput_per_s": 1.5,
    "inferences_per_s": 1.5,
    "goodput_per_s": None,
    "service_time_ns": DISTRIBUTION,
    "response_time_ns": None,
    "start_delay_ns": None,
    **dict.fromkeys(("first_response_time_ns", "response_gap_ns", "stream_time_ns", "sequence_time_ns", "responses", "sequences")),
    **dict.fromkeys(("first_token_time_ns", "event_gap_ns", "time_per_output_token_ns", "tokens", "output_tokens_per_s", "input_tokens_per_s")),
    **dict.fromkeys(("after_gap_time_ns", "following_time_ns", "idle", "cold_start", "surge", "scan")),
    "further_intervals": {},
    "failure_time_ns": {**DISTRIBUTION, "count": 1},
    "intervals": {},
    "mean_interval_ns": [900_000.0, 1_100_000.0],
    "throughput_interval_per_s": None,
    "effective_samples": {},
    "slo": None,
    "abandonment": None,
    "retries": None,
    "connections": {"opened": 2, "reconnects": 0, "retried": 0, "rotated": 0, "connect_time_ns": None},
    "replicas": None,
    "machines": None,
    "generator": {"workers": 1, "cpu_share": 0.4, "event_loop_lag_ns": None, "pacing_delay_ns": None, "steal_share": 0.0, "throttled_share": 0.0, **GENERATOR},
    "server": SERVER,
    "server_cpu": {"cpus": 0.9, "time_per_request_ns": 600_000.0, "instructions_per_request": None},
    "gpus": [dataclasses.asdict(GpuFigures("GPU-1", "T4", "metrics", utilization_mean=0.5)) | {"throttle_reasons": []}],
    "energy_per_inference_j": None,
    "energy_above_idle_per_inference_j": None,
    "metrics": [{"name": "nv_x", "labels": {"model": "m"}, "kind": "counter", "rise": 3.0, "per_s": 1.5, "mean": None, "min": None, "max": None}],
    "throughput_series_per_s": [1, 2],
    "failed_series_per_s": [0, 3],
    "incidents": [{"kind": "error_burst", "repetition": 0, "start_s": 1.0, "length_s": 1.0, "failed": 3}],
    "failures": [{"outcome": "rejected", "status": "503", "message": "busy", "cause": None, "count": 1}],
    "breakdown": BREAKDOWN,
}  # fmt: skip
DOCUMENT = {
    "schema": "perfkit.result/1",
    "scenario": {"name": "x"},
    "overrides": ["workload.seed=1"],
    "environment": {"generator": {}},
    "status": "complete",
    "status_reason": "",
    "warnings": [],
    "started_at": "2026-01-02T03:04:05.678+00:00",
    "resumptions": [
        {"at": "2026-01-02T05:04:05.678+00:00", "after_points": 1, "paused_s": 7000.5, "changes": ["the kernel differs: 6.1 against 6.8"]}
    ],
    "points": [POINT],
    "summary": [{**POINT, "repetition": None, "throughput_series_per_s": None, "failed_series_per_s": None}],
}


@pytest.fixture
def document():
    """The document, free to be damaged."""
    return copy.deepcopy(DOCUMENT)


@pytest.fixture
def result():
    return Result.model_validate(copy.deepcopy(DOCUMENT))
