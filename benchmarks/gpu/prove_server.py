"""The part `server`: DenseNet-121 served over both protocols beside the same executor called directly, and the tests on a GPU."""

import contextlib
import dataclasses
import functools
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from benchmarks.gpu.proof import Proof, UnavailableError, run_json
from benchmarks.processes import ROOT, RunningServer, run_perfkit, running_server
from benchmarks.report import table_head, table_row

MODEL, PROTOCOLS = "densenet_batch", ("http", "grpc")
ALONE: Mapping[str, tuple[str, ...]] = {
    "ONNX Runtime's defaults": (),
    "FP32 without TF32": ("precision=fp32",),
    "FP16": ("precision=fp16",),
    "FP16, channels last": ("precision=fp16", "layout=nhwc"),
    "pinned buffers": ("pinned=on",),
    "pinned buffers, copy stream": ("pinned=on", "streams=2"),
    "CUDA graphs": ("graphs=on",),
    "two instances": ("instances=2",),
    "TensorRT, FP16": ("provider=tensorrt", "precision=fp16"),
}
"""The options, each alone: beside the defaults, or with the one that it needs."""
MIN_RATIO, MIN_UTILIZATION = 0.95, 0.9


@dataclasses.dataclass(frozen=True, slots=True)
class Extent:
    """How much is measured."""

    batch_sizes: tuple[int, ...]
    concurrencies: tuple[int, ...]
    alone: tuple[str, ...]
    alone_batch_sizes: tuple[int, ...]
    seconds: float
    warmup_s: float
    start_s: float
    """What starting a server or an executor takes."""

    @classmethod
    def of(cls, proof: Proof) -> "Extent":
        """For a GPU, a dry run, or the test suite."""
        if proof.is_short:
            return cls((1,), (1,), ("pinned buffers",), (1,), 0.2, 0.0, 3)
        if proof.is_dry_run:
            return cls((1, 2, 4), (1, 2, 4), tuple(ALONE), (1, 2), 1.0, 0.3, 5)
        sizes = (1, 2, 4, 8, 16, 32, 64)
        return cls(sizes, (*sizes, 128), tuple(ALONE), (1, 8, 64), 2.5, 1.0, 40)


def prove(proof: Proof) -> None:
    """Measure the part."""
    if not proof.has_onnx():
        return
    extent = Extent.of(proof)
    settings = proof.fast
    direct = proof.attempt("direct calls with all options", extent.start_s, lambda: call_directly(proof, settings, extent.batch_sizes))
    if direct is None and not proof.is_dry_run:
        settings = ("max_batch=64",)
        direct = proof.attempt("direct calls with the defaults", extent.start_s, lambda: call_directly(proof, settings, extent.batch_sizes))
    proof.attempt("served DenseNet", 2 * extent.start_s, lambda: _serve(proof, extent, settings, direct))
    proof.attempt("each option alone", extent.start_s, lambda: _measure_alone(proof, extent))
    proof.attempt("tests on a GPU", 60 if proof.device == "cuda" else 0, lambda: _run_tests(proof))


def call_directly(proof: Proof, settings: Sequence[str], batch_sizes: Sequence[int]) -> dict[str, Any]:
    """What `benchmarks.gpu.direct` prints."""
    seconds = Extent.of(proof).seconds
    command = [sys.executable, "-m", "benchmarks.gpu.direct", f"--device={proof.device}", f"--seconds={seconds}", "--onnx", *settings]
    document: dict[str, Any] = run_json([*command, "--batch-sizes", *map(str, batch_sizes)], max(10.0, proof.remaining_s))
    proof.raw.setdefault("direct", []).append(document)
    return document


@contextlib.contextmanager
def serve(proof: Proof, settings: Sequence[str], *more: str, model: str = MODEL) -> Iterator[RunningServer]:
    """The bundled server with values of `--onnx` during the block.

    Where all options for speed together do not work on a GPU, that is a failure in the report, and the defaults are used. Raises
    RuntimeError with the server's words if it does not start.
    """
    with contextlib.ExitStack() as running:
        try:
            server = running.enter_context(_started(proof, settings, *more, model=model))
        except RuntimeError as error:
            if proof.is_dry_run or tuple(settings) != proof.fast:
                raise
            proof.failed.append(f"the server with {' '.join(settings)}; the defaults are used instead: {error}")
            server = running.enter_context(_started(proof, ("max_batch=64",), *more, model=model))
        yield server


@contextlib.contextmanager
def _started(proof: Proof, settings: Sequence[str], *more: str, model: str) -> Iterator[RunningServer]:
    onnx = ("--onnx", *settings) if settings else ()
    with contextlib.ExitStack() as running, tempfile.TemporaryFile("w+") as stderr:
        try:
            server = running.enter_context(running_server("--device", proof.device, "--model", model, *onnx, *more, stderr=stderr))
        except RuntimeError as error:
            stderr.seek(0)
            raise RuntimeError(f"{error}: {stderr.read()[-1000:].strip()}") from None
        yield server


def measure_served(
    proof: Proof, server: RunningServer, protocol: str, batch_size: int, concurrencies: Sequence[int], extent: Extent
) -> list[dict[str, Any]]:
    """The load points of a closed loop at each concurrency."""
    model = proof.model
    inputs = {model.input: {"generate": "random", "shape": list(model.row_shape)}}
    scenario = {
        "name": f"{protocol}-batch-{batch_size}",
        "target": {"url": server.url(protocol), "model": model.name, "timeout": "60s"},
        "workload": {"batch_size": batch_size, "variants": 4, "inputs": inputs},
        "load": {"closed": {"concurrency": list(concurrencies)}},
        "measure": {"warmup": f"{extent.warmup_s}s", "duration": f"{extent.seconds}s", "repetitions": 1},
        "gpu": {"idle": "0s"},
        "telemetry": not proof.is_short,
    }
    return run_perfkit(scenario).points


def _serve(proof: Proof, extent: Extent, settings: Sequence[str], direct: Mapping[str, Any] | None) -> None:
    """Both protocols: concurrency 1 to 128 at batch 1, then batch 1 to 64 with enough requests in flight to keep the model busy."""
    points: list[dict[str, Any]] = []
    with serve(proof, settings) as server:
        for protocol in PROTOCOLS:
            points += _rows(measure_served(proof, server, protocol, 1, extent.concurrencies, extent), protocol, 1)
            proof.raw["served"] = points
        for batch_size in extent.batch_sizes[1:]:
            for protocol in PROTOCOLS:
                if proof.remaining_s < 2 * (extent.seconds + extent.warmup_s):
                    proof.skip(f"{protocol}, batch {batch_size}", "the part's time is over")
                    continue
                points += _rows(measure_served(proof, server, protocol, batch_size, (4,), extent), protocol, batch_size)
                proof.raw["served"] = points
    report(proof, points, direct)


def _rows(points: Iterable[Mapping[str, Any]], protocol: str, batch_size: int) -> list[dict[str, Any]]:
    rows = []
    for point in points:
        busy = [gpu["utilization_mean"] for gpu in point["gpus"] if gpu["utilization_mean"] is not None]
        rows.append(
            {
                "protocol": protocol,
                "batch": batch_size,
                "concurrency": point["load"]["concurrency"],
                "images_per_s": point["inferences_per_s"],
                "p50_ms": None if point["service_time_ns"]["p50"] is None else point["service_time_ns"]["p50"] / 1e6,
                "mean_batch": (point["server"] or {}).get("mean_batch"),
                "gpu_utilization": max(busy, default=None),
                "valid": point["valid"],
                "errors": point["error_rate"],
            }
        )
    return rows


def report(proof: Proof, points: Sequence[Mapping[str, Any]], direct: Mapping[str, Any] | None) -> None:
    """The tables, the plots and the required figures."""
    called = {point["batch"]: point for point in (direct or {"points": []})["points"]}
    proof.add(
        "## Served, and the same executor called directly", "", f"Server options: `--onnx {' '.join((direct or {}).get('onnx', []))}`."
    )
    columns = ("protocol", ">batch", ">in flight", ">images/s", ">p50", ">rows per execution", ">GPU busy", "valid")
    proof.add(*table_head(*columns), *(_line(point) for point in points))
    ratios = []
    for batch_size, point in called.items():
        for protocol in PROTOCOLS:
            served = [
                one["images_per_s"] for one in points if (one["protocol"], one["batch"]) == (protocol, batch_size) and one["images_per_s"]
            ]
            if served and (batch_size > 1 or len(called) == 1):
                ratios.append((protocol, batch_size, max(served), point["images_per_s"], max(served) / point["images_per_s"]))
    proof.add(
        *table_head("protocol", ">batch", ">served images/s", ">direct images/s", ">served ÷ direct"),
        *(table_row(protocol, size, f"{served:,.0f}", f"{own:,.0f}", f"{ratio:.3f}") for protocol, size, served, own, ratio in ratios),
    )
    for protocol in PROTOCOLS:
        alone = next((one for one in points if (one["protocol"], one["batch"], one["concurrency"]) == (protocol, 1, 1)), None)
        if alone is not None and alone["p50_ms"] is not None and 1 in called:
            overhead_ms = alone["p50_ms"] - called[1]["p50_ms"]
            proof.add(
                f"A request adds {overhead_ms:.2f} ms over {protocol} to the direct call of {called[1]['p50_ms']:.2f} ms (p50, one in flight)."
            )
    for protocol in PROTOCOLS:
        best = max((one for one in ratios if one[0] == protocol), key=lambda one: one[4], default=None)
        if best is not None:
            figure = f"served ÷ direct over {protocol}, best batch size"
            proof.check(figure, f"{best[4]:.3f} at batch {best[1]}", f"at least {MIN_RATIO}", is_met=best[4] >= MIN_RATIO)
    busiest = max((one["gpu_utilization"] for one in points if one["gpu_utilization"] is not None), default=None)
    measured = "not reported" if busiest is None else f"{busiest:.1%}"
    proof.check("GPU utilisation at saturation", measured, f"above {MIN_UTILIZATION:.0%}", is_met=(busiest or 0) > MIN_UTILIZATION)
    by_protocol = {
        name: [one for one in points if one["protocol"] == name and one["batch"] == 1 and one["images_per_s"]] for name in PROTOCOLS
    }
    curves = {name: [(one["concurrency"], one["images_per_s"]) for one in rows] for name, rows in by_protocol.items()}
    proof.plot("concurrency", "DenseNet-121, single images", ("requests in flight", "images per second"), curves, log=True)
    sizes: dict[str, list[tuple[float, float]]] = {"direct": [(size, point["images_per_s"]) for size, point in called.items()]}
    for protocol, size, served, _, _ in ratios:
        sizes.setdefault(protocol, []).append((size, served))
    proof.plot("batch", "DenseNet-121 by batch size", ("images per request", "images per second"), sizes, log=True)


def _line(point: Mapping[str, Any]) -> str:
    busy, mean_batch, p50_ms = point["gpu_utilization"], point["mean_batch"], point["p50_ms"]
    return table_row(
        point["protocol"],
        point["batch"],
        point["concurrency"],
        f"{point['images_per_s'] or 0:,.1f}",
        "–" if p50_ms is None else f"{p50_ms:.2f} ms",
        "–" if mean_batch is None else f"{mean_batch:.1f}",
        "–" if busy is None else f"{busy:.0%}",
        "yes" if point["valid"] else "no",
    )


def _measure_alone(proof: Proof, extent: Extent) -> None:
    """Each option alone, called directly."""
    columns = ("options", *(f">batch {size}" for size in extent.alone_batch_sizes), ">loading")
    lines = list(table_head(*columns))
    for name in extent.alone:
        settings = (*ALONE[name], "max_batch=64")
        call = functools.partial(call_directly, proof, settings, extent.alone_batch_sizes)
        found = proof.attempt(name, 2 if proof.is_dry_run else 20, call)
        if found is not None:
            lines.append(table_row(name, *(f"{point['images_per_s']:,.0f}" for point in found["points"]), f"{found['loaded_s']:.1f} s"))
    proof.add("## Each option alone: images per second, called directly", "", *lines)


def _run_tests(proof: Proof) -> None:
    if proof.device != "cuda":
        raise UnavailableError("they need a GPU")
    with tempfile.TemporaryDirectory() as folder:
        command = [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-m",
            "gpu",
            "-p",
            "no:cacheprovider",
            f"--basetemp={folder}/t",
            "tests/server_stub/test_gpu.py",
        ]
        ended = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT, timeout=proof.remaining_s)
    proof.raw["tests"] = ended.stdout[-20_000:] + ended.stderr[-5_000:]
    counts = re.findall(r"^\d+ .* in [\d.]+s", ended.stdout, re.MULTILINE)
    proof.check("tests on a GPU", counts[-1] if counts else f"exit code {ended.returncode}", "all pass", is_met=ended.returncode == 0)
