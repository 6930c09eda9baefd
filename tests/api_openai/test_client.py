"""The client against servers of literal bytes: what they list, refuse, and answer otherwise than they should."""

import asyncio
import contextlib
import dataclasses
import gzip
import json

import pytest

from perfkit.clock import MonotonicClock
from perfkit.errors import MissingEndpointError, ProtocolError, TargetError
from perfkit.protocol.message import IndexedModel, InferRequest, TokenCounts
from perfkit.protocol.prompt import Prompt, prompt_tensor
from perfkit.target_client import make_client
from perfkit.transport.base import Outcome
from perfkit.transport.http.event_stream import NO_EVENTS
from perfkit.transport.options import AnswerLimit, StreamOptions, TransportOptions
from tests.transport import servers

S = 1_000_000_000
STREAM = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
CHUNK = b'data: {"model": "m", "choices": [{"index": 0, "delta": {"content": "a"}, "finish_reason": null}]}\n\n'
REQUEST = InferRequest("m", (prompt_tensor(Prompt("Why?", max_tokens=5)),))


def whole(document, status=b"200 OK", head=b""):
    body = document if isinstance(document, bytes) else json.dumps(document).encode()
    return b"HTTP/1.1 %b\r\n%bContent-Length: %d\r\n\r\n%b" % (status, head, len(body), body)


def piece(data):
    return b"%x\r\n%b\r\n" % (len(data), data)


@contextlib.asynccontextmanager
async def client_of(*handlers, endpoint="chat", is_streamed=False, timeout_ns=30 * S):
    async with servers.scripted_server(*handlers) as address:
        options = TransportOptions(
            timeout_ns=timeout_ns, stream=StreamOptions() if is_streamed else None, answer_limit=AnswerLimit(1 << 20)
        )  # fmt: skip
        async with contextlib.aclosing(
            make_client(dataclasses.replace(address, api="openai", endpoint=endpoint), options, MonotonicClock())
        ) as client:
            yield client


def replied(*handlers, **how):
    """The reply to one request, what is decoded of it, or the error, and the tokens."""

    async def main():
        async with client_of(*handlers, **how) as client:
            reply = await client.transport.send(client.prepare(REQUEST))
            try:
                decoded = client.decode(reply)
            except ProtocolError as error:
                decoded = str(error)
            return reply, decoded, client.count_tokens(reply) if reply.outcome is Outcome.OK else None

    return asyncio.run(main())


def asked(answer, question):
    async def main():
        async with client_of(servers.answering(answer)) as client:
            return await question(client)

    return asyncio.run(main())


def test_an_answer_in_one_piece_is_read_also_where_it_is_compressed_unasked():
    usage = {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5}
    document = {"model": "m", "choices": [{"message": {"content": "a b"}}], "usage": usage}
    packed = whole(gzip.compress(json.dumps(document).encode()), head=b"Content-Encoding: gzip\r\n")
    for answer in (whole(document), packed):
        reply, decoded, tokens = replied(servers.answering(answer))
        assert (reply.outcome, decoded.model, tokens) == (Outcome.OK, "m", TokenCounts(3, 2))


@pytest.mark.parametrize(
    ("body", "tokens"),
    [
        (b'{"data": [], "usage": {"prompt_tokens": 3, "total_tokens": 3}}', TokenCounts(3, 0)),
        (b'{"usage"\n:\n{"prompt_tokens": 3, "completion_tokens": 2, "details": {"a": {}}}, "choices": [{"text": "\\"usage\\": {"}]}', TokenCounts(3, 2)),
        (b'{"choices": [{"logprobs": {"usage": -1, "tokens": ["usage"]}}], "usage": null}', None),
        (b'{"choices": [], "usage": [3, 2]}', None),
        (b'{"choices": [], "usage": {"prompt_tokens": 3, "x": "%b", "completion_tokens": 2}}' % (b"x" * 5000), None),
        (b'{"choices": [], "usage": {"x": %b' % (b'{"x": ' * 3000), None),
        (b'{"choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 2}, "x": {%b}}' % (b'"usage": 1, ' * 100), TokenCounts(3, 2)),
        (b'{"choices": [], "x": "%b"}' % (b'"usage"' * 100_000), None),
    ],
)  # fmt: skip
def test_the_last_usage_in_an_answer_is_read_without_the_rest_of_it(body, tokens):
    reply, _, found = replied(servers.answering(whole(body)))
    assert (reply.outcome, found) == (Outcome.OK, tokens)


def test_a_stream_without_content_has_tokens():
    stream = b'data: {"choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 1}}\n\ndata: [DONE]\n\n'
    reply, _, tokens = replied(servers.answering([STREAM, piece(stream), b"0\r\n\r\n"]), is_streamed=True)
    assert (reply.outcome, len(reply.responses_ns), tokens) == (Outcome.OK, 0, TokenCounts(3, 1, 0))


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({"error": {"message": "out of memory"}}, "it holds an error: out of memory"),
        ({"object": "error", "message": "out of memory"}, "it holds an error: out of memory"),
        ({"detail": "Not here"}, "it holds an error: Not here"),
        ({"model": "m"}, "it holds neither choices nor embeddings"),
        (b"<html>", "failed to parse the answer JSON buffer"),
        (b"[" * 100_000, "failed to parse the answer JSON buffer"),
        (b"", "failed to parse the answer JSON buffer"),
    ],
)
def test_what_is_no_answer_is_said_although_its_status_is_200(body, words):
    reply, decoded, tokens = replied(servers.answering(whole(body)))
    assert (reply.outcome, tokens) == (Outcome.OK, None)
    assert words in decoded


@pytest.mark.parametrize(
    ("status", "body", "words"),
    [
        (b"404 Not Found", {"error": {"message": "no model m", "code": 404}}, "HTTP 404: no model m"),
        (b"503 Busy", b"try later", "HTTP 503: try later"),
        (b"400 Bad", {"detail": [{"loc": ["max_tokens"]}]}, 'HTTP 400: [{"loc": ["max_tokens"]}]'),
    ],
)
@pytest.mark.parametrize("is_streamed", [False, True])
def test_a_refusal_has_the_servers_words(status, body, words, is_streamed):
    reply, decoded, _ = replied(servers.answering(whole(body, status)), is_streamed=is_streamed)
    assert (reply.outcome, decoded) == (Outcome.REJECTED, words)


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({"error": {"message": "no"}}, ': {"error": {"message": "no"}}'),
        ({"choices": []}, ': {"choices": []}'),
        (b"data: x", ""),
        (b"<html>", ""),
    ],
)
def test_a_stream_that_is_none_is_broken_although_its_status_is_200(body, words):
    reply, _, _ = replied(servers.answering(whole(body)), is_streamed=True)
    assert (reply.outcome, reply.error) == (Outcome.BROKEN, f"{NO_EVENTS}{words}")


@pytest.mark.parametrize("size", [1_000, 16_000, 100_000])
def test_of_a_body_in_place_of_a_stream_all_is_shown_or_nothing_so_that_a_secret_in_it_is_redacted(size):
    body = {"error": "x" * size}
    reply, _, _ = replied(servers.answering(whole(body)), is_streamed=True)
    assert reply.error == (NO_EVENTS if size == 100_000 else f"{NO_EVENTS}: {json.dumps(body)}")


def test_a_stream_is_read_byte_by_byte():
    stream = CHUNK + b'data: {"choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 1}}\n\ndata: [DONE]\n\n'
    answer = [STREAM, *(piece(stream[at : at + 1]) for at in range(len(stream))), b"0\r\n\r\n"]
    reply, decoded, tokens = replied(servers.answering(answer), is_streamed=True)
    assert (reply.outcome, len(reply.responses_ns), decoded.model, tokens) == (Outcome.OK, 1, "m", TokenCounts(3, 1, 0))


def test_a_stream_that_never_ends_times_out_with_the_events_so_far():
    async def endless(reader, writer):
        await servers.read_request(reader)
        writer.write(STREAM)
        while True:
            writer.write(piece(CHUNK) * 100)
            await writer.drain()

    reply, _, tokens = replied(endless, is_streamed=True, timeout_ns=S // 2)
    assert (reply.outcome, tokens) == (Outcome.TIMED_OUT, None)
    assert len(reply.responses_ns) > 100


def test_a_stream_that_is_cut_in_the_middle_is_broken():
    reply, _, _ = replied(servers.answering([STREAM, piece(CHUNK)]), is_streamed=True)
    assert (reply.outcome, len(reply.responses_ns)) == (Outcome.BROKEN, 1)


LISTED = {"object": "list", "data": [{"id": "m", "owned_by": "vllm"}, {"id": "n"}, {"id": 7}, None]}


def test_the_models_that_a_server_lists():
    assert asked(whole(LISTED), lambda client: client.model_index()) == (IndexedModel("m"), IndexedModel("n"))
    assert asked(whole(LISTED), lambda client: client.server_metadata()).name == "vllm"
    assert asked(whole(LISTED), lambda client: client.is_ready("n", ""))
    assert not asked(whole(LISTED), lambda client: client.is_ready("o", ""))
    with pytest.raises(TargetError, match="does not offer model 'o'"):
        asked(whole(LISTED), lambda client: client.model_metadata("o", ""))


@pytest.mark.parametrize("answer", [whole({}, b"404 Not Found"), whole(b"<html>"), whole({"data": {}}), whole([])])
def test_a_server_need_not_list_its_models(answer):
    with pytest.raises(MissingEndpointError):
        asked(answer, lambda client: client.server_metadata())
    assert asked(answer, lambda client: client.model_index()) == ()
    assert asked(answer, lambda client: client.model_metadata("o", "")).name == "o"


@pytest.mark.parametrize(
    ("status", "may_pass", "words"), [(b"401 No", False, r"target\.headers"), (b"403 No", False, "refused"), (b"503 Busy", True, "503")]
)
def test_a_server_that_refuses_to_list_its_models_is_said(status, may_pass, words):
    with pytest.raises(TargetError, match=words) as caught:
        asked(whole({"error": {"message": "a key is needed"}}, status), lambda client: client.model_index())
    assert caught.value.may_pass == may_pass
    assert "a key is needed" in str(caught.value)
