"""Sequences of geometric length on a live M/M/1 queue: what they take, against the closed form.

    python -m benchmarks.sequence_queue [--runs 10] [--seconds 60] [--at-once 2] [--realtime] [--out reports/sequence-queue.md]

The bundled server's model `synthetic` serves with exponential times of 10 ms (μ = 100/s). Sequences of 4 steps on average arrive as a Poisson
process with λ = 15/s, and each step follows the answer to the one before. After a step a sequence goes on with probability 3/4: a
queue with Bernoulli feedback. Its number of sequences is geometric with ρ = λm/μ = 0.6 (Jackson 1957), so that by Little's law a sequence takes
m/(μ - λm) = 100 ms on average (Takács 1963); the response time of each step is exponential with mean 1/(μ - λm) = 25 ms, since arriving
and returning sequences see the queue as it is on average (Lavenberg and Reiser 1980).

Every run has its own seeds. A figure agrees if the truth lies within the interval of Student's t from the runs' means, at 99.8 % for each of the
five figures: one of them disagrees by chance once in 100. The time that the server's front end and the kernel add is measured first; the declared
`lead` compensates for it. The exit code is 1 if a figure disagrees.
"""

import concurrent.futures
import math
import sys
from typing import Any

import numpy as np

from benchmarks.live_queue import measure_lead_us
from benchmarks.processes import REALTIME, run_perfkit, running_server
from benchmarks.report import option_parser, table_head, table_row, write_report, yes_no
from perfkit.stats.distributions import student_t_quantile

RATE_PER_S, MEAN_LENGTH, SERVICE_PER_S, FALSE_ALARMS = 15.0, 4.0, 100.0, 0.002
_DRAIN_PER_S = SERVICE_PER_S - RATE_PER_S * MEAN_LENGTH
TRUTH = {
    "sequence, mean ms": 1e3 * MEAN_LENGTH / _DRAIN_PER_S,
    "step, mean ms": 1e3 / _DRAIN_PER_S,
    "step, p50 ms": 1e3 * math.log(2) / _DRAIN_PER_S,
    "step, p90 ms": 1e3 * math.log(10) / _DRAIN_PER_S,
    "steps per sequence": MEAN_LENGTH,
}


def measure(seed: int, lead_us: int, seconds: int, *, realtime: bool) -> dict[str, float]:
    """The figures of one run on a server of its own."""
    declaration = f"service=exponential:10ms,servers=1,lead={lead_us}us,seed={1000 + seed}"
    with running_server("--model=synthetic", f"--synthetic={declaration}", realtime=realtime) as server:
        scenario: dict[str, Any] = {
            "target": {"url": server.url(), "model": "synthetic"},
            "workload": {"seed": seed, "inputs": {"INPUT0": {"generate": "ones", "shape": [4]}}},
            "load": {"open": {"rate": RATE_PER_S, "arrivals": "poisson"}},
            "sequences": {"length": {"geometric": MEAN_LENGTH}},
            "measure": {"warmup": "5s", "duration": f"{seconds}s", "repetitions": 1},
        }
        point = run_perfkit(scenario, prefix=REALTIME if realtime else ()).point
    times = point["response_time_ns"]
    figures = (point["sequence_time_ns"]["mean"] / 1e6, times["mean"] / 1e6, times["p50"] / 1e6, times["p90"] / 1e6)
    return dict(zip(TRUTH, (*figures, point["requests"]["ok"] / point["sequences"]["started"]), strict=True))


def main() -> int:
    """Prints the table."""
    parser = option_parser(__doc__)
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--seconds", type=int, default=60, help="window of each run (default %(default)s)")
    parser.add_argument("--at-once", type=int, default=2, help="concurrent runs, each with its own server")
    parser.add_argument("--realtime", action="store_true", help="run servers and clients at real-time priority")
    options = parser.parse_args()
    lead_us = measure_lead_us(5, realtime=options.realtime)
    with concurrent.futures.ThreadPoolExecutor(options.at_once) as pool:
        runs = list(pool.map(lambda seed: measure(seed, lead_us, options.seconds, realtime=options.realtime), range(options.runs)))
    lines = [
        "# Sequences of geometric length on a live M/M/1 queue",
        "",
        f"{options.runs} runs of {options.seconds} s; lead {lead_us} µs; intervals of {1 - FALSE_ALARMS:.1%} from the runs' means.",
        "",
        *table_head("figure", ">closed form", ">measured", "interval", "agrees"),
    ]
    agree = True
    for name, truth in TRUTH.items():
        values = np.array([run[name] for run in runs])
        mean, margin = values.mean(), student_t_quantile(1 - FALSE_ALARMS / 2, len(runs) - 1) * values.std(ddof=1) / math.sqrt(len(runs))
        is_inside = bool(abs(mean - truth) <= margin)
        agree &= is_inside
        lines.append(table_row(name, f"{truth:.2f}", f"{mean:.2f}", f"{mean - margin:.2f} to {mean + margin:.2f}", yes_no(is_inside)))
    print("\n".join(lines))
    write_report(options.out, lines)
    return 0 if agree else 1


if __name__ == "__main__":
    sys.exit(main())
