"""Programs that run perf_analyzer, with perf_analyzer and with perfkit in its place: Model Analyzer, and GenAI-Perf's parser of exports.

    python -m benchmarks.peers.perf_analyzer_programs [--analyzer PROGRAM] [--genai-perf PYTHON] [--peers FOLDER] [--out FILE]

Model Analyzer (PyPI: triton-model-analyzer) runs in its remote mode against the bundled server and against a real Triton, once with each
program as its `--perf-analyzer-path`. Then both programs export the same requests, and the parser of GenAI-Perf (PyPI: genai-perf) reads both
files. The models take a fixed time, so that the server sets the pace. It takes about three minutes. The exit code is 1 if one of the
programs fails, or a throughput or average of perfkit's is not within 10 % of perf_analyzer's; p99 is shown beside them, since it is
the second or tenth largest of a few hundred latencies.
"""

import argparse
import contextlib
import csv
import json
import pathlib
import shutil
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Iterator, Mapping
from typing import NamedTuple

import numpy as np
import onnx

from benchmarks.peers.install import peers_folder, perf_analyzer_path
from benchmarks.peers.server_process import PeerError
from benchmarks.peers.triton import TRAFFIC_MODELS, running_triton
from benchmarks.processes import ROOT, running_server
from benchmarks.report import Report, describe_machine, program_options, yes_no

OWN, ANALYZER = "perfkit", "perf_analyzer"
CONCURRENCIES, BATCH_SIZES = (1, 4), (1, 4)
WITHIN = 0.1
_TIMEOUT_S = 900
_MATRIX, _PRODUCTS = 512, 7
_FIGURES = {"Throughput (infer/sec)": "throughput, 1/s", "Avg Latency (ms)": "average, ms", "p99 Latency (ms)": "p99, ms"}
_READ_EXPORT = """
import json, sys
from genai_perf.profile_data_parser.profile_data_parser import ProfileDataParser
parser = ProfileDataParser(sys.argv[1])
found = {}
for mode, load in parser.get_profile_load_info():
    metrics = parser.get_statistics(mode, load).stats_dict
    found[f"{mode} {load}"] = [metrics["request_throughput"]["avg"], metrics["request_latency"]["avg"] / 1e6, metrics["request_latency"]["p99"] / 1e6]
print(json.dumps(found))
"""


class Place(NamedTuple):
    """A server with explicit model control."""

    title: str
    model: str
    shapes: tuple[str, ...]
    repository: pathlib.Path
    http: str
    grpc: str
    metrics_url: str


def write_products(folder: pathlib.Path) -> None:
    """A repository with one ONNX model, `products`: for batches of 3 numbers it takes about 10 ms of a core, for products of matrices."""
    given, result = (onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, ["batch", 3]) for name in ("x", "y"))
    weights = onnx.numpy_helper.from_array(np.full((_MATRIX, _MATRIX), 1 / _MATRIX, np.float32), "w")
    # each product depends on the input, or the runtime would compute it once
    nodes = [
        onnx.helper.make_node("ReduceMean", ["x"], ["m"], keepdims=0),
        onnx.helper.make_node("Add", ["w", "m"], ["p0"]),
        *(onnx.helper.make_node("MatMul", [f"p{number}", "w"], [f"p{number + 1}"]) for number in range(_PRODUCTS)),
        onnx.helper.make_node("ReduceMean", [f"p{_PRODUCTS}"], ["s"], keepdims=0),
        onnx.helper.make_node("Add", ["x", "s"], ["y"]),
    ]
    graph = onnx.helper.make_graph(nodes, "g", [given], [result], [weights])
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 13)], ir_version=8)
    (folder / "products" / "1").mkdir(parents=True)
    (folder / "products" / "1" / "model.onnx").write_bytes(model.SerializeToString())
    (folder / "products" / "config.pbtxt").write_text("max_batch_size: 8\n", encoding="utf-8")


@contextlib.contextmanager
def places(work: pathlib.Path, peers: pathlib.Path) -> Iterator[tuple[str, list[Place]]]:
    """Triton's version, and both servers with one model each."""
    own, triton_models = work / "bundled", work / "triton"
    write_products(own)
    shutil.copytree(TRAFFIC_MODELS / "paced_identity", triton_models / "paced_identity")
    options = ["--model-repository", str(own), "--threads", "1", "--model-control-mode", "explicit", "--metrics-port", "0"]
    with (
        running_server(*options) as server,
        running_triton(peers, models=triton_models, options=["--model-control-mode=explicit"]) as triton,
    ):
        ready = server.ready
        yield triton.version, [
            Place(
                "the bundled server", "products", (), own,
                f"127.0.0.1:{ready['http_port']}", f"127.0.0.1:{ready['grpc_port']}", f"http://127.0.0.1:{ready['metrics_port']}/metrics",
            ),
            Place(
                f"Triton {triton.version}", "paced_identity", ("INPUT0:16",), triton_models,
                f"127.0.0.1:{triton.http_port}", f"127.0.0.1:{triton.grpc_port}", f"http://127.0.0.1:{triton.metrics_port}/metrics",
            ),
        ]  # fmt: skip


def analyze(program: pathlib.Path, client: pathlib.Path, place: Place, work: pathlib.Path) -> dict[str, dict[str, float]]:
    """Runs Model Analyzer with a program as its perf_analyzer; its figures by setting. Raises PeerError."""
    work.mkdir(parents=True)
    settings = {
        "model_repository": str(place.repository),
        "output_model_repository_path": str(work / "variants"),
        "checkpoint_directory": str(work / "checkpoints"),
        "export_path": str(work / "export"),
        "triton_launch_mode": "remote",
        "triton_http_endpoint": place.http,
        "triton_grpc_endpoint": place.grpc,
        "triton_metrics_url": place.metrics_url,
        "client_protocol": "grpc",
        "perf_analyzer_path": str(client),
        "gpus": [],
        "run_config_search_disable": True,
        "batch_sizes": list(BATCH_SIZES),
        "concurrency": list(CONCURRENCIES),
        "perf_analyzer_flags": {"shape": list(place.shapes)} if place.shapes else {},
        "inference_output_fields": ["batch_size", "concurrency", "perf_throughput", "perf_latency_avg", "perf_latency_p99"],
        "profile_models": [place.model],
    }
    (work / "settings.yaml").write_text(json.dumps(settings, indent=1), encoding="utf-8")
    (work / "checkpoints").mkdir()
    with (work / "log").open("w", encoding="utf-8") as log:
        command = [str(program), "profile", "--config-file", str(work / "settings.yaml")]
        code = subprocess.run(command, cwd=work, stdout=log, stderr=log, check=False, timeout=_TIMEOUT_S).returncode
    file = work / "export" / "results" / "metrics-model-inference.csv"
    if code or not file.exists():
        tail = (work / "log").read_text(encoding="utf-8").splitlines()[-10:]
        raise PeerError("\n".join([f"Model Analyzer with {client} on {place.title} ended with exit code {code}; its last output:", *tail]))
    rows = csv.DictReader(file.read_text(encoding="utf-8").splitlines())
    return {f"batch {row['Batch']}, concurrency {row['Concurrency']}": {name: float(row[name]) for name in _FIGURES} for row in rows}


def read_export(python: pathlib.Path, client: list[str], place: Place, file: pathlib.Path) -> dict[str, list[float]]:
    """What GenAI-Perf's parser reads in a program's export of 200 requests at each of two concurrencies; raises PeerError."""
    found = dict[str, list[float]]()
    for concurrency in CONCURRENCIES:
        file.unlink(missing_ok=True)
        options = ["-i", "grpc", "-u", place.grpc, "--concurrency-range", str(concurrency), "--request-count", "200"]
        shapes = [word for shape in place.shapes for word in ("--shape", shape)]
        command = [*client, "-m", place.model, *options, *shapes, "--profile-export-file", str(file)]
        parse = [str(python), "-c", _READ_EXPORT, str(file)]
        output = ""
        for words in (command, parse):
            done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False, timeout=_TIMEOUT_S)
            if done.returncode:
                raise PeerError(f"{' '.join(words)[:200]} ended with exit code {done.returncode}: {done.stderr[-1000:]}")
            output = done.stdout
        found |= json.loads(output.splitlines()[-1])
    return found


def add_rows(report: Report, title: str, both: Mapping[str, Mapping[str, float]], names: Mapping[str, str]) -> None:
    """A row for each figure of a setting; throughput and average must agree."""
    for name, shown in names.items():
        theirs, own = both[ANALYZER][name], both[OWN][name]
        is_near = abs(own / theirs - 1) <= WITHIN
        report.is_met &= is_near or "p99" in name
        report.row(title, shown, f"{theirs:,.2f}", f"{own:,.2f}", f"{own / theirs:.3f}", yes_no(is_near))


def compare(options: argparse.Namespace, work: pathlib.Path) -> int:
    """Prints and writes the report; returns the exit code. Raises PeerError."""
    machine, report = describe_machine(), Report(options.out, "Programs that run perf_analyzer, with perfkit in its place")
    program = (options.analyzer or options.peers / "model-analyzer" / "bin" / "model-analyzer").absolute()
    python = options.genai_perf or options.peers / "genai-perf" / "bin" / "python"
    own = work / "perf_analyzer"
    own.write_text(f'#!/bin/sh\nPYTHONPATH={ROOT} exec {sys.executable} -m perfkit perf-analyzer "$@"\n', encoding="utf-8")
    own.chmod(0o755)
    clients = {ANALYZER: perf_analyzer_path(options.peers), OWN: own}
    columns = ("server and setting", "figure", ">perf_analyzer", ">perfkit", ">ratio", f"within {WITHIN:.0%}")
    with places(work, options.peers) as (version, servers):
        report.add(
            f"{machine} Triton {version} with a model that takes 10 ms for a request, four at a time; the bundled server with an ONNX model that takes about 10 ms, one at a time.",
            "",
            "p99 is shown, not judged: it is the second or tenth largest of a few hundred latencies.",
        )
        own_version = (
            subprocess.run([str(program), "--version"], capture_output=True, text=True, check=False).stdout.strip().rpartition(" ")[2]
        )
        report.section(
            "Model Analyzer",
            f"Model Analyzer {own_version} as it is, in remote mode, over gRPC, once with each program as `--perf-analyzer-path`.",
            "",
        )
        report.table(*columns)
        for place in servers:
            found = {name: analyze(program, client, place, work / f"{place.model}-{name}") for name, client in clients.items()}
            for setting in found[ANALYZER]:
                add_rows(report, f"{place.title}, {setting}", {name: one[setting] for name, one in found.items()}, _FIGURES)
        report.section(
            "GenAI-Perf's parser of profile exports",
            "Its `ProfileDataParser` on an export of 200 requests of each program (`--request-count 200 --profile-export-file`).",
            "",
        )
        report.table(*columns)
        names = list(_FIGURES.values())
        for place in servers:
            # its model is not loaded any more
            load = f"http://{place.http}/v2/repository/models/{place.model}/load"
            urllib.request.urlopen(load, data=b"{}", timeout=60).close()
            read = {name: read_export(python, [str(client)], place, work / "export.json") for name, client in clients.items()}
            for setting in read[ANALYZER]:
                both = {name: dict(zip(names, one[setting], strict=True)) for name, one in read.items()}
                add_rows(report, f"{place.title}, {setting}", both, dict(zip(names, names, strict=True)))
    return report.write()


def main() -> int:
    """Runs all, and writes the report."""
    options = program_options(
        __doc__,
        out="perf-analyzer-programs",
        peers=peers_folder(),
        analyzer=(pathlib.Path, "the program model-analyzer (default: in the peers' folder)"),
        genai_perf=(pathlib.Path, "the Python that has genai-perf (default: in the peers' folder)"),
    )
    try:
        with tempfile.TemporaryDirectory(prefix="perfkit-programs-") as name:
            return compare(options, pathlib.Path(name))
    except (PeerError, OSError, subprocess.SubprocessError) as error:
        sys.exit(f"perf_analyzer_programs: {error}")


if __name__ == "__main__":
    raise SystemExit(main())
