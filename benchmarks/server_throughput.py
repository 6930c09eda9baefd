"""Throughput of the bundled server, compared with a real Triton on small and large requests and with ONNX Runtime on DenseNet-121.

    python -m benchmarks.server_throughput [--rounds 3] [--seconds 3] [--parts triton cache densenet batching] [--peers FOLDER]
                                           [--before CHECKOUT] [--out reports/server-throughput.md]

`triton`: both servers run, and perfkit loads them in turn, with `simple` (128 B a request) and with an identity of
602 kB, at concurrency 1, 8 and 32, with server and client on separate CPUs; at concurrency 8 also with both on all CPUs, and
with perf_analyzer as the client. `cache`: `simple` again, whose answers Triton has in its response cache, so that its backend does
nothing; the bundled server has no cache, and executes each request. With `--before`, the bundled server of another checkout
takes part in each round of `cache`. DenseNet-121 with one thread: the server and the direct calls use the same CPU in turn, the
client another. Ratios are taken within a round; their medians are compared with the targets, and the exit code is 1 if one is
missed.
"""

import contextlib
import functools
import itertools
import os
import pathlib
import random
import shutil
import statistics
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

from benchmarks.gpu.proof import run_json
from benchmarks.peers.clients import ClientError, Speed, measure_perf_analyzer, measure_perfkit
from benchmarks.peers.install import peers_folder, perf_analyzer_path
from benchmarks.peers.server_process import PeerError
from benchmarks.peers.triton import MODELS, running_triton
from benchmarks.processes import BEFORE_OPTION, THIS, Checkout, RunningServer, on_cpus, running_server
from benchmarks.report import RATIO_COLUMNS, Ratio, Report, describe_machine, program_options, rounds_text

_Figure = TypeVar("_Figure")
LOADS = (("simple", None), ("identity_int64", 75_264))
"""Models with the number of elements of an input, None if the model says it: requests of 128 B and of 602,112 B."""
LOAD_CONCURRENCIES, SHARED_CONCURRENCY = (1, 8, 32), 8
TRITON_TARGET, P50_TARGET = 1.0, 1.0
CACHE_TARGET, CACHE_TARGET_ALONE = 0.9, 1.0
DIRECT_TARGET, BATCHING_TARGET = 0.97, 0.97
BATCH_SIZES, CONCURRENCIES = (1, 8), (2, 4, 8, 16)
_DIRECT_WITHIN_S = 300.0  # the weights may have to be generated
TITLES = {
    "triton": ("Beside Triton, requests per second, or microseconds for p50", ("bundled server", "Triton")),
    "cache": (
        "Beside Triton's own core: answers from its response cache, requests per second",
        ("bundled server, which executes", "Triton, from its cache"),
    ),
    "densenet": ("DenseNet-121 at saturation, images per second", ("bundled server", "ONNX Runtime directly")),
    "batching": ("Dynamic batching of single images, images per second", ("`densenet_batch`", "`densenet_onnx`, one by one")),
}


def perfkit_speed(url: str, model: str, elements: int | None, concurrency: int, seconds: float) -> Speed:
    """Requests per second and their median time, by perfkit; `elements` is the length of the input INPUT0."""
    inputs = None if elements is None else {"INPUT0": {"generate": "random", "shape": [elements]}}
    return measure_perfkit(url, model, concurrency=concurrency, seconds=seconds, inputs=inputs)


def perfkit_per_s(url: str, model: str, concurrency: int, seconds: float, batch_size: int = 1) -> float:
    """Batch rows per second of a closed loop, by perfkit: concurrency ÷ mean time, since a window holds too few of such slow requests to count."""
    speed = measure_perfkit(url, model, concurrency=concurrency, seconds=seconds, batch_size=batch_size)
    return batch_size * concurrency * 1e6 / speed.mean_us


def direct_per_s(model: str, batch_size: int, seconds: float, cpu: int) -> float:
    """Images per second of direct calls by one thread on a CPU."""
    options = ["--device=cpu", f"--model={model}", f"--batch-sizes={batch_size}", f"--seconds={seconds}"]
    with on_cpus([cpu]):  # this process runs on the client's CPUs
        (point,) = run_json([sys.executable, "-m", "benchmarks.gpu.direct", *options], _DIRECT_WITHIN_S + 2 * seconds)["points"]
    return float(point["images_per_s"])


def measure_in_turn(measures: Sequence[Callable[[], _Figure]], rounds: int) -> list[list[_Figure]]:
    """The figures of all in every round, measured in random order."""
    found = []
    for _ in range(rounds):
        figures = {measure: measure() for measure in random.sample(measures, len(measures))}
        found.append([figures[measure] for measure in measures])
    return found


def measure_pairs(own: Callable[[], _Figure], reference: Callable[[], _Figure], rounds: int) -> list[tuple[_Figure, _Figure]]:
    """The figures of both in every round, measured in random order."""
    return [(one, other) for one, other in measure_in_turn((own, reference), rounds)]


def row(report: Report, name: str, pairs: Sequence[tuple[float, float]], *, low: float | None = None, high: float | None = None) -> None:
    """The medians, and the ratios within the rounds."""
    ratio = Ratio(name, tuple(own / reference for own, reference in pairs), low, high)
    medians = (f"{statistics.median(figures):,.1f}" for figures in zip(*pairs, strict=True))
    report.is_met &= ratio.is_met
    report.row(name, *medians, *ratio.cells)


def measure_beside_triton(report: Report, folder: pathlib.Path, rounds: int, seconds: float, cpus: Sequence[int]) -> None:
    """Small and large requests, compared with Triton."""
    layouts = {"shared CPUs": (cpus, cpus)}
    if len(cpus) > 1:
        layouts = {"separate CPUs": (cpus[:1], cpus[1:]), **layouts}
    for layout, (server_cpus, client_cpus) in layouts.items():
        with contextlib.ExitStack() as stack:
            with on_cpus(server_cpus):
                triton = stack.enter_context(running_triton(folder))
                models = [model for model, _ in LOADS]
                server = stack.enter_context(running_server("--threads=1", "--device=cpu", "--model", *models))
            stack.enter_context(on_cpus(client_cpus))
            for protocol, (model, elements) in itertools.product(("http", "grpc"), LOADS):
                urls = server.url(protocol), triton.url(protocol)
                for concurrency in LOAD_CONCURRENCIES if layout == "separate CPUs" else (SHARED_CONCURRENCY,):
                    own, reference = (functools.partial(perfkit_speed, url, model, elements, concurrency, seconds) for url in urls)
                    pairs = measure_pairs(own, reference, rounds)
                    name = f"{model}, {protocol}, concurrency {concurrency}, {layout}"
                    row(report, name, [(one.per_s, other.per_s) for one, other in pairs], low=TRITON_TARGET)
                    if concurrency == 1:
                        row(report, f"{name}: p50", [(one.p50_us, other.p50_us) for one, other in pairs], high=P50_TARGET)
                if elements is None:
                    speed = functools.partial(
                        measure_perf_analyzer, perf_analyzer_path(folder), model=model, concurrency=SHARED_CONCURRENCY, seconds=seconds
                    )
                    pairs = measure_pairs(functools.partial(speed, urls[0]), functools.partial(speed, urls[1]), rounds)
                    name = f"{model}, {protocol}, concurrency {SHARED_CONCURRENCY}, {layout}, perf_analyzer"
                    row(report, name, [(one.per_s, other.per_s) for one, other in pairs], low=TRITON_TARGET)


def measure_beside_cache(
    report: Report, folder: pathlib.Path, before: Checkout | None, rounds: int, seconds: float, cpus: Sequence[int]
) -> None:
    """Small requests that Triton answers from its response cache, on separate CPUs; also to the bundled server of another checkout, `before`."""
    with contextlib.ExitStack() as stack:
        models = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="perfkit-cached-")), "models")
        shutil.copytree(MODELS / "simple", models / "simple")
        with (models / "simple" / "config.pbtxt").open("a", encoding="utf-8") as config:
            config.write("response_cache { enable: true }\n")
        with on_cpus(cpus[:1]):
            triton = stack.enter_context(
                running_triton(
                    folder,
                    models=models,
                    options=[f"--cache-directory={folder / 'tritonserver' / 'caches'}", "--cache-config=local,size=16777216"],
                )
            )
            checkouts = (THIS,) if before is None else (THIS, before)
            servers = [
                stack.enter_context(running_server("--threads=1", "--device=cpu", "--model=simple", checkout=one)) for one in checkouts
            ]
        changes: list[tuple[str, list[tuple[float, float]]]] = []
        stack.enter_context(on_cpus(cpus[1:] or cpus))
        for protocol, concurrency in itertools.product(("http", "grpc"), LOAD_CONCURRENCIES):
            urls = [server.url(protocol) for server in servers]
            measures = [
                functools.partial(perfkit_speed, url, "simple", None, concurrency, seconds) for url in (*urls, triton.url(protocol))
            ]
            figures = [[speed.per_s for speed in speeds] for speeds in measure_in_turn(measures, rounds)]
            low = CACHE_TARGET_ALONE if concurrency == 1 else CACHE_TARGET
            name = f"simple, {protocol}, concurrency {concurrency}"
            row(report, name, [(one[0], one[-1]) for one in figures], low=low)
            changes.append((name, [(one[0], one[1]) for one in figures]))
        statistics_of: Any = triton.request("v2/models/simple/stats")["model_stats"]
        times = statistics_of[0]["inference_stats"]
        if times["cache_hit"]["count"] < 100 * times["compute_infer"]["count"]:
            raise PeerError(
                f"Triton executed {times['compute_infer']['count']:,} requests, and answered only {times['cache_hit']['count']:,} from its cache"
            )
        if before is not None:
            report.section("The same loads on the bundled server before, in the same rounds, requests per second")
            report.table("load", ">now", ">before", *RATIO_COLUMNS)
            for name, pairs in changes:
                row(report, name, pairs)


@contextlib.contextmanager
def densenet_server(cpus: Sequence[int]) -> Iterator[RunningServer]:
    """A server with both DenseNet models on the first CPU; the block runs on the others."""
    with contextlib.ExitStack() as stack:
        with on_cpus(cpus[:1]):
            server = stack.enter_context(running_server("--threads=1", "--device=cpu", "--model", "densenet_onnx", "densenet_batch"))
        stack.enter_context(on_cpus(cpus[1:] or cpus))
        yield server


def measure_densenet(report: Report, rounds: int, seconds: float, cpus: Sequence[int]) -> None:
    """DenseNet-121 at saturation, with one request executing and one queued, compared with direct calls."""
    with densenet_server(cpus) as server:
        for protocol in ("http", "grpc"):
            for model, size in [("densenet_onnx", 1), *(("densenet_batch", size) for size in BATCH_SIZES)]:
                length_s = seconds * (1 if size < 4 else 2)
                own = functools.partial(perfkit_per_s, server.url(protocol), model, 2, length_s, size)
                direct = functools.partial(direct_per_s, model, size, length_s, cpus[0])
                row(report, f"{model}, {protocol}, batch {size}", measure_pairs(own, direct, rounds), low=DIRECT_TARGET)


def measure_batching(report: Report, rounds: int, seconds: float, cpus: Sequence[int]) -> None:
    """Single images that the server batches, compared with the same images one by one."""
    with densenet_server(cpus) as server:
        for concurrency in CONCURRENCIES:
            length_s = seconds * (1 if concurrency < 8 else 2)
            batched, single = (
                functools.partial(perfkit_per_s, server.url(), model, concurrency, length_s)
                for model in ("densenet_batch", "densenet_onnx")
            )
            row(report, f"concurrency {concurrency}", measure_pairs(batched, single, rounds), low=BATCHING_TARGET)


def main() -> int:
    """Prints the tables; the exit code is 1 if a target is missed."""
    options = program_options(
        __doc__,
        rounds=3,
        seconds=(3.0, "length of a run; large batches take twice as long"),
        parts=([*TITLES], "what is measured"),
        peers=peers_folder(),
        before=BEFORE_OPTION,
    )
    cpus = sorted(os.sched_getaffinity(0))
    parts: dict[str, Callable[..., None]] = {
        "triton": functools.partial(measure_beside_triton, folder=options.peers),
        "cache": functools.partial(measure_beside_cache, folder=options.peers, before=options.before),
        "densenet": measure_densenet,
        "batching": measure_batching,
    }
    report = Report(options.out, "Throughput of the bundled server")
    report.add(
        "Compared with NVIDIA's Triton, whose models here are those of its Python backend, and with ONNX Runtime called directly.",
        "Consecutive runs are compared, so only the ratios are meaningful: absolute figures depend on the machine. *Separate CPUs*:",
        "the server on the first CPU, the client on the others; *shared CPUs*: both on all of them.",
        "",
        f"{describe_machine()} {rounds_text(options.rounds)}, runs of at least {options.seconds:g} s.",
    )
    try:
        for part in options.parts:
            title, columns = TITLES[part]
            report.section(title)
            report.table("load", *(f">{column}" for column in columns), *RATIO_COLUMNS)
            parts[part](report, rounds=options.rounds, seconds=options.seconds, cpus=cpus)
    except (PeerError, ClientError, OSError) as error:
        sys.exit(f"server_throughput: {error}")
    return report.write()


if __name__ == "__main__":
    sys.exit(main())
