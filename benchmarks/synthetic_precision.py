"""Precision of the model `synthetic`: mean and p99 that a client measures over HTTP, compared with the declared ones.

    python -m benchmarks.synthetic_precision [--rounds 3] [--seconds 5] [--lead 200us] [--realtime]
                                             [--out reports/synthetic-precision.md]

Each declared queue has a server of its own on one CPU; the client, a busy loop over plain sockets, uses another. The declared
times come from the simulated queue, given the instants at which the client sent: it draws the same random numbers as the server,
so there is no sampling error. The time that the server's front end and the kernel add is measured first; the declared `lead`
compensates for it. Sequential requests are compared by service time, Poisson arrivals by response time. Other programs disturb
the measurement, so the differences are medians of the rounds; --realtime keeps other programs off the server's CPU. The exit code
is 1 if a queue deviates by more than allowed.
"""

import argparse
import itertools
import json
import os
import random
import select
import socket
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from benchmarks.processes import on_cpus, running_server
from benchmarks.report import Report, describe_machine, program_options, rounds_text
from server_stub.synthetic.declaration import parse_service_model
from server_stub.synthetic.simulated_queue import SimulatedQueue

WARMUP = 50
ALLOWED = "mean within 1 % + 100 us, p99 within 1 % + 500 us."
CONNECTIONS = 128


class Case(NamedTuple):
    """A declared queue and its load: sequential requests unless there is a rate."""

    declaration: str
    rate_per_s: float | None = None
    batch_size: int = 1


WITHOUT_LEAD = Case("service=constant:10ms,lead=0s")
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
    """An HTTP request with binary data."""
    values = np.zeros((batch_size, 4), np.float32).tobytes()
    tensor = {"name": "INPUT0", "datatype": "FP32", "shape": [batch_size, 4], "parameters": {"binary_data_size": len(values)}}
    document = json.dumps({"inputs": [tensor], "outputs": [{"name": "OUTPUT0", "parameters": {"binary_data": True}}]}).encode()
    head = f"POST /v2/models/synthetic/infer HTTP/1.1\r\nHost: 127.0.0.1\r\nInference-Header-Content-Length: {len(document)}\r\n"
    return head.encode() + b"Content-Length: %d\r\n\r\n" % (len(document) + len(values)) + document + values


def is_complete(answer: bytes) -> bool:
    """Whether an answer is complete; ends the program if its status is not 200."""
    head, blank, body = answer.partition(b"\r\n\r\n")
    if not blank:
        return False
    if not head.startswith(b"HTTP/1.1 200 "):
        sys.exit(f"the server answered {answer!r}")
    return len(body) >= int(head.lower().partition(b"content-length:")[2].split(b"\r\n", 1)[0])


class Client:
    """Sends requests at given instants, and records when each was sent and answered."""

    def __init__(self, port: int, connections: int) -> None:
        self._free = [socket.create_connection(("127.0.0.1", port)) for _ in range(connections)]
        self._busy: dict[int, tuple[socket.socket, int, bytes]] = {}
        self._epoll = select.epoll()
        for connection in self._free:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            connection.setblocking(False)
            self._epoll.register(connection, select.EPOLLIN)

    def run(self, request: bytes, count: int, is_due: Callable[[int, int], bool]) -> list[tuple[int, int]]:
        """(sent, answered) of each request in the order of sending; `is_due(n, now_ns)` says whether to send the n-th now."""
        sent_ns, answered_ns = [0] * count, [0] * count
        sent = answered = 0
        while answered < count:
            while sent < count and self._free and is_due(sent, time.monotonic_ns()):
                connection = self._free.pop()
                self._busy[connection.fileno()] = (connection, sent, b"")
                sent_ns[sent] = time.monotonic_ns()
                connection.sendall(request)
                sent += 1
            for number, _ in self._epoll.poll(0):
                connection, index, answer = self._busy.pop(number)
                answer += connection.recv(65536)
                if is_complete(answer):
                    answered_ns[index] = time.monotonic_ns()
                    self._free.append(connection)
                    answered += 1
                else:
                    self._busy[number] = (connection, index, answer)
        return list(zip(sent_ns, answered_ns, strict=True))

    def close(self) -> None:
        """Closes all connections."""
        for connection in self._free:
            connection.close()


def measure(
    case: Case, seconds: float, cpus: Sequence[int], *, realtime: bool
) -> tuple["np.typing.NDArray[np.float64]", "np.typing.NDArray[np.float64]"]:
    """Declared and measured times in microseconds, per request after the warm-up."""
    model = parse_service_model(case.declaration)
    per_s = case.rate_per_s or 1e9 / statistics.fmean(model.service_ns(number, case.batch_size, 0, 0) for number in range(1000))
    count = WARMUP + int(seconds * per_s)
    with (
        on_cpus(cpus),
        running_server("--model=synthetic", f"--cpus={cpus[0]}", "--synthetic", case.declaration, realtime=realtime) as server,
    ):
        os.sched_setaffinity(0, cpus[-1:])
        client = Client(server.http_port, CONNECTIONS if case.rate_per_s else 1)
        rng, begin_ns = random.Random(case.declaration), time.monotonic_ns()
        arrivals_ns = [begin_ns + round(gap_s * 1e9) for gap_s in itertools.accumulate(rng.expovariate(per_s) for _ in range(count))]
        request = request_bytes(case.batch_size)
        instants = client.run(request, count, lambda number, now_ns: case.rate_per_s is None or now_ns >= arrivals_ns[number])
        client.close()
    queue = SimulatedQueue(model)
    simulated = [queue.arrive(sent_ns, case.batch_size) for sent_ns, _ in instants]
    from_ns = [passage.arrived_ns if case.rate_per_s else passage.started_ns for passage in simulated]
    declared_ns = [passage.departed_ns - start_ns for passage, start_ns in zip(simulated, from_ns, strict=True)]
    measured_ns = [answered_ns - sent_ns for sent_ns, answered_ns in instants]
    return np.array(declared_ns[WARMUP:]) / 1e3, np.array(measured_ns[WARMUP:]) / 1e3


def compare(report: Report, case: Case, options: argparse.Namespace, cpus: Sequence[int]) -> None:
    """A line of the table."""
    figures = []
    for _ in range(options.rounds):
        declared_us, measured_us = measure(case, options.seconds, cpus, realtime=options.realtime)
        declared, measured = ((values.mean(), np.percentile(values, 99)) for values in (declared_us, measured_us))
        figures.append((*declared, measured[0] - declared[0], measured[1] - declared[1], np.median(measured_us - declared_us)))
    mean_us, p99_us, mean_error_us, p99_error_us, median_error_us = (statistics.median(column) for column in zip(*figures, strict=True))
    limits_us = allowed_us(mean_us, p99_us)
    load = f"{case.rate_per_s:g}/s" if case.rate_per_s else "sequential" if case.batch_size == 1 else f"sequential, batch {case.batch_size}"
    errors = [(f"{value:+.0f} us", f"{allowed:.0f} us") for value, allowed in zip((mean_error_us, p99_error_us), limits_us, strict=True)]
    cells = (f"{mean_us / 1e3:.3f} ms", *errors[0], f"{p99_us / 1e3:.3f} ms", *errors[1], f"{median_error_us:+.0f} us")
    report.judged_row(abs(mean_error_us) <= limits_us[0] and abs(p99_error_us) <= limits_us[1], f"`{case.declaration}`", load, *cells)


def allowed_us(mean_us: float, p99_us: float) -> tuple[float, float]:
    """The largest deviations from a declared mean and p99."""
    return 0.01 * mean_us + 100, 0.01 * p99_us + 500


def precision_options(doc: str | None) -> tuple[argparse.Namespace, list[int]]:
    """The options of the command line, and the CPUs, of which there are two or more."""
    lead = (str, "the declared lead, such as 200us (default: measured first)")
    options, cpus = program_options(doc, rounds=3, seconds=5.0, lead=lead, realtime=False), sorted(os.sched_getaffinity(0))
    if len(cpus) < 2:
        sys.exit("two CPUs are needed: one for the server, one for the client, which never sleeps")
    return options, cpus


def main() -> int:
    """Prints the table."""
    options, cpus = precision_options(__doc__)
    machine, lead = describe_machine(), options.lead
    if lead is None:
        declared_us, measured_us = measure(WITHOUT_LEAD, options.seconds, cpus, realtime=options.realtime)
        lead = f"{max(0.0, float(np.median(measured_us - declared_us))):.0f}us"
    report = Report(options.out, "Precision of the model `synthetic`")
    report.add(
        f"Measured − declared for a client over HTTP; medians of {rounds_text(options.rounds)} of {options.seconds:g} s. The server has one CPU"
        f"{' at real-time priority' if options.realtime else ''}, the client another. {machine}",
        f"The lead is {lead}, {'as given' if options.lead else 'the median error without one'}. Sequential requests: service time; "
        "Poisson arrivals at a rate: response time.",
        f"Allowed: {ALLOWED}",
        "",
    )
    columns = (">declared mean", ">error", ">allowed", ">declared p99", ">error", ">allowed", ">median error per request")
    report.table("declaration", "requests", *columns, "within the limits")
    for case in CASES:
        compare(report, case._replace(declaration=f"{case.declaration},lead={lead}"), options, cpus)
    return report.write()


if __name__ == "__main__":
    sys.exit(main())
