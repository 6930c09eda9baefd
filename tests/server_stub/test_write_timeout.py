"""The time-out of clients that do not read, with a scripted transport, and over gRPC."""

import asyncio
import socket

import numpy as np
import pytest
from tritonclient.grpc import service_pb2 as triton

from perfkit.protocol import http2
from perfkit.protocol.http2 import number_frame
from server_stub.write_timeout import WriteTimeout
from tests.server_stub.grpc.h2_caller import SERVICE, framed
from tests.server_stub.grpc.session_recorder import GREETING, data_frame, headers_frame


class Transport(asyncio.Transport):
    """Has 100 bytes to write, or as many as its `size_bytes` is set to."""

    def __init__(self, size_bytes=100):
        super().__init__()
        self.size_bytes = size_bytes
        self.aborted = asyncio.Event()

    def get_write_buffer_size(self):
        return self.size_bytes

    def abort(self):
        self.aborted.set()


async def test_a_connection_is_aborted_if_nothing_is_written():
    transport = Transport()
    WriteTimeout(transport, 0.001).start()
    await transport.aborted.wait()


async def test_what_is_added_meanwhile_is_no_progress():
    transport = Transport()

    def written_bytes():
        transport.size_bytes += 50
        return transport.size_bytes

    WriteTimeout(transport, 0.001, written_bytes).start()
    await transport.aborted.wait()


async def test_a_client_that_reads_while_more_is_added_is_not_aborted():
    transport, written = Transport(), iter([100, 250, 400, 400, 500, 500, 500])
    asked = []

    def written_bytes():
        asked.append(next(written))
        return asked[-1]

    WriteTimeout(transport, 0.001, written_bytes).start()
    await transport.aborted.wait()
    # asked at the start of each period and at its end: two periods with progress, one without
    assert asked == [100, 250, 400, 400]


async def test_data_that_cannot_be_written_yet_counts():
    WriteTimeout(transport := Transport(0), 0.001, held_bytes=lambda: 1).start()
    await transport.aborted.wait()


async def test_the_time_out_ends_when_nothing_waits():
    transport, was_asked = Transport(0), asyncio.Event()

    def held_bytes():
        was_asked.set()
        return 0

    WriteTimeout(transport, 0, held_bytes=held_bytes).start()
    await was_asked.wait()
    assert not transport.aborted.is_set()


async def test_a_time_out_that_is_stopped_does_nothing():
    transport = Transport()
    timeout = WriteTimeout(transport, 0)
    timeout.stop()
    timeout.start()
    timeout.stop()
    timeout.stop()
    later = asyncio.Event()
    asyncio.get_running_loop().call_later(0, later.set)
    await later.wait()
    assert not transport.aborted.is_set()


@pytest.fixture(scope="module")
def hasty(start_server):
    with start_server("--model", "identity_fp32", "--write-timeout=0.3") as started:
        yield started


ROWS = np.ones((1, 250_000), np.float32)


def grpc_call(stream_id, *more):
    message = triton.ModelInferRequest(model_name="identity_fp32", raw_input_contents=[ROWS.tobytes()])
    message.inputs.add(name="INPUT0", datatype="FP32", shape=ROWS.shape)
    block = http2.encode_headers([(":method", "POST"), (":path", f"{SERVICE}/ModelInfer"), ("content-type", "application/grpc"), *more])
    return headers_frame(stream_id, block) + data_frame(framed(message.SerializeToString()), stream_id, end=True)


def test_a_grpc_client_that_sends_and_does_not_read_is_disconnected(hasty):
    """For HTTP, see test_limits.py."""
    wide = 2**31 - 1

    def send_all():
        connection.sendall(GREETING + http2.settings({http2.INITIAL_WINDOW_SIZE: wide}))
        connection.sendall(number_frame(http2.WINDOW_UPDATE, 0, wide - 65_535))
        for stream_id in range(1, 2**31, 2):  # until all buffers are full, and then until the server ends the connection
            connection.sendall(grpc_call(stream_id))

    with socket.create_connection(("127.0.0.1", hasty.grpc_port), timeout=60) as connection, pytest.raises(ConnectionError):
        send_all()


@pytest.mark.parametrize("timeout", ["", "100m"])
def test_a_grpc_client_that_opens_no_window_gets_no_response_and_is_disconnected_or_reset(hasty, timeout):
    more = [("grpc-timeout", timeout)] if timeout else []
    with socket.create_connection(("127.0.0.1", hasty.grpc_port), timeout=60) as connection:
        connection.sendall(GREETING + http2.settings({http2.INITIAL_WINDOW_SIZE: 0}) + grpc_call(1, *more))
        came = b""
        while data := connection.recv(1 << 16):
            came += data
            if timeout and number_frame(http2.RST_STREAM, 1, http2.CANCEL) in came:
                return
    assert not timeout, "without a deadline, it is the connection that ends"
