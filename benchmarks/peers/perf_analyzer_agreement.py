"""The same command lines given to perf_analyzer and to `perfkit perf-analyzer`, on the same Triton, in the same minutes.

    python -m benchmarks.peers.perf_analyzer_agreement [--case NAME …] [--rounds 3] [--peers FOLDER] [--out reports/perf-analyzer-agreement.md]

Each case is a command line on a model that takes 10 ms for a request, so that the server sets the pace and not the client. In every round
both programs run it one after the other, in random order, and write their CSV reports, from which the figures are taken. Throughput,
average latency and p99 agree if the median of the rounds' ratios lies between 0.9 and 1.1; the exit code is 1 if one does not.
It takes about 20 minutes. README.md beside this file says how to install the peers.
"""

import argparse
import csv
import functools
import json
import pathlib
import random
import shlex
import statistics
import sys
import tempfile
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from benchmarks.peers.clients import MAX_RUN_S, ClientError, run_measured
from benchmarks.peers.install import perf_analyzer_path
from benchmarks.peers.rounds import comparison_options, in_rounds
from benchmarks.peers.server_process import PeerError
from benchmarks.peers.triton import TRAFFIC_MODELS, Triton, running_triton
from benchmarks.report import RATIO_COLUMNS, Ratio, Report, describe_machine, rounds_text

OWN, ANALYZER = "perfkit", "perf_analyzer"
LOW, HIGH = 0.9, 1.1
FIGURES = {"throughput": "Inferences/Second", "average": "Avg latency", "p99": "p99 latency"}
"""The compared figures, and their columns."""
_DATA = "data.json"
_REPEATS = {
    "data": [{name: {"content": value, "shape": [len(value)]} for name, value in (("IN", [1, 2]), ("DELAY", [5, 5]), ("WAIT", [0]))}]
}
_PLAIN = "-m paced_identity --shape INPUT0:16"
_SHARED = "-m paced_identity --shape INPUT0:16384 --shared-memory system"
_SEQUENCE = "-m paced_sequence --input-data zero --sequence-length 20"
_STREAM = f"-m repeat_int32 --streaming --input-data {_DATA}"


class Case(NamedTuple):
    """A command line without URL, windows and files."""

    protocol: str
    words: str


CASES = {
    "plain-http-sync": Case("http", f"{_PLAIN} --concurrency-range 4"),
    "plain-http-async-rate": Case("http", f"{_PLAIN} --async --request-rate-range 200"),
    "plain-grpc-async": Case("grpc", f"{_PLAIN} --async --concurrency-range 4"),
    "plain-grpc-sync-poisson": Case("grpc", f"{_PLAIN} --request-rate-range 100 --request-distribution poisson --max-threads 16"),
    "batch-http-sync": Case("http", f"{_PLAIN} -b 4 --concurrency-range 1"),
    "sequence-http": Case("http", f"{_SEQUENCE} --concurrency-range 4"),
    "sequence-grpc-rate": Case("grpc", f"{_SEQUENCE} --request-rate-range 200 --num-of-sequences 4"),
    "sequence-grpc-stream": Case("grpc", f"{_SEQUENCE} --streaming --concurrency-range 4"),
    "stream-concurrency": Case("grpc", f"{_STREAM} --concurrency-range 4"),
    "stream-rate": Case("grpc", f"{_STREAM} --request-rate-range 100"),
    "shared-memory-http-sync": Case("http", f"{_SHARED} --concurrency-range 4"),
    "shared-memory-grpc-async-rate": Case("grpc", f"{_SHARED} --async --request-rate-range 200"),
}


def run_command(program: Sequence[str], case: Case, triton: Triton, interval_ms: int, folder: pathlib.Path) -> dict[str, float]:
    """The figures of a program's CSV report; raises ClientError."""
    report = folder / "report.csv"
    report.unlink(missing_ok=True)
    words = [str(folder / _DATA) if word == _DATA else word for word in shlex.split(case.words)]
    address = triton.url(case.protocol).partition("://")[2]
    # the windows vary on a shared machine: perf_analyzer's own limit on that would end the run without figures
    options = ["-i", case.protocol, "-u", address, "-p", str(interval_ms), "-s", "999", "-r", "3", "-f", str(report), "--verbose-csv"]
    run_measured([*program, *words, *options], timeout_s=MAX_RUN_S)
    with report.open(encoding="utf-8") as file:
        (row,) = csv.DictReader(file)
    return {name: float(row[column]) for name, column in FIGURES.items()}


def ratios_of(rounds: Mapping[str, Sequence[Mapping[str, float]]]) -> list[Ratio]:
    """The ratios of perfkit's figures to perf_analyzer's, each with its target."""
    pairs = list(zip(rounds[OWN], rounds[ANALYZER], strict=True))
    return [Ratio(name, tuple(own[name] / peer[name] for own, peer in pairs), low=LOW, high=HIGH) for name in FIGURES]


def figure_cells(rounds: Sequence[Mapping[str, float]]) -> tuple[str, ...]:
    """The medians of a program's figures."""
    per_s, average_us, p99_us = (statistics.median(one[name] for one in rounds) for name in FIGURES)
    return f"{per_s:,.1f}/s", f"{average_us / 1e3:,.2f} ms", f"{p99_us / 1e3:,.2f} ms"


def main() -> int:
    """Prints the tables; the exit code is 1 if figures do not agree or a program failed."""
    interval = (3000, "milliseconds of a window")
    options = comparison_options(__doc__, CASES, out="perf-analyzer-agreement", rounds=3, interval=interval)
    programs = {ANALYZER: [str(perf_analyzer_path(options.peers))], OWN: [sys.executable, "-m", "perfkit", "perf-analyzer"]}
    try:
        with (
            tempfile.TemporaryDirectory(prefix="perfkit-agreement-") as name,
            running_triton(options.peers, models=TRAFFIC_MODELS) as triton,
        ):
            return compare(options, programs, triton, pathlib.Path(name))
    except (ClientError, PeerError, FileNotFoundError) as error:
        sys.exit(f"perf_analyzer_agreement: {error}")


def compare(options: argparse.Namespace, programs: Mapping[str, Sequence[str]], triton: Triton, folder: pathlib.Path) -> int:
    """Prints and writes the report; returns the exit code. Raises ClientError."""
    report, order = Report(options.out, "The same command lines on perf_analyzer and on perfkit"), random.Random(options.seed)
    report.add(
        f"`python -m benchmarks.peers.perf_analyzer_agreement`: perf_analyzer 2.60 and `perfkit perf-analyzer` on the same Triton {triton.version}.",
        f"{describe_machine()} {rounds_text(options.rounds)}; three windows of {options.interval / 1000:g} s each time (`-p {options.interval} -s 999 -r 3`).",
        "",
    )
    cases = {title: CASES[title] for title in options.case or CASES}
    report.table("case", "command line")
    for title, case in cases.items():
        report.row(f"`{title}`", f"`-i {case.protocol} {case.words}`")
    (folder / _DATA).write_text(json.dumps(_REPEATS), encoding="utf-8")
    report.add("")
    report.table("case", "perfkit / perf_analyzer", *RATIO_COLUMNS)
    figures = []
    for title, case in cases.items():
        runs = {name: functools.partial(run_command, words, case, triton, options.interval, folder) for name, words in programs.items()}
        rounds = in_rounds(runs, options.rounds, order)
        figures += [(f"`{title}`", name, *figure_cells(rounds[name])) for name in programs]
        for ratio in ratios_of(rounds):
            report.is_met &= ratio.is_met
            report.row(f"`{title}`", ratio.name, *ratio.cells)
    report.add("", "Medians of the rounds:", "")
    report.table("case", "program", ">throughput", ">average", ">p99")
    for cells in figures:
        report.row(*cells)
    return report.write()


if __name__ == "__main__":
    raise SystemExit(main())
