"""`perfkit run` with `traces`: the time of each traced request in parts, as the bundled server declares them."""

import contextlib
import csv
import http.server
import json

import pytest
from google.protobuf.json_format import MessageToDict
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from perfkit.cli.main import main
from perfkit.spans.split import PARTS
from perfkit.target.started_server import free_ports
from tests.bundled_server import bundled_server
from tests.json_server import serving, v2_handler
from tests.otlp_receiver import receiving

MS = 1_000_000
INPUTS = {"INPUT0": {"generate": "zeros", "shape": [4]}}


def traced(folder):
    """The rows of `traces.csv`; times in nanoseconds are integers."""
    with (folder / "traces.csv").open(newline="") as stream:
        return [{key: int(value) if key.endswith("_ns") else value for key, value in row.items()} for row in csv.DictReader(stream)]


@contextlib.contextmanager
def collector(file):
    """The URL of a collector that writes OTLP in JSON lines, as that of OpenTelemetry does: protobuf in JSON, but ids in hexadecimal digits."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self):
            request = ExportTraceServiceRequest.FromString(self.rfile.read(int(self.headers["Content-Length"])))
            document = MessageToDict(request)
            messages = [span for resource in request.resource_spans for scope in resource.scope_spans for span in scope.spans]
            for message, span in zip(messages, spans_of(document), strict=True):
                span |= {"traceId": message.trace_id.hex(), "spanId": message.span_id.hex(), "parentSpanId": message.parent_span_id.hex()}
            with file.open("a") as stream:
                stream.write(json.dumps(document) + "\n")
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_):
            pass

    file.touch()
    with serving(Handler) as port:
        yield f"http://127.0.0.1:{port}/v1/traces"


def spans_of(document):
    """The spans of a line of the collector."""
    return [span for resource in document["resourceSpans"] for scope in resource["scopeSpans"] for span in scope["spans"]]


@contextlib.contextmanager
def traced_server(trace_url):
    """The URL of the bundled server, which traces to that URL."""
    model = ("--model", "synthetic", "--synthetic", "service=constant:5ms,servers=8,lead=0s", "--trace-url", trace_url)
    with bundled_server(*model) as urls:
        yield urls.http


@pytest.mark.parametrize("engine", ["wire", "reference"])
def test_the_parts_of_each_traced_request_add_up_and_hold_the_declared_times(perfkit, write_scenario, engine):
    """One server with constant service times: a request that comes while k others are in service or wait has k times that in its queue."""
    scenario = write_scenario(
        target={"model": "synthetic", "protocols": ["http", "grpc"], "engine": engine}, workload={"inputs": INPUTS},
        server={"synthetic": "service=constant:20ms,lead=0s"}, load={"open": {"rate": 40, "arrivals": "poisson"}},
        measure={"warmup": "0s", "requests": 40, "repetitions": 1}, traces={"share": "100%"},
    )  # fmt: skip
    finished = perfkit.measure(scenario)
    rows = traced(finished.folder)
    for protocol in ("http", "grpc"):
        (point,) = [one for one in finished.result["points"] if one["protocol"] == protocol]
        own = [row for row in rows if row["protocol"] == protocol]
        assert len(own) == point["requests"]["ok"] == point["breakdown"]["sampled"]
        assert len({row["trace_id"] for row in own}) == len(own)
        for row in own:
            assert sum(row[f"{part}_ns"] for part in PARTS) == row["total_ns"]
            # declared; the spans hold microseconds
            assert abs(row["compute_infer_ns"] - 20 * MS) <= 2_000
            assert (row["compute_input_ns"], row["compute_output_ns"]) == (0, 0)
            assert row["queue_ns"] >= 0
            assert row["request_way_ns"] > 0
        assert any(row["queue_ns"] > 0 for row in own)


def test_in_a_closed_loop_the_parts_are_those_of_the_service_time(perfkit, write_scenario):
    scenario = write_scenario(
        target={"model": "synthetic"}, workload={"inputs": INPUTS}, server={"synthetic": "service=constant:5ms,servers=8"},
        load={"closed": {"concurrency": 3}}, measure={"warmup": "0s", "requests": 90, "repetitions": 2, "workers": 2}, traces={"share": "100%"},
    )  # fmt: skip
    finished = perfkit.measure(scenario)
    rows = traced(finished.folder)
    (pooled,) = finished.result["summary"]
    assert len(rows) == pooled["requests"]["ok"] == pooled["breakdown"]["sampled"]
    assert {row["repetition"] for row in rows} == {"0", "1"}
    for row in rows:
        assert (row["start_delay_ns"], row["connection_wait_ns"]) == (0, 0)
        assert sum(row[f"{part}_ns"] for part in PARTS) == row["total_ns"]


def test_a_mix_is_split_as_a_whole_and_by_workload(perfkit, write_scenario):
    scenario = write_scenario(
        target={"model": "synthetic"}, server={"synthetic": "service=constant:5ms,servers=8"},
        workloads=[{"name": name, "weight": weight, "inputs": INPUTS} for name, weight in (("a", 2), ("b", 1))],
        load={"closed": {"concurrency": 3}}, measure={"warmup": "0s", "requests": 90, "repetitions": 1}, traces={"share": "100%"},
    )  # fmt: skip
    finished = perfkit.measure(scenario)
    sampled = {point.get("workload"): point["breakdown"]["sampled"] for point in finished.result["points"]}
    assert sampled[None] == 90
    assert sampled["a"] + sampled["b"] == 90
    assert {row["workload"] for row in traced(finished.folder)} == {"", "a", "b"}


def test_a_server_that_sends_no_spans_leaves_the_run_valid_with_the_count_of_those_missing(perfkit, write_scenario, monkeypatch):
    monkeypatch.setattr("perfkit.measurement.request_traces.SPANS_WITHIN_S", 0.2)
    with serving(v2_handler(lambda _: None)) as port:
        scenario = write_scenario(
            target={"url": f"http://127.0.0.1:{port}", "model": "m"}, load={"closed": {"concurrency": 2}}, measure={"warmup": "0s", "requests": 40, "repetitions": 1},
            traces={"listen": f"127.0.0.1:{free_ports(1)[0]}", "share": "100%"},
        )  # fmt: skip
        finished = perfkit.measure(scenario)
    (point,) = finished.result["points"]
    assert (point["breakdown"]["sampled"], point["breakdown"]["without_spans"]) == (0, 40)
    assert traced(finished.folder) == []


def test_a_port_in_use_is_named(perfkit, write_scenario):
    with serving(v2_handler(lambda _: None)) as port:
        scenario = write_scenario(
            target={"url": f"http://127.0.0.1:{port}", "model": "m"}, load={"closed": {"concurrency": 2}}, measure={"warmup": "0s", "requests": 40, "repetitions": 1},
            traces={"listen": f"127.0.0.1:{port}"},
        )  # fmt: skip
        finished = perfkit.run("run", scenario)
    assert finished.code == 2
    assert "traces.listen" in finished.stderr
    assert "cannot listen" in finished.stderr


def test_spans_are_read_from_files_of_a_collector(perfkit, write_scenario, tmp_path):
    """The collector is an HTTP server that writes what the bundled server sends it as a line of JSON."""
    lines = tmp_path / "spans.jsonl"
    with collector(lines) as url, traced_server(url) as address:
        scenario = write_scenario(
            target={"model": "synthetic", "url": address}, workload={"inputs": INPUTS}, load={"closed": {"concurrency": 2}},
            measure={"warmup": "0s", "requests": 40, "repetitions": 1}, telemetry=False, traces={"files": "spans*.jsonl", "share": "100%"},
        )  # fmt: skip
        finished = perfkit.measure(scenario)
    (point,) = finished.result["points"]
    assert point["breakdown"]["sampled"] == point["requests"]["ok"]
    assert all(abs(row["compute_infer_ns"] - 5 * MS) <= 2_000 for row in traced(finished.folder))
    with receiving() as receiver:
        assert main(["report", str(finished.folder), "--otlp", receiver.url]) == 0
    sent = {span.span_id.hex(): span for span in receiver.spans()}
    of_server = [span for line in lines.read_text().splitlines() for span in spans_of(json.loads(line))]
    front_ends = [span for span in of_server if span["parentSpanId"] in sent]
    assert len(front_ends) == len(traced(finished.folder)) > 0, "the server's spans are children of those of the requests"
    gaps_ns = []
    for span in front_ends:
        parent = sent[span["parentSpanId"]]
        assert parent.trace_id.hex() == span["traceId"]
        gaps_ns.append(int(span["startTimeUnixNano"]) - parent.start_time_unix_nano)
    # none came before it was sent; the log's times are whole milliseconds
    assert -2 * MS < min(gaps_ns) < 5 * MS
