"""How late perfkit and perf_analyzer send the requests of a constant rate, by the kernel's stamps of their packets on the loopback.

    python -m benchmarks.peers.lateness [--rate 100 1000 5000] [--rounds 5] [--seconds 8] [--realtime]
                                      [--before CHECKOUT] [--out reports/lateness.md]

Both send requests of 128 B to nginx, which answers from a file on a CPU of its own. Neither client's word counts: a raw socket reads the
packets that begin a request, with the instants at which the kernel passed them on. Request k of a constant rate is due k / rate after the first;
the schedule's origin is put where the earliest request is on time, for each client and run. Beside it stand the start delay that perfkit
reports itself, and the CPU time of its worker. With `--before`, another checkout takes part in each round.
Needs root, for the raw socket. The exit code is 1 if perfkit's median p99 or p99.9 is above perf_analyzer's at a rate.
"""

import contextlib
import functools
import math
import os
import pathlib
import random
import socket
import statistics
import struct
import sys
import threading
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from benchmarks.peers.canned import INPUTS, MODEL, VERSION, WIDTH, scenario, serving
from benchmarks.peers.clients import ClientError, run_windows
from benchmarks.peers.install import peers_folder, perf_analyzer_path
from benchmarks.peers.rounds import in_rounds
from benchmarks.peers.server_process import PeerError
from benchmarks.processes import BEFORE, BEFORE_OPTION, OWN, REALTIME, THIS, Checkout, on_cpus, run_perfkit
from benchmarks.report import Report, describe_machine, program_options, rounds_text

ANALYZER = "perf_analyzer"
_SO_TIMESTAMPNS, _ETH_P_IP, _SOL_PACKET, _PACKET_STATISTICS = 35, 0x0800, 263, 6  # of Linux; Python's socket module has no names for them
_BUFFER_BYTES = 2**26
_LEFT_OUT_S = 1.0  # at either end of a run


class Lateness(NamedTuple):
    """Microseconds by which requests were late, and the rate at which they were sent."""

    p50: float
    p99: float
    p99_9: float
    largest: float
    per_s: float
    told: tuple[float, ...] = ()
    """p50, p99 and p99.9 that the client reports itself, if it does."""
    cpu_us_per_request: float = math.nan
    """CPU time of the process that sends, by perfkit's own report."""


@contextlib.contextmanager
def sent_requests(port: int) -> Iterator[list[int]]:
    """The instants in nanoseconds at which requests are sent to a port of this machine, added to the list during the block; Linux, as root. Raises ClientError if packets were lost."""
    stamps, is_over = list[int](), threading.Event()
    with socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(_ETH_P_IP)) as raw:
        raw.bind(("lo", 0))
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUFFORCE if hasattr(socket, "SO_RCVBUFFORCE") else 33, _BUFFER_BYTES)
        raw.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPNS, 1)
        raw.settimeout(0.2)

        def read() -> None:
            while True:
                try:
                    packet, given, _, _ = raw.recvmsg(256, 64)
                except TimeoutError:
                    if is_over.is_set():
                        return
                    continue
                head = 4 * (packet[0] & 15)  # of IP; then that of TCP, with its length in words
                if len(packet) < head + 20 or packet[9] != socket.IPPROTO_TCP:
                    continue
                if struct.unpack_from("!H", packet, head + 2)[0] == port and packet[head + 4 * (packet[head + 12] >> 4) :].startswith(
                    b"POST"
                ):
                    seconds, ns = struct.unpack("qq", given[0][2])
                    stamps.append(seconds * 10**9 + ns)

        thread = threading.Thread(target=read)
        thread.start()
        try:
            yield stamps
        finally:
            is_over.set()
            thread.join()
        _, lost = struct.unpack("II", raw.getsockopt(_SOL_PACKET, _PACKET_STATISTICS, 8))
        if lost:
            raise ClientError(f"{lost:,} packets were lost on their way to the raw socket: measure again, on a machine that does less")


def lateness(stamps: list[int], rate_per_s: float, told: tuple[float, ...] = ()) -> Lateness:
    """How late requests of a constant rate were; raises ClientError if there are too few."""
    sent_ns: npt.NDArray[np.int64] = np.array(stamps, dtype=np.int64)
    sent_ns = sent_ns[(sent_ns > sent_ns[0] + _LEFT_OUT_S * 1e9) & (sent_ns < sent_ns[-1] - _LEFT_OUT_S * 1e9)] if len(stamps) else sent_ns
    if sent_ns.size < rate_per_s:
        raise ClientError(f"{len(stamps)} requests were seen, which are too few")
    beyond_ns = sent_ns - sent_ns[0] - np.arange(sent_ns.size) * 1e9 / rate_per_s
    late_us = (beyond_ns - beyond_ns.min()) / 1e3
    per_s = float((sent_ns.size - 1) * 1e9 / (sent_ns[-1] - sent_ns[0]))
    p50, p99, p99_9, largest = np.percentile(late_us, (50, 99, 99.9, 100)).tolist()
    return Lateness(p50, p99, p99_9, largest, per_s, told)


def run_own(port: int, rate_per_s: float, seconds: float, *, realtime: bool, checkout: Checkout = THIS) -> Lateness:
    """`perfkit run` of this checkout or another with an open loop; raises ClientError."""
    load = {"open": {"rate": rate_per_s, "arrivals": "constant"}}
    document = scenario(port, load, {"warmup": "1s", "duration": f"{seconds}s"})
    with sent_requests(port) as stamps:
        point = run_perfkit(document, realtime=realtime, checkout=checkout).point
    delays_ns = (point["start_delay_ns"][name] for name in ("p50", "p99", "p99_9"))
    told_us = tuple(math.nan if value is None else value / 1e3 for value in delays_ns)
    return lateness(stamps, rate_per_s, told_us)._replace(cpu_us_per_request=point["generator"]["cpu_share"] * 1e6 / rate_per_s)


def run_analyzer(program: pathlib.Path, port: int, rate_per_s: float, seconds: float, *, realtime: bool) -> Lateness:
    """perf_analyzer with a constant rate, in windows that add up to some seconds; raises ClientError."""
    shapes = [part for name in INPUTS for part in ("--shape", f"{name}:1,{WIDTH}")]
    options = ["-m", MODEL, "-x", VERSION, "-i", "http", "-u", f"127.0.0.1:{port}", "--input-data", "zero", *shapes]
    rate = ["--request-rate-range", f"{rate_per_s:g}", "--request-distribution", "constant"]
    with sent_requests(port) as stamps:
        run_windows([*(REALTIME if realtime else ()), str(program), *options, *rate], seconds)
    return lateness(stamps, rate_per_s)


def main() -> int:
    """Prints the table; the exit code is 1 if perfkit is later than perf_analyzer."""
    options = program_options(
        __doc__, out="lateness", rate=([100.0, 1000.0, 5000.0], "requests a second"), rounds=5, seconds=(8.0, "length of a run"),
        realtime=(False, "clients and server at real-time priority"), peers=peers_folder(), before=BEFORE_OPTION,
    )  # fmt: skip
    report, cpus = Report(options.out, "How late open loops send, by the kernel's stamps"), sorted(os.sched_getaffinity(0))
    report.add(
        f"{describe_machine()}{' Clients and server at real-time priority.' * options.realtime} Server and clients have separate CPUs.",
        f"Requests of 128 B at a constant rate; microseconds after they were due, medians of {rounds_text(options.rounds)} with the least and the most.",
    )
    report.table(
        "rate",
        "client",
        ">p50",
        ">p99",
        ">p99.9",
        ">largest",
        ">sent",
        ">p50, p99, p99.9 by its own report",
        ">CPU per request",
        "at most perf_analyzer's",
    )
    order = random.Random(0)
    try:
        with serving(prefix=REALTIME if options.realtime else (), cpus=cpus[:1]) as ports:
            port = ports.http
            assert port is not None
            for rate_per_s in options.rate:
                given = {"port": port, "rate_per_s": rate_per_s, "seconds": options.seconds, "realtime": options.realtime}
                analyzer = functools.partial(run_analyzer, perf_analyzer_path(options.peers), **given)
                clients = {ANALYZER: analyzer, OWN: functools.partial(run_own, **given)}
                if options.before is not None:
                    clients[BEFORE] = functools.partial(run_own, **given, checkout=options.before)
                with on_cpus(cpus[1:] or cpus):
                    found = in_rounds(clients, options.rounds, order)
                add_rows(report, rate_per_s, found)
    except (ClientError, PeerError) as error:
        sys.exit(f"lateness: {error}")
    return report.write()


def add_rows(report: Report, rate_per_s: float, found: dict[str, list[Lateness]]) -> None:
    """A row for each client, perfkit's judged."""
    medians = {
        name: [statistics.median(column) for column in ([run.p99 for run in runs], [run.p99_9 for run in runs])]
        for name, runs in found.items()
    }
    for name, runs in found.items():
        columns = list(zip(*runs, strict=True))
        cells = [f"{statistics.median(column):,.0f} ({min(column):,.0f} to {max(column):,.0f})" for column in columns[:4]]
        told = [statistics.median(column) for column in zip(*columns[5], strict=True)]
        row = (
            f"{rate_per_s:g}/s",
            name,
            *cells,
            f"{statistics.median(columns[4]):,.1f}/s",
            ", ".join("–" if math.isnan(one) else f"{one:,.0f}" for one in told),
            "" if math.isnan(columns[6][0]) else f"{statistics.median(columns[6]):.0f} us",
        )
        if name == OWN:
            report.judged_row(all(own <= other for own, other in zip(medians[OWN], medians[ANALYZER], strict=True)), *row)
        else:
            report.row(*row, "")


if __name__ == "__main__":
    sys.exit(main())
