"""The part `server`: DenseNet-121 served over both protocols beside the same executor called directly, and the tests on a GPU."""

import contextlib
import dataclasses
import functools
import math
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

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
    "CUDA graphs, heuristic choice of algorithms": ("graphs=on",),
    "two instances": ("instances=2",),
    "FP16, channels last, CUDA graphs, two instances": ("precision=fp16", "layout=nhwc", "graphs=on", "instances=2"),
    "TensorRT, FP16": ("provider=tensorrt", "precision=fp16"),
}
"""The options, each alone: beside the defaults, or with the one that it needs."""
MIN_RATIO, MAX_RATIO, MIN_UTILIZATION = 0.95, 1.1, 0.9
"""Of served by direct. More than the largest says that the direct calls were disturbed, since they are the bound."""
_ALONE_LIMIT_S, _TESTS_LIMIT_S = 75.0, 150.0
_IN_FLIGHT, _WORKERS = (4, 16), 4  # for batches: one or four for each thread that executes; one process cannot send as much as a GPU takes
_PADDED_SIZES = """With CUDA graphs an execution is padded to the next power of two: 17 images cost what 32 do. The direct rate at the mean number of rows
does not know that, so part of what is missing where requests are batched is padding. With as many requests in flight as there are threads
that execute, every execution has the request's own rows."""


class Compared(NamedTuple):
    """The images per second that were served, and those of direct calls with as many rows."""

    protocol: str
    batch: int
    """Images in each request."""
    concurrency: int
    """Requests in flight."""
    rows: float
    """Images in each execution, the mean."""
    served: float
    direct: float

    @property
    def ratio(self) -> float:
        """Served by direct."""
        return self.served / self.direct


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
        return cls(sizes, (*sizes, 128), tuple(ALONE), (1, 8, 64), 2.5, 0.5, 40)


def prove(proof: Proof) -> None:
    """Measure the part."""
    if not proof.has_onnx():
        return
    extent = Extent.of(proof)
    direct = None
    while direct is None:
        name = f"direct calls with {' '.join(proof.fast)}"
        direct = proof.attempt(name, extent.start_s, lambda: call_directly(proof, proof.fast, extent.batch_sizes, min(1.5, extent.seconds)))
        if direct is None and (proof.remaining_s < extent.start_s or not proof.simplify("called directly, it does not work")):
            break
    proof.attempt("served DenseNet", 2 * extent.start_s, lambda: _serve(proof, extent, direct))
    proof.attempt("tests on a GPU", 60 if proof.device == "cuda" else 0, lambda: _run_tests(proof))
    proof.attempt("each option alone", extent.start_s, lambda: _measure_alone(proof, extent))


def call_directly(
    proof: Proof, settings: Sequence[str], batch_sizes: Sequence[int], seconds: float, limit_s: float = math.inf
) -> dict[str, Any]:
    """What `benchmarks.gpu.direct` prints."""
    command = [sys.executable, "-m", "benchmarks.gpu.direct", f"--device={proof.device}", f"--seconds={seconds}", "--onnx", *settings]
    timeout_s = min(limit_s, max(10.0, proof.remaining_s))
    document: dict[str, Any] = run_json([*command, "--batch-sizes", *map(str, batch_sizes)], timeout_s)
    proof.raw.setdefault("direct", []).append(document)
    return document


@contextlib.contextmanager
def serve(proof: Proof, settings: Sequence[str], *more: str, model: str = MODEL) -> Iterator[RunningServer]:
    """The bundled server with values of `--onnx` during the block.

    Where all options for speed together do not work on a GPU, that is a failure in the report, and fewer of them are used. Raises
    RuntimeError with the server's words if it does not start.
    """
    with contextlib.ExitStack() as running:
        server = None
        while server is None:
            try:
                server = running.enter_context(_started(proof, settings, *more, model=model))
            except RuntimeError as error:
                if tuple(settings) != proof.fast or not proof.simplify(str(error)):
                    raise
                settings = proof.fast
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
    # a short window may hold no answer of a busy machine
    window = {"requests": 2} if proof.is_short else {"duration": f"{extent.seconds}s"}
    workers = {} if proof.is_dry_run else {"workers": _WORKERS}
    inputs = {model.input: {"generate": "random", "shape": list(model.row_shape)}}
    scenario = {
        "name": f"{protocol}-batch-{batch_size}",
        "target": {"url": server.url(protocol), "model": model.name, "timeout": "60s"},
        "workload": {"batch_size": batch_size, "variants": 4, "inputs": inputs},
        "load": {"closed": {"concurrency": list(concurrencies)}},
        "measure": {"warmup": f"{extent.warmup_s}s", **window, "repetitions": 1, **workers},
        "gpu": {"idle": "0s"},
        "telemetry": not proof.is_short,
    }
    return run_perfkit(scenario).points


def _serve(proof: Proof, extent: Extent, direct: Mapping[str, Any] | None) -> None:
    """Both protocols: concurrency 1 to 128 at batch 1, then batch 1 to 64 with enough requests in flight to keep the model busy."""
    loads = [(1, extent.concurrencies), *((batch_size, _IN_FLIGHT) for batch_size in extent.batch_sizes[1:])]
    points: list[dict[str, Any]] = []
    proof.raw["served"] = points
    try:
        with serve(proof, proof.fast) as server:
            for batch_size, concurrencies in loads:
                for protocol in PROTOCOLS:
                    measure = functools.partial(measure_served, proof, server, protocol, batch_size, concurrencies, extent)
                    need_s = len(concurrencies) * (extent.seconds + extent.warmup_s)
                    points += _rows(proof.attempt(f"{protocol}, batch {batch_size}", need_s, measure) or (), protocol, batch_size)
    finally:
        if points:
            report(proof, points, direct if direct is not None and direct["onnx"] == list(proof.fast) else None)


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


def direct_rate(called: Mapping[int, Mapping[str, Any]], rows: float) -> float:
    """Images per second of direct calls with `rows` images each: a call's time is interpolated between the measured batch sizes."""
    sizes = sorted(called)
    return rows / float(np.interp(rows, sizes, [size / called[size]["images_per_s"] for size in sizes]))


def compare(points: Sequence[Mapping[str, Any]], called: Mapping[int, Mapping[str, Any]]) -> list[Compared]:
    """Each load point beside direct calls of as many rows as the server executed together.

    The server executes several requests together: compared with direct calls of a request's own batch, it would seem the faster.
    """
    return [
        Compared(
            point["protocol"],
            point["batch"],
            point["concurrency"],
            rows := point["mean_batch"] or point["batch"],
            point["images_per_s"],
            direct_rate(called, rows),
        )
        for point in points
        if called and point["images_per_s"]
    ]


def choose_best(compared: Sequence[Compared]) -> Compared:
    """The load point with the largest ratio that is possible, else with the smallest."""
    possible = [one for one in compared if one.ratio <= MAX_RATIO]
    return max(possible, key=lambda one: one.ratio) if possible else min(compared, key=lambda one: one.ratio)


def report(proof: Proof, points: Sequence[Mapping[str, Any]], direct: Mapping[str, Any] | None) -> None:
    """The tables, the plots and the required figures."""
    called = {point["batch"]: point for point in (direct or {"points": []})["points"]}
    proof.add("## Served, and the same executor called directly", "", f"Server options: `--onnx {' '.join(proof.fast)}`.")
    columns = ("protocol", ">batch", ">in flight", ">images/s", ">p50", ">rows per execution", ">GPU busy", "valid")
    proof.add(*table_head(*columns), *(_line(point) for point in points))
    compared = compare(points, called)
    proof.add(
        *table_head("protocol", ">batch", ">in flight", ">rows per execution", ">served images/s", ">direct images/s", ">served ÷ direct"),
        *(
            table_row(
                one.protocol, one.batch, one.concurrency, f"{one.rows:.1f}", f"{one.served:,.0f}", f"{one.direct:,.0f}", f"{one.ratio:.3f}"
            )
            for one in compared
        ),
    )
    proof.add(*_PADDED_SIZES.splitlines())
    for protocol in PROTOCOLS:
        alone = next((one for one in points if (one["protocol"], one["batch"], one["concurrency"]) == (protocol, 1, 1)), None)
        if alone is not None and alone["p50_ms"] is not None and direct is not None:
            overhead_ms = alone["p50_ms"] - direct["alone_p50_ms"]
            proof.add(
                f"A request adds {overhead_ms:.2f} ms over {protocol} to the direct call of {direct['alone_p50_ms']:.2f} ms (p50, one in flight)."
            )
    for protocol in PROTOCOLS:
        own = [one for one in compared if one.protocol == protocol]
        if own:
            best, most = choose_best(own), max(own, key=lambda one: one.served)
            proof.check(
                f"served ÷ direct over {protocol}, at the same rows per execution, best load point",
                f"{best.ratio:.3f} at batch {best.batch}, {best.concurrency} in flight; "
                f"{most.ratio:.3f} where most was served, {most.served:,.0f} images/s",
                f"{MIN_RATIO} to {MAX_RATIO}",
                is_met=MIN_RATIO <= best.ratio <= MAX_RATIO,
            )
    busiest = max((one["gpu_utilization"] for one in points if one["gpu_utilization"] is not None), default=None)
    measured = "not reported" if busiest is None else f"{busiest:.1%}"
    proof.check("GPU utilisation at saturation", measured, f"above {MIN_UTILIZATION:.0%}", is_met=(busiest or 0) > MIN_UTILIZATION)
    by_protocol = {
        name: [one for one in points if one["protocol"] == name and one["batch"] == 1 and one["images_per_s"]] for name in PROTOCOLS
    }
    curves = {name: [(one["concurrency"], one["images_per_s"]) for one in rows] for name, rows in by_protocol.items()}
    proof.plot("concurrency", "DenseNet-121, single images", ("requests in flight", "images per second"), curves, log=True)
    sizes: dict[str, list[tuple[float, float]]] = {"direct": [(size, point["images_per_s"]) for size, point in called.items()]}
    for name in PROTOCOLS:
        own = [one for one in compared if one.protocol == name]
        sizes[name] = [(size, max(one.served for one in own if one.batch == size)) for size in dict.fromkeys(one.batch for one in own)]
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
        call = functools.partial(call_directly, proof, settings, extent.alone_batch_sizes, min(1.0, extent.seconds), _ALONE_LIMIT_S)
        found = proof.attempt(name, 2 if proof.is_dry_run else 20, call)
        if found is not None:
            lines.append(table_row(name, *(f"{point['images_per_s']:,.0f}" for point in found["points"]), f"{found['loaded_s']:.1f} s"))
    proof.add("## Each option alone: images per second, called directly", "", *lines)


def _run_tests(proof: Proof) -> None:
    if proof.device != "cuda":
        raise UnavailableError("they need a GPU")
    with tempfile.TemporaryDirectory() as folder:
        # another machine's plugins and warnings are no reason to fail here
        options = ["-p", "pytest_timeout", "-p", "no:cacheprovider", "-W", "default", f"--basetemp={folder}/t"]
        command = [sys.executable, "-m", "pytest", "-v", "-m", "gpu", *options, "tests/server_stub/test_gpu.py"]
        environment = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTHONUNBUFFERED": "1"}
        with tempfile.TemporaryFile("w+") as output:  # a file keeps what is there at the time limit
            try:
                timeout_s = min(_TESTS_LIMIT_S, max(1.0, proof.remaining_s))
                code = subprocess.run(
                    command, stdout=output, stderr=subprocess.STDOUT, check=False, cwd=ROOT, env=environment, timeout=timeout_s
                ).returncode
            finally:
                output.seek(0)
                proof.raw["tests"] = output.read()[-25_000:]
    counts = re.findall(r"=+ (\d+ .* in [\d.]+s)", proof.raw["tests"])
    proof.check("tests on a GPU", counts[-1] if counts else f"exit code {code}", "all pass", is_met=code == 0)
