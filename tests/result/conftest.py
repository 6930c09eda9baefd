"""A result made by hand, as `result.json` holds it."""

import copy

import pytest

from perfkit.result.model import Result

DISTRIBUTION = {
    "count": 3, "min": 1_000_000, "mean": 2e6, "stddev": 8e5, "p50": 2_000_000, "p90": None, "p95": None, "p99": None, "p99_9": None, "p99_99": None, "max": 3_000_000,
}  # fmt: skip
POINT = {
    "protocol": "grpc",
    "load": {"kind": "closed", "concurrency": 2},
    "repetition": 0,
    "valid": True,
    "warnings": [{"code": "few_samples", "message": "Too few."}],
    "warmup_s": 1.0,
    "duration_s": 2.0,
    "requests": {
        "scheduled": 4, "dropped": 0, "sent": 4, "ok": 3, "rejected": 1, "timed_out": 0, "connect_failed": 0, "broken": 0, "invalid_output": 0, "unfinished": 0,
    },
    "rejected_by_status": {"503": 1},
    "checked": 2,
    "error_rate": 0.25,
    "throughput_per_s": 1.5,
    "inferences_per_s": 1.5,
    "goodput_per_s": None,
    "service_time_ns": DISTRIBUTION,
    "response_time_ns": None,
    "start_delay_ns": None,
    "failure_time_ns": DISTRIBUTION,
    "intervals": {},
    "effective_samples": {},
    "slo": None,
    "connections": {"opened": 2, "reconnects": 0, "retried": 0},
    "generator": {"workers": 1, "cpu_share": 0.4, "event_loop_lag_ns": None, "steal_share": 0.0, "throttled_share": 0.0},
    "server": None,
    "gpus": [],
    "throughput_series_per_s": [1, 2],
    "errors": {"rejected": ["busy"]},
}  # fmt: skip
DOCUMENT = {
    "schema": "perfkit.result/1",
    "scenario": {"name": "x"},
    "overrides": ["workload.seed=1"],
    "environment": {"generator": {}},
    "status": "complete",
    "status_reason": "",
    "started_at": "2026-01-02T03:04:05.678+00:00",
    "points": [POINT],
    "summary": [{**POINT, "repetition": None, "throughput_series_per_s": None}],
}


@pytest.fixture
def document():
    """The document, free to be damaged."""
    return copy.deepcopy(DOCUMENT)


@pytest.fixture
def result():
    return Result.model_validate(copy.deepcopy(DOCUMENT))
