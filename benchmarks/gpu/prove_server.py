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
OTHERS: Mapping[str, tuple[str, ...]] = {
    "FP32 without TF32": ("precision=fp32",),
    "channels first": ("layout=nchw",),
    "without graphs": ("graphs=off",),
    "one instance": ("instances=1",),
    "TensorRT, FP16": ("provider=tensorrt", "precision=fp16"),
}
"""Options beside the defaults, called directly."""
MIN_RATIO, MIN_UTILIZATION, MAX_ADDED_MS = 0.95, 0.9, 0.5
_DIRECT_S = 0.4
_OTHERS_LIMIT_S, _TESTS_LIMIT_S = 45.0, 90.0
_SERVED_BATCHES = (2, 8, 32, 64)
_IN_FLIGHT, WORKERS = (16,), 4  # for batches; one process cannot send as much as a GPU takes
_ROUNDING = 1e-9
_COMPARED = """A load point is compared with direct calls of as many rows as the server executed together, by as many threads as it could have
executions in flight: requests in flight × images each ÷ rows, rounded up, at most its instances. Direct calls find their images in memory; what is served
has crossed a socket."""


class Compared(NamedTuple):
    """The images per second that were served, and those of direct calls with as many rows."""

    protocol: str
    batch: int
    """Images in each request."""
    concurrency: int
    """Requests in flight."""
    rows: float
    """Images in each execution, the mean."""
    threads: int
    """The threads of the direct calls."""
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
    others: tuple[str, ...]
    other_batch_sizes: tuple[int, ...]
    seconds: float
    warmup_s: float
    start_s: float
    """What starting a server or an executor takes."""

    @classmethod
    def of(cls, proof: Proof) -> "Extent":
        """For a GPU, a dry run, or the test suite, which calls nothing directly but the default."""
        if proof.is_short:
            return cls((1,), (1,), (), (1,), 0.2, 0.0, 3)
        if proof.is_dry_run:
            return cls((1, 2, 4), (1, 2, 4), tuple(OTHERS), (1, 2), 1.0, 0.3, 5)
        sizes = (1, 2, 4, 8, 16, 32, 64)
        return cls(sizes, (*sizes, 128), tuple(OTHERS), (1, 8, 64), 1.5, 0.4, 25)


def prove(proof: Proof) -> None:
    """Measure the part."""
    if not proof.has_onnx():
        return
    extent = Extent.of(proof)
    seconds = min(_DIRECT_S, extent.seconds)
    direct = proof.attempt("direct calls", extent.start_s, lambda: call_directly(proof, (), extent.batch_sizes, seconds))
    proof.attempt("served DenseNet", 2 * extent.start_s, lambda: _serve(proof, extent, direct))
    proof.attempt("tests on a GPU", 45 if proof.device == "cuda" else 0, lambda: _run_tests(proof))
    half = functools.partial(compare_with_torch, proof, "fp16", extent.other_batch_sizes, seconds)
    proof.attempt("FP16 beside PyTorch's graph", 2 if proof.is_dry_run else 40, half)
    proof.attempt("other options", extent.start_s, lambda: _measure_others(proof, extent, direct))


def call_directly(
    proof: Proof, settings: Sequence[str], batch_sizes: Sequence[int], seconds: float, limit_s: float = math.inf
) -> dict[str, Any]:
    """What `benchmarks.gpu.direct` prints."""
    command = [sys.executable, "-m", "benchmarks.gpu.direct", f"--device={proof.device}", f"--seconds={seconds}", "--onnx", *settings]
    timeout_s = min(limit_s, max(10.0, proof.remaining_s))
    document: dict[str, Any] = run_json([*command, "--batch-sizes", *map(str, batch_sizes)], timeout_s)
    proof.raw.setdefault("direct", []).append(document)
    return document


def compare_with_torch(proof: Proof, precision: str, batch_sizes: Sequence[int], seconds: float) -> list[float]:
    """A table of direct calls beside PyTorch's CUDA graph, and their ratios with one thread, by batch size.

    Raises UnavailableError without PyTorch; the direct calls are in the report all the same.
    """
    settings = () if precision == "tf32" else (f"precision={precision}",)
    direct = call_directly(proof, settings, batch_sizes, seconds)
    called = {(point["batch"], point["threads"]): point["images_per_s"] for point in direct["points"]}
    threads, by_torch, why = direct["threads"], dict[int, Any](), "PyTorch's graph needs a GPU"
    title = f"## Direct calls with {precision.upper()}"
    if not proof.is_dry_run:
        command = [sys.executable, "-m", "benchmarks.gpu.torch_limit", "--precision", precision, "--batch-sizes", *map(str, batch_sizes)]
        try:
            limit = run_json(command, max(10.0, proof.remaining_s))
        except UnavailableError as error:
            why = str(error)
        else:
            proof.raw.setdefault("torch", []).append(limit)
            by_torch = {point["batch"]: point for point in limit["points"][precision]}
            title += f", beside PyTorch {limit['torch']}: one CUDA graph on one stream"
    ratios, lines = list[float](), list[str]()
    for size in batch_sizes:
        cells = [f"{called[size, 1]:,.0f}", f"{called[size, threads]:,.0f}", "–", "–", "–"]
        if by_torch:
            limit_per_s = by_torch[size]["images_per_s"]
            ratios.append(called[size, 1] / limit_per_s)
            cells[2:] = [f"{limit_per_s:,.0f}", by_torch[size]["memory_format"], f"{ratios[-1]:.2f}"]
        lines.append(table_row(size, *cells))
    columns = (">batch", ">images/s, one thread", f">{threads} threads", ">PyTorch's graph", "its format", ">one thread ÷ PyTorch")
    proof.add(title, "", *table_head(*columns), *lines)
    if not by_torch:
        raise UnavailableError(why)
    return ratios


def add_fallbacks(proof: Proof, onnx: Mapping[str, Any]) -> None:
    """Report each model as failed that is not executed as was chosen; `onnx` is the value of that name in the server's ready line."""
    for name, execution in onnx.get("models", {}).items():
        if "fallback" in execution:
            proof.failed.append(f"{name} is not executed as it should be: {execution['fallback']}")


@contextlib.contextmanager
def serve(proof: Proof, settings: Sequence[str], *more: str, model: str = MODEL) -> Iterator[RunningServer]:
    """The bundled server with values of `--onnx` during the block. Raises RuntimeError with the server's words if it does not start."""
    onnx = ("--onnx", *settings) if settings else ()
    with contextlib.ExitStack() as running, tempfile.TemporaryFile("w+") as stderr:
        try:
            server = running.enter_context(running_server("--device", proof.device, "--model", model, *onnx, *more, stderr=stderr))
        except RuntimeError as error:
            stderr.seek(0)
            raise RuntimeError(f"{error}: {stderr.read()[-1000:].strip()}") from None
        add_fallbacks(proof, server.ready["onnx"])
        yield server


def measure_served(
    proof: Proof, server: RunningServer, protocol: str, batch_size: int, concurrencies: Sequence[int], extent: Extent
) -> list[dict[str, Any]]:
    """The load points of a closed loop at each concurrency."""
    model = proof.model
    # a short window may hold no answer of a busy machine
    window = {"requests": 2} if proof.is_short else {"duration": f"{extent.seconds}s"}
    workers = {} if proof.is_dry_run else {"workers": WORKERS}
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
    loads = [
        (1, extent.concurrencies),
        *((batch_size, _IN_FLIGHT) for batch_size in extent.batch_sizes[1:] if batch_size in _SERVED_BATCHES),
    ]
    points: list[dict[str, Any]] = []
    proof.raw["served"] = points
    try:
        with serve(proof, ()) as server:
            proof.raw["ready"] = dict(server.ready)
            for batch_size, concurrencies in loads:
                for protocol in PROTOCOLS:
                    measure = functools.partial(measure_served, proof, server, protocol, batch_size, concurrencies, extent)
                    need_s = len(concurrencies) * (extent.seconds + extent.warmup_s)
                    points += _rows(proof.attempt(f"{protocol}, batch {batch_size}", need_s, measure) or (), protocol, batch_size)
    finally:
        if points:
            report(proof, points, direct, sum(len(concurrencies) for _, concurrencies in loads))


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


def direct_rate(points: Sequence[Mapping[str, Any]], rows: float, threads: int) -> float:
    """Images per second of direct calls with `rows` images each: a call's time is interpolated between the measured batch sizes."""
    called = {point["batch"]: point["images_per_s"] for point in points if point["threads"] == threads}
    sizes = sorted(called)
    return rows / float(np.interp(rows, sizes, [size / called[size] for size in sizes]))


def threads_in_use(concurrency: int, batch: int, rows: float, instances: int) -> int:
    """How many executions of `rows` images can be in flight, of `concurrency` requests with `batch` images each."""
    return min(instances, math.ceil(concurrency * batch / rows - _ROUNDING))


def compare(points: Sequence[Mapping[str, Any]], direct: Mapping[str, Any] | None) -> list[Compared]:
    """Each load point beside direct calls of as many rows as the server executed together."""
    compared = []
    for point in points if direct is not None else ():
        assert direct is not None
        rows = point["mean_batch"] or point["batch"]
        threads = threads_in_use(point["concurrency"], point["batch"], rows, direct["threads"])
        rate_per_s = direct_rate(direct["points"], rows, threads)
        served_per_s = point["images_per_s"] or 0.0
        compared.append(Compared(point["protocol"], point["batch"], point["concurrency"], rows, threads, served_per_s, rate_per_s))
    return compared


def check_ratios(proof: Proof, protocol: str, compared: Sequence[Compared], expected: int) -> None:
    """Add the required figure of a protocol; it is missed as well where fewer than the expected load points were measured."""
    worst, met = min(compared, key=lambda one: one.ratio), sum(one.ratio >= MIN_RATIO for one in compared)
    measured = f"{met} of {expected} points; least {worst.ratio:.3f} at batch {worst.batch}, {worst.concurrency} in flight"
    if len(compared) < expected:
        measured += f"; {expected - len(compared)} not measured"
    proof.check(f"served ÷ direct over {protocol}", measured, f"at least {MIN_RATIO} at every point", is_met=met == expected)


def report(proof: Proof, points: Sequence[Mapping[str, Any]], direct: Mapping[str, Any] | None, expected: int) -> None:
    """The tables, the plots and the required figures; `expected` is how many load points each protocol should have."""
    columns = ("protocol", ">batch", ">in flight", ">images/s", ">p50", ">rows per execution", ">GPU busy", "valid")
    proof.add("## Served, and the same executor called directly", "", *table_head(*columns), *(_line(point) for point in points))
    compared = compare(points, direct)
    columns = (
        "protocol",
        ">batch",
        ">in flight",
        ">rows per execution",
        ">threads",
        ">served images/s",
        ">direct images/s",
        ">served ÷ direct",
    )
    rows = [
        (one.protocol, one.batch, one.concurrency, f"{one.rows:.1f}", one.threads, f"{one.served:,.0f}", f"{one.direct:,.0f}", f"{one.ratio:.3f}")
        for one in compared
    ]  # fmt: skip
    proof.add(*table_head(*columns), *(table_row(*row) for row in rows))
    proof.add(*_COMPARED.splitlines())
    for protocol in PROTOCOLS:
        own = [one for one in compared if one.protocol == protocol]
        if own:
            check_ratios(proof, protocol, own, expected)
        alone = next((one for one in points if (one["protocol"], one["batch"], one["concurrency"]) == (protocol, 1, 1)), None)
        if alone is not None and alone["p50_ms"] is not None and direct is not None:
            direct_ms = next(point["p50_ms"] for point in direct["points"] if (point["batch"], point["threads"]) == (1, 1))
            added_ms = alone["p50_ms"] - direct_ms
            measured = f"{alone['p50_ms']:.2f} ms, {added_ms:.2f} ms above the direct call of {direct_ms:.2f} ms (p50)"
            proof.check(f"one in flight over {protocol}", measured, f"at most {MAX_ADDED_MS} ms above", is_met=added_ms <= MAX_ADDED_MS)
    busiest = max((one["gpu_utilization"] for one in points if one["gpu_utilization"] is not None), default=None)
    measured = "not reported" if busiest is None else f"{busiest:.1%}"
    proof.check("GPU utilisation at saturation", measured, f"above {MIN_UTILIZATION:.0%}", is_met=(busiest or 0) > MIN_UTILIZATION)
    by_protocol = {
        name: [one for one in points if one["protocol"] == name and one["batch"] == 1 and one["images_per_s"]] for name in PROTOCOLS
    }
    curves = {name: [(one["concurrency"], one["images_per_s"]) for one in rows] for name, rows in by_protocol.items()}
    proof.plot("concurrency", "DenseNet-121, single images", ("requests in flight", "images per second"), curves, log=True)
    together = [] if direct is None else [point for point in direct["points"] if point["threads"] == direct["threads"]]
    sizes: dict[str, list[tuple[float, float]]] = {"direct": [(point["batch"], point["images_per_s"]) for point in together]}
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


def _measure_others(proof: Proof, extent: Extent, direct: Mapping[str, Any] | None) -> None:
    """The defaults and other options, called directly by one thread and by as many as there are instances."""
    lines = list(table_head("options", "threads", *(f">batch {size}" for size in extent.other_batch_sizes), ">loading"))

    def add(name: str, found: Mapping[str, Any]) -> None:
        for threads in sorted({1, found["threads"]}):
            rates = [
                point["images_per_s"]
                for point in found["points"]
                if point["threads"] == threads and point["batch"] in extent.other_batch_sizes
            ]
            lines.append(table_row(name, threads, *(f"{rate:,.0f}" for rate in rates), f"{found['loaded_s']:.1f} s"))

    if direct is not None:
        add("defaults", direct)
    for name in extent.others:
        seconds = min(_DIRECT_S, extent.seconds)
        call = functools.partial(call_directly, proof, OTHERS[name], extent.other_batch_sizes, seconds, _OTHERS_LIMIT_S)
        found = proof.attempt(name, 2 if proof.is_dry_run else 20, call)
        if found is not None:
            add(name, found)
    proof.add("## Other options: images per second, called directly", "", *lines)


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
