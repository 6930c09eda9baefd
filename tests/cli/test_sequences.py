"""Sequences on the bundled server, whose sequence models refuse whatever breaks their rules."""

import contextlib
import http.client
import json
import signal
import subprocess
import sys
import types
from typing import Any

import numpy as np
import pytest

from tests import forked
from tests.conditions import wait_until
from tests.json_server import serving, v2_handler

FIRST_ID = 5000
# it executes thousands of sequences at a time; the other one eight, for which others wait
ROOMY_MODEL = "simple_dyna_sequence"


@pytest.fixture(scope="module")
def sequence_server():
    """The bundled server with models that take sequences; `knows` asks whether it holds a sequence, and ends it."""
    models = ("--model=simple_sequence", f"--model={ROOMY_MODEL}")
    command = [sys.executable, "-m", "server_stub", "--http-port=0", "--grpc-port=0", "--exit-with-stdin", *models]
    with forked.start(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        ready = json.loads(process.stdout.readline())
        urls = {protocol: f"{protocol}://127.0.0.1:{ready[f'{protocol}_port']}" for protocol in ("http", "grpc")}

        def ask(method, path, document=None):
            with contextlib.closing(http.client.HTTPConnection("127.0.0.1", ready["http_port"], timeout=30)) as connection:
                connection.request(method, f"/v2/models/{ROOMY_MODEL}/{path}", json.dumps(document) if document else None)
                answer = connection.getresponse()
                return answer.status, json.loads(answer.read())

        def knows(key):
            document = {
                "inputs": [{"name": "INPUT", "datatype": "INT32", "shape": [1, 1], "data": [0]}],
                "parameters": {"sequence_id": key, "sequence_start": False, "sequence_end": True},
            }
            status, answer = ask("POST", "infer", document)
            assert status == 200 or "must specify the START flag" in answer["error"]
            return status == 200

        def answered():
            return ask("GET", "stats")[1]["model_stats"][0]["inference_stats"]["success"]["count"]

        yield types.SimpleNamespace(urls=urls, knows=knows, answered=answered)
        process.stdin.close()


LOADS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "closed": ({"closed": {"concurrency": 3}}, {}),
    "steps": ({"open": {"rate": 200}}, {"live": 3}),
    "arrivals": ({"open": {"rate": 40}}, {"think_time": "1ms"}),
}


def sections(sequence_server, protocols, load, **sequences) -> dict[str, Any]:
    sent, options = LOADS[load]
    return {
        "target": {"urls": {protocol: sequence_server.urls[protocol] for protocol in protocols}, "model": "simple_sequence"},
        "load": sent,
        "sequences": {"length": 4, **options, **sequences},
        "measure": {"warmup": "0s", "requests": 80, "repetitions": 1},
        "telemetry": False,
    }


# each kind of ids over HTTP, in gRPC calls and in streams
@pytest.mark.parametrize(("load", "ids"), [("closed", "integer"), ("steps", "string"), ("arrivals", "integer")])
@pytest.mark.parametrize(("way", "protocols"), [("calls", ["http", "grpc"]), ("stream", ["grpc"])])
def test_a_server_that_refuses_steps_out_of_order_answers_all_of_them(
    perfkit, write_scenario, tmp_path, sequence_server, way, protocols, load, ids
):
    # the model adds 1 to the first step of a sequence: of four steps that carry 0, 1, 2 and 3, the answers are 1, 1, 2 and 3
    for number, (given, expected) in enumerate([(0, 1), (1, 1), (2, 2), (3, 3)]):
        np.save(tmp_path / f"in-{number}.npy", np.array([given], np.int32))
        np.save(tmp_path / f"out-{number}.npy", np.array([expected], np.int32))
    files = {name: {"file": [f"{name}-{number}.npy" for number in range(4)]} for name in ("in", "out")}
    document = {
        **sections(sequence_server, protocols, load, ids=ids),
        "workload": {"inputs": {"INPUT": files["in"]}},
        "check": {"share": "100%", "at_most": "100000/s", "outputs": {"OUTPUT": files["out"]}},
        # long enough for whole sequences also after a stall of the machine
        "measure": {"warmup": "0s", "requests": 100 if load == "arrivals" else 80, "repetitions": 1},
        **({"stream": {"requests_per_stream": 50}} if way == "stream" else {}),
    }
    finished = perfkit.measure(write_scenario(**document))
    assert [point["protocol"] for point in finished.result["points"]] == protocols
    for point in finished.result["points"]:
        assert point["requests"]["ok"] == point["requests"]["scheduled"] > 20
        assert point["checked"] > 10
        counts = point["sequences"]
        assert counts["failed"] == 0
        assert point["sequence_time_ns"]["count"] == counts["ended"] > 3
        # a sequence takes as long as its steps, at least
        assert point["sequence_time_ns"]["min"] >= point["service_time_ns"]["min"] * 4
    assert "Sequences" in "".join(finished.stdout) or "sequences" in finished.stdout


@pytest.mark.parametrize("load", LOADS)
def test_sequences_carry_the_streams_of_the_data_and_their_answers_are_compared(perfkit, write_scenario, tmp_path, sequence_server, load):
    # the model adds 1 to the first step of a sequence; the expected answer to the last step of the second stream is wrong
    data = {
        "data": [[{"INPUT": [value]} for value in values] for values in ((1, 2), (11, 12, 13))],
        "validation_data": [[{"OUTPUT": [value]} for value in values] for values in ((2, 2), (12, 12, 14))],
    }
    (tmp_path / "data.json").write_text(json.dumps(data))
    document = {
        **sections(sequence_server, ["http"], load, length=None),
        "workload": {"data": "data.json"},
        "check": {"share": "100%", "at_most": "1000000/s"},
    }
    finished = perfkit.measure(write_scenario(**document))
    (point,) = finished.result["points"]
    requests, sequences = point["requests"], point["sequences"]
    assert requests["ok"] + requests["invalid_output"] == requests["scheduled"]
    assert point["failures"][0]["message"] == (
        "the answer holds 1 wrong values in output 'OUTPUT': the one at [0, 0] is 13, where 14 is expected"
    )
    assert requests["invalid_output"] == sequences["failed"] > 3
    assert sequences["ended"] > 3


def test_workers_and_load_points_have_ids_of_their_own(perfkit, write_scenario, sequence_server):
    document = sections(sequence_server, ["grpc"], "closed")
    document |= {"measure": {**document["measure"], "workers": 3, "repetitions": 2}, "telemetry": True}
    for point in perfkit.measure(write_scenario(**document)).result["points"]:
        assert point["requests"]["ok"] == point["requests"]["scheduled"]
        assert point["sequences"]["ended"] > 3
        assert point["server"]["requests"] == point["server"]["client_requests"]  # ends are counted there, too


def test_a_server_without_the_extension_is_named(perfkit, write_scenario):
    with serving(v2_handler(lambda _: None)) as port:
        document = {
            "target": {"url": f"http://127.0.0.1:{port}", "model": "m"},
            "sequences": {"length": 3},
            "load": {"closed": {"concurrency": 1, "think_time": "1ms"}},
            "telemetry": False,
        }
        finished = perfkit.run("run", write_scenario(**document))
    assert "does not announce the sequence extension" in finished.stderr


@pytest.mark.parametrize(("load", "protocol"), [("closed", "http"), ("steps", "grpc"), ("arrivals", "http")])
def test_an_interrupted_run_leaves_no_sequence_on_the_server(perfkit, write_scenario, sequence_server, protocol, load):
    first_id = FIRST_ID + 1000 * list(LOADS).index(load) + 500 * (protocol == "grpc")
    document = sections(sequence_server, [protocol], load, length=2000, first_id=first_id)
    document["target"] |= {"model": ROOMY_MODEL, "max_connections": 64}
    document["measure"] = {"warmup": "0s", "duration": "60s", "repetitions": 1}
    running = perfkit.start("run", write_scenario(**document))
    before = sequence_server.answered()
    wait_until(lambda: running.process.poll() is not None or sequence_server.answered() >= before + 30)
    running.signal(signal.SIGINT)
    finished = running.finish()
    assert finished.code == 130
    started = finished.result["points"][0]["sequences"]["started"]
    assert started >= 1
    assert not [key for key in range(first_id, first_id + started) if sequence_server.knows(key)]
