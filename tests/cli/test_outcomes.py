"""The outcome of each request, from the fault of a server to the counts in the result."""

import itertools
import json
import signal

import pytest

from tests.json_server import JsonHandler, serving

WAIT_S = 60
TENSOR = {"datatype": "FP32", "shape": [1]}
METADATA = {"name": "m", "versions": ["1"], "platform": "x", "inputs": [{"name": "i", **TENSOR}], "outputs": [{"name": "o", **TENSOR}]}
ANSWER = json.dumps({"model_name": "m", "model_version": "1", "outputs": [{"name": "o", **TENSOR, "data": [1.0]}]}).encode()
# repeated in this order; each request has a connection of its own
FAULTS = ["ok", "bad request", "cut", "ok", "overloaded", "closed", "switched", "wrong", "long-winded"]
COUNTED = {"ok": 2, "rejected": 3, "broken": 3, "invalid_output": 1}
WRONG = json.dumps({"model_name": "m", "outputs": [{"name": "o", "datatype": "INT32", "shape": [1], "data": [1]}]}).encode()
# of the faults whose message is not that of an engine
MESSAGES = {
    "the server switched protocols (HTTP 101), which no request asks for",
    "the answer holds INT32 in output 'o', where the model's metadata says FP32",
    f"{'x' * 300}… (1,048,576 characters)",
}


@pytest.fixture
def faulty_url():
    """A server whose first inference succeeds; those that follow go as `FAULTS` says."""
    turns = itertools.chain(["ok"], itertools.cycle(FAULTS))

    class Handler(JsonHandler):
        protocol_version = "HTTP/1.0"

        def do_GET(self):
            self.answer(404 if self.path.endswith("config") else 200, METADATA)

        def do_POST(self):
            self.body()
            match next(turns):
                case "ok":
                    self.answer_bytes(200, ANSWER)
                case "bad request":
                    self.answer(400, {"error": "unknown input"})
                case "overloaded":
                    self.answer(503, {"error": "queue is full"})
                case "cut":
                    self.answer_bytes(200, ANSWER[:-5], len(ANSWER))
                case "closed":
                    pass
                case "switched":
                    self.wfile.write(b"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: h2c\r\n\r\n")
                case "wrong":
                    self.answer_bytes(200, WRONG)
                case "long-winded":
                    self.answer(500, {"error": "x" * 2**20})

    with serving(Handler) as port:
        yield f"http://127.0.0.1:{port}"


def adds_up(requests):
    outcomes = ("ok", "rejected", "timed_out", "connect_failed", "broken", "invalid_output", "unfinished")
    return requests["scheduled"] == requests["dropped"] + requests["sent"] and requests["sent"] == sum(requests[name] for name in outcomes)


@pytest.mark.parametrize("engine", ["wire", "reference"])
@pytest.mark.parametrize("load", [{"closed": {"concurrency": 2}}, {"open": {"rate": 500, "arrivals": "constant"}}], ids=["closed", "open"])
def test_requests_are_counted_by_their_true_outcomes(perfkit, write_scenario, faulty_url, engine, load):
    rounds = 5
    scenario = write_scenario(
        target={"url": faulty_url, "model": "m", "engine": engine, "timeout": "60s"},
        load=load,
        measure={"warmup": "0s", "requests": rounds * len(FAULTS), "repetitions": 1, "drain": "60s"},
        check={"share": "100%", "at_most": 1_000_000},
        telemetry=False,
    )
    (point,) = perfkit.run("run", scenario).result["points"]
    requests = point["requests"]
    assert adds_up(requests)
    assert {name: requests[name] for name in COUNTED} == {name: rounds * count for name, count in COUNTED.items()}
    assert point["wrong_answer_rate"] == COUNTED["invalid_output"] / (COUNTED["ok"] + COUNTED["invalid_output"])
    assert requests["scheduled"] == rounds * len(FAULTS)
    assert {failure["message"] for failure in point["failures"]} > MESSAGES


def test_an_interrupt_works_at_a_rate_that_the_generator_cannot_reach(perfkit, write_scenario, hanging_server):
    running = perfkit.start(
        "run",
        write_scenario(
            target={"url": hanging_server.url, "model": "m", "max_connections": 4, "timeout": "60s"},
            load={"open": {"rate": 1_000_000}},
            measure={"warmup": "0s", "duration": "60s", "repetitions": 1},
        ),
        is_patient=True,
    )
    assert hanging_server.hangs.wait(WAIT_S)
    running.signal(signal.SIGINT)
    running.wait_for_line("stopping")
    running.signal(signal.SIGINT)
    finished = running.finish()
    assert finished.code == 130
    (point,) = finished.result["points"]
    assert adds_up(point["requests"])
    assert point["requests"]["unfinished"] == point["requests"]["sent"] > 0
