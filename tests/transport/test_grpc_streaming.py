"""Streamed requests of both engines against grpcio servers: responses, final markers, errors, shared streams, cancellation."""

import asyncio
import dataclasses
import itertools
import time

import grpc
import numpy as np
import pytest
from tritonclient.grpc import service_pb2

from perfkit.clock import MonotonicClock
from perfkit.errors import ProtocolError
from perfkit.protocol.message import InferRequest
from perfkit.protocol.tensor import Datatype, tensor_from_array
from perfkit.transport.base import Outcome
from perfkit.transport.options import AnswerLimit, StreamOptions, TransportOptions
from tests.transport import grpc_servers
from tests.transport.clients import make_open_client

FINAL = "triton_final_response"
S = 1_000_000_000


def request(count=1, name=""):
    """A request for that many responses."""
    return InferRequest("m", (tensor_from_array("COUNT", Datatype.INT32, np.array([count], np.int32)),), id=name)


def asked(message):
    """The parsed request, and the number of responses that it asks for."""
    parsed = service_pb2.ModelInferRequest.FromString(message)
    return parsed, int.from_bytes(parsed.raw_input_contents[0], "little")


def response(to, value=None, final=None, size=0):
    """A response, or with no value a message without outputs; `final` None leaves the parameter out."""
    message = service_pb2.ModelStreamInferResponse()
    message.infer_response.id = to.id
    if value is not None:
        message.infer_response.outputs.add(name="y", datatype="INT32", shape=[1 + size])
        message.infer_response.raw_output_contents.append(int(value).to_bytes(4, "little") + bytes(4 * size))
    if final is not None:
        message.infer_response.parameters[FINAL].bool_param = final
    return message.SerializeToString()


async def repeat(messages, context):
    """Answers as Triton does for a decoupled model: the responses, then a final one without outputs."""
    async for message in messages:
        parsed, count = asked(message)
        for number in range(count):
            await context.write(response(parsed, number, final=False))
        await context.write(response(parsed, final=True))


@pytest.fixture(params=["wire", "reference"])
def engine(request):
    return request.param


@pytest.fixture(params=[(1, 1), (3, 1), (100, 4)], ids=lambda each: f"{each[0]} requests per stream, {each[1]} in flight")
def sharing(request):
    return request.param


@pytest.fixture
def stream(engine, sharing):
    """Runs a coroutine function with a transport to a server; returns its result."""

    def run(serve, client, *, connections=2, timeout_ns=30 * S, sharing=sharing):
        async def main():
            async with grpc_servers.grpcio_server(stream=serve) as address:
                options = TransportOptions(
                    engine=engine, max_connections=connections, timeout_ns=timeout_ns, stream=StreamOptions(*sharing)
                )
                transport = make_open_client(address, options, MonotonicClock())
                try:
                    await transport.open(connections)
                    return await client(transport)
                finally:
                    await transport.aclose()

        return asyncio.run(main())

    return run


def sending(*requests):
    """A client that sends all requests at once."""

    async def client(transport):
        return await asyncio.gather(*(transport.send(transport.prepare(one)) for one in requests))

    return client


def in_turn(*requests):
    """A client that sends one request after the other."""

    async def client(transport):
        return [await transport.send(transport.prepare(one)) for one in requests]

    return client


def test_each_response_has_its_instant_and_the_final_marker_is_none(stream):
    replies = stream(repeat, sending(*map(request, range(8))))
    for count, reply in enumerate(replies):
        assert (reply.outcome, len(reply.responses_ns)) == (Outcome.OK, count), reply.error
        assert list(reply.responses_ns) == sorted(reply.responses_ns)
        assert all(reply.started_ns <= at for at in reply.responses_ns)
        if count:
            assert reply.finished_ns == reply.responses_ns[-1]


def test_no_response_is_timed_before_the_server_has_sent_it(stream):
    sent_ns: list[int] = []

    async def serve(messages, context):
        async for message in messages:
            parsed, count = asked(message)
            for number in range(count):
                sent_ns.append(time.monotonic_ns())
                await context.write(response(parsed, number, final=number == count - 1))

    (reply,) = stream(serve, in_turn(request(20)))
    assert all(sent <= received for sent, received in zip(sent_ns, reply.responses_ns, strict=True))


def test_a_final_response_with_data_is_a_response(stream):
    async def serve(messages, context):
        async for message in messages:
            parsed, _ = asked(message)
            await context.write(response(parsed, 5, final=True))

    (reply,) = stream(serve, in_turn(request()))
    assert (reply.outcome, len(reply.responses_ns)) == (Outcome.OK, 1)


def test_a_server_that_marks_no_final_response_gives_one_to_each_request(stream):
    async def serve(messages, context):
        async for message in messages:
            await context.write(response(asked(message)[0], 5))

    replies = stream(serve, in_turn(request(), request()))
    assert [(reply.outcome, len(reply.responses_ns)) for reply in replies] == [(Outcome.OK, 1)] * 2


def test_on_a_stream_of_its_own_the_end_of_the_stream_ends_an_answer_without_a_final_marker(stream):
    async def serve(messages, context):
        async for message in messages:
            parsed, count = asked(message)
            for number in range(count):
                await context.write(response(parsed, number))

    (reply,) = stream(serve, in_turn(request(4)), sharing=(1, 1))
    assert (reply.outcome, len(reply.responses_ns)) == (Outcome.OK, 4)


def answer_bare(*, version="", size=4, first_id=""):
    """Answers as MLServer does, whose ModelStreamInfer is a stream of ModelInferResponse (its dataplane.proto)."""

    async def serve(messages, context):
        async for message in messages:
            parsed, count = asked(message)
            for _ in range(count):
                bare = service_pb2.ModelInferResponse(model_name="my-model", model_version=version, id=first_id or parsed.id)
                bare.outputs.add(name="y", datatype="UINT8", shape=[size])
                bare.raw_output_contents.append(bytes(size))
                await context.write(bare.SerializeToString())

    return serve


@pytest.mark.parametrize("version", ["", "v1.0", "1"])
@pytest.mark.parametrize("size", [0, 1 << 17])
def test_bare_infer_responses_as_of_mlserver_are_responses(stream, version, size):
    async def client(transport):
        reply = await transport.send(transport.prepare(request()))
        return reply, transport.decode(reply)

    reply, decoded = stream(answer_bare(version=version, size=size), client)
    assert (reply.outcome, len(reply.responses_ns), decoded.model, decoded.version) == (Outcome.OK, 1, "my-model", version)
    assert [(output.name, output.shape, bytes(output.raw)) for output in decoded.outputs] == [("y", (size,), bytes(size))]


def test_on_streams_of_their_own_bare_responses_count_as_many_as_come(stream):
    replies = stream(answer_bare(), in_turn(request(3), request(2)), sharing=(1, 1))
    assert [(reply.outcome, len(reply.responses_ns)) for reply in replies] == [(Outcome.OK, 3), (Outcome.OK, 2)]


KEY = "(triton_final_response), so that requests cannot share a stream: set stream.requests_per_stream to 1"


@pytest.mark.parametrize("engine", ["wire"], indirect=True)
@pytest.mark.parametrize("sharing", [(100, 4)], indirect=True, ids=["shared"])
@pytest.mark.parametrize(
    "serve",
    [answer_bare(first_id="first"), answer_bare()],
    ids=["an id for all requests of a stream, as MLServer gives it", "several responses without a mark"],
)
def test_responses_that_belong_to_no_request_of_a_shared_stream_name_the_key(stream, serve):
    replies = stream(serve, sending(*[request(2)] * 4), connections=1)
    broken = [reply for reply in replies if reply.outcome is Outcome.BROKEN]
    assert broken
    assert all(KEY in reply.error for reply in broken)


@pytest.mark.parametrize("engine", ["wire"], indirect=True)
@pytest.mark.parametrize("sharing", [(100, 4)], indirect=True, ids=["shared"])
def test_a_shared_stream_that_ends_after_one_response_names_the_key(stream):
    async def serve(messages, context):
        async for message in messages:
            await answer_bare()(_only(message), context)
            return

    async def _only(message):
        yield message

    replies = stream(serve, sending(*[request()] * 4), connections=1)
    assert sorted(reply.outcome.value for reply in replies) == ["broken"] * 3 + ["ok"]
    assert all(KEY in reply.error for reply in replies if reply.outcome is Outcome.BROKEN)


def test_requests_ask_for_a_final_response_and_keep_what_else_they_have(stream):
    seen = []

    async def serve(messages, context):
        async for message in messages:
            seen.append((asked(message)[0], dict(context.invocation_metadata())))
            await context.write(response(asked(message)[0], 0, final=True))

    stream(serve, in_turn(request(7, "abc"), request(8, "abc")))
    for (parsed, metadata), count in zip(seen, (7, 8), strict=True):
        assert parsed.parameters["triton_enable_empty_final_response"].bool_param is True
        assert (parsed.model_name, asked(parsed.SerializeToString())[1]) == ("m", count)
        assert parsed.id.startswith("abc")
        assert metadata["x-tenant"] == "a"


def test_a_stream_is_replaced_after_its_number_of_requests(stream, sharing):
    calls = []

    async def serve(messages, context):
        calls.append(0)
        place = len(calls) - 1
        async for message in messages:
            calls[place] += 1
            await context.write(response(asked(message)[0], 0, final=True))

    replies = stream(serve, in_turn(*[request()] * 7), connections=1)
    assert {reply.outcome for reply in replies} == {Outcome.OK}
    assert calls == {1: [1] * 7, 3: [3, 3, 1], 100: [7]}[sharing[0]]


def test_requests_in_flight_on_one_stream_are_told_apart_by_their_ids(stream):
    async def serve(messages, context):
        waiting = [asked(await anext(messages)) for _ in range(4)]
        for parsed, count in reversed(waiting):
            for number in range(count):
                await context.write(response(parsed, number, final=number == count - 1))
        async for _ in messages:
            pass

    replies = stream(serve, sending(*map(request, (1, 2, 3, 4))), connections=1, sharing=(100, 4))
    assert [len(reply.responses_ns) for reply in replies] == [1, 2, 3, 4]
    ends = [reply.finished_ns for reply in replies]
    assert ends == sorted(ends, reverse=True)


def test_an_error_in_the_stream_is_a_rejection_with_its_message_and_the_stream_goes_on(stream):
    async def serve(messages, context):
        async for message in messages:
            parsed, count = asked(message)
            if count:
                await context.write(response(parsed, 0, final=True))
                continue
            failed = service_pb2.ModelStreamInferResponse(error_message="no such model")
            failed.infer_response.id = parsed.id
            await context.write(failed.SerializeToString())

    async def client(transport):
        replies = [await transport.send(transport.prepare(request(count))) for count in (0, 1)]
        with pytest.raises(ProtocolError, match="no such model"):
            transport.decode(replies[0])
        return replies

    failed, fine = stream(serve, client)
    assert (failed.outcome, failed.error, failed.status) == (Outcome.REJECTED, "no such model", "error_message")
    assert fine.outcome is Outcome.OK


def test_an_error_after_responses_fails_the_request_and_keeps_their_instants(stream):
    async def serve(messages, context):
        async for message in messages:
            parsed, _ = asked(message)
            await context.write(response(parsed, 0, final=False))
            failed = service_pb2.ModelStreamInferResponse.FromString(response(parsed, final=False))
            failed.error_message = "out of memory"
            await context.write(failed.SerializeToString())
            await context.write(response(parsed, final=True))

    (reply,) = stream(serve, in_turn(request()))
    assert (reply.outcome, reply.error, len(reply.responses_ns)) == (Outcome.REJECTED, "out of memory", 1)


def test_a_status_ends_all_requests_of_its_stream_and_the_next_one_has_another(stream):
    calls = []

    async def serve(messages, context):
        calls.append(context)
        parsed, _ = asked(await anext(messages))
        if len(calls) == 1:
            await context.write(response(parsed, 0, final=False))
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "too many streams")
        await context.write(response(parsed, 0, final=True))

    failed, fine = stream(serve, in_turn(request(), request()))
    assert (failed.outcome, failed.status, len(failed.responses_ns)) == (Outcome.REJECTED, "RESOURCE_EXHAUSTED", 1)
    assert "too many streams" in failed.error
    assert fine.outcome is Outcome.OK


def test_a_stream_that_the_server_ends_breaks_the_requests_on_it(stream):
    async def serve(messages, context):
        parsed, _ = asked(await anext(messages))
        await context.write(response(parsed, 0, final=False))

    (reply,) = stream(serve, in_turn(request()), sharing=(3, 1))
    assert (reply.outcome, len(reply.responses_ns)) == (Outcome.BROKEN, 1)
    assert "ended the stream" in reply.error


def test_a_request_that_times_out_keeps_its_responses_and_is_cancelled(stream):
    cancelled = asyncio.Event()

    async def serve(messages, context):
        parsed, _ = asked(await anext(messages))
        await context.write(response(parsed, 0, final=False))
        try:
            await asyncio.get_running_loop().create_future()
        except asyncio.CancelledError:
            cancelled.set()
            raise

    async def client(transport):
        reply = None
        while reply is None or not reply.responses_ns:  # on a busy machine no response may come in time
            reply = await transport.send(transport.prepare(request()))
        await cancelled.wait()
        return reply

    reply = stream(serve, client, timeout_ns=S // 4)
    assert (reply.outcome, len(reply.responses_ns)) == (Outcome.TIMED_OUT, 1)
    assert reply.finished_ns - reply.started_ns >= S // 5


def test_after_a_time_out_the_next_request_has_a_stream_of_its_own(stream):
    async def serve(messages, context):
        async for message in messages:
            parsed, count = asked(message)
            if not count:
                await asyncio.get_running_loop().create_future()
            await context.write(response(parsed, 0, final=True))

    async def client(transport):
        (late,) = await in_turn(request(0))(transport)
        outcome = None
        while outcome in (None, Outcome.TIMED_OUT):  # on a busy machine an answer may come too late; on the first stream none would come
            (reply,) = await in_turn(request(1))(transport)
            outcome = reply.outcome
        return late.outcome, outcome

    assert stream(serve, client, timeout_ns=S // 4, connections=1) == (Outcome.TIMED_OUT, Outcome.OK)


def test_an_abandoned_stream_is_unfinished_and_cancelled(stream):
    received, cancelled = asyncio.Event(), asyncio.Event()

    async def serve(messages, context):
        parsed, _ = asked(await anext(messages))
        await context.write(response(parsed, 0, final=False))
        received.set()
        try:
            await asyncio.get_running_loop().create_future()
        except asyncio.CancelledError:
            cancelled.set()
            raise

    async def client(transport):
        reply = asyncio.ensure_future(transport.send(transport.prepare(request())))
        await received.wait()
        transport.abandon()
        await cancelled.wait()
        return await reply

    assert stream(serve, client).outcome is Outcome.UNFINISHED


def test_large_messages_arrive_whole_in_both_directions(stream):
    sizes = []

    async def client(transport):
        big = tensor_from_array("COUNT", Datatype.INT32, np.ones(1 << 19, np.int32))
        replies = [await transport.send(transport.prepare(InferRequest("m", (big,)))) for _ in range(5)]
        return replies, [bytes(transport.decode(reply).outputs[0].raw[:4]) for reply in replies], transport.answer_bytes(replies[0])

    async def answered(messages, context):
        async for message in messages:
            sizes.append(len(message))
            parsed = service_pb2.ModelInferRequest.FromString(message)
            await context.write(response(parsed, 9, final=True, size=1 << 18))

    replies, starts, largest = stream(answered, client)
    assert {reply.outcome for reply in replies} == {Outcome.OK}, replies[0].error
    assert starts == [b"\x09\x00\x00\x00"] * 5
    assert all(size > 1 << 21 for size in sizes)
    assert largest > 1 << 20


def test_the_first_response_is_the_one_that_is_decoded(stream):
    async def client(transport):
        reply = await transport.send(transport.prepare(request(3)))
        return bytes(transport.decode(reply).outputs[0].raw)

    assert stream(repeat, client) == bytes(4)


def test_an_answer_beyond_the_limit_breaks_the_request(engine, sharing):
    async def serve(messages, context):
        async for message in messages:
            await context.write(response(asked(message)[0], 0, final=True, size=1 << 19))

    async def main():
        async with grpc_servers.grpcio_server(stream=serve) as address:
            options = TransportOptions(engine=engine, timeout_ns=30 * S, stream=StreamOptions(*sharing), answer_limit=AnswerLimit(1 << 20))
            transport = make_open_client(address, options, MonotonicClock())
            try:
                await transport.open(1)
                return await transport.send(transport.prepare(request()))
            finally:
                await transport.aclose()

    reply = asyncio.run(main())
    assert (reply.outcome, reply.is_own_limit) == (Outcome.BROKEN, True)


async def two_requests(script, send):
    """The reply to a request that a server answers by `script`, and the outcome of the next one on the only connection; the connections opened."""
    calls = itertools.count()

    def serve(call):
        call.answer(response(service_pb2.ModelInferRequest(), 0)) if next(calls) else script(call)

    async with grpc_servers.scripted_grpc_server(serve) as address:
        options = TransportOptions(engine="wire", timeout_ns=30 * S, stream=StreamOptions())
        transport = make_open_client(dataclasses.replace(address, protocol="grpc"), options, MonotonicClock())
        try:
            first = await send(transport, transport.prepare(request()))
            second = await transport.send(transport.prepare(request()))
            return first, second.outcome, transport.counts.opened
        finally:
            await transport.aclose()


def in_one_frame(*messages, ends=False):
    """Sends messages at once; the stream stays open, or ends with them."""

    def script(call):
        call.send_head()
        call.send_bytes(b"".join(b"\0" + len(message).to_bytes(4) + message for message in messages), ends=ends)

    return script


@pytest.mark.parametrize("ends", [False, True])
def test_what_follows_a_message_that_breaks_its_stream_is_ignored(run, ends):
    script = in_one_frame(b"\x12\xff", b"\x12\xff", ends=ends)
    reply, second, opened = run(two_requests(script, lambda transport, prepared: transport.send(prepared)))
    assert (reply.outcome, second, opened) == (Outcome.BROKEN, Outcome.OK, 1)


def test_messages_behind_the_last_wanted_one_are_ignored(run):
    unmarked = response(service_pb2.ModelInferRequest(), 0)
    reply, second, opened = run(
        two_requests(in_one_frame(*[unmarked] * 3), lambda transport, prepared: transport.send_leaving(prepared, 1))
    )
    assert (reply.outcome, len(reply.responses_ns), second, opened) == (Outcome.UNFINISHED, 1, Outcome.OK, 1)
