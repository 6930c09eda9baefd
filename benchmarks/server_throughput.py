"""Throughput of the bundled server, compared with a real Triton on `simple` and with ONNX Runtime on DenseNet-121.

    python -m benchmarks.server_throughput [--rounds 2] [--seconds 3] [--parts simple densenet batching] [--peers FOLDER]
                                           [--out reports/server-throughput.md]

`simple`: both servers run, and perf_analyzer and perfkit load them in turn at concurrency 8, with server and client on separate
CPUs, and with both on all CPUs. DenseNet-121 with one thread: the server and the direct calls use the same CPU in turn, the
client another. Ratios are taken within a round; their medians are compared with the targets, and the exit code is 1 if one is
missed.
"""

import contextlib
import functools
import os
import pathlib
import random
import statistics
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from benchmarks.onnx_directly import call_directly
from benchmarks.peers.clients import ClientError, measure_perf_analyzer, measure_perfkit
from benchmarks.peers.install import peers_folder, perf_analyzer_path
from benchmarks.peers.server_process import PeerError
from benchmarks.peers.triton import running_triton
from benchmarks.processes import RunningServer, on_cpus, running_server
from benchmarks.report import RATIO_COLUMNS, Ratio, describe_machine, option_parser, table_head, table_row, write_report

CONCURRENCY = 8
TARGETS = {"http": 1.0, "grpc": 0.6}
DIRECT_TARGET, BATCHING_TARGET = 0.95, 0.97
BATCH_SIZES, CONCURRENCIES = (1, 2, 4, 8), (2, 4, 8, 16)
TITLES = {
    "simple": ("`simple` at concurrency 8, requests per second", ("bundled server", "Triton")),
    "densenet": ("DenseNet-121 at saturation, images per second", ("bundled server", "ONNX Runtime directly")),
    "batching": ("Dynamic batching of single images, images per second", ("`densenet_batch`", "`densenet_onnx`, one by one")),
}


class Row(NamedTuple):
    """A load, the median throughput of the server and of its reference, and their ratio."""

    own_per_s: float
    reference_per_s: float
    ratio: Ratio

    def line(self) -> str:
        """The row as Markdown."""
        return table_row(self.ratio.name, f"{self.own_per_s:,.1f}", f"{self.reference_per_s:,.1f}", *self.ratio.cells)


def perfkit_per_s(url: str, model: str, concurrency: int, seconds: float, batch_size: int = 1) -> float:
    """Batch rows per second, by perfkit."""
    return batch_size * measure_perfkit(url, model, concurrency=concurrency, seconds=seconds, batch_size=batch_size).per_s


def perf_analyzer_per_s(program: pathlib.Path, url: str, seconds: float) -> float:
    """Inferences of `simple` per second, by perf_analyzer."""
    return measure_perf_analyzer(program, url, "simple", concurrency=CONCURRENCY, seconds=seconds).per_s


def direct_per_s(model: str, batch_size: int, seconds: float, cpu: int) -> float:
    """Images per second of ONNX Runtime called directly on the server's CPU."""
    with on_cpus([cpu]):  # this process runs on the client's CPUs
        return batch_size * call_directly(model, batch_size=batch_size, seconds=seconds, cpus=str(cpu)).per_s


def compare(name: str, own: Callable[[], float], reference: Callable[[], float], rounds: int, target: float) -> Row:
    """Measures both in every round, in random order."""
    figures: dict[str, list[float]] = {"own": [], "reference": []}
    for _ in range(rounds):
        order = [("own", own), ("reference", reference)]
        random.shuffle(order)
        for key, measure in order:
            figures[key].append(measure())
    values = tuple(one / other for one, other in zip(figures["own"], figures["reference"], strict=True))
    row = Row(statistics.median(figures["own"]), statistics.median(figures["reference"]), Ratio(name, values, low=target))
    print(row.line(), flush=True)
    return row


def measure_simple(folder: pathlib.Path | None, rounds: int, seconds: float, cpus: Sequence[int]) -> Iterator[Row]:
    """`simple`, compared with Triton."""
    layouts = {"shared CPUs": (cpus, cpus)}
    if len(cpus) > 1:
        layouts = {"separate CPUs": (cpus[:1], cpus[1:]), **layouts}
    for layout, (server_cpus, client_cpus) in layouts.items():
        with contextlib.ExitStack() as stack:
            with on_cpus(server_cpus):
                triton = stack.enter_context(running_triton(peers_folder(folder)))
                server = stack.enter_context(running_server("--threads=1", "--device=cpu", "--model=simple"))
            stack.enter_context(on_cpus(client_cpus))
            for protocol, target in TARGETS.items():
                urls = server.url(protocol), triton.url(protocol)
                clients: dict[str, Callable[[str], float]] = {
                    "perf_analyzer": lambda url: perf_analyzer_per_s(perf_analyzer_path(folder), url, seconds),
                    "perfkit": lambda url: perfkit_per_s(url, "simple", CONCURRENCY, seconds),
                }
                for client, measure in clients.items():
                    own, reference = (functools.partial(measure, url) for url in urls)
                    yield compare(f"{protocol}, {client}, {layout}", own, reference, rounds, target)


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
            cases = [("densenet_onnx", 1), *(("densenet_batch", size) for size in BATCH_SIZES if protocol == "http")]
            for model, size in cases:
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
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=3, help="length of a run; large batches take twice as long (default %(default)s)")
    parser.add_argument("--parts", nargs="+", choices=TITLES, default=list(TITLES))
    parser.add_argument("--peers", type=pathlib.Path, help="folder of the peers")
    options = parser.parse_args()
    cpus = sorted(os.sched_getaffinity(0))
    parts = {
        "simple": lambda: measure_simple(options.peers, options.rounds, options.seconds, cpus),
        "densenet": lambda: measure_densenet(options.rounds, options.seconds, cpus),
        "batching": lambda: measure_batching(options.rounds, options.seconds, cpus),
    }
    lines = [
        "# Throughput of the bundled server",
        "",
        "Compared with NVIDIA's Triton, whose `simple` is a model of its Python backend, and with ONNX Runtime called directly.",
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
