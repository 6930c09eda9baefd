"""How closely a replay follows its trace, and how closely `perfkit record` notes what passes through it.

    python -m benchmarks.record_replay [--requests 100000] [--seconds 20] [--rounds 3] [--realtime] [--triton] [--out reports/record-replay.md]

1. A trace of Poisson arrivals at 200/s is replayed at ten times its speed, 2,000/s, with the plain open loop at that rate beside it, against
   nginx answering from a file. Required: each request starts within 1 ms of its instant at p99, or, on a machine that is not quiet, not
   later than 1.5 times that of the open loop.
2. perfkit's open loop sends a known schedule through the proxy; the trace is replayed through the proxy again. Required: the recorded
   instants are those of the schedule, and those of the second trace are those of the first, within 1 ms at p99, over HTTP and gRPC, or within
   1 ms of what the client's own start delays explain. Each series is shifted by the median difference, since the clocks have different origins.
3. What the proxy adds to a request: its own figure, and the service times through it and without it, with one request in flight.
4. The same beside two other clients that send JSON tensors of 10.8 MB: small requests go through the proxy and past it by turns, to a server that
   reads none of it. Required: at most 5 ms at p99, by the proxy's own figure and by the difference of the times.

The server of 2 and 3 is the bundled one, with --triton also a real Triton. --realtime gives clients and proxy real-time priority. The exit
code is 1 if a requirement is missed.
"""

import argparse
import contextlib
import csv
import itertools
import json
import os
import pathlib
import re
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from benchmarks.peers.canned import INPUTS, MODEL, WIDTH, serving
from benchmarks.peers.canned import scenario as canned_scenario
from benchmarks.peers.install import peers_folder
from benchmarks.peers.server_process import PeerError
from benchmarks.peers.triton import running_triton
from benchmarks.processes import REALTIME, ROOT, on_cpus, run_perfkit, running_canned_server, running_server
from benchmarks.report import Report, describe_machine, program_options, rounds_text, yes_no
from perfkit.calibration.canned_server import MODEL as CANNED
from perfkit.load.arrivals import Schedule, constant_rate
from perfkit.trace.reader import read_trace

RATE, SPEED = 200, 10
ALLOWED_P99_US, ALLOWED_RATIO, LARGE_P99_US = 1000, 1.5, 5000
_WORKLOAD = {"inputs": {name: {"generate": "random", "shape": [WIDTH]} for name in INPUTS}}
Nanoseconds = npt.NDArray[np.int64]


class Deviation(NamedTuple):
    """How far instants are from those that they should be, in microseconds, without the median difference."""

    requests: int
    p50: float
    p99: float
    max: float

    @classmethod
    def of(cls, found_ns: Nanoseconds, expected_ns: Nanoseconds) -> "Deviation":
        """The deviations of two series of the same length."""
        difference = found_ns - expected_ns
        p50, p99, largest = np.percentile(np.abs(difference - np.median(difference)), (50, 99, 100)).tolist()
        return cls(found_ns.size, p50 / 1e3, p99 / 1e3, largest / 1e3)


def scheduled_ns(requests: int, seed: int = 0) -> Nanoseconds:
    """The first arrivals of perfkit's open loop at 200/s, in its first repetition."""
    chunks = Schedule("poisson", constant_rate(RATE), (seed, 0, 0)).chunks()
    return np.concatenate([next(chunks) for _ in range(-(-requests // 4096))])[:requests]


@contextlib.contextmanager
def recording(url: str, out: pathlib.Path, prefix: Sequence[str], payloads: str = "full") -> Iterator[tuple[str, dict[str, Any]]]:
    """Runs `perfkit record` in front of a server: the URL for clients, and the summary, which is filled at the end."""
    scheme = url.partition(":")[0]
    command = [sys.executable, "-m", "perfkit", "record", "--listen", f"{scheme}://127.0.0.1:0", "--target", url, "--out", str(out)]
    pipe = subprocess.PIPE
    process = subprocess.Popen(
        [*prefix, *command, f"--payloads={payloads}", "--format=json"], stdout=pipe, stderr=pipe, text=True, cwd=ROOT
    )
    summary: dict[str, Any] = {}
    try:
        assert process.stderr is not None
        (listening,) = re.findall(r"listening on (\S+) for", process.stderr.readline()) or [""]
        if not listening:
            raise RuntimeError(f"perfkit record did not start: {process.stderr.read()}")
        yield listening, summary
    finally:
        process.send_signal(signal.SIGINT)
        stdout, _ = process.communicate()
    summary |= json.loads(stdout)


def replay_delays(requests: int, prefix: Sequence[str], port: int, folder: pathlib.Path) -> dict[str, dict[str, Any]]:
    """The load points of the replay at ten times its speed and of the open loop at its rate."""
    trace = folder / "trace.csv"
    instants_ns = scheduled_ns(requests, 1)
    with trace.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([["timestamp_ns"], *([instant_ns] for instant_ns in instants_ns.tolist())])
    loads = {
        f"replay, {RATE}/s × {SPEED}": ({"replay": {"trace": str(trace), "speed": SPEED}}, {}),
        f"open loop, {RATE * SPEED:,}/s": (
            {"open": {"rate": RATE * SPEED, "arrivals": "poisson"}},
            {"duration": f"{requests / RATE / SPEED:g}s"},
        ),
    }
    points = {}
    for name, (load, measure) in loads.items():
        points[name] = run_perfkit(canned_scenario(port, load, {"workers": "auto", **measure}), prefix=prefix).point
    return points


def add_delays(report: Report, points: dict[str, dict[str, Any]]) -> None:
    """A line for each load, and whether the replay starts on time."""
    report.table("load", ">requests", ">dropped", ">p50", ">p99", ">p99.9", ">max")
    for name, point in points.items():
        delays = point["start_delay_ns"]
        times = ("–" if delays[key] is None else f"{delays[key] / 1e3:,.0f} us" for key in ("p50", "p99", "p99_9", "max"))
        report.row(name, f"{point['requests']['sent']:,}", point["requests"]["dropped"], *times)
    replay_us, open_us = (point["start_delay_ns"]["p99"] / 1e3 for point in points.values())
    is_within, ratio = replay_us <= ALLOWED_P99_US, replay_us / open_us
    report.is_met &= is_within or ratio <= ALLOWED_RATIO
    report.add(
        "",
        f"Each request starts within 1 ms of its instant at p99: {yes_no(is_within)}. Its p99 is {ratio:.2f} times that of the open loop.",
    )


def record_and_replay(url: str, seconds: float, prefix: Sequence[str], folder: pathlib.Path) -> dict[str, tuple[Deviation, float]]:
    """What the two recordings deviate from: the first one from the schedule, the second one, of its replay, from the first.

    With each comes the p99 of the client's own start delays, in microseconds.
    """
    expected_ns = scheduled_ns(round(RATE * seconds))
    first, second = folder / "first.jsonl", folder / "second.jsonl"
    # counted windows: however late it is, every request is sent
    measure = {"warmup": "0s", "requests": expected_ns.size, "repetitions": 1}
    with recording(url, first, prefix) as (listening, _):
        target = {"url": listening, "model": MODEL}
        scenario = {"target": target, "workload": _WORKLOAD, "load": {"open": {"rate": RATE}}, "measure": measure}
        sent = run_perfkit(scenario, prefix=prefix).point
    with recording(url, second, prefix) as (listening, _):
        target = {"url": listening, "model": MODEL}
        counted = {**measure, "requests": expected_ns.size + 1}
        sent_again = run_perfkit({"target": target, "load": {"replay": {"trace": str(first)}}, "measure": counted}, prefix=prefix).point
    recorded_ns, again_ns = (read_trace(trace).instants_ns for trace in (first, second))
    # each run begins with a trial request, which the second one replays, too
    return {
        "recorded, beside the schedule": (Deviation.of(recorded_ns[1:], expected_ns), _p99_us(sent)),
        "replayed and recorded again, beside the trace": (Deviation.of(again_ns[1:], recorded_ns), _p99_us(sent_again)),
    }


def _p99_us(point: dict[str, Any]) -> float:
    delays = point["start_delay_ns"]
    return float(delays["max"] if delays["p99"] is None else delays["p99"]) / 1e3


def added_delay(url: str, seconds: float, rounds: int, prefix: Sequence[str], folder: pathlib.Path) -> tuple[str, ...]:
    """The cells of a line: the proxy's own p50 and p99, and the service times without and with it."""
    measure = {"warmup": "500ms", "duration": f"{seconds:g}s", "repetitions": 1}
    scenario = {"workload": _WORKLOAD, "load": {"closed": {"concurrency": 1}}, "measure": measure}
    times: dict[str, list[tuple[float, float]]] = {"direct": [], "proxy": []}
    own = dict[str, Any]()
    for number in range(rounds):
        with recording(url, folder / f"delay-{number}.jsonl", prefix) as (listening, summary):
            for name, place in (("direct", url), ("proxy", listening)):
                point = run_perfkit({"target": {"url": place, "model": MODEL}, **scenario}, prefix=prefix).point
                times[name].append((point["service_time_ns"]["p50"] / 1e3, (point["service_time_ns"]["p99"] or 0) / 1e3))
        own = summary["added_delay_ns"]
    (direct_p50, direct_p99), (proxy_p50, proxy_p99) = (
        tuple(statistics.median(value) for value in zip(*times[name], strict=True)) for name in ("direct", "proxy")
    )
    figures = (own["p50"] / 1e3, own["p99"] / 1e3, direct_p50, proxy_p50, proxy_p50 - direct_p50, direct_p99, proxy_p99)
    return tuple(f"{figure:,.0f} us" for figure in figures)


def beside_large_bodies(clients: int, seconds: float, prefix: Sequence[str], folder: pathlib.Path) -> Mapping[str, Any]:
    """The proxy's summary, and the times of small requests past it and through it in microseconds, beside so many pairs of clients with large bodies."""
    request = b'POST /v2/models/%b/infer HTTP/1.1\r\nHost: h\r\nContent-Length: 13\r\n\r\n{"inputs":[]}' % CANNED.encode()
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(running_canned_server(prefix))
        listening, summary = stack.enter_context(recording(server.url(), folder / f"large-{clients}.jsonl", prefix, payloads="hash"))
        ports = {"past": server.http_port, "through": int(listening.rpartition(":")[2])}
        for _ in range(clients):
            ready = json.dumps({"http_port": ports["through"], "model": CANNED})
            client = subprocess.Popen([sys.executable, "-m", "benchmarks.hostile_clients", "tensors", ready], cwd=ROOT)
            stack.callback(client.wait)
            stack.callback(client.kill)
        if prefix:  # what measures, too
            os.sched_setscheduler(0, os.SCHED_FIFO | os.SCHED_RESET_ON_FORK, os.sched_param(1))
            stack.callback(os.sched_setscheduler, 0, os.SCHED_OTHER, os.sched_param(0))
        connections = {name: stack.enter_context(socket.create_connection(("127.0.0.1", port))) for name, port in ports.items()}
        times_us: dict[str, list[float]] = {name: [] for name in ports}
        end_s = time.monotonic() + seconds
        while time.monotonic() < end_s:
            for name, connection in connections.items():
                started_ns = time.monotonic_ns()
                connection.sendall(request)
                connection.recv(2**16)
                times_us[name].append((time.monotonic_ns() - started_ns) / 1e3)
                time.sleep(0.002)
    return {"summary": summary, **{name: np.percentile(times, (50, 99)).tolist() for name, times in times_us.items()}}


def add_large_bodies(report: Report, seconds: float, prefix: Sequence[str], folder: pathlib.Path) -> None:
    """A line without and with other clients' large bodies, and whether the proxy delays small requests by less than 5 ms."""
    report.section(
        "Beside large bodies of others",
        f"Small requests by turns through the proxy and past it, for {seconds:g} s, to a server that reads no bodies, with `--payloads hash`. The others are two clients that send JSON "
        "tensors of 10.8 MB, one after the other. Own: the proxy's figure over all exchanges, waits for other connections included. Recorded: all requests, and those with a digest.",
        "",
    )
    columns = (
        ">own p50",
        ">own p99",
        ">own max",
        ">p50 past",
        ">p50 through it",
        ">p99 past",
        ">p99 through it",
        ">recorded",
        ">with digest",
        ">behind",
    )
    report.table("others", *columns)
    for clients in (0, 1):
        found = beside_large_bodies(clients, seconds, prefix, folder)
        own, (past_p50, past_p99), (p50, p99), summary = (
            found["summary"]["added_delay_ns"],
            found["past"],
            found["through"],
            found["summary"],
        )
        times = (own["p50"] / 1e3, own["p99"] / 1e3, own["max"] / 1e3, past_p50, p50, past_p99, p99)
        digests = summary["requests"] - summary["payloads"]["missing"]
        counts = (summary["requests"], digests, summary["not_recorded"]["connections_behind"])
        report.row("two clients" if clients else "none", *(f"{time_us:,.0f} us" for time_us in times), *(f"{count:,}" for count in counts))
        report.is_met &= own["p99"] / 1e3 <= LARGE_P99_US and p99 - past_p99 <= LARGE_P99_US


def main() -> int:
    """Prints the tables; the exit code is 1 if a requirement is missed."""
    options = program_options(
        __doc__,
        requests=(100_000, "of the replayed trace"),
        seconds=(20.0, "length of each recording"),
        rounds=(3, "of the proxy's added delay"),
        realtime=(False, "run clients and proxy at real-time priority"),
        triton=(False, "also record in front of a real Triton"),
    )
    try:
        with tempfile.TemporaryDirectory(prefix="perfkit-benchmark-") as name:
            return measure(options, pathlib.Path(name))
    except PeerError as error:
        sys.exit(f"record_replay: {error}")


def measure(options: argparse.Namespace, folder: pathlib.Path) -> int:
    """Measures and writes the report; returns the exit code."""
    prefix, cpus = REALTIME if options.realtime else (), sorted(os.sched_getaffinity(0))
    report = Report(options.out, "Replay and record")
    report.add(
        f"{describe_machine()} Clients and proxy{' have real-time priority (SCHED_FIFO)' if options.realtime else ' compete with all else'}."
    )
    report.section(
        f"A trace of {options.requests:,} requests, replayed",
        f"Poisson arrivals at {RATE}/s, at {SPEED} times the speed, to nginx answering from a file; client and server have a CPU each. Start delay: started − intended.",
        "",
    )
    with serving(cpus=cpus[:1], prefix=prefix) as ports, on_cpus(cpus[-1:]):
        assert ports.http is not None
        add_delays(report, replay_delays(options.requests, prefix, ports.http, folder))
    report.section(
        f"{RATE}/s for {options.seconds:g} s, recorded, replayed and recorded again",
        "Deviation of the instants, without the median difference of the clocks. Required: at most 1 ms at p99, beyond what the client itself was late.",
        "",
    )
    report.table("server", "protocol", "instants", ">requests", ">p50", ">p99", ">max", ">client late, p99")
    delays = []
    with contextlib.ExitStack() as servers:
        running = {"bundled": servers.enter_context(running_server("--model", MODEL, realtime=options.realtime)).url}
        if options.triton:
            triton = servers.enter_context(running_triton(peers_folder()))
            running[f"Triton {triton.version}"] = triton.url
        for (server, url), protocol in itertools.product(running.items(), ("HTTP", "gRPC")):
            own = folder / f"{server}-{protocol}"
            own.mkdir()
            place = url(protocol.lower())
            for what, (found, late_us) in record_and_replay(place, options.seconds, prefix, own).items():
                times = (f"{value:,.0f} us" for value in (*found[1:], late_us))
                report.row(server, protocol, what, f"{found.requests:,}", *times)
                report.is_met &= found.p99 <= ALLOWED_P99_US + (late_us if late_us > ALLOWED_P99_US else 0)
            delays.append((server, protocol, *added_delay(place, min(options.seconds, 5), options.rounds, prefix, own)))
    report.section(
        "What the proxy adds",
        f"One request in flight, `--payloads full`, medians of {rounds_text(options.rounds)}. Own: the proxy's figure of the last round, from "
        "reading to passing on, both ways, without the kernel's wake-ups; difference: all of it.",
        "",
    )
    columns = (">own p50", ">own p99", ">p50 without", ">p50 through it", ">difference", ">p99 without", ">p99 through it")
    report.table("server", "protocol", *columns)
    for delay in delays:
        report.row(*delay)
    add_large_bodies(report, options.seconds, prefix, folder)
    return report.write()


if __name__ == "__main__":
    sys.exit(main())
