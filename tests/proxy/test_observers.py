"""What is found in the bytes of a connection, in pieces of any size: requests of aiohttp's form, of h2 and of grpcio's frames."""

import json

import h2.connection
import pytest

from perfkit.errors import ProtocolError
from perfkit.protocol import http2
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


OFFER = "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAoAAAAAIAAAAA\r\n"


@pytest.mark.parametrize("step", [None, 1, 100])
def test_requests_are_found_whatever_their_clients_offer_to_speak_later(step):
    """The server of this client declines, as its further requests in HTTP/1.1 show."""
    seen = Seen(HttpObserver)
    chunked = f"POST /v2/models/c/infer HTTP/1.1\r\nHost: h\r\n{OFFER}Transfer-Encoding: chunked\r\n\r\n2\r\n{{}}\r\n0\r\n\r\n".encode()
    health = f"GET /v2/health/ready HTTP/1.1\r\nHost: h\r\n{OFFER}\r\n".encode()
    seen.send(http_request("/v2/models/a/infer", headers=OFFER) + health + chunked + http_request("/v2/models/b/infer"), step)
    assert [(request.model, bytes(request.body or b"")) for request in seen.requests] == [("a", BODY), ("c", b"{}"), ("b", BODY)]


def test_a_connection_on_which_the_offer_was_accepted_is_reported():
    seen = Seen(HttpObserver)
    seen.send(http_request(headers=OFFER))
    with pytest.raises(ProtocolError, match=r"does not send HTTP/1\.1"):
        seen.send(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
    assert len(seen.requests) == 1


@pytest.mark.parametrize(
    "start", [b"POST /v2/models/m/infer HTTP/1.1\r\nx: ", b"POST /", b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nx: "]
)
def test_a_head_and_a_trailer_have_a_length(start):
    seen = Seen(HttpObserver)
    seen.send(start)
    with pytest.raises(ProtocolError, match="longer than 65,536 B"):
        seen.send(b"x" * 2**17, 2**12)


def test_after_bytes_that_are_not_known_a_request_without_its_body_is_recorded_and_the_next_one_found():
    seen, request = Seen(HttpObserver), http_request()
    seen.send(request[:-20])
    seen.observer.skip(20)
    assert [one.body for one in seen.requests] == [None]
    seen.send(request)
    seen.observer.skip(len(request))  # of which nothing is known
    seen.observer.receive(b"{} of a body\r\n", 1, is_first=False)
    seen.send(request)
    assert [bytes(one.body or b"") for one in seen.requests] == [b"", BODY, BODY]
    assert (seen.observer.unread_bytes, seen.observer.incomplete) == (14, 0)
    seen.send(request[:-1])
    seen.observer.skip(2)
    assert len(seen.requests) == 4  # its last byte was among those


def test_over_grpc_bytes_of_a_message_may_be_missing_and_no_others():
    seen, peer = Seen(GrpcObserver), Grpc()
    peer.start(1)
    peer.send(1, infer_message("m" * 1000))
    sent = peer.taken()
    seen.send(sent[:-500])
    seen.observer.skip(400)
    seen.send(sent[-100:])
    assert [request.body for request in seen.requests] == [None]
    with pytest.raises(ProtocolError, match="where the next request begins is not known"):
        seen.observer.skip(1)


def test_a_call_that_begins_again_on_its_stream_holds_nothing_of_the_first():
    seen, peer = Seen(GrpcObserver), Grpc()
    peer.start(1)
    peer.client.send_data(1, b"\0" + (1000).to_bytes(4) + b"x" * 39)
    block = peer.client.encoder.encode([(":path", "/inference.GRPCInferenceService/ModelInfer")])
    seen.send(peer.taken() + len(block).to_bytes(3) + b"\x01\x04" + (1).to_bytes(4) + block)
    seen.observer.close()
    assert (seen.requests, seen.memory.used_bytes) == ([], 0)


@pytest.mark.parametrize("step", [None, 1, 10])
def test_padding_is_no_part_of_a_message(step):
    seen, peer = Seen(GrpcObserver), Grpc()
    peer.start(1)
    message = infer_message("padded")
    data = b"\0" + len(message).to_bytes(4) + message
    peer.client.send_data(1, data[:9], pad_length=200)
    peer.client.send_data(1, data[9:], pad_length=0)
    peer.client.send_data(1, b"", pad_length=3, end_stream=True)
    seen.send(peer.taken(), step)
    assert [describe(request, with_payload=False).model for request in seen.requests] == ["padded"]


def test_headers_and_calls_of_a_connection_are_bounded():
    seen, peer = Seen(GrpcObserver), Grpc()
    for number in range(1500):
        peer.start(2 * number + 1)
        peer.client.send_data(2 * number + 1, b"\0")
    seen.send(peer.taken())
    assert seen.observer.incomplete == 1500 - 1024
    block = http2.frame(http2.HEADERS, 0, 3001, b"\xbe") + http2.frame(http2.CONTINUATION, 0, 3001, b"\xbe" * 2**16)
    with pytest.raises(ProtocolError, match="the headers of a call are longer than 65,536 B"):
        seen.send(block, 2**12)
    seen.observer.close()
    assert (seen.observer.incomplete, seen.memory.used_bytes) == (1500, 0)


def test_bodies_make_room_for_each_other_and_what_is_left_is_counted():
    memory = BodyMemory(100)
    silent, large, small = (OpenRequest(0, "infer") for _ in range(3))
    memory.add(silent, b"s" * 30)
    for _ in range(9):
        memory.add(large, b"l" * 10)
    assert (silent.body, memory.used_bytes) == (None, 90)
    memory.add(small, b"m" * 10)
    memory.complete(small)
    memory.add(large, b"l" * 10)
    assert (large.body, bytes(small.body or b"")) == (None, b"m" * 10)
    memory.release(small)
    assert memory.used_bytes == 0


def test_a_bomb_and_a_large_document_are_recorded_without_shapes():
    import gzip

    bomb = gzip.compress(b'{"inputs":[' + b" " * 2**26 + b"]}", 1)
    numerous = b'{"inputs":[' + b"{}," * 1_200_000 + b"{}]}"
    for body, encoding in ((bomb, "gzip"), (numerous, "")):
        request = OpenRequest(0, "infer", model="m", encoding=encoding, body=bytearray(body))
        described = describe(request, with_payload=True)
        assert (described.shapes, described.payload is None) == ({}, True)


@pytest.mark.parametrize("extra", ["", '"id":"7",'])
@pytest.mark.parametrize(
    "text", ["[1.5e3, -2,\\n" + "0," * 100 + "3]", '["' + "a [1, 2, 3" + ", 4" * 50 + ']"]', "[[1, 2], [" + "3," * 50 + "4]]"]
)
def test_arrays_of_numbers_are_set_aside_and_the_payload_is_that_of_the_whole_document(extra, text):
    text = text.replace("\\n", "\n")
    body = f'{{{extra}"inputs":[{{"name":"X","datatype":"FP32","shape":[2],"data":{text}}}]}}'
    described = describe(OpenRequest(0, "infer", body=bytearray(body.encode())), with_payload=True)
    expected = json.loads(body)
    expected.pop("id", None)
    assert described.shapes == {"X": [2]}
    assert json.loads(described.payload or b"") == expected
