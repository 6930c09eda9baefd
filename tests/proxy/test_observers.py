"""What is found in the bytes of a connection, in pieces of any size: requests of aiohttp's form, of h2 and of grpcio's frames."""

import json

import h2.connection
import pytest

from perfkit.errors import ProtocolError
from perfkit.proxy.description import describe
from perfkit.proxy.grpc_observer import GrpcObserver
from perfkit.proxy.http_observer import HttpObserver
from perfkit.proxy.open_requests import BodyMemory, OpenRequest

BODY = json.dumps({"id": "7", "inputs": [{"name": "X", "datatype": "INT32", "shape": [1, 2], "data": [1, 2]}]}).encode()
CREDENTIALS = "Bearer 0123456789"


class Seen:
    def __init__(self, kind):
        self.requests, self.memory = list[OpenRequest](), BodyMemory()
        self.observer = kind(self.requests.append, self.memory)

    def send(self, data, step=None, read_ns=1000):
        for place in range(0, len(data), step or len(data)):
            self.observer.receive(data[place : place + (step or len(data))], read_ns + place, is_first=not place)


def http_request(path="/v2/models/m%20x/versions/3/infer?key=0123456789", body=BODY, headers=""):
    head = f"POST {path} HTTP/1.1\r\nHost: h\r\nAuthorization: {CREDENTIALS}\r\nContent-Length: {len(body)}\r\n{headers}\r\n"
    return head.encode() + body


@pytest.mark.parametrize("step", [None, 1, 7, 100])
def test_a_request_over_http_is_found_in_pieces_of_any_size(step):
    seen = Seen(HttpObserver)
    seen.send(http_request() + http_request("/v2/models/other/infer"), step, read_ns=5000)
    first, second = seen.requests
    assert (first.arrival_ns, first.call, first.model, first.version) == (5000, "infer", "m x", "3")
    assert bytes(first.body or b"") == BODY
    assert second.model == "other"
    assert second.arrival_ns == 5000 + (len(http_request()) // step * step if step else 0)
    assert "0123456789" not in repr(seen.requests)


@pytest.mark.parametrize(
    ("path", "call"),
    [
        ("/v2/models/m/infer", "infer"), ("/team/v2/models/m/infer", "infer"), ("/v2/models/m/generate", "generate"),
        ("/v2/models/m/generate_stream", "generate_stream"), ("/v2/models/m/ready", None), ("/v2/repository/index", None), ("/v2", None),
    ],
)  # fmt: skip
def test_other_calls_are_no_requests(path, call):
    seen = Seen(HttpObserver)
    seen.send(http_request(path))
    assert [request.call for request in seen.requests] == ([call] if call else [])


def test_binary_tensors_and_compression_are_read_as_their_headers_say():
    import gzip

    document = json.dumps({"inputs": [{"name": "X", "datatype": "INT32", "shape": [2], "parameters": {"binary_data_size": 8}}]}).encode()
    body = document + bytes(range(8))
    seen = Seen(HttpObserver)
    length = f"Inference-Header-Content-Length: {len(document)}\r\n"
    seen.send(http_request(body=body, headers=length))
    seen.send(http_request(body=gzip.compress(body), headers=f"{length}content-encoding: gzip\r\n"))
    described = [describe(request, with_payload=True) for request in seen.requests]
    assert [one.shapes for one in described] == [{"X": [2]}] * 2
    assert described[0].payload == described[1].payload == body


def test_what_is_no_v2_request_has_neither_shapes_nor_payload():
    seen = Seen(HttpObserver)
    seen.send(http_request(body=b"no JSON"))
    assert describe(seen.requests[0], with_payload=True)[2:] == ({}, None)


def test_bytes_that_are_no_http_are_reported():
    seen = Seen(HttpObserver)
    with pytest.raises(ProtocolError, match=r"the client does not send HTTP/1\.1"):
        seen.send(b"\x16\x03\x01 a TLS hello\r\n\r\n")


class Grpc:
    """A client and a server of h2, whose bytes are noted."""

    def __init__(self):
        self.client = h2.connection.H2Connection()
        self.client.initiate_connection()

    def start(self, stream_id, path="/inference.GRPCInferenceService/ModelInfer", **headers):
        fields = [
            (":method", "POST"),
            (":scheme", "http"),
            (":path", path),
            (":authority", "h"),
            ("te", "trailers"),
            ("authorization", CREDENTIALS),
        ]
        self.client.send_headers(stream_id, fields + list(headers.items()))

    def send(self, stream_id, message, *, compressed=False, end=True):
        self.client.send_data(stream_id, bytes([compressed]) + len(message).to_bytes(4) + message, end_stream=end)

    def taken(self):
        return self.client.data_to_send()


def infer_message(model="m"):
    from tritonclient.grpc import service_pb2

    message = service_pb2.ModelInferRequest(model_name=model, id="9", raw_input_contents=[b"12345678"])
    message.inputs.add(name="X", datatype="INT32", shape=[2])
    return message.SerializeToString()


@pytest.mark.parametrize("step", [None, 1, 5, 64])
def test_a_request_over_grpc_is_found_in_pieces_of_any_size(step):
    seen, peer = Seen(GrpcObserver), Grpc()
    for number, model in enumerate(("a", "b", "c")):
        peer.start(2 * number + 1)
        peer.send(2 * number + 1, infer_message(model))
    peer.start(7, "/inference.GRPCInferenceService/ServerLive")
    peer.send(7, b"")
    seen.send(peer.taken(), step)
    described = [describe(request, with_payload=True) for request in seen.requests]
    assert [(one.model, one.shapes) for one in described] == [(model, {"X": [2]}) for model in "abc"]
    assert len({one.payload for one in described}) == 1
    arrivals = [request.arrival_ns for request in seen.requests]
    assert arrivals == sorted(arrivals)
    assert (len(set(arrivals)) == 1) == (step is None)
    assert CREDENTIALS not in repr(seen.requests)


def test_each_message_on_a_stream_is_a_request_that_arrives_with_its_first_byte():
    seen, peer = Seen(GrpcObserver), Grpc()
    peer.start(1, "/inference.GRPCInferenceService/ModelStreamInfer")
    seen.send(peer.taken(), read_ns=1000)
    peer.send(1, infer_message(), end=False)
    message = peer.taken()
    seen.send(message[:20], read_ns=2000)
    seen.send(message[20:], read_ns=3000)
    peer.send(1, infer_message(), end=False)
    peer.send(1, infer_message())
    seen.send(peer.taken(), read_ns=4000)
    assert [(request.call, request.arrival_ns) for request in seen.requests] == [("stream", 2000), ("stream", 4000), ("stream", 4000)]


def test_large_messages_and_compressed_ones_are_put_together():
    import gzip

    seen, peer = Seen(GrpcObserver), Grpc()
    peer.start(1, **{"grpc-encoding": "gzip"})
    peer.send(1, gzip.compress(infer_message("zipped")), compressed=True)
    seen.send(peer.taken())
    assert describe(seen.requests[0], with_payload=False).model == "zipped"


def test_bytes_that_are_no_http2_are_reported():
    seen = Seen(GrpcObserver)
    with pytest.raises(ProtocolError, match="does not send HTTP/2"):
        seen.send(b"GET / HTTP/1.1\r\nHost: h\r\n\r\n")
