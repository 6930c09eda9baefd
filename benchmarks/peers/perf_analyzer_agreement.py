"""The same command lines given to perf_analyzer and to `perfkit perf-analyzer`, on the same Triton, in the same minutes.

    python -m benchmarks.peers.perf_analyzer_agreement [--case NAME …] [--rounds 3] [--peers FOLDER] [--out reports/perf-analyzer-agreement.md]

Each case is a command line on a model that takes 10 ms for a request, so that the server sets the pace and not the client. In every round
both programs run it one after the other, in random order, and write their CSV reports, from which the figures are taken. Throughput,
average latency and p99 agree if the median of the rounds' ratios lies between 0.9 and 1.1; the exit code is 1 if one does not.
It takes about 20 minutes. README.md beside this file says how to install the peers.
"""

import csv
import functools
import json
import pathlib
import random
import shlex
import signal
import statistics
import sys
import tempfile
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from benchmarks.peers.clients import MAX_RUN_S, ClientError, run_measured
from benchmarks.peers.install import peers_folder, perf_analyzer_path
from benchmarks.peers.rounds import retry_hung
from benchmarks.peers.server_process import PeerError
from benchmarks.peers.triton import TRAFFIC_MODELS, Triton, running_triton
from benchmarks.report import RATIO_COLUMNS, Ratio, describe_machine, option_parser, table_head, table_row, write_report

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
    parser = option_parser(__doc__, out=pathlib.Path("reports/perf-analyzer-agreement.md"))
    parser.add_argument("--case", action="append", choices=list(CASES), help="may be repeated (default: all)")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--interval", type=int, default=3000, metavar="MS", help="the length of a window (default %(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="seed for the order of the programs")
    parser.add_argument("--peers", type=pathlib.Path, help="folder of the peers")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    programs = {ANALYZER: [str(perf_analyzer_path(options.peers))], OWN: [sys.executable, "-m", "perfkit", "perf-analyzer"]}
    machine, order, all_met = describe_machine(), random.Random(options.seed), True
    figures, ratios = list[str](), list[str]()
    try:
        with (
            tempfile.TemporaryDirectory(prefix="perfkit-agreement-") as name,
            running_triton(peers_folder(options.peers), models=TRAFFIC_MODELS) as triton,
        ):
            folder = pathlib.Path(name)
            (folder / _DATA).write_text(json.dumps(_REPEATS), encoding="utf-8")
            for title in options.case or CASES:
                case, rounds = CASES[title], {program: list[dict[str, float]]() for program in programs}
                for number in range(options.rounds):
                    for program in order.sample(list(programs), len(programs)):
                        run = functools.partial(run_command, programs[program], case, triton, options.interval, folder)
                        rounds[program].append(retry_hung(run))
                        shown = ", ".join(figure_cells(rounds[program][-1:]))
                        print(f"{title}, round {number + 1}, {program}: {shown}", file=sys.stderr, flush=True)
                figures += [table_row(f"`{title}`", program, *figure_cells(rounds[program])) for program in programs]
                compared = ratios_of(rounds)
                ratios += [table_row(f"`{title}`", ratio.name, *ratio.cells) for ratio in compared]
                all_met = all_met and all(ratio.is_met for ratio in compared)
            version = triton.version
    except (ClientError, PeerError, FileNotFoundError) as error:
        sys.stderr.write(f"perf_analyzer_agreement: {error}\n")
        return 1
    commands = [
        table_row(f"`{title}`", f"`-i {case.protocol} {case.words}`") for title, case in CASES.items() if title in (options.case or CASES)
    ]
    lines = [
        "# The same command lines on perf_analyzer and on perfkit",
        "",
        f"`python -m benchmarks.peers.perf_analyzer_agreement`: perf_analyzer 2.60 and `perfkit perf-analyzer` on the same Triton {version}.",
        f"{machine} {options.rounds} rounds; three windows of {options.interval / 1000:g} s each time (`-p {options.interval} -s 999 -r 3`).",
        "",
        *table_head("case", "command line"),
        *commands,
        "",
        *table_head("case", "perfkit / perf_analyzer", *RATIO_COLUMNS),
        *ratios,
        "",
        "Medians of the rounds:",
        "",
        *table_head("case", "program", ">throughput", ">average", ">p99"),
        *figures,
    ]
    write_report(options.out, lines)
    return 0 if all_met else 1


if __name__ == "__main__":
    raise SystemExit(main())
