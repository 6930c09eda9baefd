"""Trace and log settings: rows T1 and T2 of the conformance checklist."""

import json

import pytest
import tritonclient.grpc
import tritonclient.http


@pytest.fixture(params=["http", "grpc"])
def client(request, server):
    library = {"http": tritonclient.http, "grpc": tritonclient.grpc}[request.param]
    port = server.http_port if request.param == "http" else server.grpc_port
    with library.InferenceServerClient(f"127.0.0.1:{port}") as opened:
        opened.keys = {} if request.param == "http" else {"as_json": True}
        yield opened


def test_T1_trace_settings_are_stored_and_reported(wire, client):
    defaults = {
        "trace_level": ["OFF"],
        "trace_rate": "1000",
        "trace_count": "-1",
        "log_frequency": "0",
        "trace_file": "",
        "trace_mode": "triton",
    }
    post = lambda path, body: wire.send("POST", path, json.dumps(body).encode())  # noqa: E731 - a function would be longer than its calls
    assert post("/v2/trace/setting", {}).json == wire.get("/v2/trace/setting").json == defaults
    assert post("/v2/models/simple/trace/setting", {"trace_rate": "5"}).json == {**defaults, "trace_rate": "5"}
    assert wire.get("/v2/trace/setting").json == defaults
    assert post("/v2/trace/setting", {"trace_count": "7"}).json["trace_count"] == "7"
    assert wire.get("/v2/models/simple/trace/setting").json == {**defaults, "trace_rate": "5", "trace_count": "7"}
    assert post("/v2/models/simple/trace/setting", {"trace_rate": None}).json["trace_rate"] == "1000"
    assert post("/v2/trace/setting", {"trace_count": None}).json == defaults
    assert "trace_level" in json.dumps(client.get_trace_settings("simple", **client.keys))
    client.update_trace_settings(settings={"trace_rate": "9"})
    assert wire.get("/v2/trace/setting").json["trace_rate"] == "9"
    client.update_trace_settings(settings={"trace_rate": None})
    assert wire.get("/v2/trace/setting").json == defaults


@pytest.mark.parametrize(
    ("path", "body", "status", "text"),
    [
        ("trace/setting", {"trace_rate": 5}, 500, "attempt to access JSON non-string as string"),
        ("trace/setting", {"trace_level": "OFF"}, 500, "attempt to access JSON non-array as array"),
        ("trace/setting", {"trace_level": ["TIMESTAMPS"]}, 400, "Attempting to set invalid trace setting :trace file name is not given"),
        ("trace/setting", {"trace_file": "/x"}, 501, "trace file location can not be updated through network protocol"),
        ("trace/setting", {"trace_count": "-2"}, 400, "Unable to parse 'trace_count'. Expecting value >= -1, got:-2"),
        ("trace/setting", {"trace_rate": "x"}, 400, "Unable to parse 'trace_rate', got: x"),
        ("models/nope/trace/setting", {}, 400, "Request for unknown model : nope"),
        ("logging", {"log_file": "x"}, 501, "log file location can not be updated through network protocol"),
        ("logging", {"log_format": "x"}, 503, "invalid argument for --log_format, got: x"),
        ("logging", {"log_info": "x"}, 500, "attempt to access JSON non-boolean as boolean"),
        ("logging", {"log_verbose_level": -1}, 500, "attempt to access JSON non-unsigned-integer as unsigned-integer"),
        ("logging", {"log_verbose_level": 2**32}, 500, "attempt to access JSON non-unsigned-integer as unsigned-integer"),
    ],
)  # the responses of Triton 2.51
def test_invalid_settings_are_rejected(wire, path, body, status, text):
    answer = wire.send("POST", f"/v2/{path}", json.dumps(body).encode())
    assert (answer.status, answer.json) == (status, {"error": text})


def test_T2_log_settings_are_stored_and_reported(wire, client):
    defaults = {"log_file": "", "log_info": True, "log_warning": True, "log_error": True, "log_verbose_level": 0, "log_format": "default"}
    assert wire.get("/v2/logging").json == defaults
    assert wire.send("POST", "/v2/logging", b'{"log_verbose_level":1,"foo":2}').json == {**defaults, "log_verbose_level": 1}
    client.update_log_settings({"log_verbose_level": 0, "log_info": True})
    assert wire.get("/v2/logging").json == defaults
    assert "log_verbose_level" in json.dumps(client.get_log_settings(**client.keys))
