"""perfkit against servers whose behaviour is declared: what it says of stalls, of too much load, and of itself.

    python benchmarks/ground_truth.py [--out reports/ground-truth.md]

Each row is a run on the bundled server's model `synthetic`. What is right follows from what was declared: a stall of 1 s in
every 10 s at 200 arrivals a second gives response times of 0.5 s at p95 and 0.9 s at p99; one server of 5 ms answers 200
requests a second whatever it is offered.
"""

import argparse
import json
import pathlib
import subprocess
import sys
import tempfile
from collections.abc import Callable
from typing import Any, NamedTuple

STALLING = "service=constant:1ms,servers=1000,stall=1s/10s,drain=at-once"
SINGLE = "service=constant:5ms,servers=1"
MS = 1e6


class Case(NamedTuple):
    """A declared server, a load on it, and what perfkit has to say of it."""

    name: str
    law: str
    load: dict[str, Any]
    seconds: int
    exit_code: int
    expected: str
    found: Callable[[dict[str, Any]], str]
    holds: Callable[[dict[str, Any]], bool]


def codes(point: dict[str, Any]) -> set[str]:
    """The codes of a point's warnings."""
    return {warning["code"] for warning in point["warnings"]}


def near(value: float, right: float, share: float) -> bool:
    """Whether a value is right within a share."""
    return abs(value - right) <= share * right


def times(point: dict[str, Any]) -> str:
    """Percentiles for the table."""
    shown = point["response_time_ns"] or point["service_time_ns"]
    return f"p95 {shown['p95'] / MS:.1f} ms, p99 {shown['p99'] / MS:.1f} ms"


OPEN = {"rate": 200, "arrivals": "constant"}
CASES = (
    Case(
        "a stall, seen by an open loop",
        STALLING,
        {"open": OPEN},
        40,
        0,
        "p95 500 ms, p99 900 ms, within 3 %",
        times,
        lambda point: near(point["response_time_ns"]["p95"], 500 * MS, 0.03) and near(point["response_time_ns"]["p99"], 900 * MS, 0.03),
    ),
    Case(
        "the same, seen by a closed loop",
        STALLING,
        {"closed": {"concurrency": 1}},
        40,
        0,
        "p99 below 50 ms: it omits the wait",
        times,
        lambda point: point["service_time_ns"]["p99"] < 50 * MS,
    ),
    Case(
        "the same with max_in_flight: 8",
        STALLING,
        {"open": {**OPEN, "max_in_flight": 8}},
        40,
        1,
        "drops are counted, and are a backlog that no figure shows: overloaded, its SLO violated",
        lambda point: f"{point['requests']['dropped']} of {point['requests']['scheduled']} dropped",
        lambda point: point["requests"]["dropped"] > 0 and {"dropped", "overloaded"} <= codes(point),
    ),
    Case(
        "twice the capacity",
        SINGLE,
        {"open": {"rate": 400, "arrivals": "poisson"}},
        20,
        1,
        "valid, overloaded, 200/s within 2 %, its SLO violated",
        lambda point: f"{point['throughput_per_s']:.1f}/s, valid: {point['valid']}, {', '.join(sorted(codes(point)))}",
        lambda point: point["valid"] and "overloaded" in codes(point) and near(point["throughput_per_s"], 200, 0.02),
    ),
    Case(
        "a rate that the generator cannot reach",
        SINGLE,
        {"open": {"rate": 100_000, "arrivals": "constant"}},
        3,
        5,
        "invalid, with the reason",
        lambda point: f"valid: {point['valid']}, {', '.join(sorted(codes(point)))}",
        lambda point: not point["valid"] and bool({"behind_schedule", "late_starts", "generator_bound"} & codes(point)),
    ),
)


def run(case: Case, folder: pathlib.Path) -> tuple[str, bool]:
    """A row of the table, and whether all of it is as it should be."""
    command = [sys.executable, "-m", "server_stub", "--http-port", "0", "--grpc-port", "0", "--exit-with-stdin", "--model", "synthetic"]
    with subprocess.Popen([*command, "--synthetic", case.law], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as server:
        assert server.stdin is not None
        assert server.stdout is not None
        port = json.loads(server.stdout.readline())["http_port"]
        scenario = {
            "target": {"url": f"http://127.0.0.1:{port}", "model": "synthetic", "max_connections": 4096 if case.exit_code != 5 else 64},
            "workload": {"inputs": {"INPUT0": {"generate": "ones", "shape": [4]}}},
            "load": case.load,
            "measure": {"warmup": "0s", "duration": f"{case.seconds}s", "repetitions": 1},
            **({"slo": {"p95": "50ms"}} if case.exit_code == 1 else {}),
        }
        file = folder / "scenario.yaml"
        file.write_text(json.dumps(scenario), encoding="utf-8")  # JSON is YAML
        perfkit = [sys.executable, "-m", "perfkit", "run", str(file), "--quiet", "--on-inconclusive", "pass", "--out", str(folder / "out")]
        ended = subprocess.run(perfkit, stdout=subprocess.DEVNULL, check=False)
        server.stdin.close()
    (point,) = json.loads((folder / "out" / "result.json").read_text(encoding="utf-8"))["points"]
    counts = point["requests"]
    adds_up = counts["scheduled"] == counts["dropped"] + counts["sent"] and counts["sent"] == sum(
        count for name, count in counts.items() if name not in ("scheduled", "dropped", "sent")
    )
    holds = case.holds(point) and ended.returncode == case.exit_code and adds_up
    row = f"| {case.name} | {case.expected}; exit {case.exit_code} | {case.found(point)}; exit {ended.returncode} | {'yes' if holds else 'no'} |"
    return row, holds


def main() -> int:
    """Prints the table; the exit code is 1 where a row does not hold."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--out", type=pathlib.Path)
    options = parser.parse_args()
    lines, all_hold = ["| what happens | what is right | what perfkit said | holds |", "|---|---|---|---|"], True
    print("\n".join(lines))
    for case in CASES:
        with tempfile.TemporaryDirectory() as folder:
            row, holds = run(case, pathlib.Path(folder))
        print(row, flush=True)
        lines.append(row)
        all_hold = all_hold and holds
    if options.out:
        text = "\n".join(["# perfkit against declared behaviour", "", *lines, ""])
        options.out.write_text(text, encoding="utf-8")
    return 0 if all_hold else 1


if __name__ == "__main__":
    sys.exit(main())
