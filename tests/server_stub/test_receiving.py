"""Large requests received in threads, over both protocols: answered with what was sent, whatever clients do meanwhile."""

import asyncio
import collections
import concurrent.futures
import contextlib
import pathlib
import random
import socket
import struct
import threading

import numpy as np
import psutil
import pytest
import tritonclient.grpc
import uvloop

from server_stub.grpc.front_end import GrpcFrontEnd
from server_stub.http.front_end import HttpFrontEnd
from server_stub.log import Log
from server_stub.options import Limits, Options
from server_stub.receiving import Receiver, ReceivingThreads, thread_count
from server_stub.repository.sources import open_repository
from server_stub.service import Service
from server_stub.settings import Settings
from server_stub.shared_memory.regions import SharedMemoryRegions
from tests.conditions import until, wait_until
from tests.server_stub.http.test_large_requests import connected, echoed, raw_request

MODEL = "identity_uint8"
LARGE = 3_000_000
BODY = random.Random(0).randbytes(LARGE)


def open_connections(ports):
    """The server's ends of connections that it has not closed, by whatever descriptor."""
    return [one for one in psutil.Process().net_connections("tcp") if one.laddr.port in ports and one.status != psutil.CONN_LISTEN]


def open_sockets():
    """The socket of each descriptor that has one."""
    for descriptor in pathlib.Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):  # that of the folder itself
            if (name := str(descriptor.readlink())).startswith("socket:"):
                yield name


def serve(clients, threads=2, *, closes=True, **limits):
    """Runs `clients(http_port, grpc_port)` beside both front ends, and returns how often a thread was given a request.

    The clients are gone then, and the server has to close their connections, unless `closes` is False.
    """

    async def main():
        repository, receiving = open_repository(Options(models=(MODEL,)), 1), ReceivingThreads(threads)
        await asyncio.to_thread(repository.load)
        regions, log = SharedMemoryRegions(is_allowed=False), Log(Settings())
        service = Service(repository, regions, log, Limits(**limits), threads=receiving)
        http, grpc = HttpFrontEnd(service), GrpcFrontEnd(service)
        try:
            ports = await http.start("127.0.0.1", 0), await grpc.start("127.0.0.1", 0)
            await asyncio.to_thread(clients, *ports)
            if closes:
                await until(lambda: not open_connections(ports))
        finally:
            await asyncio.gather(http.stop(), grpc.stop())
            receiving.close()
            repository.close()
        return receiving.handed_over

    return uvloop.run(main())


def begun(port):
    """A connection whose large request has begun and waits for its last byte."""
    connection = connected(port)
    connection.sendall(raw_request(BODY)[: -LARGE // 2])
    return connection


def grpc_answer(port, body):
    with tritonclient.grpc.InferenceServerClient(f"127.0.0.1:{port}") as client:
        tensor = tritonclient.grpc.InferInput("INPUT0", [1, len(body)], "UINT8")
        tensor.set_data_from_numpy(np.frombuffer(body, np.uint8)[None])
        return client.infer(MODEL, [tensor]).as_numpy("OUTPUT0").tobytes()


def test_a_request_alone_is_received_in_the_event_loop():
    def clients(http_port, grpc_port):
        with connected(http_port) as connection:
            for _ in range(3):
                connection.sendall(raw_request(BODY))
                assert echoed(connection) == [BODY]
        assert grpc_answer(grpc_port, BODY) == BODY

    assert serve(clients) == 0


@pytest.mark.parametrize("protocol", ["http", "grpc"])
def test_a_request_beside_another_is_received_by_a_thread(protocol):
    def clients(http_port, grpc_port):
        with begun(http_port) as first:
            if protocol == "http":
                with connected(http_port) as connection:
                    for _ in range(3):
                        connection.sendall(raw_request(BODY))
                        assert echoed(connection) == [BODY]
            else:
                assert grpc_answer(grpc_port, BODY) == BODY
            first.sendall(BODY[-LARGE // 2 :])
            assert echoed(first) == [BODY]

    assert serve(clients) > 0


def test_what_comes_slowly_or_pipelined_is_answered_in_order():
    bodies = [random.Random(seed).randbytes(size) for seed, size in enumerate((1_000_000, 16, 2_000_000, 300_000))]
    sent = b"".join(map(raw_request, bodies))

    def clients(http_port, _):
        with begun(http_port), connected(http_port) as connection, concurrent.futures.ThreadPoolExecutor(1) as pool:
            pool.submit(lambda: [connection.sendall(sent[first : first + 9973]) for first in range(0, len(sent), 9973)])
            assert echoed(connection, len(bodies)) == bodies

    assert serve(clients) > 0


def test_clients_that_leave_in_the_middle_leave_nothing_behind():
    def leave(client, http_port):
        rng = random.Random(client)
        for _ in range(12):
            with connected(http_port) as connection:
                connection.sendall(raw_request(BODY)[: rng.randrange(LARGE)])
                if rng.random() < 0.5:  # a reset, which is noticed at once
                    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))

    def converse(client, http_port, grpc_port):
        rng = random.Random(client)
        with connected(http_port) as connection:
            for _ in range(8):
                body = rng.randbytes(rng.choice((100_000, 700_000, LARGE)))
                connection.sendall(raw_request(body))
                assert echoed(connection) == [body]
                assert grpc_answer(grpc_port, body) == body

    def clients(http_port, grpc_port):
        with concurrent.futures.ThreadPoolExecutor(6) as pool:
            ended = [pool.submit(leave, client, http_port) for client in range(3)]
            for one in [*ended, *(pool.submit(converse, client, http_port, grpc_port) for client in range(3, 6))]:
                one.result()

    assert serve(clients) > 0


def send_bytewise(connection):
    """Sends a large request a byte at a time, until the connection is ended."""
    with contextlib.suppress(OSError):
        connection.sendall(raw_request(bytes(100_000_000))[:300_000])
        while True:
            connection.send(b"x")


class BusyThreads(ReceivingThreads):
    """Threads that take a job and do not end it."""

    def __init__(self):
        super().__init__(0)

    def take(self, receiver):
        return True

    def put(self, job):
        pass


class SocketTransport(asyncio.Transport):
    """A transport that has a socket and nothing else."""

    def __init__(self, own):
        super().__init__({"socket": own})

    def is_closing(self):
        return False

    def pause_reading(self):
        pass


class Connection:
    """A connection that gets nothing."""

    def buffer_updated(self, nbytes):
        raise AssertionError

    def continue_reading(self):
        raise AssertionError


async def test_a_closed_connection_is_not_kept_open_by_the_thread_that_receives_from_it():
    client, own = socket.socketpair()
    with client, own:
        receiver = Receiver(BusyThreads(), SocketTransport(own), Connection())
        receiver.expect(memoryview(bytearray(LARGE)))
        assert receiver.is_active
        own.close()
        receiver.close()
        client.settimeout(60)
        assert client.recv(1) == b""
        receiver.finish(0, False)


def test_the_server_stops_while_a_client_sends_slowly():
    with contextlib.ExitStack() as opened:

        def clients(http_port, _):
            opened.enter_context(begun(http_port))
            connection = opened.enter_context(connected(http_port))
            sender = threading.Thread(target=send_bytewise, args=(connection,))
            sender.start()
            opened.callback(sender.join)

        serve(clients, closes=False, stop_timeout_s=0.5)


def test_a_connection_keeps_no_second_descriptor():
    def clients(http_port, _):
        with begun(http_port) as first, connected(http_port) as second:
            second.sendall(raw_request(BODY))
            assert echoed(second) == [BODY]
            first.sendall(BODY[-LARGE // 2 :])
            assert echoed(first) == [BODY]
            # the answer is written before the second one is closed
            wait_until(lambda: max(collections.Counter(open_sockets()).values()) == 1)

    assert serve(clients) > 0


@pytest.mark.parametrize(("cpus", "threads"), [(1, 0), (3, 0), (4, 1), (8, 2), (16, 4), (96, 4)])
def test_few_cpus_have_no_threads(cpus, threads):
    assert thread_count(cpus) == threads
