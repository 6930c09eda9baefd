"""perfkit on servers with declared behaviour: what it reports about stalls, overload and its own limits.

    python -m benchmarks.ground_truth [--out reports/ground-truth.md]

Each row is a run on the bundled server's model `synthetic`, whose declaration gives the correct figures: a stall of 1 s in
every 10 s at 200 arrivals per second gives response times of 0.5 s at p95 and 0.9 s at p99; one server of 5 ms answers at most
200 requests per second. The exit code is 1 if a row is wrong.
"""

import sys
from collections.abc import Callable
from typing import Any, NamedTuple

from benchmarks.processes import run_perfkit, running_server
from benchmarks.report import Report, program_options
from benchmarks.synthetic import closed_loop, open_loop, scenario

STALLING = "service=constant:1ms,servers=1000,stall=1s/10s,drain=at-once"
SINGLE = "service=constant:5ms,servers=1"
STALLED = open_loop(200, arrivals="constant")
MS = 1e6
GENERATOR_WARNINGS = {"behind_schedule", "late_starts", "generator_bound", "generator_stopped"}
Point = dict[str, Any]


class Case(NamedTuple):
    """A declared server, a load on it, the expected exit code and figures, and a check of the load point."""

    name: str
    declaration: str
    load: Point
    seconds: int
    exit_code: int
    expected: str
    show: Callable[[Point], str]
    is_correct: Callable[[Point], bool]


def codes(point: Point) -> set[str]:
    """The codes of a point's warnings."""
    return {warning["code"] for warning in point["warnings"]}


def is_within(value: float, true_value: float, share: float) -> bool:
    """Whether a value deviates from the true one by at most a share of it."""
    return abs(value - true_value) <= share * true_value


def has_stall(point: Point) -> bool:
    """Whether the percentiles are those of a stall of 1 s in 10 s."""
    times = point["response_time_ns"]
    return is_within(times["p95"], 500 * MS, 0.03) and is_within(times["p99"], 900 * MS, 0.03)


def show_times(point: Point) -> str:
    """Percentiles of the response time, or of the service time in a closed loop."""
    times = point["response_time_ns"] or point["service_time_ns"]
    return f"p95 {times['p95'] / MS:.1f} ms, p99 {times['p99'] / MS:.1f} ms"


def show_validity(point: Point) -> str:
    """Whether the point is valid, and its warnings."""
    return f"valid: {point['valid']}, {', '.join(sorted(codes(point)))}"


CASES = (
    Case("a stall in an open loop", STALLING, STALLED, 40, 0, "p95 500 ms, p99 900 ms, within 3 %", show_times, has_stall),
    Case("the same stall in a closed loop", STALLING, closed_loop(1), 40, 0, "p99 below 50 ms: a closed loop omits the wait", show_times,
         lambda point: point["service_time_ns"]["p99"] < 50 * MS),
    Case("the same stall with max_in_flight: 8", STALLING, {"open": {**STALLED["open"], "max_in_flight": 8}}, 40, 1,
         "dropped requests are counted; overloaded, the SLO is violated",
         lambda point: f"{point['requests']['dropped']} of {point['requests']['scheduled']} dropped",
         lambda point: point["requests"]["dropped"] > 0 and {"dropped", "overloaded"} <= codes(point)),
    Case("twice the capacity", SINGLE, open_loop(400), 20, 1, "valid, overloaded, 200/s within 2 %, the SLO is violated",
         lambda point: f"{point['throughput_per_s']:.1f}/s, {show_validity(point)}",
         lambda point: point["valid"] and "overloaded" in codes(point) and is_within(point["throughput_per_s"], 200, 0.02)),
    Case("a rate that the load generator cannot reach", SINGLE, open_loop(100_000, arrivals="constant"), 3, 5, "invalid, with the reason",
         show_validity, lambda point: not point["valid"] and bool(GENERATOR_WARNINGS & codes(point))),
)  # fmt: skip


def main() -> int:
    """Prints the table."""
    options = program_options(__doc__, only=("", "only the cases whose names contain it"))
    page = Report(options.out, "perfkit on servers with declared behaviour")
    page.table("case", "expected", "reported by perfkit", "correct")
    for case in (case for case in CASES if options.only in case.name):
        with running_server("--model=synthetic", f"--synthetic={case.declaration}") as server:
            connections = {"max_connections": 4096 if case.exit_code != 5 else 64}
            document = scenario(server.url(), case.load, case.seconds, target=connections, measure={"warmup": "0s"})
            ended = run_perfkit({**document, **({"slo": {"p95": "50ms"}} if case.exit_code == 1 else {})}, "--on-inconclusive=pass")
        counts = ended.point["requests"]
        outcomes = sum(count for name, count in counts.items() if name not in ("scheduled", "dropped", "sent"))
        counts_add_up = counts["scheduled"] == counts["dropped"] + counts["sent"] and counts["sent"] == outcomes
        is_correct = case.is_correct(ended.point) and ended.exit_code == case.exit_code and counts_add_up
        page.judged_row(
            is_correct, case.name, f"{case.expected}; exit {case.exit_code}", f"{case.show(ended.point)}; exit {ended.exit_code}"
        )
    return page.write()


if __name__ == "__main__":
    sys.exit(main())
