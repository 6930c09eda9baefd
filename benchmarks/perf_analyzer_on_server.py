"""Runs NVIDIA's perf_analyzer against the bundled server: HTTP, gRPC, streams, shared memory, and models of all kinds.

    python -m benchmarks.perf_analyzer_on_server [--perf-analyzer FILE] [--out reports/perf-analyzer-on-server.md]

Required: perf_analyzer ends with exit code 0 and prints its server section, which it computes from the server's statistics; the
exit code is 1 otherwise. The other figures are those of this machine under load; they cannot be compared with others.
"""

import json
import pathlib
import re
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from benchmarks.peers.install import perf_analyzer_path
from benchmarks.processes import running_server
from benchmarks.report import option_parser, table_head, table_row, write_report

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
# four responses per request
INPUT_DATA = {"data": [{name: {"content": [0] * size, "shape": [size]} for name, size in (("IN", 4), ("DELAY", 4), ("WAIT", 1))}]}


TIME_WINDOWS = ("--measurement-interval", "1000")
COUNT_WINDOWS = ("--measurement-mode", "count_windows", "--measurement-request-count", "200")
"""For a busy machine: in a window of a fixed time it may answer no request, at which perf_analyzer says so and then hangs."""


def run(
    perf_analyzer: pathlib.Path, case: Case, ready: Mapping[str, Any], input_data: pathlib.Path, windows: Sequence[str] = TIME_WINDOWS
) -> tuple[str, bool]:
    """The table's row of a case, and whether it meets the requirement. `ready` is the server's description with its ports."""
    values = {"INPUT_DATA": str(input_data), "METRICS_URL": f"127.0.0.1:{ready['metrics_port']}/metrics"}
    command = [str(perf_analyzer), "-m", case.model, "-i", case.protocol, "-u", f"127.0.0.1:{ready[f'{case.protocol}_port']}"]
    command += [values.get(option, option) for option in case.options]
    command += ["--concurrency-range", "2", *windows, "--stability-percentage", "200"]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    section = _SERVER_SECTION.search(ended.stdout)
    if ended.returncode or not section:
        print(ended.stdout, ended.stderr, file=sys.stderr)
    figures = (f"{int(section['inferences']):,}", f"{int(section['latency_us']):,} us") if section else ("missing", "")
    row = table_row(case.model, case.protocol, " ".join(case.options), ended.returncode, *figures)
    return row, ended.returncode == 0 and section is not None


def _version(perf_analyzer: pathlib.Path) -> str:
    """The version that the program reports, on stdout or stderr and in some releases with exit code 1."""
    ended = subprocess.run([str(perf_analyzer), "--version"], capture_output=True, text=True, check=False)
    version = re.search(r"Version (\S.*)", ended.stdout + ended.stderr)
    return version[1].strip() if version else "of unknown version"


def main() -> int:
    """Prints the table."""
    parser = option_parser(__doc__)
    parser.add_argument("--perf-analyzer", type=pathlib.Path, default=perf_analyzer_path())
    options = parser.parse_args()
    if not options.perf_analyzer.exists():
        sys.exit(f"{options.perf_analyzer} is not installed: `python3 benchmarks/peers/install.py` installs it")
    lines = [
        "# NVIDIA's perf_analyzer on the bundled server",
        "",
        f"perf_analyzer {_version(options.perf_analyzer)}, concurrency 2, one server for all cases.",
        "",
        *table_head("model", "protocol", "options", ">exit code", ">server section: inferences", ">mean latency"),
    ]
    print("\n".join(lines))
    all_met = True
    with running_server("--threads=1", "--allow-client-shm") as server, tempfile.TemporaryDirectory() as folder:
        input_data = pathlib.Path(folder, "data.json")
        input_data.write_text(json.dumps(INPUT_DATA), encoding="utf-8")
        for case in CASES:
            row, is_met = run(options.perf_analyzer, case, server.ready, input_data)
            print(row, flush=True)
            lines.append(row)
            all_met = all_met and is_met
    write_report(options.out, lines)
    return 0 if all_met else 1


if __name__ == "__main__":
    sys.exit(main())
