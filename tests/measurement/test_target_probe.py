"""Targets are probed before any load: servers that answer as Triton, MLServer and KServe do, and servers that answer wrongly."""

import asyncio
import contextlib
import json
import re
import time
from typing import Any

import pytest
from aiohttp import web

from perfkit.errors import ModelMismatchError, TargetError
from perfkit.measurement.target_probe import probe
from perfkit.protocol import rest
from perfkit.protocol.message import InferResponse
from perfkit.scenario.file import LoadedScenario
from perfkit.scenario.model import Scenario
from perfkit.target.address import Address
from perfkit.transport.http.reference import ReferenceHttpTransport
from perfkit.transport.http.transport import WireHttpTransport
from perfkit.transport.options import StreamOptions, TransportOptions
from tests.clocks import SettableClock
from tests.transport.clients import client_of

TENSOR: dict[str, Any] = {"name": "x", "datatype": "INT32", "shape": [2]}
Y = {"outputs": [{"name": "y"}]}
METADATA: dict[str, Any] = {"name": "m", "versions": ["1"], "platform": "p", "inputs": [TENSOR], "outputs": [{**TENSOR, "name": "y"}]}


class Server:
    """A v2 server; subclasses override what a kind of server does differently."""

    extensions: tuple[str, ...] = ("binary_tensor_data",)
    health_body = ready_body = b""
    ready_status = health_status = 200
    config = web.json_response({"max_batch_size": 0})
    metadata = METADATA

    def __init__(self):
        self.bodies = []

    def routes(self):
        return [
            web.get("/v2", self.server),
            web.get("/v2/health/ready", self.health),
            web.get("/v2/models/m", self.describe),
            web.get("/v2/models/m/ready", self.ready),
            web.get("/v2/models/m/config", self.configuration),
            web.post("/v2/models/m/infer", self.infer),
        ]

    async def server(self, request):
        return web.json_response({"name": "s", "version": "1", "extensions": list(self.extensions)})

    async def health(self, request):
        return web.Response(body=self.health_body, status=self.health_status)

    async def describe(self, request):
        return web.json_response(self.metadata)

    async def ready(self, request):
        return web.Response(body=self.ready_body, status=self.ready_status)

    async def configuration(self, request):
        return web.Response(status=404, body=b'{"error":"none"}')

    async def infer(self, request):
        body = await request.read()
        length = request.headers.get("Inference-Header-Content-Length")
        asked = rest.decode_infer_request("m", "", body, None if length is None else int(length))
        self.bodies.append((request.headers, body))
        return self.answer(asked)

    def answer(self, asked):
        output = {**TENSOR, "name": "y", "data": [1, 2]}
        return web.json_response({"model_name": "m", "id": asked.id, "outputs": [output]})


class Mlserver(Server):
    """Takes only JSON, generates ids, returns content types as parameters, and reports errors as FastAPI does."""

    extensions: tuple[str, ...] = ()

    async def infer(self, request):
        if "Inference-Header-Content-Length" in request.headers:
            return web.json_response({"detail": [{"loc": ["body"], "msg": "JSON decode error", "type": "json_invalid"}]}, status=422)
        return await super().infer(request)

    def answer(self, asked):
        output = {**TENSOR, "name": "y", "parameters": {"content_type": "np"}, "data": [1, 2]}
        return web.json_response({"model_name": "m", "id": asked.id or "2f6c", "parameters": {}, "outputs": [output]})


class Kserve(Server):
    """Answers health and readiness with JSON bodies, and has null for what is absent."""

    extensions = ("model_repository_extension",)
    health_body = b'{"ready":true}'
    ready_body = b'{"name":"m","ready":true}'
    metadata = {**METADATA, "versions": None, "platform": ""}  # noqa: RUF012 - read alone

    def answer(self, asked):
        output = {**TENSOR, "name": "y", "parameters": None, "data": [1, 2]}
        document = {"model_name": "m", "model_version": None, "id": asked.id or None, "parameters": None, "outputs": [output]}
        return web.json_response(document)


@pytest.fixture(params=[WireHttpTransport, ReferenceHttpTransport])
def engine(request):
    return request.param


@contextlib.asynccontextmanager
async def serving(server):
    application = web.Application()
    application.add_routes(server.routes())
    runner = web.AppRunner(application)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        host, port = runner.addresses[0]
        yield Address("http", host, port, headers={"x-key": "planted-secret"}, secrets=frozenset({"planted-secret"}))
    finally:
        await runner.cleanup()


def ask(server, engine, tmp_path, check=None, target=None, stream=None, sequences=None, **workload):
    """Probes the server with a scenario that has this workload."""
    document = {
        "name": "t",
        "target": {"model": "m", **(target or {})},
        "load": {"closed": {"concurrency": 1}},
        "workload": workload,
        "check": check or {},
        **({} if stream is None else {"stream": {}}),
        **({} if sequences is None else {"sequences": sequences}),
    }
    loaded = LoadedScenario(Scenario.model_validate(document), tmp_path, ())

    async def main():
        async with serving(server) as address:
            transport = client_of(engine, address, TransportOptions(max_connections=2, timeout_ns=10**10, stream=stream), time.monotonic_ns)
            try:
                return await probe(transport, address, loaded, SettableClock())
            finally:
                await transport.aclose()

    return asyncio.run(main())


@pytest.mark.parametrize("kind", [Server, Kserve])
def test_a_server_that_takes_binary_tensors_gets_them(engine, tmp_path, kind):
    server = kind()
    probed = ask(server, engine, tmp_path)
    assert (probed.name, probed.warnings) == ("s", ())
    assert [headers["Content-Type"] for headers, _ in server.bodies] == ["application/octet-stream"]
    assert not any(request.plain_inputs for request in probed.requests)


def test_a_server_that_refuses_binary_tensors_gets_json_with_a_note(engine, tmp_path):
    server = Mlserver()
    probed = ask(server, engine, tmp_path, request_id="run")
    (warning,) = probed.warnings
    assert (warning.code, warning.message[:33]) == ("json_tensors", "The server refuses binary tensors")
    assert all(request.plain_inputs == {"x"} and not request.binary_output for request in probed.requests)
    ((headers, body),) = server.bodies
    assert headers["Content-Type"] == "application/json"
    assert json.loads(body)["inputs"][0]["data"]
    assert "parameters" not in json.loads(body)


def test_a_scenario_with_binary_encoding_never_falls_back_to_json(engine, tmp_path):
    with pytest.raises(ModelMismatchError, match=r"the probe request failed: HTTP 422: .*JSON decode error"):
        ask(Mlserver(), engine, tmp_path, encoding="binary")


def test_a_server_that_announces_binary_tensors_never_gets_json(engine, tmp_path):
    class Broken(Mlserver):
        extensions = ("binary_tensor_data",)

    with pytest.raises(ModelMismatchError, match="HTTP 422"):
        ask(Broken(), engine, tmp_path)


def test_if_json_fails_too_the_first_error_is_reported(engine, tmp_path):
    class Refusing(Mlserver):
        async def infer(self, request):
            what = "binary" if "Inference-Header-Content-Length" in request.headers else "JSON"
            return web.json_response({"error": f"no {what} for x-key planted-secret"}, status=400)

    with pytest.raises(ModelMismatchError, match="no binary for x-key <redacted>"):
        ask(Refusing(), engine, tmp_path)


@pytest.mark.parametrize(("status", "body"), [(404, b'{"error":"loading"}'), (400, b""), (200, b'{"name":"m","ready":false}')])
@pytest.mark.parametrize(
    ("health", "of_server"), [(200, "the server is$"), (400, r"the server is not, either \(GET /v2/health/ready: HTTP 400\)$")]
)
def test_a_model_that_is_not_ready_is_reported_and_whether_the_server_is(engine, tmp_path, status, body, health, of_server):
    server = Server()
    server.ready_status, server.ready_body, server.health_status = status, body, health
    with pytest.raises(TargetError, match=f"model 'm' is not ready; {of_server}"):
        ask(server, engine, tmp_path)


@pytest.mark.parametrize(
    ("status", "body", "words"),
    [
        (400, b"", "HTTP 400"),
        (503, b'{"error":"another loads"}', "HTTP 503: another loads"),
        (200, b'{"ready":false}', "HTTP 200: .*"),
    ],
    ids=str,
)
def test_a_ready_model_is_measured_while_the_server_is_not_ready(engine, tmp_path, status, body, words):
    server = Server()
    server.health_status, server.health_body = status, body
    probed = ask(server, engine, tmp_path)
    note = rf"The server is not ready \(GET /v2/health/ready: {words}\), as while another model loads or is broken, but model 'm' is, and is measured\."
    assert re.search(note, probed.note)
    assert probed.warnings == ()


class Guarded(Server):
    """Does not say whether it is ready to those without credentials, and perhaps does not say of its models either."""

    def __init__(self, health, ready=None):
        super().__init__()
        self.answers = health, ready

    async def health(self, request):
        return web.Response(status=self.answers[0], headers={"Location": "https://login.example/"})

    async def ready(self, request):
        if self.answers[1] is None:
            return await super().ready(request)
        return web.Response(status=self.answers[1], headers={"Location": "/v2/models/m/ready/"})


@pytest.mark.parametrize("health", [401, 403, 302])
def test_a_server_that_does_not_permit_to_ask_whether_it_is_ready_is_not_said_to_be_unready(engine, tmp_path, health):
    assert "not ready" not in ask(Guarded(health), engine, tmp_path).note
    note = ask(Guarded(health, 404), engine, tmp_path).note
    assert "whether the model is ready (GET /v2/models/m/ready: HTTP 404), which its first answer shows instead" in note


def test_a_redirection_to_the_same_server_does_not_say_that_the_model_is_not_ready(engine, tmp_path):
    note = ask(Guarded(200, 307), engine, tmp_path).note
    assert "whether the model is ready (GET /v2/models/m/ready: HTTP 307: redirected to /v2/models/m/ready/), which" in note


@pytest.mark.parametrize("health", [200, 403])
def test_credentials_that_the_models_readiness_asks_for_are_named(engine, tmp_path, health):
    with pytest.raises(TargetError, match=r"access to GET /v2/models/m/ready is refused: HTTP 403: give the credentials"):
        ask(Guarded(health, 403), engine, tmp_path)


def test_inputs_of_the_scenario_replace_missing_metadata(engine, tmp_path):
    server = Server()
    server.metadata = {"name": "m", "versions": [], "platform": "", "inputs": [], "outputs": []}
    with pytest.raises(ModelMismatchError, match="the server does not say what model 'm' takes"):
        ask(server, engine, tmp_path)
    probed = ask(server, engine, tmp_path, inputs={"x": {"value": [1, 2], "datatype": "INT32", "shape": [2]}})
    assert len(probed.requests) == 1
    assert [warning.code for warning in probed.warnings] == ["no_metadata"]


@pytest.mark.parametrize(
    ("answer", "workload", "fault"),
    [
        ({"outputs": []}, {}, "holds no outputs"),
        ({"outputs": [{**TENSOR, "name": "z", "data": [1, 2]}]}, Y, "lacks the output y"),
        ({"outputs": [{**TENSOR, "name": "y", "shape": [1], "data": [1]}]}, Y, r"has shape \[1\] in output 'y', where the model's metadata says \[2\]"),
        ({"outputs": [{**TENSOR, "name": "y", "datatype": "FP32", "data": [1, 2]}]}, Y, "holds FP32 in output 'y', where the model's metadata says INT32"),
        ({"id": "other", "outputs": [{**TENSOR, "name": "y", "data": [1, 2]}]}, Y, "carries the id 'other', where 'run-0' was sent"),
    ],
)  # fmt: skip
def test_a_response_that_contradicts_the_metadata_is_reported(engine, tmp_path, answer, workload, fault):
    class Wrong(Server):
        def answer(self, asked):
            return web.json_response({"model_name": "m", "id": asked.id, **answer})

    with pytest.raises(TargetError, match=f"the response to the probe request {fault}"):
        ask(Wrong(), engine, tmp_path, request_id="run", **workload)


@pytest.mark.parametrize(
    ("described", "answered", "are_compared"), [("m", "m", True), ("m", None, True), ("m", "m_1", False), ("m_1", "m", False), ("m_1", "m_1", False)]
)  # fmt: skip
def test_a_server_with_other_names_for_its_models_may_change_them(engine, tmp_path, described, answered, are_compared):
    """Seldon Core 2 answers for `iris` as `iris_1`, of another revision as `iris_2`, and in an experiment as one of several models."""

    class Renaming(Server):
        metadata = {**METADATA, "name": described}  # noqa: RUF012 - read alone

        def answer(self, asked):
            return web.json_response({"model_name": answered, "id": asked.id, "outputs": [{**TENSOR, "name": "y", "data": [1, 2]}]})

    probed = ask(Renaming(), engine, tmp_path)
    faults = {name: probed.expectation.model_fault(InferResponse(name, "1", ())) for name in ("", "m", "m_1", "m_2", "other")}
    assert {name for name, fault in faults.items() if fault} == ({"m_1", "m_2", "other"} if are_compared else set())
    assert ("has other names for model 'm'" in probed.note) is not are_compared


@pytest.mark.parametrize("is_decoupled", [True, False])
def test_only_a_decoupled_model_may_have_no_event(tmp_path, is_decoupled):
    class Silent(Server):
        def routes(self):
            return [*super().routes(), web.post("/v2/models/m/generate_stream", self.generate)]

        async def configuration(self, request):
            return web.json_response({"max_batch_size": 0, "model_transaction_policy": {"decoupled": is_decoupled}})

        async def generate(self, request):
            return web.Response(content_type="text/event-stream")

    expectation = contextlib.nullcontext() if is_decoupled else pytest.raises(TargetError, match="the stream ended without a response")
    with expectation:
        assert not ask(Silent(), WireHttpTransport, tmp_path, stream=StreamOptions()).expectation.needs_response


@pytest.mark.parametrize(
    ("policy", "events", "has_one"), [(None, 1, False), (False, 1, True), (False, 3, False), (True, 1, False), (True, 3, False)]
)
def test_a_model_that_is_not_decoupled_has_one_response_unless_its_first_answer_had_several(tmp_path, policy, events, has_one):
    class Streaming(Server):
        def routes(self):
            return [*super().routes(), web.post("/v2/models/m/generate_stream", self.generate)]

        async def configuration(self, request):
            if policy is None:  # a server without the endpoint
                return await super().configuration(request)
            return web.json_response({"max_batch_size": 0, "model_transaction_policy": {"decoupled": policy}})

        async def generate(self, request):
            return web.Response(text='data: {"model_name":"m","o":1.0}\n\n' * events, content_type="text/event-stream")

    probed = ask(Streaming(), WireHttpTransport, tmp_path, stream=StreamOptions())
    assert probed.expectation.has_one_response is has_one
    assert ("their number is not compared" in probed.note) is (policy is False and events > 1)


def test_a_response_of_the_wrong_size_is_reported(engine, tmp_path):
    class Short(Server):
        def answer(self, asked):
            headers = {"Inference-Header-Content-Length": "111"}
            head = json.dumps({"outputs": [{**TENSOR, "name": "y", "parameters": {"binary_data_size": 4}}]}).ljust(111).encode()
            return web.Response(body=head + bytes(4), headers=headers)

    with pytest.raises(TargetError, match=r"is broken: byte size mismatch for tensor 'y'\. Expected 8, got 4"):
        ask(Short(), engine, tmp_path)


def test_the_name_of_a_server_shows_no_secret(engine, tmp_path):
    class Echoing(Server):  # malformed extensions count as none
        async def server(self, request):
            return web.json_response({"name": f"for {request.headers['x-key']}", "version": request.headers["x-key"], "extensions": 5})

    probed = ask(Echoing(), engine, tmp_path)
    assert (probed.name, probed.version) == ("for <redacted>", "<redacted>")


@pytest.mark.parametrize(
    ("place", "document"),
    [
        ("metadata", {**METADATA, "inputs": [{**TENSOR, "name": ["a"]}]}),
        ("metadata", {**METADATA, "inputs": [{**TENSOR, "shape": [float("inf")]}]}),
        ("metadata", {**METADATA, "inputs": [{**TENSOR, "shape": [-5]}]}),
        ("metadata", {**METADATA, "name": 5}),
        ("config", {"max_batch_size": -1}),
        ("config", {"max_batch_size": float("inf")}),
    ],
)
def test_malformed_metadata_is_a_target_error(engine, tmp_path, place, document):
    class Confused(Server):
        async def describe(self, request):
            return web.json_response(document if place == "metadata" else METADATA)

        async def configuration(self, request):
            return web.json_response(document if place == "config" else {"max_batch_size": 0})

    with pytest.raises(TargetError, match=r"not (valid )?v2"):
        ask(Confused(), engine, tmp_path)


def test_a_server_s_error_is_shortened_and_shown_without_control_characters(engine, tmp_path):
    class Noisy(Server):
        async def describe(self, request):
            return web.json_response({"error": "\x1b[2J" + "x" * 100_000}, status=400)

    with pytest.raises(TargetError, match="does not offer model 'm'") as caught:
        ask(Noisy(), engine, tmp_path)
    assert "\x1b" not in str(caught.value)
    assert len(str(caught.value)) < 2000
