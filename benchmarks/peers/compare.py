"""The cost of a request for perfkit, wrk, h2load and perf_analyzer, on servers that answer from a file.

    python -m benchmarks.peers.compare [--case http-small …] [--rounds 5] [--seconds 12] [--before CHECKOUT] [--instructions 0]
                                       [--seed 0] [--without-analyzer] [--hey hey] [--autocannon PATH] [--locust PATH] [--out reports/peers.md]

In every round the clients run one after another: perf_analyzer, then perfkit and its nearest peer in random order, so that both
see the same state of the machine; and between them the perfkit of another checkout, where `--before` names one. Each runs for a sixth of `--seconds`, then for all of them, then at concurrency 1 for a
quarter. perf_analyzer takes most of the time, and can be left out; hey (Debian), autocannon (npm) and locust (PyPI) take part over HTTP
where their programs are given. The cost of a request is the slope between the short and the long run: CPU seconds, user and system, of the client and
all processes that it started. So start-up and reports do not count. Ratios are taken within a round; their medians over the
rounds are compared with the targets, and the exit code is 1 if one is missed. With `--instructions` the instructions of a request are counted as
often, on another CPU than the server's, for perfkit and its nearest peer (`instructions.py`). README.md beside this file says how to install
the peers.
"""

import argparse
import contextlib
import functools
import math
import os
import pathlib
import random
import statistics
import sys
import tempfile
from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

from benchmarks.peers.canned import serving
from benchmarks.peers.clients import Client, ClientError, Load, run_closed_loop, run_h2load, run_perf_analyzer, run_wrk
from benchmarks.peers.http_clients import FURTHER
from benchmarks.peers.install import perf_analyzer_path
from benchmarks.peers.instructions import PerRequest, count_peer, count_perfkit
from benchmarks.peers.rounds import comparison_options, cpu_us_per_request, retry_hung
from benchmarks.peers.server_process import PeerError
from benchmarks.processes import BEFORE, BEFORE_OPTION, OWN, THIS, on_cpus
from benchmarks.report import RATIO_COLUMNS, Ratio, Report, describe_machine, rounds_text

ANALYZER = "perf_analyzer"
MAX_MEMORY_MIB, P50_FROM, P50_TO = 200, 0.9, 1.1
SMALL, LARGE = 16, 75_264  # INT32 per input: requests of 128 B and of 602,112 B, which is DenseNet's 3 x 224 x 224 in FP32

HOW_TO_READ = """\
Every client sends the same request to the same canned servers (nginx, nghttpd) on the loopback. The servers do no work, so the
figures show the client. **Only the ratios are meaningful**: absolute figures depend on the machine, its kernel and other
programs, but affect all clients alike, and the ratios compare consecutive runs. Server and clients have separate CPUs, because a
round trip within one CPU takes half as long as between two.

- *CPU per request*: user and system time of the client's processes, the slope between a short and a long run.
- *p50 at concurrency 1*: the median time of a request that the client itself reports.
- *perfkit / peer*: the median of the rounds' ratios, with the lowest and the highest round.
- Against such a server perfkit keeps its core busy all the time. It then reports its own run as invalid (`generator_bound`, exit
  code 5), because the throughput is the client's, not the server's. The comparison expects that.
- nghttpd's own windows of 64 KiB stop a large gRPC request until it renews them, every 33 to 41 kB. With open windows, of 16 MiB, it is
  written as a whole.
- *Steal* is the time for which the hypervisor gave the machine's CPUs to others, as `/proc/stat` has it.
- *Instructions per request* and *system calls* are counted by callgrind, in user space, of perfkit in the worker alone. Under it a client is so
  slow that what it does once a second is left out, and answers come one by one, so that calls are the most that a request takes; a reading of the clock is one of them there.
- perf_analyzer gets a number of requests instead of seconds, since it keeps a copy of each. It checks once a second whether
  they are done, so its throughput is too low and no ratio uses it.
"""


class Case(NamedTuple):
    """A load, the peer with the lowest cost, and the largest allowed ratio of perfkit's cost to each client's."""

    protocol: Literal["http", "grpc"]
    elements: int
    concurrency: int
    peer: str
    max_ratio: Mapping[str, float]
    analyzer_per_s: int
    """Requests for perf_analyzer per second of the run: about as many as it can send; fewer large ones, since it keeps copies."""
    window_bits: int | None = None
    """The server's HTTP/2 windows hold 2^bits - 1 bytes; None: nghttpd's own, 65,535."""


CASES = {
    "http-small": Case("http", SMALL, 16, "wrk", {"wrk": 1.2, ANALYZER: 1 / 4}, 8000),
    "http-large": Case("http", LARGE, 8, "wrk", {"wrk": 1.1, ANALYZER: 1 / 20}, 150),
    "grpc-small": Case("grpc", SMALL, 16, "h2load", {"h2load": 1.2, ANALYZER: 1 / 3}, 8000),
    "grpc-large": Case("grpc", LARGE, 8, "h2load", {"h2load": 0.6, ANALYZER: 1 / 8}, 150),
    "grpc-large-open-windows": Case("grpc", LARGE, 8, "h2load", {"h2load": 0.6, ANALYZER: 1 / 8}, 150, window_bits=24),
}


class Figures(NamedTuple):
    """One client in one round."""

    cpu_us: float
    """Per request."""
    per_s: float
    p50_us: float
    peak_mib: float


class Measured(NamedTuple):
    """A case: by client the figures of the rounds and the counts of instructions, with the state of the machine."""

    rounds: Mapping[str, Sequence[Figures]]
    loads: Sequence[float]
    """The load averages at the ends of the rounds."""
    steal: float
    """The stolen share of the CPUs' time in the rounds."""
    counts: Mapping[str, Sequence[PerRequest]]
    """Empty if none were asked for."""


def loads(case: Case, port: int, seconds: float) -> tuple[Load, Load, Load]:
    """A client's loads in a round: short, long, and at concurrency 1."""

    def load(concurrency: int, length_s: float) -> Load:
        requests = max(1, round(case.analyzer_per_s * length_s * (1 if concurrency > 1 else 0.5)))
        return Load(case.protocol, case.elements, port, concurrency, length_s, requests)

    # far apart, because the 2.5 s of CPU that perfkit's start and report take vary
    return load(case.concurrency, max(1, seconds // 6)), load(case.concurrency, seconds), load(1, max(1, seconds // 4))


def ratios_of(case: Case, rounds: Mapping[str, Sequence[Figures]]) -> list[Ratio]:
    """The ratios, each with its target."""
    ratios = []
    compared = [(OWN, name) for name in rounds if name != OWN]
    if BEFORE in rounds:
        compared.append((BEFORE, case.peer))
    for first, name in compared:
        max_ratio = case.max_ratio.get(name) if first == OWN else None
        pairs = list(zip(rounds[first], rounds[name], strict=True))
        names = f"{first} / {name}"
        ratios.append(Ratio(f"CPU per request, {names}", tuple(own.cpu_us / peer.cpu_us for own, peer in pairs), high=max_ratio))
        p50s = tuple(own.p50_us / peer.p50_us for own, peer in pairs)
        low, high = (P50_FROM, P50_TO) if (first, name) == (OWN, case.peer) else (None, None)
        if not math.isnan(p50s[0]):
            ratios.append(Ratio(f"p50 at concurrency 1, {names}", p50s, low, high))
        if name != ANALYZER:  # its throughput includes up to a second in which its requests are already done
            ratios.append(Ratio(f"throughput, {names}", tuple(own.per_s / peer.per_s for own, peer in pairs)))
    return ratios


def add_case(report: Report, name: str, case: Case, measured: Measured) -> None:
    """A case's part of the report."""
    rounds = measured.rounds
    report.section(f"{name}: {case.elements * 8:,} B per request, concurrency {case.concurrency}, {rounds_text(len(rounds[OWN]))}")
    low, high = min(measured.loads), max(measured.loads)
    report.add(f"Load average at the ends of the rounds {low:.1f} to {high:.1f}; steal {measured.steal:.1%} of the CPUs' time.", "")
    report.table("client", ">CPU per request", ">throughput", ">p50 at concurrency 1", ">peak memory")
    for client, of_client in rounds.items():
        cpu_us, per_s, p50_us, _ = (statistics.median(column) for column in zip(*of_client, strict=True))
        peak_mib = max(figures.peak_mib for figures in of_client)
        report.row(client, f"{cpu_us:.1f} us", f"{per_s:,.0f}/s", "–" if math.isnan(p50_us) else f"{p50_us:.0f} us", f"{peak_mib:.0f} MiB")
    report.add("")
    report.table("ratio", *RATIO_COLUMNS)
    for ratio in ratios_of(case, rounds):
        report.is_met &= ratio.is_met
        report.row(ratio.name, *ratio.cells)
    memory_mib = max(figures.peak_mib for figures in rounds[OWN])
    cells = ("perfkit's peak memory", f"{memory_mib:.0f} MiB", "", f"below {MAX_MEMORY_MIB} MiB")
    report.judged_row(memory_mib < MAX_MEMORY_MIB, *cells)
    if counts := measured.counts:
        report.add("")
        report.table("client", ">instructions per request", ">counts", f">ratio to {case.peer}", ">system calls")
        peer = statistics.median(count.instructions for count in counts[case.peer])
        for client, of_count in counts.items():
            instructions = [count.instructions for count in of_count]
            middle, calls = statistics.median(instructions), statistics.median(count.calls for count in of_count)
            span = f"{min(instructions):,.0f} to {max(instructions):,.0f}"
            report.row(client, f"{middle:,.0f}", span, f"{middle / peer:.2f}", f"{calls:.2f}")


def run_case(case: Case, clients: Mapping[str, Client], options: argparse.Namespace, order: random.Random) -> Measured:
    """All rounds of a case, and its counts; raises ClientError or PeerError."""
    others = [] if options.without_analyzer else [ANALYZER]
    others += [name for name in FURTHER if name in clients and case.protocol == "http"]
    compared = [case.peer, *((BEFORE,) if BEFORE in clients else ()), OWN]
    rounds: dict[str, list[Figures]] = {name: [] for name in (*others, *compared)}
    counts: dict[str, list[PerRequest]] = {name: [] for name in compared} if options.instructions else {}
    averages, steal_before = list[float](), _cpu_times()
    http_port, grpc_port = (0, None) if case.protocol == "http" else (None, 0)
    cpus = sorted(os.sched_getaffinity(0))
    with (
        serving(http_port=http_port, grpc_port=grpc_port, window_bits=case.window_bits, cpus=cpus[:1]) as ports,
        tempfile.TemporaryDirectory(prefix="perfkit-compare-") as name,
        contextlib.ExitStack() as stack,
    ):
        port = ports.http or ports.grpc
        assert port is not None
        stack.enter_context(on_cpus(cpus[1:] or cpus))
        for number in range(options.rounds):
            names = [*others, *order.sample(compared, len(compared))]
            runs = [
                {client: retry_hung(functools.partial(clients[client], load, pathlib.Path(name))) for client in names}
                for load in loads(case, port, options.seconds)
            ]
            for client, of_client in rounds.items():
                short, long, alone = (run[client] for run in runs)
                of_client.append(Figures(cpu_us_per_request(client, short, long), long.per_s, alone.p50_us, long.usage.peak_mib))
                print(f"round {number + 1}, {client}: {of_client[-1]}", file=sys.stderr, flush=True)
            averages.append(os.getloadavg()[0])
        stolen, whole = (after - before for before, after in zip(steal_before, _cpu_times(), strict=True))
        for _ in range(options.instructions):
            load = Load(case.protocol, case.elements, port, case.concurrency, options.seconds, 1)
            for client, of_count in counts.items():
                of_count.append(_count(client, options, load, pathlib.Path(name)))
                print(f"{client}: {of_count[-1]}", file=sys.stderr, flush=True)
    return Measured(rounds, averages, stolen / max(whole, 1), counts)


def _count(client: str, options: argparse.Namespace, load: Load, folder: pathlib.Path) -> PerRequest:
    checkouts = {OWN: THIS, BEFORE: options.before}
    return count_perfkit(client, checkouts[client], load, folder) if client in checkouts else count_peer(client, load, folder)


def _cpu_times() -> tuple[int, int]:
    """The stolen and the whole time of all CPUs since the start of the machine, in ticks."""
    fields = pathlib.Path("/proc/stat").read_text(encoding="ascii").splitlines()[0].split()[1:9]  # guests' time is part of user time
    return int(fields[7]), sum(map(int, fields))


def _congestion_control() -> str:
    try:
        return pathlib.Path("/proc/sys/net/ipv4/tcp_congestion_control").read_text(encoding="ascii").strip()
    except OSError:
        return "not known"


def main() -> int:
    """Prints the tables; the exit code is 1 if a target is missed or a client failed."""
    options = comparison_options(
        __doc__,
        CASES,
        seconds=(12.0, "length of a client's long run"),
        before=BEFORE_OPTION,
        instructions=(0, "how often the instructions of a request are counted"),
        without_analyzer=(False, "compare with wrk and h2load alone"),
        hey=(str, "the program of hey, which takes part over HTTP"),
        autocannon=(str, "the program of autocannon, which takes part over HTTP"),
        locust=(str, "the program of locust, which takes part over HTTP"),
    )
    analyzer = functools.partial(run_perf_analyzer, perf_analyzer_path(options.peers))
    clients: dict[str, Client] = {
        "wrk": run_wrk,
        "h2load": run_h2load,
        ANALYZER: analyzer,
        OWN: functools.partial(run_closed_loop, THIS),
    }
    if options.before:
        clients[BEFORE] = functools.partial(run_closed_loop, options.before)
    programs = {name: getattr(options, name) for name in FURTHER}
    clients |= {name: functools.partial(run, programs[name]) for name, run in FURTHER.items() if programs[name]}
    report, order = Report(options.out, "The cost of a request: perfkit, wrk, h2load and perf_analyzer"), random.Random(options.seed)
    report.add(
        HOW_TO_READ,
        f"{describe_machine()} Congestion control of TCP, which shapes large transfers: {_congestion_control()}. {rounds_text(options.rounds)}, long runs of {options.seconds:g} s.",
    )
    try:
        for name in options.case:
            add_case(report, name, CASES[name], run_case(CASES[name], clients, options, order))
    except (ClientError, PeerError, FileNotFoundError) as error:
        sys.exit(f"compare: {error}")
    return report.write()


if __name__ == "__main__":
    sys.exit(main())
