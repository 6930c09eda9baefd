"""The files that the fuzzer of stored results damages: a folder with one of each kind."""

import hashlib
import json
import pathlib
from typing import Any

from perfkit.gate.baseline import baseline_from_result, merge_baselines, write_baseline
from perfkit.gate.folder import FixedSettings, GateFolder, GateInputs, GateManifest
from perfkit.gate.verdict import Comparison, Verdict
from perfkit.history.file import open_history
from perfkit.history.series import record_of_result
from perfkit.result.model import Result
from perfkit.result.sweep import SweepFolder
from perfkit.result.telemetry_file import convert_to_parquet
from tests.queue_results import Writer, mm1_times_s
from tests.simulated_pairs import make_pairs
from tests.stored_results import SCENARIO, changed, document, write, write_log

MANIFEST = GateManifest(
    inputs=GateInputs(scenario={"name": "x"}, baseline="http://a", candidate="http://b", control_pairs=0, perfkit="1"),
    seed=7,
    started_at="2026-01-02T03:04:05.678+00:00",
)
"""The manifest of the unfinished gate."""
_TELEMETRY = """point,repetition,protocol,load,name,labels,unit,time_s,window_s,value
"""


def make_files(folder: pathlib.Path) -> None:
    """Fills a folder with results, a sweep, a baseline, a verdict, a history, peaks and files of perf_analyzer, all of them sound."""
    made = [_run(factor, day) for day, factor in enumerate((1.0, 1.004, 0.996, 1.002, 0.998), 1)]
    for day, one in enumerate(made, 1):
        finish(folder / f"run{day}", one)
    finish(folder / "new", _run(1.01, 20))
    _add_telemetry(folder / "new")
    finish(folder / "search", _search())
    merged = merge_baselines([(str(day), baseline_from_result(Result.model_validate(one))) for day, one in enumerate(made)])
    write_baseline(folder / "baseline.json", merged)
    (folder / "verdict.json").write_text(json.dumps(_verdict().document(), indent=1))
    with open_history(folder / "history.sqlite", create=True) as history:
        for day in range(1, 13):
            result = Result.model_validate(_run(1.3 if day > 8 else 1 + day / 1000, day))
            history.add([record_of_result(result, f"run{day}")])
    days = "\n".join(f"2026-01-{day:02},{100 + day}" for day in range(1, 29))
    (folder / "peaks.csv").write_text(f"date,peak_per_s\n{days}\n")
    _add_perf_analyzer_files(folder)
    Writer(folder)((20, 40, 60, 80, 110), times_s=mm1_times_s, seconds=250, repetitions=2, overloaded_from=100)
    (folder / "result0").rename(folder / "open")
    _make_sweep(folder / "sweep")
    finish(folder / "parquet", _run(1.0, 4))
    _add_telemetry(folder / "parquet")
    convert_to_parquet(folder / "parquet")
    update_checksums(folder / "parquet")
    gate = GateFolder(folder / "gate", MANIFEST)
    gate.fix(FixedSettings(warmup_ns=10, window_ns=20, concurrency=4, rate_per_s=70.0, capacity_per_s=100.0))
    for pair in make_pairs(12):
        gate.add(pair)


def finish(folder: pathlib.Path, written: dict[str, Any]) -> None:
    """Writes a result with its log and checksums."""
    write_log(write(folder, written), written)
    update_checksums(folder)


def update_checksums(folder: pathlib.Path) -> None:
    """Writes the checksums of the files as they are now, so that only the deeper checks can find a damage."""
    names = [name for name in ("result.json", "latency.hlog", "telemetry.csv", "telemetry.parquet") if (folder / name).is_file()]
    lines = [f"{hashlib.sha256((folder / name).read_bytes()).hexdigest()}  {name}\n" for name in names]
    (folder / "checksums.sha256").write_text("".join(lines))


def _run(factor: float, day: int) -> dict[str, Any]:
    return document(
        started_at=f"2026-01-{day:02}T00:00:00.000+00:00", p50_ms=2.0 * factor, p99_ms=6.0 * factor, throughput_per_s=480 / factor
    )


def _search() -> dict[str, Any]:
    made = _run(1.0, 3)
    probe = {
        "rate_per_s": 480.0,
        "stage": "bracket",
        "limits": {"p99": {"beyond": 30, "count": 5000, "allowed_share": 0.01, "dispersion": 4.0}},
        "met": True,
        "overloaded": False,
        "valid": True,
        "took_s": 11.0,
    }
    curve = {
        "limit": "p99", "centre_per_s": 480.0, "floor": 0.0, "intercept": -4.6, "slope": 9.0, "points": 6, "effective_beyond": 40.0, "dispersion": 4.0,
    }  # fmt: skip
    made["search"] = {
        "slo": {"p99": "10ms"}, "capacity_per_s": 500.0, "low_per_s": 480.0, "high_per_s": 520.0, "confidence": 0.9, "precision": 0.05,
        "stopped_because": "precision", "reason": "The capacity is 500/s.", "confirmation": "passed", "curve": curve, "probes": [probe] * 3,
    }  # fmt: skip
    return made


def _verdict() -> Verdict:
    values = tuple(2e6 * (1 + number / 100) for number in range(12))
    comparison = Comparison(
        metric="p99", load_point="http, concurrency 4", unit="ns", better="lower", baseline=2e6, candidate=2e6, estimate=1.0, interval=(0.9, 1.1),
        confidence=0.95, pairs=12, noise_band=0.01, margin=0.1, verdict="pass", reason="It is.", baseline_values=values, candidate_values=values[::-1],
    )  # fmt: skip
    return Verdict(
        kind="pass", reasons=("All.",), notes=("One.",), mode="paired", scenario="smoke", baseline="a", candidate="b", false_alarm_rate=0.01, pairs=12,
        control_pairs=12, comparisons=(comparison,), control=(comparison,), started_at="2026-01-01T00:00:00.000+00:00",
    )  # fmt: skip


def _add_perf_analyzer_files(folder: pathlib.Path) -> None:
    """A profile export and a CSV report of the load point of `new`, without the values of tensors."""
    begun_ns = 1_700_000_000 * 10**9
    requests = [
        {
            "timestamp": begun_ns + number * 2_000_000,
            "request_inputs": {},
            "response_timestamps": [begun_ns + number * 2_000_000 + 1_000_000 + place for place in (0, 500_000)],
            "response_outputs": [{"OUT": 1}, {"OUT": 2}],
        }
        for number in range(100)
    ]
    experiment = {"mode": "concurrency", "value": 4}
    one = {"experiment": experiment, "requests": requests, "window_boundaries": [begun_ns, begun_ns + 10**8, begun_ns + 2 * 10**8]}
    document = {"experiments": [one], "version": "2.60.0", "service_kind": "triton", "endpoint": ""}
    (folder / "old.json").write_text(json.dumps(document))
    (folder / "old.csv").write_text("Concurrency,Inferences/Second,Server Queue,p50 latency,p99 latency\n4,500,13,1500,2100\n")


def _add_telemetry(folder: pathlib.Path) -> None:
    rows = [
        f'{point},{repetition},http,concurrency 4,{name},"{{""gpu"": ""a""}}",,{second},{second},{second * 3.5}'
        for point, repetition in ((0, 0), (0, 1), (0, 2))
        for name in ("server_queue", "gpu_power", "machine_cpu_share", "gpu_utilization")
        for second in range(8)
    ]
    (folder / "telemetry.csv").write_text(_TELEMETRY + "\n".join(rows) + "\n")
    update_checksums(folder)


def _make_sweep(folder: pathlib.Path) -> None:
    cases = [({"server.threads": threads}, changed({"s": SCENARIO}, "s.server.threads", threads)["s"]) for threads in (1, 2)]
    names = [case.folder for case in SweepFolder(folder, "smoke", cases).document.cases]
    for name, (_, scenario) in zip(names, cases, strict=True):
        finish(folder / name, {**_run(1.0, 1), "scenario": scenario})
    SweepFolder(folder, "smoke", cases)
