"""Precision of streams: what perfkit measures of `synthetic` streams with declared instants, over gRPC and HTTP.

    python -m benchmarks.stream_precision [--rounds 3] [--seconds 5] [--lead 200us] [--realtime] [--out reports/stream-precision.md]

The bundled server sends the first response of each stream at its declared instant, and each other one a gap after the one before.
The server has one CPU, perfkit another. The time that the server's front end and the kernel add to a first response is measured first, for
each protocol and engine; the declared `lead` compensates for it, as in `benchmarks.synthetic_precision`. The differences are medians of the
rounds; --realtime keeps other programs off both CPUs.
The exit code is 1 if a figure deviates by more than is allowed there.
"""

import os
import statistics
import sys
from typing import Any, NamedTuple

from benchmarks.processes import on_cpus, run_perfkit, running_server
from benchmarks.report import describe_machine, table_head, table_row, write_report, yes_no
from benchmarks.synthetic_precision import ALLOWED, allowed_us, precision_options

TIMES = ("first_response_time_ns", "response_gap_ns", "stream_time_ns")


class Case(NamedTuple):
    """Streams of so many responses over a protocol: the first after `first_ms`, then a gap each."""

    protocol: str
    engine: str
    first_ms: float = 10
    gap_ms: float = 4
    responses: int = 5
    requests_per_stream: int = 1

    @property
    def declared_us(self) -> tuple[float, float, float]:
        """The time to the first response, a gap, and the time to the last response."""
        return 1e3 * self.first_ms, 1e3 * self.gap_ms, 1e3 * (self.first_ms + (self.responses - 1) * self.gap_ms)


CASES = (
    Case("grpc", "wire"),
    Case("grpc", "wire", requests_per_stream=1000),
    Case("grpc", "wire", first_ms=2, gap_ms=1, responses=20),
    Case("http", "wire"),
)


def measure(case: Case, lead: str, seconds: float, cpus: list[int]) -> dict[str, Any]:
    """The load point of one round."""
    declared = f"service=constant:{case.first_ms}ms,responses={case.responses},gap={case.gap_ms}ms,lead={lead}"
    with running_server("--model=synthetic", f"--cpus={cpus[0]}", "--synthetic", declared) as server, on_cpus(cpus[-1:]):
        run = run_perfkit(
            {
                "name": "streams",
                "target": {"url": server.url(case.protocol), "model": "synthetic", "engine": case.engine},
                "workload": {"inputs": {"INPUT0": {"generate": "zeros", "shape": [4]}}},
                "stream": {"requests_per_stream": case.requests_per_stream},
                "load": {"closed": {"concurrency": [1]}},
                "measure": {"warmup": "1s", "duration": f"{seconds}s", "repetitions": 1},
                "telemetry": False,
            }
        )
    if run.point["responses"]["count"] != case.responses * run.point["requests"]["sent"]:
        sys.exit(f"stream_precision: {run.point['responses']} to {run.point['requests']}")
    return run.point


def rows(case: Case, rounds: int, seconds: float, lead: str | None, cpus: list[int]) -> tuple[list[str], bool]:
    """The lines of a case, and whether its deviations are allowed."""
    if lead is None:
        first = measure(case, "0s", seconds, cpus)["first_response_time_ns"]
        lead = f"{max(0.0, first['p50'] / 1e3 - case.declared_us[0]):.0f}us"
    points = [measure(case, lead, seconds, cpus) for _ in range(rounds)]
    streams = f"{case.protocol}, {case.engine}, {case.responses} responses, {case.requests_per_stream:,} per stream, lead {lead}"
    lines, is_precise = [], True
    for name, declared_us in zip(TIMES, case.declared_us, strict=True):
        errors_us = [statistics.median(point[name][key] / 1e3 - declared_us for point in points) for key in ("mean", "p50", "p99")]
        limits_us = allowed_us(declared_us, declared_us)
        fits = abs(errors_us[0]) <= limits_us[0] and abs(errors_us[2]) <= limits_us[1]
        cells = (f"{declared_us / 1e3:g} ms", *(f"{error:+.0f} us" for error in errors_us), *(f"{one:.0f} us" for one in limits_us))
        lines.append(table_row(streams, name.removesuffix("_ns").replace("_", " "), *cells, yes_no(fits)))
        is_precise = is_precise and fits
    return lines, is_precise


def main() -> int:
    """Prints the table."""
    options, cpus = precision_options(__doc__)
    if options.realtime:  # which server and perfkit inherit with all their threads
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
    lines = [
        "# Precision of streams",
        "",
        (
            f"Measured by perfkit − declared; medians of {options.rounds} rounds of {options.seconds:g} s at concurrency 1. The server has one CPU, "
            f"perfkit another{', both at real-time priority' if options.realtime else ''}. {describe_machine()}"
        ),
        f"Allowed, as for single answers: {ALLOWED}",
        "",
        *table_head(
            "streams", "time", ">declared", ">error of the mean", ">of the p50", ">of the p99", ">allowed, mean", ">allowed, p99",
            "within the limits",
        ),
    ]  # fmt: skip
    print("\n".join(lines))
    all_precise = True
    for case in CASES:
        of_case, is_precise = rows(case, options.rounds, options.seconds, options.lead, cpus)
        print("\n".join(of_case), flush=True)
        lines += of_case
        all_precise = all_precise and is_precise
    write_report(options.out, lines)
    return 0 if all_precise else 1


if __name__ == "__main__":
    sys.exit(main())
