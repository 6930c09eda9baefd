"""The part `default`: the shipped scenario on a GPU, beside tuned options, and direct calls beside PyTorch's graph."""

import pathlib
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import yaml

from benchmarks.gpu.proof import Proof, UnavailableError, run_json
from benchmarks.gpu.prove_server import call_directly
from benchmarks.processes import ROOT, PerfkitRun, run_perfkit
from benchmarks.report import table_head, table_row

SCENARIO = ROOT / "scenarios" / "densenet-cuda.yaml"
TUNED = {"precision": "tf32", "layout": "nhwc", "graphs": True, "instances": 3, "max_batch": 64}
"""What the defaults choose, given by hand."""
MIN_STEP, MIN_TUNED, MAX_TUNED, MIN_OF_LIMIT = 0.5, 0.9, 1.1, 0.95
_BATCH_SIZES = (1, 8, 64)


def prove(proof: Proof) -> None:
    """Measure the part."""
    if not proof.has_onnx():
        return
    start_s = 5 if proof.is_dry_run else 60
    shipped = proof.attempt("the shipped scenario", start_s, lambda: _run_shipped(proof))
    proof.attempt("direct calls beside PyTorch's graph", 5 if proof.is_dry_run else 30, lambda: _compare_with_torch(proof))
    if shipped is not None:
        proof.attempt("tuned options", start_s / 2, lambda: _compare_with_tuned(proof, shipped))


def _run_shipped(proof: Proof) -> PerfkitRun:
    run = run_perfkit(_for_dry_run(proof) if proof.is_dry_run else SCENARIO, out=proof.out / "gpu-default-result")
    points = run.points
    assert run.result is not None
    kept = (
        "protocol",
        "load",
        "repetition",
        "valid",
        "throughput_per_s",
        "service_time_ns",
        "server",
        "server_cpu",
        "gpus",
        "energy_per_inference_j",
    )
    rows = [{key: point[key] for key in kept} for point in points]
    proof.raw["result"] = {"status": run.result["status"], "points": rows, "warnings": run.result["warnings"]}
    proof.check(
        "exit code",
        f"{run.exit_code}, {run.result['status']}",
        "0, complete",
        is_met=(run.exit_code, run.result["status"]) == (0, "complete"),
    )
    columns = ("protocol", ">in flight", ">throughput", ">p50", ">p99", ">rows per execution", ">GPU busy", ">energy per image", "valid")
    proof.add("## `perfkit run scenarios/densenet-cuda.yaml`", "", *table_head(*columns), *map(_line, points))
    valid = sum(point["valid"] for point in points)
    proof.check("every point valid", f"{valid} of {len(points)}", "all", is_met=valid == len(points))
    steps = smallest_steps(points)
    step = min(steps.values(), default=1.0)
    proof.check("no point below half of the one before", f"least {step:.2f} of it", f"at least {MIN_STEP}", is_met=step >= MIN_STEP)
    return run


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


def _compare_with_tuned(proof: Proof, shipped: PerfkitRun) -> None:
    """The same load with options by hand, in shorter windows."""
    scenario = yaml.safe_load(SCENARIO.read_text(encoding="utf-8")) if not proof.is_dry_run else _for_dry_run(proof)
    if not proof.is_dry_run:
        scenario["server"]["onnx"] = TUNED
        scenario["load"]["closed"]["concurrency"] = [1, 8, 64]
        scenario["measure"] = {"warmup": "500ms", "duration": "2s", "repetitions": 1}
    tuned = {(point["protocol"], point["load"]["concurrency"]): point["throughput_per_s"] for point in run_perfkit(scenario).points}
    ratios = {
        (point["protocol"], point["load"]["concurrency"]): point["throughput_per_s"] / tuned[key]
        for point in shipped.points
        if tuned.get(key := (point["protocol"], point["load"]["concurrency"]))
    }
    proof.raw["tuned"] = {
        f"{protocol} {concurrency}": [rate, ratios.get((protocol, concurrency))] for (protocol, concurrency), rate in tuned.items()
    }
    shown = ", ".join(f"{ratio:.2f} ({protocol}, {concurrency})" for (protocol, concurrency), ratio in ratios.items())
    is_met = bool(ratios) and all(MIN_TUNED <= ratio <= MAX_TUNED for ratio in ratios.values())
    proof.check("beside tuned options of the same precision", shown, f"{MIN_TUNED} to {MAX_TUNED}", is_met=is_met)


def _compare_with_torch(proof: Proof) -> None:
    sizes = (1,) if proof.is_short else (1, 2) if proof.is_dry_run else _BATCH_SIZES
    direct = call_directly(proof, (), sizes, 0.2 if proof.is_dry_run else 0.4)
    if proof.is_dry_run:
        raise UnavailableError("PyTorch's graph needs a GPU")
    limit = run_json(
        [sys.executable, "-m", "benchmarks.gpu.torch_limit", "--precision", "tf32", "--batch-sizes", *map(str, sizes)],
        max(10.0, proof.remaining_s),
    )
    proof.raw["torch"] = limit
    of_torch = {point["batch"]: point for point in limit["points"]["tf32"]}
    lines, ratios = [], []
    for size in sizes:
        by_threads = {point["threads"]: point["images_per_s"] for point in direct["points"] if point["batch"] == size}
        ratios.append(by_threads[1] / of_torch[size]["images_per_s"])
        rates = [by_threads[1], by_threads[direct["threads"]], of_torch[size]["images_per_s"]]
        lines.append(table_row(size, *(f"{rate:,.0f}" for rate in rates), of_torch[size]["memory_format"], f"{ratios[-1]:.2f}"))
    columns = (
        ">batch",
        ">direct images/s, one thread",
        f">{direct['threads']} threads",
        ">PyTorch's graph",
        "its format",
        ">one thread ÷ PyTorch",
    )
    proof.add(f"## Direct calls beside PyTorch {limit['torch']} with TF32, one CUDA graph on one stream", "", *table_head(*columns), *lines)
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
