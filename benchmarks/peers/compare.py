"""What a request costs perfkit, beside wrk, h2load and perf_analyzer, on servers that answer from a file.

    python -m benchmarks.peers.compare [--case http-small …] [--rounds 5] [--seconds 12] [--perfkit PATH]
                                       [--seed 0] [--out reports/peers.md]

In every round all clients are run one behind another, first for a sixth of the seconds, then for all of them, then at
concurrency 1 for a quarter: perf_analyzer, then perfkit and its nearest peer in random order, so that what else the machine
does is the same for both. What a request costs is the slope between the first two: CPU seconds, user and system, of the client
and all processes that it started, as the kernel tells them to who waits for it. So nobody's start or report is counted. Ratios
are taken within a round; their medians over the rounds are held against the targets, and the exit code is 1 where one is not
reached. README.md beside this file says how to install the peers.
"""

import argparse
import contextlib
import dataclasses
import os
import pathlib
import random
import signal
import statistics
import sys
import tempfile
from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

sys.path.insert(0, str(pathlib.Path(__file__).parents[2]))  # the tree that this file is in, installed or not
from benchmarks.peers.canned import CannedError, serving
from benchmarks.peers.clients import Client, ClientError, H2load, HungError, Load, PerfAnalyzer, Perfkit, Said, Wrk
from benchmarks.peers.install import peers_folder

OWN, ANALYZER = "perfkit", "perf_analyzer"
MOST_MEMORY_MIB, P50_FROM, P50_TO = 200, 0.9, 1.1
SMALL, LARGE = 16, 75_264  # INT32 an input: 128 B and 602,112 B a request, which is DenseNet's 3 x 224 x 224 in FP32

HOW_TO_READ = """\
Every client drives the same canned servers (nginx, nghttpd) on the loopback with the same request. They do nothing for a
request, so what is seen is the client. **Only the ratios mean something**: absolute figures move with the machine, its
kernel and whatever else runs on it, for all clients alike, and ratios are taken between runs that follow each other. Server and
clients have CPUs of their own, since a round trip on one CPU takes half as long as one between two.

- *CPU a request*: user and system time of the client's processes, the slope between a short and a long run.
- *p50 at concurrency 1*: what the client itself reports as the median time of a request, one after the other.
- *perfkit / peer*: the median of the rounds' ratios, and the lowest and highest round behind it.
- Against such a server perfkit keeps its core busy all the time. It then calls its own run invalid (`generator_bound`, exit
  code 5), as it should: throughput here is the client's, not the server's. The comparison expects that.
- perf_analyzer gets a number of requests instead of seconds, since it keeps a copy of each. It looks once a second whether
  they are done, so the throughput it tells is too low, and no ratio is made of it.
"""


class Case(NamedTuple):
    """One load, the peer whose cost is nearest to the least possible, and the targets: perfkit's cost over each one's."""

    protocol: Literal["http", "grpc"]
    elements: int
    concurrency: int
    peer: str
    at_most: Mapping[str, float]
    analyzer_per_s: int
    """Requests that perf_analyzer sends for each of the seconds: about as many as it can of the small, fewer of the large, whose copies it keeps."""


CASES = {
    "http-small": Case("http", SMALL, 16, "wrk", {"wrk": 1.4, ANALYZER: 1 / 4}, 8000),
    "http-large": Case("http", LARGE, 8, "wrk", {"wrk": 1.2, ANALYZER: 1 / 20}, 150),
    "grpc-small": Case("grpc", SMALL, 16, "h2load", {"h2load": 1.4, ANALYZER: 1 / 3}, 8000),
    "grpc-large": Case("grpc", LARGE, 8, "h2load", {"h2load": 0.8, ANALYZER: 1 / 8}, 150),
}


@dataclasses.dataclass(frozen=True, slots=True)
class Figures:
    """One client in one round."""

    cpu_us: float
    """A request."""
    per_s: float
    p50_us: float
    peak_mib: float


@dataclasses.dataclass(frozen=True, slots=True)
class Ratio:
    """perfkit's figure over a peer's, by rounds; reached where the median lies between `low` and `high`."""

    name: str
    values: tuple[float, ...]
    low: float = 0.0
    high: float | None = None

    @property
    def median(self) -> float:
        """Over the rounds."""
        return statistics.median(self.values)

    @property
    def is_reached(self) -> bool:
        """Also where there is no target."""
        return self.high is None or self.low <= self.median <= self.high

    @property
    def line(self) -> str:
        """The table's."""
        target = "–" if self.high is None else f"{self.low:g} to {self.high:g}" if self.low else f"at most {_share(self.high)}"
        reached = "–" if self.high is None else "yes" if self.is_reached else "no"
        return f"| {self.name} | {self.median:.3g} | {min(self.values):.3g} to {max(self.values):.3g} | {target} | {reached} |"


def loads(case: Case, port: int, seconds: float) -> tuple[Load, Load, Load]:
    """What each client does in a round: briefly, for long, and one request after the other."""

    def load(concurrency: int, of_seconds: float) -> Load:
        requests = max(1, round(case.analyzer_per_s * of_seconds * (1 if concurrency > 1 else 0.5)))
        return Load(case.protocol, case.elements, port, concurrency, of_seconds, requests)

    # far apart: perfkit's start and report take some 2.5 s of CPU, now a little more and now less
    return load(case.concurrency, max(1, seconds // 6)), load(case.concurrency, seconds), load(1, max(1, seconds // 4))


def figures_of(client: str, short: Said, long: Said, alone: Said) -> Figures:
    """What a client's three runs say; raises ClientError."""
    if long.requests <= short.requests:
        raise ClientError(f"{client} sent {short.requests} requests in its short run and {long.requests} in its long one")
    cpu_s = (long.usage.cpu_s - short.usage.cpu_s) / (long.requests - short.requests)
    return Figures(cpu_s * 1e6, long.per_s, alone.p50_us, long.usage.peak_mib)


def judge(case: Case, rounds: Mapping[str, Sequence[Figures]]) -> list[Ratio]:
    """The ratios, each with its target."""
    found = []
    for name, at_most in case.at_most.items():
        pairs = list(zip(rounds[OWN], rounds[name], strict=True))
        is_peer = name == case.peer
        found.append(Ratio(f"CPU a request, perfkit / {name}", tuple(own.cpu_us / peer.cpu_us for own, peer in pairs), high=at_most))
        p50s = tuple(own.p50_us / peer.p50_us for own, peer in pairs)
        low, high = (P50_FROM, P50_TO) if is_peer else (0.0, None)
        found.append(Ratio(f"p50 at concurrency 1, perfkit / {name}", p50s, low, high))
        if name != ANALYZER:  # it looks once a second whether its requests are done, and counts that time as well
            found.append(Ratio(f"throughput, perfkit / {name}", tuple(own.per_s / peer.per_s for own, peer in pairs)))
    return found


def tables(name: str, case: Case, rounds: Mapping[str, Sequence[Figures]]) -> tuple[list[str], bool]:
    """A case's part of the report, and whether its targets are reached."""
    size, ratios = case.elements * 8, judge(case, rounds)
    memory_mib = max(one.peak_mib for one in rounds[OWN])
    lines = [
        f"## {name}: {size:,} B a request, concurrency {case.concurrency}, {len(rounds[OWN])} rounds",
        "",
        "| client | CPU a request | throughput | p50 at concurrency 1 | peak memory |",
        "|---|---:|---:|---:|---:|",
    ]
    for client, figures in rounds.items():
        cpu_us, per_s, p50_us = (statistics.median(getattr(one, field) for one in figures) for field in ("cpu_us", "per_s", "p50_us"))
        peak_mib = max(one.peak_mib for one in figures)
        lines.append(f"| {client} | {cpu_us:.1f} us | {per_s:,.0f}/s | {p50_us:.0f} us | {peak_mib:.0f} MiB |")
    lines += ["", "| ratio | median | rounds | target | reached |", "|---|---:|---:|---:|---|", *(one.line for one in ratios)]
    fits = memory_mib < MOST_MEMORY_MIB
    lines.append(f"| perfkit's peak memory | {memory_mib:.0f} MiB | | under {MOST_MEMORY_MIB} MiB | {'yes' if fits else 'no'} |")
    return [*lines, ""], fits and all(one.is_reached for one in ratios)


def run_case(case: Case, clients: Mapping[str, Client], options: argparse.Namespace, order: random.Random) -> dict[str, list[Figures]]:
    """All rounds of a case; raises ClientError, or CannedError."""
    rounds: dict[str, list[Figures]] = {name: [] for name in (case.peer, ANALYZER, OWN)}
    http_port, grpc_port = (0, None) if case.protocol == "http" else (None, 0)
    cpus = sorted(os.sched_getaffinity(0))
    with (
        serving(http_port=http_port, grpc_port=grpc_port, cpus=cpus[:1]) as canned,
        tempfile.TemporaryDirectory(prefix="perfkit-compare-") as name,
        contextlib.ExitStack() as stack,
    ):
        port = canned.http_port or canned.grpc_port
        assert port is not None
        if len(cpus) > 1:
            stack.callback(os.sched_setaffinity, 0, cpus)
            os.sched_setaffinity(0, cpus[1:])  # for the clients, which inherit it
        for number in range(options.rounds):
            pair = [case.peer, OWN]
            order.shuffle(pair)
            names = [ANALYZER, *pair]
            runs = [
                {one: run_again_if_hung(clients[one], load, pathlib.Path(name)) for one in names}
                for load in loads(case, port, options.seconds)
            ]
            for one, of_client in rounds.items():
                found = figures_of(one, *(run[one] for run in runs))
                of_client.append(found)
                print(
                    f"round {number + 1}, {one}: {found.cpu_us:.1f} us a request, {found.per_s:,.0f}/s, p50 {found.p50_us:.0f} us",
                    file=sys.stderr,
                )
    return rounds


def run_again_if_hung(client: Client, load: Load, folder: pathlib.Path) -> Said:
    """`client.run`, once more where it hangs: one hang would cost the whole comparison."""
    try:
        return client.run(load, folder)
    except HungError as error:
        print(f"{error}: run again", file=sys.stderr)
        return client.run(load, folder)


def _share(value: float) -> str:
    """A target as it is meant: 1/20 rather than 0.05."""
    return f"1/{round(1 / value)}" if value <= 0.5 else f"{value:g}"


def main() -> int:
    """Prints the tables; 1 where a target is not reached, or a client failed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--case", action="append", choices=CASES, help="may be repeated; all of them where left out")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=12, help="of a client's long run")
    parser.add_argument("--perfkit", metavar="PATH", help="the perfkit to measure; left out, that of this tree")
    parser.add_argument("--seed", type=int, default=0, help="of the order of perfkit and its peer")
    parser.add_argument("--peers", type=pathlib.Path, help="where the peers are installed")
    parser.add_argument("--out", type=pathlib.Path)
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # end as on Ctrl-C, so that clients and servers end too
    analyzer = PerfAnalyzer(peers_folder(options.peers) / "bin" / ANALYZER)
    clients = {"wrk": Wrk(), "h2load": H2load(), ANALYZER: analyzer, OWN: Perfkit(options.perfkit)}
    load, order, lines, is_reached = os.getloadavg()[0], random.Random(options.seed), [], True
    try:
        for name in options.case or CASES:
            found, is_case_reached = tables(name, CASES[name], run_case(CASES[name], clients, options, order))
            print("\n".join(found), flush=True)
            lines += found
            is_reached = is_reached and is_case_reached
    except (ClientError, CannedError, FileNotFoundError) as error:
        sys.stderr.write(f"compare: {error}\n")
        return 1
    if options.out:
        setting = (
            f"{os.cpu_count()} CPUs, shared with other work: the server on the first, the clients on the others; load average {load:.1f} "
            f"at the begin. {options.rounds} rounds, long runs of {options.seconds:g} s."
        )
        text = ["# What a request costs: perfkit beside wrk, h2load and perf_analyzer", "", HOW_TO_READ, setting, "", *lines]
        options.out.write_text("\n".join(text), encoding="utf-8")
    return 0 if is_reached else 1


if __name__ == "__main__":
    sys.exit(main())
