"""Streams of server-sent events, as literal bytes, over both engines."""

import asyncio
import gzip
import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfkit.clock import MonotonicClock
from perfkit.errors import ProtocolError
from perfkit.protocol.generate import EventSplitter, decode_event, encode_generate_request
from perfkit.protocol.message import InferRequest, InferResponse
from perfkit.protocol.tensor import Datatype, tensor_from_array
from perfkit.transport.base import Outcome
from perfkit.transport.options import AnswerLimit, StreamOptions, TransportOptions
from tests.transport import servers
from tests.transport.clients import make_open_client

S = 1_000_000_000
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\nTransfer-Encoding: chunked\r\n\r\n"
REQUEST = InferRequest(
    "m",
    (
        tensor_from_array("IN", Datatype.INT32, np.array([1, 2], np.int32)),
        tensor_from_array("TEXT", Datatype.BYTES, np.array([b"a"], object)),
    ),
    id="7",
    parameters={"max_tokens": 5},
)


def chunk(data):
    return b"%x\r\n%s\r\n" % (len(data), data)


def event(document):
    return b"data: " + json.dumps(document).encode() + b"\n\n"


def stream_of(*pieces, end=b"0\r\n\r\n"):
    return HEAD + b"".join(map(chunk, pieces)) + end


@pytest.fixture(params=["wire", "reference"])
def exchange(request):
    """Sends requests to a server that answers with these bytes; the replies, and the requests that the server received."""

    def run(*answers, timeout_ns=30 * S, stream=StreamOptions()):  # noqa: B008 - it is frozen
        async def main():
            seen: list[bytes] = []
            async with servers.scripted_server(servers.answering(*answers, seen=seen)) as address:
                options = TransportOptions(engine=request.param, timeout_ns=timeout_ns, stream=stream, answer_limit=AnswerLimit(1 << 20))
                transport = make_open_client(address, options, MonotonicClock())
                try:
                    return [await transport.send(transport.prepare(REQUEST)) for _ in answers], seen, transport
                finally:
                    await transport.aclose()

        return asyncio.run(main())

    return run


def test_the_body_is_a_flat_object_of_inputs_and_parameters():
    assert json.loads(encode_generate_request(REQUEST)) == {"IN": [1, 2], "TEXT": "a", "id": "7", "max_tokens": 5}


MLSERVER_EVENT = {
    "model_name": "m", "model_version": "v1", "id": "7", "parameters": {},
    "outputs": [{"name": "OUT", "shape": [2], "datatype": "INT32", "parameters": {"content_type": "np"}, "data": [3, 4]}],
}  # fmt: skip


@pytest.mark.parametrize("exchange", ["wire"], indirect=True)
def test_with_the_bodies_of_infer_requests_and_events_are_those_of_mlservers_infer_stream(exchange):
    (reply,), (seen,), transport = exchange(
        stream_of(event(MLSERVER_EVENT), event(MLSERVER_EVENT)), stream=StreamOptions(has_infer_bodies=True)
    )
    head, _, body = seen.partition(b"\r\n\r\n")
    assert head.startswith(b"POST /v2/models/m/infer_stream HTTP/1.1\r\n")
    assert b"content-type: application/json" in head.lower()
    assert json.loads(body) == {
        "id": "7",
        "inputs": [
            {"name": "IN", "datatype": "INT32", "shape": [2], "data": [1, 2]},
            {"name": "TEXT", "datatype": "BYTES", "shape": [1], "data": ["a"]},
        ],
        "parameters": {"max_tokens": 5},
    }
    assert (reply.outcome, len(reply.responses_ns)) == (Outcome.OK, 2)
    decoded = transport.decode(reply)
    assert (decoded.model, decoded.version, decoded.id) == ("m", "v1", "7")
    assert [(one.name, one.datatype, one.shape, bytes(one.raw)) for one in decoded.outputs] == [
        ("OUT", Datatype.INT32, (2,), np.array([3, 4], np.int32).tobytes())
    ]


def test_a_server_that_cannot_process_a_generate_body_is_told_with_the_key(exchange):
    body = b'{"detail":[{"type":"missing","loc":["body","inputs"],"msg":"Field required"}]}'
    answer = b"HTTP/1.1 422 Unprocessable Entity\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body)
    (reply,), _, transport = exchange(answer)
    with pytest.raises(ProtocolError, match=r"as MLServer's do, set stream\.body to infer"):
        transport.decode(reply)
    (reply,), _, transport = exchange(answer, stream=StreamOptions(has_infer_bodies=True))
    with pytest.raises(ProtocolError, match=r"^HTTP 422: (?!.*stream\.body)"):
        transport.decode(reply)


@pytest.mark.parametrize("pieces", [(), (b"data: [DONE]\n\n",), (b": a comment\n\n",)])
def test_a_stream_without_an_event_has_no_payload(exchange, pieces):
    (reply,), _, _ = exchange(stream_of(*pieces))
    assert (reply.outcome, reply.error, reply.payload, len(reply.responses_ns)) == (Outcome.OK, "", None, 0)


@pytest.mark.parametrize("exchange", ["wire"], indirect=True)
def test_a_compressed_stream_is_named(exchange):
    body = gzip.compress(event({"OUT": 1}))
    (reply,), _, _ = exchange(b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
    assert (reply.outcome, reply.error) == (
        Outcome.BROKEN,
        "the server compresses its stream of events, which nobody asked it to: its events cannot be read",
    )


@pytest.mark.parametrize("broken", [b"{not json", b"xx", b"[1]", b'{"OUT": "tru', b"1"])
@pytest.mark.parametrize("before", [0, 2])
def test_a_broken_event_makes_the_answer_invalid_wherever_it_comes(exchange, broken, before):
    (reply,), _, transport = exchange(stream_of(*[event({"OUT": 1})] * before, b"data: %b\n\n" % broken, event({"OUT": 2})))
    assert (reply.outcome, reply.error) == (Outcome.INVALID_OUTPUT, "an event of the stream is no JSON object, or ends within it")
    assert len(reply.responses_ns) == before + 1
    assert transport.counts.reconnects == 0


@pytest.mark.parametrize("error", [{"code": 5, "message": "oops"}, "oops"])
def test_a_text_or_an_object_is_an_error(exchange, error):
    (reply,), _, _ = exchange(stream_of(event({"OUT": 1}), event({"error": error})))
    assert (reply.outcome, reply.error) == (Outcome.REJECTED, error if isinstance(error, str) else json.dumps(error))


def test_outputs_may_have_the_names_of_the_members_of_a_response(exchange):
    """Outputs are scalars and lists beside them (Triton's generate extension)."""
    documents = [{"error": 0.25, "id": 7, "model_name": [1, 2]}, {"error": [0.25, 0.5]}, {"error": None, "id": None}]
    (reply,), _, _ = exchange(stream_of(*map(event, documents)))
    assert (reply.outcome, len(reply.responses_ns)) == (Outcome.OK, 3), reply.error
    assert decode_event(json.dumps(documents[0]).encode()) == InferResponse("", "", ())


@pytest.mark.parametrize("count", [1, 3])
def test_each_event_is_a_response(exchange, count):
    (reply,), (seen,), _ = exchange(stream_of(*(event({"OUT": number}) for number in range(count))))
    assert (reply.outcome, len(reply.responses_ns)) == (Outcome.OK, count), reply.error
    assert all(reply.started_ns <= at <= reply.finished_ns for at in reply.responses_ns)
    assert seen.startswith(b"POST /v2/models/m/generate_stream HTTP/1.1\r\n")


def test_several_events_may_come_in_one_piece_and_one_in_several(exchange):
    whole = event({"OUT": 1}) + b": a comment\n\n" + event({"OUT": 2}) + b"data: [DONE]\n\n"
    (reply,), _, _ = exchange(stream_of(whole[:9], whole[9:20], whole[20:]))
    assert (reply.outcome, len(reply.responses_ns)) == (Outcome.OK, 2)


def test_an_error_among_the_events_is_a_rejection_and_the_connection_goes_on(exchange):
    failed = stream_of(event({"OUT": 1}), event({"error": "out of memory"}))
    (first, second), _, transport = exchange(failed, stream_of(event({"OUT": 1})))
    assert (first.outcome, first.error, first.status, len(first.responses_ns)) == (Outcome.REJECTED, "out of memory", "error", 1)
    assert second.outcome is Outcome.OK
    assert transport.counts.opened == 1


def test_a_refusal_is_a_rejection_with_its_message(exchange):
    body = b'{"error":"no such model"}'
    (reply,), _, transport = exchange(b"HTTP/1.1 404 Not Found\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
    assert (reply.outcome, reply.status) == (Outcome.REJECTED, 404)
    with pytest.raises(ProtocolError, match="no such model"):
        transport.decode(reply)


@pytest.mark.parametrize("pieces", [[b"data: {"], [event({"OUT": 1}), b"rest"], [b"<html>"]])
def test_what_is_not_a_whole_stream_of_events_is_broken(exchange, pieces):
    (reply,), _, _ = exchange(stream_of(*pieces))
    assert reply.outcome is Outcome.BROKEN
    assert "stream of events" in reply.error


def test_a_long_stream_is_no_long_answer_but_a_long_event_is(exchange):
    long = event({"OUT": "x" * 100_000})
    (reply,), _, _ = exchange(stream_of(*[long] * 40))
    assert (reply.outcome, len(reply.responses_ns)) == (Outcome.OK, 40), "4 MB, more than the limit of 1 MiB"
    (reply,), _, _ = exchange(stream_of(b"data: " + b"x" * (1 << 20), b"y"))
    assert reply.outcome is Outcome.BROKEN
    assert "longer than" in reply.error


def test_a_stream_that_is_cut_off_keeps_its_responses(exchange):
    (reply,), _, _ = exchange(stream_of(event({"OUT": 1}), end=b""))
    assert (reply.outcome, len(reply.responses_ns)) == (Outcome.BROKEN, 1)


@given(
    st.lists(st.binary(max_size=20).filter(lambda data: not set(data) & {10, 13} and data.strip(b" ") not in (b"", b"[DONE]")), max_size=6),
    st.integers(1, 7),
    st.sampled_from([b"\n\n", b"\r\n\r\n", b"\n\r\n"]),
)
def test_events_are_found_however_their_bytes_are_cut_and_their_lines_end(events, size, end):
    found: list[bytes] = []
    splitter = EventSplitter(1 << 20, found.append)
    data = b"".join(b"data: " + one + end for one in events)
    for first in range(0, len(data), size):
        splitter.append(data[first : first + size])
    assert found == events
    assert not splitter.has_rest
