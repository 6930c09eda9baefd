"""Both HTTP engines against aiohttp's server."""

import contextlib
import time

import numpy as np
import pytest
from aiohttp import web

from perfkit.errors import MissingEndpointError, ProtocolError, TargetError
from perfkit.protocol import rest
from perfkit.protocol.message import IndexedModel, InferResponse
from perfkit.protocol.tensor import Datatype, tensor_from_array
from perfkit.target.address import Address
from perfkit.transport.base import Outcome
from perfkit.transport.http.reference import ReferenceHttpTransport
from perfkit.transport.http.transport import WireHttpTransport
from perfkit.transport.options import TransportOptions
from tests.transport.clients import client_of

ENGINES = {"wire": WireHttpTransport, "reference": ReferenceHttpTransport}
VALUES = np.arange(6, dtype=np.int32).reshape(2, 3)
CALLS = {
    "/v2": web.json_response({"name": "s", "version": "1.2", "extensions": ["binary_tensor_data"]}).body,
    "/v2/models/my%20model/versions/3": b'{"name":"my model","versions":["3"],"platform":"p","inputs":[{"name":"x","datatype":"FP32","shape":[-1,4]}],"outputs":[]}',
    "/v2/models/my%20model/versions/3/config": b'{"name":"my model","max_batch_size":8}',
    "/v2/models/my%20model/versions/3/ready": b"",
    "/v2/health/ready": b"",
    "/v2/repository/index": b'[{"name":"a","version":"1","state":"READY"},{"name":"b","state":"UNAVAILABLE","reason":"no"}]',
}


@pytest.fixture(params=ENGINES)
def engine(request):
    return ENGINES[request.param]


@contextlib.asynccontextmanager
async def serving(handle):
    """A server that passes every request to `handle`, a coroutine function of an aiohttp request."""
    server = web.Server(handle)
    runner = web.ServerRunner(server, shutdown_timeout=0)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield Address("http", *runner.addresses[0])
    finally:
        await runner.cleanup()


def make(engine, address, timeout_ns=30_000_000_000):
    return client_of(engine, address, TransportOptions(max_connections=4, timeout_ns=timeout_ns), time.monotonic_ns)


async def answer_infer(_request):
    headers, body = rest.encode_infer_response(
        InferResponse("my model", "3", (tensor_from_array("y", Datatype.INT32, VALUES),), id="7"), {"y": True}
    )
    return web.Response(body=b"".join(body), headers=headers)


async def exchange(engine, handle, request, timeout_ns=30_000_000_000):
    async with serving(handle) as address:
        transport = make(engine, address, timeout_ns)
        reply = await transport.send(transport.prepare(request))
        await transport.aclose()
        return transport, reply


def test_both_engines_send_the_same_request(run, infer_request):
    seen = []

    async def record(request):
        own = ("Content-Type", "Content-Length", rest.HEADER_LENGTH)
        seen.append((request.method, request.raw_path, {name: request.headers[name] for name in own}, await request.read()))
        return await answer_infer(request)

    for engine in ENGINES.values():
        run(exchange(engine, record, infer_request))
    assert seen[0] == seen[1]
    headers, buffers = rest.encode_infer_request(infer_request)
    assert seen[0][:2] == ("POST", "/v2/models/my%20model/versions/3/infer")
    assert seen[0][2] == {**headers, "Content-Length": str(len(b"".join(buffers)))}
    assert rest.decode_infer_request("my model", "3", seen[0][3], int(headers[rest.HEADER_LENGTH])) == infer_request


def test_an_answer_is_decoded_to_its_tensors(run, engine, infer_request):
    transport, reply = run(exchange(engine, answer_infer, infer_request))
    assert reply.outcome is Outcome.OK
    response = transport.decode(reply)
    assert (response.model, response.version, response.id) == ("my model", "3", "7")
    (output,) = response.outputs
    assert (output.name, output.shape, bytes(output.raw)) == ("y", (2, 3), VALUES.tobytes())


@pytest.mark.parametrize("pieces", [1, 7, 100])
def test_a_chunked_answer_is_read_completely(run, engine, infer_request, pieces):
    async def stream(request):
        whole = await answer_infer(request)
        response = web.StreamResponse(headers={name: value for name, value in whole.headers.items() if name != "Content-Length"})
        response.enable_chunked_encoding()
        await response.prepare(request)
        for piece in range(0, len(whole.body), pieces):
            await response.write(whole.body[piece : piece + pieces])
        await response.write_eof()
        return response

    transport, reply = run(exchange(engine, stream, infer_request))
    assert bytes(transport.decode(reply).outputs[0].raw) == VALUES.tobytes()


@pytest.mark.parametrize(
    ("status", "outcome"), [(400, Outcome.REJECTED), (404, Outcome.REJECTED), (503, Outcome.REJECTED), (200, Outcome.OK)]
)
def test_every_status_but_200_is_a_rejection_with_its_message(run, engine, infer_request, status, outcome):
    async def refuse(_request):
        return web.Response(status=status, body=rest.encode_error("out of memory"), content_type="application/json")

    transport, reply = run(exchange(engine, refuse, infer_request))
    assert reply.outcome is outcome
    if outcome is Outcome.REJECTED:
        with pytest.raises(ProtocolError, match=f"^HTTP {status}: out of memory$"):
            transport.decode(reply)


def test_a_connection_closed_during_a_request_breaks_it(run, engine, infer_request):
    async def hang_up(request):
        request.transport.close()
        return web.Response()

    _, reply = run(exchange(engine, hang_up, infer_request))
    assert reply.outcome is Outcome.BROKEN
    assert reply.error


def test_the_other_calls_are_decoded(run, engine):
    async def answer(request):
        body = CALLS.get(request.raw_path)
        return web.Response(body=body, status=200 if body is not None else 404)

    async def main():
        async with serving(answer) as address:
            transport = make(engine, address)
            server, model = await transport.server_metadata(), await transport.model_metadata("my model", "3")
            answers = (
                await transport.is_ready("my model", "3"),
                (await transport.model_config("my model", "3")).max_batch_size,
                await transport.model_index(),
            )
            with pytest.raises(
                MissingEndpointError, match="does not say whether model 'other' is ready: GET /v2/models/other/ready: HTTP 404"
            ):
                await transport.is_ready("other", "")
            with pytest.raises(MissingEndpointError, match="does not give the configuration of model 'other'"):
                await transport.model_config("other", "")
            with pytest.raises(TargetError, match="does not offer model 'other': HTTP 404"):
                await transport.model_metadata("other", "")
            await transport.aclose()
            return server, model, answers

    server, model, answers = run(main())
    assert (server.name, server.version, server.extensions) == ("s", "1.2", ("binary_tensor_data",))
    assert [(tensor.name, tensor.datatype, tensor.shape) for tensor in model.inputs] == [("x", "FP32", (-1, 4))]
    index = (IndexedModel("a", "1", "READY"), IndexedModel("b", "", "UNAVAILABLE", "no"))
    assert answers == (True, 8, index)


@pytest.mark.parametrize(
    ("body", "models"),
    [
        (b'{"models":["a","b"]}', (IndexedModel("a"), IndexedModel("b"))),
        (b'{"models":[1,"a"]}', (IndexedModel("a"),)),
        (b'{"models":"a"}', ()),
        (b"[]", ()),
        (b"<html>", ()),
    ],
)
def test_without_a_repository_index_the_models_are_those_that_kserve_lists(run, engine, body, models):
    async def answer(request):
        return web.Response(body=body) if (request.method, request.raw_path) == ("GET", "/v2/models") else web.Response(status=404)

    async def main():
        async with serving(answer) as address, contextlib.aclosing(make(engine, address)) as transport:
            assert await transport.model_index() == models

    run(main())


@pytest.mark.parametrize("body", [b"<html>", b"[]", b"\xff", b""])
def test_the_error_names_a_server_of_another_kind(run, engine, body):
    async def answer(_request):
        return web.Response(body=body)

    async def main():
        async with serving(answer) as address:
            transport = make(engine, address)
            with pytest.raises(MissingEndpointError, match="not a v2 server"):
                await transport.server_metadata()
            assert await transport.model_index() == ()
            assert await transport.model_statistics("m", "") == ()
            with pytest.raises(TargetError):
                await transport.model_metadata("m", "")
            with pytest.raises(MissingEndpointError, match="does not give the configuration"):
                await transport.model_config("m", "")
            await transport.aclose()

    run(main())
