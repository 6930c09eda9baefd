"""NVIDIA's perf_analyzer against the bundled server: over HTTP and gRPC, sync and async, and on models of other kinds.

    python benchmarks/perf_analyzer_on_server.py [--perf-analyzer FILE] [--out reports/perf-analyzer-on-server.md]

What counts is that it ends with exit code 0 and prints its server section, which it makes from the server's statistics.
The figures beside that are of a server that works for its living on this machine; they compare with nothing.
"""

import argparse
import asyncio
import pathlib
import re
import subprocess
import sys
from typing import NamedTuple

from perfkit.bundled_server import bundled_server

PERF_ANALYZER = pathlib.Path("~/.cache/perfkit-peers/bin/perf_analyzer").expanduser()
_SERVER_SECTION = re.compile(
    r"Server: \n\s+Inference count: (?P<inferences>\d+).*?Avg request latency: (?P<latency_us>\d+) usec", re.DOTALL
)


class Case(NamedTuple):
    """One call of perf_analyzer."""

    model: str
    protocol: str
    options: tuple[str, ...] = ()


CASES = (
    *(Case("simple", protocol, (mode,)) for protocol in ("http", "grpc") for mode in ("--sync", "--async")),
    Case("simple", "http", ("-b", "8", "--input-tensor-format", "json", "--output-tensor-format", "json")),
    Case("simple_string", "http", ("--string-data", "5")),
    Case("simple_int8", "grpc"),
    Case("identity_fp32", "grpc", ("--shape", "INPUT0:64")),
    Case("identity_bf16", "http", ("--shape", "INPUT0:64")),
    Case("densenet_onnx", "grpc"),
)


def run(perf_analyzer: pathlib.Path, case: Case, url: str) -> tuple[str, bool]:
    """A row of the table, and whether perf_analyzer was content."""
    address = url.partition("://")[2]
    command = [str(perf_analyzer), "-m", case.model, "-i", case.protocol, "-u", address, *case.options]
    command += ["--concurrency-range", "2", "--measurement-interval", "1000", "--stability-percentage", "90"]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    section = _SERVER_SECTION.search(ended.stdout)
    found = f"{int(section['inferences']):,} | {int(section['latency_us']):,} us" if section else "missing | "
    if ended.returncode or not section:
        print(ended.stdout, ended.stderr, file=sys.stderr)
    row = f"| {case.model} | {case.protocol} | {' '.join(case.options)} | {ended.returncode} | {found} |"
    return row, ended.returncode == 0 and section is not None


async def run_all(perf_analyzer: pathlib.Path) -> tuple[list[str], bool]:
    """All rows, and whether each is as it should be."""
    rows, content = [], True
    for case in CASES:
        async with bundled_server(case.model, device="cpu", threads=1, cpus=(), on_line=lambda _: None) as server:
            url = server.urls["grpc" if case.protocol == "grpc" else "http"]
            row, is_content = await asyncio.to_thread(run, perf_analyzer, case, url)
        print(row)
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
    rows, content = asyncio.run(run_all(options.perf_analyzer))
    if options.out:
        text = "\n".join(["# NVIDIA's perf_analyzer on the bundled server", "", f"{version}, concurrency 2.", "", *head, *rows, ""])
        options.out.write_text(text, encoding="utf-8")
    return 0 if content else 1


if __name__ == "__main__":
    sys.exit(main())
