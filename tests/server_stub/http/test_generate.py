"""`generate` and `generate_stream`; unless noted otherwise, the responses are those of Triton 2.51."""

import json
import socket
from typing import Any

import h11
import pytest

from tests.conditions import wait_until

VALUES = list(range(16))


def ask(wire, model, document, action="generate", headers=None):
    body = document if isinstance(document, bytes) else json.dumps(document).encode()
    return wire.send("POST", f"/v2/models/{model}/{action}", body, headers)


def events(answer):
    """The JSON documents of an event stream."""
    assert answer.headers["Content-Type"] == "text/event-stream; charset=utf-8"
    parts = answer.body.split(b"\n\n")
    assert parts.pop() == b""
    assert all(part.startswith(b"data: ") for part in parts)
    return [json.loads(part.removeprefix(b"data: ")) for part in parts]


GENERATED: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "vectors": ("simple", {"INPUT0": VALUES, "INPUT1": VALUES}, {"OUTPUT0": [2 * value for value in VALUES], "OUTPUT1": [0] * 16}),
    "a scalar": ("identity_int64", {"INPUT0": 5}, {"OUTPUT0": 5}),
    "a text": ("simple_identity", {"INPUT0": "hi"}, {"OUTPUT0": "hi"}),
    "texts and an id": ("identity_bytes", {"INPUT0": ["hi", "ho"], "id": "42"}, {"OUTPUT0": ["hi", "ho"], "id": "42"}),
    "an input among the parameters": ("identity_bytes", {"parameters": {"INPUT0": "hi", "a": 1, "b": "x", "c": 1.5, "d": True}}, {"OUTPUT0": "hi"}),
    "nothing in a list": ("identity_int64", {"INPUT0": []}, {"OUTPUT0": []}),
    "what means something elsewhere": (
        "identity_int64",
        {"INPUT0": 5, "priority": 1, "timeout": 5, "sequence_id": -4, "binary_data_output": True, "triton_x": 7},
        {"OUTPUT0": 5},
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", GENERATED)
def test_members_are_tensors_and_the_response_is_flat(wire, case):
    model, document, expected = GENERATED[case]
    expected = dict(expected, model_name=model, model_version="1")
    answer = ask(wire, model, document)
    assert (answer.status, answer.headers["Content-Type"], answer.json) == (200, "application/json", expected)
    assert events(ask(wire, model, document, "generate_stream")) == [expected]


REFUSED = {
    "a nested list": ("simple", {"INPUT0": [VALUES], "INPUT1": [VALUES]}, 400, "The schema can not convert input 'INPUT0' to tensor with proper shape"),
    "too few values": ("simple", {"INPUT0": [1], "INPUT1": [1]}, 400, "The schema can not convert input 'INPUT0' to tensor with proper shape"),
    "a parameter that is an object": ("identity_bytes", {"INPUT0": "hi", "x": {"a": 1}}, 400, "parameter 'x' has invalid type."),
    "a parameter that is null": ("identity_int64", {"INPUT0": 5, "x": None}, 400, "parameter 'x' has invalid type."),
    "a number for a text": ("identity_bytes", {"INPUT0": 5}, 500, "Unable to parse"),
    "a fraction for an integer": ("identity_int64", {"INPUT0": 1.5}, 500, "Unable to parse 'data': attempt to access JSON non-signed-integer"),
    "FP16": ("identity_fp16", {"INPUT0": 1.5}, 400, "receiving FP16 data via JSON is not supported. Please use the binary data format"),
    "an input missing": ("identity_int64", {}, 400, "[request id: <id_unknown>] expected 1 inputs but got 0 inputs for model 'identity_int64'."),
    "an id that is no text": ("identity_int64", {"INPUT0": 5, "id": 7}, 500, "Unable to parse 'id': attempt to access JSON non-string as string"),
    "parameters that are no object": ("identity_int64", {"INPUT0": 5, "parameters": 7}, 500, "attempt to get members for non-object"),
    "no object": ("identity_int64", [], 500, "failed to parse the request JSON buffer"),
    "broken JSON": ("identity_int64", b"{", 500, "failed to parse the request JSON buffer"),
    "no body": ("identity_int64", b"", 500, "failed to parse the request JSON buffer"),
    "an unknown model": ("nope", {}, 404, "Request for unknown model: 'nope' is not found"),
    "an unknown version": ("simple/versions/9", {}, 404, "Request for unknown model: 'simple' version 9 is not found"),
}  # fmt: skip


@pytest.mark.parametrize("action", ["generate", "generate_stream"])
@pytest.mark.parametrize("case", REFUSED)
def test_errors_before_inference_have_their_status(wire, case, action):
    model, document, status, text = REFUSED[case]
    answer = ask(wire, model, document, action)
    assert (answer.status, answer.json["error"].startswith(text)) == (status, True), answer.json


def test_compressed_bodies_are_rejected(wire):
    answer = ask(wire, "simple", b"", headers={"Content-Encoding": "gzip"})
    assert (answer.status, answer.json) == (400, {"error": "Unsupported content-encoding, only 'identity' is supported."})


def repeat(values, delay_ms=0):
    return {"IN": values, "DELAY": [delay_ms] * len(values), "WAIT": 0}


def test_a_decoupled_model_sends_one_event_per_response(wire):
    sent_events = events(ask(wire, "repeat_int32", repeat([7, 8, 9]), "generate_stream"))
    assert [(one["OUT"], one["IDX"]) for one in sent_events] == [(7, 0), (8, 1), (9, 2)]
    assert events(ask(wire, "repeat_int32", repeat([]), "generate_stream")) == []


def test_generate_accepts_a_decoupled_model_with_one_response(wire):
    assert ask(wire, "repeat_int32", repeat([7])).json["OUT"] == 7
    for values in ([], [7, 8]):
        answer = ask(wire, "repeat_int32", repeat(values))
        assert (answer.status, answer.json["error"].partition(",")[0]) == (500, "generate expects model to produce exactly 1 response")


def test_events_are_sent_at_once_and_disconnecting_cancels_the_rest(server, wire):
    def failures():
        return wire.get("/v2/models/repeat_int32/stats").json["model_stats"][0]["inference_stats"]["fail"]["count"]

    before = failures()
    body = json.dumps({"IN": [1, 2], "DELAY": [0, 2**31], "WAIT": 0}).encode()  # the second response takes weeks
    with socket.create_connection(("127.0.0.1", server.http_port), timeout=30) as connection:
        client = h11.Connection(h11.CLIENT)
        head = [("Host", "a"), ("Content-Length", str(len(body)))]
        connection.sendall(client.send(h11.Request(method="POST", target="/v2/models/repeat_int32/generate_stream", headers=head)))
        connection.sendall(client.send(h11.Data(body)) + client.send(h11.EndOfMessage()))
        came = b""
        while not came:
            event = client.next_event()
            if event is h11.NEED_DATA:
                client.receive_data(connection.recv(1 << 16))
            elif isinstance(event, h11.Data):
                came = event.data
    assert json.loads(came.removeprefix(b"data: "))["OUT"] == 1
    wait_until(lambda: failures() > before)
