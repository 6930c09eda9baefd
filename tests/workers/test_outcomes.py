"""Every outcome provoked on real sockets, in either loop over every engine, and counted as exactly that.

A server answers every third request with a fault and the others as it should, each on a connection of its own, so that
what is lost with a connection is one request's. What times out does so for all requests: nothing that is answered could
be too slow then.
"""

import asyncio
import collections
import dataclasses
import itertools
import pathlib
import time
from collections.abc import Callable
from typing import Any

import aiohttp
import grpc
import numpy as np
import pytest
import uvloop
from tritonclient.grpc import service_pb2

from perfkit.clock import MonotonicClock
from perfkit.errors import PerfkitError
from perfkit.load import arrivals
from perfkit.load.arrivals import Schedule
from perfkit.load.load_plan import ClosedPlan, OpenPlan
from perfkit.protocol.message import InferRequest, ModelMetadata, TensorMetadata
from perfkit.protocol.tensor import Datatype, tensor_from_array
from perfkit.recorder.window import cut
from perfkit.scenario.workload import Check
from perfkit.transport.base import Outcome
from perfkit.transport.grpc.reference import ReferenceGrpcTransport
from perfkit.transport.grpc.transport import WireGrpcTransport
from perfkit.transport.http.reference import ReferenceHttpTransport
from perfkit.transport.http.transport import WireHttpTransport
from perfkit.transport.options import TransportOptions
from perfkit.workers.answer_check import AnswerCheck
from perfkit.workload.expectation import Expectation
from tests.measured_points import point_spec, run_point
from tests.transport import grpc_servers, servers
from tests.transport.clients import client_of

S = 1_000_000_000
SENT = 12
FAULTY = SENT // 3
HTTP_ENGINES = {"wire": WireHttpTransport, "reference": ReferenceHttpTransport}
GRPC_ENGINES = {"wire": WireGrpcTransport, "reference": ReferenceGrpcTransport}
SCHEDULE = Schedule("constant", arrivals.constant_rate(1000.0))
LOADS = {"closed": ClosedPlan(4, 0), "open": OpenPlan(1000.0, "constant", SCHEDULE, None, None)}
REQUEST = InferRequest("m", (tensor_from_array("x", Datatype.INT32, np.zeros(2, np.int32)),))

JSON = b'{"model_name":"m","outputs":[{"name":"y","datatype":"INT32","shape":[2],"data":[3,4]}]}'
CLOSE = b"Connection: close\r\n"
METADATA = ModelMetadata("m", ("1",), "", (), (TensorMetadata("y", "INT32", (2,)),))


def message(shape, length):
    found = service_pb2.ModelInferResponse(model_name="m", raw_output_contents=[bytes(length)])
    found.outputs.add(name="y", datatype="INT32", shape=shape)
    return found.SerializeToString()


MESSAGE = message([2], 8)


def http(status, body, length=None):
    length = len(body) if length is None else length
    return b"HTTP/1.1 %d Said\r\n%sContent-Length: %d\r\n\r\n%s" % (status, CLOSE, length, body)


FINE = http(200, JSON)
UNFRAMED = b"HTTP/1.1 200 OK\r\n%s\r\n%s" % (CLOSE, JSON)


@dataclasses.dataclass(frozen=True)
class Spoken:
    """What an HTTP server does in place of an answer: those bytes, and then it closes, resets or hangs."""

    data: bytes
    then: str = "close"


HTTP_FAULTS = {
    "closed before the answer": (Spoken(b""), Outcome.BROKEN),
    "reset before the answer": (Spoken(b"", "reset"), Outcome.BROKEN),
    "closed in the head": (Spoken(FINE[:30]), Outcome.BROKEN),
    "closed in the body": (Spoken(FINE[:-10]), Outcome.BROKEN),
    "reset in the body": (Spoken(FINE[:-10], "reset"), Outcome.BROKEN),
    "length too long": (Spoken(http(200, JSON, len(JSON) + 1)), Outcome.BROKEN),
    "no length, closed": (Spoken(UNFRAMED), Outcome.OK),
    "no length, reset": (Spoken(UNFRAMED, "reset"), Outcome.BROKEN),
    "chunks cut": (Spoken(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhel"), Outcome.BROKEN),
    "no HTTP": (Spoken(b"220 mail ready\r\n\r\n"), Outcome.BROKEN),
    **{f"HTTP {status}": (Spoken(http(status, b'{"error":"no"}')), Outcome.REJECTED) for status in (400, 404, 429, 500, 503)},
    "malformed body": (Spoken(http(200, b'{"outputs":')), Outcome.INVALID_OUTPUT),
    "wrong shape": (Spoken(http(200, JSON.replace(b"[2]", b"[3]").replace(b"4]", b"4,5]"))), Outcome.INVALID_OUTPUT),
    "wrong size": (Spoken(http(200, JSON.replace(b"[2]", b"[3]"))), Outcome.INVALID_OUTPUT),
    "wrong datatype": (Spoken(http(200, JSON.replace(b"INT32", b"INT64"))), Outcome.INVALID_OUTPUT),
    "no outputs": (Spoken(http(200, b'{"model_name":"m","outputs":[]}')), Outcome.INVALID_OUTPUT),
}
HTTP_SILENCES = {
    "no answer": Spoken(b"", "hang"),
    "slow head": Spoken(FINE[:30], "hang"),
    "slow body": Spoken(FINE[:-10], "hang"),
    "no end": Spoken(UNFRAMED, "hang"),
}

GRPC_FAULTS: dict[str, tuple[Callable[[grpc_servers.Call], Any], Outcome]] = {
    "reset before the answer": (lambda call: call.reset(2), Outcome.BROKEN),
    "cancelled by the server": (lambda call: call.reset(8), Outcome.BROKEN),
    "reset in the message": (lambda call: (call.send_head(), call.send_bytes(b"\0\0\0\0\x10abc"), call.reset(2)), Outcome.BROKEN),
    "message cut": (lambda call: (call.send_head(), call.send_bytes(b"\0\0\0\0\x10abc"), call.end_well()), Outcome.BROKEN),
    "no message": (lambda call: (call.send_head(), call.end_well()), Outcome.BROKEN),
    "no trailers": (lambda call: (call.send_head(), call.send_bytes(b"\0\0\0\0\0", ends=True)), Outcome.BROKEN),
    **{
        f"status {code}": (lambda call, code=code: call.end(code, "no"), Outcome.REJECTED)  # type: ignore[misc]  # the default is the loop's
        for code in (1, 2, 3, 4, 5, 8, 12, 13, 14)
    },
    "a deadline of the server's own": (lambda call: call.end(4, "Deadline Exceeded"), Outcome.REJECTED),
    "HTTP 404": (lambda call: call.refuse(404), Outcome.REJECTED),
    "HTTP 503": (lambda call: call.refuse(503), Outcome.REJECTED),
    "malformed message": (lambda call: call.answer(b"\xff"), Outcome.INVALID_OUTPUT),
    "wrong shape": (lambda call: call.answer(message([3], 12)), Outcome.INVALID_OUTPUT),
    "wrong size": (lambda call: call.answer(message([2], 7)), Outcome.INVALID_OUTPUT),
}
# these take the connection along, and with it all calls on it: here every call meets the fault
GRPC_ENDS: dict[str, Callable[[grpc_servers.Call], Any]] = {
    "closed before the answer": lambda call: call.close(),
    "closed in the message": lambda call: (call.send_head(), call.send_bytes(b"\0\0\0\0\x10abc"), call.close()),
    "sent away": lambda call: call.go_away(),
    "sent away in the message": lambda call: (call.send_head(), call.send_bytes(b"\0\0\0\0\x10abc"), call.go_away()),
    "no HTTP/2": lambda call: call.send_raw(b"\xff" * 64),
}
GRPC_SILENCES: dict[str, Callable[[grpc_servers.Call], Any]] = {
    "no answer": lambda _: None,
    "slow message": lambda call: (call.send_head(), call.send_bytes(b"\0\0\0\0\x10abc")),
    "slow trailers": lambda call: (call.send_head(), call.send_bytes(b"\0\0\0\0\0")),
}


def cases(outcome_of):
    """Every fault in a closed loop, and the first fault of each outcome also in an open one."""
    first = {outcome: fault for fault, outcome in reversed(outcome_of.items())}
    return [(fault, "closed") for fault in outcome_of] + [(fault, "open") for fault in first.values()]


@pytest.fixture(params=LOADS)
def load(request):
    return LOADS[request.param]


def http_server(fault, *, always=False):
    """Serves one request a connection: every third one with the fault, or all."""
    requests = itertools.count()

    async def serve(reader, writer):
        while (await servers.read_request(reader))[0].startswith(b"GET "):  # by which an engine opens a connection
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
        spoken = fault if always or next(requests) % 3 == 0 else Spoken(FINE)
        writer.write(spoken.data)
        await writer.drain()
        if spoken.then == "reset":
            servers.reset(writer)
        elif spoken.then == "hang":
            await asyncio.get_running_loop().create_future()

    return servers.scripted_server(serve)


def grpc_server(fault, *, always=False):
    calls = itertools.count()
    return grpc_servers.scripted_grpc_server(lambda call: fault(call) if always or next(calls) % 3 == 0 else call.answer(MESSAGE))


async def measure(transport, address, load, connections):
    """One load point of so many requests: its counts, which add up."""
    spec = point_spec(load, 0, None, SENT, 60 * S, connections)
    expectation = Expectation.of((REQUEST,), METADATA, Check(), None, pathlib.Path())
    point = await run_point(
        spec, transport.transport, [transport.prepare(REQUEST)], decode=transport.decode, clock=MonotonicClock(), address=address, on_loop=lambda _: None,
        check=AnswerCheck(transport, expectation, share=1.0, at_most_per_s=1e9),
    )  # fmt: skip
    window = cut(point.recording, 0, is_open=isinstance(load, OpenPlan))
    assert window.count("dropped") + sum(window.outcomes.values()) == SENT
    return point, window


def set_time_out(transport, timeout_ns):
    """Sets the time-out of an engine's requests from now on."""
    match transport:
        case ReferenceHttpTransport():
            transport._session._timeout = aiohttp.ClientTimeout(total=timeout_ns / S)
        case ReferenceGrpcTransport():
            transport._timeout_s = timeout_ns / S
        case _:
            transport._pool.timeout_ns = timeout_ns


async def outcomes_of(make, server, load, *, timeout_ns=60 * S, connections=0):
    """What becomes of the requests; the connections are open before, since on a busy machine they may take longer than the requests may."""
    async with server as bound:
        address = dataclasses.replace(bound, protocol="grpc" if make in GRPC_ENGINES.values() else "http")
        transport = client_of(make, address, TransportOptions(max_connections=64, timeout_ns=60 * S), time.monotonic_ns)
        try:
            await transport.open(connections)
            set_time_out(transport.transport, timeout_ns)
            point, window = await measure(transport, address, load, 0)
        finally:
            await transport.aclose()
        return +collections.Counter(window.outcomes), point, window


def expected(outcome):
    return collections.Counter({outcome: FAULTY}) + collections.Counter({Outcome.OK: SENT - FAULTY})


@pytest.mark.parametrize(("fault", "load"), cases({fault: outcome for fault, (_, outcome) in HTTP_FAULTS.items()}), indirect=["load"])
@pytest.mark.parametrize("engine", HTTP_ENGINES)
def test_a_fault_of_an_http_server_is_counted_as_what_it_is(engine, fault, load):
    spoken, outcome = HTTP_FAULTS[fault]
    if engine == "reference" and fault == "no length, reset":
        outcome = Outcome.OK  # aiohttp takes any end of the connection for the end of such an answer
    counted, point, window = uvloop.run(outcomes_of(HTTP_ENGINES[engine], http_server(spoken), load))
    assert counted == expected(outcome)
    assert window.statuses == ({fault.split()[1]: FAULTY} if outcome is Outcome.REJECTED else {})
    if outcome is not Outcome.OK:
        assert {kind.outcome for kind in window.failures if kind.message} == {outcome}
    # a closed loop needs four connections at a time, and every request closes its own
    assert point.connections.opened == SENT
    if isinstance(load, ClosedPlan):
        assert point.connections.reconnects == SENT - load.concurrency
    assert point.connections.retried == 0


@pytest.mark.parametrize(("fault", "load"), cases({fault: outcome for fault, (_, outcome) in GRPC_FAULTS.items()}), indirect=["load"])
@pytest.mark.parametrize("engine", GRPC_ENGINES)
def test_a_fault_of_a_grpc_server_is_counted_as_what_it_is(engine, fault, load):
    do, outcome = GRPC_FAULTS[fault]
    counted, point, window = uvloop.run(outcomes_of(GRPC_ENGINES[engine], grpc_server(do), load, connections=4))
    assert counted == expected(outcome)
    assert sum(window.statuses.values()) == (FAULTY if outcome is Outcome.REJECTED else 0)
    if outcome is not Outcome.OK:
        assert {kind.outcome for kind in window.failures if kind.message} == {outcome}
    if isinstance(load, ClosedPlan):  # an open loop opens more where answers are late
        assert point.connections.opened == 4
    assert point.connections.reconnects == 0


@pytest.mark.parametrize(("fault", "load"), cases(dict.fromkeys(GRPC_ENDS, Outcome.BROKEN)), indirect=["load"])
@pytest.mark.parametrize("engine", GRPC_ENGINES)
def test_a_grpc_connection_that_ends_breaks_the_calls_on_it(engine, fault, load):
    counted, point, _ = uvloop.run(outcomes_of(GRPC_ENGINES[engine], grpc_server(GRPC_ENDS[fault], always=True), load, connections=4))
    assert counted == {Outcome.BROKEN: SENT}
    assert point.connections.opened == 4 + point.connections.reconnects


@pytest.mark.parametrize(
    ("make", "serve", "fault"),
    [
        *((make, http_server, fault) for make in HTTP_ENGINES.values() for fault in HTTP_SILENCES.values()),
        *((make, grpc_server, fault) for make in GRPC_ENGINES.values() for fault in GRPC_SILENCES.values()),
    ],
)
def test_an_answer_that_does_not_come_in_time_is_timed_out(make, serve, fault, load):
    together, connections = ClosedPlan(SENT, 0) if isinstance(load, ClosedPlan) else load, 1 if serve is grpc_server else SENT
    counted, *_ = uvloop.run(outcomes_of(make, serve(fault, always=True), together, timeout_ns=S // 4, connections=connections))
    assert counted == {Outcome.TIMED_OUT: SENT}


@pytest.mark.parametrize("engine", [*HTTP_ENGINES, "grpc"])
def test_a_target_that_refuses_connections_is_counted_as_that(engine, load):
    make: Any = ReferenceGrpcTransport if engine == "grpc" else HTTP_ENGINES[engine]

    async def main():
        async with grpc_server(lambda _: None) if engine == "grpc" else http_server(Spoken(b"")) as bound:
            address = dataclasses.replace(bound, protocol="grpc" if engine == "grpc" else "http")
            transport = client_of(make, address, TransportOptions(max_connections=64, timeout_ns=60 * S), time.monotonic_ns)
            if engine == "grpc":
                await transport.open(1)
        if engine == "grpc":  # which notices that the connection is gone when it is used
            with pytest.raises(PerfkitError):
                await transport.server_metadata()
        point, window = await measure(transport, address, load, 0)
        await transport.aclose()
        return point, window

    _, window = uvloop.run(main())
    assert +collections.Counter(window.outcomes) == {Outcome.CONNECT_FAILED: SENT}
    assert all("connect" in text.lower() or "cannot be reached" in text for text in (kind.message for kind in window.failures))


@pytest.mark.parametrize("code", [grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.RESOURCE_EXHAUSTED, grpc.StatusCode.DEADLINE_EXCEEDED])
@pytest.mark.parametrize("engine", GRPC_ENGINES)
def test_a_status_of_a_grpcio_server_is_a_rejection(engine, code, load):
    calls = itertools.count()

    async def infer(_message, context):
        if next(calls) % 3 == 0:
            await context.abort(code, "the queue is full")
        return MESSAGE

    counted, _, window = uvloop.run(outcomes_of(GRPC_ENGINES[engine], grpc_servers.grpcio_server(infer), load, connections=4))
    assert counted == expected(Outcome.REJECTED)
    assert window.statuses == {code.name: FAULTY}
