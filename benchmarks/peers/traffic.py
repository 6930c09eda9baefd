"""Streams and other kinds of traffic: perfkit beside perf_analyzer on the same Triton, in the same minutes.

    python -m benchmarks.peers.traffic [--case stream-1 …] [--rounds 5] [--seconds 6] [--seed 0]
                                       [--peers FOLDER] [--out reports/traffic-peers.md]

One Triton serves the models of `triton_traffic_models`. In every round both clients run one after the other, in random order; each
runs for a third of `--seconds`, and then for all of them. Throughput and p50 are those that the long run reports. The cost of a request
is the slope between the two runs: CPU seconds, user and system, of the client and all processes that it started, divided by the
requests that Triton counted. Ratios are taken within a round; their medians over the rounds are compared with the targets, and the
exit code is 1 if one is missed. README.md beside this file says how to install the peers.
"""

import argparse
import dataclasses
import functools
import json
import os
import pathlib
import random
import statistics
import sys
import tempfile
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from benchmarks.peers.clients import ClientError, Reported, read_perf_analyzer, run_own, run_windows
from benchmarks.peers.install import perf_analyzer_path
from benchmarks.peers.rounds import comparison_options, cpu_us_per_request, in_rounds, retry_hung
from benchmarks.peers.server_process import PeerError
from benchmarks.peers.triton import TRAFFIC_MODELS, Triton, running_triton
from benchmarks.processes import THIS
from benchmarks.report import RATIO_COLUMNS, Ratio, Report, describe_machine, rounds_text

OWN, ANALYZER = "perfkit", "perf_analyzer"
MIN_THROUGHPUT, MAX_P50, MAX_CPU = 0.95, 1.05, 1.0

HOW_TO_READ = """\
perf_analyzer and perfkit send the same requests to the same models of the same Triton on the loopback, one client after the other.
**Only the ratios are meaningful**: absolute figures depend on the machine, its kernel and other programs, but affect both clients alike.

- *throughput*, *p50*: as the client reports them; of a stream, p50 is the median time to the last response.
- *CPU per request*: user and system time of the client's processes, the slope between a short and a long run, by Triton's count of requests.
- *perfkit / perf_analyzer*: the median of the rounds' ratios, with the lowest and the highest round.
"""


class Case(NamedTuple):
    """A kind of traffic, as both clients express it."""

    title: str
    model: str
    concurrency: int
    scenario: Mapping[str, Any]
    """The sections of perfkit's scenario besides `target`, `load` and `measure`."""
    analyzer: Sequence[str]
    """perf_analyzer's options besides the model, the URL, the concurrency and the windows."""
    data: Mapping[str, Any] | None = None
    """The document of perf_analyzer's `--input-data`."""
    protocol: str = "grpc"
    target: Mapping[str, Any] = {}
    """Further keys of the scenario's `target`."""


def _repeat(responses: int, concurrency: int) -> Case:
    """Streams with that many responses each, all at once."""
    values: dict[str, list[int]] = {"IN": list(range(responses)), "DELAY": [0] * responses, "WAIT": [0]}
    return Case(
        f"streams, {responses} response{'s' * (responses > 1)} each",
        "repeat_int32",
        concurrency,
        # perf_analyzer keeps its streams open
        {"workload": {"inputs": {name: {"value": value} for name, value in values.items()}}, "stream": {"requests_per_stream": 1_000_000}},
        ("--streaming",),
        {"data": [{name: {"content": value, "shape": [len(value)]} for name, value in values.items()}]},
        target={"streams_per_connection": concurrency},  # perf_analyzer's streams share connections
    )


def _shared_memory(protocol: str, concurrency: int) -> Case:
    """64 KiB of inputs and of outputs in system shared memory."""
    scenario = {"workload": {"inputs": {"INPUT0": {"generate": "random", "shape": [32768]}}, "variants": 1}, "shared_memory": "system"}
    options = ("--shape", "INPUT0:32768", "--shared-memory", "system")
    return Case("64 KiB there and back in system shared memory", "identity_fp16", concurrency, scenario, options, protocol=protocol)


def _sequences(protocol: str, concurrency: int, *, is_streamed: bool = False) -> Case:
    """Sequences of 20 steps, one of which is in flight at a time."""
    return Case(
        f"sequences of 20 steps{', on streams' if is_streamed else ''}",
        "sequence_sum",
        concurrency,
        {
            "workload": {"inputs": {"INPUT": {"generate": "zeros"}}},
            "sequences": {"length": 20},
            **({"stream": {"requests_per_stream": 1_000_000}} if is_streamed else {}),
        },
        (
            "--input-data", "zero", "--sequence-length", "20", "--sequence-length-variation", "0",
            *(["--streaming"] if is_streamed else []),
        ),
        protocol=protocol,
    )  # fmt: skip


CASES = {
    "stream-1": _repeat(1, 1),
    "stream-1-c8": _repeat(1, 8),
    "stream-10": _repeat(10, 1),
    "stream-10-c8": _repeat(10, 8),
    "shm-http": _shared_memory("http", 1),
    "shm-http-c4": _shared_memory("http", 4),
    "shm-grpc": _shared_memory("grpc", 1),
    "shm-grpc-c4": _shared_memory("grpc", 4),
    "sequence-http": _sequences("http", 1),
    "sequence-http-c8": _sequences("http", 8),
    "sequence-grpc": _sequences("grpc", 1),
    "sequence-grpc-c8": _sequences("grpc", 8),
    "sequence-stream-c8": _sequences("grpc", 8, is_streamed=True),
}


class Figures(NamedTuple):
    """One client in one round."""

    per_s: float
    p50_us: float
    cpu_us: float
    """Per request."""


def run_perf_analyzer(program: pathlib.Path, case: Case, triton: Triton, seconds: float, folder: pathlib.Path) -> Reported:
    """perf_analyzer for about that long; raises ClientError."""
    address = triton.url(case.protocol).partition("://")[2]
    options = ["-m", case.model, "-i", case.protocol, "-u", address, "--concurrency-range", str(case.concurrency), *case.analyzer]
    if case.data is not None:
        data = folder / "data.json"
        data.write_text(json.dumps(case.data), encoding="utf-8")
        options += ["--input-data", str(data)]
    before = counted_requests(triton, case.model)
    reported = read_perf_analyzer(run_windows([str(program), *options], seconds))
    return dataclasses.replace(reported, requests=counted_requests(triton, case.model) - before)


def run_perfkit(case: Case, triton: Triton, seconds: float, folder: pathlib.Path) -> Reported:
    """`perfkit run` with one closed loop; raises ClientError."""
    scenario = {
        "name": "traffic",
        "target": {"url": triton.url(case.protocol), "model": case.model, **case.target},
        **case.scenario,
        "load": {"closed": {"concurrency": [case.concurrency]}},
        "measure": {"warmup": "0s", "duration": f"{seconds}s", "repetitions": 1, "workers": 1},
    }
    before = counted_requests(triton, case.model)
    _, point, usage = run_own(THIS, scenario, folder, seconds)
    sent = counted_requests(triton, case.model) - before
    return Reported(sent, point["throughput_per_s"], point["service_time_ns"]["p50"] / 1e3, usage)


def counted_requests(triton: Triton, model: str) -> int:
    """The requests to a model so far, as Triton counts them."""
    statistics_of: Any = triton.request(f"v2/models/{model}/stats")
    return sum(int(one["inference_stats"]["success"]["count"]) for one in statistics_of["model_stats"])


def ratios_of(rounds: Mapping[str, Sequence[Figures]]) -> list[Ratio]:
    """The ratios of perfkit's figures to perf_analyzer's, each with its target."""
    pairs = list(zip(rounds[OWN], rounds[ANALYZER], strict=True))
    return [
        Ratio("throughput", tuple(own.per_s / peer.per_s for own, peer in pairs), low=MIN_THROUGHPUT),
        Ratio("p50", tuple(own.p50_us / peer.p50_us for own, peer in pairs), high=MAX_P50),
        Ratio("CPU per request", tuple(own.cpu_us / peer.cpu_us for own, peer in pairs), high=MAX_CPU),
    ]


def run_case(case: Case, triton: Triton, options: argparse.Namespace, order: random.Random) -> dict[str, list[Figures]]:
    """All rounds of a case; raises ClientError or PeerError."""
    analyzer = perf_analyzer_path(options.peers)
    with tempfile.TemporaryDirectory(prefix="perfkit-traffic-") as name:
        folder = pathlib.Path(name)

        def figures(client: str) -> Figures:
            short, long = (
                run_perfkit(case, triton, seconds, folder)
                if client == OWN
                else retry_hung(functools.partial(run_perf_analyzer, analyzer, case, triton, seconds, folder))
                for seconds in (options.seconds / 3, options.seconds)
            )
            return Figures(long.per_s, long.p50_us, cpu_us_per_request(client, short, long))

        return in_rounds({client: functools.partial(figures, client) for client in (ANALYZER, OWN)}, options.rounds, order)


def main() -> int:
    """Prints the tables; the exit code is 1 if a target is missed or a client failed."""
    options = comparison_options(__doc__, CASES, seconds=(6.0, "length of a client's long run"))
    report, order = Report(options.out, "Streams, sequences and shared memory: perfkit beside perf_analyzer"), random.Random(options.seed)
    try:
        with running_triton(options.peers, models=TRAFFIC_MODELS) as triton:
            report.add(
                HOW_TO_READ,
                f"Triton {triton.version}, {os.cpu_count()} CPUs shared by server and clients. {describe_machine()} {rounds_text(options.rounds)}, long runs of "
                f"{options.seconds:g} s.",
                "",
            )
            report.table("case", "protocol", ">concurrency", "client", ">throughput", ">p50", ">CPU per request")
            found = {}
            for name in options.case:
                case = CASES[name]
                found[name] = run_case(case, triton, options, order)
                for client, rounds in found[name].items():
                    per_s, p50_us, cpu_us = (statistics.median(column) for column in zip(*rounds, strict=True))
                    cells = (client, f"{per_s:,.0f}/s", f"{p50_us:,.0f} us", f"{cpu_us:,.0f} us")
                    report.row(f"`{name}`: {case.title}", case.protocol, case.concurrency, *cells)
    except (ClientError, PeerError, FileNotFoundError) as error:
        sys.exit(f"traffic: {error}")
    report.add("")
    report.table("case", "perfkit / perf_analyzer", *RATIO_COLUMNS)
    for name, of_case in found.items():
        for ratio in ratios_of(of_case):
            report.is_met &= ratio.is_met
            report.row(f"`{name}`", ratio.name, *ratio.cells)
    return report.write()


if __name__ == "__main__":
    sys.exit(main())
