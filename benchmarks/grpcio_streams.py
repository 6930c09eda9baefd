"""First responses of streams over gRPC: perfkit's two engines beside a minimal program on grpcio alone.

    python -m benchmarks.grpcio_streams [--rounds 100] [--realtime] [--out reports/grpcio-streams.md]

The bundled server sends the first response of each `synthetic` stream 10 ms after the request, and four more. In every round each client
sends five streams, one after the other, in random order; all clients share one event loop. What the wire engine measures beyond
10 ms is mostly the server's and the kernel's time. What the reference engine measures beyond the minimal program would be perfkit's own: the exit
code is 1 if it adds more than 100 us to the p50 or 500 us to the p99. Server and clients have one CPU each; --realtime keeps
other programs off both.
"""

import os
import random
import sys
import time
from collections.abc import Awaitable, Callable
from typing import Any

import grpc.aio
import numpy as np
import uvloop

from benchmarks.processes import on_cpus, running_server
from benchmarks.report import describe_machine, option_parser, publish, table_head, table_row
from perfkit.protocol import protobuf
from perfkit.protocol.message import InferRequest
from perfkit.protocol.tensor import Datatype, tensor_from_array
from perfkit.target.address import Address
from perfkit.transport.grpc.streamed_messages import streamed_message
from perfkit.transport.grpc.streaming_reference import StreamingReferenceGrpcTransport
from perfkit.transport.grpc.streaming_transport import StreamingWireGrpcTransport
from perfkit.transport.options import StreamOptions, TransportOptions

WIRE, REFERENCE, GRPCIO = "wire engine", "reference engine", "grpcio alone"
ALLOWED_P50_US, ALLOWED_P99_US = 100, 500
FIRST_MS, STREAMS_PER_ROUND, WARMUP_STREAMS = 10, 5, 20
REQUEST = InferRequest("synthetic", (tensor_from_array("INPUT0", Datatype.FP32, np.zeros((1, 4), np.float32)),))

Measure = Callable[[], Awaitable[float]]


def engine_client(transport: StreamingWireGrpcTransport | StreamingReferenceGrpcTransport) -> Measure:
    """Sends a stream through one of perfkit's engines, and returns the microseconds to its first response."""
    prepared = transport.prepare(REQUEST)

    async def measure() -> float:
        reply = await transport.send(prepared)
        if not reply.responses_ns:
            sys.exit(f"grpcio_streams: {reply}")
        return (reply.responses_ns[0] - reply.started_ns) / 1e3

    return measure


def grpcio_client(channel: grpc.aio.Channel) -> Measure:
    """The same with nothing but grpcio's calls."""
    method: Any = channel.stream_stream(protobuf.method_path("ModelStreamInfer"))
    message = streamed_message(REQUEST)

    async def measure() -> float:
        started_ns = time.monotonic_ns()
        call = method()
        await call.write(message)
        await call.done_writing()
        await call.read()
        first_ns = time.monotonic_ns()
        while await call.read() is not grpc.aio.EOF:
            pass
        return (first_ns - started_ns) / 1e3

    return measure


async def measure_all(url: str, rounds: int) -> dict[str, list[float]]:
    """The times to the first response by client."""
    address, options = Address.parse(url), TransportOptions(timeout_ns=10_000_000_000, stream=StreamOptions())
    wire = StreamingWireGrpcTransport(address, options, time.monotonic_ns)
    reference = StreamingReferenceGrpcTransport(address, options, time.monotonic_ns)
    order, times = random.Random(0), dict[str, list[float]]()
    async with grpc.aio.insecure_channel(address.authority) as channel:
        clients = {WIRE: engine_client(wire), REFERENCE: engine_client(reference), GRPCIO: grpcio_client(channel)}
        for transport in (wire, reference):
            await transport.open(1)
        for name, measure in clients.items():
            times[name] = []
            for _ in range(WARMUP_STREAMS):
                await measure()
        for _ in range(rounds):
            for name in order.sample(list(clients), len(clients)):
                times[name] += [await clients[name]() for _ in range(STREAMS_PER_ROUND)]
        for transport in (wire, reference):
            await transport.aclose()
    return times


def main() -> int:
    """Prints the table."""
    parser = option_parser(__doc__)
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--realtime", action="store_true", help="run server and clients at real-time priority")
    options = parser.parse_args()
    cpus = sorted(os.sched_getaffinity(0))
    if len(cpus) < 2:
        sys.exit("grpcio_streams needs two CPUs: one for the server, one for the clients")
    machine = describe_machine()
    declared = f"service=constant:{FIRST_MS}ms,responses=5,gap=4ms"
    if options.realtime:  # which the server's threads inherit, grpcio's among them
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
    with running_server("--model=synthetic", f"--cpus={cpus[0]}", "--synthetic", declared) as running, on_cpus(cpus[-1:]):
        times = uvloop.run(measure_all(running.url("grpc"), options.rounds))
    p50, p90, p99 = ({name: float(np.percentile(of, share)) for name, of in times.items()} for share in (50, 90, 99))
    rows = [
        table_row(
            name, len(of), *(f"{figure[name] - 1e3 * FIRST_MS:+.0f} us" for figure in (p50, p90, p99)), f"{p99[name] - p50[name]:.0f} us"
        )
        for name, of in times.items()
    ]
    added_us = [figure[REFERENCE] - figure[GRPCIO] for figure in (p50, p99)]
    is_met = added_us[0] <= ALLOWED_P50_US and added_us[1] <= ALLOWED_P99_US
    lines = [
        "# First responses: perfkit's engines beside grpcio",
        "",
        (f"{options.rounds} rounds of {STREAMS_PER_ROUND} streams for each client, one after the other, in random order; the first response is "
        f"declared after {FIRST_MS} ms. Server and clients have one CPU each{', at real-time priority' if options.realtime else ''}. {machine}"),
        "",
        *table_head("client", ">streams", ">p50 − declared", ">p90 − declared", ">p99 − declared", ">p99 − p50"),
        *rows,
        "",
        (f"The reference engine adds {added_us[0]:+.0f} us to the p50 of grpcio alone, and {added_us[1]:+.0f} us to its p99 "
        f"(allowed: {ALLOWED_P50_US} us and {ALLOWED_P99_US} us)."),
    ]  # fmt: skip
    return publish(options.out, lines, is_met=is_met)


if __name__ == "__main__":
    sys.exit(main())
