"""Answers that perfkit itself refuses because of their size: no failure of the server, but the end of the run, with the key to set."""

import asyncio
import json

import pytest

from perfkit.errors import ScenarioError
from perfkit.measurement.control import Interruption, RunObserver
from perfkit.measurement.lifecycle import measure_scenario
from perfkit.scenario.file import read_scenario
from tests.json_server import JsonHandler, serving

MIB = 1 << 20
KEY = "target.max_answer sets this limit, and the server's answers need more: raise it"


def server(values_of, *, is_json=False):
    """A server of the model `m`, whose k-th answer, from 0, has `values_of(k)` values of FP32."""
    answered: list[int] = []

    class Handler(JsonHandler):
        def do_GET(self):
            tensor = {"datatype": "FP32", "shape": [-1]}
            metadata = {"name": "m", "inputs": [{"name": "i", "datatype": "FP32", "shape": [1]}], "outputs": [{"name": "o", **tensor}]}
            self.answer(404 if self.path.endswith(("config", "stats")) else 200, metadata)

        def do_POST(self):
            self.body()
            values = values_of(len(answered))
            answered.append(values)
            output = {"name": "o", "datatype": "FP32", "shape": [values]}
            if is_json:
                self.answer_bytes(
                    200, json.dumps({"model_name": "m", "outputs": [output]})[:-3].encode() + b',"data":[' + b"1," * (values - 1) + b"1]}]}"
                )
                return
            head = json.dumps({"model_name": "m", "outputs": [{**output, "parameters": {"binary_data_size": 4 * values}}]}).encode()
            self.send_response(200)
            self.send_header("Inference-Header-Content-Length", str(len(head)))
            self.send_header("Content-Length", str(len(head) + 4 * values))
            self.end_headers()
            self.wfile.write(head + bytes(4 * values))

    return serving(Handler)


def measured(folder, port, target="", load="closed: {concurrency: 1}"):
    path = folder / "s.yaml"
    path.write_text(
        f"target: {{url: 'http://127.0.0.1:{port}', model: m{target}}}\n"
        f"load: {{{load}}}\nmeasure: {{warmup: 0s, requests: 3, repetitions: 1}}\ncheck: {{share: 1, at_most: 100000}}\n"
    )
    return asyncio.run(measure_scenario(read_scenario(path, environ={}), folder / "out", RunObserver(), Interruption())).result


@pytest.mark.parametrize("engine", ["wire", "reference"])
@pytest.mark.parametrize("load", ["closed: {concurrency: 1}", "closed: {concurrency: 2}", "open: {rate: 50, arrivals: constant}"])
def test_a_later_answer_above_the_limit_ends_the_run_and_is_no_failure(tmp_path, engine, load):
    with (
        server(lambda number: 1 if number < 2 else MIB) as port,
        pytest.raises(ScenarioError, match=f"^the answer announces [0-9,]+ B, more than 1,048,576 B: {KEY}$"),
    ):
        measured(tmp_path, port, f", max_answer: 1MiB, engine: {engine}", load)
    assert not list(tmp_path.rglob("result.json"))


def test_a_first_answer_above_the_limit_is_asked_for_once(tmp_path):
    asked = list[int]()

    def values_of(number):
        asked.append(number)
        return MIB

    with server(values_of) as port, pytest.raises(ScenarioError, match=f"the probe request failed: .*{KEY}$"):
        measured(tmp_path, port, ", max_answer: 1MiB")
    assert asked == [0]


@pytest.mark.parametrize("load", ["closed: {concurrency: 1}", "open: {rate: 50, arrivals: constant}"])
def test_an_answer_of_too_many_values_to_decode_is_no_wrong_one(tmp_path, load):
    with (
        server(lambda number: 1 if number < 2 else 2_000_001, is_json=True) as port,
        pytest.raises(ScenarioError, match=f"JSON values, more than 2,000,000: {KEY}"),
    ):
        measured(tmp_path, port, ", max_answer: 16MiB", load)


@pytest.mark.parametrize("values", [[9 * MIB] * 4, [1, *[5 * MIB] * 3]], ids=["33.8 MB and more", "growing from 4 B to 20 MiB"])
def test_answers_may_be_large_and_grow_without_a_key(tmp_path, values):
    with server(lambda number: values[number]) as port:
        result = measured(tmp_path, port)
    assert [point.requests.outcomes["ok"] for point in result.points] == [3]
