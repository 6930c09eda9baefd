"""Results as `perfkit run` stores them, made by hand: every fact that a fingerprint knows, and figures to choose."""

import copy
import json
from typing import Any

from perfkit.result.interval_log import interval_lines
from perfkit.result.model import METRIC_DEFINITIONS, Result
from perfkit.stats.buckets import BucketCounts

NS_PER_MS = 1_000_000
SHA = "0123456789abcdef" * 4
SCENARIO = {
    "schema": "perfkit.scenario/1",
    "name": "smoke",
    "target": {"url": "http://127.0.0.1:8000", "model": "m", "version": "1", "engine": "wire", "timeout": "30s", "headers": {}},
    "server": {"device": "auto"},
    "workload": {"seed": 0, "batch_size": 1, "inputs": {}, "variants": 16},
    "load": {"closed": {"concurrency": [4], "think_time": "0s"}},
    "measure": {"warmup": "1s", "duration": "10s", "repetitions": 3},
}
ENVIRONMENT = {
    "generator": {
        "perfkit": "1.4.2", "python": "3.11.7", "kernel": "6.1.0", "machine": "x86_64", "cpu_model": "A CPU", "cpus": 8, "usable_cpus": [0, 1, 2, 3],
        "memory_bytes": 2**34, "cpu_quota": 4.0, "numa_nodes": 1, "host_id": "host-a", "calibration": None,
    },
    "source": {"commit": "c0ffee" * 6, "branch": "main", "dirty": False},
    "metric_definitions": METRIC_DEFINITIONS,
    "target": {
        "name": "server", "version": "2.0", "build": "", "url": "http://127.0.0.1:8000", "engine": "wire",
        "protocols": {"http": {"path": "loopback", "tls": False, "payload_sha256": SHA, "model_config_sha256": SHA}},
        "bundled_server": {"event": "ready", "http_port": 4000, "pid": 17, "device": "cpu", "threads": 3, "cpus": [0]},
    },
    "gpus": [{"name": "GPU", "mig_mode": "disabled", "power_limit_w": 350, "driver": "550.1", "cuda": "12.4", "clock_mhz": 1400}],
}  # fmt: skip


def distribution(p50_ms: float, p99_ms: float, count: int = 5000) -> dict[str, Any]:
    p50, p99 = round(p50_ms * NS_PER_MS), round(p99_ms * NS_PER_MS)
    middle = (p50 + p99) // 2
    return {
        "count": count, "min": p50 // 2, "mean": float(p50), "stddev": 1e5, "p50": p50, "p90": middle, "p95": middle, "p99": p99,
        "p99_9": None, "p99_99": None, "max": 2 * p99,
    }  # fmt: skip


def point(p50_ms: float = 2.0, p99_ms: float = 6.0, throughput_per_s: float = 500.0, **changes: Any) -> dict[str, Any]:
    """A closed loop's point, of a sound run; the intervals are 2 % each way."""
    times = distribution(p50_ms, p99_ms)
    sound = {"scheduled": 5000, "dropped": 0, "sent": 5000, "ok": 5000}
    failed = dict.fromkeys(("rejected", "timed_out", "connect_failed", "broken", "invalid_output", "unfinished"), 0)
    return {
        "protocol": "http", "load": {"kind": "closed", "concurrency": 4}, "repetition": None, "valid": True, "warnings": [], "duration_s": 10.0,
        "requests": {**sound, **failed}, "error_rate": 0.0, "throughput_per_s": throughput_per_s, "inferences_per_s": throughput_per_s,
        "service_time_ns": times, "failure_time_ns": None,
        "intervals": {name: [times[name] * 0.98, times[name] * 1.02] for name in ("p50", "p90", "p95", "p99")},
        "connections": {"opened": 4, "reconnects": 0}, "generator": {"cpu_share": 0.2, "steal_share": 0.0}, **changes,
    }  # fmt: skip


def document(
    *,
    started_at: str = "2026-01-02T03:04:05.000+00:00",
    host: str = "host-a",
    commit: str = "c0ffee" * 6,
    points: Any = None,
    **figures: Any,
) -> dict[str, Any]:
    """`result.json` with one load point, or those given, each measured three times with the same figures."""
    measured = [point(**figures)] if points is None else points
    environment = copy.deepcopy(ENVIRONMENT)
    environment["generator"]["host_id"] = host  # type: ignore[index]
    environment["source"]["commit"] = commit  # type: ignore[index]
    points = [{**one, "repetition": number} for number in range(3) for one in measured]
    summary = [_pooled(one, 3) for one in measured]
    return {
        "schema": "perfkit.result/1", "scenario": copy.deepcopy(SCENARIO), "environment": environment, "status": "complete",
        "started_at": started_at, "points": points, "summary": summary,
    }  # fmt: skip


def _pooled(one: dict[str, Any], repetitions: int) -> dict[str, Any]:
    """The load point of some equal repetitions: their counts are added."""
    times = {
        name: {**one[name], "count": repetitions * one[name]["count"]}
        for name in ("service_time_ns", "response_time_ns", "start_delay_ns", "failure_time_ns")
        if one.get(name)
    }
    requests = {name: repetitions * count for name, count in one["requests"].items()}
    return {**one, **times, "requests": requests, "duration_s": repetitions * one["duration_s"]}


def result(**options: Any) -> Result:
    return Result.model_validate(document(**options))


def changed(original: dict[str, Any], path: str, value: Any) -> dict[str, Any]:
    """A copy with one place, given by dots, set; `...` takes the place away."""
    copied = copy.deepcopy(original)
    *parents, last = path.split(".")
    place = copied
    for parent in parents:
        place = place[int(parent)] if isinstance(place, list) else place[parent]
    if value is ...:
        del place[last]
    else:
        place[int(last) if isinstance(place, list) else last] = value
    return copied


def write_log(folder: Any, written: dict[str, Any]) -> None:
    """Adds the log to a folder: every request took as long as the median."""
    lines = ["#[made by hand]\n"]
    for index, pooled in enumerate(written["summary"]):
        for one in written["points"]:
            if (one["protocol"], one["load"]) == (pooled["protocol"], pooled["load"]):
                times = one.get("response_time_ns") or one["service_time_ns"]
                counts = BucketCounts.of([times["p50"]] * times["count"])
                named = {"service_time": counts} | ({"response_time": counts} if one.get("response_time_ns") else {})
                lines.append(interval_lines(f"p{index}.r{one['repetition']}", 0.0, named))
    (folder / "latency.hlog").write_text("".join(lines))


def write(folder: Any, written: dict[str, Any]) -> Any:
    """A folder with the result alone."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "result.json").write_text(json.dumps(written), encoding="utf-8")
    return folder
