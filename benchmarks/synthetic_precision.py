"""How well the model `synthetic` keeps to its law, as a client sees it: mean and p99 over HTTP beside what is declared.

    python benchmarks/synthetic_precision.py [--rounds 3] [--seconds 5] [--lead 200us] [--realtime] [--out reports/synthetic-precision.md]

Every law has a server of its own, on one CPU; the client is a loop over bare sockets that never sleeps, on another. What
is declared comes from the queue itself, fed with the instants at which the client sent: the very draws that the server
made, so that no sampling error stands between the two. What front and kernel add on the way is measured first, and made
up for by the laws' `lead`. One after the other it is the service time, at Poisson arrivals the response time. Everything
else on the machine shows, so the differences are medians over the rounds; --realtime keeps other programs off the
server's CPU while it has work.
"""

import argparse
import itertools
import json
import os
import pathlib
import random
import select
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).parents[1]))  # the tree that this file is in, installed or not
from server_stub.synthetic.declaration import parse_service_model
from server_stub.synthetic.simulated_queue import SimulatedQueue

ROOT = pathlib.Path(__file__).parents[1]
WARMUP = 50
ALLOWED_SHARE, ALLOWED_MEAN_US, ALLOWED_P99_US = 0.01, 100, 500
CONNECTIONS = 128


class Case(NamedTuple):
    """A law and the load on it: one request after the other where no rate is given."""

    law: str
    rate_per_s: float | None = None
    batch_size: int = 1


UNLED = Case("service=constant:10ms,lead=0s")
CASES = (
    Case("service=constant:5ms"),
    Case("service=constant:20ms"),
    Case("service=exponential:10ms,seed=1"),
    Case("service=lognormal:10ms:cv=0.5,seed=2"),
    Case("service=linear:2ms+1ms/row", batch_size=8),
    Case("service=constant:5ms", rate_per_s=100),
    Case("service=exponential:10ms,seed=3", rate_per_s=50),
    Case("service=exponential:20ms,servers=4,seed=4", rate_per_s=100),
    Case("service=constant:1ms,stall=100ms/1s,drain=at-once", rate_per_s=200),
    Case("service=constant:1ms,stall=100ms/1s,drain=at-pace", rate_per_s=200),
)


def request_bytes(batch_size: int) -> bytes:
    """A whole request, binary data behind its JSON part."""
    values = np.zeros((batch_size, 4), np.float32).tobytes()
    tensor = {"name": "INPUT0", "datatype": "FP32", "shape": [batch_size, 4], "parameters": {"binary_data_size": len(values)}}
    document = json.dumps({"inputs": [tensor], "outputs": [{"name": "OUTPUT0", "parameters": {"binary_data": True}}]}).encode()
    head = f"POST /v2/models/synthetic/infer HTTP/1.1\r\nHost: 127.0.0.1\r\nInference-Header-Content-Length: {len(document)}\r\n"
    return head.encode() + b"Content-Length: %d\r\n\r\n" % (len(document) + len(values)) + document + values


def is_whole(answer: bytes) -> bool:
    """Whether all of an answer is there; ends the program at one that is not 200."""
    head, blank, body = answer.partition(b"\r\n\r\n")
    if not blank:
        return False
    if not head.startswith(b"HTTP/1.1 200 "):
        sys.exit(f"the server answered {answer!r}")
    return len(body) >= int(head.lower().partition(b"content-length:")[2].split(b"\r\n", 1)[0])


class Client:
    """Sends at given instants, and notes when each request was sent and when its answer was there."""

    def __init__(self, port: int, connections: int) -> None:
        self._free = [socket.create_connection(("127.0.0.1", port)) for _ in range(connections)]
        self._busy: dict[int, tuple[socket.socket, int, bytes]] = {}
        self._epoll = select.epoll()
        for one in self._free:
            one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            one.setblocking(False)
            self._epoll.register(one, select.EPOLLIN)

    def run(self, request: bytes, count: int, due: Callable[[int, int], bool]) -> list[tuple[int, int]]:
        """(sent, answered) of every request in the order of sending; `due` says of the n-th whether it is to go now."""
        sent_ns, answered_ns = [0] * count, [0] * count
        sent = answered = 0
        while answered < count:
            while sent < count and self._free and due(sent, time.monotonic_ns()):
                connection = self._free.pop()
                self._busy[connection.fileno()] = (connection, sent, b"")
                sent_ns[sent] = time.monotonic_ns()
                connection.sendall(request)
                sent += 1
            for number, _ in self._epoll.poll(0):
                connection, index, answer = self._busy.pop(number)
                answer += connection.recv(65536)
                if is_whole(answer):
                    answered_ns[index] = time.monotonic_ns()
                    self._free.append(connection)
                    answered += 1
                else:
                    self._busy[number] = (connection, index, answer)
        return list(zip(sent_ns, answered_ns, strict=True))

    def close(self) -> None:
        """Closes all connections."""
        for one in self._free:
            one.close()


def measure(
    case: Case, seconds: float, cpus: Sequence[int], *, realtime: bool
) -> tuple["np.typing.NDArray[np.float64]", "np.typing.NDArray[np.float64]"]:
    """Declared and measured times in microseconds, request by request, behind the warm-up."""
    law = parse_service_model(case.law)
    per_s = case.rate_per_s or 1e9 / law.service.mean_ns(case.batch_size)
    count = WARMUP + int(seconds * per_s)
    command = [sys.executable, "-m", "server_stub", "--http-port=0", "--grpc-port=0", "--exit-with-stdin", "--model=synthetic"]
    pipe = subprocess.PIPE
    os.sched_setaffinity(0, cpus)  # which the server inherits, and then takes one of
    with subprocess.Popen(
        [*command, f"--cpus={cpus[0]}", "--synthetic", case.law], stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, cwd=ROOT
    ) as server:
        assert server.stdout is not None
        assert server.stdin is not None
        port = json.loads(server.stdout.readline())["http_port"]
        if realtime:
            os.sched_setscheduler(server.pid, os.SCHED_FIFO, os.sched_param(1))
        os.sched_setaffinity(0, {cpus[-1]})
        client = Client(port, CONNECTIONS if case.rate_per_s else 1)
        source, begin_ns = random.Random(case.law), time.monotonic_ns()
        arrivals_ns = [begin_ns + round(gap_s * 1e9) for gap_s in itertools.accumulate(source.expovariate(per_s) for _ in range(count))]
        found = client.run(
            request_bytes(case.batch_size), count, lambda index, now_ns: case.rate_per_s is None or now_ns >= arrivals_ns[index]
        )
        client.close()
        server.stdin.close()
    queue = SimulatedQueue(law)
    passages = [queue.arrive(sent_ns, case.batch_size) for sent_ns, _ in found]
    since_ns = [one.arrived_ns if case.rate_per_s else one.started_ns for one in passages]
    declared_ns = [one.departed_ns - from_ns for one, from_ns in zip(passages, since_ns, strict=True)]
    measured_ns = [answered_ns - sent_ns for sent_ns, answered_ns in found]
    return np.array(declared_ns[WARMUP:]) / 1e3, np.array(measured_ns[WARMUP:]) / 1e3


def row(case: Case, rounds: int, seconds: float, cpus: Sequence[int], *, realtime: bool) -> tuple[str, bool]:
    """A line of the table, and whether the law is kept."""
    figures = []
    for _ in range(rounds):
        declared_us, measured_us = measure(case, seconds, cpus, realtime=realtime)
        declared, measured = ((values.mean(), np.percentile(values, 99)) for values in (declared_us, measured_us))
        figures.append((*declared, measured[0] - declared[0], measured[1] - declared[1], np.median(measured_us - declared_us)))
    mean_us, p99_us, mean_off_us, p99_off_us, typical_us = (statistics.median(column) for column in zip(*figures, strict=True))
    allowed_us = (ALLOWED_SHARE * mean_us + ALLOWED_MEAN_US, ALLOWED_SHARE * p99_us + ALLOWED_P99_US)
    is_kept = abs(mean_off_us) <= allowed_us[0] and abs(p99_off_us) <= allowed_us[1]
    load = f"{case.rate_per_s:g}/s" if case.rate_per_s else "one by one" if case.batch_size == 1 else f"one by one, batch {case.batch_size}"
    off = [f"{value:+.0f} us | {allowed:.0f} us" for value, allowed in zip((mean_off_us, p99_off_us), allowed_us, strict=True)]
    cells = (
        f"`{case.law}`",
        load,
        f"{mean_us / 1e3:.3f} ms",
        off[0],
        f"{p99_us / 1e3:.3f} ms",
        off[1],
        f"{typical_us:+.0f} us",
        "yes" if is_kept else "no",
    )
    return f"| {' | '.join(cells)} |", is_kept


def main() -> int:
    """Prints the table; the exit code is 1 where a law is not kept."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=5, help="of requests for every law in every round")
    parser.add_argument("--lead", help="as the law has it, such as 200us (default: what front and kernel take here, measured first)")
    parser.add_argument("--realtime", action="store_true", help="run the server's event loop at real-time priority")
    parser.add_argument("--out", type=pathlib.Path)
    options = parser.parse_args()
    cpus = sorted(os.sched_getaffinity(0))
    if len(cpus) < 2:
        sys.exit("this measures with a client that never sleeps: it needs two CPUs, one for the server and one for itself")
    load = os.getloadavg()[0]
    lead = options.lead
    if lead is None:
        declared_us, measured_us = measure(UNLED, options.seconds, cpus, realtime=options.realtime)
        lead = f"{max(0.0, float(np.median(measured_us - declared_us))):.0f}us"
    print(f"lead {lead}")
    lines = [
        "| law | requests | declared mean | off by | allowed | declared p99 | off by | allowed | median request off by | kept |",
        "|---|---|---:|---:|---:|---:|---:|---:|---:|---|",
    ]
    print("\n".join(lines))
    is_kept = True
    for case in CASES:
        line, is_case_kept = row(
            case._replace(law=f"{case.law},lead={lead}"), options.rounds, options.seconds, cpus, realtime=options.realtime
        )
        print(line, flush=True)
        lines.append(line)
        is_kept = is_kept and is_case_kept
    if options.out:
        setting = (
            f"Measured − declared as a client over HTTP sees it; medians over {options.rounds} rounds of {options.seconds:g} s. "
            f"{len(cpus)} CPUs, the server on one{' at real-time priority' if options.realtime else ''}, the client on another; load average {load:.1f} at the begin. "
            f"The lead is {'as given' if options.lead else f'what a law without one was off by in the median, {lead}'}. One by one it is the "
            "service time, at a rate (Poisson arrivals) the response time. Allowed: mean within 1 % + 100 us, p99 within 1 % + 500 us."
        )
        head = ["# How well the model `synthetic` keeps to its law", "", setting, ""]
        options.out.write_text("\n".join([*head, *lines, ""]), encoding="utf-8")
    return 0 if is_kept else 1


if __name__ == "__main__":
    sys.exit(main())
