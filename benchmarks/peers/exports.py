"""What an MLflow tracking server, Weights & Biases, an OpenTelemetry receiver and Bencher's JSON hold of a result, beside the result's own file.

    python -m benchmarks.peers.exports --mlflow PATH/bin/mlflow --wandb PATH/bin/wandb --wandb-reader PATH/bin/python [--out reports/exports.md]

MLflow and the client of Weights & Biases are installed by the caller, each in an environment of its own with perfkit: `pip install mlflow PATH_OF_PERFKIT`.
A run with several load points and repetitions is measured on the bundled server and exported. What MLflow's server holds is asked over its REST API. The
client of Weights & Biases writes the file of an offline run, which its own reader reads in an environment with `pip install 'wandb<0.24'`: later ones come
without it. Spans are decoded by OpenTelemetry's own messages. All is compared with `result.json`, which is read as plain JSON. It takes about a minute.
"""

import contextlib
import csv
import functools
import http.server
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import threading
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

import jsonschema
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from benchmarks.peers.llm_programs import version
from benchmarks.peers.server_process import answers, free_ports, ready_server
from benchmarks.processes import ROOT, running_server, write_scenario
from benchmarks.report import Report, describe_machine, program_options
from perfkit.cli.exit_code import ExitCode

_STARTS_WITHIN_S = 120
_COMMIT = "c0ffee" * 6 + "c0ff"
_MODEL = "service=lognormal:5ms:cv=0.3,servers=4"
# published at bencher.dev/docs/reference/bencher-metric-format
_BENCHER_SCHEMA = {
    "$schema": "http://json-schema.org/draft-07/schema",
    "type": "object",
    "patternProperties": {
        ".+": {
            "type": "object",
            "patternProperties": {
                ".+": {
                    "type": "object",
                    "properties": {name: {"type": "number"} for name in ("value", "lower_value", "upper_value")},
                    "required": ["value"],
                }
            },
        }
    },
}


def figures_of(point: Mapping[str, Any]) -> dict[str, tuple[float, float | None, float | None]]:
    """The figures of a load point of `result.json` with the ends of their intervals, by the name that exports give them."""
    times, unknown = point["response_time_ns"] or point["service_time_ns"], (None, None)
    figures = {"throughput_per_s": (point["throughput_per_s"], *(point["throughput_interval_per_s"] or unknown))}
    figures |= {
        f"{name}_ns": (times[name], *point["intervals"].get(name, unknown))
        for name in ("p50", "p90", "p95", "p99", "p99_9")
        if times[name] is not None
    }
    figures |= {"mean_ns": (times["mean"], *(point["mean_interval_ns"] or unknown)), "error_rate": (point["error_rate"], *unknown)}
    return figures


def numbers_of(point: Mapping[str, Any]) -> dict[str, float]:
    """The same with each end as a figure of its own, and whether the load point is valid."""
    numbers = {"valid": float(point["valid"])}
    for key, ends in figures_of(point).items():
        parts = zip(("", "_low", "_high"), ends, strict=True)
        numbers |= {f"{key}{end}": float(value) for end, value in parts if value is not None}
    return numbers


def metrics_of(result: Mapping[str, Any]) -> dict[str, float]:
    """The numbers of all load points, by load point and name."""
    return {
        f"{point['protocol']}-concurrency-{point['load']['concurrency']}/{name}": value
        for point in result["summary"]
        for name, value in numbers_of(point).items()
    }


@contextlib.contextmanager
def tracking_server(program: pathlib.Path, folder: pathlib.Path) -> Iterator[str]:
    """The URL of an MLflow tracking server with its data in a folder, on loopback."""
    (port,) = free_ports(0)
    database, artifacts = f"sqlite:///{folder / 'mlflow.db'}", str(folder / "artifacts")
    command = ["env", "-C", str(folder), str(program), "server", "--host", "127.0.0.1", "--port", str(port), "--workers", "1"]
    command += ["--backend-store-uri", database, "--artifacts-destination", artifacts]
    url = f"http://127.0.0.1:{port}"
    with ready_server(command, functools.partial(answers, f"{url}/health"), folder / "server.log", within_s=_STARTS_WITHIN_S):
        yield url


def fetch(url: str, body: Mapping[str, Any] | None = None) -> bytes:
    """The answer to a GET, or to a POST of JSON."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"Content-Type": "application/json"})  # noqa: S310 - loopback
    with urllib.request.urlopen(request, timeout=30) as answer:  # noqa: S310 - loopback
        content: bytes = answer.read()
        return content


def compare_mlflow(report: Report, program: pathlib.Path, folder: pathlib.Path, result: Mapping[str, Any]) -> None:
    """The rows of what the tracking server holds."""
    with tracking_server(program, folder) as url:
        subprocess.run([str(program.with_name("perfkit")), "report", str(folder / "result"), "--mlflow", url], check=True, cwd=folder)
        experiment = json.loads(fetch(f"{url}/api/2.0/mlflow/experiments/get-by-name?experiment_name=perfkit"))["experiment"]
        (run,) = json.loads(fetch(f"{url}/api/2.0/mlflow/runs/search", {"experiment_ids": [experiment["experiment_id"]]}))["runs"]
        held = {one["key"]: one["value"] for one in run["data"]["metrics"]}
        expected = metrics_of(result)
        report.judged_row(held == expected, "MLflow: metrics", len(expected), len(held), equal_count(held, expected))
        params = {one["key"]: one["value"] for one in run["data"]["params"]}
        scenario = result["scenario"]
        known = {
            "name": scenario["name"],
            "target.url": scenario["target"]["url"],
            "load.closed.concurrency": json.dumps(scenario["load"]["closed"]["concurrency"]),
            "measure.repetitions": json.dumps(scenario["measure"]["repetitions"]),
        }
        equal = sum(params.get(key) == value for key, value in known.items())
        report.judged_row(equal == len(known), "MLflow: parameters, some of them", len(known), len(params), equal)
        tags = {one["key"]: one["value"] for one in run["data"]["tags"]}
        expected_tags = {"perfkit.status": result["status"], "mlflow.source.git.commit": result["environment"]["source"]["commit"]}
        expected_tags = {key: value for key, value in expected_tags.items() if value}
        equal = sum(tags.get(key) == value for key, value in expected_tags.items())
        report.judged_row(equal == len(expected_tags), "MLflow: tags of status and commit", len(expected_tags), len(tags), equal)
        states = {"complete": "FINISHED", "interrupted": "KILLED"}
        is_state = run["info"]["status"] == states.get(result["status"], "FAILED")
        report.judged_row(is_state, "MLflow: state of the run", 1, 1, int(is_state))
        names = ("result.json", "report.html")
        equal = 0
        for name in names:
            query = urllib.parse.urlencode({"path": name, "run_uuid": run["info"]["run_id"]})
            with contextlib.suppress(urllib.error.HTTPError):
                equal += fetch(f"{url}/get-artifact?{query}") == (folder / "result" / name).read_bytes()
        report.judged_row(equal == len(names), "MLflow: artifacts, byte for byte", len(names), len(names), equal)
        _compare_received_spans(report, program, url, folder, result)


_READ_SPANS = """
import json, sys, mlflow
mlflow.set_tracking_uri(sys.argv[1])
traces = mlflow.search_traces(locations=["0"], return_type="list")
json.dump([[one.name, one.attributes] for trace in traces for one in trace.data.spans], sys.stdout)
"""


def _compare_received_spans(report: Report, program: pathlib.Path, url: str, folder: pathlib.Path, result: Mapping[str, Any]) -> None:
    """The row of the figures in the spans that MLflow's own OTLP receiver has taken."""
    command = [sys.executable, "-m", "perfkit", "report", str(folder / "result"), "--otlp", url]
    environment = {**os.environ, "OTEL_EXPORTER_OTLP_HEADERS": "x-mlflow-experiment-id=0"}
    subprocess.run(command, check=True, cwd=ROOT, env=environment)
    read = [str(program.with_name("python")), "-c", _READ_SPANS, url]
    spans = json.loads(subprocess.run(read, check=True, capture_output=True, text=True, cwd=folder).stdout)
    held = {name: {key.removeprefix("perfkit."): value for key, value in attributes.items()} for name, attributes in spans}
    expected = {f"{one['protocol']}, concurrency {one['load']['concurrency']}": numbers_of(one) for one in result["summary"]}
    loads = {name: {key: value for key, value in held.get(name, {}).items() if key in figures} for name, figures in expected.items()}
    report.judged_row(loads == expected, "MLflow's OTLP receiver: figures of load points", *_counts(expected, loads))


def compare_bencher(report: Report, folder: pathlib.Path, result: Mapping[str, Any]) -> None:
    """The rows of Bencher's JSON."""
    command = [sys.executable, "-m", "perfkit", "report", str(folder / "result"), "--bencher", str(folder / "bencher.json")]
    subprocess.run(command, check=True, cwd=ROOT)
    held = json.loads((folder / "bencher.json").read_text())
    jsonschema.validate(held, _BENCHER_SCHEMA)
    keys = ("value", "lower_value", "upper_value")
    expected = {
        f"exports: {point['protocol']}, concurrency {point['load']['concurrency']}": {
            name: {key: end for key, end in zip(keys, ends, strict=True) if end is not None} for name, ends in figures_of(point).items()
        }
        for point in result["summary"]
        if point["valid"]
    }
    count = sum(len(one) for measures in expected.values() for one in measures.values())
    in_file = sum(len(one) for measures in held.values() for one in measures.values())
    equal = sum(
        held.get(name, {}).get(measure, {}).get(key) == value
        for name, measures in expected.items()
        for measure, ends in measures.items()
        for key, value in ends.items()
    )
    report.judged_row(held == expected, "Bencher Metric Format: values and ends", count, in_file, equal)


_READ_RUN = """
import json, sys
from wandb.proto import wandb_internal_pb2
from wandb.sdk.internal import datastore
store, found = datastore.DataStore(), {"history": {}, "config": {}, "files": [], "exit_code": None}
store.open_for_scan(sys.argv[1])
while (data := store.scan_data()) is not None:
    record = wandb_internal_pb2.Record()
    record.ParseFromString(data)
    kind = record.WhichOneof("record_type")
    if kind == "history":
        found["history"] |= {"/".join(one.nested_key) or one.key: json.loads(one.value_json) for one in record.history.item}
    elif kind == "run":
        found["config"] |= {one.key: json.loads(one.value_json) for one in record.run.config.update}
    elif kind == "artifact":
        found["files"] += [[one.path, one.local_path] for one in record.artifact.manifest.contents]
    elif kind == "exit":
        found["exit_code"] = record.exit.exit_code
json.dump(found, sys.stdout)
"""


def compare_wandb(report: Report, program: pathlib.Path, reader: pathlib.Path, folder: pathlib.Path, result: Mapping[str, Any]) -> None:
    """The rows of what an offline run of Weights & Biases holds."""
    command = [str(program.with_name("perfkit")), "report", str(folder / "result"), "--wandb", "serving"]
    subprocess.run(command, check=True, cwd=folder, env={**os.environ, "WANDB_MODE": "offline"})
    (file,) = folder.glob("wandb/offline-run-*/run-*.wandb")
    read = subprocess.run([str(reader), "-c", _READ_RUN, str(file)], check=True, capture_output=True, text=True)
    held = json.loads(read.stdout)
    figures = {key: value for key, value in held["history"].items() if not key.startswith("_")}  # the others are the client's own
    expected = metrics_of(result)
    report.judged_row(figures == expected, "Weights & Biases: metrics", len(expected), len(figures), equal_count(figures, expected))
    config = {key: value for key, value in held["config"].items() if key not in ("_wandb", "perfkit")}
    scenario = result["scenario"]
    report.judged_row(
        config == scenario, "Weights & Biases: sections of the scenario", len(scenario), len(config), equal_count(config, scenario)
    )
    facts = {"status": result["status"], "started_at": result["started_at"], "commit": result["environment"]["source"]["commit"]}
    equal = equal_count(held["config"]["perfkit"], facts)
    report.judged_row(equal == len(facts), "Weights & Biases: status, start and commit", len(facts), len(held["config"]["perfkit"]), equal)
    is_state = (held["exit_code"] == 0) is (result["status"] == "complete")
    report.judged_row(is_state, "Weights & Biases: state of the run", 1, 1, int(is_state))
    names = ("result.json", "report.html")
    equal = sum(pathlib.Path(path).read_bytes() == (folder / "result" / name).read_bytes() for name, path in held["files"])
    report.judged_row(equal == len(names), "Weights & Biases: artifacts, byte for byte", len(names), len(held["files"]), equal)


class _Receiver(http.server.BaseHTTPRequestHandler):
    """Keeps the spans that it is sent."""

    spans: ClassVar[list[Any]] = []

    def do_POST(self) -> None:
        request = ExportTraceServiceRequest.FromString(self.rfile.read(int(self.headers["Content-Length"])))
        self.spans.extend(span for one in request.resource_spans for scope in one.scope_spans for span in scope.spans)
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Writes nothing."""


def compare_spans(report: Report, folder: pathlib.Path, result: Mapping[str, Any]) -> None:
    """The rows of what a receiver of spans gets: figures of load points and repetitions, and the times of traced requests."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Receiver)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    command = [sys.executable, "-m", "perfkit", "report", str(folder / "result"), "--otlp", f"http://127.0.0.1:{server.server_port}"]
    subprocess.run(command, check=True, cwd=ROOT)
    server.shutdown()
    by_id = {span.span_id: span for span in _Receiver.spans}

    def held_by(span: Any) -> dict[str, float]:
        values = {one.key.removeprefix("perfkit."): one.value for one in span.attributes}
        kinds = {key: one.WhichOneof("value") for key, one in values.items()}
        figures = {key: getattr(values[key], kind) for key, kind in kinds.items() if kind in ("double_value", "int_value")}
        return {**figures, "valid": float(values["valid"].bool_value)}

    def named(one: Mapping[str, Any]) -> str:
        return f"{one['protocol']}, concurrency {one['load']['concurrency']}"

    loads = {span.name: held_by(span) for span in by_id.values() if span.name.startswith("http, ")}
    expected = {named(one): numbers_of(one) for one in result["summary"]}
    report.judged_row(loads == expected, "spans: figures of load points", *_counts(expected, loads))
    own = {
        f"{by_id[span.parent_span_id].name}, {span.name}": held_by(span) for span in by_id.values() if span.name.startswith("repetition")
    }
    expected = {f"{named(one)}, repetition {one['repetition'] + 1}": numbers_of(one) for one in result["points"]}
    report.judged_row(own == expected, "spans: figures of repetitions", *_counts(expected, own))
    lengths = [
        abs(span.end_time_unix_nano - span.start_time_unix_nano - round((one["warmup_s"] + one["duration_s"]) * 1e9)) <= 2
        for one in result["points"]
        for span in by_id.values()
        if span.name == f"repetition {one['repetition'] + 1}" and by_id[span.parent_span_id].name == named(one)
    ]
    report.judged_row(all(lengths), "spans: lengths of repetitions", len(result["points"]), len(lengths), sum(lengths))
    with (folder / "result" / "traces.csv").open(encoding="utf-8", newline="") as stream:
        traced = {row["trace_id"]: int(row["total_ns"]) for row in csv.DictReader(stream)}
    requests = {
        span.trace_id.hex(): span.end_time_unix_nano - span.start_time_unix_nano for span in by_id.values() if span.name == "request"
    }
    report.judged_row(requests == traced, "spans: times of traced requests", len(traced), len(requests), equal_count(requests, traced))


def _counts(expected: Mapping[str, Mapping[str, float]], held: Mapping[str, Mapping[str, float]]) -> tuple[int, int, int]:
    equal = sum(equal_count(held.get(name, {}), figures) for name, figures in expected.items())
    return sum(map(len, expected.values())), sum(map(len, held.values())), equal


def equal_count(held: Mapping[str, Any], expected: Mapping[str, Any]) -> int:
    """How many of the expected values are held."""
    return sum(key in held and held[key] == value for key, value in expected.items())


def main() -> int:
    """Prints the table."""
    options = program_options(__doc__, out="exports", mlflow=pathlib.Path, wandb=pathlib.Path, wandb_reader=pathlib.Path)
    for name in ("mlflow", "wandb", "wandb_reader"):
        if getattr(options, name) is None:
            sys.exit(f"exports: --{name.replace('_', '-')} is missing: the first lines of this program say what it is")
    (port,) = free_ports(0)
    report = Report(options.out, "What other programs hold of a result")
    with (
        tempfile.TemporaryDirectory(prefix="perfkit-exports-") as name,
        running_server("--model=synthetic", "--synthetic", _MODEL, "--trace-url", f"http://127.0.0.1:{port}/v1/traces") as server,
    ):
        folder = pathlib.Path(name)
        scenario = {
            "schema": "perfkit.scenario/1",
            "name": "exports",
            "target": {"url": server.url(), "model": "synthetic"},
            "workload": {"inputs": {"INPUT0": {"shape": [1]}}},
            "load": {"closed": {"concurrency": [1, 2, 4]}},
            "measure": {"warmup": "1s", "duration": "4s", "repetitions": 2},
            "traces": {"sample": "100/s", "listen": f"127.0.0.1:{port}"},
        }
        file = write_scenario(folder, scenario)
        command = [sys.executable, "-m", "perfkit", "run", str(file), "--out", str(folder / "result"), "--quiet", "--format", "json"]
        measured = subprocess.run(command, check=False, cwd=ROOT, stdout=subprocess.DEVNULL, env={**os.environ, "PERFKIT_COMMIT": _COMMIT})
        if measured.returncode not in (ExitCode.DONE, ExitCode.INVALID):  # load points that are not valid are exported, too
            sys.exit(f"exports: the run failed with exit code {measured.returncode}")
        result = json.loads((folder / "result" / "result.json").read_text())
        valid = sum(point["valid"] for point in result["summary"])
        report.add(
            f"A result of {len(result['summary'])} load points, {valid} of them valid, in MLflow {version(options.mlflow, 'mlflow')}'s tracking server (over its REST API), in the "
            f"file of an offline run of Weights & Biases {version(options.wandb, 'wandb')} (over the reader of its version {version(options.wandb_reader, 'wandb')}), in a "
            "receiver of spans that decodes them by OpenTelemetry's own messages, and in Bencher's JSON, which fits the schema that Bencher publishes. "
            f"The truth is `result.json`, read as plain JSON. {describe_machine()}",
            "",
        )
        report.table("what", ">in the result", ">held", ">equal", "all equal")
        compare_mlflow(report, options.mlflow, folder, result)
        compare_wandb(report, options.wandb, options.wandb_reader, folder, result)
        compare_spans(report, folder, result)
        compare_bencher(report, folder, result)
    return report.write()


if __name__ == "__main__":
    sys.exit(main())
