"""Throughput of the bundled server, compared with a real Triton on small and large requests and with ONNX Runtime on DenseNet-121.

    python -m benchmarks.server_throughput [--rounds 3] [--seconds 3] [--parts triton densenet batching] [--peers FOLDER]
                                           [--out reports/server-throughput.md]

`triton`: both servers run, and perfkit loads them in turn, with `simple` (128 B a request) and with an identity of
602 kB, at concurrency 1, 8 and 32, with server and client on separate CPUs; at concurrency 8 also with both on all CPUs, and
with perf_analyzer as the client. DenseNet-121 with one thread: the server and the direct calls use the same CPU in turn, the
client another. Ratios are taken within a round; their medians are compared with the targets, and the exit code is 1 if one is
missed.
"""

import contextlib
import functools
import itertools
import os
import pathlib
import random
import statistics
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple, TypeVar

from benchmarks.onnx_directly import call_directly
from benchmarks.peers.clients import ClientError, Speed, measure_perf_analyzer, measure_perfkit
from benchmarks.peers.install import peers_folder, perf_analyzer_path
from benchmarks.peers.server_process import PeerError
from benchmarks.peers.triton import running_triton
from benchmarks.processes import RunningServer, on_cpus, running_server
from benchmarks.report import RATIO_COLUMNS, Ratio, describe_machine, option_parser, table_head, table_row, write_report

_Figure = TypeVar("_Figure")
LOADS = (("simple", None), ("identity_int64", 75_264))
"""Models with the number of elements of an input, None if the model says it: requests of 128 B and of 602,112 B."""
LOAD_CONCURRENCIES, SHARED_CONCURRENCY = (1, 8, 32), 8
TRITON_TARGET, P50_TARGET = 1.0, 1.0
DIRECT_TARGET, BATCHING_TARGET = 0.97, 0.97
BATCH_SIZES, CONCURRENCIES = (1, 8), (2, 4, 8, 16)
TITLES = {
    "triton": ("Beside Triton, requests per second, or microseconds for p50", ("bundled server", "Triton")),
    "densenet": ("DenseNet-121 at saturation, images per second", ("bundled server", "ONNX Runtime directly")),
    "batching": ("Dynamic batching of single images, images per second", ("`densenet_batch`", "`densenet_onnx`, one by one")),
}


class Row(NamedTuple):
    """A load, the median figures of the server and of its reference, and their ratio."""

    own: float
    reference: float
    ratio: Ratio

    def line(self) -> str:
        """The row as Markdown."""
        return table_row(self.ratio.name, f"{self.own:,.1f}", f"{self.reference:,.1f}", *self.ratio.cells)


def perfkit_speed(url: str, model: str, elements: int | None, concurrency: int, seconds: float) -> Speed:
    """Requests per second and their median time, by perfkit; `elements` is the length of the input INPUT0."""
    inputs = None if elements is None else {"INPUT0": {"generate": "random", "shape": [elements]}}
    return measure_perfkit(url, model, concurrency=concurrency, seconds=seconds, inputs=inputs)


def perfkit_per_s(url: str, model: str, concurrency: int, seconds: float, batch_size: int = 1) -> float:
    """Batch rows per second of a closed loop, by perfkit: concurrency ÷ mean time, since a window holds too few of such slow requests to count."""
    speed = measure_perfkit(url, model, concurrency=concurrency, seconds=seconds, batch_size=batch_size)
    return batch_size * concurrency * 1e6 / speed.mean_us


def direct_per_s(model: str, batch_size: int, seconds: float, cpu: int) -> float:
    """Images per second of ONNX Runtime called directly on the server's CPU."""
    with on_cpus([cpu]):  # this process runs on the client's CPUs
        return batch_size * call_directly(model, batch_size=batch_size, seconds=seconds, cpus=str(cpu)).per_s


def measure_pairs(own: Callable[[], _Figure], reference: Callable[[], _Figure], rounds: int) -> list[tuple[_Figure, _Figure]]:
    """The figures of both in every round, measured in random order."""
    pairs = []
    for _ in range(rounds):
        if random.random() < 0.5:
            first = own()
            pairs.append((first, reference()))
        else:
            second = reference()
            pairs.append((own(), second))
    return pairs


def make_row(name: str, pairs: Sequence[tuple[float, float]], *, low: float | None = None, high: float | None = None) -> Row:
    """The medians, and the ratios within the rounds."""
    ratios = tuple(own / reference for own, reference in pairs)
    row = Row(statistics.median(own for own, _ in pairs), statistics.median(other for _, other in pairs), Ratio(name, ratios, low, high))
    print(row.line(), flush=True)
    return row


def compare(name: str, own: Callable[[], float], reference: Callable[[], float], rounds: int, target: float) -> Row:
    """Measures both in every round, and compares the medians with a target."""
    return make_row(name, measure_pairs(own, reference, rounds), low=target)


def measure_beside_triton(folder: pathlib.Path | None, rounds: int, seconds: float, cpus: Sequence[int]) -> Iterator[Row]:
    """Small and large requests, compared with Triton."""
    layouts = {"shared CPUs": (cpus, cpus)}
    if len(cpus) > 1:
        layouts = {"separate CPUs": (cpus[:1], cpus[1:]), **layouts}
    for layout, (server_cpus, client_cpus) in layouts.items():
        with contextlib.ExitStack() as stack:
            with on_cpus(server_cpus):
                triton = stack.enter_context(running_triton(peers_folder(folder)))
                models = [model for model, _ in LOADS]
                server = stack.enter_context(running_server("--threads=1", "--device=cpu", "--model", *models))
            stack.enter_context(on_cpus(client_cpus))
            for protocol, (model, elements) in itertools.product(("http", "grpc"), LOADS):
                urls = server.url(protocol), triton.url(protocol)
                for concurrency in LOAD_CONCURRENCIES if layout == "separate CPUs" else (SHARED_CONCURRENCY,):
                    own, reference = (functools.partial(perfkit_speed, url, model, elements, concurrency, seconds) for url in urls)
                    pairs = measure_pairs(own, reference, rounds)
                    name = f"{model}, {protocol}, concurrency {concurrency}, {layout}"
                    yield make_row(name, [(one.per_s, other.per_s) for one, other in pairs], low=TRITON_TARGET)
                    if concurrency == 1:
                        yield make_row(f"{name}: p50", [(one.p50_us, other.p50_us) for one, other in pairs], high=P50_TARGET)
                if elements is None:
                    speed = functools.partial(
                        measure_perf_analyzer, perf_analyzer_path(folder), model=model, concurrency=SHARED_CONCURRENCY, seconds=seconds
                    )
                    pairs = measure_pairs(functools.partial(speed, urls[0]), functools.partial(speed, urls[1]), rounds)
                    name = f"{model}, {protocol}, concurrency {SHARED_CONCURRENCY}, {layout}, perf_analyzer"
                    yield make_row(name, [(one.per_s, other.per_s) for one, other in pairs], low=TRITON_TARGET)


@contextlib.contextmanager
def densenet_server(cpus: Sequence[int]) -> Iterator[RunningServer]:
    """A server with both DenseNet models on the first CPU; the block runs on the others."""
    with contextlib.ExitStack() as stack:
        with on_cpus(cpus[:1]):
            server = stack.enter_context(running_server("--threads=1", "--device=cpu", "--model", "densenet_onnx", "densenet_batch"))
        stack.enter_context(on_cpus(cpus[1:] or cpus))
        yield server


def measure_densenet(rounds: int, seconds: float, cpus: Sequence[int]) -> Iterator[Row]:
    """DenseNet-121 at saturation, with one request executing and one queued, compared with direct calls."""
    with densenet_server(cpus) as server:
        for protocol in ("http", "grpc"):
            for model, size in [("densenet_onnx", 1), *(("densenet_batch", size) for size in BATCH_SIZES)]:
                length_s = seconds * (1 if size < 4 else 2)
                own = functools.partial(perfkit_per_s, server.url(protocol), model, 2, length_s, size)
                direct = functools.partial(direct_per_s, model, size, length_s, cpus[0])
                yield compare(f"{model}, {protocol}, batch {size}", own, direct, rounds, DIRECT_TARGET)


def measure_batching(rounds: int, seconds: float, cpus: Sequence[int]) -> Iterator[Row]:
    """Single images that the server batches, compared with the same images one by one."""
    with densenet_server(cpus) as server:
        for concurrency in CONCURRENCIES:
            length_s = seconds * (1 if concurrency < 8 else 2)
            batched, single = (
                functools.partial(perfkit_per_s, server.url(), model, concurrency, length_s)
                for model in ("densenet_batch", "densenet_onnx")
            )
            yield compare(f"concurrency {concurrency}", batched, single, rounds, BATCHING_TARGET)


def main() -> int:
    """Prints the tables; the exit code is 1 if a target is missed."""
    parser = option_parser(__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=3, help="length of a run; large batches take twice as long (default %(default)s)")
    parser.add_argument("--parts", nargs="+", choices=TITLES, default=list(TITLES))
    parser.add_argument("--peers", type=pathlib.Path, help="folder of the peers")
    options = parser.parse_args()
    cpus = sorted(os.sched_getaffinity(0))
    parts = {
        "triton": lambda: measure_beside_triton(options.peers, options.rounds, options.seconds, cpus),
        "densenet": lambda: measure_densenet(options.rounds, options.seconds, cpus),
        "batching": lambda: measure_batching(options.rounds, options.seconds, cpus),
    }
    lines = [
        "# Throughput of the bundled server",
        "",
        "Compared with NVIDIA's Triton, whose models here are those of its Python backend, and with ONNX Runtime called directly.",
        "Consecutive runs are compared, so only the ratios are meaningful: absolute figures depend on the machine. *Separate CPUs*:",
        "the server on the first CPU, the client on the others; *shared CPUs*: both on all of them.",
        "",
        f"{describe_machine()} {options.rounds} rounds, runs of at least {options.seconds:g} s.",
    ]
    all_met = True
    try:
        for part in options.parts:
            title, columns = TITLES[part]
            head = ["", f"## {title}", "", *table_head("load", *(f">{column}" for column in columns), *RATIO_COLUMNS)]
            print("\n".join(head), flush=True)
            rows = list(parts[part]())
            lines += [*head, *(row.line() for row in rows)]
            all_met = all_met and all(row.ratio.is_met for row in rows)
    except (PeerError, ClientError, OSError) as error:
        sys.stderr.write(f"server_throughput: {error}\n")
        return 1
    write_report(options.out, lines)
    return 0 if all_met else 1


if __name__ == "__main__":
    sys.exit(main())
