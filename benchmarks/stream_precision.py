"""Precision of streams: what perfkit measures of `synthetic` streams with declared instants, over gRPC and HTTP.

    python -m benchmarks.stream_precision [--rounds 3] [--seconds 5] [--lead 200us] [--realtime] [--out reports/stream-precision.md]

The bundled server sends the first response of each stream at its declared instant, and each other one a gap after the one before.
The server has one CPU, perfkit another. The time that the server's front end and the kernel add to a first response is measured first, for
each protocol; the declared `lead` compensates for it, as in `benchmarks.synthetic_precision`. The differences are medians of the
rounds; --realtime keeps other programs off both CPUs. The exit code is 1 if a figure deviates by more than is allowed there.
"""

import os
import statistics
import sys
from typing import Any, NamedTuple

from benchmarks.processes import on_cpus, run_perfkit, running_server
from benchmarks.report import Report, describe_machine, rounds_text
from benchmarks.synthetic import closed_loop, scenario
from benchmarks.synthetic_precision import ALLOWED, allowed_us, precision_options

TIMES = ("first_response_time_ns", "response_gap_ns", "stream_time_ns")


class Case(NamedTuple):
    """Streams of so many responses over a protocol: the first after `first_ms`, then a gap each."""

    protocol: str
    first_ms: float = 10
    gap_ms: float = 4
    responses: int = 5
    requests_per_stream: int = 1

    @property
    def declared_us(self) -> tuple[float, float, float]:
        """The time to the first response, a gap, and the time to the last response."""
        return 1e3 * self.first_ms, 1e3 * self.gap_ms, 1e3 * (self.first_ms + (self.responses - 1) * self.gap_ms)


CASES = (Case("grpc"), Case("grpc", requests_per_stream=1000), Case("grpc", first_ms=2, gap_ms=1, responses=20), Case("http"))


def measure(case: Case, lead: str, seconds: float, cpus: list[int]) -> dict[str, Any]:
    """The load point of one round."""
    declared = f"service=constant:{case.first_ms}ms,responses={case.responses},gap={case.gap_ms}ms,lead={lead}"
    with running_server("--model=synthetic", f"--cpus={cpus[0]}", "--synthetic", declared) as server, on_cpus(cpus[-1:]):
        stream = {"requests_per_stream": case.requests_per_stream}
        point = run_perfkit(scenario(server.url(case.protocol), closed_loop(1), seconds, stream=stream, telemetry=False)).point
    if point["responses"]["count"] != case.responses * point["requests"]["sent"]:
        sys.exit(f"stream_precision: {point['responses']} to {point['requests']}")
    return point


def main() -> int:
    """Prints the table."""
    options, cpus = precision_options(__doc__)
    if options.realtime:  # which server and perfkit inherit with all their threads
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
    page = Report(options.out, "Precision of streams")
    page.add(
        f"Measured by perfkit − declared; medians of {rounds_text(options.rounds)} of {options.seconds:g} s at concurrency 1. The server has one CPU, "
        f"perfkit another{', both at real-time priority' * options.realtime}. {describe_machine()}",
        f"Allowed, as for single answers: {ALLOWED}",
        "",
    )
    page.table("streams", "time", ">declared", ">error of the mean", ">of the p50", ">of the p99", ">allowed, mean", ">allowed, p99",
               "within the limits")  # fmt: skip
    for case in CASES:
        lead = options.lead
        if lead is None:
            first = measure(case, "0s", options.seconds, cpus)["first_response_time_ns"]
            lead = f"{max(0.0, first['p50'] / 1e3 - case.declared_us[0]):.0f}us"
        points = [measure(case, lead, options.seconds, cpus) for _ in range(options.rounds)]
        streams = f"{case.protocol}, {case.responses} responses, {case.requests_per_stream:,} per stream, lead {lead}"
        for name, declared_us in zip(TIMES, case.declared_us, strict=True):
            errors_us = [statistics.median(point[name][key] / 1e3 - declared_us for point in points) for key in ("mean", "p50", "p99")]
            limits_us = allowed_us(declared_us, declared_us)
            cells = (f"{declared_us / 1e3:g} ms", *(f"{error:+.0f} us" for error in errors_us), *(f"{one:.0f} us" for one in limits_us))
            fits = abs(errors_us[0]) <= limits_us[0] and abs(errors_us[2]) <= limits_us[1]
            page.judged_row(fits, streams, name.removesuffix("_ns").replace("_", " "), *cells)
    return page.write()


if __name__ == "__main__":
    sys.exit(main())
