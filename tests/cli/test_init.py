"""`perfkit init`, and errors about a server that is another one than expected."""

import json
import pathlib
import re
import urllib.parse
import urllib.request

import pytest
import yaml

from perfkit.cli.init import initial_scenario
from perfkit.measurement.target_metadata import ModelDescription, listed, offered_instead
from perfkit.protocol.message import IndexedModel, ModelConfig, ModelMetadata, ServerMetadata, TensorMetadata
from perfkit.scenario.credentials import resolve_address
from perfkit.scenario.file import read_scenario, scenario_head, shipped_scenarios
from tests.json_server import JsonHandler, serving
from tests.measurement.partial_server import Lacking, partial_grpc_server, partial_http_server

URL = "http://h:8000"


@pytest.fixture
def scenario_of(tmp_path):
    """The text that is written for inputs, and the scenario that it is."""

    def make(*inputs, max_batch_size=0, required=(), model="m"):
        metadata = ModelMetadata(
            model, ("1", "2"), "p", tuple(TensorMetadata(*one) for one in inputs), (TensorMetadata("y", "FP32", (2,)),)
        )
        config = ModelConfig(max_batch_size, required_inputs=frozenset(required))
        text = initial_scenario(
            ModelDescription(ServerMetadata("s", "1"), metadata, config), {"url": URL, "model": model}, "perfkit init …", tmp_path
        )
        (tmp_path / "made.yaml").write_text(text)
        return text, read_scenario(tmp_path / "made.yaml", (), {}).scenario

    return make


def test_a_model_without_a_name_lists_the_models_of_the_server(perfkit, server):
    finished = perfkit.run("init", server.http)
    assert finished.code == 0
    assert [line.split() for line in finished.stdout.splitlines()[:3]] == [
        ["model", "version", "state"], ["simple", "1", "READY"], ["simple_identity", "1", "READY"]
    ]  # fmt: skip


def test_the_shipped_scenarios_are_listed_with_what_they_are_for(perfkit):
    lines = perfkit.run("init", "--list").stdout.splitlines()
    assert [line.split()[0] for line in lines[:-2]] == list(shipped_scenarios())
    assert "densenet              DenseNet-121 over HTTP and gRPC with one to eight requests in flight" in lines
    neither = perfkit.run("init")
    assert (neither.code, "--list lists the scenarios that perfkit ships" in neither.stderr) == (2, True)


@pytest.mark.parametrize("options", [["init"], ["init", "-m", "m"], ["run", "-m", "m"]])
def test_an_endpoint_of_another_api_is_refused_with_the_option_that_is_missing(perfkit, options):
    finished = perfkit.run(*options, URL, "--endpoint", "chat")
    assert (finished.code, finished.stdout) == (2, "")
    assert finished.stderr.endswith("--endpoint chat: this is one of OpenAI's API: add --api openai\n")


@pytest.mark.parametrize("options", [[], ["-m", "simple"]])
def test_each_url_is_contacted_and_those_that_do_not_answer_are_named(perfkit, server, options):
    finished = perfkit.run("init", server.http, "grpc://127.0.0.1:9", *options)
    assert (finished.code, finished.stdout) == (6, "")
    assert finished.stderr.startswith("perfkit: grpc://127.0.0.1:9 cannot be reached: ")
    assert server.http not in finished.stderr
    neither = perfkit.run("init", "http://127.0.0.1:9", "grpc://127.0.0.1:9", *options).stderr
    assert [line.partition(" cannot be reached")[0] for line in neither.splitlines()] == [
        "perfkit: http://127.0.0.1:9",
        "grpc://127.0.0.1:9",
    ]


def test_the_models_of_a_server_with_two_urls_are_listed_with_a_command_for_both(perfkit, server):
    assert perfkit.run("init", server.http, server.grpc).stdout.endswith(f": perfkit init {server.http} {server.grpc} -m simple\n")


def test_a_server_that_lists_its_models_over_http_alone_is_asked_there(perfkit):
    without_index = Lacking(frozenset({"index"}), "UNIMPLEMENTED")
    with partial_grpc_server(without_index) as grpc, partial_http_server(Lacking(frozenset(), "404")) as http:
        alone, both = perfkit.run("init", grpc), perfkit.run("init", grpc, http)
    said = "the server does not list its models: name one with -m, or add its HTTP URL: KServe's servers list their models over HTTP alone"
    assert (alone.code, alone.stderr) == (2, f"perfkit: {said}\n")
    assert both.stdout.splitlines()[1].split() == ["m", "1", "READY"]


def test_a_reason_that_is_a_sentence_does_not_end_the_message(perfkit):
    """KServe's reason for an unknown model ends with a full stop."""

    class Handler(JsonHandler):
        def do_GET(self):
            documents = {"/v2": {"name": "kserve", "version": "1", "extensions": []}, "/v2/models": {"models": ["m"]}}
            unknown = {"error": "Model with name x does not exist."}
            self.answer(200 if self.path in documents else 404, documents.get(self.path, unknown))

        def do_POST(self):
            self.body()
            self.answer(404, {"detail": "Not Found"})

    with serving(Handler) as port:
        for command in ("run", "init"):
            assert perfkit.run(command, f"http://127.0.0.1:{port}", "-m", "x").stderr.endswith(
                ": Model with name x does not exist; it offers m\n"
            )


def test_what_is_written_names_its_schema_from_its_folder_and_where_the_keys_are_described(scenario_of, tmp_path):
    text, _ = scenario_of(("x", "FP32", (4,)))
    first, second, *_ = text.splitlines()
    schema = first.removeprefix("# yaml-language-server: $schema=")
    assert not pathlib.Path(schema).is_absolute()
    assert json.loads((tmp_path / schema).read_text())["title"] == "Scenario"
    assert second.startswith("# `perfkit help scenarios` describes every key")


def test_editors_get_a_uri_where_a_path_would_end_at_a_space(monkeypatch, tmp_path):
    spaced = tmp_path / "two words" / "scenario.schema.json"
    monkeypatch.setattr("perfkit.scenario.file.SCHEMA_FILE", spaced)
    (first, *_) = scenario_head({}, tmp_path)
    schema = first.removeprefix("# yaml-language-server: $schema=")
    assert urllib.request.url2pathname(urllib.parse.urlsplit(schema).path) == str(spaced)


def test_a_password_is_taken_from_the_environment_and_not_written(perfkit, server, tmp_path):
    url, file = server.http.replace("://", "://ali:s%40cret@"), tmp_path / "made.yaml"
    assert perfkit.run("init", url, "-m", "simple", "--out", file).code == 0
    text = file.read_text()
    assert yaml.safe_load(text)["target"]["url"] == server.http.replace("://", "://${TARGET_USER}:${TARGET_PASSWORD}@")
    assert "#   TARGET_PASSWORD for target.url\n" in text
    missing = perfkit.run("run", file)
    assert (missing.code, missing.stderr) == (2, "perfkit: target.url: the environment variable TARGET_USER is not set\n")
    given = read_scenario(file, (), {}).scenario.target
    resolved = [
        resolve_address(given, str(given.url), tmp_path, {"TARGET_USER": "ali", "TARGET_PASSWORD": "s@cret"}),
        resolve_address(given, url, tmp_path, {}),
    ]
    assert resolved[0].headers == resolved[1].headers != {}


def test_what_is_written_for_both_protocols_of_a_server_is_a_valid_scenario(perfkit, server, tmp_path):
    file = tmp_path / "made.yaml"
    assert perfkit.run("init", server.grpc, server.http, "-m", "simple", "--out", file).code == 0
    assert perfkit.run("validate", file).stdout == f"{file}: valid; model simple of {server.grpc} and {server.http}\n"
    again = perfkit.run("init", server.http, "-m", "simple", "--out", file)
    assert (again.code, "the file exists already" in again.stderr) == (2, True)


@pytest.mark.parametrize(
    ("tensor", "max_batch_size", "shape"),
    [
        (("x", "FP32", (3, 224, 224)), 0, None),
        (("x", "FP32", (-1, 3, -1, -1)), 8, (3, 224, 224)),
        (("x", "FP32", (-1, 3, -1, -1)), 0, (1, 3, 224, 224)),
        (("x", "INT64", (-1, -1)), 0, (1, 128)),
        (("x", "BYTES", (-1, -1)), 4, (1,)),
        (("x", "FP32", (-1, 16)), 4, None),
    ],
)
def test_open_dimensions_get_a_size_that_is_called_a_guess(scenario_of, tensor, max_batch_size, shape):
    text, scenario = scenario_of(tensor, max_batch_size=max_batch_size)
    assert scenario.workload.inputs["x"].shape == shape
    assert ("only a guess" in text) == (shape is not None)
    assert scenario.workload.batch_size == 1


def test_the_lines_in_comments_are_valid_where_they_stand(scenario_of, tmp_path):
    text, _ = scenario_of(("x", "FP32", (4,)))
    for comment, expected in [
        ("  # version:", ("target", "version", "2")),
        ("  # timeout:", ("target", "timeout", "30s")),
        ("  # outputs:", ("workload", "outputs", [{"name": "y"}])),
        ("# slo:", ("slo", "p99", "50ms")),
    ]:
        assert f"\n{comment}" in text
        (tmp_path / "s.yaml").write_text(text.replace(f"\n{comment}", f"\n{comment.replace('# ', '')}"))
        assert read_scenario(tmp_path / "s.yaml", (), {}).scenario
        section, key, value = expected
        assert yaml.safe_load((tmp_path / "s.yaml").read_text())[section][key] == value


def test_a_server_that_does_not_describe_the_inputs_leaves_an_example_to_fill_in(scenario_of, tmp_path):
    text, scenario = scenario_of()
    assert scenario.workload.inputs == {}
    (tmp_path / "s.yaml").write_text(re.sub(r"(?m)^  inputs: .*\n  # inputs:", "  inputs:", text))
    filled = read_scenario(tmp_path / "s.yaml", (), {}).scenario.workload.inputs["INPUT"]
    assert (filled.datatype, filled.shape) == ("FP32", (1, 4))


@pytest.mark.parametrize("name", ["a: b", "#x", "yes", "1", "{", "a\nb: c", "\x1b[31mx", "é"])
def test_names_of_any_kind_stay_names(scenario_of, name):
    _, scenario = scenario_of((name, "FP32", (4,)), model=name)
    assert (scenario.target.model, list(scenario.workload.inputs)) == (name, [name])


def test_an_optional_input_is_called_so(scenario_of):
    text, _ = scenario_of(("a", "FP32", (4,)), ("b", "FP32", (4,)), required=["a"])
    assert [line.strip().partition(":")[0] for line in text.splitlines() if "optional" in line] == ["b"]


@pytest.mark.parametrize("engine", ["wire", "reference"])
@pytest.mark.parametrize("protocol", ["http", "grpc"])
def test_a_port_of_the_other_protocol_is_named_with_the_right_url(perfkit, server, engine, protocol):
    right = getattr(server, protocol)
    other = "grpc" if protocol == "http" else "http"
    wrong = right.replace(protocol, other)
    finished = perfkit.run("run", wrong, "-m", "simple", "--set", f"target.engine={engine}")
    name = {"http": "HTTP", "grpc": "gRPC"}[protocol]
    assert (finished.code, finished.stderr) == (6, f"perfkit: {wrong}: this looks like {name}: use {right}\n")


@pytest.mark.parametrize("command", ["run", "init"])
@pytest.mark.parametrize("protocol", ["http", "grpc"])
def test_an_unknown_model_lists_those_of_the_server_with_the_nearest_first(perfkit, server, command, protocol):
    finished = perfkit.run(command, getattr(server, protocol), "-m", "simple_idenity")
    assert finished.code == 6
    assert finished.stderr.endswith("is not found; it offers simple_identity, simple\n")


class Indexed:
    """A transport of a server with a repository index."""

    def __init__(self, *models):
        self.models = models

    async def model_index(self):
        return self.models


@pytest.mark.parametrize(
    ("models", "end"),
    [
        ([], ""),
        ([IndexedModel("m", "1", "UNAVAILABLE", "out of memory")], "; its repository has it as UNAVAILABLE: out of memory"),
        ([IndexedModel("a", "1", "READY"), IndexedModel("b", "1", "UNAVAILABLE"), IndexedModel("a", "2", "READY")], "; it offers a"),
        ([IndexedModel("x")], "; it offers x"),
    ],
)
def test_a_model_that_failed_to_load_says_so_and_only_ready_ones_are_offered(models, end):
    call = offered_instead(Indexed(*models), "m")  # type: ignore[arg-type]  # of a transport, it needs the index alone
    with pytest.raises(StopIteration) as ended:
        call.send(None)
    assert ended.value.value == end


@pytest.mark.parametrize(
    ("models", "end"),
    [
        ([IndexedModel("m", "2", "READY"), IndexedModel("m", "1", "READY")], "; it offers version 1, 2 of this model, not 9"),
        ([IndexedModel("m", "1", "READY"), IndexedModel("m", "9", "UNAVAILABLE", "x")], "; its repository has it as UNAVAILABLE: x"),
        ([IndexedModel("m", "1", "UNAVAILABLE"), IndexedModel("m", "2", "READY")], "; it offers version 2 of this model, not 9"),
        ([IndexedModel("m", "9", "READY")], "; its repository has it"),
        ([IndexedModel("m")], "; its repository has it"),
        ([IndexedModel("a", "1", "READY")], "; it offers a"),
    ],
)
def test_a_version_that_is_not_served_is_told_from_an_unknown_model(models, end):
    call = offered_instead(Indexed(*models), "m", "9")  # type: ignore[arg-type]  # of a transport, it needs the index alone
    with pytest.raises(StopIteration) as ended:
        call.send(None)
    assert ended.value.value == end


def test_a_long_list_is_cut():
    assert listed([f"m{number}" for number in range(23)]).endswith("m18, m19 and 3 more")
