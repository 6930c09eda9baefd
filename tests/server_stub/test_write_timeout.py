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
    """Has so many bytes to write, and counts how often it is asked before it is aborted."""

    def __init__(self, *sizes):
        super().__init__()
        self._sizes = list(sizes)
        self.aborted = asyncio.Event()

    def get_write_buffer_size(self):
        return self._sizes.pop(0)

    def abort(self):
        assert not self._sizes
        self.aborted.set()


@pytest.mark.parametrize("sizes", [(100, 100), (100, 99, 99, 99), (100, 50, 50, 1, 1, 1)], ids=["at once", "later", "much later"])
async def test_a_connection_is_aborted_once_nothing_is_written_for_as_long(sizes):
    transport = Transport(*sizes)
    WriteTimeout(transport, 0.001).start()
    await transport.aborted.wait()


async def test_a_time_out_that_is_stopped_does_nothing():
    transport = Transport(100, 100)
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


def grpc_call(stream_id):
    message = triton.ModelInferRequest(model_name="identity_fp32", raw_input_contents=[ROWS.tobytes()])
    message.inputs.add(name="INPUT0", datatype="FP32", shape=ROWS.shape)
    block = http2.encode_headers([(":method", "POST"), (":path", f"{SERVICE}/ModelInfer"), ("content-type", "application/grpc")])
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
