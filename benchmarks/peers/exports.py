"""What an MLflow tracking server holds of a result, and Bencher's JSON of it, beside the result's own file.

    python -m benchmarks.peers.exports --mlflow PATH/bin/mlflow [--out reports/exports.md]

MLflow is installed by the caller in an environment of its own, with perfkit: `pip install mlflow PATH_OF_PERFKIT`. A run with several load points and
repetitions is measured on the bundled server and exported. What the server holds is asked over its REST API, and compared with `result.json`, which is
read as plain JSON. It takes about a minute.
"""

import contextlib
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping
from typing import Any

import jsonschema

from benchmarks.peers.llm_clients import version
from benchmarks.processes import ROOT, running_server, write_scenario
from benchmarks.report import Report, describe_machine, program_options
from perfkit.target.started_server import free_ports

_STARTS_WITHIN_S = 120
_POLL_INTERVAL_S = 0.5
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


@contextlib.contextmanager
def tracking_server(program: pathlib.Path, folder: pathlib.Path) -> Iterator[str]:
    """The URL of an MLflow tracking server with its data in a folder, on loopback."""
    (port,) = free_ports(1)
    database, artifacts = f"sqlite:///{folder / 'mlflow.db'}", str(folder / "artifacts")
    command = [str(program), "server", "--host", "127.0.0.1", "--port", str(port), "--workers", "1"]
    command += ["--backend-store-uri", database, "--artifacts-destination", artifacts]
    with (folder / "server.log").open("w") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, cwd=folder)
        try:
            url, deadline = f"http://127.0.0.1:{port}", time.monotonic() + _STARTS_WITHIN_S
            while not _is_healthy(url):
                if process.poll() is not None or time.monotonic() > deadline:
                    raise RuntimeError(f"MLflow's server did not start: {(folder / 'server.log').read_text()[-1000:]}")
                time.sleep(_POLL_INTERVAL_S)
            yield url
        finally:
            process.terminate()
            process.wait()


def _is_healthy(url: str) -> bool:
    try:
        return fetch(f"{url}/health") == b"OK"
    except OSError:
        return False


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
        expected = dict[str, float]()
        for point in result["summary"]:
            name = f"{point['protocol']}-concurrency-{point['load']['concurrency']}"
            expected[f"{name}/valid"] = float(point["valid"])
            for key, ends in figures_of(point).items():
                parts = zip(("", "_low", "_high"), ends, strict=True)
                expected |= {f"{name}/{key}{end}": float(value) for end, value in parts if value is not None}
        equal = sum(held.get(key) == value for key, value in expected.items())
        report.judged_row(held == expected, "MLflow: metrics", len(expected), len(held), equal)
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


def main() -> int:
    """Prints the table."""
    options = program_options(__doc__, out="exports", mlflow=pathlib.Path)
    if options.mlflow is None:
        sys.exit("exports: --mlflow is missing: give the program of an environment that has MLflow and perfkit")
    report = Report(options.out, "What other programs hold of a result")
    with (
        tempfile.TemporaryDirectory(prefix="perfkit-exports-") as name,
        running_server("--model=synthetic", "--synthetic", _MODEL) as server,
    ):
        folder = pathlib.Path(name)
        scenario = {
            "schema": "perfkit.scenario/1",
            "name": "exports",
            "target": {"url": server.url(), "model": "synthetic"},
            "workload": {"inputs": {"INPUT0": {"shape": [1]}}},
            "load": {"closed": {"concurrency": [1, 2, 4]}},
            "measure": {"warmup": "1s", "duration": "4s", "repetitions": 2},
        }
        file = write_scenario(folder, scenario)
        command = [sys.executable, "-m", "perfkit", "run", str(file), "--out", str(folder / "result"), "--quiet", "--format", "json"]
        subprocess.run(command, check=True, cwd=ROOT, stdout=subprocess.DEVNULL, env={**os.environ, "PERFKIT_COMMIT": _COMMIT})
        result = json.loads((folder / "result" / "result.json").read_text())
        valid = sum(point["valid"] for point in result["summary"])
        report.add(
            f"A result of {len(result['summary'])} load points, {valid} of them valid, in MLflow {version(options.mlflow, 'mlflow')}'s tracking server (over its REST API), and in "
            f"Bencher's JSON, which fits the schema that Bencher publishes. The truth is `result.json`, read as plain JSON. {describe_machine()}",
            "",
        )
        report.table("what", ">in the result", ">held", ">equal", "all equal")
        compare_mlflow(report, options.mlflow, folder, result)
        compare_bencher(report, folder, result)
    return report.write()


if __name__ == "__main__":
    sys.exit(main())
