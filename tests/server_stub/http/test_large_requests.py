"""Large requests on the fast path: received into a buffer in any pieces, answered with what was sent, in bounded memory."""

import concurrent.futures
import itertools
import json
import random
import resource
import socket
import struct

import numpy as np
import psutil
import pytest

from server_stub.devices.cuda_driver import CudaDriver
from server_stub.devices.host_memory import HostMemory
from server_stub.http.request_buffer import RequestBuffer
from tests.conditions import passes, until
from tests.server_stub.devices.fake_cuda import FakeCuda
from tests.server_stub.http.fast_path_harness import START, Harness, asked, written
from tests.server_stub.http.test_fast_path import read_responses

RAW = b"POST /v2/models/identity_uint8/infer HTTP/1.1\r\nHost: x\r\nInference-Header-Content-Length: 0\r\n"
SMALL = 2**16
SIZES = (SMALL + 1, 16, 5_000_000, 70_000, SMALL, SMALL + 1, 1_000_000, 1, 300_000)
STATISTICS = b"GET /v2/models/identity_uint8 HTTP/1.1\r\nHost: x\r\n\r\n"


def raw_request(body):
    return RAW + b"Content-Length: %d\r\n\r\n" % len(body) + body


def data(size, seed=0):
    return random.Random(seed).randbytes(size)


def connected(port):
    connection = socket.create_connection(("127.0.0.1", port), timeout=60)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection


def echoed(connection, count=1):
    """The tensors of the next responses."""
    tensors = []
    for status, headers, body in read_responses(connection, count):
        assert status == 200, body
        tensors.append(body[int(headers["inference-header-content-length"]) :])
    return tensors


@pytest.fixture
def connection(server):
    with connected(server.http_port) as one:
        yield one


def test_sizes_may_change_from_request_to_request(connection):
    for number, size in enumerate(SIZES * 2):
        body = data(size, number)
        connection.sendall(raw_request(body))
        assert echoed(connection) == [body]


HEAD_BYTES = len(raw_request(bytes(300_000))) - 300_000


@pytest.mark.parametrize(
    "cuts",
    [
        [10],
        [HEAD_BYTES - 1],
        [HEAD_BYTES],
        [HEAD_BYTES + 1],
        [-1],
        [SMALL, SMALL + 1],
        [HEAD_BYTES + SMALL],
        [HEAD_BYTES, -1],
        list(range(HEAD_BYTES, HEAD_BYTES + 100)),
        list(range(0, 300_000, 7919)),
    ],
)
def test_a_request_split_anywhere_is_answered(connection, cuts):
    for seed in range(2):
        body = data(300_000, seed)
        sent = raw_request(body)
        places = sorted({0, len(sent), *(cut % len(sent) for cut in cuts)})
        for first, last in itertools.pairwise(places):
            connection.sendall(sent[first:last])
        assert echoed(connection) == [body]


@pytest.mark.parametrize("order", list(itertools.permutations((100_000, 16, 2_000_000))))
def test_pipelined_requests_of_all_sizes_are_answered_in_order(server, order):
    bodies = [data(size, seed) for seed, size in enumerate((*order, *order))]
    with connected(server.http_port) as connection, concurrent.futures.ThreadPoolExecutor(1) as pool:
        pool.submit(connection.sendall, b"".join(map(raw_request, bodies)) + STATISTICS)  # it blocks until answers are read
        *answers, (status, _, metadata) = read_responses(connection, 7)
        assert [body[-len(sent) :] for (_, _, body), sent in zip(answers, bodies, strict=True)] == bodies
        assert (status, json.loads(metadata)["name"]) == (200, "identity_uint8")


def test_clients_at_once_get_what_they_sent_while_others_disconnect(server):
    def converse(client):
        rng = random.Random(client)
        with connected(server.http_port) as connection:
            for _ in range(12):
                body = rng.randbytes(rng.choice((100_000, 700_000, 3_000_000)))
                connection.sendall(raw_request(body))
                assert echoed(connection) == [body]

    def disconnect(client):
        rng = random.Random(client)
        for _ in range(12):
            with connected(server.http_port) as connection:
                sent = raw_request(bytes([client]) * 1_000_000)
                # in the middle of the body, or before the answer; with a reset, which is noticed at once
                connection.sendall(sent[: rng.choice((len(sent), rng.randrange(len(sent))))])
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))

    with concurrent.futures.ThreadPoolExecutor(6) as pool:
        for ended in [pool.submit(converse if client < 4 else disconnect, client) for client in range(6)]:
            ended.result()


def test_the_error_for_an_unknown_model_does_not_wait_for_a_large_body(server):
    for first in (b"", raw_request(bytes(100_000))):
        with connected(server.http_port) as connection:
            connection.sendall(first + RAW.replace(b"identity_uint8", b"unknown") + b"Content-Length: 100000000\r\n\r\n")
            status, _, answer = read_responses(connection, 2 if first else 1)[-1]
            assert (status, json.loads(answer)) == (404, {"error": "Request for unknown model: 'unknown' is not found"})


def test_the_limit_of_bodies_holds_for_large_ones(start_server):
    with start_server("--model=identity_uint8", "--max-body=100000") as server, connected(server.http_port) as connection:
        connection.sendall(raw_request(bytes(100_000)))
        assert echoed(connection) == [bytes(100_000)]
        connection.sendall(raw_request(bytes(100_001)))
        status, _, answer = read_responses(connection)[0]
        assert (status, json.loads(answer)) == (400, {"error": "request size exceeds the maximum allowed input size of 100000 bytes"})


LARGE = asked(data(200_000))


async def test_a_large_body_arrives_as_a_view_that_cannot_be_written():
    harness = Harness()
    assert harness.receive(LARGE) == b""
    await until(lambda: len(harness.asked) == 1)
    assert isinstance(harness.asked[0], memoryview)
    assert harness.asked[0].readonly
    assert bytes(harness.asked[0]) == data(200_000)
    harness.connection.close()


@pytest.mark.parametrize("is_closed", [False, True])
async def test_memory_that_is_still_read_is_not_used_again(is_closed):
    harness = Harness()
    harness.receive(LARGE)
    await until(lambda: len(harness.asked) == 1)  # the harness keeps the view, as a batch does that is being executed
    if is_closed:
        harness.connection.close()
        others = [RequestBuffer(harness.memory.take) for _ in range(9)]
        for other in others:
            other.append(bytes(300_000))
    else:
        harness.released.release()
        await until(lambda: harness.transport.written == written(data(200_000)))
        harness.receive(asked(bytes(200_000)))
        await until(lambda: len(harness.asked) == 2)
        assert bytes(harness.asked[1]) == bytes(200_000)
        harness.connection.close()
    assert bytes(harness.asked[0]) == data(200_000)


async def test_a_client_that_pipelines_large_requests_is_not_read_from_until_its_request_is_answered():
    harness = Harness()
    bodies = [data(200_000, seed) for seed in range(3)]
    left = b"".join(map(asked, bodies))
    for count in range(1, 4):
        left = harness.receive(left)
        await until(lambda: len(harness.asked) == count)  # noqa: B023 - it is called at once
        assert harness.transport.reads == (left == b"")
        harness.released.release()
        await until(lambda: harness.transport.reads)
    assert left == b""
    await until(lambda: harness.transport.written == written(*bodies))
    assert [bytes(body) for body in harness.asked] == bodies
    harness.connection.close()


async def test_a_client_that_sends_more_before_the_answer_is_not_read_from():
    harness = Harness()
    assert harness.receive(LARGE) == b""
    left = harness.receive(LARGE)
    assert (len(left), harness.transport.reads) == (len(LARGE) - 50_000, False)
    harness.released.release()
    await until(lambda: harness.transport.reads)
    assert harness.receive(left) == b""
    harness.released.release()
    await until(lambda: harness.transport.written == written(data(200_000), data(200_000)))
    harness.connection.close()


async def test_a_client_that_does_not_read_is_not_read_from_in_mid_body():
    harness = Harness()
    harness.receive(LARGE[:100_000])
    harness.connection.pause()
    assert harness.receive(LARGE[100_000:]) == LARGE[100_000:]
    harness.connection.resume()
    assert harness.receive(LARGE[100_000:]) == b""
    await until(lambda: len(harness.asked) == 1)
    harness.connection.close()


async def test_the_body_timeout_holds_for_large_bodies():
    harness = Harness(body_timeout_s=0.01)
    harness.receive(LARGE[:-1])
    await until(lambda: not harness.transport.is_open)
    assert harness.transport.written.startswith(b"HTTP/1.1 400 Bad Request\r\n")
    harness.connection.close()


@pytest.mark.parametrize("received_bytes", [len(LARGE), len(LARGE) - 1, 100])
async def test_stopping_waits_for_the_large_request_that_has_begun(received_bytes):
    harness = Harness()
    harness.receive(LARGE[:received_bytes])
    ending = harness.connection._loop.create_task(harness.connection.stop())
    await passes(1)
    harness.receive(LARGE[received_bytes:])
    harness.released.release()
    await ending
    assert (harness.transport.written, harness.transport.is_open) == (written(data(200_000)), False)


async def test_large_requests_that_are_answered_at_once_leave_the_bytes_behind_them_to_the_next_request():
    large = data(200_000), data(300_000, 1)
    harness = Harness(prompt=(*large, b"small"))
    assert harness.receive(asked(large[0]) + asked(large[1]) + asked(b"small")) == b""
    assert harness.transport.written == written(*large, b"small")
    assert (harness.asked, harness.transport.reads) == ([], True)
    harness.connection.close()


async def test_any_other_request_is_handed_over_whole_after_a_large_one():
    harness = Harness()
    assert harness.receive(LARGE + STATISTICS) == b""
    harness.released.release()
    await until(lambda: harness.handed_over == [STATISTICS])
    assert harness.transport.written == written(data(200_000))
    assert not harness.connection.is_buffered


async def test_a_connection_that_turns_to_small_requests_receives_them_as_before():
    harness = Harness()
    for body in (data(200_000), b"a", data(SMALL), data(SMALL + 1), b"b"):
        harness.receive(asked(body))
        harness.released.release()
        await until(lambda: harness.transport.written == written(body))  # noqa: B023 - it is called at once
        assert harness.connection.is_buffered == (len(body) > SMALL)
        harness.transport.written = b""
    harness.connection.close()


def test_received_bytes_move_to_larger_memory_while_a_transport_holds_a_view():
    buffer = RequestBuffer(HostMemory().take)
    buffer.append(b"head")
    view = buffer.space()
    buffer.begin(4, 1_000_000)
    assert len(buffer.space()) > len(view)
    assert buffer.head(9) == b"head"


async def test_without_address_space_for_as_much_as_before_the_next_request_gets_less():
    buffer = RequestBuffer(HostMemory().take)
    buffer.append(b"head")
    buffer.begin(4, 2**30)
    assert len(buffer.space()) > 2**29
    body = buffer.body()  # which is still read when the next request comes
    buffer.take_rest()
    unlimited = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (psutil.Process().memory_info().vms + 2**29, unlimited[1]))
    try:
        space = buffer.space()
    finally:
        resource.setrlimit(resource.RLIMIT_AS, unlimited)
    assert 0 < len(space) < 2**29
    body.release()
    buffer.release()


@pytest.mark.parametrize("requests_before", [0, 1])
async def test_a_request_larger_than_the_address_space_is_handed_over(requests_before):
    harness = Harness(max_body_bytes=2**62)
    for _ in range(requests_before):  # the next one arrives in the buffer
        harness.receive(LARGE)
        harness.released.release()
        await until(lambda: harness.transport.written == written(data(200_000)))
    huge = START + b"Content-Length: %d\r\n\r\n" % 2**60 + b"begin"
    harness.receive(huge)
    assert harness.handed_over == [huge]
    assert not harness.connection.is_buffered


async def test_an_announced_body_takes_memory_only_as_it_arrives():
    head = START + b"Content-Length: %d\r\n\r\n" % 2**30
    harnesses = [Harness() for _ in range(20)]
    before_bytes = psutil.Process().memory_info().rss
    for harness in harnesses:
        assert harness.receive(head + bytes(100_000)) == b""
        assert len(harness.connection.get_buffer()) > 2**29
    assert psutil.Process().memory_info().rss - before_bytes < 2**27
    for harness in harnesses:
        harness.connection.close()


@pytest.fixture
def gpu_driver():
    return CudaDriver(lambda _: FakeCuda())


async def test_page_locked_memory_serves_one_request_after_the_other(gpu_driver):
    harness = Harness(memory=HostMemory(gpu_driver))
    for number in range(3):
        harness.receive(LARGE)
        await until(lambda count=number + 1: len(harness.asked) == count)
        assert gpu_driver.is_pinned(np.frombuffer(harness.asked[-1], np.uint8).ctypes.data)
        harness.asked[-1] = b""
        harness.released.release()
        await until(lambda count=number + 1: harness.transport.written == written(*[data(200_000)] * count))
    assert harness.memory.pinned_bytes < 3 * len(LARGE)
    harness.connection.close()
