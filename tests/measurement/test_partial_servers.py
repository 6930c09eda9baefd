"""Servers that lack optional endpoints of v2: each ends in requests that are answered and one clear line, or in an error with the key to set."""

import asyncio
import pathlib

import pytest

from perfkit.clock import MonotonicClock
from perfkit.errors import ModelMismatchError, TargetError
from perfkit.measurement.connections import connect
from perfkit.measurement.control import Interruption, RunObserver
from perfkit.measurement.lifecycle import measure_scenario
from perfkit.measurement.target_metadata import describe_model, read_model_index
from perfkit.measurement.target_probe import probe
from perfkit.scenario.credentials import resolve_address
from perfkit.scenario.file import read_scenario
from tests.json_server import JsonHandler, serving
from tests.measurement.partial_server import (
    GRPC_ANSWERS,
    GRPC_CALLS,
    HTTP_ANSWERS,
    HTTP_ENDPOINTS,
    Lacking,
    partial_grpc_server,
    partial_http_server,
)

SERVERS = {"http": partial_http_server, "grpc": partial_grpc_server}
ENDPOINTS = {"http": frozenset(HTTP_ENDPOINTS), "grpc": frozenset(GRPC_CALLS)}
KINDS = [*(("http", answer) for answer in HTTP_ANSWERS), *(("grpc", answer) for answer in GRPC_ANSWERS)]
DECLARED = "workload: {inputs: {i: {generate: ones, datatype: FP32, shape: [1]}}}\n"
HINT = "give the datatype and shape of each input in workload.inputs"


@pytest.fixture(params=KINDS, ids=" ".join)
def kind(request):
    """A protocol, and an answer of what is missing."""
    return request.param


def scenario(folder: pathlib.Path, url, *, is_declared=False, load="closed: {concurrency: 1}"):
    path = folder / "s.yaml"
    path.write_text(
        f"target: {{url: {url}, model: m}}\n{DECLARED if is_declared else ''}load: {{{load}}}\nmeasure: {{warmup: 0s, requests: 20, repetitions: 1}}\n"
    )
    return read_scenario(path, environ={})


def lines_of(folder, url, *, is_declared=False):
    """The warnings of a probe, by code, and its note; the request was answered."""
    loaded = scenario(folder, url, is_declared=is_declared)
    address = resolve_address(loaded.scenario.target, url, folder)

    async def main():
        async with connect(loaded.scenario, address, MonotonicClock()) as transport:
            return await probe(transport, address, loaded, MonotonicClock())

    probed = asyncio.run(main())
    lines = {warning.code: warning.message for warning in probed.warnings}
    return lines | {"note": probed.note} if probed.note else lines


def test_a_server_without_its_own_description(tmp_path, kind):
    protocol, answer = kind
    with SERVERS[protocol](Lacking(frozenset({"server metadata"}), answer)) as url:
        lines = lines_of(tmp_path, url)
    if kind == ("grpc", "empty"):  # a message without fields: a server without a name
        assert lines == {}
        return
    asked = "GET /v2: HTTP" if protocol == "http" else "ServerMetadata: UNIMPLEMENTED"
    assert list(lines) == ["note"]
    assert lines["note"].startswith(f"The server does not say: its name and extensions ({asked}")


def test_a_server_without_readiness(tmp_path, kind):
    protocol, answer = kind
    with SERVERS[protocol](Lacking(frozenset({"server readiness", "model readiness"}), answer)) as url:
        if kind == ("grpc", "empty"):  # whose `ready` is false
            with pytest.raises(TargetError, match=r"model 'm' is not ready; the server is not, either \(ServerReady: false\)"):
                lines_of(tmp_path, url)
            return
        lines = lines_of(tmp_path, url)
    if answer.startswith("200"):
        assert lines == {}  # v2 asks for the status alone
        return
    asked = "GET /v2/models/m/ready: HTTP" if protocol == "http" else "ModelReady: UNIMPLEMENTED"
    assert list(lines) == ["note"]
    assert f"whether the model is ready ({asked}" in lines["note"]


def test_one_of_two_readiness_endpoints_is_enough(tmp_path):
    with partial_http_server(Lacking(frozenset({"server readiness"}), "404")) as url:
        assert lines_of(tmp_path, url) == {}
    with partial_grpc_server(Lacking(frozenset({"server readiness"}), "UNIMPLEMENTED")) as url:
        assert lines_of(tmp_path, url) == {}


def test_a_server_without_configuration(tmp_path, kind):
    protocol, answer = kind
    with SERVERS[protocol](Lacking(frozenset({"configuration"}), answer)) as url:
        lines = lines_of(tmp_path, url)
    if kind == ("grpc", "empty"):
        assert lines == {}
        return
    assert list(lines) == ["note"]
    assert "The server does not say: the model's configuration (" in lines["note"]


def test_a_server_without_metadata_of_its_model_needs_declared_inputs(tmp_path, kind):
    protocol, answer = kind
    with SERVERS[protocol](Lacking(frozenset({"model metadata"}), answer)) as url:
        with pytest.raises((TargetError, ModelMismatchError)) as caught:
            lines_of(tmp_path, url)
        assert "datatype and shape" in str(caught.value)
        assert "it offers" not in str(caught.value)
        lines = lines_of(tmp_path, url, is_declared=True)
    assert list(lines) == ["no_metadata"]
    assert "the requests are made from the scenario alone" in lines["no_metadata"]


def test_a_server_without_binary_tensors_gets_json(tmp_path):
    with partial_http_server(Lacking(frozenset({"binary tensors"}), "404")) as url:
        assert list(lines_of(tmp_path, url)) == ["json_tensors"]


def test_a_server_with_nothing_but_inference_is_asked_to_be_described(tmp_path, kind):
    protocol, answer = kind
    with SERVERS[protocol](Lacking(ENDPOINTS[protocol], answer)) as url, pytest.raises(TargetError) as caught:
        lines_of(tmp_path, url)
    assert HINT in str(caught.value) or kind == ("grpc", "empty")  # which says that it is not ready


class Notes(RunObserver):
    """Keeps the notes."""

    def __init__(self):
        self.notes: list[str] = []

    def note_added(self, note):
        self.notes.append(note)


@pytest.mark.parametrize("kind", [("http", "404 page"), ("http", "200 empty"), ("grpc", "UNIMPLEMENTED")], indirect=True, ids=" ".join)
def test_a_run_over_nothing_but_inference_says_each_thing_once(tmp_path, kind):
    protocol, answer = kind
    observer = Notes()
    with SERVERS[protocol](Lacking(ENDPOINTS[protocol], answer)) as url:
        loaded = scenario(tmp_path, url, is_declared=True, load="closed: {concurrency: [1, 2, 3]}")
        result = asyncio.run(measure_scenario(loaded, tmp_path / "out", observer, Interruption())).result
    assert [point.requests.ok for point in result.points] == [point.requests.sent for point in result.points]
    assert [point.requests.sent for point in result.points] == [20, 20, 20]
    assert [note for note in observer.notes if "statistics" in note] == [
        "The server has no v2 statistics: its queue and compute times are not known. If it has a page of metrics, target.metrics_url takes them from there."
    ]
    assert len([note for note in observer.notes if note.startswith("The server does not say: ")]) == 1
    said = [{warning for warning in point.warnings if warning.code in _OF_MISSING} for point in result.summary]
    assert said[0] == said[1] == said[2]  # so that the report has one line for all load points
    codes = [warning.code for warning in said[0]]
    assert sorted(codes) == sorted({"no_metadata"} | ({"json_tensors"} if protocol == "http" else set()))


_OF_MISSING = {"no_metadata", "json_tensors", "server_statistics", "probe_retried", "server_counts_differ"}


def test_a_scenario_is_written_for_a_server_that_does_not_describe_itself(kind):
    protocol, answer = kind
    with SERVERS[protocol](Lacking(frozenset({"server metadata", "configuration", "index"}), answer)) as url:
        described = asyncio.run(describe_model(url, "m", MonotonicClock()))
        assert [one.name for one in described.metadata.inputs] == ["i"]
        assert asyncio.run(read_model_index(url, MonotonicClock())) == ()


class Page(JsonHandler):
    """A server's page: with each reading ten more requests have taken 4 ms."""

    requests = 0

    def do_GET(self):
        Page.requests += 10
        count = Page.requests
        lines = (
            f'_bucket{{le="0.005",model_name="m"}} {count}',
            f'_bucket{{le="+Inf",model_name="m"}} {count}',
            f'_sum{{model_name="m"}} {count * 0.004}',
        )
        text = "".join(f"request_predict_seconds{line}\n" for line in (*lines, f'_count{{model_name="m"}} {count}'))
        self.answer_bytes(200, text.encode())


def test_without_statistics_the_servers_part_is_that_of_its_page_of_metrics(tmp_path):
    observer = Notes()
    with partial_http_server(Lacking(frozenset({"statistics"}), "404")) as url, serving(Page) as port:
        path = tmp_path / "s.yaml"
        page = f"metrics_url: 'http://127.0.0.1:{port}/metrics'"
        measure = "measure: {warmup: 0s, duration: 800ms, repetitions: 2}\nmetrics: {interval: 100ms}"
        path.write_text(f"target: {{url: {url}, model: m, {page}}}\nload: {{closed: {{concurrency: 1}}}}\n{measure}\n")
        result = asyncio.run(measure_scenario(read_scenario(path, environ={}), tmp_path / "out", observer, Interruption())).result
    (pooled,), points = result.summary, result.points
    servers = [point.server for point in (*points, pooled)]
    assert [(server.source, server.queue_ns, server.failed) for server in servers] == [("metrics", None, None)] * 3
    assert [server.compute_infer_ns for server in servers] == [pytest.approx(4e6)] * 3
    assert [server.times[0].percentiles_ns["p50"] for server in servers] == [(0.0, 5e6)] * 3
    first, second, both = (server.requests for server in servers)
    assert first + second == both
    assert [server.client_requests for server in servers] == [point.requests.ok for point in (*points, pooled)]
    assert [note for note in observer.notes if "statistics" in note] == [
        "The server has no v2 statistics: its queue and compute times are those of its page of metrics, as far as it has them."
    ]


def test_over_grpc_a_ready_model_is_measured_while_the_server_is_not_ready(tmp_path):
    with partial_grpc_server(Lacking(frozenset({"server readiness"}), "empty")) as url:
        assert lines_of(tmp_path, url) == {
            "note": "The server is not ready (ServerReady: false), as while another model loads or is broken, but model 'm' is, and is measured."
        }
