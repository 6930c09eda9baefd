"""NVIDIA's perf_analyzer against the bundled server: over HTTP and gRPC, streams and shared memory, and on models of all kinds.

    python benchmarks/perf_analyzer_on_server.py [--perf-analyzer FILE] [--out reports/perf-analyzer-on-server.md]

What counts is that it ends with exit code 0 and prints its server section, which it makes from the server's statistics.
The figures beside that are of a server that works for its living on this machine; they compare with nothing.
"""

import argparse
import contextlib
import json
import pathlib
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from typing import Any, NamedTuple

PERF_ANALYZER = pathlib.Path("~/.cache/perfkit-peers/bin/perf_analyzer").expanduser()
_SERVER_SECTION = re.compile(
    r"Server: \n\s+Inference count: (?P<inferences>\d+).*?Avg request latency: (?P<latency_us>\d+) usec", re.DOTALL
)


class Case(NamedTuple):
    """One call of perf_analyzer."""

    model: str
    protocol: str
    options: tuple[str, ...] = ()


STREAM = ("--streaming", "--async")
SHARED_MEMORY = ("--shared-memory", "system", "--output-shared-memory-size", "1024")
CASES = (
    *(Case("simple", protocol, (mode,)) for protocol in ("http", "grpc") for mode in ("--sync", "--async")),
    Case("simple", "http", ("-b", "8", "--input-tensor-format", "json", "--output-tensor-format", "json")),
    Case("simple_string", "http", ("--string-data", "5")),
    Case("simple_int8", "grpc"),
    Case("identity_fp32", "grpc", ("--shape", "INPUT0:64")),
    Case("identity_bf16", "http", ("--shape", "INPUT0:64")),
    Case("densenet_onnx", "grpc"),
    Case("simple", "grpc", STREAM),
    *(Case("simple", protocol, SHARED_MEMORY) for protocol in ("http", "grpc")),
    Case("simple", "grpc", (*STREAM, *SHARED_MEMORY)),
    Case("simple_sequence", "http", ("--sync", "--sequence-length", "5")),
    Case("simple_sequence", "grpc", ("--async", "--sequence-length", "5")),
    Case("simple_dyna_sequence", "grpc", (*STREAM, "--sequence-length", "5")),
    Case("repeat_int32", "grpc", (*STREAM, "--input-data", "INPUT_DATA")),
    Case("densenet_batch", "http", ("-b", "2")),
    Case("densenet_batch", "grpc", ("--async",)),
    Case("synthetic", "http", ("--shape", "INPUT0:4")),
    Case("simple", "http", ("--collect-metrics", "--metrics-url", "METRICS_URL", "--metrics-interval", "500")),
)
# four responses to a request
INPUT_DATA = {"data": [{name: {"content": [0] * size, "shape": [size]} for name, size in (("IN", 4), ("DELAY", 4), ("WAIT", 1))}]}


@contextlib.contextmanager
def running_server() -> Iterator[dict[str, Any]]:
    """The server with all its models on free ports, and what it says when it is ready."""
    command = [
        sys.executable,
        "-m",
        "server_stub",
        "--http-port=0",
        "--grpc-port=0",
        "--threads=1",
        "--allow-client-shm",
        "--exit-with-stdin",
    ]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        yield json.loads(process.stdout.readline())
    finally:
        process.communicate(timeout=30)  # it ends with its stdin


def run(perf_analyzer: pathlib.Path, case: Case, server: dict[str, Any], input_data: pathlib.Path) -> tuple[str, bool]:
    """A row of the table, and whether perf_analyzer was content."""
    stand_for = {"INPUT_DATA": str(input_data), "METRICS_URL": f"127.0.0.1:{server['metrics_port']}/metrics"}
    command = [str(perf_analyzer), "-m", case.model, "-i", case.protocol, "-u", f"127.0.0.1:{server[f'{case.protocol}_port']}"]
    command += [stand_for.get(option, option) for option in case.options]
    command += ["--concurrency-range", "2", "--measurement-interval", "1000", "--stability-percentage", "200"]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    section = _SERVER_SECTION.search(ended.stdout)
    found = f"{int(section['inferences']):,} | {int(section['latency_us']):,} us" if section else "missing | "
    if ended.returncode or not section:
        print(ended.stdout, ended.stderr, file=sys.stderr)
    row = f"| {case.model} | {case.protocol} | {' '.join(case.options)} | {ended.returncode} | {found} |"
    return row, ended.returncode == 0 and section is not None


def run_all(perf_analyzer: pathlib.Path) -> tuple[list[str], bool]:
    """All rows, and whether each is as it should be."""
    rows, content = [], True
    with running_server() as server, tempfile.TemporaryDirectory() as folder:
        input_data = pathlib.Path(folder, "data.json")
        input_data.write_text(json.dumps(INPUT_DATA), encoding="utf-8")
        for case in CASES:
            row, is_content = run(perf_analyzer, case, server, input_data)
            print(row, flush=True)
            rows.append(row)
            content = content and is_content
    return rows, content


def _version(perf_analyzer: pathlib.Path) -> str:
    """It says so on either stream, and some releases with an exit code of 1."""
    ended = subprocess.run([str(perf_analyzer), "--version"], capture_output=True, text=True, check=False)
    found = re.search(r"Version (\S.*)", ended.stdout + ended.stderr)
    return f"perf_analyzer, which calls itself {found[1].strip()}" if found else "perf_analyzer of a version that it does not tell"


def main() -> int:
    """Prints the table; the exit code is 1 where perf_analyzer failed or printed no server section."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--perf-analyzer", type=pathlib.Path, default=PERF_ANALYZER)
    parser.add_argument("--out", type=pathlib.Path)
    options = parser.parse_args()
    version = _version(options.perf_analyzer)
    head = ["| model | protocol | options | exit code | server section: inferences | mean latency |", "|---|---|---|---:|---:|---:|"]
    print("\n".join(head))
    rows, content = run_all(options.perf_analyzer)
    if options.out:
        text = "\n".join(
            ["# NVIDIA's perf_analyzer on the bundled server", "", f"{version}, concurrency 2, one server for all.", "", *head, *rows, ""]
        )
        options.out.write_text(text, encoding="utf-8")
    return 0 if content else 1


if __name__ == "__main__":
    sys.exit(main())
