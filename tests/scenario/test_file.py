"""Reading scenario files: examples, defaults, units, the form kept in results, and the JSON Schema."""

import dataclasses
import json
import pathlib

import jsonschema
import pytest
import yaml

from perfkit.result.json_file import parse_json
from perfkit.scenario.file import read_cases, scenario_document
from perfkit.scenario.model import Scenario
from perfkit.scenario.target import OnnxExecution
from perfkit.scenario.workload import FileInput, GeneratedInput, LiteralInput
from server_stub.executors.onnx_options import OnnxOptions, parse_onnx_options

HEAD = "target: {model: m}\nload: {closed: {concurrency: 1}}\n"
EXAMPLES = sorted((pathlib.Path(__file__).parents[2] / "scenarios").glob("*.yaml"))
SCHEMA = Scenario.model_json_schema(by_alias=True)
VALIDATOR = jsonschema.Draft202012Validator(SCHEMA)  # `jsonschema.validate` would check the schema itself each time
FULL = """
schema: perfkit.scenario/1
name: full.1_a-b
target: {url: 'grpc://[::1]:9001', model: m, version: 3, engine: reference, timeout: 1500ms, max_connections: 7, headers: {authorization: 'Bearer s3cret'}}
server: {device: cpu, threads: 2, cpus: '0,2-3', onnx: {precision: fp16, instances: 2}}
workload:
  seed: 9
  batch_size: 2
  inputs:
    A: {generate: arange, shape: [3, 0]}
    B: {file: b.npy}
    C: {value: [[1, 2.5], [true, x]], shape: [4]}
    D: {value: 5}
    E: {shape: [8]}
  outputs: [{name: o, classes: 5}, {name: p}]
  variants: 3
load: {closed: {concurrency: [2, 1], think_time: 250us}}
measure: {warmup: 0, requests: 50, drain: 2m, repetitions: 1, workers: 1, cpus: 4}
"""


def test_there_are_examples():
    assert {example.name for example in EXAMPLES} >= {"densenet.yaml", "simple.yaml", "triton.yaml"}


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_every_example_is_valid_and_fits_the_json_schema(path):
    document = yaml.safe_load(path.read_text())
    choices = document.get("sweep", {}).get("choices", {})
    for case in read_cases(path, (), {}):
        assert case.loaded.folder == path.parent
        keys = [len(choices[value]) if key == "choices" else 1 for key, value in case.values.items()]
        assert len(case.loaded.overrides) == sum(keys)
    VALIDATOR.validate(document)


def test_defaults_are_the_documented_ones(read):
    scenario = read(HEAD, name="two words.yaml").scenario
    assert scenario.name == "two-words"
    assert (scenario.target.url, scenario.target.protocols, scenario.target.load_protocols) == (None, None, ("http",))
    assert (scenario.target.version, scenario.target.engine, scenario.target.timeout_ns) == ("", "wire", 30 * 10**9)
    assert (scenario.target.max_connections, scenario.target.headers) == (None, {})
    assert (scenario.server.device, scenario.server.threads, scenario.server.cpus) == ("auto", None, None)
    assert (scenario.workload.seed, scenario.workload.batch_size, scenario.workload.variants) == (0, 1, 16)
    assert (scenario.workload.inputs, scenario.workload.outputs) == ({}, ())
    assert (scenario.load.closed.concurrency, scenario.load.closed.think_time_ns) == ((1,), 0)
    assert (scenario.measure.repetitions, scenario.measure.workers, scenario.measure.cpus) == (3, "auto", None)
    assert (scenario.measure.warmup_ns, scenario.warmup_ns, scenario.finds_warm_up) == ("auto", 10**9, True)
    assert (scenario.window_ns, scenario.drain_ns) == (10 * 10**9, 30 * 10**9)


def test_every_key_is_read(read):
    scenario = read(FULL).scenario
    assert scenario.name == "full.1_a-b"
    assert (scenario.target.url, scenario.target.load_protocols, scenario.target.version) == ("grpc://[::1]:9001", ("grpc",), "3")
    assert (scenario.target.engine, scenario.target.timeout_ns, scenario.target.max_connections) == ("reference", 1_500_000_000, 7)
    assert (scenario.server.device, scenario.server.threads, scenario.server.cpus) == ("cpu", 2, (0, 2, 3))
    assert scenario.workload.inputs == {
        "A": GeneratedInput(generate="arange", shape=(3, 0)),
        "B": FileInput(file=("b.npy",)),
        "C": LiteralInput(value=[[1, 2.5], [True, "x"]], shape=(4,)),
        "D": LiteralInput(value=5),
        "E": GeneratedInput(generate="random", shape=(8,)),
    }
    assert [(output.name, output.classes) for output in scenario.workload.outputs] == [("o", 5), ("p", 0)]
    assert (scenario.workload.seed, scenario.workload.batch_size, scenario.workload.variants) == (9, 2, 3)
    assert (scenario.load.closed.concurrency, scenario.load.closed.think_time_ns) == ((2, 1), 250_000)
    assert (scenario.measure.warmup_ns, scenario.measure.requests, scenario.window_ns) == (0, 50, None)
    assert (scenario.drain_ns, scenario.measure.repetitions, scenario.measure.workers, scenario.measure.cpus) == (120 * 10**9, 1, 1, (4,))


@pytest.mark.parametrize(
    "text",
    [
        "name:\nserver:\nworkload:\nmeasure:\n",
        "server: {threads: , cpus: }\nworkload: {seed: , inputs: , outputs: }\nmeasure: {warmup: , duration: , requests: , drain: , cpus: }\n",
        "slo:\ngpu:\n",
    ],
)
def test_a_key_without_a_value_means_the_default(read, text):
    assert read(HEAD + text).scenario == read(HEAD).scenario


@pytest.mark.parametrize(
    ("file", "name"), [("a b.yaml", "a-b"), ("_x.yaml", "x"), ("naïve.yaml", "naïve"), ("ü.yaml", "scenario"), ("v1.2.yaml", "v1.2")]
)
def test_a_scenario_without_a_name_is_called_as_its_file(read, file, name):
    assert read(HEAD, name=file).scenario.name == name


@pytest.mark.parametrize(("timeout", "drain_ns"), [("5s", 5 * 10**9), ("30s", 30 * 10**9), ("2m", 30 * 10**9)])
def test_the_default_drain_is_the_time_out_and_at_most_30_seconds(read, timeout, drain_ns):
    assert read(HEAD, (f"target.timeout={timeout}",)).scenario.drain_ns == drain_ns


def test_a_drain_of_0_is_kept(read):
    assert read(HEAD + "measure: {drain: 0s}\n").scenario.drain_ns == 0


@pytest.mark.parametrize(
    ("target", "protocols"),
    [
        ("url: http://h", ("http",)),
        ("url: grpc://h:1/x", ("grpc",)),
        ("urls: {grpc: 'grpc://h', http: 'http://h'}", ("grpc", "http")),
        ("urls: {http: 'https://h'}", ("http",)),
        ("protocols: [grpc, http]", ("grpc", "http")),
        ("version: '1'", ("http",)),
    ],
)
def test_the_protocols_are_those_of_the_url_or_of_the_bundled_server(read, target, protocols):
    assert read(f"target: {{model: m, {target}}}\nload: {{closed: {{concurrency: 1}}}}\n").scenario.target.load_protocols == protocols


@pytest.mark.parametrize(
    "text", [FULL, HEAD, *(path.read_text() for path in EXAMPLES)], ids=["full", "head", *(path.name for path in EXAMPLES)]
)
def test_the_document_of_a_scenario_reads_as_the_same_scenario(read, text):
    scenario = read(text, ("sweep=null", "rank=null")).scenario
    again = read(yaml.safe_dump(json.loads(json.dumps(scenario_document(scenario)))), name="again.yaml").scenario
    headers = dict.fromkeys(scenario.target.headers, "<redacted>")
    assert again == scenario.model_copy(update={"target": scenario.target.model_copy(update={"headers": headers})})


def test_a_stored_scenario_has_only_numbers_that_results_may_have(read, tmp_path):
    text = "{value: [.inf, -.inf, .nan, 1000000000000000000000000000000, 18446744073709551615]}"
    document = scenario_document(
        read(f"{HEAD}workload: {{parameters: {{x: .inf}}, inputs: {{I: {text}}}}}\ncheck: {{outputs: {{O: {text}}}}}\n").scenario
    )
    stored = [".inf", "-.inf", ".nan", 1e30, 2**64 - 1]
    assert document["workload"]["inputs"]["I"]["value"] == document["check"]["outputs"]["O"]["value"] == stored
    assert document["workload"]["parameters"] == {"x": ".inf"}
    assert parse_json(tmp_path, json.dumps(document).encode()) == document


def test_the_options_for_onnx_models_are_those_that_the_server_parses(read):
    text = "server: {onnx: {provider: cuda, precision: fp16, layout: nhwc, graphs: true, instances: 3, max_batch: 64}}\n"
    execution = read(HEAD + text).scenario.server.onnx
    assert parse_onnx_options(execution.arguments()) == OnnxOptions("cuda", "fp16", "nhwc", True, 3, 64)
    assert OnnxExecution.model_fields.keys() == {field.name for field in dataclasses.fields(OnnxOptions)}
    assert OnnxExecution().arguments() == ()


def test_header_values_never_appear_in_the_document(read):
    document = scenario_document(read(FULL).scenario)
    assert document["target"]["headers"] == {"authorization": "<redacted>"}
    assert "s3cret" not in json.dumps(document)


def test_the_json_schema_is_valid_and_accepts_every_key():
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    VALIDATOR.validate(yaml.safe_load(FULL))


@pytest.mark.parametrize(
    ("section", "key"),
    [
        ((), "mesure"),
        (("target",), "urls"),
        (("measure",), "slo"),
        (("workload", "inputs", "A"), "x"),
        (("load",), "open"),
        (("load", "closed"), "rate"),
    ],
)
def test_the_json_schema_refuses_unknown_keys(section, key):
    document = place = yaml.safe_load(FULL)
    for part in section:
        place = place[part]
    place[key] = 1
    with pytest.raises(jsonschema.ValidationError):
        VALIDATOR.validate(document)


def test_the_telemetry_sections_are_read(read):
    head = "target: {model: m, metrics_url: 'http://h:8002/metrics'}\nload: {closed: {concurrency: 1}}\n"
    scenario = read(head + "metrics: {url: http://h:9400/metrics, names: [queue_*], interval: 250ms}\ngpu: {sample_rate: 5/s}\n").scenario
    assert (scenario.metrics.url, scenario.metrics.names, scenario.metrics.interval_ns) == (
        ("http://h:9400/metrics",),
        ("queue_*",),
        250_000_000,
    )
    assert (scenario.gpu.sample_rate_per_s, scenario.target.metrics_url, scenario.telemetry) == (5.0, "http://h:8002/metrics", True)
    assert read(head + "metrics: {url: [http://a/m, https://b/m]}\ntelemetry: false\n").scenario.metrics.url == (
        "http://a/m",
        "https://b/m",
    )
