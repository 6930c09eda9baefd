"""The server with canned responses, by clients that are not perfkit's."""

import asyncio
import http.client
import json
import socket

import aiohttp
import h2.config
import h2.connection
import h2.events
import numpy as np
import pytest
import tritonclient.grpc
import tritonclient.http
from tritonclient.utils import InferenceServerException

from perfkit.calibration.canned_server import CannedGrpc, CannedHttp, grpc_responses, http_responses

LIBRARIES = {"http": tritonclient.http, "grpc": tritonclient.grpc}
ANSWER = np.arange(32, dtype=np.float32)
INFER = "/inference.GRPCInferenceService/ModelInfer"


@pytest.fixture(params=LIBRARIES)
def triton(request, canned_ports):
    """The library, and its client."""
    library = LIBRARIES[request.param]
    with library.InferenceServerClient(f"127.0.0.1:{canned_ports[f'{request.param}_port']}") as client:
        yield library, client


def test_tritonclient_finds_server_and_model(triton):
    library, client = triton
    options = {} if library is tritonclient.http else {"as_json": True}
    assert client.is_server_live()
    assert client.is_server_ready()
    assert client.is_model_ready("canned")
    assert client.is_model_ready("canned", "1")
    assert client.get_server_metadata(**options)["name"] == "canned"
    metadata = client.get_model_metadata("canned", **options)
    tensors = [(one["name"], one["datatype"], list(map(int, one["shape"]))) for one in metadata["inputs"] + metadata["outputs"]]
    assert tensors == [("INPUT0", "FP32", [-1]), ("OUTPUT0", "FP32", [32])]
    config = client.get_model_config("canned", **options)
    assert (config["config"] if library is tritonclient.grpc else config)["name"] == "canned"
    assert client.get_inference_statistics("canned", **options)["model_stats"][0]["name"] == "canned"


@pytest.mark.parametrize("count", [1, 32, 150_528, 4_000_000])
def test_tritonclient_gets_answers_to_requests_of_any_size(triton, count):
    library, client = triton
    given = library.InferInput("INPUT0", [count], "FP32")
    given.set_data_from_numpy(np.zeros(count, np.float32))
    for _ in range(3):
        np.testing.assert_array_equal(client.infer("canned", [given]).as_numpy("OUTPUT0"), ANSWER)


def test_an_unknown_path_or_call_is_refused(canned_ports):
    connection = http.client.HTTPConnection("127.0.0.1", canned_ports["http_port"])
    connection.request("GET", "/v2/models/other")
    answer = connection.getresponse()
    assert (answer.status, json.loads(answer.read())) == (404, {"error": "there is nothing at /v2/models/other"})
    connection.close()
    with (
        tritonclient.grpc.InferenceServerClient(f"127.0.0.1:{canned_ports['grpc_port']}") as client,
        pytest.raises(InferenceServerException, match="there is no call") as caught,
    ):
        client.unload_model("canned")
    assert caught.value.status() == "StatusCode.UNIMPLEMENTED"


def test_many_connections_at_once_over_aiohttp(canned_ports):
    url, body = f"http://127.0.0.1:{canned_ports['http_port']}/v2/models/canned/infer", bytes(700_000)

    async def main():
        async with aiohttp.ClientSession() as session:

            async def one():
                async with session.post(url, data=body) as answer:
                    return answer.status, int(answer.headers["Inference-Header-Content-Length"]), await answer.read()

            return await asyncio.gather(*(one() for _ in range(40)))

    answers = asyncio.run(main())
    assert len(set(answers)) == 1
    status, length, content = answers[0]
    assert status == 200
    assert json.loads(content[:length])["outputs"][0]["shape"] == [32]
    np.testing.assert_array_equal(np.frombuffer(content[length:], "<f4"), ANSWER)


class MemoryTransport(asyncio.WriteTransport):
    """Keeps what is written, and whether it was closed."""

    def __init__(self):
        super().__init__()
        self.data = b""
        self.is_closed = False

    def write(self, data):
        self.data += data

    def close(self):
        self.is_closed = True


def output(connection, *pieces):
    """What a connection that gets these pieces writes."""
    written = MemoryTransport()
    connection.connection_made(written)
    for piece in pieces:
        connection.data_received(piece)
    return written


def http_output(*pieces):
    return output(CannedHttp({"/a": b"A", "/b": b"B"}, {}), *pieces)


REQUESTS = (
    b"POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\n\r\n\r\n1"
    b"GET /b HTTP/1.1\r\nHost: x\r\n\r\n"
    b"POST /b HTTP/1.1\r\ncontent-length:0\r\nHost: x\r\n\r\n"
    b"POST /a HTTP/1.1\r\nHost: x\r\nX-Content-Length: 9\r\nCONTENT-LENGTH: \t2 \r\n\r\nab"
)


@pytest.mark.parametrize("size", [1, 2, 3, 7, 50, len(REQUESTS)])
def test_requests_end_where_their_length_says_however_they_are_cut(size):
    assert http_output(*(REQUESTS[first : first + size] for first in range(0, len(REQUESTS), size))).data == b"ABBA"
    assert http_output(REQUESTS[: REQUESTS.index(b"GET") - 1]).data == b""


def test_a_head_without_an_end_closes_the_connection():
    assert http_output(b"x" * 70_000).is_closed


class Peer:
    """The h2 package's client on a connection of the server, without sockets."""

    def __init__(self, *, piece_bytes):
        self.written, self.connection = MemoryTransport(), CannedGrpc(grpc_responses(), {})
        self.client = h2.connection.H2Connection(h2.config.H2Configuration(client_side=True))
        self.events = []
        self.piece_bytes = piece_bytes
        self.connection.connection_made(self.written)
        self.client.initiate_connection()
        self.exchange()

    def exchange(self):
        """Carries bytes to and fro until neither side has any."""
        while data := self.client.data_to_send():
            for first in range(0, len(data), self.piece_bytes):
                self.connection.data_received(data[first : first + self.piece_bytes])
            received, self.written.data = self.written.data, b""
            self.events += self.client.receive_data(received)

    def send_headers(self, stream_id, path=INFER):
        headers = [(":method", "POST"), (":scheme", "http"), (":path", path), (":authority", "x"), ("te", "trailers")]
        self.client.send_headers(stream_id, headers)

    def call(self, stream_id, data, path=INFER):
        self.send_headers(stream_id, path)
        self.client.send_data(stream_id, data, end_stream=True)

    def answered(self):
        """The streams that ended, in order."""
        return [event.stream_id for event in self.events if isinstance(event, h2.events.StreamEnded)]

    def data(self, stream_id):
        return b"".join(event.data for event in self.events if isinstance(event, h2.events.DataReceived) and event.stream_id == stream_id)


@pytest.mark.parametrize("piece_bytes", [1, 10, 1 << 20])
def test_h2_understands_every_frame(piece_bytes):
    peer = Peer(piece_bytes=piece_bytes)
    for stream_id in (1, 3, 5, 7):
        peer.call(stream_id, bytes(2000))
    peer.call(9, b"", "/inference.GRPCInferenceService/Nothing")
    peer.client.ping(b"12345678")
    peer.exchange()
    assert peer.answered() == [1, 3, 5, 7, 9]
    assert {peer.data(stream_id) for stream_id in (1, 3, 5, 7)} == {peer.data(1)}
    assert peer.data(1)[:5] == b"\x00" + (len(peer.data(1)) - 5).to_bytes(4, "big")
    assert peer.data(9) == b""
    assert any(isinstance(event, h2.events.PingAckReceived) for event in peer.events)
    statuses = [dict(event.headers)[b"grpc-status"] for event in peer.events if isinstance(event, h2.events.TrailersReceived)]
    assert statuses == [b"0"] * 4


def test_answers_wait_for_the_clients_window():
    peer = Peer(piece_bytes=1 << 20)
    for number in range(400):
        peer.call(2 * number + 1, b"x")
    peer.exchange()  # h2 would raise where its window of 65,535 bytes is exceeded
    taken = len(peer.answered())
    size = len(peer.data(1))
    assert taken == 65_535 // size < 400
    peer.client.increment_flow_control_window(1 << 20)
    peer.exchange()
    assert len(peer.answered()) == 400


def test_the_connections_window_is_renewed_before_it_is_used_up():
    connection = CannedGrpc(grpc_responses(), {})
    written = output(connection, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00")
    written.data = b""
    mebibyte = (b"\x00\x40\x00\x00\x00\x00\x00\x00\x01" + bytes(16_384)) * 64
    for _ in range(511):
        connection.data_received(mebibyte)
    assert written.data == b""
    connection.data_received(mebibyte)
    assert written.data == b"\x00\x00\x04\x08\x00\x00\x00\x00\x00" + (512 << 20).to_bytes(4, "big")


def test_a_stream_that_was_reset_is_not_answered():
    peer = Peer(piece_bytes=1 << 20)
    peer.send_headers(1)
    peer.client.reset_stream(1)
    peer.call(3, b"")
    peer.exchange()
    assert peer.answered() == [3]


@pytest.mark.parametrize("data", [b"GET / HTTP/1.1\r\n\r\n", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x01\x01\x04\x00\x00\x00\x01\x80"])
def test_bytes_that_are_not_http2_close_the_connection(data):
    assert output(CannedGrpc(grpc_responses(), {}), data).is_closed


def test_every_http_answer_has_the_length_that_it_says():
    for path, answer in http_responses().items():
        ours, theirs = socket.socketpair()
        with ours, theirs:
            theirs.sendall(answer)
            theirs.shutdown(socket.SHUT_WR)
            response = http.client.HTTPResponse(ours)
            response.begin()
            assert (response.status, len(response.read())) == (200, len(answer.partition(b"\r\n\r\n")[2])), path
            assert response.isclosed()
