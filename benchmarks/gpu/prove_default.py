"""The part `default`: the shipped scenario on a GPU, beside tuned options, and direct calls beside PyTorch's graph."""

import json
import math
import pathlib
import shutil
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

import yaml

from benchmarks.gpu.proof import Proof
from benchmarks.gpu.prove_server import add_fallbacks, compare_with_torch
from benchmarks.processes import ROOT, PerfkitRun, run_perfkit
from benchmarks.report import table_head, table_row

SCENARIO = ROOT / "scenarios" / "densenet-cuda.yaml"
TUNED = {"precision": "tf32", "layout": "nhwc", "graphs": True, "instances": 3, "max_batch": 64}
"""What the defaults choose, given by hand."""
MIN_STEP, MIN_TUNED, MAX_TUNED, MIN_OF_LIMIT = 0.5, 0.9, 1.1, 0.95
_BATCH_SIZES = (1, 8, 64)
_TUNED_CONCURRENCIES = (1, 8, 32)
PointRates = Mapping[tuple[str, int], float]
"""Requests per second by protocol and concurrency."""


def prove(proof: Proof) -> None:
    """Measure the part."""
    if not proof.has_onnx():
        return
    shipped = proof.attempt("the shipped scenario", 5 if proof.is_dry_run else 75, lambda: _run_shipped(proof))
    proof.attempt("direct calls beside PyTorch's graph", 5 if proof.is_dry_run else 45, lambda: _compare_with_torch(proof))
    if shipped is not None:
        proof.attempt("tuned options", 2 if proof.is_dry_run else 35, lambda: _compare_with_tuned(proof, shipped))


def _run_shipped(proof: Proof) -> PerfkitRun:
    out = proof.out / "gpu-default-result"
    shutil.rmtree(out, ignore_errors=True)
    run = run_perfkit(_for_dry_run(proof) if proof.is_dry_run else SCENARIO, out=out, quiet=())
    points = run.points
    assert run.result is not None
    summary = run.result["summary"]
    chosen = run.result["environment"]["target"]["bundled_server"]["onnx"]
    kept = (
        "protocol",
        "load",
        "repetition",
        "valid",
        "warnings",
        "throughput_per_s",
        "service_time_ns",
        "server",
        "server_cpu",
        "gpus",
        "energy_per_inference_j",
    )
    rows = [{key: point[key] for key in kept} for point in points]
    proof.raw["result"] = {"status": run.result["status"], "points": rows, "warnings": run.result["warnings"], "onnx": chosen}
    add_fallbacks(proof, chosen)
    proof.check(
        "exit code",
        f"{run.exit_code}, {run.result['status']}",
        "0, complete",
        is_met=(run.exit_code, run.result["status"]) == (0, "complete"),
    )
    columns = ("protocol", ">in flight", ">throughput", ">p50", ">p99", ">rows per execution", ">GPU busy", ">energy per image", "valid")
    proof.add("## `perfkit run scenarios/densenet-cuda.yaml`", "", *table_head(*columns), *map(_line, points))
    proof.add("What the server chose: `" + json.dumps(chosen) + "`")
    invalid = [point for point in (*points, *summary) if not point["valid"]]
    if invalid:
        proof.add(*(f"- not valid: {_name(point)}: {_reasons(point)}" for point in invalid))
    counts = [f"{sum(point['valid'] for point in some)} of {len(some)}" for some in (points, summary)]
    proof.check("every point valid", f"{counts[0]} measured, {counts[1]} pooled", "all", is_met=bool(points) and not invalid)
    steps = smallest_steps(points)
    step = min(steps.values(), default=math.nan)  # a dry run may have one load point
    proof.check("no point below half of the one before", f"least {step:.2f} of it", f"at least {MIN_STEP}", is_met=step >= MIN_STEP)
    return run


def _name(point: Mapping[str, Any]) -> str:
    repetition = "pooled" if point["repetition"] is None else f"repetition {point['repetition']}"
    return f"{point['protocol']}, {point['load']['concurrency']} in flight, {repetition}"


def _reasons(point: Mapping[str, Any]) -> str:
    return " ".join(warning["message"] for warning in point["warnings"]) or "no reason given"


def smallest_steps(points: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """By protocol, the smallest ratio of a load point's throughput to that of the one before, in ascending concurrency."""
    steps: dict[str, float] = {}
    before: dict[str, float] = {}
    for point in sorted(points, key=lambda point: point["load"]["concurrency"]):
        protocol, rate_per_s = point["protocol"], point["throughput_per_s"] or 0.0
        if protocol in before:
            ratio = rate_per_s / before[protocol] if before[protocol] else 0.0
            steps[protocol] = min(ratio, steps.get(protocol, ratio))
        before[protocol] = rate_per_s
    return steps


def tuned_scenario(shipped: Mapping[str, Any]) -> dict[str, Any]:
    """The shipped scenario at some of its load points, with the options given by hand."""
    return {
        **shipped,
        "server": {"device": "cuda", "onnx": TUNED},
        "load": {"closed": {"concurrency": list(_TUNED_CONCURRENCIES)}},
        "measure": {"warmup": "500ms", "duration": "3s", "repetitions": 1},
    }


def mean_rates(points: Sequence[Mapping[str, Any]]) -> PointRates:
    """The mean over the repetitions; a repetition without an answer counts as 0."""
    rates: dict[tuple[str, int], list[float]] = {}
    for point in points:
        rates.setdefault((point["protocol"], point["load"]["concurrency"]), []).append(point["throughput_per_s"] or 0.0)
    return {key: statistics.mean(own) for key, own in rates.items()}


def ratios_to_tuned(shipped: PointRates, tuned: PointRates, concurrencies: Sequence[int]) -> PointRates:
    """The rates with the defaults by those with options by hand, for both protocols; NaN where one of them is missing or 0."""
    protocols = dict.fromkeys(protocol for protocol, _ in (*shipped, *tuned))
    keys = [(protocol, concurrency) for protocol in protocols for concurrency in concurrencies]
    return {key: shipped.get(key, math.nan) / (tuned.get(key) or math.nan) for key in keys}


def _compare_with_tuned(proof: Proof, shipped: PerfkitRun) -> None:
    """The same load with options by hand, in shorter windows; for the test suite the shipped scenario's own run."""
    if proof.is_dry_run:
        scenario = _for_dry_run(proof)
        concurrencies: Sequence[int] = scenario["load"]["closed"]["concurrency"]
    else:
        scenario, concurrencies = tuned_scenario(yaml.safe_load(SCENARIO.read_text(encoding="utf-8"))), _TUNED_CONCURRENCIES
    run = shipped if proof.is_short else run_perfkit(scenario)
    rates = mean_rates(run.points)
    ratios = ratios_to_tuned(mean_rates(shipped.points), rates, concurrencies)
    shown = {key: f"{ratio:.2f} ({key[0]}, {key[1]})" for key, ratio in ratios.items()}
    proof.raw["tuned"] = {"exit_code": run.exit_code, "rates_per_s": {f"{key[0]} {key[1]}": rate for key, rate in rates.items()}}
    is_met = bool(ratios) and all(MIN_TUNED <= ratio <= MAX_TUNED for ratio in ratios.values())
    figure = "beside tuned options of the same precision"
    proof.check(figure, ", ".join(shown.values()), f"{MIN_TUNED} to {MAX_TUNED} at every point", is_met=is_met)


def _compare_with_torch(proof: Proof) -> None:
    sizes = (1,) if proof.is_short else (1, 2) if proof.is_dry_run else _BATCH_SIZES
    ratios = compare_with_torch(proof, "tf32", sizes, 0.2 if proof.is_dry_run else 0.4)
    shown = ", ".join(f"{ratio:.2f} at {size}" for size, ratio in zip(sizes, ratios, strict=True))
    proof.check(
        "direct ÷ PyTorch's graph, one thread, by batch size", shown, f"at least {MIN_OF_LIMIT}", is_met=min(ratios) >= MIN_OF_LIMIT
    )


def _for_dry_run(proof: Proof) -> dict[str, Any]:
    """The shipped scenario on the CPU, in short windows."""
    scenario: dict[str, Any] = yaml.safe_load(pathlib.Path(SCENARIO).read_text(encoding="utf-8"))
    scenario["server"] = {"device": "cpu"}
    scenario["load"] = {"closed": {"concurrency": [1] if proof.is_short else [1, 2]}}
    window = {"requests": 2} if proof.is_short else {"duration": "1s"}
    scenario["measure"] = {"warmup": "0s", **window, "repetitions": 1}
    scenario["gpu"] = {"idle": "0s"}
    return scenario


def _line(point: Mapping[str, Any]) -> str:
    times, server = point["service_time_ns"], point["server"] or {}
    gpu = next((gpu for gpu in point["gpus"] if gpu["utilization_mean"] is not None), None)
    energy_j = point["energy_per_inference_j"]
    return table_row(
        point["protocol"],
        point["load"]["concurrency"],
        f"{point['throughput_per_s'] or 0:,.1f}/s",
        *("–" if times.get(name) is None else f"{times[name] / 1e6:.2f} ms" for name in ("p50", "p99")),
        "–" if server.get("mean_batch") is None else f"{server['mean_batch']:.1f}",
        "–" if gpu is None else f"{gpu['utilization_mean']:.0%}",
        "–" if energy_j is None else f"{1e3 * energy_j:,.0f} mJ",
        "yes" if point["valid"] else "no",
    )
