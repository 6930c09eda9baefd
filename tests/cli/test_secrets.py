"""Secrets reach no file and no stream, even if a server repeats them wherever it can."""

import base64
import concurrent.futures
import contextlib
import functools
import itertools
import json

import grpc
import pytest
from tritonclient.grpc import service_pb2

from tests.json_server import JsonHandler, serving

TOKEN, PASSWORD, KEY = "tok-Zx81-planted", "pass/word 42", "header\"value'planted"
BASIC = base64.b64encode(f"ali:{PASSWORD}".encode()).decode()
PLANTED = [TOKEN, PASSWORD, KEY, BASIC, "pass%2Fword%2042"]
TENSOR = {"datatype": "FP32", "shape": [1]}
METADATA = {"name": "m", "versions": ["1"], "platform": "", "inputs": [{"name": "i", **TENSOR}], "outputs": [{"name": "o", **TENSOR}]}


def echoing(*, refuses_first):
    """A server that repeats the headers it was sent: as names and versions of itself and its models, and as the error of every other inference."""
    inferences = list[str]()

    class Handler(JsonHandler):
        def do_GET(self):
            if self.path == "/v2":
                self.answer(200, {"name": self._said(), "version": self._said(), "extensions": []})
            elif self.path.endswith("/m/config"):
                step = {"model_name": self._said(), "model_version": -1, "input_map": {}, "output_map": {}}
                self.answer(200, {"name": "m", "ensemble_scheduling": {"step": [step]}}, self._said())
            elif self.path.endswith("config"):
                self.answer(404, METADATA, self._said())
            elif self.path.endswith("stats"):
                times = {name: {"count": len(inferences), "ns": 10**6 * len(inferences)} for name in ("success", "queue", "compute_infer")}
                counts = {"inference_count": 5, "execution_count": 5, "inference_stats": times}
                self.answer(200, {"model_stats": [{"name": self._said(), "version": self._said(), **counts}]})
            else:
                self.answer(200, {**METADATA, "versions": [self._said()], "platform": self._said()})

        def do_POST(self):
            self.body()
            if self.path.endswith("index"):
                self.answer(200, [{"name": name, "version": self._said(), "state": "READY"} for name in ("m", self._said())])
                return
            inferences.append(self.path)
            if len(inferences) % 2 == 0 or refuses_first:
                self.answer(400, {"error": f"not allowed with {self._said()}"}, self._said())
            else:
                self.answer(200, {"model_name": "m", "outputs": [{"name": "o", **TENSOR, "data": [1.0]}]})

        def _said(self):
            sent = {name.lower(): value for name, value in self.headers.items()}
            password = base64.b64decode(sent["authorization"].split()[1]).decode() if "Basic" in sent.get("authorization", "") else ""
            return f"{sent.get('authorization')} {sent.get('x-key')} {sent.get('x-token')} {password}"

    return Handler


@pytest.fixture(params=["wire", "reference"])
def engine(request):
    return request.param


@pytest.fixture
def serve():
    with contextlib.ExitStack() as servers:
        yield lambda *, refuses_first=False: servers.enter_context(serving(echoing(refuses_first=refuses_first)))


def target(port, engine):
    return {
        "url": f"http://ali:pass%2Fword%2042@127.0.0.1:{port}",
        "model": "m",
        "engine": engine,
        "headers": {"x-key": KEY, "x-token": "Token ${PLANTED}", "User-Agent": "bench"},
    }


def assert_nothing_planted(text):
    found = [secret for secret in PLANTED if secret in text]
    assert not found, text


def test_no_file_and_no_stream_shows_a_planted_secret(perfkit, write_scenario, serve, engine):
    scenario = write_scenario(target=target(serve(), engine), measure={"warmup": "0s", "requests": 20, "repetitions": 1})
    override = f"target.headers.x-more={KEY}"
    finished = perfkit.measure(scenario, "--set", override, "--format", "json", environ={"PLANTED": TOKEN})
    assert perfkit.run("report", finished.folder).code == 0
    (point, _) = finished.result["points"]
    assert point["requests"]["rejected"] > 0, "the server has repeated what it was sent"
    assert "not allowed with" in json.dumps(finished.result)
    (composing,) = finished.result["points"][0]["server"]["composing_models"]
    assert "<redacted>" in composing["name"]
    assert finished.result["scenario"]["target"]["headers"] == {
        "x-key": "<redacted>",
        "x-token": "<redacted>",
        "User-Agent": "bench",
        "x-more": "<redacted>",
    }
    files = [path for path in finished.folder.rglob("*") if path.is_file()]
    assert {"result.json", "latency.hlog", "report.md", "report.html"} <= {path.name for path in files}
    for path in files:
        content = path.read_bytes()
        assert not [secret for secret in PLANTED if secret.encode() in content], path
    assert_nothing_planted(finished.stdout)
    assert_nothing_planted(finished.stderr)


def test_no_error_shows_a_planted_secret(perfkit, write_scenario, serve, engine):
    scenario = write_scenario(target=target(serve(refuses_first=True), engine))
    finished = perfkit.run("run", scenario, environ={"PLANTED": TOKEN})
    assert finished.code == 2
    assert "not allowed with Basic <redacted> <redacted>" in finished.stderr
    assert_nothing_planted(finished.stdout + finished.stderr)


def test_no_file_shows_a_secret_that_a_grpc_server_repeats(perfkit, write_scenario):
    class Echoing(grpc.GenericRpcHandler):
        inferences = 0

        def service(self, details):
            return grpc.unary_unary_rpc_method_handler(functools.partial(self.answer, details.method.rpartition("/")[2]))

        def answer(self, method, _message, context):
            said = " ".join(str(value) for _, value in context.invocation_metadata())
            if method == "ModelInfer":
                self.inferences += 1
                if self.inferences % 2 == 0:
                    context.abort(grpc.StatusCode.INVALID_ARGUMENT, f"not allowed with {said}")
                reply = service_pb2.ModelInferResponse(model_name="m", raw_output_contents=[bytes(4)])
                reply.outputs.add(name="o", **TENSOR)
                return reply.SerializeToString()
            if method == "ServerMetadata":
                return service_pb2.ServerMetadataResponse(name=said, version=said).SerializeToString()
            if method == "ModelMetadata":
                reply = service_pb2.ModelMetadataResponse(name="m")
                reply.inputs.add(name="i", **TENSOR)
                reply.outputs.add(name="o", **TENSOR)
                return reply.SerializeToString()
            return b"\x08\x01" if method.endswith("Ready") else b""

    server = grpc.server(concurrent.futures.ThreadPoolExecutor(4))
    server.add_generic_rpc_handlers((Echoing(),))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        target = {
            "url": f"grpc://ali:pass%2Fword%2042@127.0.0.1:{port}",
            "model": "m",
            "headers": {"x-key": KEY, "x-token": "Token ${PLANTED}"},
        }
        scenario = write_scenario(target=target, measure={"warmup": "0s", "requests": 20, "repetitions": 1})
        finished = perfkit.measure(scenario, "--format", "json", environ={"PLANTED": TOKEN})
    finally:
        server.stop(None).wait(60)
    assert perfkit.run("report", finished.folder).code == 0
    assert "not allowed with" in json.dumps(finished.result)
    for path in finished.folder.rglob("*"):
        assert not path.is_file() or not [secret for secret in PLANTED if secret.encode() in path.read_bytes()], path
    assert_nothing_planted(finished.stdout + finished.stderr)


def test_validate_shows_no_planted_secret(perfkit, write_scenario, serve):
    finished = perfkit.run("validate", write_scenario(target=target(serve(), "wire")), environ={"PLANTED": TOKEN})
    assert finished.code == 0
    assert "http://<redacted>@127.0.0.1" in finished.stdout
    assert_nothing_planted(finished.stdout + finished.stderr)


def test_no_command_writes_or_prints_the_password_of_a_url(perfkit, write_scenario, serve, tmp_path, monkeypatch):
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    url, quick = target(serve(), "wire")["url"], {"warmup": "0s", "requests": 20, "repetitions": 1}
    sweep = {"target.url": [url, url.replace("ali:", "bob:")], "target.headers.x-key": [KEY]}
    scenario = write_scenario(target={"model": "m"}, load={"closed": {"concurrency": 1}}, measure=quick, telemetry=False, sweep=sweep)
    settings = [word for key, value in quick.items() for word in ("--set", f"measure.{key}={value}")]
    run = ["run", url, "-m", "m", "-c", "1", "--set", f"target.headers.x-key={KEY}", "--set", "telemetry=false", *settings]
    commands = [
        ["init", url], ["init", url, "-m", "m", "--out", "made.yaml"], [*run, "--print-scenario"], [*run, "--out", "one"],
        ["run", scenario, "--print-scenario"], ["run", scenario, "--out", "sweep"], ["validate", scenario], ["report", "one"], ["report", "--table-only", "sweep"],
        ["compare", "one", "one"], ["compare", "one", "one", "--format", "html", "--out", "c.html"], ["baseline", "one", "--out", "b.json"],
        ["history", "add", "one"], ["history", "list"], ["gate", "--baseline", "one", "--candidate", "one", "--out", "gate", "--html", "g.html"],
    ]  # fmt: skip
    for command in commands:
        finished = perfkit.run(*command)
        assert finished.code != 70, finished.stderr
        assert_nothing_planted(finished.stdout + finished.stderr)
    written = list((tmp_path / "work").rglob("*"))
    # a busy machine makes results invalid, which have no baseline
    assert {"made.yaml", "result.json", "sweep.json", "sweep.csv", "c.html", "perfkit-history.sqlite"} <= {path.name for path in written}
    for path in written:
        assert_nothing_planted(path.name)
        assert not path.is_file() or not [secret for secret in PLANTED if secret.encode() in path.read_bytes()], path


@pytest.mark.parametrize("before", [0, 180, 20_000])
def test_no_part_of_a_long_token_is_stored_that_a_body_in_place_of_a_stream_repeats(perfkit, write_scenario, before):
    token, requests = "".join(f"{number:04x}" for number in range(500)), itertools.count()

    class Handler(JsonHandler):
        def do_GET(self):
            self.answer(200, {"data": [{"id": "m"}]})

        def do_POST(self):
            self.body()
            if next(requests) % 2 == 0:  # the first one is the probe
                self.answer_bytes(200, b'data: {"model": "m", "choices": [{"delta": {"content": "a"}}]}\n\ndata: [DONE]\n\n')
            else:
                self.answer(200, {"error": f"{'-' * before} not allowed: {self.headers['authorization']}"})

    with serving(Handler) as port:
        given = {"url": f"http://127.0.0.1:{port}", "model": "m", "api": "openai"}
        scenario = write_scenario(
            target={**given, "headers": {"authorization": "Bearer ${TOKEN}"}},
            stream={},
            load={"closed": {"concurrency": [1]}},
            measure={"warmup": "0s", "requests": 10, "repetitions": 1},
            telemetry=False,
        )
        finished = perfkit.measure(scenario, environ={"TOKEN": token})
    assert finished.result["points"][0]["requests"]["broken"] > 0
    stored = (finished.folder / "result.json").read_text()
    assert ("not allowed: <redacted>" in stored) == (before < 300)
    assert token[:20] not in stored
