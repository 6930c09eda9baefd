"""How long a server asks a client to wait before it sends a request again, over both protocols, and a sender that does so."""

import time

import pytest

from perfkit.load.retries import RetryingSender, RetryPlan, with_retries
from perfkit.transport.base import Outcome, Reply, RetriedReply
from perfkit.transport.connect import NO_CONNECTION_FREE
from perfkit.transport.http.reference import ReferenceHttpTransport
from perfkit.transport.http.transport import WireHttpTransport
from perfkit.transport.options import TransportOptions
from tests.transport import servers
from tests.transport.clients import client_of
from tests.transport.http2_peer import OK_HEADERS, OK_TRAILERS, framed, h2_server
from tests.transport.test_wire_grpc import MESSAGE, REQUEST
from tests.transport.test_wire_grpc import make as make_grpc
from tests.transport.test_wire_http import ANSWER

MS, S = 1_000_000, 1_000_000_000
OPTIONS = TransportOptions(timeout_ns=30 * S)


def rejection(header=b""):
    return b"HTTP/1.1 503 Service Unavailable\r\n%bContent-Length: 4\r\n\r\nbusy" % header


async def asked_over_http(engine, header, request):
    async with servers.scripted_server(servers.answering(rejection(header))) as address:
        transport = client_of(engine, address, OPTIONS, time.monotonic_ns)
        reply = await transport.send(transport.prepare(request))
        await transport.aclose()
        return reply.outcome, transport.retry_after_ns(reply)


@pytest.mark.parametrize("engine", [WireHttpTransport, ReferenceHttpTransport])
@pytest.mark.parametrize(
    ("header", "expected_ns"),
    [
        (b"", None),
        (b"Retry-After: 0\r\n", 0),
        (b"retry-after:  7 \r\n", 7 * S),
        (b"Retry-After: Fri, 31 Dec 1999 23:59:59 GMT\r\n", None),
        (b"Retry-After: -1\r\n", None),
        (b"Retry-After: 86400\r\n", 86_400 * S),
        (b"Retry-After: 86401\r\n", -1),  # nobody waits so long: the failure is final
        (b"Retry-After: 99999999999999999999\r\n", -1),
    ],
)
def test_a_rejection_over_http_may_ask_for_a_pause(run, engine, infer_request, header, expected_ns):
    assert run(asked_over_http(engine, header, infer_request)) == (Outcome.REJECTED, expected_ns)


def pushing(*pushbacks):
    """Refuses the first requests with these `grpc-retry-pushback-ms`, and answers the next."""

    async def script(peer):
        for pushback in pushbacks:
            stream_id, _, _ = await peer.requests.get()
            asked = [] if pushback is None else [("grpc-retry-pushback-ms", pushback)]
            peer.h2.send_headers(stream_id, [*OK_HEADERS, ("grpc-status", "14"), ("grpc-message", "busy"), *asked], end_stream=True)
            peer.flush()
        while True:
            stream_id, _, _ = await peer.requests.get()
            peer.h2.send_headers(stream_id, OK_HEADERS)
            peer.h2.send_data(stream_id, framed(MESSAGE))
            peer.h2.send_headers(stream_id, OK_TRAILERS, end_stream=True)
            peer.flush()

    return script


@pytest.mark.parametrize(("pushback", "expected_ns"), [(None, None), ("0", 0), ("250", S // 4), ("-1", -1), ("soon", -1)])
def test_a_refusal_over_grpc_may_ask_for_a_pause(run, pushback, expected_ns):
    async def asked():
        async with h2_server(pushing(pushback)) as address:
            transport = make_grpc(address)
            reply = await transport.send(transport.prepare(REQUEST))
            await transport.aclose()
            return reply.outcome, reply.error, transport.retry_after_ns(reply)

    assert run(asked()) == (Outcome.REJECTED, "UNAVAILABLE: busy", expected_ns)


class SleeplessClock:
    """A clock that stands still and whose sleeps end at once; it lists them."""

    def __init__(self):
        self.sleeps_ns = []

    def now_ns(self):
        return 0

    async def sleep_until_ns(self, instant_ns):
        self.sleeps_ns.append(instant_ns)


async def sent_again(client, request, attempts):
    """The reply, and the pauses before it."""
    plan = RetryPlan(attempts, MS, MS, False, ("503", "UNAVAILABLE", "timeout"), None, 0)
    sender = RetryingSender(client.transport, plan, clock := SleeplessClock())
    (prepared, *_) = with_retries([client.prepare(request)], plan)
    reply = await sender.send(prepared)
    await client.aclose()
    return reply, clock.sleeps_ns


def test_a_request_is_sent_as_often_as_the_server_refuses_it_and_not_before_it_asks(run, infer_request):
    seen: list[bytes] = []
    answers = [rejection(), rejection(b"Retry-After: 7\r\n"), rejection(), ANSWER]

    async def http():
        async with servers.scripted_server(servers.answering(*answers, seen=seen)) as address:
            return await sent_again(client_of(WireHttpTransport, address, OPTIONS, time.monotonic_ns), infer_request, 9)

    reply, sleeps_ns = run(http())
    assert isinstance(reply, RetriedReply)
    assert (reply.outcome, [one.cause for one in reply.attempts]) == (Outcome.OK, ["503"] * 3 + [""])
    assert len(seen) == 4
    assert len(set(seen)) == 1
    assert sleeps_ns == [MS, 7 * S, MS]


def test_a_request_for_which_no_connection_became_free_is_not_sent_again(run, infer_request):
    async def http():
        async with servers.scripted_server(servers.hanging()) as address:
            client = client_of(WireHttpTransport, address, TransportOptions(timeout_ns=S // 10, max_connections=1), time.monotonic_ns)
            await client.transport.open(1)
            client.transport._pool.take()
            return await sent_again(client, infer_request, 2)

    reply, sleeps_ns = run(http())
    assert (type(reply), reply.outcome, reply.error, sleeps_ns) == (Reply, Outcome.TIMED_OUT, NO_CONNECTION_FREE, [])


@pytest.mark.parametrize(("pushbacks", "causes"), [((None, "100", None), ["UNAVAILABLE"] * 3 + [""]), (("-1",), None)])
def test_a_call_is_sent_again_unless_the_server_forbids_it(run, pushbacks, causes):
    async def grpc():
        async with h2_server(pushing(*pushbacks)) as address:
            return await sent_again(make_grpc(address), REQUEST, 9)

    reply, sleeps_ns = run(grpc())
    if causes is None:
        assert (type(reply) is RetriedReply, reply.outcome) == (False, Outcome.REJECTED)
        return
    assert [one.cause for one in reply.attempts] == causes
    assert sleeps_ns == [MS, 100 * MS, MS]
